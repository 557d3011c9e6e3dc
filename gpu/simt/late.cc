// Stores that are on their way to the host, and loads of what was. late.h says what they promise.
#include "late.h"

#include <unistd.h>

#include <algorithm>

namespace simt {
namespace {

constexpr uintptr_t SECTOR = 32, PAGE = 4096;
// One store in so many takes another one with it.
constexpr uint64_t ARRIVES_ONE_IN = 64;
// For whoever looks at what half of a kernel's last stores left.
constexpr useconds_t NAP_US = 500;

// The largest pieces that are aligned on both sides, each at once: nobody sees half a word.
void move(uint8_t *to, const uint8_t *from, size_t bytes) {
  uintptr_t odd = reinterpret_cast<uintptr_t>(to) | reinterpret_cast<uintptr_t>(from) | bytes;
  auto all = [&](auto *to, auto *from) {
    for (size_t i = 0; i < bytes / sizeof *to; i++)
      __atomic_store_n(to + i, __atomic_load_n(from + i, __ATOMIC_RELAXED), __ATOMIC_RELAXED);
  };
  if (odd % 8 == 0) return all(reinterpret_cast<uint64_t *>(to), reinterpret_cast<const uint64_t *>(from));
  if (odd % 4 == 0) return all(reinterpret_cast<uint32_t *>(to), reinterpret_cast<const uint32_t *>(from));
  if (odd % 2 == 0) return all(reinterpret_cast<uint16_t *>(to), reinterpret_cast<const uint16_t *>(from));
  all(to, from);
}

void write_out(const LateStore &store) {
  move(store.to, store.from, store.bytes);
  for (uint32_t i = 0; i < store.bytes; i++) store.waiting[i]--;
}

uint8_t *host_of(const simt_region &region, uintptr_t at) {
  return reinterpret_cast<uint8_t *>(region.behind + (at - region.start));
}

// Behind the copy, in whole pages.
uint8_t *waiting_of(const simt_region &region, uintptr_t at) {
  return reinterpret_cast<uint8_t *>(at + (region.bytes + PAGE - 1) / PAGE * PAGE);
}

// Brings what is the host's here, except for bytes that have something on its way. Whether it was
// something else.
bool copy_in(const simt_region &region, uintptr_t at, size_t bytes) {
  uint8_t *mine = reinterpret_cast<uint8_t *>(at), *waiting = waiting_of(region, at);
  const uint8_t *host = host_of(region, at);
  bool is_new = !std::equal(mine, mine + bytes, host);
  if (!is_new) return false;
  if (std::all_of(waiting, waiting + bytes, [](uint8_t n) { return n == 0; })) {
    move(mine, host, bytes);
    return true;
  }
  for (size_t i = 0; i < bytes; i++)
    if (!waiting[i]) mine[i] = host[i];
  return true;
}

}  // namespace

void LateMemory::settle() {
  std::lock_guard hold(lock);
  for (const LateStore &store : released) write_out(store);
  released.clear();
  // Every other one first: that is not the order in which they were made.
  for (size_t first : {1, 0}) {
    for (size_t i = first; i < ended.size(); i += 2) write_out(ended[i]);
    if (first && ended.size() > 1) usleep(NAP_US);
  }
  ended.clear();
}

void LateBlock::start(const simt_launch *launch, uint32_t index) {
  memory = launch->late;
  if (!memory) return;
  std::lock_guard hold(memory->lock);
  // Whatever the host did before the launch comes before the kernel.
  memory->epoch++;
  known.assign(launch->threads, {memory->epoch, 0, 0, false});
  stores.clear();
  random = launch->seed + index + 0x9e3779b97f4a7c15u;
}

void LateBlock::end() {
  if (!memory) return;
  std::lock_guard hold(memory->lock);
  memory->ended.insert(memory->ended.end(), stores.begin(), stores.end());
  stores.clear();
  memory = nullptr;
}

bool LateBlock::covers(const LateStore &store, uint32_t thread) const {
  return store.thread == thread || store.reach == LateStore::block ||
         (store.reach == LateStore::warp && store.thread / WARP == thread / WARP);
}

void LateBlock::arrive(size_t i) {
  write_out(stores[i]);
  stores[i] = stores.back();
  stores.pop_back();
}

void LateBlock::load(const simt_region &region, uintptr_t at, size_t bytes) {
  std::lock_guard hold(memory->lock);
  uint64_t epoch = known[self->thread.x].epoch;
  for (uintptr_t sector = at / SECTOR; sector * SECTOR < at + bytes; sector++) {
    uint64_t &copied = memory->copied[sector];
    if (copied >= epoch) continue;
    copied = epoch;
    uintptr_t first = std::max(sector * SECTOR, uintptr_t(region.start));
    uintptr_t end = std::min((sector + 1) * SECTOR, uintptr_t(region.start + region.bytes));
    copy_in(region, first, end - first);
  }
}

void LateBlock::store(const simt_region &region, uintptr_t at, size_t bytes) {
  std::lock_guard hold(memory->lock);
  random ^= random << 13;
  random ^= random >> 7;
  random ^= random << 17;
  if (!stores.empty() && random % ARRIVES_ONE_IN == 0) arrive(random / ARRIVES_ONE_IN % stores.size());
  uint8_t *waiting = waiting_of(region, at);
  for (size_t i = 0; i < bytes; i++)
    if (++waiting[i] == 0) fail("too many stores to a byte of the host's that nothing releases");
  stores.push_back({reinterpret_cast<const uint8_t *>(at), host_of(region, at), waiting,
                    uint32_t(bytes), self->thread.x, LateStore::own});
}

void LateBlock::poll(const simt_region &region, uintptr_t at, size_t bytes, bool acquires) {
  std::lock_guard hold(memory->lock);
  Known &mine = known[self->thread.x];
  mine.is_new |= copy_in(region, at, bytes);
  if (acquires && mine.is_new) mine.epoch = ++memory->epoch;
  if (acquires) mine.is_new = false;
}

uint8_t *LateBlock::begin_atomic(const simt_region &region, uintptr_t at, size_t bytes) {
  std::lock_guard hold(memory->lock);
  uint8_t *to = host_of(region, at);
  for (size_t i = 0; i < stores.size();)
    if (stores[i].to < to + bytes && to < stores[i].to + stores[i].bytes) arrive(i);
    else i++;
  return to;
}

void LateBlock::load_word(uintptr_t at, bool acquires) {
  std::lock_guard hold(memory->lock);
  auto found = memory->words.find(at);
  if (found == memory->words.end()) return;
  Known &mine = known[self->thread.x];
  uint64_t &to = acquires ? mine.epoch : mine.seen;
  to = std::max(to, found->second);
}

void LateBlock::store_word(uintptr_t at, bool releases) {
  const Known &mine = known[self->thread.x];
  if (!releases && !mine.fenced) return;
  std::lock_guard hold(memory->lock);
  uint64_t &word = memory->words[at];
  word = std::max(word, releases ? mine.epoch : mine.fenced);
}

void LateBlock::release(bool system) {
  std::lock_guard hold(memory->lock);
  for (size_t i = 0; i < stores.size();) {
    if (!covers(stores[i], self->thread.x)) {
      i++;
      continue;
    }
    if (!system) memory->released.push_back(stores[i]);
    else write_out(stores[i]);
    stores[i] = stores.back();
    stores.pop_back();
  }
  if (!system) return;
  for (const LateStore &store : memory->released) write_out(store);
  memory->released.clear();
}

void LateBlock::fence(bool system) {
  release(system);
  std::lock_guard hold(memory->lock);
  Known &mine = known[self->thread.x];
  mine.epoch = std::max(mine.epoch, mine.seen);
  if (system && mine.is_new) mine.epoch = ++memory->epoch;
  if (system) mine.is_new = false;
  mine.fenced = mine.epoch;
}

void LateBlock::pause() {
  if (stores.empty()) return;
  std::lock_guard hold(memory->lock);
  random = random * 6364136223846793005u + 1442695040888963407u;
  arrive((random >> 33) % stores.size());
}

void LateBlock::meet(uint32_t warp, uint32_t mask) {
  uint64_t epoch = 0;
  for (uint32_t i = 0; i < WARP; i++)
    if (mask >> i & 1) epoch = std::max(epoch, known[warp * WARP + i].epoch);
  for (uint32_t i = 0; i < WARP; i++)
    if (mask >> i & 1) known[warp * WARP + i].epoch = epoch;
  for (LateStore &store : stores)
    if (store.thread / WARP == warp && mask >> store.thread % WARP & 1 && store.reach == LateStore::own)
      store.reach = LateStore::warp;
}

void LateBlock::meet_all() {
  uint64_t epoch = 0;
  for (const Known &each : known) epoch = std::max(epoch, each.epoch);
  for (Known &each : known) each.epoch = epoch;
  for (LateStore &store : stores) store.reach = LateStore::block;
}

}  // namespace simt
