// CUDA's names over the SIMT executor, as far as the kernels use them. kernels/platform.h includes
// this where there is no CUDA compiler.
#pragma once
#include "executor.h"

#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;

#define threadIdx (simt::self->thread)
#define blockIdx (simt::self->block)
#define blockDim (simt::self->block_dim)
#define gridDim (simt::self->grid_dim)

#if defined(SIMT_WATCHING)
#define SIMT_LOAD16 simt::watched_load16
#define SIMT_STORE16 simt::watched_store16
#else
#define SIMT_LOAD16 simt::load16
#define SIMT_STORE16 simt::store16
#endif

// The watching build's kernels have names of their own, beside the plain ones.
#if defined(SIMT_WATCHING)
#define SIMT_KERNEL(name) gnomon_simt_watched_##name
#else
#define SIMT_KERNEL(name) gnomon_simt_##name
#endif

#define KERNEL(name, Params, ...)                          \
  static void name##_thread(const Params &p);              \
  extern "C" void SIMT_KERNEL(name)(const void *params) {  \
    Params p;                                              \
    simt::copy_params(&p, params, sizeof p);               \
    name##_thread(p);                                      \
  }                                                        \
  static void name##_thread(const Params &p)

template <class T> inline T &shared_memory() {
  return *static_cast<T *>(simt::shared_memory(sizeof(T)));
}

struct alignas(16) uint4 {
  u32 x, y, z, w;
};
inline uint4 make_uint4(u32 x, u32 y, u32 z, u32 w) { return {x, y, z, w}; }

// Whoever watches distinguishes them; to others all are the same.
#if defined(SIMT_WATCHING)
#define SIMT_LOAD(at, order) simt::watched_load(at, simt::Order::order)
#define SIMT_STORE(at, value, order) simt::watched_store(at, value, simt::Order::order)
#define SIMT_FENCE(system) simt::watched_fence(system)
#else
#define SIMT_LOAD(at, order) __atomic_load_n(at, __ATOMIC_ACQUIRE)
#define SIMT_STORE(at, value, order) __atomic_store_n(at, value, __ATOMIC_RELEASE)
#define SIMT_FENCE(system) simt::fence()
#endif
__forceinline__ u32 load_acquire(const u32 *at) { return SIMT_LOAD(at, system); }
__forceinline__ void store_release(u32 *at, u32 value) { SIMT_STORE(at, value, system); }
__forceinline__ u32 load_relaxed_system(const u32 *at) { return SIMT_LOAD(at, system_poll); }
__forceinline__ u32 load_acquire_device(const u32 *at) { return SIMT_LOAD(at, device); }
__forceinline__ void store_release_device(u32 *at, u32 value) { SIMT_STORE(at, value, device); }
inline u64 load_relaxed(const u64 *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline u32 load_relaxed(const u32 *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline void store_relaxed(u64 *at, u64 value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
inline void store_relaxed(u32 *at, u32 value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
inline u16 load_relaxed(const u16 *at) { return __atomic_load_n(at, __ATOMIC_RELAXED); }
inline void store_relaxed(u16 *at, u16 value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
inline void store_relaxed(u8 *at, u8 value) { __atomic_store_n(at, value, __ATOMIC_RELAXED); }
// 16 bytes at once: for whoever watches one access, whatever the C++ compiler makes of it.
__forceinline__ uint4 load16_relaxed(const void *at) {
  if (reinterpret_cast<uintptr_t>(at) % 16) simt::fail("a 16-byte load from an odd address");
  simt::Pair pair = SIMT_LOAD16(at);
  return {u32(pair.low), u32(pair.low >> 32), u32(pair.high), u32(pair.high >> 32)};
}
__forceinline__ void load16_relaxed(const void *at, u64 &low, u64 &high) {
  uint4 words = load16_relaxed(at);
  low = u64(words.y) << 32 | words.x;
  high = u64(words.w) << 32 | words.z;
}
__forceinline__ uint4 load16(const void *at) { return load16_relaxed(at); }
__forceinline__ void store16(void *at, uint4 value) {
  if (reinterpret_cast<uintptr_t>(at) % 16) simt::fail("a 16-byte store to an odd address");
  SIMT_STORE16(at, (simt::Pair{value.x | u64(value.y) << 32, value.z | u64(value.w) << 32}));
}
// Addresses in shared memory count from where the block's begins.
inline u32 shared_address(const void *) { return 0; }
template <u32 BEHIND = 0> inline u32 load_shared_byte(const void *block, u32 at) {
  return static_cast<const u8 *>(block)[at + BEHIND];
}
template <u32 BEHIND = 0> inline u32 load_shared(const void *block, u32 at) {
  if ((at + BEHIND) % 4) simt::fail("a word's load from an odd address");
  return *reinterpret_cast<const u32 *>(static_cast<const u8 *>(block) + at + BEHIND);
}
inline void load_shared8(const void *block, u32 at, u32 &low, u32 &high) {
  low = load_shared(block, at);
  high = load_shared<4>(block, at);
}
inline void store_shared_byte(void *block, u32 at, u32 value) {
  static_cast<u8 *>(block)[at] = u8(value);
}
inline void store_shared8(void *block, u32 at, u32 low, u32 high) {
  if (at % 8) simt::fail("an 8-byte store to an odd address");
  u32 *words = reinterpret_cast<u32 *>(static_cast<u8 *>(block) + at);
  words[0] = low;
  words[1] = high;
}

inline void __syncthreads() { simt::sync_threads(); }
inline void __syncwarp(u32 mask = 0xffffffff) { simt::sync_warp(simt::Vote::sync, mask, 0, 0); }
inline u32 __activemask() { return simt::active_lanes(); }
inline u32 __ballot_sync(u32 mask, int p) {
  return u32(simt::sync_warp(simt::Vote::ballot, mask, p != 0, 0));
}
inline int __any_sync(u32 mask, int p) {
  return int(simt::sync_warp(simt::Vote::any, mask, p != 0, 0));
}
inline int __all_sync(u32 mask, int p) {
  return int(simt::sync_warp(simt::Vote::all, mask, p != 0, 0));
}
inline u32 __match_any_sync(u32 mask, u64 value) {
  return u32(simt::sync_warp(simt::Vote::match, mask, value, 0));
}
inline u32 __reduce_add_sync(u32 mask, u32 value) {
  return u32(simt::sync_warp(simt::Vote::add, mask, value, 0));
}
inline u32 __reduce_max_sync(u32 mask, u32 value) {
  return u32(simt::sync_warp(simt::Vote::max, mask, value, 0));
}
// Shuffles: `width` is a power of two; a lane outside its group reads its own value, as CUDA says.
template <class T> inline T shuffle_from(u32 mask, T value, u32 from) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move words");
  u64 bits = 0;
  __builtin_memcpy(&bits, &value, sizeof value);
  bits = simt::sync_warp(simt::Vote::shuffle, mask, bits, from);
  __builtin_memcpy(&value, &bits, sizeof value);
  return value;
}
inline u32 simt_lane() { return threadIdx.x % simt::WARP; }
template <class T> inline T __shfl_sync(u32 mask, T value, int from, int width = 32) {
  return shuffle_from(mask, value, (simt_lane() & ~u32(width - 1)) | (u32(from) & u32(width - 1)));
}
template <class T> inline T __shfl_xor_sync(u32 mask, T value, int lanes, int width = 32) {
  u32 lane = simt_lane(), from = lane ^ u32(lanes);
  return shuffle_from(mask, value, from / u32(width) > lane / u32(width) ? lane : from);
}
template <class T> inline T __shfl_down_sync(u32 mask, T value, u32 by, int width = 32) {
  u32 lane = simt_lane(), from = lane + by;
  return shuffle_from(mask, value, from / u32(width) == lane / u32(width) ? from : lane);
}
template <class T> inline T __shfl_up_sync(u32 mask, T value, u32 by, int width = 32) {
  u32 lane = simt_lane();
  return shuffle_from(mask, value, lane % u32(width) >= by ? lane - by : lane);
}

template <class T> inline T atomicAdd(T *at, T by) {
  return __atomic_fetch_add(at, by, __ATOMIC_RELAXED);
}
template <class T> inline T atomicMax(T *at, T value) {
  T seen = __atomic_load_n(at, __ATOMIC_RELAXED);
  while (seen < value &&
         !__atomic_compare_exchange_n(at, &seen, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
  }
  return seen;
}
template <class T> inline T atomicExch(T *at, T value) {
  return __atomic_exchange_n(at, value, __ATOMIC_RELAXED);
}
template <class T> inline T atomicCAS(T *at, T expected, T value) {
  simt::give_way();
  __atomic_compare_exchange_n(at, &expected, value, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
  return expected;
}
__forceinline__ void __threadfence() { SIMT_FENCE(false); }
__forceinline__ void __threadfence_system() { SIMT_FENCE(true); }
inline void __threadfence_block() { simt::fence(); }
inline void __nanosleep(u32) { simt::sleep(); }
inline u64 clock_ms() { return simt::clock_ms(); }

inline u64 wide(u32 low, u32 high) { return u64(high) << 32 | low; }
inline void halves_of(u64 both, u32 &low, u32 &high) {
  low = u32(both);
  high = u32(both >> 32);
}
inline void add_wide(u32 &low, u32 &high, u32 a_low, u32 a_high, u32 b_low, u32 b_high) {
  halves_of(wide(a_low, a_high) + wide(b_low, b_high), low, high);
}
template <u32 BY> inline u32 shift_across(u32 low, u32 high) { return u32(wide(low, high) >> BY); }
inline u64 shift_left(u64 x, u32 by) { return by < 64 ? x << by : 0; }
inline u32 kept(u32 x) { return x; }
inline bool first_equal(const uint4 (&pairs)[4], u32 name, u32 &value) {
  for (const uint4 &two : pairs) {
    value = two.x;
    if (two.y == name) return true;
    value = two.z;
    if (two.w == name) return true;
  }
  return false;
}
inline u32 xor3(u32 a, u32 b, u32 c) { return a ^ b ^ c; }
template <u32 MASK> inline u32 and_not(u32 a, u32 b) { return a & ~b & MASK; }
template <u32 MASK> inline u32 neither(u32 a, u32 b) { return ~(a | b) & MASK; }
template <u32 B> inline u32 dot4(u32 a, u32 c) {
  for (int i = 0; i < 32; i += 8) c += (a >> i & 0xff) * (B >> i & 0xff);
  return c;
}
inline u32 network_half(u32 word) { return (word & 0xff) << 8 | (word >> 8 & 0xff); }
inline int __popc(u32 x) { return __builtin_popcount(x); }
inline int __ffs(u32 x) { return __builtin_ffs(int(x)); }
inline int __clz(u32 x) { return x ? __builtin_clz(x) : 32; }
inline u64 __umul64hi(u64 a, u64 b) { return u64((static_cast<unsigned __int128>(a) * b) >> 64); }
inline u32 __umulhi(u32 a, u32 b) { return u32((u64(a) * b) >> 32); }
// 0xff in each byte in which the two are equal.
inline u32 __vcmpeq4(u32 a, u32 b) {
  u32 same = 0;
  for (int i = 0; i < 32; i += 8)
    if ((a >> i & 0xff) == (b >> i & 0xff)) same |= 0xffu << i;
  return same;
}
// The low word of {high, low} shifted right by 0 to 31 bits.
inline u32 __funnelshift_r(u32 low, u32 high, u32 by) {
  return u32((u64(high) << 32 | low) >> (by & 31));
}
// Bytes of the pair {a, b} by the four selectors in `s`.
inline u32 __byte_perm(u32 a, u32 b, u32 s) {
  u64 bytes = u64(b) << 32 | a;
  u32 out = 0;
  for (int i = 0; i < 4; i++) out |= u32(bytes >> 8 * (s >> 4 * i & 7) & 0xff) << 8 * i;
  return out;
}
template <class T> inline T __ldg(const T *at) { return *at; }
