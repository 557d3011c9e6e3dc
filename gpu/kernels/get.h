// The body of the GET kernels: what one block does for its share of a batch.
//
//   helpers    entries, then the first line of each frame, to shared memory
//   ---------- barrier
//   main       plain requests: hash, look up        helpers   verify checksums; list what is not plain
//   ---------- barrier
//   all        what is not plain: read it, look its keys up       helpers   descriptors go to the host
//   ---------- barrier, if heads are wanted
//   helpers    write reply heads, which go to the host
//
// Warps take turns to be main and helpers (MemcachedGPU): lane i of a main warp and lane i of the
// warp behind it have the same request. A request that is not plain holds up no plain one: they
// come afterwards, all that the block has, with a lane for each, and then one for each of their keys.
// Descriptors and heads are made in shared memory and leave it in whole lines, neighbours' words by
// neighbouring lanes.
#pragma once
#include "checksum.h"
#include "found.h"
#include "head.h"
#include "parse.h"
#include "plain.h"

enum : u32 { GET_THREADS = 256, GET_REQUESTS = GET_THREADS / 2, DESC_WORDS = 17 };
// A multiprocessor of sm_90 has shared memory for as many; beyond 64 registers a thread it runs fewer.
enum : u32 { GET_BLOCKS_AT_ONCE = 4 };
// How a descriptor leaves: as a plain request's; when it has been read; or, for any other number, as
// BAD for this reason.
enum : u32 { LEAVES_PLAIN = 0, LEAVES_LATER = 0x100 };

struct GetShared {
  Entry entries[GET_REQUESTS];
  u32 frames[GET_REQUESTS][ROW_WORDS];
  // Of a plain request, the words before the second key.
  u32 descs[GET_REQUESTS][DESC_WORDS];
  u32 heads[GET_REQUESTS][HEAD_WORDS];
  // Of a hit, if heads are wanted.
  u32 flags[GET_REQUESTS], value_lens[GET_REQUESTS];
  // LEAVES_PLAIN, LEAVES_LATER, or what is wrong.
  u32 leaves[GET_REQUESTS];
  // Requests that are not plain, and their keys: request * 8 + key.
  u16 others[GET_REQUESTS], asked[GET_REQUESTS * u32(KEYS_MAX)];
  u32 n_others, n_asked;
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

// Descriptors of `n` requests but for those that are still to be read. By the helpers; `thread`
// counts these alone.
__device__ __forceinline__ void store_descs(const GetShared &s, u32 n, u32 thread, ReqDesc *to) {
  u32 part = thread % 4, request = thread / 4;
  const u32 *words = s.descs[request] + 4 * part, *leaves = s.leaves + request;
  u8 *out = reinterpret_cast<u8 *>(to) + 16 * thread;
#pragma unroll 1
  for (; request < n; request += GET_REQUESTS / 4) {
    uint4 quarter = make_uint4(0, 0, 0, 0);
    if (*leaves == LEAVES_PLAIN) {
      if (part < 2) quarter = make_uint4(words[0], words[1], 0, 0);
    } else if (part == 0) {
      quarter.x = VERDICT_BAD | *leaves << 8;
    }
    if (*leaves != LEAVES_LATER) store16(out, quarter);
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
__device__ __forceinline__ void get_plain(const Index &index, u32 now, u32 mine, bool with_heads,
                                          GetShared &s) {
  PlainKey key;
  Wide hash;
  if (!find_plain(s.entries[mine], s.frames[mine], key)) return;
  if (!siphash(index.key, key, hash)) return;
  Found found = Search::look_up(index, now, key, hash);
  u32 *words = s.descs[mine];
  u32 off = key.off | key.len << 16;
  words[0] = VERDICT_READY | VERB_GET << 16 | 1 << 24;
  words[1] = off + (6 << 16) - 4;
  words[4] = off | found.hint << 24;
  words[5] = found.location;
  if (Search::KNOWS_VALUES && with_heads) keep_values(s, mine, found);
}

// What helpers do beside the main warps. All lanes of a warp take part, for votes.
__device__ __forceinline__ void help(const PacketRegion &packets, u32 mine, u32 n, GetShared &s) {
  const Entry &entry = s.entries[mine];
  PlainKey key;
  bool plain = mine >= n || (find_plain(entry, s.frames[mine], key) && is_plain_key(key));
  bool good = (entry.flags & ENTRY_UDP_GOOD) && (entry.flags & (ENTRY_IP_GOOD | ENTRY_IPV6));
  u32 leaves = plain ? LEAVES_PLAIN : LEAVES_LATER;
  if (!__all_sync(~0u, good)) {
    u32 reason = wrong_checksum(open_frame(packets, entry, s.frames[mine]), entry);
    if (reason != REASON_NONE) leaves = reason;
  }
  if (leaves == LEAVES_LATER) s.others[atomicAdd(&s.n_others, 1u)] = u16(mine);
  s.leaves[mine] = leaves;
}

// Requests that are not plain, a thread each; then their keys, a thread each; then their descriptors,
// four threads each. The whole block takes part.
template <class Search>
__device__ inline void get_others(const PacketRegion &packets, const Index &index, u32 now,
                                  bool with_heads, ReqDesc *descs, GetShared &s) {
  u32 n = s.n_others;
  for (u32 i = threadIdx.x; i < n; i += GET_THREADS) {
    u32 request = s.others[i];
    const Entry &entry = s.entries[request];
    DescRow desc = {s.descs[request]};
    Frame frame = open_frame(packets, entry, s.frames[request]);
    if (frame.lead + frame.len <= STAGED_BYTES)
      parse(StagedFrame{frame.staged, frame.lead, frame.len}, entry.l4, desc);
    else
      parse(frame, entry.l4, desc);
    u32 n_keys = desc.n_keys();
    if (n_keys == 0) continue;
    u32 first = atomicAdd(&s.n_asked, n_keys);
    for (u32 nth = 0; nth < n_keys; nth++) s.asked[first + nth] = u16(request * 8 + nth);
  }
  __syncthreads();
  u32 n_asked = s.n_asked;
  for (u32 i = threadIdx.x; i < n_asked; i += GET_THREADS) {
    u32 request = s.asked[i] / 8, nth = s.asked[i] % 8;
    DescRow desc = {s.descs[request]};
    Frame frame = open_frame(packets, s.entries[request], s.frames[request]);
    FrameKey key = {frame, desc.key_off(nth), desc.key_len(nth)};
    Wide hash;
    siphash(index.key, key, hash);
    Found found = Search::look_up(index, now, key, hash);
    desc.hint(nth, found.hint, found.location);
    if (Search::KNOWS_VALUES && with_heads) keep_values(s, request, found);
  }
  __syncthreads();
  for (u32 i = threadIdx.x; i < 4 * n; i += GET_THREADS) {
    u32 request = s.others[i / 4], part = i % 4;
    const u32 *words = s.descs[request] + 4 * part;
    store16(reinterpret_cast<u8 *>(descs + request) + 16 * part,
            make_uint4(words[0], words[1], words[2], words[3]));
  }
}

// At most GET_REQUESTS requests.
template <class Search>
__device__ __forceinline__ void get_requests(const PacketRegion &packets, const Index &index,
                                             u32 now, const Entry *entries, u32 n, ReqDesc *descs,
                                             ReplyHead *heads, GetShared &s) {
  bool helper = threadIdx.x / 32 % 2;
  u32 mine = kept(threadIdx.x / 64 * 32 + threadIdx.x % 32);

  if (helper) {
    if (mine == 0) s.n_others = s.n_asked = 0;
    stage_requests(packets, entries, n, s);
  }
  __syncthreads();
  if (helper)
    help(packets, mine, n, s);
  else
    get_plain<Search>(index, now, mine, heads != nullptr, s);
  __syncthreads();

  if (helper) store_descs(s, n, mine, descs);
  if (s.n_others) get_others<Search>(packets, index, now, heads != nullptr, descs, s);
  if (!heads) return;
  __syncthreads();
  if (helper && mine < n) {
    s.heads[mine][0] = 0;
    DescRow desc = {s.descs[mine]};
    bool wanted = Search::KNOWS_VALUES &&
                  (s.leaves[mine] == LEAVES_PLAIN || s.leaves[mine] == LEAVES_LATER) &&
                  desc.verdict() == VERDICT_READY && desc.verb() == VERB_GET &&
                  desc.n_keys() == 1 && desc.hint(0) == HINT_HIT;
    if (wanted) {
      Frame frame = open_frame(packets, s.entries[mine], s.frames[mine]);
      make_head(frame, s.entries[mine], desc, s.flags[mine], s.value_lens[mine], s.heads[mine]);
    }
  }
  __syncthreads();
  if (helper) store_heads(s, n, mine, heads);
}

// The part of a batch that `s.work` names, and the word to the host if the others are done. `arrived`
// counts them.
template <class Search>
__device__ inline void get_batch(const PacketRegion &packets, const Index &index, u32 *arrived,
                                 GetShared &s) {
  // What is needed again is read again: registers are short.
  for (u32 first = s.work.part * GET_REQUESTS; first < s.work.order.n;) {
    const Order &order = s.work.order;
    u32 count = order.n - first < GET_REQUESTS ? order.n - first : u32(GET_REQUESTS);
    get_requests<Search>(packets, index, order.now, at<const Entry>(order.entries) + first, count,
                         at<ReqDesc>(order.descs) + first,
                         order.heads ? at<ReplyHead>(order.heads) + first : nullptr, s);
    first += s.work.parts * GET_REQUESTS;
    // What the next requests overwrite has been read.
    if (first < s.work.order.n) __syncthreads();
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
    s.work = {at<const Place>(p.place)->order, p.place, 0, u16(blockIdx.x), u16(gridDim.x), 0, {}};
  }
  __syncthreads();
  get_batch<Search>(p.packets, p.index, at<u32>(p.arrived), s);
}
