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

// A frame that is staged to its last byte; reads beyond that give anything.
struct StagedFrame {
  const u32 *staged;
  u32 lead, len;

  __device__ __forceinline__ u32 word(u32 off) const {
    u32 position = lead + off;
    return __funnelshift_r(staged[position / 4], staged[position / 4 + 1], position * 8);
  }
  __device__ __forceinline__ u32 byte(u32 off) const { return word(off) & 0xff; }
  // Two bytes in network order.
  __device__ __forceinline__ u32 half(u32 off) const { return network_half(word(off)); }
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

// Copies the first bytes of FRAMES frames to shared memory: what lies in their first line, and of that
// what they have. All lanes of a warp take part; eight that follow each other read one frame's line.
// All reads are on their way before the first is waited for. The entries are within their slots.
template <u32 FRAMES>
__device__ __forceinline__ void stage(const PacketRegion &packets, const Entry *entries,
                                      u32 (*rows)[ROW_WORDS]) {
  constexpr u32 PER_TURN = 32 / CHUNKS, TURNS = FRAMES / PER_TURN;
  u32 lane = threadIdx.x % 32, first = lane / CHUNKS, chunk = 16 * (lane % CHUNKS);
  const Entry *entry = entries + first;
  u32 *row = rows[first] + chunk / 4;
  uint4 bytes[TURNS];
#pragma unroll
  for (u32 turn = 0; turn < TURNS; turn++) {
    const Entry &its = entry[turn * PER_TURN];
    // A slot is a multiple of 16 bytes, and so is its address: no chunk leaves it.
    u32 position = (its.off & ~15u) + chunk;
    bytes[turn] = make_uint4(0, 0, 0, 0);
    if (position < u32(its.off) + its.len && its.len != 0)
      bytes[turn] =
          load16(at<const u8>(packets.base + u64(its.slot) * packets.slot_bytes + position));
  }
#pragma unroll
  for (u32 turn = 0; turn < TURNS; turn++) {
    u32 *to = row + turn * PER_TURN * ROW_WORDS;
    to[0] = bytes[turn].x;
    to[1] = bytes[turn].y;
    to[2] = bytes[turn].z;
    to[3] = bytes[turn].w;
  }
}
