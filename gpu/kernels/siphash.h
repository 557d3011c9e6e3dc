// SipHash-1-3 (Aumasson and Bernstein, 2012), as dataplane/src/store/hash.rs computes it, over words
// of 32 bits: a card has no wider ones.
#pragma once
#include "packet.h"

// A number of 64 bits.
struct Wide {
  u32 low, high;

  __device__ __forceinline__ static Wide of(u64 x) { return {u32(x), u32(x >> 32)}; }
  __device__ __forceinline__ Wide operator^(Wide x) const { return {low ^ x.low, high ^ x.high}; }
  __device__ __forceinline__ Wide operator+(Wide x) const {
    Wide sum;
    add_wide(sum.low, sum.high, low, high, x.low, x.high);
    return sum;
  }
  // Rotated left by 1 to 31 bits.
  __device__ __forceinline__ Wide rotated(u32 by) const {
    return {__funnelshift_r(high, low, 32 - by), __funnelshift_r(low, high, 32 - by)};
  }
  __device__ __forceinline__ Wide swapped() const { return {high, low}; }
};

struct SipState {
  Wide v0, v1, v2, v3;

  __device__ __forceinline__ explicit SipState(const HashKey &key)
      : v0(Wide::of(key.k0 ^ 0x736f6d6570736575u)), v1(Wide::of(key.k1 ^ 0x646f72616e646f6du)),
        v2(Wide::of(key.k0 ^ 0x6c7967656e657261u)), v3(Wide::of(key.k1 ^ 0x7465646279746573u)) {}

  __device__ __forceinline__ void round() {
    v0 = v0 + v1;
    v2 = v2 + v3;
    v1 = v1.rotated(13) ^ v0;
    v3 = v3.rotated(16) ^ v2;
    v0 = v0.swapped();
    v2 = v2 + v1;
    v0 = v0 + v3;
    v1 = v1.rotated(17) ^ v2;
    v3 = v3.rotated(21) ^ v0;
    v2 = v2.swapped();
  }

  __device__ __forceinline__ void absorb(Wide word) {
    v3 = v3 ^ word;
    round();
    v0 = v0 ^ word;
  }

  __device__ __forceinline__ Wide finish() {
    v2.low ^= 0xff;
    round();
    round();
    round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

// Which bytes of a word belong to a key of which `left` bytes are left from the word's start on;
// none or less of them is none.
__device__ __forceinline__ u32 bytes_left(u32 left) {
  return left >= 4 ? ~0u : (1u << left * 8) - 1;
}

// The hash of a key. False, and no hash, if the key does not take its bytes for a key's.
template <class Key>
__device__ __forceinline__ bool siphash(const HashKey &secret, const Key &key, Wide &hash) {
  SipState state(secret);
  u32 at = 0;
  for (; at + 8 <= key.len; at += 8) {
    Wide word = {key.word(at), key.word(at + 4)};
    if (!key.takes(word)) return false;
    state.absorb(word);
  }
  u32 left = key.len - at;
  Wide mask = {bytes_left(left), bytes_left(left > 4 ? left - 4 : 0)};
  Wide last = {key.word(at), key.word(at + 4)};
  if (!key.takes({last.low | ~mask.low, last.high | ~mask.high})) return false;
  state.absorb({last.low & mask.low, (last.high & mask.high) | key.len << 24});
  hash = state.finish();
  return true;
}

// Bytes of a frame, any.
struct FrameKey {
  const Frame &frame;
  u32 off, len;

  // The four bytes from `at` on; those behind the key's end are anything.
  __device__ __forceinline__ u32 word(u32 at) const { return frame.word(off + at); }
  __device__ __forceinline__ bool takes(Wide) const { return true; }
};

// The hash of `len` bytes of the frame from offset `off` on.
__device__ inline u64 siphash(const HashKey &secret, const Frame &frame, u32 off, u32 len) {
  Wide hash;
  siphash(secret, FrameKey{frame, off, len}, hash);
  return u64(hash.high) << 32 | hash.low;
}
