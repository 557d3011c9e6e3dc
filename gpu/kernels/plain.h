// The request that most are: `get`, one key, and a line end of two bytes, all of it in the frame's
// first line. It is read by words, in a few steps without choices; what is not like that is for
// others.h, and helper warps must agree on which is which.
#pragma once
#include "shared.h"
#include "siphash.h"

typedef StagedKey<true> PlainKey;

// Where the key of the request is, if it is a plain one but for the key's own bytes.
__device__ __forceinline__ bool find_plain(const GetShared &s, u32 mine, PlainKey &key) {
  const Entry &entry = s.entries[mine];
  u32 row = shared_address(&s) + FRAMES_AT + mine * ROW_BYTES, l4 = entry.l4;
  u32 base = row + entry.off % 16, position = base + l4, shift = position * 8, udp = position & ~3u;
  u32 a = load_shared<4>(&s, udp), b = load_shared<8>(&s, udp), c = load_shared<12>(&s, udp);
  u32 d = load_shared<16>(&s, udp), e = load_shared<20>(&s, udp);
  u32 udp_len = network_half(__funnelshift_r(a, b, shift));
  u32 end = position + udp_len, last = end - 2, staged = base + entry.len;
  u32 row_end = row + STAGED_BYTES;
  if (staged > row_end) staged = row_end;
  // Headers, "get " and the line end.
  key = {&s, udp + 20, shift, l4 + 20, udp_len - 22};
  // Whatever the length says, the row is not left.
  if (last > row_end - 2) last = row_end - 2;
  // What is not staged has not been looked at: then the end is too far.
  return int(udp_len > 22) & int(end <= staged) & int(u16(__funnelshift_r(c, d, shift)) == 0x0100) &
         int(__funnelshift_r(d, e, shift) == 0x20746567) &
         int(load_shared_byte(&s, last) == '\r') & int(load_shared_byte<1>(&s, last) == '\n');
}
