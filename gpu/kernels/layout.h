// The byte layouts shared with the host. gpu/src/layout.rs and gpu/src/params.rs say what the
// fields mean; the tables in gpu/src/layout_check.rs compare every offset.
#pragma once
#include "platform.h"

enum : u32 { KEYS_MAX = 6, KEYS_MORE = 5, HEAD_BYTES_MAX = 116, WAYS = 16, TABLES = 5, CELLS = 8 };
enum : u32 { REPLY_HEAD_BYTES = 80, ROW_TEXT_MAX = 240, WHOLE_TEXT_MAX = 512 };
// Shared memory of a block, as launches give it.
enum : u32 { GET_SHARED_BYTES = 46656, DIGEST_SHARED_BYTES = 16896,
             UPDATE_SHARED_BYTES = 32 };

// Entry.flags
enum : u8 { ENTRY_IPV6 = 1, ENTRY_IP_GOOD = 2, ENTRY_UDP_GOOD = 4, ENTRY_LIMITED = 8 };
// ReqDesc.verdict
enum : u8 { VERDICT_SLOW = 0, VERDICT_READY = 1, VERDICT_BAD = 2, VERDICT_STRICT_HINTED = 3 };
// ReqDesc.reason
enum : u8 {
  REASON_NONE = 0,
  REASON_IP_CHECKSUM = 1,
  REASON_UDP_CHECKSUM = 2,
  REASON_FRAME_SHORT = 3,
  REASON_FRAME_MULTIPART = 4,
};
// ReqDesc.verb
enum : u8 { VERB_GET = 0, VERB_GETS = 1, VERB_BINARY_GET = 2, VERB_BINARY_GETK = 3, VERB_META_GET = 4 };
// RowFacts.verb: behind this bit the number of an mg's flags.
enum : u32 { ROW_FLAGS_BIT = 4 };
// KeyDesc.hint
enum : u8 { HINT_UNKNOWN = 0, HINT_HIT = 1, HINT_MISS = 2, HINT_ROW = 3 };
// Op.kind
enum : u8 { OP_PUT = 0, OP_REMOVE = 1, OP_CLEAR = 2 };

struct Entry {
  u32 slot;
  u16 off, len;
  u8 l3, l4, flags, mark;
};

struct KeyDesc {
  u16 off;
  u8 len, hint;
  u32 location;
};

struct alignas(64) ReqDesc {
  u8 verdict, reason, verb, n_keys;
  u16 payload_off, payload_len;
  u8 reserved[8];
  KeyDesc keys[KEYS_MAX];
};

struct alignas(128) ReplyHead {
  u8 len, has_line;
  u16 sum;
  u32 flags, value_len;
  u8 bytes[HEAD_BYTES_MAX];
};

// What stands before the text of a reply.
struct RowFacts {
  u16 text_len;
  u8 value_len, item_class, key_len, verb;
  u16 sum;
  u32 expiry, signature;
};

// The text of a reply, as the host wrote it; behind that of a packet, its key; behind that to an mg, the request's line from
// the key on, each flag a blank and a letter.
struct alignas(16) Row {
  RowFacts facts;
  u8 text[ROW_TEXT_MAX];
};

// A whole reply: its frame is the first bytes of `head`, up to the text, and the text. The facts are those of
// the first key's row, with the length and the sum of all; then those of the others'.
struct alignas(16) WholeReply {
  RowFacts facts;
  u8 head[REPLY_HEAD_BYTES], text[WHOLE_TEXT_MAX];
  RowFacts more[KEYS_MORE];
};

struct PacketRegion {
  u64 base;
  u32 slot_bytes, slots;
};

struct HashKey {
  u64 k0, k1;
};

struct SetTable {
  u64 sets, keys;
  u32 n_sets, key_max;
};

// One set of a table: all that a look-up needs before it looks at keys, in one line of memory.
struct alignas(128) Set {
  // 0: empty.
  u8 tags[WAYS];
  // The number of the update's launch while one of its warps is at work here. Searches leave it
  // alone.
  u32 lock;
  u32 reserved[3];
  u32 locations[WAYS];
  // When each was last found, in seconds, the low 16 bits.
  u16 stamps[WAYS];
};

// What a table keeps of a way beside that, followed by the key.
struct Way {
  u32 flags, value_len, key_len;
};

// A bucket of the cuckoo index. A cell is signature << 32 | location, or 0.
struct alignas(64) Bucket {
  u64 cells[CELLS];
};

struct CuckooTable {
  u64 buckets;
  u32 n_buckets, kicks_max;
};

struct RowTable {
  u64 signatures, rows;
  u32 n_sets, reserved;
};

struct Index {
  HashKey key;
  SetTable tables[TABLES];
  CuckooTable cuckoo;
  RowTable rows;
};

// What the host orders: a batch, and its number in its ring.
struct Order {
  u64 entries, descs, prebuilt;
  u16 n, now;
  u32 number;
};

// A slot of a submission ring, in mapped host memory: the host's line, then the device's.
struct alignas(64) RingSlot {
  Order order;
  u32 reserved0[8];
  u32 done, reserved1[15];
};

enum : u32 { RINGS_MAX = 126 };

// The line of mapped host memory that a resident grid polls.
struct alignas(128) Doorbells {
  u8 stop, beat, rung[RINGS_MAX];
};

// A part of a batch, or without parts the end of the block that takes it.
struct alignas(64) Work {
  Order order;
  u64 ring_slot;
  // The word of `ServeParams.arrived` that counts the batch's parts.
  u32 arrived;
  u16 part, parts;
  // The number of its ticket and 1. Written last.
  u32 ticket;
  // The same, when its block has read it.
  u32 taken, reserved[2];
};

// How a resident grid hands work to its blocks, in the device's memory; the parts lie behind it.
struct alignas(128) WorkQueue {
  // Tickets drawn by blocks.
  u32 drawn, reserved0[31];
  // Tickets given work; the polling warp's.
  u32 given, reserved1[31];
  // The doorbells as far as their batches were given out, where the host's line has them.
  u8 seen[128];
};

struct GetParams {
  PacketRegion packets;
  Index index;
  u64 ring_slot, arrived;
};

struct ServeParams {
  PacketRegion packets;
  Index index;
  u64 doorbells, ring_slots, arrived, queue;
  // Slots of a ring and parts in the queue: powers of two, or the second less 1.
  u32 slots_per_ring, queue_mask, patience_ms, batches_max;
};

struct Op {
  u64 hash;
  u32 location, flags, value_len, key_off;
  u8 key_len, kind, reserved[6];
};

struct UpdateCounts {
  u32 inserted, replaced, removed, absent, evicted, moved, overflowed, arrived;
};

struct UpdateParams {
  Index index;
  u64 ops, keys, totals, counts;
  u32 n, now, launch, reserved;
};

struct DigestParams {
  HashKey key;
  u64 bytes, lengths, hashes, sums;
  u32 n, stride;
};

struct MicroReadParams {
  u64 from, to, sum;
  u32 items, item_bytes, stride, to_stride, lanes, groups, rounds, seed, random, reserved;
};

struct MicroLookupParams {
  Index index;
  u64 keys, results;
  u32 n, now, key_bytes, stride;
};

struct MicroMultiplyParams {
  u64 a, b, to;
  u32 first, rounds, stride, passes;
};

struct MicroPingParams {
  u64 bell, answer;
  u32 answers, patience, pause_ns, reserved;
};

struct MicroEmptyParams {
  u64 runs;
};
