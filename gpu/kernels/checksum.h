// The Internet checksum (RFC 1071).
#pragma once
#include "layout.h"

// Ones-complement sum of 16-bit words in network order, not yet folded. Of an odd number of
// bytes, the last is the high half of a word.
__device__ inline u32 checksum_add(u32 sum, const u8 *bytes, u32 len) {
  u32 at = 0;
  for (; at + 2 <= len; at += 2) sum += u32(bytes[at]) << 8 | bytes[at + 1];
  if (at < len) sum += u32(bytes[at]) << 8;
  return sum;
}

// Folded to 16 bits.
__device__ __forceinline__ u16 checksum_fold(u32 sum) {
  sum = (sum & 0xffff) + (sum >> 16);
  sum = (sum & 0xffff) + (sum >> 16);
  return u16(sum);
}
