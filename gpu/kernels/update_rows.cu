// Changes of rows, beside running searches. A warp an operation; the host says which way, and names
// each at most once in a launch.
#include "update.h"

// Writes a row: of the pieces that its text fills, a lane each.
__device__ __forceinline__ void put_row(const RowTable &table, const Op &op, const u8 *from, u32 lane) {
  u8 *row = at<u8>(table.rows) + u64(op.location) * sizeof(Row);
  if (16 * lane >= op.value_len || lane >= sizeof(Row) / 16) return;
  uint4 piece = load16(from + 16 * lane);
  u64 *to = reinterpret_cast<u64 *>(row + 16 * lane);
  store_relaxed(to, wide(piece.x, piece.y));
  store_relaxed(to + 1, wide(piece.z, piece.w));
}

KERNEL(update_rows, UpdateParams, UPDATE_THREADS, UPDATE_BLOCKS_AT_ONCE) {
  if (p.n == 0) return;
  UpdateCounts *counts = begin_counts();
  const RowTable &table = p.index.rows;
  u32 *signatures = at<u32>(table.signatures), ways = table.n_sets * WAYS;
  u32 lane = threadIdx.x % 32, warps = gridDim.x * (UPDATE_THREADS / 32);
  for (u32 i = blockIdx.x * (UPDATE_THREADS / 32) + threadIdx.x / 32; i < p.n; i += warps) {
    Op op = load_op(p, i);
    if (op.location >= ways) continue;
    if (op.kind == OP_CLEAR) {
      u32 n = ways - op.location < op.value_len ? ways - op.location : op.value_len;
      for (u32 way = lane; way < n; way += 32) store_relaxed(signatures + op.location + way, 0u);
      continue;
    }
    if (lane == 0) store_relaxed(signatures + op.location, 0u);
    if (op.kind == OP_PUT) {
      put_row(table, op, at<const u8>(p.keys) + op.key_off, lane);
      __threadfence();
      __syncwarp();
      if (lane == 0) store_relaxed(signatures + op.location, op.flags);
    }
    if (lane == 0)
      count(op.kind != OP_PUT ? &counts->removed
            : op.key_len      ? &counts->replaced
                              : &counts->inserted);
  }
  end_counts(p, counts);
}
