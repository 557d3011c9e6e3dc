// Runs kernels on a CPU: a fiber for each CUDA thread, whose turns one host thread takes.
//
// A thread runs until it waits for others (a barrier, a vote, a shuffle) or sleeps; then the next
// one runs, in thread order or in an order drawn from a seed. What cannot go on (lanes that wait
// for lanes which never come, a barrier that part of a block has left) is an error, not a hang.
// Which block runs when, and beside which others, is machine.h's.
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
// Where another thread may come between, one does, if turns are in an order drawn from a seed.
void give_way();
void fence();
uint64_t clock_ms();
[[noreturn]] void fail(const char *why);
// The launch's structure, as a thread of its own keeps it.
void copy_params(void *to, const void *params, size_t bytes);

struct Pair {
  uint64_t low, high;
};
inline Pair load16(const void *at) {
  const uint64_t *halves = static_cast<const uint64_t *>(at);
  return {__atomic_load_n(halves, __ATOMIC_RELAXED), __atomic_load_n(halves + 1, __ATOMIC_RELAXED)};
}
inline void store16(void *at, Pair value) {
  uint64_t *halves = static_cast<uint64_t *>(at);
  __atomic_store_n(halves, value.low, __ATOMIC_RELAXED);
  __atomic_store_n(halves + 1, value.high, __ATOMIC_RELAXED);
}

}  // namespace simt

extern "C" {

// A kernel, as `KERNEL` of cuda.h makes it.
typedef void (*simt_kernel)(const void *params);

// Memory that a launch may touch.
struct simt_region {
  uint64_t start, bytes;
  // It is the host's, behind PCIe.
  uint64_t is_host;
  // Not 0: this is a copy of the host's memory, which is there (late.h).
  uint64_t behind;
  // Where it lies in the memory that recorded events name.
  uint64_t laid;
};

// What the watching build counts (watch.h).
struct simt_counts {
  // Basic blocks that a warp entered, and the lanes that did so each time.
  uint64_t steps, lanes;
  // Accesses of warps to the launch's memory, and the 32-byte sectors that they touched.
  uint64_t accesses, sectors;
  // Of those, what went to the host's memory: requests, one for each 128-byte line of an access, and
  // bytes in whole sectors. Nothing is cached from one access to the next.
  uint64_t host_reads, host_read_bytes, host_writes, host_write_bytes;
  // Loads by acquire there, which wait for the host's word: not among the reads.
  uint64_t host_polls;
  // Blocks that touched the host's memory at all.
  uint64_t host_blocks;
  // Fences of warps for the whole system, and stores that release for it.
  uint64_t system_fences, system_releases;
};

// What one thread did, as the watching build records it: it entered a basic block, or it touched the
// launch's memory.
struct simt_event {
  // The place in the program, and the first byte that was touched: by `simt_region::laid`.
  uint64_t place = 0, at = 0;
  uint32_t block = 0, thread = 0;
  // 0: a basic block.
  uint32_t bytes = 0;
  // Of an access: `simt::Access` of watch.h.
  uint32_t access = 0;
};

namespace simt {
struct LateMemory;
struct Events;
}

struct simt_launch {
  simt_kernel kernel;
  // For people; not copied.
  const char *name;
  size_t name_bytes;
  const void *params;
  uint32_t params_bytes;
  uint32_t blocks, threads, shared_bytes;
  // Its blocks wait for each other or for the host: all must run at once.
  uint32_t resident;
  // 0: threads take turns in order.
  uint64_t seed;
  // Of the watching build, whose kernels need the first: the memory that may be touched, in order of
  // addresses, and what is added to, or null. Null otherwise.
  const struct simt_region *regions;
  size_t n_regions;
  struct simt_counts *counts;
  // The machine's, if a region is a copy; null from outside.
  simt::LateMemory *late;
  // The machine's, if it records; null from outside.
  simt::Events *events;
};
}

namespace simt {

// A block of a launch that runs.
struct Block;
// What a turn was: some thread did more than to look and sleep, none did, all have ended, or the
// kernel did something wrong.
enum class Turn { worked, polled, ended, failed };

// Null: there is no memory for it. The launch outlives the block.
Block *start_block(const simt_launch *launch, uint32_t index);
// Each thread that can run does so once. Always by the same host thread.
Turn take_turn(Block *block);
// Of one that failed.
const char *why(const Block *block);
// Releases it, whether it has ended or not.
void end_block(Block *block);

}  // namespace simt
