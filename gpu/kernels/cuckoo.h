// The cuckoo index (Mega-KV): 8 cells of 32-bit signature and 32-bit location a bucket, two buckets
// a key, each found from the other and the signature alone.
//
// It knows no keys: a hit may be another key's, and the host checks it. Cells change as a whole.
#pragma once
#include "found.h"
#include "siphash.h"

// Which part of a key's hash is kept in its cell: never 0.
__device__ __forceinline__ u32 signature_of(u64 hash) {
  u32 signature = u32(hash >> 32);
  return signature ? signature : 1;
}

__device__ __forceinline__ u64 cell_of(u32 signature, u32 location) {
  return u64(signature) << 32 | location;
}

// `n_buckets` is a power of two.
__device__ __forceinline__ u32 first_bucket(const CuckooTable &table, u64 hash) {
  return u32(hash) & (table.n_buckets - 1);
}

// The other bucket of a key that may be in this one. The lowest bit always changes: the two are
// never the same, where there are two.
__device__ __forceinline__ u32 other_bucket(const CuckooTable &table, u32 bucket, u32 signature) {
  u32 mixed = signature * 0x9e3779b1u;
  return (bucket ^ ((mixed ^ mixed >> 15) | 1)) & (table.n_buckets - 1);
}

__device__ __forceinline__ Bucket *bucket_at(const CuckooTable &table, u32 bucket) {
  return at<Bucket>(table.buckets) + bucket;
}

// Looks keys up.
struct CuckooSearch {
  enum : bool { KNOWS_VALUES = false, HAS_ROWS = false };

  // Whether `signature` is in this bucket, and then its location.
  static __device__ __forceinline__ bool is_in(const CuckooTable &table, u32 bucket, u32 signature,
                                               u32 &location) {
    const Bucket *cells = bucket_at(table, bucket);
    // All four loads before any of them is looked at.
    uint4 pairs[CELLS / 2];
    for (u32 i = 0; i < CELLS / 2; i++) pairs[i] = load16_relaxed(&cells->cells[2 * i]);
    return first_equal(pairs, signature, location);
  }

  template <class Key>
  static __device__ __forceinline__ Found look_up(const Index &index, u32, const Key &,
                                                  Wide hash, u32) {
    const CuckooTable &table = index.cuckoo;
    if (table.n_buckets == 0) return {HINT_UNKNOWN, 0, nullptr};
    u32 signature = hash.high > 1 ? hash.high : 1, bucket = hash.low & (table.n_buckets - 1);
    u32 location = 0;
    if (is_in(table, bucket, signature, location)) return {HINT_HIT, location, nullptr};
    bucket = other_bucket(table, bucket, signature);
    if (is_in(table, bucket, signature, location)) return {HINT_HIT, location, nullptr};
    return {HINT_MISS, 0, nullptr};
  }
};
