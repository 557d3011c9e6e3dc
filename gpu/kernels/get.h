// The body of the GET kernels: what one block does for its share of a batch.
//
//   helpers    entries, then the first line of each frame, to shared memory
//   ---------- barrier
//   main       plain requests: hash, look up        helpers   verify checksums; what is not plain:
//                                                             read it, look its keys up
//   ---------- barrier
//   helpers    descriptors go to the host
//   ---------- barrier, if heads are wanted
//   helpers    write reply heads, which go to the host
//
// Warps take turns to be main and helpers (MemcachedGPU): lane i of a main warp and lane i of the
// warp behind it have the same request. A request that is not plain costs the main warps nothing:
// helpers take it meanwhile, with a lane for each request, and then one for each of its keys.
// Descriptors and heads are made in shared memory and leave it in whole lines, neighbours' words by
// neighbouring lanes.
#pragma once
#include "checksum.h"
#include "found.h"
#include "head.h"
#include "parse.h"
#include "plain.h"

enum : u32 { GET_THREADS = 256, GET_REQUESTS = GET_THREADS / 2, HELPERS = GET_REQUESTS / 32 };
enum : u32 { DESC_WORDS = 17 };
// A multiprocessor of sm_90 has shared memory for as many; beyond 64 registers a thread it runs fewer.
enum : u32 { GET_BLOCKS_AT_ONCE = 4 };
// How a descriptor leaves: as a plain request's; as it was read; or, for any other number, as BAD for
// this reason.
enum : u32 { LEAVES_PLAIN = 0, LEAVES_READ = 0x100 };

struct GetShared {
  Entry entries[GET_REQUESTS];
  u32 frames[GET_REQUESTS][ROW_WORDS];
  // Of a plain request, the words before the second key.
  u32 descs[GET_REQUESTS][DESC_WORDS];
  u32 heads[GET_REQUESTS][HEAD_WORDS];
  // Of a hit, if heads are wanted.
  u32 flags[GET_REQUESTS], value_lens[GET_REQUESTS];
  // LEAVES_PLAIN, LEAVES_READ, or what is wrong.
  u32 leaves[GET_REQUESTS];
  // Keys of the requests that are not plain, by helper warp: request * 8 + key.
  u16 asked[HELPERS][32 * u32(KEYS_MAX)];
  u32 n_asked[HELPERS];
  // What one thread read for all.
  Work work;
};
static_assert(sizeof(GetShared) == GET_SHARED_BYTES, "the launch gives as much");
static_assert(sizeof(Entry) == 12 && sizeof(ReqDesc) == 64, "copied by words");

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
  const u32 *words = s.descs[request] + 4 * part, *leaves = s.leaves + request;
  u8 *out = reinterpret_cast<u8 *>(to) + 16 * thread;
#pragma unroll 1
  for (; request < n; request += GET_REQUESTS / 4) {
    uint4 quarter = make_uint4(0, 0, 0, 0);
    if (*leaves == LEAVES_PLAIN) {
      if (part < 2) quarter = make_uint4(words[0], words[1], 0, 0);
    } else if (*leaves == LEAVES_READ) {
      quarter = make_uint4(words[0], words[1], words[2], words[3]);
    } else if (part == 0) {
      quarter.x = VERDICT_BAD | *leaves << 8;
    }
    store16(out, quarter);
    words += GET_REQUESTS / 4 * DESC_WORDS;
    leaves += GET_REQUESTS / 4;
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

// For the head of the reply.
__device__ __forceinline__ void keep_values(GetShared &s, u32 request, const Found &found) {
  if (!found.way) return;
  s.flags[request] = load_relaxed(&found.way->flags);
  s.value_lens[request] = load_relaxed(&found.way->value_len);
}

// A request in its plain form: most end here.
template <class Search>
__device__ __forceinline__ void get_plain(const Index &index, u32 mine, GetShared &s) {
  PlainKey key;
  Wide hash;
  if (!find_plain(s.entries[mine], s.frames[mine], key)) return;
  if (!siphash(index.key, key, hash)) return;
  Found found = Search::look_up(index, s.work.order.now, key, hash);
  u32 *words = s.descs[mine];
  u32 off = key.off | key.len << 16;
  words[0] = VERDICT_READY | VERB_GET << 16 | 1 << 24;
  words[1] = off + (6 << 16) - 4;
  words[4] = off | found.hint << 24;
  words[5] = found.location;
  if (Search::KNOWS_VALUES && s.work.order.heads) keep_values(s, mine, found);
}

// A helper warp's requests that are not plain: a lane for each that has one, then one for each of
// their keys. All lanes of the warp take part.
template <class Search>
__device__ __forceinline__ void get_others(const PacketRegion &packets, const Index &index, u32 mine,
                                           bool is_other, GetShared &s) {
  u32 lane = mine % 32, warp = mine / 32;
  if (lane == 0) s.n_asked[warp] = 0;
  __syncwarp();
  if (is_other) {
    DescRow desc = {s.descs[mine]};
    Frame frame = open_frame(packets, s.entries[mine], s.frames[mine]);
    if (frame.lead + frame.len <= STAGED_BYTES)
      parse(StagedFrame{frame.staged, frame.lead, frame.len}, s.entries[mine].l4, desc);
    else
      parse(frame, s.entries[mine].l4, desc);
    u32 n_keys = desc.n_keys();
    if (n_keys) {
      u16 *asked = s.asked[warp] + atomicAdd(&s.n_asked[warp], n_keys);
#pragma unroll 1
      for (u32 nth = 0; nth < n_keys; nth++) asked[nth] = u16(mine * 8 + nth);
    }
  }
  __syncwarp();
  u32 n_asked = s.n_asked[warp];
#pragma unroll 1
  for (u32 i = lane; i < n_asked; i += 32) {
    u32 request = s.asked[warp][i] / 8, nth = s.asked[warp][i] % 8;
    DescRow desc = {s.descs[request]};
    Frame frame = open_frame(packets, s.entries[request], s.frames[request]);
    u32 off = desc.key_off(nth), len = desc.key_len(nth), position = frame.lead + off;
    Found found;
    Wide hash;
    if (position + len <= STAGED_BYTES) {
      StagedKey<false> key = {frame.staged + position / 4, position * 8, off, len};
      siphash(index.key, key, hash);
      found = Search::look_up(index, s.work.order.now, key, hash);
    } else {
      FrameKey key = {frame, off, len};
      siphash(index.key, key, hash);
      found = Search::look_up(index, s.work.order.now, key, hash);
    }
    desc.hint(nth, found.hint, found.location);
    if (Search::KNOWS_VALUES && s.work.order.heads) keep_values(s, request, found);
  }
  __syncwarp();
}

// What helpers do beside the main warps. All lanes of a warp take part, for votes.
template <class Search>
__device__ __forceinline__ void help(const PacketRegion &packets, const Index &index, u32 mine, u32 n,
                                     GetShared &s) {
  const Entry &entry = s.entries[mine];
  PlainKey key;
  bool plain = mine >= n || (find_plain(entry, s.frames[mine], key) && is_plain_key(key));
  bool good = (entry.flags & ENTRY_UDP_GOOD) && (entry.flags & (ENTRY_IP_GOOD | ENTRY_IPV6));
  u32 leaves = plain ? LEAVES_PLAIN : LEAVES_READ;
  if (!__all_sync(~0u, good)) {
    u32 reason = wrong_checksum(open_frame(packets, entry, s.frames[mine]), entry);
    if (reason != REASON_NONE) leaves = reason;
  }
  s.leaves[mine] = leaves;
  bool is_other = leaves == LEAVES_READ;
  if (__any_sync(~0u, is_other))
    get_others<Search>(packets, index, mine, is_other, s);
}

// How many of the batch's requests from `first` on a block takes at a time.
__device__ __forceinline__ u32 count_from(const GetShared &s, u32 first) {
  u32 left = s.work.order.n - first;
  return left < GET_REQUESTS ? left : u32(GET_REQUESTS);
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
    help<Search>(packets, index, mine, count_from(s, first), s);
  else
    get_plain<Search>(index, mine, s);
  __syncthreads();

  if (helper) store_descs(s, count_from(s, first), mine, at<ReqDesc>(order.descs) + first);
  if (!order.heads) return;
  u32 n = count_from(s, first);
  if (helper && mine < n) {
    s.heads[mine][0] = 0;
    DescRow desc = {s.descs[mine]};
    bool wanted = Search::KNOWS_VALUES &&
                  (s.leaves[mine] == LEAVES_PLAIN || s.leaves[mine] == LEAVES_READ) &&
                  desc.verdict() == VERDICT_READY && desc.verb() == VERB_GET &&
                  desc.n_keys() == 1 && desc.hint(0) == HINT_HIT;
    if (wanted) {
      Frame frame = open_frame(packets, s.entries[mine], s.frames[mine]);
      make_head(frame, s.entries[mine], desc, s.flags[mine], s.value_lens[mine], s.heads[mine]);
    }
  }
  __syncthreads();
  if (helper) store_heads(s, n, mine, at<ReplyHead>(order.heads) + first);
}

// The part of a batch that `s.work` names, and the word to the host if the others are done. `arrived`
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
  store_release(&at<Place>(s.work.place)->done, s.work.order.rung);
}

// A batch by launch: blocks of any number share it.
template <class Search> __device__ inline void get(const GetParams &p, GetShared &s) {
  if (threadIdx.x == 0) {
    s.work.order = at<const Place>(p.place)->order;
    s.work.place = p.place;
    s.work.part = u16(blockIdx.x);
    s.work.parts = u16(gridDim.x);
  }
  __syncthreads();
  get_batch<Search>(p.packets, p.index, at<u32>(p.arrived), s);
}
