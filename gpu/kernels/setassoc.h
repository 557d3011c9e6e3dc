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
  return tag > 1 ? tag : 1;
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

// Whether keys of this length are in this table, if in none before it.
__device__ __forceinline__ bool is_table_for(const SetTable &table, u32 len) {
  return int(len <= table.key_max) & int(table.n_sets != 0);
}

// The set of a key of this length. No set (null) if there is no table for it.
__device__ inline SetView find_set(const Index &index, u64 hash, u32 len) {
#pragma unroll 1
  for (u32 t = 0; t < TABLES; t++)
    if (is_table_for(index.tables[t], len)) return set_in(index.tables[t], u32(hash >> 32));
  return SetView{nullptr, nullptr, 0};
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

// Whether a way holds a key: one that lies anywhere, a word after the other, in few registers.
template <class Key> struct KeyMatch {
  const Key &key;

  __device__ __forceinline__ explicit KeyMatch(const Key &which) : key(which) {}

  __device__ __forceinline__ bool is_in(const u8 *way) const {
    const Way *head = reinterpret_cast<const Way *>(way);
    const u32 *words = reinterpret_cast<const u32 *>(head + 1);
    bool same = load_relaxed(&head->key_len) == key.len;
#pragma unroll 1
    for (u32 at = 0; same && at < key.len; at += 4)
      same = !differ(load_relaxed(words + at / 4), key.word(at), at, key.len);
    return same;
  }
};

// One that is staged: its length and first 20 bytes are at hand.
template <bool TEXT> struct KeyMatch<StagedKey<TEXT>> {
  const StagedKey<TEXT> &key;
  u64 first, second, third;
  // 32 less the key's bits.
  int short_of;

  __device__ __forceinline__ explicit KeyMatch(const StagedKey<TEXT> &which) : key(which) {
    u32 words[5];
    key.begin(words);
    first = wide(key.len, words[0]);
    second = wide(words[1], words[2]);
    third = wide(words[3], words[4]);
    short_of = 32 - int(8 * key.len);
  }

  // Of eight bytes, by `bits` bits further on than a way's first key bytes, those that the key has,
  // shifted to the top.
  static __device__ __forceinline__ u64 of_key(u64 bytes, int short_of, int bits) {
    int beyond = short_of + bits;
    return shift_left(bytes, u32(beyond > 0 ? beyond : 0));
  }

  __device__ __forceinline__ bool is_in(const u8 *way) const {
    // Both on their way before either is looked at; there are 32 bytes of every way.
    u64 head, a, b, c;
    load16_relaxed(way, head, a);
    load16_relaxed(way + 16, b, c);
    // Most others end here.
    if (of_key(a ^ first, short_of, 0)) return false;
    u64 differs = of_key(b ^ second, short_of, 64) | of_key(c ^ third, short_of, 128);
    if (differs) return false;
    int beyond = int(kept(u32(short_of)));
#pragma unroll 1
    for (u32 at = 20; at < key.len; at += 16) {
      load16_relaxed(way + sizeof(Way) + at, b, c);
      int bits = int(8 * at);
      differs = of_key(b ^ wide(key.word(at), key.word(at + 4)), beyond, bits + 32) |
                of_key(c ^ wide(key.word(at + 8), key.word(at + 12)), beyond, bits + 96);
      if (differs) return false;
    }
    return true;
  }
};

// Looks keys up, and stamps what it finds.
struct SetSearch {
  // It knows enough to write the head of a reply.
  enum : bool { KNOWS_VALUES = true, HAS_ROWS = false };

  template <class Key>
  static __device__ __forceinline__ Found look_up(const Index &index, u32 now, const Key &key,
                                                  Wide hash, u32) {
#pragma unroll 1
    for (u32 t = 0; t < TABLES; t++)
      if (is_table_for(index.tables[t], key.len)) return look_in(index.tables[t], now, key, hash);
    return {HINT_UNKNOWN, 0, nullptr};
  }

  template <class Key>
  static __device__ __forceinline__ Found look_in(const SetTable &table, u32 now, const Key &key,
                                                  Wide hash) {
    SetView view = set_in(table, hash.high);
    u32 candidates = candidates_of(view.set, tag_of(hash.low));
    if (!candidates) return {HINT_MISS, 0, nullptr};
    KeyMatch<Key> match(key);
#pragma unroll 1
    do {
      u32 bit = u32(__ffs(int(candidates)) - 1), way = (bit & 3) * 4 + bit / 8;
      // On their way with the key.
      u16 *stamp = &view.set->stamps[way];
      u32 location = load_relaxed(&view.set->locations[way]), stamped = load_relaxed(stamp);
      if (match.is_in(view.way(way))) {
        // Within a second one writes; the others see that it is done.
        if (stamped != (now & 0xffff)) store_relaxed(stamp, u16(now));
        return {HINT_HIT, location, reinterpret_cast<const Way *>(view.way(way))};
      }
      candidates &= candidates - 1;
    } while (candidates);
    return {HINT_MISS, 0, nullptr};
  }
};
