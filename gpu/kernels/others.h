// Requests that are not plain: what a helper warp does with them. What ends within the staged line is
// read by words of it, 32 bytes at a time, all kinds in the same steps as far as they go; what does not
// is for parse.h. Then a lane takes each key, and looks at what its reader did not.
//
// Positions are addresses in the block's shared memory: less than 64 KB.
#pragma once
#include "found.h"
#include "plain.h"
#include "shared.h"

// `Asked.key`: the positions of the key's first byte and behind its last one; 0 of a key that only the
// descriptor tells. `Asked.desc`: the position of its KeyDesc, and the key's offset.
enum : u32 { ASKED_TO = 1u << 16, ASKED_OFF = 1u << 16, ASKED_UNSTAGED = 0 };

// What a request begins with: verdict and verb as in a descriptor, and the bytes before its first key.
enum : u32 {
  WORD_LEN = 1u << 8,
  WORD_OF_LINE = 1u << 31,
  WORD_GET = VERDICT_READY | VERB_GET << 16 | 4 * WORD_LEN | WORD_OF_LINE,
  WORD_GETS = VERDICT_READY | VERB_GETS << 16 | 5 * WORD_LEN | WORD_OF_LINE,
  WORD_MG = VERDICT_HINTED | 3 * WORD_LEN | WORD_OF_LINE,
  WORD_BINARY = VERDICT_HINTED | BINARY_HEADER_BYTES * WORD_LEN,
};

// Which bytes of two words are blanks or control characters: 128 times a bit each, below `bits`.
template <u32 BEHIND> __device__ __forceinline__ u32 low_pair(const GetShared &s, u32 at, u32 bits) {
  u32 a = load_shared<BEHIND>(&s, at), b = load_shared<BEHIND + 4>(&s, at);
  u32 low_a = neither<0x80808080>((a & 0x7f7f7f7f) + 0x5f5f5f5f, a);
  u32 low_b = neither<0x80808080>((b & 0x7f7f7f7f) + 0x5f5f5f5f, b);
  return dot4<0x80402010>(low_b, dot4<0x08040201>(low_a, bits << 8));
}

// Which are of the last 24 of 32 bytes: a bit each. Then of all.
__device__ __forceinline__ u32 low_bytes_24(const GetShared &s, u32 at) {
  return low_pair<8>(s, at, low_pair<16>(s, at, low_pair<24>(s, at, 0))) << 1;
}
__device__ __forceinline__ u32 low_bytes_32(const GetShared &s, u32 at) {
  return low_bytes_24(s, at) + (low_pair<0>(s, at, 0) >> 7);
}

// Whether a text that begins with these words is one binary GET, GETQ, GETK or GETKQ, as parse_binary
// says, if `key_len` is what is behind its header.
__device__ __forceinline__ bool is_binary_get(u32 a, u32 b, u32 c, u32 key_len) {
  u32 opcode = a >> 8 & 0xff;
  bool is_get = int(opcode < 14) & int(0x3201u >> opcode % 16 & 1);
  // No extras, data type 0, a body that is the key.
  return int(is_get) & int((b & 0xffff) == 0) & int(c == (a & 0xffff0000)) &
         int(network_half(a >> 16) == key_len) & int(key_len - 1 < KEY_BYTES_MAX);
}

// A request in its staged line.
struct Reader {
  // Of the frame, the text, and behind it.
  u32 base, text, end;
  // The end of what there is of the frame here.
  u32 limit;
  // Where in the frame the text is, as descriptors have it.
  u32 payload;
  // The text ends with the datagram and the frame. It is the only datagram, and staged.
  bool fits, whole;
  // One of WORD_, or 0.
  u32 word;
  // Of a line: its end, and whether that is two bytes; the first key, and what ends that.
  u32 line, key, stop;
  bool returns;
  // Which bytes are low of those from `at` on, as far as they have not been behind a key.
  u32 at, low;

  // Its frame is at `frame`; what there is of it ends at `row_end`.
  __device__ __forceinline__ Reader(const GetShared &s, const Entry &entry, u32 frame, u32 row_end) {
    u32 l4 = entry.l4, row_last = row_end - 1;
    base = frame;
    limit = row_end;
    u32 position = base + l4, shift = position * 8, udp = position & ~3u;
    u32 a = load_shared<4>(&s, udp), b = load_shared<8>(&s, udp), c = load_shared<12>(&s, udp);
    u32 d = load_shared<16>(&s, udp), e = load_shared<20>(&s, udp);
    u32 udp_len = network_half(__funnelshift_r(a, b, shift)), first = __funnelshift_r(d, e, shift);
    text = position + 8 + KV_HEADER_BYTES;
    end = position + udp_len;
    payload = l4 + udp_len * 65536 - (8 + KV_HEADER_BYTES) * 65535;
    u32 last = end - 1;
    fits = int(udp_len > 8 + KV_HEADER_BYTES) & int(end <= base + entry.len);
    whole = int(last <= row_last) & int(u16(__funnelshift_r(c, d, shift)) == 0x0100);
    word = (first & 0xffffff) == 0x20676d ? u32(WORD_MG) : 0;  // "mg "
    if (first == 0x20746567) word = WORD_GET;                  // "get "
    if (first == 0x73746567)                                   // "gets"
      word = u8(__funnelshift_r(e, load_shared<24>(&s, udp), shift)) == ' ' ? u32(WORD_GETS) : 0;
    if (last > row_last) last = row_last;
    if (load_shared_byte(&s, last) != '\n') word = 0;
    // The byte before is within the row, or one of its entry.
    returns = load_shared_byte(&s, last - 1) == '\r';
    line = last - returns;
    stop = end;
    if ((first & 0xff) == 0x80) {
      u32 f = load_shared<24>(&s, udp), g = load_shared<28>(&s, udp);
      if (is_binary_get(first, __funnelshift_r(e, f, shift), __funnelshift_r(f, g, shift),
                        end - text - BINARY_HEADER_BYTES))
        word = WORD_BINARY;
      line = end;
    }
    if (!(int(fits) & int(whole))) word = 0;
    key = text + word / WORD_LEN % 32;
    low = 0;
    if (!(word & WORD_OF_LINE)) return;
    at = (key & ~3u) - 8;
    u32 before = key - at;
    low = low_bytes_24(s, at) >> before << before;
    if (!low) find(s);
    stop = at + u32(__ffs(int(low)) - 1);
  }

  // On to where a low byte is. The line's end is one: nothing goes beyond.
  __device__ __forceinline__ void find(const GetShared &s) {
#pragma unroll 1
    do {
      at += 32;
      low = low_bytes_32(s, at);
    } while (!low);
  }

  // Behind the next word.
  __device__ __forceinline__ void next(const GetShared &s) {
    low &= low - 1;
    if (!low) find(s);
    stop = at + u32(__ffs(int(low)) - 1);
  }

  // A `get` of one key and a line end of two bytes: what plain.h says.
  __device__ __forceinline__ bool is_plain() const {
    return int(word == WORD_GET) & int(stop == line) & int(stop > key) & int(returns);
  }
};

// Puts a key on the helper warp's list, whose end is at `list`.
__device__ __forceinline__ void ask(GetShared &s, u32 &list, u32 key, u32 desc) {
  store_shared8(&s, atomicAdd(&list, u32(sizeof(Asked))), key, desc);
}

// The keys of a request, as far as they may be keys; `first_key` is what `Asked.desc` is of a key at
// position 0. Returns the descriptor's first word.
__device__ __forceinline__ u32 read_line(GetShared &s, Reader &reader, u32 &list, u32 first_key) {
  // All that matters of an `mg`.
  u32 line = reader.word == WORD_MG ? reader.stop : reader.line, from = reader.key;
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
__device__ __forceinline__ void read_other(const PacketRegion &packets, u32 mine, bool may_wait,
                                           Reader &reader, AskedList &list, GetShared &s) {
  u32 *words = s.descs[mine];
  u32 key_at = shared_address(&s) + DESCS_AT + mine * DESC_BYTES + 16;
  u32 first_key = key_at - reader.base * ASKED_OFF, first, text = reader.payload;
  store16(words + 4, make_uint4(0, 0, 0, 0));
  if (reader.word) {
    first = read_line(s, reader, list.end, first_key);
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
  s.flags[request] = load_relaxed(&found.way->flags);
  s.value_lens[request] = load_relaxed(&found.way->value_len);
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
  u32 desc = asked.desc % ASKED_OFF, where;
  Found found;
  Wide hash;
  if (asked.key == ASKED_UNSTAGED) {
    u32 request = request_of(s, desc);
    where = load_shared(&s, desc);
    Frame frame = open_frame(packets, s.entries[request], s.frames[request]);
    FrameKey key = {frame, where & 0xffff, where >> 16};
    siphash(index.key, key, hash);
    found = Search::look_up(index, s.work.order.now, key, hash);
  } else {
    u32 from = asked.key % ASKED_TO, to = asked.key / ASKED_TO, len = to - from;
    if (!(int(len - 1 < KEY_BYTES_MAX) & int(load_shared_byte(&s, to) == ' '))) {
      s.descs[request_of(s, desc)][0] = VERDICT_SLOW;
      return;
    }
    where = asked.desc / ASKED_OFF + len * 65536;
    StagedKey<false> key = {&s, from & ~3u, from * 8, from, len};
    siphash(index.key, key, hash);
    found = Search::look_up(index, s.work.order.now, key, hash);
  }
  store_shared8(&s, desc, where | found.hint << 24, found.location);
  if (Search::KNOWS_VALUES && s.work.order.heads) keep_values(s, request_of(s, desc), found);
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
  if (is_other) read_other(packets, mine, true, reader, list, s);
  __syncwarp();
  load_shared8(&s, end_at, end, longs);
  if (longs) {
    read_longs(packets, mine, longs, reader, s);
    if (longs >> mine % 32 & 1) read_other(packets, mine, false, reader, list, s);
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
