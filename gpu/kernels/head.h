// The head of a reply to a hit: everything before the value, as stage 6 and stage 7 would send it
// (dataplane/src/stages/execute.rs, dataplane/wire/src/reply.rs). One thread a request.
#pragma once
#include "checksum.h"
#include "parse.h"

// Most bytes of text in a reply of one datagram.
enum : u32 { REPLY_TEXT_MAX = 1392 };
// Words of a ReplyHead before its bytes; from one head to the next, with one that keeps lanes in
// different banks.
enum : u32 { HEAD_FIRST_WORD = 3, HEAD_WORDS = 33 };

__device__ __forceinline__ u32 digits_of(u32 number) {
  u32 n = 1;
  for (; number >= 10; number /= 10) n++;
  return n;
}

// Writes bytes one after the other.
struct HeadWriter {
  u8 *to;

  __device__ __forceinline__ void byte(u32 b) { *to++ = u8(b); }
  __device__ __forceinline__ void half(u32 h) {
    byte(h >> 8);
    byte(h);
  }
  __device__ __forceinline__ void decimal(u32 number, u32 digits) {
    for (u32 i = digits; i > 0; i--) {
      to[i - 1] = u8('0' + number % 10);
      number /= 10;
    }
    to += digits;
  }
};

// The network header at `l3` of the reply: what its sender chooses, addresses swapped.
__device__ inline void turn_ipv4(const Frame &frame, u32 l3, u32 total_len, u8 *bytes) {
  HeadWriter head = {bytes + l3};
  u32 ttl_and_protocol = 64 << 8 | frame.byte(l3 + 9);
  u32 sum = 0x4500 + total_len + 0x4000 + ttl_and_protocol;
  for (u32 i = 12; i < 20; i += 2) sum += frame.half(l3 + i);
  head.half(0x4500);
  head.half(total_len);
  head.half(0);
  head.half(0x4000);  // not to be fragmented
  head.half(ttl_and_protocol);
  head.half(~checksum_fold(sum));
  for (u32 i = 0; i < 8; i++) head.byte(frame.byte(l3 + 12 + (i ^ 4)));
}

__device__ inline void turn_ipv6(const Frame &frame, u32 l3, u32 payload_len, u8 *bytes) {
  HeadWriter head = {bytes + l3};
  head.half(0x6000);
  head.half(0);
  head.half(payload_len);
  head.byte(frame.byte(l3 + 6));
  head.byte(64);
  for (u32 i = 0; i < 32; i++) head.byte(frame.byte(l3 + 8 + (i ^ 16)));
}

// Whether the request's headers are Ethernet with up to two tags, and no options: all that stage 3 lets
// through.
__device__ __forceinline__ bool has_usual_headers(const Entry &entry) {
  u32 l3 = entry.l3;
  return l3 >= 14 && l3 <= 22 && l3 % 2 == 0 && entry.l4 == l3 + (entry.flags & ENTRY_IPV6 ? 40 : 20);
}

// The headers of the reply, of a UDP length of `udp_len`: all that stands before the text. Tags and next
// protocols are the request's; the stations change places.
__device__ inline void turn_headers(const Frame &frame, const Entry &entry, u32 udp_len, u32 *words) {
  u32 l3 = entry.l3, l4 = entry.l4, text = l4 + 8 + KV_HEADER_BYTES;
  u8 *bytes = reinterpret_cast<u8 *>(words);
  for (u32 i = 3; 4 * i < text; i++) words[i] = frame.word(4 * i);
  u32 a = frame.word(0), b = frame.word(4), c = frame.word(8);
  words[0] = b >> 16 | c << 16;
  words[1] = c >> 16 | a << 16;
  words[2] = a >> 16 | b << 16;
  if (entry.flags & ENTRY_IPV6)
    turn_ipv6(frame, l3, udp_len, bytes);
  else
    turn_ipv4(frame, l3, udp_len + 20, bytes);
  HeadWriter out = {bytes + l4};
  out.half(frame.half(l4 + 2));
  out.half(frame.half(l4));
  out.half(udp_len);
  out.half(0);
  out.half(frame.half(l4 + 8));  // the request's id, datagram 0 of 1
  out.half(0);
  out.half(1);
  out.half(0);
}

// The sum of what UDP's checksum covers of `len` bytes of a reply, in network order, not folded.
__device__ inline u32 covered_sum(const u32 *words, const Entry &entry, u32 len, u32 udp_len) {
  u32 addresses = entry.l3 + (entry.flags & ENTRY_IPV6 ? 8 : 12);
  return network_order(sum_words(words, addresses, len), 0) + 17 + udp_len;
}

// Makes the head of the reply to a READY `get` of one key that was found: in `row` a ReplyHead,
// with length 0 if it does not fit one, or the reply not one datagram.
__device__ inline void make_head(const Frame &frame, const Entry &entry, DescRow desc, u32 flags,
                                 u32 value_len, u32 *row) {
  u32 text = entry.l4 + 8 + KV_HEADER_BYTES;
  u32 key_off = desc.key_off(0), key_len = desc.key_len(0);
  u32 flags_digits = digits_of(flags), len_digits = digits_of(value_len);
  u32 line = 6 + key_len + 1 + flags_digits + 1 + len_digits + 2;
  row[0] = 0;
  if (!has_usual_headers(entry)) return;
  if (text + line > HEAD_BYTES_MAX || value_len > REPLY_TEXT_MAX) return;
  u32 text_len = line + value_len + 2 + 5;  // the value, its line end, END
  if (text_len > REPLY_TEXT_MAX) return;
  u32 udp_len = 8 + KV_HEADER_BYTES + text_len;

  u32 *words = row + HEAD_FIRST_WORD;
  turn_headers(frame, entry, udp_len, words);
  HeadWriter out = {reinterpret_cast<u8 *>(words) + text};
  const char value_word[] = {'V', 'A', 'L', 'U', 'E', ' '};
  for (u32 i = 0; i < sizeof value_word; i++) out.byte(u32(value_word[i]));
  for (u32 i = 0; i < key_len; i++) out.byte(frame.byte(key_off + i));
  out.byte(' ');
  out.decimal(flags, flags_digits);
  out.byte(' ');
  out.decimal(value_len, len_digits);
  out.half(u32('\r') << 8 | '\n');

  u32 len = text + line;
  row[0] = len | 1 << 8 | checksum_fold(covered_sum(words, entry, len, udp_len)) << 16;
  row[1] = flags;
  row[2] = value_len;
}
