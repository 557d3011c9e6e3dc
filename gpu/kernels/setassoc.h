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

// Whether the first `len - at` bytes (at most 4) of two words differ.
__device__ __forceinline__ bool differ(u32 a, u32 b, u32 at, u32 len) {
  if (at >= len) return false;
  u32 mask = len - at >= 4 ? ~0u : (1u << (len - at) * 8) - 1;
  return ((a ^ b) & mask) != 0;
}

// Whether the way holds the frame's key. Its flags and length of value come with it.
__device__ inline bool is_way_of(const u8 *way, const Frame &frame, u32 off, u32 len,
                                 Found &found) {
  uint4 head = load16_relaxed(way);
  if (head.z != len || differ(head.w, frame.word(off), 0, len)) return false;
  for (u32 at = 4; at < len; at += 16) {
    uint4 key = load16_relaxed(way + sizeof(Way) + at);
    if (differ(key.x, frame.word(off + at), at, len) ||
        differ(key.y, frame.word(off + at + 4), at + 4, len) ||
        differ(key.z, frame.word(off + at + 8), at + 8, len) ||
        differ(key.w, frame.word(off + at + 12), at + 12, len))
      return false;
  }
  found.flags = head.x;
  found.value_len = head.y;
  return true;
}

// Looks a key of a frame up, and stamps what it finds.
struct SetSearch {
  // It knows enough to write the head of a reply.
  enum : bool { KNOWS_VALUES = true };

  static __device__ inline Found look_up(const Index &index, u32 now, const Frame &frame, u32 off,
                                         u32 len) {
    Found found = {HINT_UNKNOWN, 0, 0, 0};
    u64 hash = siphash(index.key, frame, off, len);
    SetView view = find_set(index, hash, len);
    if (!view.set) return found;
    found.hint = HINT_MISS;
    u32 candidates = ways_with_tag(view.set, tag_of(hash));
    while (candidates) {
      u32 way = u32(__ffs(int(candidates)) - 1);
      candidates &= candidates - 1;
      if (!is_way_of(view.way(way), frame, off, len, found)) continue;
      found.hint = HINT_HIT;
      found.location = load_relaxed(&view.set->locations[way]);
      // Within a second one writes; the others see that it is done.
      u16 *stamp = &view.set->stamps[way];
      if (load_relaxed(stamp) != u16(now)) store_relaxed(stamp, u16(now));
      break;
    }
    return found;
  }
};
