// What a datagram asks: dataplane/src/stages/engine/cpu_engine.rs's `read` behind the checksums, and
// cpu_engine/hinted.rs, verdict for verdict and offset for offset. Anything out of the ordinary is
// SLOW, for the CPU's strict parser. One thread a request; no loop is longer than the datagram. A frame
// is a Frame or a StagedFrame.
#pragma once
#include "packet.h"

enum : u32 { KEY_BYTES_MAX = 250, KV_HEADER_BYTES = 8, BINARY_HEADER_BYTES = 24 };

// A descriptor in the making, in words of shared memory (layout.h, ReqDesc).
struct DescRow {
  u32 *words;

  __device__ __forceinline__ void begin(u32 verdict, u32 reason, u32 verb, u32 n_keys) const {
    words[0] = verdict | reason << 8 | verb << 16 | n_keys << 24;
  }
  __device__ __forceinline__ void text(u32 off, u32 len) const { words[1] = off | len << 16; }
  __device__ __forceinline__ void key(u32 i, u32 off, u32 len) const {
    words[4 + 2 * i] = off | len << 16;
  }
  __device__ __forceinline__ void hint(u32 i, u32 hint, u32 location) const {
    words[4 + 2 * i] |= hint << 24;
    words[5 + 2 * i] = location;
  }
  __device__ __forceinline__ u32 verdict() const { return words[0] & 0xff; }
  __device__ __forceinline__ u32 verb() const { return words[0] >> 16 & 0xff; }
  __device__ __forceinline__ u32 n_keys() const { return words[0] >> 24; }
  __device__ __forceinline__ u32 key_off(u32 i) const { return words[4 + 2 * i] & 0xffff; }
  __device__ __forceinline__ u32 key_len(u32 i) const { return words[4 + 2 * i] >> 16 & 0xff; }
  __device__ __forceinline__ u32 hint(u32 i) const { return words[4 + 2 * i] >> 24; }
  __device__ __forceinline__ u32 location(u32 i) const { return words[5 + 2 * i]; }
};

// The first offset from `off` to before `end` of a byte that is a blank or a control character;
// `end` if there is none.
template <class Frame>
__device__ __forceinline__ u32 word_end(const Frame &frame, u32 off, u32 end) {
#pragma unroll 1
  for (; off < end; off += 8) {
    u32 a = frame.word(off), b = frame.word(off + 4);
    // The top bit of each byte below 0x21, exact up to the first one.
    u32 low_a = and_not<0x80808080>(a - 0x21212121, a);
    u32 low_b = and_not<0x80808080>(b - 0x21212121, b);
    if (!(low_a | low_b)) continue;
    off += u32(__ffs(int(low_a ? low_a : low_b)) - 1) / 8 + (low_a ? 0 : 4);
    break;
  }
  return off < end ? off : end;
}

// A datagram that holds one `get` or `gets` of a few ordinary keys and nothing else. `off` is
// where the first key should be, `end` where the line ends.
template <class Frame>
__device__ inline void parse_get(const Frame &frame, u32 verb, u32 off, u32 end, DescRow desc) {
#pragma unroll 1
  for (u32 n = 0; n < KEYS_MAX; n++) {
    // One blank between keys, none after the last or, as libmemcached has it, one.
    u32 stop = word_end(frame, off, end), len = stop - off;
    if (n > 0 && off == end) return desc.begin(VERDICT_READY, REASON_NONE, verb, n);
    if (len == 0 || len > KEY_BYTES_MAX) return;
    if (stop < end && frame.byte(stop) != ' ') return;
    desc.key(n, off, len);
    if (stop == end) return desc.begin(VERDICT_READY, REASON_NONE, verb, n + 1);
    off = stop + 1;
  }
}

// An `mg` line, and whatever follows. `off` is where the key should be.
template <class Frame>
__device__ inline void parse_meta(const Frame &frame, u32 off, u32 end, DescRow desc) {
  u32 len = word_end(frame, off, end) - off;
  if (len == 0 || len > KEY_BYTES_MAX) return;
  desc.key(0, off, len);
  desc.begin(VERDICT_STRICT_HINTED, REASON_NONE, VERB_META_GET, 1);
}

// By what the verb of a binary get differs from VERB_BINARY_GET, which this is its first word of, at bit AT: whether its
// reply has the key.
template <u32 AT> __device__ __forceinline__ u32 has_key_back(u32 first) {
  constexpr u32 IN_OPCODE = 8 + 2;
  return (AT < IN_OPCODE ? first >> IN_OPCODE % 32 : first << (AT - IN_OPCODE) % 32) & 1u << AT;
}
static_assert(VERB_BINARY_GETK == (VERB_BINARY_GET | 1), "one bit");

// One binary GET, GETQ, GETK or GETKQ, and nothing behind it.
template <class Frame>
__device__ inline void parse_binary(const Frame &frame, u32 off, u32 len, DescRow desc) {
  if (len <= BINARY_HEADER_BYTES) return;
  u32 opcode = frame.byte(off + 1), key_len = frame.half(off + 2);
  if (opcode != 0x00 && opcode != 0x09 && opcode != 0x0c && opcode != 0x0d) return;
  // No extras, data type 0, a body that is the key.
  if (frame.half(off + 4) != 0 || frame.half(off + 8) != 0) return;
  if (key_len == 0 || key_len > KEY_BYTES_MAX || frame.half(off + 10) != key_len) return;
  if (len != BINARY_HEADER_BYTES + key_len) return;
  desc.key(0, off + BINARY_HEADER_BYTES, key_len);
  desc.begin(VERDICT_STRICT_HINTED, REASON_NONE, VERB_BINARY_GET | has_key_back<0>(frame.word(off)), 1);
}

// Fills in the descriptor, but for the hints.
template <class Frame>
__device__ inline void parse(const Frame &frame, u32 l4, DescRow desc) {
  for (u32 i = 0; i < sizeof(ReqDesc) / 4; i++) desc.words[i] = 0;
  // The UDP length, not the frame's end: Ethernet may have padded the frame.
  u32 udp_len = l4 + 6 <= frame.len ? frame.half(l4 + 4) : 0;
  u32 datagram = udp_len >= 8 && l4 + udp_len <= frame.len ? udp_len - 8 : 0;
  if (datagram <= KV_HEADER_BYTES)
    return desc.begin(VERDICT_BAD, REASON_FRAME_SHORT, 0, 0);
  if (frame.half(l4 + 8 + 4) != 1)
    return desc.begin(VERDICT_BAD, REASON_FRAME_MULTIPART, 0, 0);
  u32 off = l4 + 8 + KV_HEADER_BYTES, len = datagram - KV_HEADER_BYTES;
  desc.text(off, len);
  desc.begin(VERDICT_SLOW, REASON_NONE, 0, 0);

  // Bytes behind the text may look like more of it; the line's end shows.
  u32 first = frame.word(off);
  bool get = first == 0x20746567;                                            // "get "
  bool gets = first == 0x73746567 && frame.byte(off + 4) == ' ';             // "gets "
  bool meta = (first & 0xffffff) == 0x20676d;                                // "mg "
  u32 skip = gets ? 5 : get ? 4 : 3;
  if ((first & 0xff) == 0x80) return parse_binary(frame, off, len, desc);
  if (!(get || gets || meta) || len <= skip) return;
  u32 end = off + len - 1;
  if (frame.byte(end) != '\n') return;
  if (frame.byte(end - 1) == '\r') end--;
  if (meta) return parse_meta(frame, off + skip, end, desc);
  parse_get(frame, gets ? VERB_GETS : VERB_GET, off + skip, end, desc);
}
