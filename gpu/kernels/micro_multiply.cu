// Products of two vectors in the device's own memory: what another user of the device computes beside
// the requests. Nothing that serves requests uses it.
#include "layout.h"

// A thread has `rounds` elements, `stride` from one to the next, and `passes` passes over as many. A launch has the blocks
// from `first` on, so that several launches do what one does. Each pass is over the elements of the blocks behind the last
// one's, so that a launch of few blocks goes through all memory, too, and no cache has what it needs.
KERNEL(micro_multiply, MicroMultiplyParams, 1024) {
  u32 blocks = p.stride / blockDim.x;
  for (u32 pass = 0; pass < p.passes; pass++) {
    u32 block = u32((p.first + blockIdx.x + u64(pass) * gridDim.x) % blocks);
    u64 element = u64(block) * blockDim.x + threadIdx.x;
    for (u32 round = 0; round < p.rounds; round++, element += p.stride) {
      // Loads and stores that are made, however often their outcome is the same.
      u32 a = load_relaxed(at<const u32>(p.a + element * 4));
      u32 b = load_relaxed(at<const u32>(p.b + element * 4));
      store_relaxed(at<u32>(p.to + element * 4), a * b);
    }
  }
}
