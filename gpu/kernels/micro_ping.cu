// Answers a doorbell: what a word costs from the host to the device and back. Nothing that serves
// requests uses it.
#include "layout.h"

// Ends after `answers` answers, or when nobody rings for `patience` milliseconds.
KERNEL(micro_ping, MicroPingParams, 32) {
  if (threadIdx.x) return;
  const u32 *bell = at<const u32>(p.bell);
  u32 *answer = at<u32>(p.answer);
  u32 last = 0;
  u64 since = clock_ms();
  for (u32 answers = 0; answers < p.answers;) {
    u32 rung = load_acquire(bell);
    if (rung != last) {
      last = rung;
      store_release(answer, rung);
      answers++;
      since = clock_ms();
    } else if (clock_ms() - since > p.patience) {
      return;
    } else {
      __nanosleep(p.pause_ns);
    }
  }
}
