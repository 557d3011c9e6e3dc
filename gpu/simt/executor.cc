// The executor: fibers, their turns, and what they wait for. executor.h says what it promises.
#include "executor.h"
#include "watch.h"

#include <sys/mman.h>
#include <time.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <vector>

namespace simt {

thread_local Thread *self;

namespace {

constexpr size_t PAGE = 4096;
// Kernels keep little on the stack; a page below each that nobody may touch shows when they do not.
constexpr size_t STACK = 32 * 1024;
constexpr uint32_t THREADS_MAX = 1024;
constexpr size_t SHARED_MAX = 228 * 1024;
// Ended blocks whose memory is kept for others.
constexpr size_t SPARE_MAX = 64;
// MADV_GUARD_INSTALL, from Linux 6.13 on: a page that faults, without a mapping of its own. A process
// has some 65,000 mappings, and a block of 256 threads would take 512 of them.
constexpr int GUARD = 102;
// Fills shared memory before each block: what a block did not write, it must not rely on.
constexpr int POISON = 0xa5;

enum class State : uint8_t { ready, asleep, at_barrier, at_vote, done };

struct Fiber : Thread {
  void *stack_pointer;
  uint32_t index;
  State state;
  Vote what;
  uint32_t mask, argument;
  uint64_t value, result;

  uint32_t warp() const { return index / WARP; }
  uint32_t lane() const { return index % WARP; }
};

struct Memory {
  char *base;
  size_t bytes;

  explicit Memory(size_t bytes) : bytes(bytes) {
    void *got = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    base = got == MAP_FAILED ? nullptr : static_cast<char *>(got);
    // Of most stacks one small page is used.
    if (base) madvise(base, bytes, MADV_NOHUGEPAGE);
  }
  ~Memory() {
    if (base) munmap(base, bytes);
  }
  Memory(const Memory &) = delete;
  bool forbid(size_t from) { return madvise(base + from, PAGE, GUARD) == 0; }
};

}  // namespace

struct Block {
  uint32_t threads;
  Memory stacks{threads * (STACK + PAGE)};
  Memory shared{SHARED_MAX + PAGE};
  std::vector<Fiber> fibers{threads};
  std::vector<uint32_t> order = std::vector<uint32_t>(threads);
  void *scheduler = nullptr;
  const simt_launch *launch = nullptr;
  uint32_t live = 0, waiting = 0;
  uint64_t random = 0;
  Watch watch;
  char why[256] = "";

  explicit Block(uint32_t threads) : threads(threads) {
    if (!usable()) return;
    // Older kernels have no such pages: there a stack that is too small is not noticed.
    for (size_t i = 0; i < threads; i++)
      if (!stacks.forbid(i * (STACK + PAGE))) break;
    mprotect(shared.base + SHARED_MAX, PAGE, PROT_NONE);
  }
  bool usable() const { return stacks.base && shared.base; }
  // Ends at the page that nobody may touch.
  char *shared_base() const { return shared.base + SHARED_MAX - (launch->shared_bytes + 15) / 16 * 16; }

  void start(const simt_launch *launch, uint32_t index);
  void start_thread(uint32_t index, uint32_t block_index);
  Turn turn();
  void shuffle();
  void leave();
  void meet(Fiber &fiber);
  void barrier_if_complete();
  void describe_deadlock();
};

namespace {

thread_local Block *block;
Fiber &me() { return *static_cast<Fiber *>(self); }

// Saves the registers that a call must keep, and goes on where `to` was left.
extern "C" void simt_switch(void **from, void *to);
#if defined(__x86_64__)
asm(R"(
.text
.globl simt_switch
.type simt_switch, @function
simt_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch, .-simt_switch
)");
// Registers popped by the first switch to a fiber, below its entry point.
constexpr size_t SAVED = 6, ENTRY = 6;
#elif defined(__aarch64__)
asm(R"(
.text
.globl simt_switch
.type simt_switch, %function
simt_switch:
  sub sp, sp, #160
  stp x19, x20, [sp, #0]
  stp x21, x22, [sp, #16]
  stp x23, x24, [sp, #32]
  stp x25, x26, [sp, #48]
  stp x27, x28, [sp, #64]
  stp x29, x30, [sp, #80]
  stp d8, d9, [sp, #96]
  stp d10, d11, [sp, #112]
  stp d12, d13, [sp, #128]
  stp d14, d15, [sp, #144]
  mov x9, sp
  str x9, [x0]
  mov sp, x1
  ldp x19, x20, [sp, #0]
  ldp x21, x22, [sp, #16]
  ldp x23, x24, [sp, #32]
  ldp x25, x26, [sp, #48]
  ldp x27, x28, [sp, #64]
  ldp x29, x30, [sp, #80]
  ldp d8, d9, [sp, #96]
  ldp d10, d11, [sp, #112]
  ldp d12, d13, [sp, #128]
  ldp d14, d15, [sp, #144]
  add sp, sp, #160
  ret
.size simt_switch, .-simt_switch
)");
constexpr size_t SAVED = 20, ENTRY = 11;
#else
#error "the SIMT executor has no fiber switch for this processor"
#endif

// A fiber's whole life.
void thread_main() {
  block->launch->kernel(block->launch->params);
  me().state = State::done;
  block->live--;
  block->barrier_if_complete();
  block->leave();
  __builtin_unreachable();
}

Range range(const void *start, size_t bytes) {
  return {reinterpret_cast<uintptr_t>(start), reinterpret_cast<uintptr_t>(start) + bytes};
}

bool lives(const Fiber &fiber) { return fiber.state != State::done; }

}  // namespace

void Block::start_thread(uint32_t index, uint32_t block_index) {
  Fiber &fiber = fibers[index];
  fiber.index = index;
  fiber.state = State::ready;
  fiber.thread = {index, 0, 0};
  fiber.block = {block_index, 0, 0};
  fiber.block_dim = {launch->threads, 1, 1};
  fiber.grid_dim = {launch->blocks, 1, 1};
  char *top = stacks.base + (index + 1) * (STACK + PAGE);
  // As a call leaves it: the return address stands 8 below a multiple of 16.
  void **stack = reinterpret_cast<void **>(top) - 2 - SAVED;
  memset(stack, 0, (SAVED + 2) * sizeof *stack);
  stack[ENTRY] = reinterpret_cast<void *>(thread_main);
  fiber.stack_pointer = stack;
}

void Block::shuffle() {
  for (uint32_t i = launch->threads; i > 1; i--) {
    random ^= random << 13;
    random ^= random >> 7;
    random ^= random << 17;
    std::swap(order[i - 1], order[random % i]);
  }
}

void Block::start(const simt_launch *of, uint32_t index) {
  launch = of;
  live = launch->threads;
  waiting = 0;
  why[0] = 0;
  for (uint32_t i = 0; i < threads; i++) {
    order[i] = i;
    start_thread(i, index);
  }
  memset(shared_base(), POISON, SHARED_MAX - (shared_base() - shared.base));
  random = launch->seed + index + 1;
  watch.own = {range(stacks.base, stacks.bytes), range(shared_base(), launch->shared_bytes),
               range(fibers.data(), fibers.size() * sizeof(Fiber))};
  watch.start(launch);
  watch.late.start(launch, index);
}

Turn Block::turn() {
  if (launch->seed) shuffle();
  bool moved = false, slept = false;
  block = this;
  watching = &watch;
  for (uint32_t i : order) {
    Fiber &fiber = fibers[i];
    if (fiber.state != State::ready && fiber.state != State::asleep) continue;
    moved |= fiber.state == State::ready;
    slept |= fiber.state == State::asleep;
    fiber.state = State::ready;
    self = &fiber;
    simt_switch(&scheduler, fiber.stack_pointer);
    self = nullptr;
    if (why[0]) return Turn::failed;
  }
  if (!live) {
    watch.count();
    return Turn::ended;
  }
  if (!moved && !slept) {
    describe_deadlock();
    return Turn::failed;
  }
  return moved ? Turn::worked : Turn::polled;
}

void Block::leave() { simt_switch(&me().stack_pointer, scheduler); }

void Block::barrier_if_complete() {
  if (!waiting || waiting < live) return;
  if (live < launch->threads) fail("a barrier that part of the block has left for good");
  waiting = 0;
  if (watch.late.memory) watch.late.meet_all();
  for (uint32_t i = 0; i < launch->threads; i++)
    if (fibers[i].state == State::at_barrier) fibers[i].state = State::ready;
}

// The lanes that `fiber` names are all here: each gets its result and may go on.
void Block::meet(Fiber &fiber) {
  Fiber *warp = &fibers[fiber.warp() * WARP];
  uint32_t yes = 0, sum = 0, most = 0;
  for (uint32_t i = 0; i < WARP; i++) {
    if (!(fiber.mask >> i & 1)) continue;
    yes |= uint32_t(warp[i].value != 0) << i;
    sum += uint32_t(warp[i].value);
    if (uint32_t(warp[i].value) > most) most = uint32_t(warp[i].value);
  }
  for (uint32_t i = 0; i < WARP; i++) {
    if (!(fiber.mask >> i & 1)) continue;
    Fiber &lane = warp[i];
    switch (fiber.what) {
      case Vote::sync: lane.result = 0; break;
      case Vote::ballot: lane.result = yes; break;
      case Vote::any: lane.result = yes != 0; break;
      case Vote::all: lane.result = yes == fiber.mask; break;
      case Vote::add: lane.result = sum; break;
      case Vote::max: lane.result = most; break;
      case Vote::shuffle:
        if (!(fiber.mask >> lane.argument % WARP & 1)) fail("a shuffle from a lane outside its mask");
        lane.result = warp[lane.argument % WARP].value;
        break;
      case Vote::match:
        lane.result = 0;
        for (uint32_t j = 0; j < WARP; j++)
          if (fiber.mask >> j & 1 && warp[j].value == lane.value) lane.result |= 1u << j;
        break;
    }
  }
  if (watch.late.memory && fiber.what == Vote::sync) watch.late.meet(fiber.warp(), fiber.mask);
  for (uint32_t i = 0; i < WARP; i++)
    if (fiber.mask >> i & 1) warp[i].state = State::ready;
}

void Block::describe_deadlock() {
  for (uint32_t i = 0; i < launch->threads; i++) {
    const Fiber &fiber = fibers[i];
    if (fiber.state == State::at_vote) {
      snprintf(why, sizeof why, "thread %u waits for lanes %08x of its warp, which do not come", i,
               fiber.mask);
      return;
    }
  }
  snprintf(why, sizeof why, "%u of %u threads wait at a barrier for the rest", waiting, live);
}

void *shared_memory(size_t bytes) {
  if (bytes > block->launch->shared_bytes) fail("more shared memory than the launch gave");
  return block->shared_base();
}

void sync_threads() {
  me().state = State::at_barrier;
  block->waiting++;
  block->barrier_if_complete();
  if (me().state == State::at_barrier) block->leave();
}

uint64_t sync_warp(Vote what, uint32_t mask, uint64_t value, uint32_t argument) {
  Fiber &fiber = me();
  if (!(mask >> fiber.lane() & 1)) fail("a lane that its own mask does not name");
  fiber.what = what;
  fiber.mask = mask;
  fiber.value = value;
  fiber.argument = argument;
  fiber.state = State::at_vote;
  Fiber *warp = &block->fibers[fiber.warp() * WARP];
  for (uint32_t i = 0; i < WARP; i++) {
    if (!(mask >> i & 1)) continue;
    if (fiber.warp() * WARP + i >= block->launch->threads || !lives(warp[i]))
      fail("a mask that names a lane which is gone");
    if (warp[i].state != State::at_vote || warp[i].mask != mask || warp[i].what != what) {
      block->leave();
      return me().result;
    }
  }
  block->meet(fiber);
  return fiber.result;
}

uint32_t active_lanes() { return 1u << me().lane(); }

void sleep() {
  if (block->watch.late.memory) block->watch.late.pause();
  me().state = State::asleep;
  block->leave();
}

void give_way() {
  if (block->launch->seed) block->leave();
}

void fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

void copy_params(void *to, const void *params, size_t bytes) { memcpy(to, params, bytes); }

uint64_t clock_ms() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return uint64_t(now.tv_sec) * 1000 + uint64_t(now.tv_nsec) / 1000000;
}

void fail(const char *why) {
  Fiber &fiber = me();
  snprintf(block->why, sizeof block->why, "block %u, thread %u: %s", fiber.block.x, fiber.index, why);
  block->leave();
  abort();
}

namespace {

// Blocks that have ended, for others of as many threads. Never destroyed: threads may outlive it.
std::mutex &spare_lock = *new std::mutex;
std::vector<Block *> &spare = *new std::vector<Block *>;

}  // namespace

Block *start_block(const simt_launch *launch, uint32_t index) {
  if (launch->threads == 0 || launch->threads > THREADS_MAX || launch->shared_bytes > SHARED_MAX)
    return nullptr;
  Block *block = nullptr;
  {
    std::lock_guard hold(spare_lock);
    for (size_t i = 0; i < spare.size() && !block; i++) {
      if (spare[i]->threads != launch->threads) continue;
      block = spare[i];
      spare.erase(spare.begin() + long(i));
    }
  }
  if (!block) block = new Block(launch->threads);
  if (!block->usable()) {
    delete block;
    return nullptr;
  }
  block->start(launch, index);
  return block;
}

Turn take_turn(Block *block) { return block->turn(); }

const char *why(const Block *block) { return block->why; }

void end_block(Block *block) {
  block->watch.late.end();
  std::unique_lock hold(spare_lock);
  spare.push_back(block);
  if (spare.size() <= SPARE_MAX) return;
  Block *oldest = spare.front();
  spare.erase(spare.begin());
  hold.unlock();
  delete oldest;
}

}  // namespace simt
