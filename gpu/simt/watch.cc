// Where the compiler's instrumentation ends: `-fsanitize-coverage=trace-pc` calls at every basic
// block, `-fsanitize=thread` at every access. Only the watching build of the kernels has either.
#include "watch.h"

#include <algorithm>
#include <cstdio>

namespace simt {

thread_local Watch *watching;

namespace {

constexpr uintptr_t SECTOR = 32, SECTORS_PER_LINE = 4;

thread_local char what[128];

// Names the running thread's warp, a place in the program, and the how-manieth time it is there.
uint64_t occasion(uintptr_t pc) {
  uint32_t thread = self->thread.x;
  uint64_t time = watching->visits[thread][pc]++;
  uint64_t name = pc * 0x9e3779b97f4a7c15u ^ (uint64_t(thread / WARP) << 48 | time);
  return name * 0xff51afd7ed558ccdu;
}

void record(simt_event event) {
  if (!watching->launch->events) return;
  event.block = self->block.x;
  event.thread = self->thread.x;
  watching->launch->events->all.push_back(event);
}

bool within(const Range &range, uintptr_t start, uintptr_t end) {
  return range.start <= start && end <= range.end;
}

// The launch's region that holds all of it, or null.
const simt_region *region_of(uintptr_t start, uintptr_t end) {
  const simt_region *first = watching->launch->regions, *last = first + watching->launch->n_regions;
  // The last region that begins at or before `start`: they are in order.
  const simt_region *next = std::upper_bound(
      first, last, start, [](uintptr_t at, const simt_region &r) { return at < r.start; });
  if (next == first || end > (next - 1)->start + (next - 1)->bytes) return nullptr;
  return next - 1;
}

bool is_watching() { return self && watching->launch; }

}  // namespace

void Watch::start(const simt_launch *of) {
  launch = of->regions ? of : nullptr;
  if (!launch || !counts()) return;
  visits.assign(launch->threads, {});
  lanes.clear();
  touched.clear();
  system_fences.clear();
  system_releases.clear();
}

void Watch::count() {
  simt_counts *counts = launch ? launch->counts : nullptr;
  launch = nullptr;
  if (!counts) return;
  for (auto &[occasion, here] : lanes) {
    counts->steps++;
    counts->lanes += here;
  }
  bool host = false;
  for (auto &[occasion, here] : touched) {
    host |= here.is_host;
    std::vector<uintptr_t> &sectors = here.sectors;
    std::sort(sectors.begin(), sectors.end());
    sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
    counts->accesses++;
    counts->sectors += sectors.size();
    if (!here.is_host) continue;
    uint64_t lines = 0;
    for (size_t i = 0; i < sectors.size(); i++)
      lines += i == 0 || sectors[i] / SECTORS_PER_LINE != sectors[i - 1] / SECTORS_PER_LINE;
    switch (here.access) {
      case Access::read:
        counts->host_reads += lines;
        counts->host_read_bytes += sectors.size() * SECTOR;
        break;
      case Access::atomic:
      case Access::write:
        counts->host_writes += lines;
        counts->host_write_bytes += sectors.size() * SECTOR;
        break;
      case Access::poll: counts->host_polls += lines; break;
    }
  }
  counts->host_blocks += host;
  counts->system_fences += system_fences.size();
  counts->system_releases += system_releases.size();
}

void watch_access(const void *at, size_t bytes, const void *pc, Access access) {
  if (!is_watching()) return;
  uintptr_t start = reinterpret_cast<uintptr_t>(at), end = start + bytes;
  if (const simt_region *region = region_of(start, end)) {
    if (region->behind && access == Access::read) watching->late.load(*region, start, bytes);
    if (region->behind && access == Access::write) watching->late.store(*region, start, bytes);
    if (!watching->counts()) return;
    // Lanes of one access may be on either side.
    uint64_t key = occasion(reinterpret_cast<uintptr_t>(pc)) + region->is_host;
    record({.place = reinterpret_cast<uintptr_t>(pc),
            .at = region->laid + (start - region->start),
            .bytes = uint32_t(bytes),
            .access = uint32_t(access)});
    Touched &touched = watching->touched[key];
    touched.access = access;
    touched.is_host = region->is_host;
    for (uintptr_t sector = start / SECTOR; sector * SECTOR < end; sector++)
      touched.sectors.push_back(sector);
    return;
  }
  for (const Range &range : watching->own)
    if (within(range, start, end)) return;
  if (at == &self) return;
  snprintf(what, sizeof what, "an access to %zu bytes at %p, which are not the launch's", bytes, at);
  fail(what);
}

#define HERE __builtin_return_address(0)

// The region of a word of the host's that is a copy; null of any other.
static const simt_region *late_region(const volatile void *at, size_t bytes) {
  if (!is_watching() || !watching->late.memory) return nullptr;
  uintptr_t start = uintptr_t(at);
  const simt_region *region = region_of(start, start + bytes);
  return region && region->behind ? region : nullptr;
}

static bool is_late() { return is_watching() && watching->late.memory; }

uint32_t watched_load(const uint32_t *at, Order order) {
  watch_access(at, sizeof *at, HERE, Access::poll);
  uintptr_t start = reinterpret_cast<uintptr_t>(at);
  const simt_region *region = late_region(at, sizeof *at);
  if (region) watching->late.poll(*region, start, sizeof *at, order == Order::system);
  uint32_t value = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  if (!region && is_late()) watching->late.load_word(start, order != Order::system_poll);
  return value;
}

void watched_store(uint32_t *at, uint32_t value, Order order) {
  const simt_region *region = late_region(at, sizeof *at);
  bool system = order == Order::system;
  if (is_watching() && watching->counts() && system)
    watching->system_releases.insert(occasion(reinterpret_cast<uintptr_t>(HERE)));
  // Without this store, which may be on its way itself.
  if (is_late()) {
    watching->late.release(system);
    watching->late.store_word(reinterpret_cast<uintptr_t>(at), true);
  }
  watch_access(at, sizeof *at, HERE, region && system ? Access::atomic : Access::write);
  __atomic_store_n(at, value, __ATOMIC_SEQ_CST);
  if (!region || !system) return;
  uint8_t *host = watching->late.begin_atomic(*region, reinterpret_cast<uintptr_t>(at), sizeof *at);
  __atomic_store_n(reinterpret_cast<uint32_t *>(host), value, __ATOMIC_SEQ_CST);
}

void watched_fence(bool system) {
  fence();
  if (!is_watching()) return;
  if (watching->counts() && system)
    watching->system_fences.insert(occasion(reinterpret_cast<uintptr_t>(HERE)));
  if (is_late()) watching->late.fence(system);
}

// An atomic operation on a word, by what does it to a word of memory.
template <class T, class Operation>
static T watched_atomic(volatile T *at, const void *pc, Operation operation) {
  watch_access(const_cast<T *>(at), sizeof(T), pc, Access::atomic);
  uintptr_t start = uintptr_t(at);
  if (const simt_region *region = late_region(at, sizeof(T))) {
    T *host = reinterpret_cast<T *>(watching->late.begin_atomic(*region, start, sizeof(T)));
    T before = operation(host);
    __atomic_store_n(at, __atomic_load_n(host, __ATOMIC_SEQ_CST), __ATOMIC_SEQ_CST);
    return before;
  }
  if (is_late()) watching->late.store_word(start, false);
  T before = operation(const_cast<T *>(at));
  if (is_late()) watching->late.load_word(start, false);
  return before;
}

Pair watched_load16(const void *at) {
  watch_access(at, 16, HERE, Access::read);
  return load16(at);
}

void watched_store16(void *at, Pair value) {
  watch_access(at, 16, HERE, Access::write);
  store16(at, value);
}

}  // namespace simt

extern "C" {

// Weak: libFuzzer brings one of its own, and watches nothing.
__attribute__((weak)) void __sanitizer_cov_trace_pc() {
  if (!simt::is_watching() || !simt::watching->counts()) return;
  uintptr_t place = reinterpret_cast<uintptr_t>(HERE);
  simt::watching->lanes[simt::occasion(place)]++;
  simt::record({.place = place});
}

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_read_range(void *at, size_t bytes) {
  simt::watch_access(at, bytes, HERE, simt::Access::read);
}
void __tsan_write_range(void *at, size_t bytes) {
  simt::watch_access(at, bytes, HERE, simt::Access::write);
}

#define REPORT(name, bytes, access) \
  void __tsan_##name##bytes(void *at) { simt::watch_access(at, bytes, HERE, simt::Access::access); }
#define ACCESS(bytes)                  \
  REPORT(read, bytes, read)            \
  REPORT(write, bytes, write)          \
  REPORT(unaligned_read, bytes, read)  \
  REPORT(unaligned_write, bytes, write) \
  REPORT(volatile_read, bytes, read)   \
  REPORT(volatile_write, bytes, write)
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

// Atomic accesses are replaced, not only reported.
#define ATOMIC(bits, T)                                                                         \
  T __tsan_atomic##bits##_load(const volatile T *at, int) {                                     \
    simt::watch_access(const_cast<const T *>(at), sizeof(T), HERE, simt::Access::read);         \
    T value = __atomic_load_n(at, __ATOMIC_SEQ_CST);                                            \
    if (simt::is_late()) simt::watching->late.load_word(uintptr_t(at), false);                  \
    return value;                                                                               \
  }                                                                                             \
  void __tsan_atomic##bits##_store(volatile T *at, T value, int) {                              \
    simt::watch_access(const_cast<T *>(at), sizeof(T), HERE, simt::Access::write);              \
    if (simt::is_late()) simt::watching->late.store_word(uintptr_t(at), false);                 \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                              \
  }                                                                                             \
  T __tsan_atomic##bits##_exchange(volatile T *at, T value, int) {                              \
    auto exchange = [&](T *to) { return __atomic_exchange_n(to, value, __ATOMIC_SEQ_CST); };    \
    return simt::watched_atomic(at, HERE, exchange);                                            \
  }                                                                                             \
  T __tsan_atomic##bits##_fetch_add(volatile T *at, T value, int) {                             \
    auto add = [&](T *to) { return __atomic_fetch_add(to, value, __ATOMIC_SEQ_CST); };          \
    return simt::watched_atomic(at, HERE, add);                                                 \
  }                                                                                             \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T *at, T *expected, T value, int,  \
                                                    int) {                                      \
    T wanted = *expected;                                                                       \
    *expected = simt::watched_atomic(at, HERE, [&](T *to) {                                     \
      T seen = wanted;                                                                          \
      __atomic_compare_exchange_n(to, &seen, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST); \
      return seen;                                                                              \
    });                                                                                         \
    return *expected == wanted;                                                                 \
  }                                                                                             \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T *at, T *expected, T value, int a,  \
                                                  int b) {                                      \
    return __tsan_atomic##bits##_compare_exchange_strong(at, expected, value, a, b);            \
  }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
}
