// What the watching build of the kernels reports: every basic block that a thread enters, and every
// access to memory.
//
// Each access must be to memory that the launch names, to the block's shared memory, or to the
// thread's own. Beside that it is counted how well the threads of a warp keep together, as if
// those that come to the same place for the same time did so at once, and how many 32-byte sectors
// of the launch's memory they touch there.
#pragma once
#include "executor.h"

namespace simt {

// A stretch of memory.
struct Range {
  uintptr_t start, end;
};

// Before a block's first thread. `own` are ranges beside the launch's that its threads may touch.
void watch_block(const simt_launch *launch, const Range *own, size_t n_own);
// After its last thread: adds to the launch's counts.
void count_block();
// An access of the running thread, at the place `pc` of its program.
void watch_access(const void *at, size_t bytes, const void *pc);
// load16 and store16, each as one access of the place that calls it.
Pair watched_load16(const void *at);
void watched_store16(void *at, Pair value);

}  // namespace simt
