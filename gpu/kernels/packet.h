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

// Copies the first bytes of `n` frames to shared memory: what lies in their first line, and of that
// what they have. All threads of the block take part; eight that follow each other read one frame's
// line. All reads are on their way before the first is waited for.
template <u32 THREADS, u32 FRAMES>
__device__ __forceinline__ void stage(const PacketRegion &packets, const Entry *entries, u32 n,
                                      u32 (*rows)[ROW_WORDS]) {
  constexpr u32 PER_TURN = THREADS / CHUNKS, TURNS = FRAMES / PER_TURN;
  u32 first = threadIdx.x / CHUNKS, chunk = 16 * (threadIdx.x % CHUNKS);
  uint4 bytes[TURNS];
  bool has[TURNS];
#pragma unroll
  for (u32 turn = 0; turn < TURNS; turn++) {
    u32 i = first + turn * PER_TURN;
    has[turn] = false;
    if (i >= n) continue;
    // An entry as words: the slot; offset and length.
    const u32 *entry = reinterpret_cast<const u32 *>(entries + i);
    u32 slot = entry[0], off = entry[1] & 0xffff, len = entry[1] >> 16;
    // A slot is a multiple of 16 bytes, and so is its address: no chunk leaves it.
    u32 base = off & ~15u;
    if (slot >= packets.slots || off + len > packets.slot_bytes) continue;
    if (base + chunk >= off + len || len == 0) continue;
    bytes[turn] = load16(at<const u8>(packets.base + u64(slot) * packets.slot_bytes + base + chunk));
    has[turn] = true;
  }
#pragma unroll
  for (u32 turn = 0; turn < TURNS; turn++) {
    if (!has[turn]) continue;
    u32 *to = rows[first + turn * PER_TURN] + chunk / 4;
    to[0] = bytes[turn].x;
    to[1] = bytes[turn].y;
    to[2] = bytes[turn].z;
    to[3] = bytes[turn].w;
  }
}
