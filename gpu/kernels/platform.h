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
// 16 bytes at once, from an address that is a multiple of 16.
__device__ __forceinline__ uint4 load16(const void *at) {
  return *static_cast<const uint4 *>(at);
}
__device__ __forceinline__ void store16(void *at, uint4 value) {
  *static_cast<uint4 *>(at) = value;
}

#else
#include "../simt/cuda.h"
#endif

// A device address from layout.h as a pointer.
template <class T> __device__ __forceinline__ T *at(u64 address) {
  return reinterpret_cast<T *>(address);
}
