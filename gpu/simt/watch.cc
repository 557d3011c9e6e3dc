// Where the compiler's instrumentation ends: `-fsanitize-coverage=trace-pc` calls at every basic
// block, `-fsanitize=thread` at every access. Only the watching build of the kernels has either.
#include "watch.h"

#include <algorithm>
#include <cstdio>

namespace simt {

thread_local Watch *watching;

namespace {

constexpr uintptr_t SECTOR = 32;

thread_local char what[128];

// Names the running thread's warp, a place in the program, and the how-manieth time it is there.
uint64_t occasion(uintptr_t pc) {
  uint32_t thread = self->thread.x;
  uint64_t time = watching->visits[thread][pc]++;
  uint64_t name = pc * 0x9e3779b97f4a7c15u ^ (uint64_t(thread / WARP) << 48 | time);
  return name * 0xff51afd7ed558ccdu;
}

bool within(const Range &range, uintptr_t start, uintptr_t end) {
  return range.start <= start && end <= range.end;
}

bool is_launchs(uintptr_t start, uintptr_t end) {
  const simt_region *first = watching->launch->regions, *last = first + watching->launch->n_regions;
  // The last region that begins at or before `start`: they are in order.
  const simt_region *next = std::upper_bound(
      first, last, start, [](uintptr_t at, const simt_region &r) { return at < r.start; });
  return next != first && end <= (next - 1)->start + (next - 1)->bytes;
}

bool is_watching() { return self && watching->launch; }

}  // namespace

void Watch::start(const simt_launch *of) {
  launch = of->counts ? of : nullptr;
  if (!launch) return;
  visits.assign(launch->threads, {});
  lanes.clear();
  sectors.clear();
}

void Watch::count() {
  if (!launch) return;
  simt_counts *counts = launch->counts;
  for (auto &[occasion, here] : lanes) {
    counts->steps++;
    counts->lanes += here;
  }
  for (auto &[occasion, touched] : sectors) {
    std::sort(touched.begin(), touched.end());
    counts->accesses++;
    counts->sectors += uint64_t(std::unique(touched.begin(), touched.end()) - touched.begin());
  }
  launch = nullptr;
}

void watch_access(const void *at, size_t bytes, const void *pc) {
  if (!is_watching()) return;
  uintptr_t start = reinterpret_cast<uintptr_t>(at), end = start + bytes;
  if (is_launchs(start, end)) {
    auto &touched = watching->sectors[occasion(reinterpret_cast<uintptr_t>(pc))];
    for (uintptr_t sector = start / SECTOR; sector * SECTOR < end; sector++)
      touched.push_back(sector);
    return;
  }
  for (const Range &range : watching->own)
    if (within(range, start, end)) return;
  if (at == &self) return;
  snprintf(what, sizeof what, "an access to %zu bytes at %p, which are not the launch's", bytes, at);
  fail(what);
}

#define HERE __builtin_return_address(0)

Pair watched_load16(const void *at) {
  watch_access(at, 16, HERE);
  return load16(at);
}

void watched_store16(void *at, Pair value) {
  watch_access(at, 16, HERE);
  store16(at, value);
}

}  // namespace simt

extern "C" {

// Weak: libFuzzer brings one of its own, and watches nothing.
__attribute__((weak)) void __sanitizer_cov_trace_pc() {
  if (simt::is_watching())
    simt::watching->lanes[simt::occasion(reinterpret_cast<uintptr_t>(HERE))]++;
}

void __tsan_init() {}
void __tsan_func_entry(void *) {}
void __tsan_func_exit() {}
void __tsan_read_range(void *at, size_t bytes) { simt::watch_access(at, bytes, HERE); }
void __tsan_write_range(void *at, size_t bytes) { simt::watch_access(at, bytes, HERE); }

#define ACCESS(bytes)                                                              \
  void __tsan_read##bytes(void *at) { simt::watch_access(at, bytes, HERE); }       \
  void __tsan_write##bytes(void *at) { simt::watch_access(at, bytes, HERE); }      \
  void __tsan_unaligned_read##bytes(void *at) { simt::watch_access(at, bytes, HERE); } \
  void __tsan_unaligned_write##bytes(void *at) { simt::watch_access(at, bytes, HERE); } \
  void __tsan_volatile_read##bytes(void *at) { simt::watch_access(at, bytes, HERE); } \
  void __tsan_volatile_write##bytes(void *at) { simt::watch_access(at, bytes, HERE); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)

// Atomic accesses are replaced, not only reported.
#define ATOMIC(bits, T)                                                                       \
  T __tsan_atomic##bits##_load(const volatile T *at, int) {                                   \
    simt::watch_access(const_cast<const T *>(at), sizeof(T), HERE);                           \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                                             \
  }                                                                                           \
  void __tsan_atomic##bits##_store(volatile T *at, T value, int) {                            \
    simt::watch_access(const_cast<T *>(at), sizeof(T), HERE);                                 \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                                            \
  }                                                                                           \
  T __tsan_atomic##bits##_exchange(volatile T *at, T value, int) {                            \
    simt::watch_access(const_cast<T *>(at), sizeof(T), HERE);                                 \
    return __atomic_exchange_n(at, value, __ATOMIC_SEQ_CST);                                  \
  }                                                                                           \
  T __tsan_atomic##bits##_fetch_add(volatile T *at, T value, int) {                           \
    simt::watch_access(const_cast<T *>(at), sizeof(T), HERE);                                 \
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);                                   \
  }                                                                                           \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T *at, T *expected, T value, int, \
                                                    int) {                                    \
    simt::watch_access(const_cast<T *>(at), sizeof(T), HERE);                                 \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,          \
                                       __ATOMIC_SEQ_CST);                                     \
  }                                                                                           \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T *at, T *expected, T value, int,  \
                                                  int) {                                      \
    simt::watch_access(const_cast<T *>(at), sizeof(T), HERE);                                 \
    return __atomic_compare_exchange_n(at, expected, value, false, __ATOMIC_SEQ_CST,          \
                                       __ATOMIC_SEQ_CST);                                     \
  }
ATOMIC(8, uint8_t)
ATOMIC(16, uint16_t)
ATOMIC(32, uint32_t)
ATOMIC(64, uint64_t)

void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
void __tsan_atomic_signal_fence(int) {}
}
