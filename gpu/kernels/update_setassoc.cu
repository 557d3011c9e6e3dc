// Changes of the set-associative index, beside running searches. A warp an operation: one lane a
// way to find it, all lanes to copy the key. Sets are locked against other updates, not against
// searches.
//
// A way is empty while its key changes, so a search finds the old key, nothing, or the new key.
#include "setassoc.h"
#include "update.h"

// Turns of waiting for a lock: some 0.3 s, far more than all updates of a launch take.
enum : u32 { LOCK_TURNS_MAX = 1 << 16, LOCK_TURN_NS = 4000 };

// A set is locked while its lock is the number of this launch. All else is free: launches run one
// after the other, and no warp ends while it holds a lock, so that what another launch left there
// is nobody's. A holder waits for nothing but its own warp, so its lock is never taken from it.
//
// The whole warp takes part. False: the lock is not to be had, as only damaged memory is.
__device__ inline bool lock_set(Set *set, u32 launch, u32 lane) {
  bool held = false;
  if (lane == 0) {
    NO_UNROLL
    for (u32 turn = 0; !held && turn < LOCK_TURNS_MAX; turn++) {
      u32 seen = load_relaxed(&set->lock);
      held = seen != launch && atomicCAS(&set->lock, seen, launch) == seen;
      if (!held) __nanosleep(LOCK_TURN_NS);
    }
    __threadfence();
  }
  return __any_sync(~0u, held);
}

// The whole warp takes part.
__device__ inline void unlock_set(Set *set, u32 lane) {
  __threadfence();
  __syncwarp();
  if (lane == 0) atomicExch(&set->lock, 0u);
  __syncwarp();
}

__device__ __forceinline__ u32 key_word(const u8 *key, u32 len, u32 from) {
  u32 word = 0;
  for (u32 i = 0; i < 4 && from + i < len; i++) word |= u32(key[from + i]) << 8 * i;
  return word;
}

// The way of the key, or WAYS. Each of the first lanes looks at its own.
__device__ inline u32 find_way(const SetView &view, u32 tag, const u8 *key, u32 len, u32 lane) {
  bool same = lane < WAYS && (ways_with_tag(view.set, tag) >> lane & 1);
  if (same) {
    const Way *way = reinterpret_cast<const Way *>(view.way(lane));
    const u32 *words = reinterpret_cast<const u32 *>(way + 1);
    same = load_relaxed(&way->key_len) == len;
    for (u32 i = 0; same && 4 * i < len; i++)
      same = !differ(load_relaxed(words + i), key_word(key, len, 4 * i), 4 * i, len);
  }
  u32 ways = __ballot_sync(~0u, same);
  return ways ? u32(__ffs(int(ways)) - 1) : u32(WAYS);
}

// An empty way, or the one that was found longest ago. All ways are in use in the second case.
__device__ inline u32 choose_way(const Set *set, u32 now, u32 lane, bool &evicts) {
  u32 empty = ways_with_tag(set, 0);
  evicts = empty == 0;
  if (!evicts) return u32(__ffs(int(empty)) - 1);
  u32 age = lane < WAYS ? (now - load_relaxed(&set->stamps[lane])) & 0xffff : 0;
  // The oldest; of several the last.
  u32 oldest = age << 4 | lane % WAYS;
  for (int step = 16; step > 0; step /= 2) {
    u32 other = __shfl_xor_sync(~0u, oldest, step);
    if (other > oldest) oldest = other;
  }
  return oldest % WAYS;
}

// All lanes take part; the set is locked.
__device__ inline void put(const SetView &view, const Op &op, const u8 *key, u32 now, u32 lane,
                           UpdateCounts *counts) {
  u32 tag = tag_of(op.hash), len = op.key_len;
  u32 chosen = find_way(view, tag, key, len, lane);
  bool is_new = chosen == WAYS, evicts = false;
  if (is_new) {
    chosen = choose_way(view.set, now, lane, evicts);
    if (lane == 0) store_relaxed(&view.set->tags[chosen], u8(0));
    __threadfence();
    __syncwarp();
    u32 *words = reinterpret_cast<u32 *>(view.way(chosen) + sizeof(Way));
    for (u32 i = lane; 4 * i < len; i += 32) store_relaxed(words + i, key_word(key, len, 4 * i));
  }
  if (lane == 0) {
    Way *way = reinterpret_cast<Way *>(view.way(chosen));
    store_relaxed(&way->flags, op.flags);
    store_relaxed(&way->value_len, op.value_len);
    store_relaxed(&way->key_len, len);
    store_relaxed(&view.set->locations[chosen], op.location);
    store_relaxed(&view.set->stamps[chosen], u16(now));
  }
  // Before the tag says that it is there, all of it is.
  __threadfence();
  __syncwarp();
  if (lane != 0) return;
  store_relaxed(&view.set->tags[chosen], u8(tag));
  count(is_new ? &counts->inserted : &counts->replaced);
  if (evicts) count(&counts->evicted);
}

// Whether the way holds a key of this hash. Its set is locked, so that its key stays.
__device__ inline bool has_hash(const HashKey &key, const SetView &view, u32 key_max, u32 i,
                                u64 hash) {
  const u8 *way = view.way(i);
  u32 len = reinterpret_cast<const Way *>(way)->key_len;
  if (len > key_max) return false;
  Frame frame = {reinterpret_cast<const u32 *>(way), way, u32(sizeof(Way)), len};
  return siphash(key, frame, 0, len) == hash;
}

// Takes out the key of this hash, whatever key it is: of tables for any length.
__device__ inline void remove(const UpdateParams &p, u64 hash, u32 lane, UpdateCounts *counts) {
  const Index &index = p.index;
  u32 removed = 0;
  bool shut = false;
  NO_UNROLL
  for (u32 t = 0; t < TABLES; t++) {
    const SetTable &table = index.tables[t];
    if (table.n_sets == 0) continue;
    SetView view = set_in(table, u32(hash >> 32));
    u32 tagged = ways_with_tag(view.set, tag_of(hash));
    if (!__any_sync(~0u, tagged != 0)) continue;
    if (!lock_set(view.set, p.launch, lane)) {
      shut = true;
      continue;
    }
    tagged = ways_with_tag(view.set, tag_of(hash));
    bool mine = lane < WAYS && (tagged >> lane & 1) &&
                has_hash(index.key, view, table.key_max, lane, hash);
    if (mine) store_relaxed(&view.set->tags[lane], u8(0));
    removed |= __ballot_sync(~0u, mine);
    unlock_set(view.set, lane);
  }
  if (lane != 0) return;
  count(removed ? &counts->removed : shut ? &counts->overflowed : &counts->absent);
}

KERNEL(update_setassoc, UpdateParams, UPDATE_THREADS, UPDATE_BLOCKS_AT_ONCE) {
  if (p.n == 0) return;
  UpdateCounts *counts = begin_counts();
  u32 lane = threadIdx.x % 32, warps = gridDim.x * (UPDATE_THREADS / 32);
  for (u32 i = blockIdx.x * (UPDATE_THREADS / 32) + threadIdx.x / 32; i < p.n; i += warps) {
    Op op = load_op(p, i);
    if (op.kind != OP_PUT) {
      remove(p, op.hash, lane, counts);
      continue;
    }
    const u8 *key = at<const u8>(p.keys) + op.key_off;
    SetView view = find_set(p.index, op.hash, op.key_len);
    if (!view.set || !lock_set(view.set, p.launch, lane)) {
      // Left to the host.
      if (lane == 0) count(&counts->overflowed);
      continue;
    }
    put(view, op, key, p.now, lane, counts);
    unlock_set(view.set, lane);
  }
  end_counts(p, counts);
}
