// What the watching build of the kernels reports: every basic block that a thread enters, and every
// access to memory.
//
// Each access must be to memory that the launch names, to the block's shared memory, or to the
// thread's own. Beside that it is counted how well the threads of a warp keep together, as if
// those that come to the same place for the same time did so at once, and how many 32-byte sectors
// of the launch's memory they touch there; and of the host's memory what would go over PCIe. If the
// machine records, all that each thread did is kept in order, so that another model can count it.
#pragma once
#include "executor.h"
#include "late.h"

#include <unordered_map>
#include <unordered_set>
#include <vector>

namespace simt {

// A stretch of memory.
struct Range {
  uintptr_t start, end;
};

enum class Access : uint8_t { read, write, poll, atomic };
// How far loads and stores of single words are in order with what is around them.
enum class Order : uint8_t { system_poll, system, device };

// What threads did, one after the other as they had their turns; of one thread in its own order.
struct Events {
  std::vector<simt_event> all;
};

// What the lanes of a warp touched at one place, for one time.
struct Touched {
  Access access;
  bool is_host;
  std::vector<uintptr_t> sectors;
};

// What one block did so far.
struct Watch {
  const simt_launch *launch = nullptr;
  // Memory beside the launch's that its threads may touch.
  std::vector<Range> own;
  // Of each thread: how often it was at each place.
  std::vector<std::unordered_map<uintptr_t, uint32_t>> visits;
  // Of each warp, place and time: the lanes that were there, and what they touched.
  std::unordered_map<uint64_t, uint32_t> lanes;
  std::unordered_map<uint64_t, Touched> touched;
  std::unordered_set<uint64_t> system_fences, system_releases;
  LateBlock late;

  // Before the block's first thread.
  void start(const simt_launch *launch);
  // After its last one: adds to the launch's counts.
  void count();
  bool counts() const { return launch->counts; }
};

// The running block's.
extern thread_local Watch *watching;

// An access of the running thread, at the place `pc` of its program.
void watch_access(const void *at, size_t bytes, const void *pc, Access access);
// Loads by acquire, or to poll; stores by release; fences.
uint32_t watched_load(const uint32_t *at, Order order);
void watched_store(uint32_t *at, uint32_t value, Order order);
void watched_fence(bool system);
// load16 and store16, each as one access of the place that calls it.
Pair watched_load16(const void *at);
void watched_store16(void *at, Pair value);

}  // namespace simt
