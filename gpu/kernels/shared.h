// What the warps of a block of a GET kernel share.
#pragma once
#include "head.h"
#include "packet.h"
#include "parse.h"

enum : u32 { GET_THREADS = 256, GET_REQUESTS = GET_THREADS / 2, HELPERS = GET_REQUESTS / 32 };
// Words from one descriptor to the next, with four that keep lanes which store 16 bytes each in
// different banks.
enum : u32 { DESC_WORDS = 20 };

// A key to be looked up, as `others.h` says.
struct alignas(8) Asked {
  u32 key, desc;
};

// Keys of a helper warp's requests, and where they end; and which lanes' texts are longer than what is
// staged: a bit each.
struct AskedList {
  Asked keys[32 * u32(KEYS_MAX)];
  u32 end, longs;
};

// Texts that are longer than the staged line, of a helper warp's requests that are not plain: from the
// chunk of 16 bytes on that their UDP header begins in. A row has a word more, as the frames' have.
enum : u32 { TEXTS = 8, TEXT_BYTES = 320, TEXT_CHUNKS = TEXT_BYTES / 16 };
enum : u32 { TEXT_WORDS = TEXT_BYTES / 4 + 1 };

struct Others {
  AskedList lists[HELPERS];
  u32 texts[HELPERS][TEXTS][TEXT_WORDS];
};

// What the head of a hit's reply is made of, besides its request.
struct HitFacts {
  u32 flags[GET_REQUESTS], value_lens[GET_REQUESTS];
};

struct GetShared {
  // `mark` is then the reason of what is wrong with its checksums, whatever its descriptor says.
  Entry entries[GET_REQUESTS];
  u32 frames[GET_REQUESTS][ROW_WORDS];
  alignas(16) u32 descs[GET_REQUESTS][DESC_WORDS];
  union {
    u32 heads[GET_REQUESTS][HEAD_WORDS];
    // Before that, of requests that are not plain.
    Others others;
  };
  // Of a hit, if heads are wanted.
  HitFacts hits;
  // What one thread read for all.
  Work work;
};
static_assert(sizeof(GetShared) == GET_SHARED_BYTES, "the launch gives as much");
static_assert(sizeof(Entry) == 12 && sizeof(ReqDesc) == 64, "copied by words");

// What lies where in it.
constexpr u32 ROW_BYTES = 4 * ROW_WORDS, DESC_BYTES = 4 * DESC_WORDS;
constexpr u32 FRAMES_AT = u32(sizeof(Entry)) * GET_REQUESTS;
constexpr u32 DESCS_AT = FRAMES_AT + ROW_BYTES * GET_REQUESTS;
constexpr u32 LISTS_AT = DESCS_AT + DESC_BYTES * GET_REQUESTS;
constexpr u32 TEXTS_AT = LISTS_AT + HELPERS * u32(sizeof(AskedList)), TEXT_ROW_BYTES = 4 * TEXT_WORDS;
static_assert(GET_SHARED_BYTES < 63 << 10, "addresses of 16 bits, wherever it begins");
