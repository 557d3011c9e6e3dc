// Requests that are not plain: what a helper warp does with them. A lane reads each (reader.h; parse.h the few
// that are not staged to their end) and puts its keys on the warp's list. Then a lane takes each key, looks at
// what its reader did not, and looks it up.
#pragma once
#include "found.h"
#include "reader.h"
#include "siphash.h"

// `Asked.key`: the positions of the key's first byte and behind its last one; 0 of a key that only the
// descriptor shows. `Asked.desc`: the position of its KeyDesc, and the key's offset. With rows that KeyDesc's second word
// is, of an mg whose key has flags behind it or nothing, where its line ends.
enum : u32 { ASKED_TO = 1u << 16, ASKED_OFF = 1u << 16, ASKED_UNSTAGED = 0 };

// Puts a key on the helper warp's list, whose end is at `list`.
__device__ __forceinline__ void ask(GetShared &s, u32 &list, u32 key, u32 desc) {
  store_shared8(&s, atomicAdd(&list, u32(sizeof(Asked))), key, desc);
}

// The keys of a request, as far as they may be keys; `first_key` is what `Asked.desc` is of a key at
// position 0. Returns the descriptor's first word.
template <class Search>
__device__ __forceinline__ u32 read_line(GetShared &s, Reader &reader, u32 &list, u32 first_key) {
  // Without rows the key is all that matters of an `mg`.
  u32 line = reader.word == WORD_MG ? reader.stop : reader.line, from = reader.key;
  if constexpr (Search::HAS_ROWS) {
    // A flag that is one is a blank and a letter.
    u32 flags = reader.line - line;
    if (reader.word == WORD_MG && (flags == 0 || int(load_shared_byte(&s, line) == ' ') & int(flags % 2 == 0)))
      store_shared8(&s, (first_key + from * ASKED_OFF) & 0xffff, 0, reader.line);
  }
  // How many there are, as a descriptor's first word has it.
  constexpr u32 ONE = 1u << 24, MOST = KEYS_MAX * ONE;
  u32 n = ONE;
  // So there is a blank behind each key; a row has more bytes than are staged. The main warp does not
  // take this request, whether it sees this byte or the one before.
  store_shared_byte(&s, line, ' ');
  for (;;) {
    ask(s, list, from + reader.stop * ASKED_TO, first_key + from * ASKED_OFF);
    from = reader.stop + 1;
    // Behind the last one there may be a blank.
    if (int(from >= line) | int(n == MOST)) break;
    first_key += sizeof(KeyDesc);
    n += ONE;
    reader.next(s);
  }
  if (int(n == MOST) & int(reader.stop != line)) return VERDICT_SLOW;
  return (reader.word & 0xff00ff) + n;
}

__device__ __forceinline__ Reader read_staged(const GetShared &s, u32 mine) {
  u32 row = shared_address(&s) + FRAMES_AT + mine * ROW_BYTES;
  return Reader(s, s.entries[mine], row + s.entries[mine].off % 16, row + STAGED_BYTES);
}

// Brings the texts of the lanes that the list names, as far as there is room for them, and begins to read
// them. All lanes of the warp take part.
__device__ __forceinline__ void read_longs(const PacketRegion &packets, u32 mine, u32 longs,
                                           Reader &reader, GetShared &s) {
  const Entry &entry = s.entries[mine];
  u32 lane = mine % 32, row = shared_address(&s) + TEXTS_AT + mine / 32 * TEXTS * TEXT_ROW_BYTES;
  // Where the UDP header and the text's end are, from the chunk on that the first of them begins in.
  u32 begin = u32(entry.off) + entry.l4, from = begin % 16;
  u32 bytes = from + 8 + KV_HEADER_BYTES + reader.end - reader.text, low, high;
  halves_of(packets.base + u64(entry.slot) * packets.slot_bytes + begin - from, low, high);
  u32 todo = __ballot_sync(~0u, int(longs >> lane & 1) & int(bytes <= TEXT_BYTES)), mine_at = 0;
#pragma unroll 1
  for (u32 n = 0; todo && n < TEXTS; n++) {
    int owner = __ffs(int(todo)) - 1;
    todo &= todo - 1;
    u64 chunks = wide(__shfl_sync(~0u, low, owner), __shfl_sync(~0u, high, owner));
    u32 its_bytes = __shfl_sync(~0u, bytes, owner);
    if (16 * lane < its_bytes) {
      uint4 words = load16(at<const u8>(chunks + 16 * lane));
      u32 *into = s.others.texts[mine / 32][n] + 4 * lane;
      into[0] = words.x;
      into[1] = words.y;
      into[2] = words.z;
      into[3] = words.w;
    }
    if (lane == u32(owner)) mine_at = row;
    row += TEXT_ROW_BYTES;
  }
  __syncwarp();
  if (mine_at) reader = Reader(s, entry, mine_at + from - entry.l4, mine_at + TEXT_BYTES);
}

// Reads a request that is not plain, and puts its keys on the list. What is longer than what there is of
// it is read where it lies, or, if it `may_wait`, later.
template <class Search>
__device__ __forceinline__ void read_other(const PacketRegion &packets, u32 mine, bool may_wait,
                                           Reader &reader, AskedList &list, GetShared &s) {
  u32 *words = s.descs[mine];
  u32 key_at = shared_address(&s) + DESCS_AT + mine * DESC_BYTES + 16;
  u32 first_key = key_at - reader.base * ASKED_OFF, first, text = reader.payload;
  store16(words + 4, make_uint4(0, 0, 0, 0));
  if (reader.word) {
    first = read_line<Search>(s, reader, list.end, first_key);
  } else if ((reader.fits ? reader.end : reader.text) > reader.limit) {
    if (int(may_wait) & int(reader.fits) & int(reader.text <= reader.limit)) {
      atomicAdd(&list.longs, 1u << mine % 32);
      return;
    }
    DescRow desc = {words};
    parse(open_frame(packets, s.entries[mine], s.frames[mine]), s.entries[mine].l4, desc);
    u32 n_keys = desc.n_keys();
#pragma unroll 1
    for (u32 n = 0; n < n_keys; n++) ask(s, list.end, ASKED_UNSTAGED, key_at + n * u32(sizeof(KeyDesc)));
    return;
  } else if (!reader.fits) {
    first = VERDICT_BAD | REASON_FRAME_SHORT << 8;
    text = 0;
  } else if (!reader.whole) {
    first = VERDICT_BAD | REASON_FRAME_MULTIPART << 8;
    text = 0;
  } else {
    first = VERDICT_SLOW;
  }
  store16(words, make_uint4(first, text, 0, 0));
}

// For the head of the reply.
__device__ __forceinline__ void keep_values(GetShared &s, u32 request, const Found &found) {
  if (!found.way) return;
  s.hits.flags[request] = load_relaxed(&found.way->flags);
  s.hits.value_lens[request] = load_relaxed(&found.way->value_len);
}

// The request whose KeyDesc is at this position.
__device__ __forceinline__ u32 request_of(const GetShared &s, u32 desc) {
  return (desc - shared_address(&s) - DESCS_AT) / DESC_BYTES;
}

// Looks one of the keys up that are on the list. A word of a line that is no key leaves its request to
// the strict parser.
template <class Search>
__device__ __forceinline__ void get_asked(const PacketRegion &packets, const Index &index, Asked asked,
                                          GetShared &s) {
  u32 desc = asked.desc % ASKED_OFF, where, verb = VERB_GET;
  // Elsewhere a key is found whatever is asked.
  if constexpr (Search::HAS_ROWS) verb = s.descs[request_of(s, desc)][0] >> 16 & 0xff;
  Found found;
  Wide hash;
  if (asked.key == ASKED_UNSTAGED) {
    u32 request = request_of(s, desc);
    where = load_shared(&s, desc);
    Frame frame = open_frame(packets, s.entries[request], s.frames[request]);
    FrameKey key = {frame, where & 0xffff, where >> 16};
    siphash(index.key, key, hash);
    u32 kind = verb == VERB_META_GET ? u32(KIND_NONE) : kind_of(key.len, verb);
    found = Search::look_up(index, s.work.order.now, key, hash, kind);
  } else {
    u32 from = asked.key % ASKED_TO, to = asked.key / ASKED_TO, len = to - from;
    if (!(int(len - 1 < KEY_BYTES_MAX) & int(load_shared_byte(&s, to) == ' '))) {
      s.descs[request_of(s, desc)][0] = VERDICT_SLOW;
      return;
    }
    where = asked.desc / ASKED_OFF + len * 65536;
    StagedKey<false> key = {&s, from & ~3u, from * 8, from, len};
    siphash(index.key, key, hash);
    u32 kind = kind_of(len, verb);
    if (Search::HAS_ROWS && verb == VERB_META_GET) {
      u32 end = load_shared(&s, desc + 4);
      kind = end ? kind_of(len, verb, (end - to) / 2) : u32(KIND_NONE);
      key.len = end - from;
    }
    found = Search::look_up(index, s.work.order.now, key, hash, kind);
  }
  store_shared8(&s, desc, where | found.hint << 24, found.location);
  if (Search::KNOWS_VALUES && s.work.order.prebuilt) keep_values(s, request_of(s, desc), found);
}

// A helper warp's requests that are not plain: a lane for each that has one, then one for each of
// their keys. All lanes of the warp take part.
template <class Search>
__device__ __forceinline__ void get_others(const PacketRegion &packets, const Index &index, u32 mine,
                                           bool is_other, Reader &reader, GetShared &s) {
  AskedList &list = s.others.lists[mine / 32];
  u32 begin = shared_address(&s) + LISTS_AT + mine / 32 * u32(sizeof(AskedList));
  u32 end_at = begin + 32 * KEYS_MAX * u32(sizeof(Asked)), end, longs;
  store_shared8(&s, end_at, begin, 0);
  __syncwarp();
  if (is_other) read_other<Search>(packets, mine, true, reader, list, s);
  __syncwarp();
  load_shared8(&s, end_at, end, longs);
  if (longs) {
    read_longs(packets, mine, longs, reader, s);
    if (longs >> mine % 32 & 1) read_other<Search>(packets, mine, false, reader, list, s);
    __syncwarp();
    end = load_shared(&s, end_at);
  }
#pragma unroll 1
  for (u32 at = begin + mine % 32 * sizeof(Asked); at < end; at += 32 * sizeof(Asked)) {
    Asked asked;
    load_shared8(&s, at, asked.key, asked.desc);
    get_asked<Search>(packets, index, asked, s);
  }
  __syncwarp();
  // Words were looked up that are no keys.
  u32 *words = s.descs[mine];
  if (is_other && words[0] >> 24 == 0)
    for (u32 i = 4; i < sizeof(ReqDesc) / 4; i += 4) store16(words + i, make_uint4(0, 0, 0, 0));
}
