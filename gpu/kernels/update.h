// What the update kernels share.
#pragma once
#include "layout.h"

enum : u32 { UPDATE_THREADS = 128 };

// The op at `i`, in two loads.
__device__ __forceinline__ Op load_op(const UpdateParams &p, u32 i) {
  const Op *ops = at<const Op>(p.ops);
  uint4 low = load16(ops + i), high = load16(reinterpret_cast<const u8 *>(ops + i) + 16);
  Op op = {};
  op.hash = low.x | u64(low.y) << 32;
  op.location = low.z;
  op.flags = low.w;
  op.value_len = high.x;
  op.key_off = high.y;
  op.key_len = u8(high.z);
  op.kind = u8(high.z >> 8);
  return op;
}

__device__ __forceinline__ void count(u32 *counter) { atomicAdd(counter, 1u); }
