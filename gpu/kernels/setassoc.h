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

// The set of a hash in a table that has any.
__device__ inline SetView set_in(const SetTable &table, u64 hash) {
  u32 set = __umulhi(u32(hash >> 32), table.n_sets), stride = way_bytes(table.key_max);
  return {at<Set>(table.sets) + set, at<u8>(table.keys) + u64(set) * WAYS * stride, stride};
}

// The set of a key of this length. No set (null) if there is no table for it.
__device__ inline SetView find_set(const Index &index, u64 hash, u32 len) {
  for (u32 t = 0; t < TABLES; t++) {
    const SetTable &table = index.tables[t];
    if (len > table.key_max || table.n_sets == 0) continue;
    return set_in(table, hash);
  }
  return {nullptr, nullptr, 0};
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

// Ways that may have this tag: way 4 * i + j as bit 8 * j + 4 + i. A way behind one that has the tag,
// in the same word, may be there without having it.
__device__ __forceinline__ u32 candidates_of(const Set *set, u32 tag) {
  uint4 tags = load16_relaxed(set->tags);
  u32 words[4] = {tags.x, tags.y, tags.z, tags.w}, found = 0;
  for (u32 i = 0; i < 4; i++) {
    u32 zero_where_equal = words[i] ^ tag * 0x01010101u;
    found |= ((zero_where_equal - 0x01010101u) & ~zero_where_equal & 0x80808080u) >> (3 - i);
  }
  return found;
}

// Whether the first `len - at` bytes (at most 4) of two words differ.
__device__ __forceinline__ bool differ(u32 a, u32 b, u32 at, u32 len) {
  if (at >= len) return false;
  u32 mask = len - at >= 4 ? ~0u : (1u << (len - at) * 8) - 1;
  return ((a ^ b) & mask) != 0;
}

// Bytes of a key behind which `end` bytes of it end, out of a number of 8 bytes: as far as they
// count, shifted to the top.
__device__ __forceinline__ u64 of_key(u64 bytes, u32 end, u32 len) {
  return shift_left(bytes, end > len ? 8 * (end - len) : 0);
}

__device__ __forceinline__ u64 wide(u32 low, u32 high) { return u64(high) << 32 | low; }

// Whether the way holds the key. Its flags and length of value come with it.
template <class Key>
__device__ __forceinline__ bool is_way_of(const u8 *way, const Key &key, Found &found) {
  // Both on their way before either is looked at; there are 32 bytes of every way.
  uint4 head = load16_relaxed(way), more = load16_relaxed(way + 16);
  u64 differs = of_key(wide(0, head.w ^ key.word(0)), 4, key.len) |
                of_key(wide(more.x, more.y) ^ wide(key.word(4), key.word(8)), 12, key.len) |
                of_key(wide(more.z, more.w) ^ wide(key.word(12), key.word(16)), 20, key.len);
  if (head.z != key.len || differs) return false;
  for (u32 at = 20; at < key.len; at += 16) {
    more = load16_relaxed(way + sizeof(Way) + at);
    differs =
        of_key(wide(more.x, more.y) ^ wide(key.word(at), key.word(at + 4)), at + 8, key.len) |
        of_key(wide(more.z, more.w) ^ wide(key.word(at + 8), key.word(at + 12)), at + 16, key.len);
    if (differs) return false;
  }
  found.flags = head.x;
  found.value_len = head.y;
  return true;
}

// Looks keys up, and stamps what it finds.
struct SetSearch {
  // It knows enough to write the head of a reply.
  enum : bool { KNOWS_VALUES = true };

  template <class Key>
  static __device__ __forceinline__ Found look_up(const Index &index, u32 now, const Key &key,
                                                  Wide hash) {
    Found found = {HINT_UNKNOWN, 0, 0, 0};
    SetView view = find_set(index, wide(hash.low, hash.high), key.len);
    if (!view.set) return found;
    found.hint = HINT_MISS;
    u32 candidates = candidates_of(view.set, tag_of(hash.low));
    while (candidates) {
      u32 bit = u32(__ffs(int(candidates)) - 1), way = (bit & 3) * 4 + bit / 8;
      candidates &= candidates - 1;
      // On their way with the key.
      u16 *stamp = &view.set->stamps[way];
      u32 location = load_relaxed(&view.set->locations[way]), stamped = load_relaxed(stamp);
      if (!is_way_of(view.way(way), key, found)) continue;
      found.hint = HINT_HIT;
      found.location = location;
      // Within a second one writes; the others see that it is done.
      if (stamped != (now & 0xffff)) store_relaxed(stamp, u16(now));
      break;
    }
    return found;
  }
};
