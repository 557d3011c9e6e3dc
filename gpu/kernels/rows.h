// Rows: the text of a reply for each key that is hot, written by the host; of a key that is asked for in several
// forms, one for each: by several verbs, or by `mg` with other flags. Sets of 16 ways; a way has a signature of 32 bits, 0 if it is empty, and a row of its own.
//
// Searches and updates run at the same time, and a search may see any mixture. What it finds by a
// signature is believed only if no way of that signature was written since the batch was sent: the host's
// filter is by the bits of the signature. No content leads out of bounds.
#pragma once
#include "found.h"
#include "siphash.h"

// In a row, the words before the one whose upper half begins the key: that of a line, behind VALUE.
constexpr u32 ROW_LINE_KEY = (u32(sizeof(RowFacts)) + 4) / 4;

__device__ __forceinline__ const u8 *row_at(const RowTable &table, u32 way) {
  return at<const u8>(table.rows) + u64(way) * sizeof(Row);
}

// Whether the row has this key, or what an `mg` has from its key on, for this kind of request.
template <class Key> __device__ __forceinline__ bool row_has(const u8 *row, const Key &key, u32 kind) {
  const u32 *words = reinterpret_cast<const u32 *>(row);
  u32 len = key.len, first = ROW_LINE_KEY;
  // Behind the text.
  if (kind >> 8 > VERB_GETS) first = (u32(sizeof(RowFacts)) + (load_relaxed(words) & 0xffff) + 3) / 4;
  bool same = int((load_relaxed(words + 1) & 0xffff) == kind) &
              int(4 * first + len <= u32(sizeof(Row)) - 4);
#pragma unroll 1
  for (u32 from = 0; same && from < len; from += 4) {
    u32 i = first + from / 4;
    u32 word = load_relaxed(words + i) >> 16 | load_relaxed(words + i + 1) << 16;
    u32 mask = len - from >= 4 ? ~0u : (1u << (len - from) * 8) - 1;
    same = ((word ^ key.word(from)) & mask) == 0;
  }
  return same;
}

// The row, by the number of its way.
template <class Key>
__device__ __forceinline__ Found find_row(const RowTable &table, const Key &key, Wide hash, u32 kind) {
  if (table.n_sets == 0) return {HINT_UNKNOWN, 0, nullptr};
  u32 signature = hash.low > 1 ? hash.low : 1, first = __umulhi(hash.high, table.n_sets) * WAYS;
  const u32 *signatures = at<const u32>(table.signatures) + first;
#pragma unroll 1
  for (u32 i = 0; i < WAYS; i += 4) {
    uint4 four = load16_relaxed(signatures + i);
    u32 fits = u32(four.x == signature) | u32(four.y == signature) << 1 |
               u32(four.z == signature) << 2 | u32(four.w == signature) << 3;
#pragma unroll 1
    for (; fits; fits &= fits - 1) {
      u32 way = first + i + u32(__ffs(int(fits)) - 1);
      if (row_has(row_at(table, way), key, kind)) return {HINT_ROW, way, nullptr};
    }
  }
  return {HINT_UNKNOWN, 0, nullptr};
}

// Says which keys have rows. Of others the host knows more.
struct RowSearch {
  enum : bool { KNOWS_VALUES = false, HAS_ROWS = true };

  template <class Key>
  static __device__ __forceinline__ Found look_up(const Index &index, u32, const Key &key, Wide hash, u32 kind) {
    return find_row(index.rows, key, hash, kind);
  }
};
