// Reads of random or successive items, as fast as the device makes them, with or without writes: what
// its memory, and the way to the host's, can do. Nothing that serves requests uses it.
#include "layout.h"

enum : u32 { MICRO_THREADS = 256, MICRO_AT_ONCE = 4 };

// A well-mixed word for each number (the finalizer of MurmurHash3 by Appleby).
__device__ __forceinline__ u32 mix(u32 x) {
  x ^= x >> 16;
  x *= 0x85ebca6b;
  x ^= x >> 13;
  x *= 0xc2b2ae35;
  return x ^ x >> 16;
}

// `lanes` threads read an item together, 16 bytes each, or one thread reads 8. Each group reads
// `rounds` items, MICRO_AT_ONCE of them before it looks at any. Groups beyond `groups` do nothing.
KERNEL(micro_read, MicroReadParams, MICRO_THREADS) {
  u32 thread = blockIdx.x * blockDim.x + threadIdx.x;
  u32 group = thread / p.lanes, lane = thread % p.lanes;
  if (group >= p.groups || lane * 16 >= p.item_bytes) return;
  u32 sum = 0;
  for (u32 round = 0; round < p.rounds; round += MICRO_AT_ONCE) {
    uint4 seen[MICRO_AT_ONCE];
    for (u32 i = 0; i < MICRO_AT_ONCE; i++) {
      u32 number = (round + i) * p.groups + group;
      u32 item = p.random ? __umulhi(mix(number ^ p.seed), p.items) : number % p.items;
      u64 from = p.from + u64(item) * p.stride + lane * 16;
      if (p.item_bytes == 8) {
        u64 word = load_relaxed(at<const u64>(from));
        seen[i] = make_uint4(u32(word), u32(word >> 32), 0, 0);
      } else {
        seen[i] = load16(at<const void>(from));
      }
    }
    for (u32 i = 0; i < MICRO_AT_ONCE; i++) {
      sum += seen[i].x ^ seen[i].y ^ seen[i].z ^ seen[i].w;
      if (p.to) {
        u32 number = (round + i) * p.groups + group;
        store16(at<void>(p.to + u64(number % p.items) * p.to_stride + lane * 16), seen[i]);
      }
    }
  }
  atomicAdd(at<u32>(p.sum), sum);
}
