// What kernels need of their platform: CUDA's compiler, or a C++ compiler and the SIMT executor.
//
// Kernels are written in CUDA C++ against the names in this file and CUDA's own. Each takes one
// structure of layout.h by value. Shared memory is asked for once, as one structure.
#pragma once

#if defined(__CUDACC__)

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;

// A kernel of this name, for blocks of `threads` threads, with its parameters as `p`.
#define KERNEL(name, Params, threads) \
  extern "C" __global__ void __launch_bounds__(threads) name(const __grid_constant__ Params p)

// The block's shared memory; its size is given at the launch.
template <class T> __device__ __forceinline__ T &shared_memory() {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return *reinterpret_cast<T *>(shared_bytes);
}

// Loads and stores that other processors take part in. System scope: the host is one of them.
__device__ __forceinline__ u32 load_acquire(const u32 *at) {
  u32 value;
  asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ void store_release(u32 *at, u32 value) {
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
// Words of an index, which other blocks may be writing: never torn, in no order.
__device__ __forceinline__ u64 load_relaxed(const u64 *at) {
  u64 value;
  asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ u32 load_relaxed(const u32 *at) {
  u32 value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed(u64 *at, u64 value) {
  asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(u32 *at, u32 value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
__device__ __forceinline__ u16 load_relaxed(const u16 *at) {
  u16 value;
  asm volatile("ld.relaxed.gpu.global.u16 %0, [%1];" : "=h"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ void store_relaxed(u16 *at, u16 value) {
  asm volatile("st.relaxed.gpu.global.u16 [%0], %1;" ::"l"(at), "h"(value) : "memory");
}
__device__ __forceinline__ void store_relaxed(u8 *at, u8 value) {
  asm volatile("st.relaxed.gpu.global.u8 [%0], %1;" ::"l"(at), "r"(u32(value)) : "memory");
}
// 16 bytes of an index: each half of them is not torn.
__device__ __forceinline__ uint4 load16_relaxed(const void *at) {
  u64 low, high;
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(low), "=l"(high) : "l"(at) : "memory");
  return make_uint4(u32(low), u32(low >> 32), u32(high), u32(high >> 32));
}
// 16 bytes at once, from an address that is a multiple of 16.
__device__ __forceinline__ uint4 load16(const void *at) {
  return *static_cast<const uint4 *>(at);
}
__device__ __forceinline__ void store16(void *at, uint4 value) {
  *static_cast<uint4 *>(at) = value;
}
// The sum of two numbers of 64 bits, in halves.
__device__ __forceinline__ void add_wide(u32 &low, u32 &high, u32 a_low, u32 a_high, u32 b_low,
                                         u32 b_high) {
  asm("add.cc.u32 %0, %2, %4;\n\taddc.u32 %1, %3, %5;"
      : "=&r"(low), "=r"(high)
      : "r"(a_low), "r"(a_high), "r"(b_low), "r"(b_high));
}
// Shifted left; by 64 or more it is 0.
__device__ __forceinline__ u64 shift_left(u64 x, u32 by) {
  u64 shifted;
  asm("shl.b64 %0, %1, %2;" : "=l"(shifted) : "l"(x), "r"(by));
  return shifted;
}
// Milliseconds since some moment, the same for all blocks.
__device__ __forceinline__ u64 clock_ms() {
  u64 ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  return ns / 1000000;
}

#else
#include "../simt/cuda.h"
#endif

// A device address from layout.h as a pointer.
template <class T> __device__ __forceinline__ T *at(u64 address) {
  return reinterpret_cast<T *>(address);
}
