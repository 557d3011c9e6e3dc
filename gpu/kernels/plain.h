// The request that most are: `get`, one key, and a line end of two bytes, all of it in the frame's
// first line. It is read by words, in a few steps without choices; what is not like that is for
// parse.h. Main and helper warps must agree on which is which, so both decide here.
#pragma once
#include "parse.h"
#include "siphash.h"

typedef StagedKey<true> PlainKey;

// Where the key of the request in this row is, if it is a plain one but for the key's own bytes.
__device__ __forceinline__ bool find_plain(const Entry &entry, const u32 *row, PlainKey &key) {
  u32 lead = entry.off % 16, l4 = entry.l4, position = lead + l4, shift = position * 8;
  const u32 *udp = row + position / 4;
  u32 words[5];
  for (u32 i = 0; i < 5; i++) words[i] = udp[1 + i];
  u32 udp_len = network_half(__funnelshift_r(words[0], words[1], shift));
  u32 end = position + udp_len, last = end - 2, staged = lead + entry.len;
  if (staged > STAGED_BYTES) staged = STAGED_BYTES;
  // Headers, "get " and the line end.
  key = {udp + 5, shift, l4 + 20, udp_len - 22};
  // Whatever the length says, the row is not left.
  if (last > STAGED_BYTES - 2) last = STAGED_BYTES - 2;
  const u8 *line_end = reinterpret_cast<const u8 *>(row) + last;
  // What is not staged has not been looked at: then the end is too far.
  return int(udp_len > 22) & int(end <= staged) &
         int(u16(__funnelshift_r(words[2], words[3], shift)) == 0x0100) &
         int(__funnelshift_r(words[3], words[4], shift) == 0x20746567) & int(line_end[0] == '\r') &
         int(line_end[1] == '\n');
}

// Whether its bytes are a key's: what `siphash` finds on its way.
__device__ __forceinline__ bool is_plain_key(PlainKey key) {
  for (; key.len >= 8; key.skip())
    if (!key.takes(key.next())) return false;
  Wide mask = behind(key.len), last = key.next();
  return key.takes({last.low | mask.low, last.high | mask.high});
}
