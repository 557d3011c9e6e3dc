// Host memory in the order in which a device's kernels see it, which is hardly any. In the watching
// build, for launches whose regions say where the host's memory really is (simt_region::behind).
//
// Kernels work on a copy of each mapping. What they store there reaches the host late, in an order
// drawn from a seed: surely when a fence or a store that releases for the whole system comes after
// it, or the launch has ended. What they load is as old as it may be: the copy is made anew only for
// a thread that has acquired since it was made. Words that are polled are always the host's.
//
// "After" is CUDA's: what the same thread did before; what others did before a barrier of the block,
// or before __syncwarp, which votes and shuffles do not stand for; and what was released at device
// scope to a word that was then acquired.
#pragma once
#include "executor.h"

#include <mutex>
#include <unordered_map>
#include <vector>

namespace simt {

// A store that is on its way.
struct LateStore {
  const uint8_t *from;
  uint8_t *to;
  // For each byte, the stores that are on their way to it.
  uint8_t *waiting;
  uint32_t bytes, thread;
  // Others that it is before: whose release takes it along.
  enum Reach : uint8_t { own, warp, block } reach;
};

// A machine's.
struct LateMemory {
  std::mutex lock;
  // Stores that were released at device scope, and those of blocks that have ended.
  std::vector<LateStore> released, ended;
  // Each acquire of something new has a number.
  uint64_t epoch = 0;
  // By word of the device's memory: the newest that whoever released to it had.
  std::unordered_map<uintptr_t, uint64_t> words;
  // By sector: the newest that whoever had it copied had.
  std::unordered_map<uintptr_t, uint64_t> copied;

  // A launch has ended.
  void settle();
};

// A block's. All but `start` and `end` are the running thread's, before it does what they say.
struct LateBlock {
  LateMemory *memory = nullptr;

  void start(const simt_launch *launch, uint32_t index);
  void end();
  void load(const simt_region &region, uintptr_t at, size_t bytes);
  void store(const simt_region &region, uintptr_t at, size_t bytes);
  // Brings the word here from the host. A poll is an acquire if a fence comes after it.
  void poll(const simt_region &region, uintptr_t at, size_t bytes, bool acquires);
  // An atomic operation happens in the host's memory: where `at` is there. Nothing of this block's is
  // on its way to it then.
  uint8_t *begin_atomic(const simt_region &region, uintptr_t at, size_t bytes);
  // Atomic accesses to words of the device's memory.
  void load_word(uintptr_t at, bool acquires);
  void store_word(uintptr_t at, bool releases);
  void fence(bool system);
  // A store that releases follows.
  void release(bool system);
  // A thread waits for something.
  void pause();
  // Threads of a warp, or all of the block, that are here have met.
  void meet(uint32_t warp, uint32_t mask);
  void meet_all();

 private:
  // How far each thread is: what it knows, what its last fence said, what the next one will know.
  struct Known {
    uint64_t epoch, fenced, seen;
    // It has polled a word that was new to it.
    bool is_new;
  };
  bool covers(const LateStore &store, uint32_t thread) const;
  void arrive(size_t i);

  std::vector<LateStore> stores;
  std::vector<Known> known;
  uint64_t random = 0;
};

}  // namespace simt
