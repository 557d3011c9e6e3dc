// The resident form of the GET kernels: one grid for all submission rings of a device, until it is
// stopped or the host seems dead.
//
//   warp 0 of block 0   polls the line of doorbells in host memory, reads what was ordered, and puts
//                       the batch's parts into the work queue in the device's memory
//   other blocks        draw a ticket each and wait for its part there
//
// So polls over PCIe do not grow with rings or blocks, and a batch takes as many blocks as it has
// parts, whoever sent it.
#pragma once
#include "get.h"

enum : u32 { IDLE_NS = 100, DOORBELLS_PER_LANE = 4, CONTROL_BYTES = 2 };
static_assert(sizeof(Doorbells) == 128 && sizeof(Work) == 64, "a line, and half of one");

__device__ __forceinline__ uint4 shuffle16(uint4 value, int from) {
  return make_uint4(__shfl_sync(~0u, value.x, from), __shfl_sync(~0u, value.y, from),
                    __shfl_sync(~0u, value.z, from), __shfl_sync(~0u, value.w, from));
}

__device__ __forceinline__ Work *work_at(const ServeParams &p, u32 ticket) {
  return reinterpret_cast<Work *>(at<WorkQueue>(p.queue) + 1) + (ticket & p.queue_mask);
}

// The same, when the block that drew it in the round before has read it: blocks need not read in
// order, and one may stall.
__device__ __forceinline__ Work *vacant_work_at(const ServeParams &p, u32 ticket) {
  Work *work = work_at(p, ticket);
  while (load_acquire_device(&work->taken) != load_relaxed(&work->ticket)) __nanosleep(IDLE_NS);
  return work;
}

// What the polling warp knows. Lane i has the doorbells in word i of the line.
struct Poller {
  u32 lane, given, batches, seen;

  // The first of this lane's doorbells that is ahead of what was given out, or DOORBELLS_PER_LANE.
  __device__ inline u32 first_rung(u32 line) const {
    u32 i = lane == 0 ? u32(CONTROL_BYTES) : 0;
    while (i < DOORBELLS_PER_LANE && ((line ^ seen) >> 8 * i & 0xff) == 0) i++;
    return i;
  }

  // Puts `parts` parts of an order into the queue, a lane a part. The same in all lanes.
  __device__ inline void give(const ServeParams &p, uint4 low, uint4 high, u64 ring_slot,
                              u32 arrived, u32 parts) {
    for (u32 part = lane; part < parts; part += 32) {
      Work *to = vacant_work_at(p, given + part);
      store16(to, low);
      store16(reinterpret_cast<u8 *>(to) + 16, high);
      store16(reinterpret_cast<u8 *>(to) + 32,
              make_uint4(u32(ring_slot), u32(ring_slot >> 32), arrived, part | parts << 16));
      store_release_device(&to->ticket, given + part + 1);
    }
    given += parts;
  }

  // Every batch that the line announces. What the host wrote before it rang is visible.
  __device__ inline void hand_out(const ServeParams &p, u32 line) {
    for (;;) {
      u32 i = first_rung(line);
      bool mine = i < DOORBELLS_PER_LANE;
      u32 ordered = __ballot_sync(~0u, mine);
      if (!ordered) return;
      // All lanes read their orders side by side.
      u64 ring_slot = 0;
      u32 slot = 0;
      uint4 low = make_uint4(0, 0, 0, 0), high = low;
      if (mine) {
        u32 number = ((seen >> 8 * i) + 1) & 0xff;
        u32 ring = DOORBELLS_PER_LANE * lane + i - CONTROL_BYTES;
        slot = ring * p.slots_per_ring + (number & (p.slots_per_ring - 1));
        ring_slot = p.ring_slots + u64(slot) * sizeof(RingSlot);
        low = load16(at<const u8>(ring_slot));
        high = load16(at<const u8>(ring_slot) + 16);
        seen = (seen & ~(0xffu << 8 * i)) | number << 8 * i;
      }
      for (; ordered; ordered &= ordered - 1) {
        int from = __ffs(int(ordered)) - 1;
        uint4 first = shuffle16(low, from), second = shuffle16(high, from);
        u32 n = second.z & 0xffff;
        u32 parts = n > GET_REQUESTS ? (n + GET_REQUESTS - 1) / GET_REQUESTS : 1;
        give(p, first, second, __shfl_sync(~0u, ring_slot, from), __shfl_sync(~0u, slot, from),
             parts);
        batches++;
      }
    }
  }

  __device__ inline void run(const ServeParams &p) {
    WorkQueue *queue = at<WorkQueue>(p.queue);
    const u32 *doorbells = at<const u32>(p.doorbells) + lane;
    u32 *words = reinterpret_cast<u32 *>(queue->seen) + lane;
    given = queue->given;
    batches = 0;
    seen = *words;
    u32 line = load_relaxed_system(doorbells);
    u64 alive_ms = clock_ms();
    // The line is read once more after it says stop: a batch that was announced before is served.
    bool ends = false;
    for (;;) {
      u32 before = line;
      line = load_relaxed_system(doorbells);
      if (__any_sync(~0u, first_rung(line) < DOORBELLS_PER_LANE)) {
        __threadfence_system();
        __syncwarp();
        hand_out(p, line);
      }
      if (ends || (p.batches_max && batches >= p.batches_max)) break;
      u64 now_ms = clock_ms();
      if (__any_sync(~0u, line != before)) alive_ms = now_ms;
      bool dead = p.patience_ms && now_ms - alive_ms > p.patience_ms;
      ends = __any_sync(~0u, (lane == 0 && (line & 0xff)) || dead);
      if (!ends) __nanosleep(IDLE_NS);
    }
    // Work without parts for every other block.
    for (u32 block = lane; block + 1 < gridDim.x; block += 32) {
      Work *to = vacant_work_at(p, given + block);
      to->parts = 0;
      store_release_device(&to->ticket, given + block + 1);
    }
    *words = seen;
    if (lane == 0) queue->given = given + gridDim.x - 1;
  }
};

template <class Search> __device__ inline void serve(const ServeParams &p, GetShared &s) {
  if (blockIdx.x == 0) {
    Poller poller = {threadIdx.x, 0, 0, 0};
    if (threadIdx.x < 32) poller.run(p);
    return;
  }
  for (;;) {
    if (threadIdx.x == 0) {
      u32 ticket = atomicAdd(&at<WorkQueue>(p.queue)->drawn, 1u);
      Work *work = work_at(p, ticket);
      while (load_acquire_device(&work->ticket) != ticket + 1) __nanosleep(IDLE_NS);
      s.work = *work;
      store_release_device(&work->taken, ticket + 1);
    }
    __syncthreads();
    if (s.work.parts == 0) return;
    get_batch<Search>(p.packets, p.index, at<u32>(p.arrived) + s.work.arrived, s);
  }
}
