// Rows: the text of a reply for each key that is hot, written by the host. Sets of 16 ways; a way has a
// signature of 32 bits, 0 if it is empty, and a row of its own.
//
// Searches and updates run at the same time, and a search may see any mixture. What it finds by a
// signature is believed only if no way of that signature was written since the batch was sent: the host's
// filter is by the bits of the signature. No content leads out of bounds.
#pragma once
#include "found.h"
#include "siphash.h"

// What stands before the key in the text, and in the row.
constexpr u32 ROW_LINE_BEGIN = 6, ROW_KEY_AT = u32(sizeof(RowFacts)) + ROW_LINE_BEGIN;

static_assert(ROW_KEY_AT % 4 == 2, "a key's word is two halves");

__device__ __forceinline__ const u8 *row_at(const RowTable &table, u32 way) {
  return at<const u8>(table.rows) + u64(way) * sizeof(Row);
}

// Whether the row's key is this one.
template <class Key> __device__ __forceinline__ bool row_has(const u8 *row, const Key &key) {
  const u32 *words = reinterpret_cast<const u32 *>(row);
  u32 len = key.len;
  bool same = int((load_relaxed(words + 1) & 0xff) == len) &
              int(len <= u32(ROW_TEXT_MAX) - ROW_LINE_BEGIN - 2);
#pragma unroll 1
  for (u32 from = 0; same && from < len; from += 4) {
    u32 i = (ROW_KEY_AT + from) / 4;
    u32 word = load_relaxed(words + i) >> 16 | load_relaxed(words + i + 1) << 16;
    u32 mask = len - from >= 4 ? ~0u : (1u << (len - from) * 8) - 1;
    same = ((word ^ key.word(from)) & mask) == 0;
  }
  return same;
}

// The number of the key's way and 1; 0: it has none.
template <class Key>
__device__ __forceinline__ u32 find_row(const RowTable &table, const Key &key, Wide hash) {
  if (table.n_sets == 0) return 0;
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
      if (row_has(row_at(table, way), key)) return way + 1;
    }
  }
  return 0;
}

// Looks plain requests up. Of others the host knows more.
struct RowSearch {
  enum : bool { KNOWS_VALUES = false, HAS_ROWS = true };

  template <class Key>
  static __device__ __forceinline__ Found look_up(const Index &, u32, const Key &, Wide) {
    return {HINT_UNKNOWN, 0, nullptr};
  }
};
