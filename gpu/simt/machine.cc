// Streams, queues, places and stops. machine.h says what they promise.
#include "machine.h"

#include <pthread.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>

namespace simt {
namespace {

// Rounds in which blocks only look for something, before the processor is given away, and before
// the thread sleeps between two: some 20 µs and some 2 ms.
constexpr uint32_t LOOKS_PER_YIELD = 64, LOOKS_TO_SLEEP = 6400;
constexpr useconds_t NAP_US = 50;
constexpr size_t STACK_BYTES = 256 * 1024;

int64_t now_ns() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t(now.tv_sec) * 1000000000 + now.tv_nsec;
}

void rest(uint32_t looks) {
  if (looks > LOOKS_TO_SLEEP) usleep(NAP_US);
  else if (looks % LOOKS_PER_YIELD == 0) sched_yield();
}

void *run_job(void *job) {
  auto *mine = static_cast<std::function<void()> *>(job);
  (*mine)();
  delete mine;
  return nullptr;
}

// False: the system has no thread.
bool spawn(pthread_t *thread, std::function<void()> job) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  auto *mine = new std::function<void()>(std::move(job));
  bool made = pthread_create(thread, &attributes, run_job, mine) == 0;
  pthread_attr_destroy(&attributes);
  if (!made) delete mine;
  return made;
}

std::shared_ptr<Queue> make_queue() {
  auto queue = std::make_shared<Queue>();
  pthread_t thread;
  if (!spawn(&thread, [queue] { queue->serve(); })) return nullptr;
  pthread_detach(thread);
  return queue;
}

}  // namespace

Launch::Launch(const simt_launch &from) : head(from), params((from.params_bytes + 7) / 8) {
  memcpy(params.data(), from.params, from.params_bytes);
  head.params = params.data();
  if (from.n_regions) regions.assign(from.regions, from.regions + from.n_regions);
  head.regions = regions.data();
}

bool Launch::is_late() const {
  return std::any_of(regions.begin(), regions.end(), [](auto &region) { return region.behind; });
}

void Queue::add(std::function<void()> job) {
  std::lock_guard hold(lock);
  work.push_back(std::move(job));
  more.notify_one();
}

void Queue::serve() {
  std::unique_lock hold(lock);
  for (;;) {
    more.wait(hold, [this] { return over || !work.empty(); });
    if (work.empty()) return;
    auto job = std::move(work.front());
    work.pop_front();
    hold.unlock();
    job();
    // Its end may be the machine's, which closes this queue.
    job = nullptr;
    hold.lock();
  }
}

void Queue::close() {
  std::lock_guard hold(lock);
  over = true;
  more.notify_one();
}

Machine::Machine(uint32_t n_queues, uint32_t places) : places(places), queues(n_queues) {}

Machine::~Machine() {
  for (auto &queue : queues)
    if (queue) queue->close();
}

void Machine::stall(uint64_t ms) {
  int64_t until = ms > 1u << 30 ? INT64_MAX : now_ns() + int64_t(ms) * 1000000;
  stalled_until.store(ms ? until : 0);
}

bool Machine::pass() {
  while (int64_t until = stalled_until.load(std::memory_order_relaxed)) {
    if (failed.load(std::memory_order_relaxed)) break;
    if (now_ns() >= until) {
      stalled_until.compare_exchange_strong(until, 0);
      continue;
    }
    usleep(NAP_US);
  }
  return !failed.load(std::memory_order_relaxed);
}

void Machine::fail(const std::string &reason) {
  std::lock_guard hold(lock);
  if (why.empty()) why = reason;
  failed.store(true);
  changed.notify_all();
}

std::string Machine::failure() {
  if (!failed.load(std::memory_order_relaxed)) return "";
  std::lock_guard hold(lock);
  return why;
}

uint64_t Machine::submit() {
  std::lock_guard hold(lock);
  running.insert(++launched);
  return launched;
}

void Machine::finish(uint64_t number) {
  std::lock_guard hold(lock);
  running.erase(number);
  changed.notify_all();
}

bool Machine::is_idle() {
  std::lock_guard hold(lock);
  return running.empty();
}

bool Machine::wait_for_kernels(uint64_t limit_ms, const char *who) {
  std::unique_lock hold(lock);
  uint64_t last = launched;
  auto ended = [&] { return running.empty() || *running.begin() > last; };
  if (changed.wait_for(hold, std::chrono::milliseconds(limit_ms), ended)) return true;
  std::string reason = std::string(who) + " waited " + std::to_string(limit_ms) + " ms for " +
                       std::to_string(running.size()) + " kernels that do not end";
  fprintf(stderr, "%s\n", reason.c_str());
  // So that they do, and nobody's memory goes from under them.
  if (why.empty()) why = reason;
  failed.store(true);
  changed.wait(hold, ended);
  return false;
}

// Streams get the queues in turn. Null: the system has no thread.
std::shared_ptr<Queue> Machine::queue_for_stream() {
  if (queues.empty()) return make_queue();
  std::lock_guard hold(lock);
  auto &queue = queues[next_queue++ % queues.size()];
  if (!queue) queue = make_queue();
  return queue;
}

// Once a grid waits for places, those that come later wait until it has them all.
bool Machine::take_place(const Launch *launch) {
  std::lock_guard hold(lock);
  auto mine = std::find(waiting.begin(), waiting.end(), launch);
  bool may = taken < places && (waiting.empty() || waiting.front() == launch);
  if (!may && mine == waiting.end()) waiting.push_back(launch);
  if (!may) return false;
  taken++;
  launch->placed++;
  // Blocks of other kernels come one by one: that is no wait for all.
  bool has_all = launch->placed == launch->head.blocks || !launch->head.resident;
  if (mine != waiting.end() && has_all) waiting.erase(mine);
  return true;
}

void Machine::give_place() {
  std::lock_guard hold(lock);
  taken--;
}

// Blocks `first`, `first + step` and so on, at most `at_once` of them at a time, on this thread.
void Machine::run_some(const Launch &launch, uint32_t first, uint32_t step, uint32_t at_once) {
  simt_counts counted = {};
  simt_launch mine = launch.head;
  if (mine.counts) mine.counts = &counted;
  mine.late = launch.is_late() ? &late : nullptr;
  Events did;
  mine.events = recording.load(std::memory_order_relaxed) && !mine.resident ? &did : nullptr;
  std::vector<Block *> blocks;
  std::vector<uint32_t> numbers;
  uint32_t looks = 0;
  auto end = [&](size_t i) {
    end_block(blocks[i]);
    blocks.erase(blocks.begin() + long(i));
    numbers.erase(numbers.begin() + long(i));
    if (places) give_place();
  };
  while ((first < mine.blocks || !blocks.empty()) && pass()) {
    bool worked = false;
    while (first < mine.blocks && blocks.size() < at_once) {
      if (places && !take_place(&launch)) break;
      Block *block = start_block(&mine, first);
      if (block) blocks.push_back(block), numbers.push_back(first);
      else if (places) give_place();
      if (!block) fail("no memory for a block of that size");
      first += step;
      worked = true;
    }
    for (size_t i = 0; i < blocks.size();) {
      if (numbers[i] == held.load(std::memory_order_relaxed)) {
        i++;
        continue;
      }
      Turn turn = take_turn(blocks[i]);
      worked |= turn != Turn::polled;
      if (turn == Turn::failed)
        fail(std::string(mine.name, mine.name_bytes) + ": " + simt::why(blocks[i]));
      if (turn == Turn::ended || turn == Turn::failed) end(i);
      else i++;
    }
    looks = worked ? 0 : looks + 1;
    if (!worked) rest(looks);
  }
  while (!blocks.empty()) end(0);
  std::lock_guard hold(lock);
  // Of one that ended before it had all its places.
  if (failed.load()) waiting.clear();
  events.all.insert(events.all.end(), did.all.begin(), did.all.end());
  uint64_t *to = &counts.steps, *from = &counted.steps;
  for (size_t i = 0; i < sizeof counts / sizeof *to; i++) to[i] += from[i];
}

// Blocks that wait for the host all run beside each other, by as many threads as there are
// processors; those of other kernels one after the other.
void Machine::run(const Launch &launch) {
  run_all(launch);
  if (launch.is_late()) late.settle();
}

void Machine::run_all(const Launch &launch) {
  if (!launch.head.resident) return run_some(launch, 0, 1, 1);
  if (places) {
    std::lock_guard hold(lock);
    waiting.push_back(&launch);
  }
  long processors = sysconf(_SC_NPROCESSORS_ONLN);
  uint32_t step = processors > 1 ? uint32_t(processors) : 1;
  if (step > launch.head.blocks) step = launch.head.blocks;
  std::vector<pthread_t> threads;
  for (uint32_t first = 1; first < step; first++) {
    pthread_t thread;
    if (spawn(&thread, [&, first] { run_some(launch, first, step, UINT32_MAX); }))
      threads.push_back(thread);
    else
      fail("no thread for a grid");
  }
  run_some(launch, 0, step, UINT32_MAX);
  for (pthread_t thread : threads) pthread_join(thread, nullptr);
}

Stream::Stream(std::shared_ptr<Machine> of)
    : machine(std::move(of)), queue(machine->queue_for_stream()),
      pending(std::make_shared<std::atomic<uint32_t>>(0)) {}

Stream::~Stream() {
  if (queue && !machine->shares_queues()) queue->close();
}

void Stream::add(std::function<void()> job) {
  pending->fetch_add(1, std::memory_order_relaxed);
  queue->add([machine = machine, pending = pending, job = std::move(job)] {
    if (machine->pass()) job();
    pending->fetch_sub(1, std::memory_order_release);
  });
}

void Stream::launch(const simt_launch &from) {
  auto launch = std::make_shared<Launch>(from);
  uint64_t number = machine->submit();
  pending->fetch_add(1, std::memory_order_relaxed);
  queue->add([machine = machine, pending = pending, launch, number] {
    if (machine->pass()) machine->run(*launch);
    // First what `is_idle` says: whoever waited for the kernel sees that it has ended.
    pending->fetch_sub(1, std::memory_order_release);
    machine->finish(number);
  });
}

}  // namespace simt

using simt::Machine;
using simt::Stream;

struct simt_machine {
  std::shared_ptr<Machine> of;
};
struct simt_stream {
  Stream of;
};

extern "C" {

simt_machine *simt_machine_new(uint32_t queues, uint32_t places) {
  return new simt_machine{std::make_shared<Machine>(queues, places)};
}
void simt_machine_free(simt_machine *machine) { delete machine; }
void simt_machine_stall(simt_machine *machine, uint64_t ms) { machine->of->stall(ms); }
void simt_machine_hold(simt_machine *machine, uint32_t block) { machine->of->held.store(block); }
int simt_machine_wait(simt_machine *machine, uint64_t limit_ms, const char *who) {
  return machine->of->wait_for_kernels(limit_ms, who) ? 0 : 1;
}
int simt_machine_is_idle(simt_machine *machine) { return machine->of->is_idle(); }
void simt_machine_counts(simt_machine *machine, simt_counts *counts) {
  std::lock_guard hold(machine->of->lock);
  *counts = machine->of->counts;
}
void simt_machine_record(simt_machine *machine, int on) {
  std::lock_guard hold(machine->of->lock);
  machine->of->events.all.clear();
  machine->of->recording.store(on != 0);
}
size_t simt_machine_events(simt_machine *machine, simt_event *to, size_t most) {
  std::lock_guard hold(machine->of->lock);
  const std::vector<simt_event> &all = machine->of->events.all;
  std::copy_n(all.begin(), std::min(most, all.size()), to);
  return all.size();
}

simt_stream *simt_stream_new(simt_machine *machine) {
  auto *stream = new simt_stream{Stream(machine->of)};
  if (stream->of.queue) return stream;
  delete stream;
  return nullptr;
}
void simt_stream_free(simt_stream *stream) { delete stream; }
void simt_stream_launch(simt_stream *stream, const simt_launch *launch) {
  stream->of.launch(*launch);
}
void simt_stream_copy(simt_stream *stream, uint64_t to, uint64_t from, size_t bytes) {
  stream->of.add([=] {
    memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes);
  });
}
int simt_stream_query(simt_stream *stream, char *error, size_t error_bytes) {
  bool idle = stream->of.is_idle();
  std::string why = stream->of.machine->failure();
  if (why.empty()) return idle ? 0 : 1;
  snprintf(error, error_bytes, "%s", why.c_str());
  return 2;
}
}
