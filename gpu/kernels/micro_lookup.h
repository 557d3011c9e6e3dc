// Looks up keys that lie one behind the other in memory: what an index does by itself, without
// packets. What the two kernels of it share. Nothing that serves requests uses it.
#pragma once
#include "found.h"
#include "siphash.h"

enum : u32 { LOOKUP_THREADS = 256 };

// A thread a key. A result is the hint, and the location in its high half.
template <class Search> __device__ inline void look_keys_up(const MicroLookupParams &p) {
  u32 threads = gridDim.x * blockDim.x;
  for (u32 i = blockIdx.x * blockDim.x + threadIdx.x; i < p.n; i += threads) {
    const u8 *key = at<const u8>(p.keys) + u64(i) * p.stride;
    Frame frame = {reinterpret_cast<const u32 *>(key), key, 0, p.key_bytes};
    FrameKey asked = {frame, 0, p.key_bytes};
    Wide hash;
    siphash(p.index.key, asked, hash);
    Found found = Search::look_up(p.index, p.now, asked, hash, kind_of(p.key_bytes, VERB_GET));
    at<u64>(p.results)[i] = found.hint | u64(found.location) << 32;
  }
}
