// CUDA's names, as far as the kernels use them, for clang where there is no toolkit: what
// scripts/clang_kernels.sh puts before each kernel. Declarations only: the kernels are checked, not
// run. Signatures as in NVIDIA's CUDA C++ programming guide and math API reference.
#pragma once

#define __CUDACC__
#define __global__ __attribute__((global))
#define __device__ __attribute__((device))
#define __shared__ __attribute__((shared))
// An attribute that clang knows nothing of.
#define __grid_constant__
#define __forceinline__ __inline__ __attribute__((always_inline))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))
#define __align__(bytes) __attribute__((aligned(bytes)))

struct uint3 {
  unsigned x, y, z;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
__device__ uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w);

extern const __device__ uint3 threadIdx, blockIdx, blockDim, gridDim;

__device__ void __syncthreads();
__device__ void __syncwarp(unsigned mask = ~0u);
__device__ unsigned __ballot_sync(unsigned mask, int p);
__device__ int __any_sync(unsigned mask, int p);
__device__ int __all_sync(unsigned mask, int p);
template <class T> __device__ T __shfl_sync(unsigned mask, T value, int from, int width = 32);
template <class T> __device__ T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32);
template <class T>
__device__ T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32);
template <class T>
__device__ T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32);

template <class T> __device__ T atomicAdd(T *at, T by);
template <class T> __device__ T atomicMax(T *at, T value);
template <class T> __device__ T atomicExch(T *at, T value);
template <class T> __device__ T atomicCAS(T *at, T expected, T value);
__device__ void __threadfence();
__device__ void __threadfence_block();
__device__ void __threadfence_system();
__device__ void __nanosleep(unsigned ns);

__device__ unsigned long __cvta_generic_to_shared(const void *at);
__device__ int __popc(unsigned x);
__device__ int __ffs(int x);
__device__ int __clz(int x);
__device__ unsigned __umulhi(unsigned a, unsigned b);
__device__ unsigned long long __umul64hi(unsigned long long a, unsigned long long b);
__device__ unsigned __vcmpeq4(unsigned a, unsigned b);
__device__ unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by);
__device__ unsigned __byte_perm(unsigned a, unsigned b, unsigned selector);
template <class T> __device__ T __ldg(const T *at);
