// How a request begins, and where its words end, by words of what is staged: all kinds in the same steps
// as far as they go. Verdicts are those of parse.h.
//
// Positions are addresses in the block's shared memory: less than 64 KB.
#pragma once
#include "shared.h"

// What a request begins with: verdict and verb as in a descriptor, and the bytes before its first key.
enum : u32 {
  WORD_LEN = 1u << 8,
  WORD_OF_LINE = 1u << 31,
  WORD_GET = VERDICT_READY | VERB_GET << 16 | 4 * WORD_LEN | WORD_OF_LINE,
  WORD_GETS = VERDICT_READY | VERB_GETS << 16 | 5 * WORD_LEN | WORD_OF_LINE,
  WORD_MG = VERDICT_STRICT_HINTED | VERB_META_GET << 16 | 3 * WORD_LEN | WORD_OF_LINE,
  WORD_BINARY = VERDICT_STRICT_HINTED | VERB_BINARY_GET << 16 | BINARY_HEADER_BYTES * WORD_LEN,
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
        word = WORD_BINARY | has_key_back<16>(first);
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
