// The body of the GET kernels: what one block does for its share of a batch.
//
//   helpers    entries, then the first line of each frame, to shared memory
//   ---------- barrier
//   main       plain requests: hash, look up        helpers   verify checksums; what is not plain:
//                                                             read it, look its keys up
//   ---------- barrier
//   helpers    descriptors go to the host
//   ---------- barrier, if heads are wanted
//   helpers    write reply headers, which go to the host
//
// With rows helpers write whole replies but for the text, and all warps bring them to the host (whole.h).
//
// Warps take turns to be main and helpers (MemcachedGPU): lane i of a main warp and lane i of the
// warp behind it have the same request. A request that is not plain costs the main warps nothing:
// helpers take it meanwhile, with a lane for each request, and then one for each of its keys.
// Descriptors and heads are made in shared memory and leave it in whole lines, neighbours' words by
// neighbouring lanes.
#pragma once
#include "checksum.h"
#include "others.h"
#include "plain.h"
#include "whole.h"

// A multiprocessor of sm_90 has shared memory for as many; beyond 64 registers a thread it runs fewer.
enum : u32 { GET_BLOCKS_AT_ONCE = 4 };

// Entries of a helper warp's requests, word by word, then the beginning of their frames. A frame that
// is not within its slot is empty, and so is that of a lane without a request.
__device__ __forceinline__ void stage_requests(const PacketRegion &packets, const Entry *from, u32 n,
                                               GetShared &s) {
  u32 lane = threadIdx.x % 32, first = threadIdx.x / 64 * 32;
  u32 mine = n <= first ? 0 : n - first < 32 ? n - first : 32;
  constexpr u32 WORDS = sizeof(Entry) / 4;
  const u32 *words = reinterpret_cast<const u32 *>(from + first) + lane;
  Entry *entries = s.entries + first;
  u32 *into = reinterpret_cast<u32 *>(entries) + lane;
#pragma unroll
  for (u32 i = 0; i < WORDS; i++)
    if (lane + 32 * i < WORDS * mine) into[32 * i] = words[32 * i];
  __syncwarp();
  Entry &its = entries[lane];
  if (lane >= mine) its = {0, 0, 0, 0, 0, ENTRY_IP_GOOD | ENTRY_UDP_GOOD, 0};
  if (its.slot >= packets.slots || u32(its.off) + its.len > packets.slot_bytes)
    its.slot = its.off = its.len = 0;
  __syncwarp();
  // Sixteen frames at a time: as many as there are registers for what is on its way.
#pragma unroll 1
  for (u32 half = 0; half < mine; half += 16)
    stage<16>(packets, entries + half, s.frames + first + half);
}

// Descriptors of `n` requests. By the helpers; `thread` counts these alone.
__device__ __forceinline__ void store_descs(const GetShared &s, u32 n, u32 thread, ReqDesc *to) {
  u32 part = thread % 4, request = thread / 4;
  const u32 *words = s.descs[request] + 4 * part;
  const u8 *wrong = &s.entries[request].mark;
  u8 *out = reinterpret_cast<u8 *>(to) + 16 * thread;
#pragma unroll 1
  for (; request < n; request += GET_REQUESTS / 4) {
    uint4 quarter = load16(words);
    if (*wrong != REASON_NONE)
      quarter = make_uint4(part == 0 ? VERDICT_BAD | u32(*wrong) << 8 : 0, 0, 0, 0);
    store16(out, quarter);
    words += GET_REQUESTS / 4 * DESC_WORDS;
    wrong += GET_REQUESTS / 4 * sizeof(Entry);
    out += 16 * GET_REQUESTS;
  }
}

// Heads of `n` requests, as far as they are used: whole sectors.
__device__ inline void store_heads(const GetShared &s, u32 n, u32 thread, ReplyHead *to) {
#pragma unroll 1
  for (u32 i = thread; i < n * 8; i += GET_REQUESTS) {
    u32 part = i % 8;
    const u32 *row = s.heads[i / 8];
    u32 used = 4 * HEAD_FIRST_WORD + (row[0] & 0xff);
    if (16 * part >= (used + 31) / 32 * 32) continue;
    const u32 *words = row + 4 * part;
    store16(reinterpret_cast<u8 *>(to) + 16 * i,
            make_uint4(words[0], words[1], words[2], words[3]));
  }
}

// How many of the batch's requests from `first` on a block takes at a time.
__device__ __forceinline__ u32 count_from(const GetShared &s, u32 first) {
  u32 left = s.work.order.n - first;
  return left < GET_REQUESTS ? left : u32(GET_REQUESTS);
}

// A request in its plain form: most end here.
template <class Search>
__device__ __forceinline__ void get_plain(const Index &index, u32 mine, GetShared &s) {
  PlainKey key;
  Wide hash;
  if (!find_plain(s, mine, key)) return;
  if (!siphash(index.key, key, hash)) return;
  Found found = Search::look_up(index, s.work.order.now, key, hash, kind_of(key.len, VERB_GET));
  u32 *words = s.descs[mine];
  u32 off = key.off | key.len << 16;
  store16(words, make_uint4(VERDICT_READY | VERB_GET << 16 | 1 << 24, off + (6 << 16) - 4, 0, 0));
  store16(words + 4, make_uint4(off | found.hint << 24, found.location, 0, 0));
  if (Search::KNOWS_VALUES && s.work.order.prebuilt) keep_values(s, mine, found);
}

// What helpers do beside the main warps. All lanes of a warp take part, for votes.
template <class Search>
__device__ __forceinline__ void help(const PacketRegion &packets, const Index &index, u32 mine, u32 n,
                                     GetShared &s) {
  const Entry &entry = s.entries[mine];
  u32 *words = s.descs[mine];
  // No plain request has a third key.
  store16(words + 8, make_uint4(0, 0, 0, 0));
  store16(words + 12, make_uint4(0, 0, 0, 0));
  Reader reader = read_staged(s, mine);
  // UDP_GOOD, and one of the others.
  bool good = (entry.flags & (ENTRY_UDP_GOOD | ENTRY_IP_GOOD | ENTRY_IPV6)) > ENTRY_UDP_GOOD;
  u32 wrong = REASON_NONE;
  bool is_other = int(mine < n) & int(!reader.is_plain());
  if (!__all_sync(~0u, good)) {
    wrong = wrong_checksum(open_frame(packets, entry, s.frames[mine]), entry);
    is_other = int(is_other) & int(wrong == REASON_NONE);
  }
  s.entries[mine].mark = u8(wrong);
  if (__any_sync(~0u, is_other)) get_others<Search>(packets, index, mine, is_other, reader, s);
}

// Requests of the batch in `s.work` from `first` on. What the order says is read where it is used:
// registers are short.
template <class Search>
__device__ __forceinline__ void get_requests(const PacketRegion &packets, const Index &index,
                                             u32 first, GetShared &s) {
  const Order &order = s.work.order;
  bool helper = threadIdx.x / 32 % 2;
  u32 mine = kept(threadIdx.x / 64 * 32 + threadIdx.x % 32);

  if (helper)
    stage_requests(packets, at<const Entry>(order.entries) + first, count_from(s, first), s);
  __syncthreads();
  if (helper)
    help<Search>(packets, index, mine, order.n - first, s);
  else
    get_plain<Search>(index, mine, s);
  __syncthreads();

  if (helper) store_descs(s, count_from(s, first), mine, at<ReqDesc>(order.descs) + first);
  if (!order.prebuilt) return;
  if constexpr (Search::HAS_ROWS) {
    reply_by_rows(packets, index.rows, first, mine, count_from(s, first), s);
    return;
  }
  u32 n = count_from(s, first);
  if (helper && mine < n) {
    s.heads[mine][0] = 0;
    DescRow desc = {s.descs[mine]};
    bool wanted = Search::KNOWS_VALUES && s.entries[mine].mark == REASON_NONE &&
                  desc.verdict() == VERDICT_READY && desc.verb() == VERB_GET &&
                  desc.n_keys() == 1 && desc.hint(0) == HINT_HIT;
    if (wanted) {
      Frame frame = open_frame(packets, s.entries[mine], s.frames[mine]);
      make_head(frame, s.entries[mine], desc, s.hits.flags[mine], s.hits.value_lens[mine], s.heads[mine]);
    }
  }
  __syncthreads();
  if (helper) store_heads(s, n, mine, at<ReplyHead>(order.prebuilt) + first);
}

// The part of a batch that `s.work` names, and the completion number if the others are done. `arrived`
// counts them.
template <class Search>
__device__ inline void get_batch(const PacketRegion &packets, const Index &index, u32 *arrived,
                                 GetShared &s) {
  u32 first = s.work.part * GET_REQUESTS;
  while (first < s.work.order.n) {
    get_requests<Search>(packets, index, first, s);
    first += s.work.parts * GET_REQUESTS;
    if (first >= s.work.order.n) break;
    // What the next requests overwrite has been read.
    __syncthreads();
  }
  // The block's writes come before this thread's word, and `s` has been read.
  __syncthreads();
  if (threadIdx.x != 0) return;
  // Then its count, and the last one's word.
  u32 parts = s.work.parts;
  if (parts > 1) {
    __threadfence_system();
    if (atomicAdd(arrived, 1u) != parts - 1) return;
    *arrived = 0;
    __threadfence();
  }
  store_release(&at<RingSlot>(s.work.ring_slot)->done, s.work.order.number);
}

// A batch by launch: blocks of any number share it.
template <class Search> __device__ inline void get(const GetParams &p, GetShared &s) {
  if (threadIdx.x == 0) {
    s.work.order = at<const RingSlot>(p.ring_slot)->order;
    s.work.ring_slot = p.ring_slot;
    s.work.part = u16(blockIdx.x);
    s.work.parts = u16(gridDim.x);
  }
  __syncthreads();
  get_batch<Search>(p.packets, p.index, at<u32>(p.arrived), s);
}
