// Hashes and sums of byte strings, as the other kernels compute them of keys and packets: what the
// golden vectors are compared with. One thread a string.
#include "checksum.h"
#include "siphash.h"

enum : u32 { DIGEST_THREADS = 128 };

struct DigestShared {
  u32 rows[DIGEST_THREADS][ROW_WORDS];
};
static_assert(sizeof(DigestShared) == DIGEST_SHARED_BYTES, "the launch gives as much");

KERNEL(digest, DigestParams, DIGEST_THREADS) {
  DigestShared &s = shared_memory<DigestShared>();
  u32 i = blockIdx.x * blockDim.x + threadIdx.x;
  bool mine = i < p.n;
  u64 start = p.bytes + u64(mine ? i : 0) * p.stride;
  u32 lead = u32(start % 16), len = mine ? at<const u32>(p.lengths)[i] : 0;
  // Frames of their own, each staged by its thread.
  u32 *row = s.rows[threadIdx.x];
  Frame frame = {row, at<const u8>(start - lead), lead, len};
  for (u32 word = 0; word < STAGED_WORDS && 4 * word < lead + len; word++)
    row[word] = reinterpret_cast<const u32 *>(frame.base)[word];
  u32 from = lead, to = lead + len;
  u32 sum = len ? sum_staged(frame, 0, len) : 0;
  sum = add_unstaged(sum, frame, from, len ? to : 0);
  if (!mine) return;
  at<u64>(p.hashes)[i] = siphash(p.key, frame, 0, len);
  at<u32>(p.sums)[i] = network_order(sum, from);
}
