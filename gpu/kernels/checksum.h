// The Internet checksum (RFC 1071), and whether a frame's checksums are right: what
// dataplane/wire/src/verify.rs says, for every frame and any offsets.
//
// Words are summed as they lie in memory; the ones-complement sum does not depend on the order of
// bytes (RFC 1071, section 2(B)), so one swap at the end is enough, and one more for what begins
// at an odd position.
#pragma once
#include "packet.h"

__device__ __forceinline__ u32 halves(u32 word) { return (word & 0xffff) + (word >> 16); }

// Folded to 16 bits.
__device__ __forceinline__ u32 checksum_fold(u32 sum) { return halves(halves(sum)); }

__device__ __forceinline__ u32 swap_half(u32 x) { return (x >> 8 | x << 8) & 0xffff; }

// Of the word at position 4 * i, the bytes at positions from `from` to before `to`.
__device__ __forceinline__ u32 clip(u32 word, u32 i, u32 from, u32 to) {
  if (4 * i < from) word &= ~0u << (from - 4 * i) * 8;
  if (4 * i + 4 > to) word &= ~0u >> (4 * i + 4 - to) * 8;
  return word;
}

// Sum of the bytes at positions from `from` to before `to`, in memory order, not folded. At most
// 64 KB.
__device__ inline u32 sum_words(const u32 *words, u32 from, u32 to) {
  u32 sum = 0;
  for (u32 i = from / 4; 4 * i < to; i++) sum += halves(clip(words[i], i, from, to));
  return sum;
}

// A sum of what began at position `from`, as a number in network order: folded.
__device__ __forceinline__ u32 network_order(u32 sum, u32 from) {
  sum = checksum_fold(sum);
  return from % 2 ? sum : swap_half(sum);
}

// Sum of `len` bytes from offset `off` on, all in the frame, as far as they are staged; what is
// missing has not been added.
__device__ __forceinline__ u32 sum_staged(const Frame &frame, u32 off, u32 len) {
  u32 from = frame.lead + off, to = from + len;
  return sum_words(frame.staged, from, to < STAGED_BYTES ? to : u32(STAGED_BYTES));
}

// Adds to each lane's sum what of its frame, up to position `to`, is not staged. The whole warp
// takes part, in one frame after the other, so that memory is read in whole lines.
__device__ inline u32 add_unstaged(u32 sum, const Frame &frame, u32 from, u32 to) {
  u32 lane = threadIdx.x % 32;
  u32 start = from > STAGED_BYTES ? from : u32(STAGED_BYTES);
  u32 todo = __ballot_sync(~0u, to > start);
  while (todo) {
    int owner = __ffs(int(todo)) - 1;
    todo &= todo - 1;
    const u8 *base = at<const u8>(__shfl_sync(~0u, reinterpret_cast<u64>(frame.base), owner));
    u32 begin = __shfl_sync(~0u, start, owner), end = __shfl_sync(~0u, to, owner);
    u32 part = 0;
    for (u32 at = begin / 16 * 16 + 16 * lane; at < end; at += 16 * 32) {
      uint4 bytes = load16(base + at);
      u32 words[4] = {bytes.x, bytes.y, bytes.z, bytes.w};
      for (u32 i = 0; i < 4; i++) {
        u32 position = at + 4 * i;
        if (position < end && position + 4 > begin)
          part += halves(clip(words[i], position / 4, begin, end));
      }
    }
    for (int step = 16; step > 0; step /= 2) part += __shfl_xor_sync(~0u, part, step);
    if (lane == u32(owner)) sum += part;
  }
  return sum;
}

__device__ inline bool ip4_header_is_good(const Frame &frame, u32 l3) {
  if (l3 + 20 > frame.len) return false;
  u32 len = frame.byte(l3) % 16 * 4;
  if (len < 20 || l3 + len > frame.len) return false;
  u32 sum = 0;
  for (u32 i = 0; i < len; i += 4) sum += halves(frame.word(l3 + i));
  return checksum_fold(sum) == 0xffff;
}

// Why the entry's checksums are wrong, or REASON_NONE. The whole warp takes part.
__device__ inline u32 wrong_checksum(const Frame &frame, const Entry &entry) {
  bool ipv6 = entry.flags & ENTRY_IPV6;
  u32 l3 = entry.l3, l4 = entry.l4;
  u32 reason = REASON_NONE;
  if (!(entry.flags & ENTRY_UDP_GOOD)) reason = REASON_UDP_CHECKSUM;
  if (!ipv6 && !(entry.flags & ENTRY_IP_GOOD) && !ip4_header_is_good(frame, l3))
    reason = REASON_IP_CHECKSUM;

  u32 len = 0, sum = 0, from = frame.lead + l4;
  if (reason == REASON_UDP_CHECKSUM && l3 <= frame.len && l4 + 8 <= frame.len) {
    len = frame.half(l4 + 4);
    bool whole = len >= 8 && l4 + len <= frame.len;
    bool has_addresses = l3 + (ipv6 ? 40 : 20) <= frame.len;
    if (!whole) {
      len = 0;
    } else if (frame.half(l4 + 6) == 0) {
      len = 0;
      if (!ipv6) reason = REASON_NONE;
    } else if (!has_addresses) {
      len = 0;
    }
  }
  if (len) sum = sum_staged(frame, l4, len);
  sum = add_unstaged(sum, frame, from, len ? from + len : 0);
  if (len) {
    u32 total = network_order(sum, from) + 17 + len;
    for (u32 i = ipv6 ? 8 : 12; i < (ipv6 ? 40 : 20); i += 2) total += frame.half(l3 + i);
    if (checksum_fold(total) == 0xffff) reason = REASON_NONE;
  }
  return reason;
}
