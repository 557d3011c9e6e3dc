//! `stats items` and `stats slabs`: what became of the items of each size class, and where its memory is.
//!
//! In: the store's numbers by class, and the hits by class that the threads count. Out: two
//! pages, in which all that is not of the one LRU segment there is, the class's ring of chunks, is 0.
//! Never fails.

use super::rows::Rows;
use crate::counters::Counter;
use std::fmt;
use store::{PAGE_BYTES, StoreStats};

/// Size classes that there can be.
const CLASSES_MAX: usize = 256;

macro_rules! class_counters {
    ($($(#[doc = $doc:literal])* $name:ident)*) => {
        /// What one thread has done to items of one size class. One cache line.
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub(super) struct OneClass { $($(#[doc = $doc])* $name: Counter,)* }

        /// The sum over all threads.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
        pub struct ClassCount { $($(#[doc = $doc])* pub $name: u64,)* }

        impl ClassCount {
            fn add(&mut self, one: &OneClass) { $(self.$name += one.$name.get();)* }

            pub(super) fn subtract(&mut self, before: &Self) {
                $(self.$name = self.$name.saturating_sub(before.$name);)*
            }

            fn rows(&self, class: u32, rows: &mut impl Rows) {
                $(rows.row(&format!("{class}:{}", stringify!($name)), &self.$name);)*
            }
        }

        impl ClassOps {
            $($(#[doc = $doc])*
            ///
            /// In the size class with this number, from 0.
            #[inline]
            pub fn $name(&self, class: usize) {
                if let Some(one) = self.0.get(class) {
                    one.$name.inc();
                }
            })*
        }
    };
}

/// What one thread has done to items, by size class. That thread alone counts here.
#[derive(Debug)]
pub struct ClassOps(Box<[OneClass; CLASSES_MAX]>);

class_counters! {
    /// Found by a get.
    get_hits
    /// Stored, or meant to be.
    cmd_set
    /// Deleted.
    delete_hits
    /// Incremented.
    incr_hits
    /// Decremented.
    decr_hits
    /// Replaced by a store with their CAS id.
    cas_hits
    /// Not replaced by a store with another CAS id.
    cas_badval
    /// Given a new exptime.
    touch_hits
}

impl Default for ClassOps {
    fn default() -> Self {
        Self(Box::new(std::array::from_fn(|_| OneClass::default())))
    }
}

impl ClassOps {
    pub(super) fn add_to(&self, totals: &mut [ClassCount]) {
        for (total, one) in totals.iter_mut().zip(self.0.iter()) {
            total.add(one);
        }
    }
}

/// Per size class, what became of its items.
pub(super) fn items(store: &StoreStats, ops: &[ClassCount], rows: &mut impl Rows) {
    for c in store.classes.iter().filter(|c| c.curr_items > 0) {
        let hits = ops.get(c.class as usize - 1).map_or(0, |o| o.get_hits);
        for (name, value) in [
            ("number", c.curr_items),
            ("number_hot", 0),
            ("number_warm", 0),
            ("number_cold", c.curr_items),
            ("age_hot", 0),
            ("age_warm", 0),
            ("age", c.age_seconds),
            ("mem_requested", c.mem_requested),
            ("evicted", c.evicted),
            ("evicted_nonzero", c.evicted_expiring),
            ("evicted_time", c.evicted_idle_seconds),
            ("outofmemory", c.out_of_memory),
            ("tailrepairs", 0),
            ("reclaimed", c.reclaimed),
            ("expired_unfetched", c.expired_unfetched),
            ("evicted_unfetched", c.evicted_unfetched),
            ("evicted_active", c.evicted_active),
            ("crawler_reclaimed", c.swept_out),
            ("crawler_items_checked", c.swept),
            ("lrutail_reflocked", 0),
            ("moves_to_cold", 0),
            ("moves_to_warm", 0),
            ("moves_within_lru", c.spared),
            ("direct_reclaims", c.evicted.saturating_sub(c.evicted_by_mover)),
            ("hits_to_hot", 0),
            ("hits_to_warm", 0),
            ("hits_to_cold", hits),
            ("hits_to_temp", 0),
        ] {
            rows.row(&format!("items:{}:{name}", c.class), &value);
        }
    }
}

/// Per size class, where the memory is, and what was done there: since counting last began, and in
/// all.
pub(super) fn slabs(
    store: &StoreStats,
    ops: &[ClassCount],
    totals: &[ClassCount],
    rows: &mut impl Rows,
) {
    let with_pages = || store.classes.iter().filter(|c| c.total_pages > 0);
    // A class that gave all pages back is listed on, with what was counted: sums over classes never
    // go back.
    let counted = |class: u32| {
        totals.get(class as usize - 1).is_some_and(|count| *count != ClassCount::default())
    };
    for c in store.classes.iter().filter(|c| c.total_pages > 0 || counted(c.class)) {
        let mut row =
            |name, value: &dyn fmt::Display| rows.row(&format!("{}:{name}", c.class), value);
        row("chunk_size", &c.chunk_size);
        row("chunks_per_page", &c.chunks_per_page);
        row("total_pages", &c.total_pages);
        row("total_chunks", &c.total_chunks);
        row("used_chunks", &c.used_chunks);
        row("free_chunks", &c.total_chunks.saturating_sub(c.used_chunks));
        // memcached's count of chunks never used since their page came; it too says 0.
        row("free_chunks_end", &0);
        if let Some(ops) = ops.get(c.class as usize - 1) {
            ops.rows(c.class, rows);
        }
    }
    rows.row("active_slabs", &with_pages().count());
    let pages: u64 = with_pages().map(|c| c.total_pages).sum();
    rows.row("total_malloced", &(pages * PAGE_BYTES as u64));
}
