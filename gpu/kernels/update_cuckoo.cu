// Changes of the cuckoo index, beside running searches and each other. A thread an operation.
//
// Cells change by compare-and-swap, from what was read to what it should be; whoever comes second
// looks again. A cell that moves is in both of its buckets for a moment, never in none.
#include "cuckoo.h"
#include "update.h"

// Times that an operation starts again because of others.
enum : u32 { ATTEMPTS_MAX = 16 };
// Longest way of cells that move along for one insertion.
enum : u32 { PATH_MAX = 32 };

// A cell that is to move to its other bucket.
struct Step {
  u64 *cell;
  u64 content;
};

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

// Moves each step's content to the cell of the next one, the last to `empty`, from the end on, and
// puts `content` in the first. False: somebody else changed one of the cells; nothing is lost.
__device__ inline bool move_along(const Step *path, u32 n, u64 *empty, u64 content,
                                  UpdateCounts *counts) {
  u64 *to = empty, *copy = nullptr;
  u64 before = 0;
  for (u32 i = n;; i--) {
    if (!swap_cell(to, before, i > 0 ? path[i - 1].content : content)) {
      // What was to make room here stays here; its copy is too much.
      if (copy) swap_cell(copy, before, 0);
      return false;
    }
    if (i == 0) return true;
    count(&counts->moved);
    copy = to;
    to = path[i - 1].cell;
    before = path[i - 1].content;
  }
}

// Makes room in `bucket` by moving cells to their other buckets, one after the other, until one of
// them finds an empty cell. False: none did, or others came between.
__device__ inline bool make_room(const CuckooTable &table, u32 bucket, u64 content, u32 draw,
                                 UpdateCounts *counts) {
  Step path[PATH_MAX];
  u32 longest = table.kicks_max < PATH_MAX ? table.kicks_max : u32(PATH_MAX);
  for (u32 n = 0; n < longest; n++) {
    draw = draw * 1664525u + 1013904223u;
    u64 *cell = &bucket_at(table, bucket)->cells[draw >> 29];
    path[n] = {cell, load_relaxed(cell)};
    // It has become empty meanwhile.
    if (path[n].content == 0) return move_along(path, n, cell, content, counts);
    bucket = other_bucket(table, bucket, signature_in(path[n].content));
    u64 seen;
    u64 *empty = find_cell(bucket_at(table, bucket), 0, seen);
    if (empty && seen == 0) return move_along(path, n + 1, empty, content, counts);
  }
  return false;
}

__device__ inline void put(const CuckooTable &table, const Op &op, UpdateCounts *counts) {
  u32 signature = signature_of(op.hash);
  u64 content = cell_of(signature, op.location), seen;
  u32 buckets[2] = {first_bucket(table, op.hash), 0};
  buckets[1] = other_bucket(table, buckets[0], signature);
  for (u32 attempt = 0; attempt < ATTEMPTS_MAX; attempt++) {
    for (u32 b = 0; b < 2; b++) {
      u64 *same = find_cell(bucket_at(table, buckets[b]), signature, seen);
      if (same && swap_cell(same, seen, content)) return count(&counts->replaced);
    }
    for (u32 b = 0; b < 2; b++) {
      u64 *empty = find_cell(bucket_at(table, buckets[b]), 0, seen);
      if (empty && swap_cell(empty, seen, content)) return count(&counts->inserted);
    }
    u32 draw = u32(op.hash) ^ attempt * 0x9e3779b1u;
    if (make_room(table, buckets[draw >> 31], content, draw, counts))
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

KERNEL(update_cuckoo, UpdateParams, UPDATE_THREADS) {
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
