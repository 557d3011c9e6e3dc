// The body of the GET kernels: what one block does for its share of a batch.
//
//   all        entries, then the first line of each frame, to shared memory
//   ---------- barrier
//   main       plain requests: hash, look up        helpers   verify checksums; read all other
//                                                             requests, look their keys up
//   ---------- barrier
//   main       descriptors go to the host           helpers   write reply heads, if wanted
//   ---------- barrier, if heads are wanted
//   all        heads go to the host
//
// Warps take turns to be main and helpers (MemcachedGPU): lane i of a main warp and lane i of the
// warp behind it have the same request. So a request that is not plain holds up no plain one.
// Descriptors and heads are made in shared memory and leave it in whole lines, neighbours' words by
// neighbouring lanes.
#pragma once
#include "checksum.h"
#include "found.h"
#include "head.h"
#include "parse.h"
#include "plain.h"

enum : u32 { GET_THREADS = 256, GET_REQUESTS = GET_THREADS / 2, DESC_WORDS = 17 };
// How a descriptor leaves: as a plain request's, as all its words say, or, for any other number, as
// BAD for this reason.
enum : u32 { LEAVES_PLAIN = 0, LEAVES_WHOLE = 0x100 };

struct GetShared {
  Entry entries[GET_REQUESTS];
  u32 frames[GET_REQUESTS][ROW_WORDS];
  // Of a plain request, the words before the second key.
  u32 descs[GET_REQUESTS][DESC_WORDS];
  u32 heads[GET_REQUESTS][HEAD_WORDS];
  // Of a hit, if heads are wanted.
  u32 flags[GET_REQUESTS], value_lens[GET_REQUESTS];
  // LEAVES_PLAIN, LEAVES_WHOLE, or what is wrong.
  u32 leaves[GET_REQUESTS];
  // Keys that each helper warp looks up: request * 8 + key; and how many.
  u16 asked[GET_THREADS / 64][32 * KEYS_MAX];
  u32 n_asked[GET_THREADS / 64];
  // serve.h's: what one lane read for all.
  u32 n, now, rung, go;
};
static_assert(sizeof(GetShared) == GET_SHARED_BYTES, "the launch gives as much");
static_assert(sizeof(Entry) == 12 && sizeof(ReqDesc) == 64, "copied by words");

// Entries of `n` requests, word by word.
__device__ __forceinline__ void load_entries(const Entry *from, u32 n, Entry *to) {
  const u32 *words = reinterpret_cast<const u32 *>(from);
  u32 *into = reinterpret_cast<u32 *>(to);
  constexpr u32 PER_ENTRY = sizeof(Entry) / 4, TURNS = (GET_REQUESTS * PER_ENTRY + GET_THREADS - 1) / GET_THREADS;
#pragma unroll
  for (u32 turn = 0; turn < TURNS; turn++) {
    u32 i = threadIdx.x + turn * GET_THREADS;
    if (i < n * PER_ENTRY) into[i] = words[i];
  }
}

// Descriptors of `n` requests, by the main warps; `thread` counts these alone.
__device__ __forceinline__ void store_descs(const GetShared &s, u32 n, u32 thread, ReqDesc *to) {
  u32 part = thread % 4;
  for (u32 i = thread; i < n * 4; i += GET_REQUESTS) {
    u32 leaves = s.leaves[i / 4];
    const u32 *words = s.descs[i / 4] + 4 * part;
    uint4 out = make_uint4(0, 0, 0, 0);
    if (leaves == LEAVES_WHOLE) {
      out = make_uint4(words[0], words[1], words[2], words[3]);
    } else if (leaves != LEAVES_PLAIN) {
      out.x = part == 0 ? VERDICT_BAD | leaves << 8 : 0;
    } else if (part < 2) {
      out.x = words[0];
      out.y = words[1];
    }
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

// What was found of a key, into its descriptor and for its head.
__device__ __forceinline__ void keep_values(GetShared &s, u32 request, const Found &found) {
  s.flags[request] = found.flags;
  s.value_lens[request] = found.value_len;
}

// A request in its plain form: most end here.
template <class Search>
__device__ __forceinline__ void get_plain(const PacketRegion &packets, const Index &index, u32 now,
                                          u32 mine, bool with_heads, GetShared &s) {
  PlainKey key;
  Wide hash;
  if (!find_plain(packets, &s.entries[mine], s.frames[mine], key)) return;
  if (!siphash(index.key, key, hash)) return;
  Found found = Search::look_up(index, now, key, hash);
  u32 *words = s.descs[mine];
  words[0] = VERDICT_READY | VERB_GET << 16 | 1 << 24;
  words[1] = (key.off - 4) | (key.len + 6) << 16;
  words[4] = key.off | key.len << 16 | found.hint << 24;
  words[5] = found.location;
  if (with_heads) keep_values(s, mine, found);
}

// Looks the keys up that the warp's descriptors list, and that are not plain: each lane takes one
// key after the other, whosever it is.
template <class Search>
__device__ inline void look_up_others(const PacketRegion &packets, const Index &index, u32 now,
                                      u32 mine, u32 n_keys, bool with_heads, GetShared &s) {
  u32 warp = threadIdx.x / 64, lane = threadIdx.x % 32;
  if (lane == 0) s.n_asked[warp] = 0;
  __syncwarp();
  if (n_keys) {
    u32 first = atomicAdd(&s.n_asked[warp], n_keys);
    for (u32 i = 0; i < n_keys; i++) s.asked[warp][first + i] = u16(mine * 8 + i);
  }
  __syncwarp();
  for (u32 i = lane; i < s.n_asked[warp]; i += 32) {
    u32 request = s.asked[warp][i] / 8, nth = s.asked[warp][i] % 8;
    Frame frame = open_frame(packets, s.entries[request], s.frames[request]);
    DescRow desc = {s.descs[request]};
    FrameKey key = {frame, desc.key_off(nth), desc.key_len(nth)};
    Wide hash;
    siphash(index.key, key, hash);
    Found found = Search::look_up(index, now, key, hash);
    desc.hint(nth, found.hint, found.location);
    if (with_heads) keep_values(s, request, found);
  }
  __syncwarp();
}

// What helpers do beside the main warps. All lanes of a warp take part.
template <class Search>
__device__ inline void help(const PacketRegion &packets, const Index &index, u32 now, u32 mine,
                            u32 n, bool with_heads, GetShared &s) {
  // Lanes without a request have an empty frame; votes need the whole warp.
  Entry entry = {~0u, 0, 0, 0, 0, ENTRY_IP_GOOD | ENTRY_UDP_GOOD, 0};
  if (mine < n) entry = s.entries[mine];
  PlainKey key;
  bool plain = mine >= n || (find_plain(packets, &s.entries[mine], s.frames[mine], key) &&
                             is_plain_key(key));
  bool good = (entry.flags & ENTRY_UDP_GOOD) && (entry.flags & (ENTRY_IP_GOOD | ENTRY_IPV6));
  u32 leaves = plain ? LEAVES_PLAIN : LEAVES_WHOLE;
  if (!__all_sync(~0u, plain & good)) {
    Frame frame = open_frame(packets, entry, s.frames[mine]);
    if (!__all_sync(~0u, good)) {
      u32 reason = wrong_checksum(frame, entry);
      if (reason != REASON_NONE) leaves = reason;
    }
    u32 n_keys = 0;
    if (leaves == LEAVES_WHOLE) {
      DescRow desc = {s.descs[mine]};
      parse(frame, entry.l4, desc);
      n_keys = desc.n_keys();
    }
    if (__any_sync(~0u, n_keys != 0))
      look_up_others<Search>(packets, index, now, mine, n_keys, with_heads, s);
  }
  s.leaves[mine] = leaves;
}

// At most GET_REQUESTS requests.
template <class Search>
__device__ __forceinline__ void get_requests(const PacketRegion &packets, const Index &index,
                                             u32 now, const Entry *entries, u32 n, ReqDesc *descs,
                                             ReplyHead *heads, GetShared &s) {
  bool helper = threadIdx.x / 32 % 2;
  u32 mine = threadIdx.x / 64 * 32 + threadIdx.x % 32;

  load_entries(entries, n, s.entries);
  __syncthreads();
  stage<GET_THREADS, GET_REQUESTS>(packets, s.entries, n, s.frames);
  __syncthreads();
  if (helper)
    help<Search>(packets, index, now, mine, n, heads != nullptr, s);
  else if (mine < n)
    get_plain<Search>(packets, index, now, mine, heads != nullptr, s);
  __syncthreads();

  if (!helper) {
    store_descs(s, n, mine, descs);
  } else if (heads && mine < n) {
    s.heads[mine][0] = 0;
    DescRow desc = {s.descs[mine]};
    bool wanted = Search::KNOWS_VALUES &&
                  (s.leaves[mine] == LEAVES_PLAIN || s.leaves[mine] == LEAVES_WHOLE) &&
                  desc.verdict() == VERDICT_READY && desc.verb() == VERB_GET &&
                  desc.n_keys() == 1 && desc.hint(0) == HINT_HIT;
    if (wanted) {
      Frame frame = open_frame(packets, s.entries[mine], s.frames[mine]);
      make_head(frame, s.entries[mine], desc, s.flags[mine], s.value_lens[mine], s.heads[mine]);
    }
  }
  if (!heads) return;
  __syncthreads();
  store_heads(s, n, heads);
}

// Share `part` of `parts` of a batch of `n`, and the word to the host if the others are done.
template <class Search>
__device__ inline void get_batch(const PacketRegion &packets, const Index &index, Place *place,
                                 u32 n, u32 now, u32 rung, u32 part, u32 parts, u32 *arrived,
                                 GetShared &s) {
  const Entry *entries = at<const Entry>(place->entries);
  ReqDesc *descs = at<ReqDesc>(place->descs);
  ReplyHead *heads = at<ReplyHead>(place->heads);
  for (u32 first = part * GET_REQUESTS; first < n; first += parts * GET_REQUESTS) {
    u32 count = n - first < GET_REQUESTS ? n - first : u32(GET_REQUESTS);
    get_requests<Search>(packets, index, now, entries + first, count, descs + first,
                         heads ? heads + first : nullptr, s);
    // What the next requests overwrite has been read.
    __syncthreads();
  }
  // Everybody's writes, then the count; the last one's count, then the host's flag.
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0 || atomicAdd(arrived, 1u) != parts - 1) return;
  *arrived = 0;
  __threadfence_system();
  store_release(&place->done, rung);
}
