// The byte layouts shared with the host. gpu/src/layout.rs and gpu/src/params.rs say what the
// fields mean; the tables in gpu/src/layout_check.rs compare every offset.
#pragma once
#include "platform.h"

enum : u32 { KEYS_MAX = 6, HEAD_BYTES_MAX = 116, WAYS = 16, TABLES = 5, CELLS = 8 };
// Shared memory of a block, as launches give it.
enum : u32 { GET_SHARED_BYTES = 45584, DIGEST_SHARED_BYTES = 16896 };

// Entry.flags
enum : u8 { ENTRY_IPV6 = 1, ENTRY_IP_GOOD = 2, ENTRY_UDP_GOOD = 4, ENTRY_LIMITED = 8 };
// ReqDesc.verdict
enum : u8 { VERDICT_SLOW = 0, VERDICT_READY = 1, VERDICT_BAD = 2, VERDICT_HINTED = 3 };
// ReqDesc.reason
enum : u8 {
  REASON_NONE = 0,
  REASON_IP_CHECKSUM = 1,
  REASON_UDP_CHECKSUM = 2,
  REASON_FRAME_SHORT = 3,
  REASON_FRAME_MULTIPART = 4,
};
// ReqDesc.verb
enum : u8 { VERB_GET = 0, VERB_GETS = 1 };
// KeyDesc.hint
enum : u8 { HINT_UNKNOWN = 0, HINT_HIT = 1, HINT_MISS = 2 };
// Op.kind
enum : u8 { OP_PUT = 0, OP_REMOVE = 1 };

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
  // Not 0 while an update is at work here. Searches leave it alone.
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

struct Index {
  HashKey key;
  SetTable tables[TABLES];
  CuckooTable cuckoo;
};

struct alignas(64) Place {
  u64 entries, descs, heads;
  u32 n, now, rung, reserved0[7];
  u32 done, reserved1[15];
};

struct GetParams {
  PacketRegion packets;
  Index index;
  u64 place, arrived;
};

struct ServeParams {
  PacketRegion packets;
  Index index;
  u64 places, arrived, control;
  u32 n_places, blocks_per_place;
};

struct alignas(64) Control {
  u32 stop, beat, exit_after, patience;
};

struct Op {
  u64 hash;
  u32 location, flags, value_len, key_off;
  u8 key_len, kind, reserved[6];
};

struct UpdateCounts {
  u32 inserted, replaced, removed, absent, evicted, moved, overflowed, reserved;
};

struct UpdateParams {
  Index index;
  u64 ops, keys, counts;
  u32 n, now;
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

struct MicroPingParams {
  u64 bell, answer;
  u32 answers, patience, pause_ns, reserved;
};

struct MicroEmptyParams {
  u64 runs;
};
