// The set-associative index (MemcachedGPU): 16 ways a set, 8-bit tags, keys inline in tables by
// classes of key length, recency by set.
//
// Searches and updates run at the same time. A search may see half of an update, and then finds an
// old location or nothing: the host checks whatever is found. No content leads out of bounds.
#pragma once
#include "found.h"
#include "siphash.h"

enum : u32 { SET_ALL_WAYS = (1u << WAYS) - 1 };

// The tag of a hash: never 0.
__device__ __forceinline__ u32 tag_of(u64 hash) {
  u32 tag = u32(hash) & 0xff;
  return tag ? tag : 1;
}

// Bytes from one way's entry to the next: whole sectors of memory.
__device__ __forceinline__ u32 way_bytes(u32 key_max) {
  return (u32(sizeof(Way)) + key_max + 31) / 32 * 32;
}

// One set of a table, and where its ways are.
struct SetView {
  Set *set;
  u8 *ways;
  u32 stride;

  __device__ __forceinline__ u8 *way(u32 i) const { return ways + u64(i) * stride; }
};

// The set of a hash, by its high word, in a table that has any.
__device__ __forceinline__ SetView set_in(const SetTable &table, u32 hash_high) {
  u32 set = __umulhi(hash_high, table.n_sets), stride = way_bytes(table.key_max);
  return {at<Set>(table.sets) + set, at<u8>(table.keys) + u64(set) * WAYS * stride, stride};
}

// The table for keys of this length, or TABLES.
__device__ __forceinline__ u32 table_of(const Index &index, u32 len) {
  u32 t = 0;
#pragma unroll 1
  while (t < TABLES && ((len > index.tables[t].key_max) | (index.tables[t].n_sets == 0))) t++;
  return t;
}

// The set of a key of this length. No set (null) if there is no table for it.
__device__ inline SetView find_set(const Index &index, u64 hash, u32 len) {
  u32 t = table_of(index, len);
  return t < TABLES ? set_in(index.tables[t], u32(hash >> 32)) : SetView{nullptr, nullptr, 0};
}

// 1 bit for each byte of `word` that is `tag`: bits 0 to 3.
__device__ __forceinline__ u32 equal_bytes(u32 word, u32 tag) {
  // One bit of each byte, gathered in the top four bits by the product.
  return ((__vcmpeq4(word, tag * 0x01010101u) & 0x01010101u) * 0x10204080u) >> 28;
}

// Which ways have this tag, a bit each: one 16-byte load.
__device__ __forceinline__ u32 ways_with_tag(const Set *set, u32 tag) {
  uint4 tags = load16_relaxed(set->tags);
  return equal_bytes(tags.x, tag) | equal_bytes(tags.y, tag) << 4 | equal_bytes(tags.z, tag) << 8 |
         equal_bytes(tags.w, tag) << 12;
}

// Ways that have this tag: way 4 * i + j as bit 8 * j + 4 + i. None else: an empty way may still hold
// the key that was taken out of it.
__device__ __forceinline__ u32 candidates_of(const Set *set, u32 tag) {
  uint4 tags = load16_relaxed(set->tags);
  u32 words[4] = {tags.x, tags.y, tags.z, tags.w}, found = 0;
  for (u32 i = 0; i < 4; i++) {
    u32 differs = words[i] ^ tag * 0x01010101u;
    // The top bit of each byte that is 0.
    found |= neither<0x80808080>((differs & 0x7f7f7f7f) + 0x7f7f7f7f, differs) >> (3 - i);
  }
  return found;
}

// Whether the first `len - at` bytes (at most 4) of two words differ.
__device__ __forceinline__ bool differ(u32 a, u32 b, u32 at, u32 len) {
  if (at >= len) return false;
  u32 mask = len - at >= 4 ? ~0u : (1u << (len - at) * 8) - 1;
  return ((a ^ b) & mask) != 0;
}

// What of eight bytes that end with a key's first `end` bytes belongs to a key of so many bits,
// shifted to the top.
__device__ __forceinline__ u64 of_key(u64 bytes, int end, int bits) {
  int beyond = 8 * end - bits;
  return shift_left(bytes, u32(beyond > 0 ? beyond : 0));
}

// Whether the way holds the key.
template <class Key> __device__ __forceinline__ bool is_way_of(const u8 *way, const Key &key) {
  u32 words[5];
  int bits = int(8 * key.len);
  key.begin(words);
  // Both on their way before either is looked at; there are 32 bytes of every way.
  u64 head, a, b, c;
  load16_relaxed(way, head, a);
  load16_relaxed(way + 16, b, c);
  u64 differs = of_key(a ^ wide(key.len, words[0]), 4, bits) |
                of_key(b ^ wide(words[1], words[2]), 12, bits) |
                of_key(c ^ wide(words[3], words[4]), 20, bits);
#pragma unroll 1
  for (u32 at = 20; at < key.len && !differs; at += 16) {
    load16_relaxed(way + sizeof(Way) + at, b, c);
    differs = of_key(b ^ wide(key.word(at), key.word(at + 4)), int(at) + 8, bits) |
              of_key(c ^ wide(key.word(at + 8), key.word(at + 12)), int(at) + 16, bits);
  }
  return !differs;
}

// The same for a key that lies anywhere: a word after the other, in few registers.
__device__ __forceinline__ bool is_way_of(const u8 *way, const FrameKey &key) {
  const Way *head = reinterpret_cast<const Way *>(way);
  const u32 *words = reinterpret_cast<const u32 *>(head + 1);
  bool same = load_relaxed(&head->key_len) == key.len;
#pragma unroll 1
  for (u32 at = 0; same && at < key.len; at += 4)
    same = !differ(load_relaxed(words + at / 4), key.word(at), at, key.len);
  return same;
}

// Looks keys up, and stamps what it finds.
struct SetSearch {
  // It knows enough to write the head of a reply.
  enum : bool { KNOWS_VALUES = true };

  template <class Key>
  static __device__ __forceinline__ Found look_up(const Index &index, u32 now, const Key &key,
                                                  Wide hash) {
    u32 t = table_of(index, key.len);
    if (t == TABLES) return {HINT_UNKNOWN, 0, nullptr};
    SetView view = set_in(index.tables[t], hash.high);
    for (u32 candidates = candidates_of(view.set, tag_of(hash.low)); candidates;
         candidates &= candidates - 1) {
      u32 bit = u32(__ffs(int(candidates)) - 1), way = (bit & 3) * 4 + bit / 8;
      // On their way with the key.
      u16 *stamp = &view.set->stamps[way];
      u32 location = load_relaxed(&view.set->locations[way]), stamped = load_relaxed(stamp);
      if (!is_way_of(view.way(way), key)) continue;
      // Within a second one writes; the others see that it is done.
      if (stamped != (now & 0xffff)) store_relaxed(stamp, u16(now));
      return {HINT_HIT, location, reinterpret_cast<const Way *>(view.way(way))};
    }
    return {HINT_MISS, 0, nullptr};
  }
};
