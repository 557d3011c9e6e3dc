//! The store's own numbers, for `stats`, `stats items`, `stats slabs` and the metrics.
//!
//! Commands, hits and misses are counted by the workers that serve them. Gathering locks one size class
//! after the other, so the sums are of almost the same moment. Never fails.

use super::Store;
use driver_shim::MemoryKind;
use std::sync::atomic::Ordering;

/// The store's numbers. Counts are since start-up unless they say what is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStats {
    /// Items there now, expired ones included until they are found.
    pub curr_items: u64,
    /// Items ever stored.
    pub total_items: u64,
    /// Bytes of headers, keys and values there now.
    pub bytes: u64,
    /// Memory for items.
    pub limit_maxbytes: u64,
    /// Live items removed to make room.
    pub evictions: u64,
    /// Of these, never read.
    pub evicted_unfetched: u64,
    /// Of these, read since the hand last came by.
    pub evicted_active: u64,
    /// Expired items removed.
    pub reclaimed: u64,
    /// Of these, never read.
    pub expired_unfetched: u64,
    /// Of the evictions, those by the mover, which empties pages.
    pub evicted_by_mover: u64,
    /// Items that the mover took out of such a page and put elsewhere.
    pub rescued: u64,
    /// Items that the evicting hand left for another round.
    pub spared: u64,
    /// Items that the sweeper looked at.
    pub swept: u64,
    /// Of these, dead ones, which it removed.
    pub swept_out: u64,
    /// Rounds of the sweeper.
    pub sweeps: u64,
    /// A round of the sweeper that was requested is not at its end yet.
    pub sweeping: bool,
    /// Turns of housekeeping.
    pub turns: u64,
    /// A page is on its way from one class to another.
    pub moving: bool,
    /// Items refused for lack of memory.
    pub out_of_memory: u64,
    /// Chunks whose item is gone and that a pinned reader may still see.
    pub limbo_chunks: u64,
    /// Epochs that the reader furthest behind is behind: none of these chunks is used again before
    /// it moves on.
    pub epoch_lag: u64,
    /// Slab pages in all.
    pub pages_total: u64,
    /// Slab pages that belong to no class.
    pub pages_free: u64,
    /// Slab pages taken from a class for others.
    pub pages_moved: u64,
    /// Index slots; their use is `curr_items`.
    pub index_slots: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// What the items lie in.
    pub item_memory: MemoryKind,
    /// What the index lies in.
    pub index_memory: MemoryKind,
    /// The size classes that have pages, smallest first.
    pub classes: Vec<ClassStats>,
}

/// One size class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassStats {
    /// Number of the class, from 1, as memcached counts.
    pub class: u32,
    /// Bytes of a chunk.
    pub chunk_size: u64,
    /// Chunks in a page.
    pub chunks_per_page: u64,
    /// Pages of the class.
    pub total_pages: u64,
    /// Chunks in those.
    pub total_chunks: u64,
    /// Items there now.
    pub curr_items: u64,
    /// Chunks that hold an item, or a part of a large one.
    pub used_chunks: u64,
    /// Chunks waiting for their epoch to pass.
    pub limbo_chunks: u64,
    /// Bytes of headers, keys and values.
    pub mem_requested: u64,
    /// As in [`StoreStats::total_items`].
    pub total_items: u64,
    /// As in [`StoreStats::evictions`].
    pub evicted: u64,
    /// As in [`StoreStats::evicted_unfetched`].
    pub evicted_unfetched: u64,
    /// As in [`StoreStats::evicted_active`].
    pub evicted_active: u64,
    /// Of the evicted, those that would have expired one day.
    pub evicted_expiring: u64,
    /// Seconds for which the item evicted last had not been read.
    pub evicted_idle_seconds: u64,
    /// As in [`StoreStats::evicted_by_mover`].
    pub evicted_by_mover: u64,
    /// As in [`StoreStats::rescued`].
    pub rescued: u64,
    /// As in [`StoreStats::spared`].
    pub spared: u64,
    /// As in [`StoreStats::swept`].
    pub swept: u64,
    /// As in [`StoreStats::swept_out`].
    pub swept_out: u64,
    /// Seconds for which an item that is soon to be evicted has not been read.
    pub age_seconds: u64,
    /// As in [`StoreStats::reclaimed`].
    pub reclaimed: u64,
    /// As in [`StoreStats::expired_unfetched`].
    pub expired_unfetched: u64,
    /// As in [`StoreStats::out_of_memory`].
    pub out_of_memory: u64,
}

/// Chunks looked at, a class, for an old item.
const AGE_CHUNKS: u32 = 64;

impl Store {
    /// The numbers now. Allocates, and locks each size class in turn: not for the data path.
    pub fn stats(&self) -> StoreStats {
        let all: Vec<ClassStats> = self
            .slabs
            .class_ids()
            .map(|id| {
                let (size, mut c) = (self.slabs.size(id), self.slabs.lock(id));
                let oldest = self.slabs.oldest_access(&mut c, AGE_CHUNKS);
                ClassStats {
                    class: u32::from(id.0) + 1,
                    chunk_size: size.bytes() as u64,
                    chunks_per_page: u64::from(size.per_page),
                    total_pages: u64::from(c.pages),
                    total_chunks: u64::from(c.chunks()),
                    curr_items: u64::from(c.used - c.parts),
                    used_chunks: u64::from(c.used),
                    limbo_chunks: u64::from(c.in_limbo()),
                    mem_requested: c.tally.bytes,
                    total_items: c.tally.stored.saturating_sub(c.stored_before),
                    evicted: c.tally.evicted,
                    evicted_unfetched: c.tally.evicted_unfetched,
                    evicted_active: c.tally.evicted_active,
                    evicted_expiring: c.tally.evicted_expiring,
                    evicted_idle_seconds: c.tally.evicted_idle_seconds,
                    evicted_by_mover: c.tally.evicted_by_mover,
                    rescued: c.tally.rescued,
                    spared: c.tally.spared,
                    swept: c.tally.swept,
                    swept_out: c.tally.swept_out,
                    age_seconds: oldest.map_or(0, |t| self.now().saturating_sub(t).into()),
                    reclaimed: c.tally.expired,
                    expired_unfetched: c.tally.expired_unfetched,
                    out_of_memory: c.tally.out_of_memory,
                }
            })
            .collect();
        let mover = self.mover.lock();
        let (pages_moved, moving) = (mover.pages_moved, mover.is_busy());
        drop(mover);
        let sum = |of: fn(&ClassStats) -> u64| all.iter().map(of).sum();
        // In two statements: a lock is held to the end of one.
        let sweeps = self.sweeper.lock().rounds;
        let sweeping = self.is_round_owed();
        StoreStats {
            curr_items: sum(|c| c.curr_items),
            total_items: sum(|c| c.total_items),
            bytes: sum(|c| c.mem_requested),
            limit_maxbytes: self.limit_bytes() as u64,
            evictions: sum(|c| c.evicted),
            evicted_unfetched: sum(|c| c.evicted_unfetched),
            evicted_active: sum(|c| c.evicted_active),
            reclaimed: sum(|c| c.reclaimed),
            expired_unfetched: sum(|c| c.expired_unfetched),
            evicted_by_mover: sum(|c| c.evicted_by_mover),
            rescued: sum(|c| c.rescued),
            spared: sum(|c| c.spared),
            swept: sum(|c| c.swept),
            swept_out: sum(|c| c.swept_out),
            sweeps,
            sweeping,
            turns: self.turns.load(Ordering::Relaxed),
            moving,
            out_of_memory: sum(|c| c.out_of_memory),
            limbo_chunks: sum(|c| c.limbo_chunks),
            epoch_lag: self.epochs.lag(),
            pages_total: u64::from(self.slabs.n_pages()),
            pages_free: u64::from(self.slabs.free_pages(&self.epochs)),
            pages_moved,
            index_slots: self.index.slots() as u64,
            index_bytes: self.index.len_bytes() as u64,
            item_memory: self.slabs.arena().kind(),
            index_memory: self.index.kind(),
            classes: all.into_iter().filter(|c| c.total_pages > 0 || c.total_items > 0).collect(),
        }
    }
}
