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

// A kernel of this name, with its parameters as `p`. Then the threads of a block, and how many
// blocks a multiprocessor must be able to run at once, which bounds the registers of a thread.
#define KERNEL(name, Params, ...) \
  extern "C" __global__ void __launch_bounds__(__VA_ARGS__) name(const __grid_constant__ Params p)

// The block's shared memory; its size is given at the launch.
template <class T> __device__ __forceinline__ T &shared_memory() {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  return *reinterpret_cast<T *>(shared_bytes);
}

// Shared memory by addresses of 32 bits, as the device has them: `block` is where the block's begins.
// Only barriers order these with other loads and stores.
__device__ __forceinline__ u32 shared_address(const void *block) {
  return u32(__cvta_generic_to_shared(block));
}
template <u32 BEHIND = 0> __device__ __forceinline__ u32 load_shared(const void *, u32 at) {
  u32 value;
  asm volatile("ld.shared.u32 %0, [%1+%2];" : "=r"(value) : "r"(at), "n"(BEHIND));
  return value;
}
template <u32 BEHIND = 0> __device__ __forceinline__ u32 load_shared_byte(const void *, u32 at) {
  u32 value;
  asm volatile("ld.shared.u8 %0, [%1+%2];" : "=r"(value) : "r"(at), "n"(BEHIND));
  return value;
}
__device__ __forceinline__ void load_shared8(const void *, u32 at, u32 &low, u32 &high) {
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(low), "=r"(high) : "r"(at));
}
__device__ __forceinline__ void store_shared_byte(void *, u32 at, u32 value) {
  asm volatile("st.shared.u8 [%0], %1;" ::"r"(at), "r"(value) : "memory");
}
__device__ __forceinline__ void store_shared8(void *, u32 at, u32 low, u32 high) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(low), "r"(high) : "memory");
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
// A look at a word that the host writes; a fence makes of it an acquire.
__device__ __forceinline__ u32 load_relaxed_system(const u32 *at) {
  u32 value;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
// Loads and stores between blocks of a grid.
__device__ __forceinline__ u32 load_acquire_device(const u32 *at) {
  u32 value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
__device__ __forceinline__ void store_release_device(u32 *at, u32 value) {
  asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
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
__device__ __forceinline__ void load16_relaxed(const void *at, u64 &low, u64 &high) {
  asm volatile("ld.relaxed.gpu.global.v2.u64 {%0, %1}, [%2];"
               : "=l"(low), "=l"(high) : "l"(at) : "memory");
}
__device__ __forceinline__ uint4 load16_relaxed(const void *at) {
  u64 low, high;
  load16_relaxed(at, low, high);
  uint4 words;
  asm("mov.b64 {%0, %1}, %2;" : "=r"(words.x), "=r"(words.y) : "l"(low));
  asm("mov.b64 {%0, %1}, %2;" : "=r"(words.z), "=r"(words.w) : "l"(high));
  return words;
}
// 16 bytes at once, from an address that is a multiple of 16.
__device__ __forceinline__ uint4 load16(const void *at) {
  return *static_cast<const uint4 *>(at);
}
__device__ __forceinline__ void store16(void *at, uint4 value) {
  *static_cast<uint4 *>(at) = value;
}
// Numbers of 64 bits out of halves, and back.
__device__ __forceinline__ u64 wide(u32 low, u32 high) {
  u64 both;
  asm("mov.b64 %0, {%1, %2};" : "=l"(both) : "r"(low), "r"(high));
  return both;
}
__device__ __forceinline__ void halves_of(u64 both, u32 &low, u32 &high) {
  asm("mov.b64 {%0, %1}, %2;" : "=r"(low), "=r"(high) : "l"(both));
}
// The sum of two numbers of 64 bits, in halves.
__device__ __forceinline__ void add_wide(u32 &low, u32 &high, u32 a_low, u32 a_high, u32 b_low,
                                         u32 b_high) {
  asm("add.cc.u32 %0, %2, %4;\n\taddc.u32 %1, %3, %5;"
      : "=&r"(low), "=r"(high)
      : "r"(a_low), "r"(a_high), "r"(b_low), "r"(b_high));
}
// The low word of {high, low} shifted right by BY bits.
template <u32 BY> __device__ __forceinline__ u32 shift_across(u32 low, u32 high) {
  u32 shifted;
  asm("shf.r.wrap.b32 %0, %1, %2, %3;" : "=r"(shifted) : "r"(low), "r"(high), "n"(BY));
  return shifted;
}
// Shifted left; by 64 or more it is 0.
__device__ __forceinline__ u64 shift_left(u64 x, u32 by) {
  u64 shifted;
  asm("shl.b64 %0, %1, %2;" : "=l"(shifted) : "l"(x), "r"(by));
  return shifted;
}
// The same number, which the compiler keeps and does not make anew wherever it is used.
__device__ __forceinline__ u32 kept(u32 x) {
  asm volatile("" : "+r"(x));
  return x;
}
// a ^ b ^ c, in one instruction.
__device__ __forceinline__ u32 xor3(u32 a, u32 b, u32 c) {
  u32 x;
  asm("lop3.b32 %0, %1, %2, %3, 0x96;" : "=r"(x) : "r"(a), "r"(b), "r"(c));
  return x;
}
// a & ~b & MASK, in one instruction.
template <u32 MASK> __device__ __forceinline__ u32 and_not(u32 a, u32 b) {
  u32 x;
  asm("lop3.b32 %0, %1, %2, %3, 0x20;" : "=r"(x) : "r"(a), "r"(b), "n"(MASK));
  return x;
}
// ~(a | b) & MASK.
template <u32 MASK> __device__ __forceinline__ u32 neither(u32 a, u32 b) {
  u32 x;
  asm("lop3.b32 %0, %1, %2, %3, 0x02;" : "=r"(x) : "r"(a), "r"(b), "n"(MASK));
  return x;
}
// `c` and the products of the bytes of `a` with those of B.
template <u32 B> __device__ __forceinline__ u32 dot4(u32 a, u32 c) {
  u32 sum;
  asm("dp4a.u32.u32 %0, %1, %2, %3;" : "=r"(sum) : "r"(a), "n"(B), "r"(c));
  return sum;
}
// The two lowest bytes as a number in network order.
__device__ __forceinline__ u32 network_half(u32 word) {
  u32 x;
  asm("prmt.b32 %0, %1, 0, 0x4401;" : "=r"(x) : "r"(word));
  return x;
}
// Of eight pairs of a value and a name, the value of the first that has this name; whether there is
// one. Compares and what was so far are one instruction, which the compiler does not make of them.
__device__ __forceinline__ bool first_equal(const uint4 (&pairs)[4], u32 name, u32 &value) {
  u32 is_there;
  asm(
      "{\n\t.reg .pred %%p0;\n\t"
      "setp.eq.u32 %%p0, %3, %18;\n\t"
      "selp.u32 %0, %2, %4, %%p0;\n\t"
      "setp.eq.or.u32 %%p0, %5, %18, %%p0;\n\t"
      "selp.u32 %0, %0, %6, %%p0;\n\t"
      "setp.eq.or.u32 %%p0, %7, %18, %%p0;\n\t"
      "selp.u32 %0, %0, %8, %%p0;\n\t"
      "setp.eq.or.u32 %%p0, %9, %18, %%p0;\n\t"
      "selp.u32 %0, %0, %10, %%p0;\n\t"
      "setp.eq.or.u32 %%p0, %11, %18, %%p0;\n\t"
      "selp.u32 %0, %0, %12, %%p0;\n\t"
      "setp.eq.or.u32 %%p0, %13, %18, %%p0;\n\t"
      "selp.u32 %0, %0, %14, %%p0;\n\t"
      "setp.eq.or.u32 %%p0, %15, %18, %%p0;\n\t"
      "selp.u32 %0, %0, %16, %%p0;\n\t"
      "setp.eq.or.u32 %%p0, %17, %18, %%p0;\n\t"
      "selp.u32 %1, 1, 0, %%p0;\n\t}"
      : "=&r"(value), "=r"(is_there)
      : "r"(pairs[0].x), "r"(pairs[0].y), "r"(pairs[0].z), "r"(pairs[0].w), "r"(pairs[1].x), "r"(pairs[1].y), "r"(pairs[1].z), "r"(pairs[1].w), "r"(pairs[2].x), "r"(pairs[2].y), "r"(pairs[2].z), "r"(pairs[2].w), "r"(pairs[3].x), "r"(pairs[3].y), "r"(pairs[3].z), "r"(pairs[3].w), "r"(name));
  return is_there;
}
// Milliseconds since some moment, the same for all blocks.
__device__ __forceinline__ u64 clock_ms() {
  u64 ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns / 1000000;
}

// Before a loop whose body is long and runs seldom.
#define NO_UNROLL _Pragma("unroll 1")

#else
#include "../simt/cuda.h"
#define NO_UNROLL
#endif

// A device address from layout.h as a pointer.
template <class T> __device__ __forceinline__ T *at(u64 address) {
  return reinterpret_cast<T *>(address);
}
