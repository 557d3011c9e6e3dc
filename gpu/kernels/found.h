// What an index says of a key, and for which kind of request it is asked.
#pragma once
#include "layout.h"

// As a row's facts have it: RowFacts.key_len, and .verb above it. Of an mg with `flags` behind its key.
__device__ __forceinline__ u32 kind_of(u32 key_len, u32 verb, u32 flags = 0) {
  return key_len | (verb | flags << ROW_FLAGS_BIT) << 8;
}
// The kind of no row.
enum : u32 { KIND_NONE = 1u << 16 };

struct Found {
  u32 hint;
  // Of a hit the item's; of a row its way.
  u32 location;
  // Of a hit, where flags and length of the value are, in an index that knows them.
  const Way *way;
};
