// Changes of the cuckoo index, beside running searches and each other. A thread an operation.
//
// Cells change by compare-and-swap, from what was read to what it should be; whoever comes second
// looks again. A cell that moves is in both of its buckets for a moment, never in none.
#include "cuckoo.h"
#include "update.h"

// Times that an operation starts again because of others.
enum : u32 { ATTEMPTS_MAX = 16 };
// Longest way of cells that move along for one insertion. It is all that a thread keeps in local
// memory, 4 bytes a cell.
enum : u32 { PATH_MAX = 32 };

__device__ __forceinline__ u32 signature_in(u64 cell) { return u32(cell >> 32); }

// The first cell of the bucket with this signature (0: an empty one) and its content, or null.
__device__ inline u64 *find_cell(Bucket *bucket, u32 signature, u64 &content) {
  for (u32 i = 0; i < CELLS; i++) {
    content = load_relaxed(&bucket->cells[i]);
    if (signature_in(content) == signature) return &bucket->cells[i];
  }
  return nullptr;
}

__device__ __forceinline__ bool swap_cell(u64 *cell, u64 from, u64 to) {
  return atomicCAS(cell, from, to) == from;
}

// Puts `content` in an empty cell of the bucket. False: there is none.
__device__ inline bool fill(Bucket *bucket, u64 content) {
  NO_UNROLL
  for (u32 i = 0; i < CELLS; i++) {
    u64 *cell = &bucket->cells[i];
    // Where another thread comes first, the next one may be empty as well.
    if (load_relaxed(cell) == 0 && swap_cell(cell, 0, content)) return true;
  }
  return false;
}

// A path of cells that make room for one insertion is known by the draw, which says what cell of
// its bucket each is, and by their signatures, each of which says where the next bucket is.
__device__ __forceinline__ u64 *cell_of_path(const CuckooTable &table, u32 bucket, u32 draw,
                                             u32 step) {
  u32 number = (draw + step * 0x9e3779b1u) * 0x85ebca6bu >> 29;
  return &bucket_at(table, bucket)->cells[number];
}

// Moves the content of each of a path's `n` cells to the next one, the last one's to `empty` in
// `bucket`, from the end on, and puts `content` in the first. False: somebody else changed one of
// the cells; nothing is lost.
__device__ inline bool move_along(const CuckooTable &table, u32 draw, const u32 *signatures, u32 n,
                                  u32 bucket, u64 *empty, u64 content, UpdateCounts *counts) {
  // What is in `to`, and in `copy` as well.
  u64 *to = empty, *copy = nullptr, before = 0;
  NO_UNROLL
  for (u32 i = n; i > 0; i--) {
    u32 signature = signatures[i - 1];
    bucket = other_bucket(table, bucket, signature);
    u64 *from = cell_of_path(table, bucket, draw, i - 1), moving = load_relaxed(from);
    if (signature_in(moving) != signature || !swap_cell(to, before, moving)) {
      // What was to make room here stays here; its copy is too much.
      if (copy) swap_cell(copy, before, 0);
      return false;
    }
    count(&counts->moved);
    copy = to;
    to = from;
    before = moving;
  }
  if (swap_cell(to, before, content)) return true;
  if (copy) swap_cell(copy, before, 0);
  return false;
}

// Makes room in `bucket` by moving cells to their other buckets, one after the other, until one of
// them finds an empty cell. False: none did, or others came between.
__device__ inline bool make_room(const CuckooTable &table, u32 bucket, u64 content, u32 draw,
                                 UpdateCounts *counts) {
  u32 signatures[PATH_MAX];
  u32 longest = table.kicks_max < PATH_MAX ? table.kicks_max : u32(PATH_MAX);
  NO_UNROLL
  for (u32 n = 0; n < longest; n++) {
    u64 *cell = cell_of_path(table, bucket, draw, n), seen = load_relaxed(cell);
    // It has become empty meanwhile.
    if (seen == 0)
      return move_along(table, draw, signatures, n, bucket, cell, content, counts);
    signatures[n] = signature_in(seen);
    bucket = other_bucket(table, bucket, signatures[n]);
    u64 *empty = find_cell(bucket_at(table, bucket), 0, seen);
    if (empty && seen == 0)
      return move_along(table, draw, signatures, n + 1, bucket, empty, content, counts);
  }
  return false;
}

__device__ inline void put(const CuckooTable &table, const Op &op, UpdateCounts *counts) {
  u32 signature = signature_of(op.hash);
  u64 content = cell_of(signature, op.location), seen;
  u32 buckets[2] = {first_bucket(table, op.hash), 0};
  buckets[1] = other_bucket(table, buckets[0], signature);
  NO_UNROLL
  for (u32 attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    for (u32 b = 0; b < 2; b++) {
      u64 *same = find_cell(bucket_at(table, buckets[b]), signature, seen);
      if (same && swap_cell(same, seen, content)) return count(&counts->replaced);
    }
    for (u32 b = 0; b < 2; b++)
      if (fill(bucket_at(table, buckets[b]), content)) return count(&counts->inserted);
    u32 draw = u32(op.hash) ^ attempt * 0x9e3779b1u;
    if (make_room(table, draw >> 31 ? buckets[1] : buckets[0], content, draw, counts))
      return count(&counts->inserted);
  }
  count(&counts->overflowed);
}

__device__ inline void remove(const CuckooTable &table, const Op &op, UpdateCounts *counts) {
  u32 signature = signature_of(op.hash), bucket = first_bucket(table, op.hash);
  bool any = false;
  for (u32 b = 0; b < 2; b++) {
    for (u32 i = 0; i < CELLS; i++) {
      u64 *cell = &bucket_at(table, bucket)->cells[i], seen = load_relaxed(cell);
      if (signature_in(seen) == signature) any |= swap_cell(cell, seen, 0);
    }
    bucket = other_bucket(table, bucket, signature);
  }
  count(any ? &counts->removed : &counts->absent);
}

KERNEL(update_cuckoo, UpdateParams, UPDATE_THREADS, UPDATE_BLOCKS_AT_ONCE) {
  if (p.n == 0) return;
  const CuckooTable &table = p.index.cuckoo;
  UpdateCounts *counts = begin_counts();
  for (u32 i = blockIdx.x * UPDATE_THREADS + threadIdx.x; i < p.n;
       i += gridDim.x * UPDATE_THREADS) {
    Op op = load_op(p, i);
    if (table.n_buckets == 0)
      count(op.kind == OP_PUT ? &counts->overflowed : &counts->absent);
    else if (op.kind == OP_PUT)
      put(table, op, counts);
    else
      remove(table, op, counts);
  }
  end_counts(p, counts);
}
