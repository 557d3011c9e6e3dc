// SipHash-1-3 (Aumasson and Bernstein, 2012), as dataplane/store/src/hash.rs computes it, over words
// of 32 bits: a device has no wider ones.
#pragma once
#include "packet.h"

// A number of 64 bits.
struct Wide {
  u32 low, high;

  __device__ __forceinline__ Wide operator^(Wide x) const { return {low ^ x.low, high ^ x.high}; }
  __device__ __forceinline__ Wide operator+(Wide x) const {
    Wide sum;
    add_wide(sum.low, sum.high, low, high, x.low, x.high);
    return sum;
  }
  // Rotated left by 1 to 31 bits.
  template <u32 BY> __device__ __forceinline__ Wide rotated() const {
    return {shift_across<32 - BY>(high, low), shift_across<32 - BY>(low, high)};
  }
  __device__ __forceinline__ Wide swapped() const { return {high, low}; }
};

struct SipState {
  Wide v0, v1, v2, v3;

  __device__ __forceinline__ explicit SipState(const HashKey &key) {
    Wide k0, k1;
    halves_of(key.k0, k0.low, k0.high);
    halves_of(key.k1, k1.low, k1.high);
    v0 = k0 ^ Wide{0x70736575, 0x736f6d65};
    v1 = k1 ^ Wide{0x6e646f6d, 0x646f7261};
    v2 = k0 ^ Wide{0x6e657261, 0x6c796765};
    v3 = k1 ^ Wide{0x79746573, 0x74656462};
  }

  __device__ __forceinline__ void round() {
    v0 = v0 + v1;
    v2 = v2 + v3;
    v1 = v1.rotated<13>() ^ v0;
    v3 = v3.rotated<16>() ^ v2;
    v0 = v0.swapped();
    v2 = v2 + v1;
    v0 = v0 + v3;
    v1 = v1.rotated<17>() ^ v2;
    v3 = v3.rotated<21>() ^ v0;
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
    Wide v01 = v0 ^ v1;
    return {xor3(v01.low, v2.low, v3.low), xor3(v01.high, v2.high, v3.high)};
  }
};

// All bits of the bytes behind the first `n`, fewer than 8.
__device__ __forceinline__ Wide behind(u32 n) {
  Wide mask;
  halves_of(~0ull << n * 8, mask.low, mask.high);
  return mask;
}

// The hash of a key, which is read from its first byte to its last. False, and no hash, if the key
// does not take its bytes for a key's.
template <class Key>
__device__ __forceinline__ bool siphash(const HashKey &secret, Key key, Wide &hash) {
  SipState state(secret);
  u32 len = key.len;
#pragma unroll 1
  for (; key.len >= 8; key.skip()) {
    Wide word = key.next();
    if (!key.takes(word)) return false;
    state.absorb(word);
  }
  Wide mask = behind(key.len), last = key.next();
  if (!key.takes({last.low | mask.low, last.high | mask.high})) return false;
  last = {and_not<~0u>(last.low, mask.low), and_not<~0u>(last.high, mask.high)};
  state.absorb({last.low, last.high | len << 24});
  hash = state.finish();
  return true;
}

// A key of a frame, anywhere.
struct FrameKey {
  const Frame &frame;
  u32 off, len;

  // The four bytes from `at` on, a multiple of 4; those behind the key's end are anything.
  __device__ __forceinline__ u32 word(u32 at) const { return frame.word(off + at); }
  // The first eight, and the key without them.
  __device__ __forceinline__ Wide next() const { return {word(0), word(4)}; }
  __device__ __forceinline__ void skip() {
    off += 8;
    len -= 8;
  }
  __device__ __forceinline__ bool takes(Wide) const { return true; }
};

// A key that is staged to its end. If TEXT, its bytes are yet to be looked at.
template <bool TEXT> struct StagedKey {
  const void *block;
  // Of the word that its first byte is in, and by how many bits it begins later.
  u32 address, shift, off, len;

  template <u32 BEHIND = 0> __device__ __forceinline__ u32 staged() const {
    return load_shared<BEHIND>(block, address);
  }
  __device__ __forceinline__ u32 word(u32 at) const {
    return __funnelshift_r(load_shared(block, address + at), load_shared<4>(block, address + at), shift);
  }
  // The first 20 bytes.
  __device__ __forceinline__ void begin(u32 (&to)[5]) const {
    u32 words[6] = {staged<0>(), staged<4>(), staged<8>(), staged<12>(), staged<16>(), staged<20>()};
    for (u32 i = 0; i < 5; i++) to[i] = __funnelshift_r(words[i], words[i + 1], shift);
  }
  __device__ __forceinline__ Wide next() const {
    u32 a = staged<0>(), b = staged<4>(), c = staged<8>();
    return {__funnelshift_r(a, b, shift), __funnelshift_r(b, c, shift)};
  }
  __device__ __forceinline__ void skip() {
    address += 8;
    len -= 8;
  }
  // Whether there is no blank and no control character among these bytes.
  __device__ __forceinline__ bool takes(Wide word) const {
    if (!TEXT) return true;
    return !(and_not<0x80808080>(word.low - 0x21212121, word.low) |
             and_not<0x80808080>(word.high - 0x21212121, word.high));
  }
};

// The hash of `len` bytes of the frame from offset `off` on.
__device__ __forceinline__ u64 siphash(const HashKey &secret, const Frame &frame, u32 off, u32 len) {
  Wide hash;
  siphash(secret, FrameKey{frame, off, len}, hash);
  return u64(hash.high) << 32 | hash.low;
}
