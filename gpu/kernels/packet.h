// Frames of a batch: where they lie, their first bytes in shared memory, and reads of them at any
// offset. Bytes that a frame does not have are 0, and are never read.
//
// A frame may begin at any byte of its slot. Positions count from `base`, the multiple of 16 at or
// below it; offsets count from the frame's first byte, `lead` positions further on.
#pragma once
#include "layout.h"

// Positions that are staged: one line of memory, which holds most requests whole.
enum : u32 { STAGED_BYTES = 128, STAGED_WORDS = STAGED_BYTES / 4, CHUNKS = STAGED_BYTES / 16 };
// Words from one staged frame to the next: one more than needed, so that the lanes of a warp, each
// at the same offset of another frame, use different banks.
enum : u32 { ROW_WORDS = STAGED_WORDS + 1 };

struct Frame {
  const u32 *staged;
  const u8 *base;
  u32 lead, len;

  // The word at position 4 * i.
  __device__ __forceinline__ u32 aligned_word(u32 i) const {
    if (4 * i >= lead + len) return 0;
    return i < STAGED_WORDS ? staged[i] : reinterpret_cast<const u32 *>(base)[i];
  }
  // The four bytes from offset `off` on, the first one lowest. Those behind the frame's end are
  // anything.
  __device__ __forceinline__ u32 word(u32 off) const {
    u32 position = lead + off, low = aligned_word(position / 4);
    if (position % 4 == 0) return low;
    return __funnelshift_r(low, aligned_word(position / 4 + 1), position % 4 * 8);
  }
  __device__ __forceinline__ u32 byte(u32 off) const {
    u32 position = lead + off;
    return aligned_word(position / 4) >> position % 4 * 8 & 0xff;
  }
  // Two bytes in network order.
  __device__ __forceinline__ u32 half(u32 off) const { return byte(off) << 8 | byte(off + 1); }
};

// The entry's frame, over the place for its first bytes. One that is not within its slot is empty.
__device__ __forceinline__ Frame open_frame(const PacketRegion &packets, const Entry &entry,
                                            const u32 *staged) {
  bool inside = entry.slot < packets.slots && u32(entry.off) + entry.len <= packets.slot_bytes;
  u64 start = packets.base + u64(inside ? entry.slot : 0) * packets.slot_bytes +
              (inside ? entry.off : 0);
  u32 lead = u32(start % 16);
  return {staged, at<const u8>(start - lead), lead, inside ? entry.len : 0u};
}

// Copies the first bytes of `n` frames to shared memory. All threads of the block take part; eight
// that follow each other read one frame's line.
__device__ inline void stage(const PacketRegion &packets, const Entry *entries, u32 n,
                             u32 (*rows)[ROW_WORDS]) {
  for (u32 i = threadIdx.x; i < n * CHUNKS; i += blockDim.x) {
    u32 *row = rows[i / CHUNKS];
    u32 chunk = i % CHUNKS;
    Frame frame = open_frame(packets, entries[i / CHUNKS], row);
    // A slot is a multiple of 16 bytes, and so is its address: no chunk leaves it.
    if (frame.len == 0 || 16 * chunk >= frame.lead + frame.len) continue;
    uint4 bytes = load16(frame.base + 16 * chunk);
    u32 *to = row + 4 * chunk;
    to[0] = bytes.x;
    to[1] = bytes.y;
    to[2] = bytes.z;
    to[3] = bytes.w;
  }
}
