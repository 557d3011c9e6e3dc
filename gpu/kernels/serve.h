// The persistent form of the GET kernels: a few blocks for each place, which serve one batch after
// the other until they are told to end, or the host seems dead.
#pragma once
#include "get.h"

// Looks at the doorbell between two at the host's control words, which change seldom.
enum : u32 { LOOKS_PER_CONTROL = 16, BACKOFF_NS = 100 };

// How one block is doing; kept by its first lane.
struct Watch {
  u32 served, batches, beat;
  u64 beat_ms;

  // Waits for a batch and returns its number; the number served last means the end.
  __device__ inline u32 wait(const Place *place, const Control *control) {
    if (control->exit_after && batches >= control->exit_after) return served;
    for (u32 looks = 0;; looks++) {
      // First the control words: a batch that was rung before the stop is still seen below.
      bool end = false;
      if (looks % LOOKS_PER_CONTROL == 0) {
        end = load_acquire(&control->stop) || host_is_dead(control);
      }
      u32 rung = load_acquire(&place->rung);
      if (rung != served || end) return rung;
      __nanosleep(BACKOFF_NS);
    }
  }

  __device__ inline bool host_is_dead(const Control *control) {
    if (control->patience == 0) return false;
    u32 now_beat = load_acquire(&control->beat);
    u64 now_ms = clock_ms();
    if (now_beat != beat) {
      beat = now_beat;
      beat_ms = now_ms;
    }
    return now_ms - beat_ms > control->patience;
  }
};

template <class Search> __device__ inline void serve(const ServeParams &p, GetShared &s) {
  u32 number = blockIdx.x / p.blocks_per_place, part = blockIdx.x % p.blocks_per_place;
  if (number >= p.n_places) return;
  Place *place = at<Place>(p.places) + number;
  u32 *arrived = at<u32>(p.arrived) + number;
  const Control *control = at<const Control>(p.control);
  // `done` cannot move before this block has done its share.
  Watch watch = {load_acquire(&place->done), 0, load_acquire(&control->beat), clock_ms()};
  for (;;) {
    if (threadIdx.x == 0) {
      s.rung = watch.wait(place, control);
      s.go = s.rung != watch.served;
      s.n = place->n;
      s.now = place->now;
    }
    __syncthreads();
    u32 rung = s.rung, n = s.n, now = s.now;
    if (!s.go) return;
    get_batch<Search>(p.packets, p.index, place, n, now, rung, part, p.blocks_per_place, arrived,
                      s);
    watch.served = rung;
    watch.batches++;
  }
}
