// What the update kernels share: operations, and the count of what became of them.
//
// Counts gather in the block's shared memory, then in the device's; the last block of a launch
// copies the totals to the host. So a launch writes to the host once, however many operations it
// has.
#pragma once
#include "layout.h"

enum : u32 { UPDATE_THREADS = 128, UPDATE_BLOCKS_AT_ONCE = 8 };

static_assert(sizeof(UpdateCounts) == UPDATE_SHARED_BYTES, "the launch gives as much");
static_assert(sizeof(UpdateCounts) == 32, "copied in two pieces, counted word by word");

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

// The block's counts, zeroed. All threads take part.
__device__ inline UpdateCounts *begin_counts() {
  UpdateCounts *counts = &shared_memory<UpdateCounts>();
  if (threadIdx.x < sizeof(UpdateCounts) / 4) reinterpret_cast<u32 *>(counts)[threadIdx.x] = 0;
  __syncthreads();
  return counts;
}

// One more, in the block's memory.
__device__ __forceinline__ void count(u32 *counter) { atomicAdd(counter, 1u); }

// Adds the block's counts to the totals, and copies these to the host if all blocks have. All
// threads take part.
__device__ inline void end_counts(const UpdateParams &p, const UpdateCounts *counts) {
  UpdateCounts *totals = at<UpdateCounts>(p.totals);
  __syncthreads();
  // The counter of blocks is the last word, and stays 0 in shared memory.
  if (threadIdx.x < sizeof(UpdateCounts) / 4) {
    u32 more = reinterpret_cast<const u32 *>(counts)[threadIdx.x];
    if (more) atomicAdd(reinterpret_cast<u32 *>(totals) + threadIdx.x, more);
    __threadfence();
  }
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(&totals->arrived, 1u) != gridDim.x - 1) return;
  __threadfence();
  u32 words[8];
  totals->arrived = 0;
  for (u32 i = 0; i < 8; i++) words[i] = load_relaxed(reinterpret_cast<const u32 *>(totals) + i);
  u8 *to = at<u8>(p.counts);
  store16(to, make_uint4(words[0], words[1], words[2], words[3]));
  store16(to + 16, make_uint4(words[4], words[5], words[6], 0));
}
