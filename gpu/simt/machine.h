// What blocks run on, and when: places for them, queues of work, and all that makes a real device
// slow to answer. Under driver.cc and under `gpu/src/simt/card.rs`.
//
// A machine is kind unless it is limited: as many places as blocks want, a queue for every stream,
// and nobody waits for a kernel that stays. A limited one does what devices do: streams share
// queues and wait for each other in them; a block runs when it has one of the places that all grids
// share, and keeps it until it ends; to map or to free memory waits until all kernels have ended.
// An error of one kernel ends all of them, and every stream says so from then on.
#pragma once
#include "executor.h"
#include "watch.h"

#ifdef __cplusplus
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace simt {

// A launch with all that it needs, for as long as it waits and runs.
struct Launch {
  simt_launch head;
  std::vector<uint64_t> params;
  std::vector<simt_region> regions;
  // Its blocks that have had a place. The machine's lock guards it.
  mutable uint32_t placed = 0;

  explicit Launch(const simt_launch &from);
  // Whether it sees copies of the host's memory.
  bool is_late() const;
};

// Work in order, on a thread of its own.
struct Queue {
  std::mutex lock;
  std::condition_variable more;
  std::deque<std::function<void()>> work;
  bool over = false;

  void add(std::function<void()> job);
  void serve();
  // Ends its thread after the work that is there.
  void close();
};

struct Machine {
  // Queues that streams share, and places that grids share; 0: as many as they want.
  Machine(uint32_t queues, uint32_t places);
  ~Machine();

  // Work stops where it is for so many milliseconds from now on; UINT64_MAX: for ever. 0 ends it.
  void stall(uint64_t ms);
  // Waits until every kernel that was launched by now has ended. After `limit_ms` that is an error
  // of the machine, which ends them, with a line on stderr: false.
  bool wait_for_kernels(uint64_t limit_ms, const char *who);
  bool is_idle();
  void fail(const std::string &why);
  // Empty: nothing has failed.
  std::string failure();

  // The rest is for streams.
  std::shared_ptr<Queue> queue_for_stream();
  bool shares_queues() const { return !queues.empty(); }
  void run(const Launch &launch);
  uint64_t submit();
  void finish(uint64_t number);
  // Waits while work is stopped. False: the machine has failed, and nothing runs any more.
  bool pass();

  std::mutex lock;
  std::condition_variable changed;
  simt_counts counts = {};
  // What watched kernels did, while `recording`; the lock guards it. Not of resident ones, whose blocks
  // run beside each other in no order.
  Events events;
  std::atomic<bool> recording{false};
  // Set before there are streams.
  uint32_t places;
  // A block of this number gets no turns, of whatever kernel. UINT32_MAX: none.
  std::atomic<uint32_t> held{UINT32_MAX};

 private:
  void run_all(const Launch &launch);
  void run_some(const Launch &launch, uint32_t first, uint32_t step, uint32_t at_once);
  bool take_place(const Launch *launch);
  void give_place();

  std::vector<std::shared_ptr<Queue>> queues;
  uint32_t next_queue = 0;
  uint32_t taken = 0;
  // Grids that want places, in the order in which they get them.
  std::deque<const Launch *> waiting;
  // Kernels that were launched and have not ended.
  std::set<uint64_t> running;
  uint64_t launched = 0;
  // In nanoseconds of the monotonic clock.
  std::atomic<int64_t> stalled_until{0};
  std::atomic<bool> failed{false};
  std::string why;
  LateMemory late;
};

struct Stream {
  std::shared_ptr<Machine> machine;
  std::shared_ptr<Queue> queue;
  std::shared_ptr<std::atomic<uint32_t>> pending;

  explicit Stream(std::shared_ptr<Machine> machine);
  ~Stream();
  void launch(const simt_launch &launch);
  // Other work: copies and fills.
  void add(std::function<void()> job);
  bool is_idle() const { return pending->load(std::memory_order_acquire) == 0; }
};

}  // namespace simt
#endif

// For callers that are not C++. Texts go to `error`, cut to its size.
extern "C" {
struct simt_machine;
struct simt_stream;

struct simt_machine *simt_machine_new(uint32_t queues, uint32_t places);
// Its streams, and what they were given, go on.
void simt_machine_free(struct simt_machine *machine);
void simt_machine_stall(struct simt_machine *machine, uint64_t ms);
// The block of this number stalls, in every kernel; UINT32_MAX: none does.
void simt_machine_hold(struct simt_machine *machine, uint32_t block);
// 0: they have ended.
int simt_machine_wait(struct simt_machine *machine, uint64_t limit_ms, const char *who);
int simt_machine_is_idle(struct simt_machine *machine);
void simt_machine_counts(struct simt_machine *machine, struct simt_counts *counts);
// Forgets what was recorded; records from now on, or not.
void simt_machine_record(struct simt_machine *machine, int on);
// Copies the first `most` events, and says how many there are.
size_t simt_machine_events(struct simt_machine *machine, struct simt_event *to, size_t most);

struct simt_stream *simt_stream_new(struct simt_machine *machine);
// What it was given goes on.
void simt_stream_free(struct simt_stream *stream);
// The parameters and regions are copied.
void simt_stream_launch(struct simt_stream *stream, const struct simt_launch *launch);
void simt_stream_copy(struct simt_stream *stream, uint64_t to, uint64_t from, size_t bytes);
// 0: idle, 1: at work, 2: failed, in `error`'s words.
int simt_stream_query(struct simt_stream *stream, char *error, size_t error_bytes);
}
