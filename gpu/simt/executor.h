// Runs kernels on a CPU: a fiber for each CUDA thread, one block at a time for each host thread.
//
// A thread runs until it waits for others (a barrier, a vote, a shuffle) or sleeps; then the next
// one runs, in thread order or in an order drawn from a seed. What cannot go on (lanes that wait
// for lanes which never come, a barrier that part of a block has left) is an error, not a hang.
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt {

constexpr uint32_t WARP = 32;

struct Dim {
  uint32_t x, y = 1, z = 1;
};

enum class Vote : uint32_t { sync, ballot, any, all, shuffle, match, add, max };

// What a running thread may ask where it is.
struct Thread {
  Dim thread, block, block_dim, grid_dim;
};

extern thread_local Thread *self;

// The block's shared memory. Fails when the launch gave less.
void *shared_memory(size_t bytes);
void sync_threads();
// All lanes in `mask` meet here; `value` is each lane's, `argument` the lane that a shuffle reads.
uint64_t sync_warp(Vote what, uint32_t mask, uint64_t value, uint32_t argument);
uint32_t active_lanes();
void sleep();
[[noreturn]] void fail(const char *why);

}  // namespace simt

extern "C" {

// A kernel, as `KERNEL` of cuda.h makes it.
typedef void (*simt_kernel)(const void *params);

struct simt_launch {
  simt_kernel kernel;
  const void *params;
  // Blocks of the grid; those from `first` on, `count` of them, are run by this call.
  uint32_t blocks, first, count;
  uint32_t threads;
  uint32_t shared_bytes;
  // 0: threads take turns in order.
  uint64_t seed;
};

// Runs blocks one after the other. 0, or the text of what went wrong in `error`.
int simt_run(const struct simt_launch *launch, char *error, size_t error_bytes);
}
