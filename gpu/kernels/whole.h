// Whole replies to requests all of whose keys have rows. A helper's lane writes what stands before the text; then all
// warps bring replies to the host, a lane a piece of 16 bytes. No content of a row leads out of bounds, whatever is
// being written there.
#pragma once
#include "head.h"
#include "rows.h"
#include "shared.h"

static_assert(KEYS_MORE + 1 == KEYS_MAX, "facts of each key but the first");
// What ends a line's text, and its sum where it begins at an even offset.
enum : u32 { END_BYTES = 5, END_SUM = ('E' << 8 | 'N') + ('D' << 8 | '\r') + ('\n' << 8) };
// Words of a WholeReply in the making: facts and head; then, of a packet, its first word and its opaque.
enum : u32 { WHOLE_HEAD_WORDS = (u32(sizeof(RowFacts)) + REPLY_HEAD_BYTES) / 4 };
static_assert(WHOLE_HEAD_WORDS + 2 <= HEAD_WORDS, "it is made in a head's place");
// Where in a packet its opaque is.
enum : u32 { OPAQUE_AT = 12 };

// A folded sum of what lies at this offset of a text.
__device__ __forceinline__ u32 sum_at(u32 sum, u32 offset) { return offset % 2 ? swap_half(sum) : sum; }

__device__ __forceinline__ bool is_packet(u32 verb) {
  return int(verb == VERB_BINARY_GET) | int(verb == VERB_BINARY_GETK);
}

__device__ __forceinline__ uint4 facts_of(const RowTable &table, u32 way) {
  return load16_relaxed(row_at(table, way));
}

// Whether each key has a row, and the kind of reply is one that the host takes.
__device__ __forceinline__ bool has_rows(DescRow desc) {
  u32 verdict = desc.verdict(), n_keys = desc.n_keys();
  bool has = int(n_keys > 0) & (int(verdict == VERDICT_READY) | int(verdict == VERDICT_STRICT_HINTED));
#pragma unroll 1
  for (u32 i = 0; has && i < n_keys; i++) has = desc.hint(i) == HINT_ROW;
  return has;
}

// The facts of a reply made of these rows: of the first, with the length and the sum of the whole text. Its length is
// 0 if there is no such reply.
__device__ __forceinline__ uint4 join_facts(const RowTable &table, DescRow desc) {
  uint4 facts = facts_of(table, desc.location(0));
  u32 n_keys = desc.n_keys(), len = facts.x & 0xffff, sum = facts.y >> 16;
  bool good = len <= ROW_TEXT_MAX;
#pragma unroll 1
  for (u32 i = 1; i < n_keys; i++) {
    uint4 its = facts_of(table, desc.location(i));
    u32 its_len = its.x & 0xffff;
    good = int(good) & int(len >= END_BYTES) & int(its_len >= END_BYTES) & int(its_len <= ROW_TEXT_MAX);
    len -= END_BYTES;
    sum = checksum_fold(sum + (sum_at(END_SUM, len) ^ 0xffff) + sum_at(its.y >> 16, len));
    len += its_len;
  }
  if (!(int(good) & int(len <= WHOLE_TEXT_MAX))) len = 0;
  facts.x = (facts.x & 0xffff0000) | len;
  facts.y = (facts.y & 0xffff) | sum << 16;
  return facts;
}

// Makes all of a reply but its text: in `row` a WholeReply, of no text if its headers are not the usual ones.
__device__ inline void begin_reply(const Frame &frame, const Entry &entry, DescRow desc, uint4 facts, u32 *row) {
  u32 text_len = facts.x & 0xffff, udp_len = 8 + KV_HEADER_BYTES + text_len;
  u32 text = entry.l4 + 8 + KV_HEADER_BYTES;
  if (!has_usual_headers(entry) || text_len == 0) return;
  u32 *words = row + sizeof(RowFacts) / 4;
  turn_headers(frame, entry, udp_len, words);
  u32 sum = covered_sum(words, entry, text, udp_len) + (facts.y >> 16);
  if (is_packet(desc.verb())) {
    // The row has neither opcode nor opaque.
    u32 opcode = frame.byte(text + 1), opaque = frame.word(text + OPAQUE_AT);
    row[WHOLE_HEAD_WORDS] = opcode << 8;
    row[WHOLE_HEAD_WORDS + 1] = opaque;
    sum += opcode + network_half(opaque) + network_half(opaque >> 16);
  }
  row[0] = facts.x;
  row[1] = (facts.y & 0xffff) | checksum_fold(sum) << 16;
  row[2] = facts.z;
  row[3] = facts.w;
}

// Sixteen bytes of the text of a reply of several rows.
__device__ inline uint4 piece_of_rows(const RowTable &table, DescRow desc, u32 from) {
  u32 n_keys = desc.n_keys(), key = 0, words[4] = {0, 0, 0, 0};
  const u32 *row = nullptr;
  u32 len = 0, at = from;
#pragma unroll 1
  for (u32 i = 0; i < 16; i++, at++) {
#pragma unroll 1
    while (at >= len && key < n_keys) {
      at -= len;
      row = reinterpret_cast<const u32 *>(row_at(table, desc.location(key)));
      len = load_relaxed(row) & 0xffff;
      key++;
      // The last one's end stays.
      if (key < n_keys) len = len > END_BYTES ? len - END_BYTES : 0;
      if (len > ROW_TEXT_MAX) len = ROW_TEXT_MAX;
    }
    if (at >= len) break;
    u32 in_row = u32(sizeof(RowFacts)) + at;
    u32 byte = load_relaxed(row + in_row / 4) >> in_row % 4 * 8 & 0xff;
#pragma unroll
    for (u32 w = 0; w < 4; w++)
      if (i / 4 == w) words[w] |= byte << i % 4 * 8;
  }
  return make_uint4(words[0], words[1], words[2], words[3]);
}

// Whole replies of `n` requests: facts and headers of `s`, text of the rows.
__device__ inline void store_replies(const RowTable &table, GetShared &s, u32 n, WholeReply *to) {
  constexpr u32 HEAD_PIECES = WHOLE_HEAD_WORDS / 4;
  u32 lane = threadIdx.x % 32;
#pragma unroll 1
  for (u32 i = threadIdx.x / 32; i < n; i += GET_THREADS / 32) {
    const u32 *head = s.heads[i];
    DescRow desc = {s.descs[i]};
    u32 text_len = head[0] & 0xffff, pieces = text_len ? HEAD_PIECES + (text_len + 15) / 16 : 1;
    u32 n_keys = desc.n_keys();
#pragma unroll 1
    for (u32 at = lane; at < pieces; at += 32) {
      uint4 piece;
      if (at < HEAD_PIECES)
        piece = make_uint4(head[4 * at], head[4 * at + 1], head[4 * at + 2], head[4 * at + 3]);
      else if (n_keys == 1)
        piece = load16_relaxed(row_at(table, desc.location(0)) + sizeof(RowFacts) + 16 * (at - HEAD_PIECES));
      else
        piece = piece_of_rows(table, desc, 16 * (at - HEAD_PIECES));
      if (int(at == HEAD_PIECES) & int(is_packet(desc.verb()))) {
        piece.x |= head[WHOLE_HEAD_WORDS];
        piece.w |= head[WHOLE_HEAD_WORDS + 1];
      }
      store16(reinterpret_cast<u8 *>(to + i) + 16 * at, piece);
    }
    if (int(text_len > 0) & int(lane + 1 < n_keys))
      store16(&to[i].more[lane], facts_of(table, desc.location(lane + 1)));
  }
}

// All threads take part.
__device__ __forceinline__ void reply_by_rows(const PacketRegion &packets, const RowTable &table, u32 first,
                                              u32 mine, u32 n, GetShared &s) {
  if (threadIdx.x / 32 % 2 && mine < n) {
    u32 *row = s.heads[mine];
    row[0] = row[1] = row[2] = row[3] = 0;
    const Entry &entry = s.entries[mine];
    DescRow desc = {s.descs[mine]};
    if (has_rows(desc) && entry.mark == REASON_NONE && !(entry.flags & ENTRY_LIMITED))
      begin_reply(open_frame(packets, entry, s.frames[mine]), entry, desc, join_facts(table, desc), row);
  }
  __syncthreads();
  store_replies(table, s, n, at<WholeReply>(s.work.order.prebuilt) + first);
}
