// The body of the GET kernels: what one block does for its share of a batch.
//
//   all        entries, then the first line of each frame, to shared memory
//   ---------- barrier
//   main       parse, hash, look up: the descriptor      helpers   verify the checksums
//   ---------- barrier
//   main       descriptors go to the host                helpers   write reply heads
//   ---------- barrier
//   all        heads go to the host
//
// Warps take turns to be main and helpers (MemcachedGPU): lane i of a main warp and lane i of the
// warp behind it have the same request. Descriptors and heads are made in shared memory and
// leave it in whole lines, neighbours' words by neighbouring lanes.
#pragma once
#include "checksum.h"
#include "found.h"
#include "head.h"
#include "parse.h"

enum : u32 { GET_THREADS = 256, GET_REQUESTS = GET_THREADS / 2, DESC_WORDS = 17 };
// A multiprocessor of sm_90 has shared memory for as many; beyond 64 registers a thread it runs fewer.
enum : u32 { GET_BLOCKS_AT_ONCE = 4 };

struct GetShared {
  Entry entries[GET_REQUESTS];
  u32 frames[GET_REQUESTS][ROW_WORDS];
  u32 descs[GET_REQUESTS][DESC_WORDS];
  u32 heads[GET_REQUESTS][HEAD_WORDS];
  // Of a hit.
  u32 flags[GET_REQUESTS], value_lens[GET_REQUESTS];
  // What helpers found wrong.
  u32 reasons[GET_REQUESTS];
  // What one thread read for all.
  Work work;
};
static_assert(sizeof(GetShared) == GET_SHARED_BYTES, "the launch gives as much");
static_assert(sizeof(Entry) % 4 == 0 && sizeof(ReqDesc) == 64, "copied by words");

// Entries of `n` requests, word by word.
__device__ inline void load_entries(const Entry *from, u32 n, Entry *to) {
  const u32 *words = reinterpret_cast<const u32 *>(from);
  u32 *into = reinterpret_cast<u32 *>(to);
  for (u32 i = threadIdx.x; i < n * u32(sizeof(Entry) / 4); i += blockDim.x) into[i] = words[i];
}

// Descriptors of `n` requests, by the main warps; `thread` counts these alone.
__device__ inline void store_descs(const GetShared &s, u32 n, u32 thread, ReqDesc *to) {
  for (u32 i = thread; i < n * 4; i += GET_REQUESTS) {
    u32 request = i / 4, part = i % 4, reason = s.reasons[request];
    const u32 *words = s.descs[request] + 4 * part;
    uint4 out = make_uint4(words[0], words[1], words[2], words[3]);
    if (reason) out = make_uint4(part == 0 ? VERDICT_BAD | reason << 8 : 0, 0, 0, 0);
    store16(reinterpret_cast<u8 *>(to) + 16 * i, out);
  }
}

// Heads of `n` requests, as far as they are used: whole sectors.
__device__ inline void store_heads(const GetShared &s, u32 n, ReplyHead *to) {
  for (u32 i = threadIdx.x; i < n * 8; i += blockDim.x) {
    u32 part = i % 8;
    const u32 *row = s.heads[i / 8];
    u32 used = 4 * HEAD_FIRST_WORD + (row[0] & 0xff);
    if (16 * part >= (used + 31) / 32 * 32) continue;
    const u32 *words = row + 4 * part;
    store16(reinterpret_cast<u8 *>(to) + 16 * i,
            make_uint4(words[0], words[1], words[2], words[3]));
  }
}

// At most GET_REQUESTS requests.
template <class Search>
__device__ inline void get_requests(const PacketRegion &packets, const Index &index, u32 now,
                                    const Entry *entries, u32 n, ReqDesc *descs, ReplyHead *heads,
                                    GetShared &s) {
  u32 warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  bool helper = warp % 2;
  u32 mine = warp / 2 * 32 + lane;

  load_entries(entries, n, s.entries);
  __syncthreads();
  stage(packets, s.entries, n, s.frames);
  __syncthreads();

  // Lanes without a request have an empty frame; votes need the whole warp.
  Entry entry = {~0u, 0, 0, 0, 0, 0, 0};
  if (mine < n) entry = s.entries[mine];
  Frame frame = open_frame(packets, entry, s.frames[mine]);
  DescRow desc = {s.descs[mine]};
  if (helper) {
    s.reasons[mine] = wrong_checksum(frame, entry);
  } else if (mine < n) {
    parse(frame, entry.l4, desc);
    for (u32 i = 0; i < desc.n_keys(); i++) {
      Found found = Search::look_up(index, now, frame, desc.key_off(i), desc.key_len(i));
      desc.hint(i, found.hint, found.location);
      s.flags[mine] = found.flags;
      s.value_lens[mine] = found.value_len;
    }
  }
  __syncthreads();

  if (!helper) {
    store_descs(s, n, mine, descs);
  } else if (heads && mine < n) {
    s.heads[mine][0] = 0;
    bool wanted = Search::KNOWS_VALUES && s.reasons[mine] == REASON_NONE &&
                  desc.verdict() == VERDICT_READY && desc.verb() == VERB_GET &&
                  desc.n_keys() == 1 && desc.hint(0) == HINT_HIT;
    if (wanted)
      make_head(frame, entry, desc, s.flags[mine], s.value_lens[mine], s.heads[mine]);
  }
  if (!heads) return;
  __syncthreads();
  store_heads(s, n, heads);
}

// The part of a batch that `s.work` names, and the word to the host if the others are done. `arrived`
// counts them.
template <class Search>
__device__ inline void get_batch(const PacketRegion &packets, const Index &index, u32 *arrived,
                                 GetShared &s) {
  u32 n = s.work.order.n, now = s.work.order.now, part = s.work.part, parts = s.work.parts;
  const Entry *entries = at<const Entry>(s.work.order.entries);
  ReqDesc *descs = at<ReqDesc>(s.work.order.descs);
  ReplyHead *heads = at<ReplyHead>(s.work.order.heads);
  Place *place = at<Place>(s.work.place);
  u32 rung = s.work.order.rung;
  for (u32 first = part * GET_REQUESTS; first < n;) {
    u32 count = n - first < GET_REQUESTS ? n - first : u32(GET_REQUESTS);
    get_requests<Search>(packets, index, now, entries + first, count, descs + first,
                         heads ? heads + first : nullptr, s);
    first += parts * GET_REQUESTS;
    // What the next requests overwrite has been read.
    if (first < n) __syncthreads();
  }
  // The block's writes come before this thread's word, and `s` has been read.
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (parts > 1) {
    __threadfence_system();
    if (atomicAdd(arrived, 1u) != parts - 1) return;
    *arrived = 0;
    __threadfence();
  }
  store_release(&place->done, rung);
}

// A batch by launch: blocks of any number share it.
template <class Search> __device__ inline void get(const GetParams &p, GetShared &s) {
  if (threadIdx.x == 0) {
    s.work = {at<const Place>(p.place)->order, p.place, 0, u16(blockIdx.x), u16(gridDim.x), 0, {}};
  }
  __syncthreads();
  get_batch<Search>(p.packets, p.index, at<u32>(p.arrived), s);
}
