// The request that most are: `get`, one key, and a line end of two bytes, all of it in the frame's
// first line. It is read by words, in a few steps without choices; what is not like that is for
// parse.h. Main and helper warps must agree on which is which, so both decide here.
#pragma once
#include "parse.h"
#include "siphash.h"

// The key of a plain request, in the staged line.
struct PlainKey {
  // From the word that its first byte is in, and by how many bits it begins later.
  const u32 *words;
  u32 shift, off, len;

  // The four bytes from `at` on, a multiple of 4.
  __device__ __forceinline__ u32 word(u32 at) const {
    return __funnelshift_r(words[at / 4], words[at / 4 + 1], shift);
  }
  // Whether there is no blank and no control character among these bytes.
  __device__ __forceinline__ bool takes(Wide word) const {
    u32 low = ((word.low - 0x21212121) & ~word.low) | ((word.high - 0x21212121) & ~word.high);
    return !(low & 0x80808080);
  }
};

// Where the key of the request in this row is, if it is a plain one but for the key's own bytes.
__device__ __forceinline__ bool find_plain(const PacketRegion &packets, const Entry *entry,
                                           const u32 *row, PlainKey &key) {
  // The slot; offset and length; headers and flags.
  const u32 *words = reinterpret_cast<const u32 *>(entry);
  u32 off = words[1] & 0xffff, len = words[1] >> 16, l4 = words[2] >> 8 & 0xff;
  u32 lead = off % 16, position = lead + l4, shift = position * 8;
  const u32 *udp = row + position / 4;
  auto word = [&](u32 i) { return __funnelshift_r(udp[i], udp[i + 1], shift); };
  u32 udp_len = __byte_perm(word(1), 0, 0x4401), end = position + udp_len;
  u32 staged = lead + len < STAGED_BYTES ? lead + len : u32(STAGED_BYTES);
  // Headers, "get " and the line end.
  key = {udp + 5, shift, l4 + 20, udp_len - 22};
  bool is_plain = (words[0] < packets.slots) & (off + len <= packets.slot_bytes) & (end <= staged) &
                  (key.len - 1 < KEY_BYTES_MAX) & ((word(3) & 0xffff) == 0x0100) &
                  (word(4) == 0x20746567);
  if (!is_plain) return false;
  u32 last = end - 2;
  return (__funnelshift_r(row[last / 4], row[last / 4 + 1], last * 8) & 0xffff) == 0x0a0d;
}

// Whether its bytes are a key's: what `siphash` finds on its way.
__device__ __forceinline__ bool is_plain_key(const PlainKey &key) {
  u32 at = 0;
  for (; at + 8 <= key.len; at += 8)
    if (!key.takes({key.word(at), key.word(at + 4)})) return false;
  u32 left = key.len - at;
  u32 low = key.word(at) | ~bytes_left(left);
  return key.takes({low, key.word(at + 4) | ~bytes_left(left > 4 ? left - 4 : 0)});
}
