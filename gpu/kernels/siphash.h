// SipHash-1-3 (Aumasson and Bernstein, 2012), as dataplane/src/store/hash.rs computes it.
#pragma once
#include "packet.h"

__device__ __forceinline__ u64 rotate_left(u64 x, int n) { return x << n | x >> (64 - n); }

struct SipState {
  u64 v0, v1, v2, v3;

  __device__ __forceinline__ explicit SipState(const HashKey &key)
      : v0(key.k0 ^ 0x736f6d6570736575u), v1(key.k1 ^ 0x646f72616e646f6du),
        v2(key.k0 ^ 0x6c7967656e657261u), v3(key.k1 ^ 0x7465646279746573u) {}

  __device__ __forceinline__ void round() {
    v0 += v1;
    v2 += v3;
    v1 = rotate_left(v1, 13) ^ v0;
    v3 = rotate_left(v3, 16) ^ v2;
    v0 = rotate_left(v0, 32);
    v2 += v1;
    v0 += v3;
    v1 = rotate_left(v1, 17) ^ v2;
    v3 = rotate_left(v3, 21) ^ v0;
    v2 = rotate_left(v2, 32);
  }

  __device__ __forceinline__ void absorb(u64 word) {
    v3 ^= word;
    round();
    v0 ^= word;
  }

  __device__ __forceinline__ u64 finish() {
    v2 ^= 0xff;
    round();
    round();
    round();
    return v0 ^ v1 ^ v2 ^ v3;
  }
};

// The hash of `len` bytes of the frame from offset `off` on.
__device__ inline u64 siphash(const HashKey &key, const Frame &frame, u32 off, u32 len) {
  SipState state(key);
  u32 at = 0;
  for (; at + 8 <= len; at += 8)
    state.absorb(frame.word(off + at) | u64(frame.word(off + at + 4)) << 32);
  u64 last = frame.word(off + at) | u64(frame.word(off + at + 4)) << 32;
  last &= (1ull << len % 8 * 8) - 1;
  state.absorb(last | u64(len) << 56);
  return state.finish();
}
