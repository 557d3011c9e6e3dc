//! What clients with a mapping of the memory file must know to read items there (docs/shared-reads.md).
//!
//! In: what changes: the clock, flushes, pages that leave a class, the end. Out: the words of the
//! file's lead that say so (`base::memory_file`), each written before what it says can be seen by a
//! client of the service. Clients have the words read-only. Owned by the store; the name of this start goes when it
//! does. Fails: where the lead cannot be mapped.
#![allow(unsafe_code)]

use base::memory_file::{LEAD_BYTES, LEFT_AT, LIVE_AT, Live, PAGES_MAX};
use driver_shim::{Mapping, Pages};
use std::collections::hash_map::RandomState;
use std::fs::File;
use std::hash::BuildHasher;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The words of one file.
#[derive(Debug)]
pub(super) struct Published {
    lead: Mapping,
    generation: u64,
}

impl Published {
    /// Those of a memory file, which has its lead. No client reads by them until they are begun.
    pub(super) fn of(file: &File) -> io::Result<Self> {
        let lead = Mapping::of_file(file, 0, LEAD_BYTES, Pages::Small, &[])?;
        // The standard library seeds each RandomState from the system's random source.
        let generation = RandomState::new().hash_one(0u64).max(1);
        let published = Self { lead, generation };
        published.end();
        Ok(published)
    }

    fn word(&self, which: Live) -> &AtomicU64 {
        // SAFETY: the words lie in the lead (`memory_file` asserts it), which is mapped.
        let at = unsafe { self.lead.base().add(LIVE_AT + which as usize * size_of::<u64>()) };
        // SAFETY: mapped as long as `self`, aligned (the lead to 2 MB, LIVE_AT to 64), any bytes are a
        // number, and each access of this process is an atomic one of this width; others only read.
        unsafe { at.cast::<AtomicU64>().as_ref() }
    }

    fn left(&self, page: u32) -> Option<&AtomicU32> {
        let page = Some(page as usize).filter(|page| *page < PAGES_MAX)?;
        // SAFETY: as many lie in the lead (`memory_file` asserts it), which is mapped.
        let at = unsafe { self.lead.base().add(LEFT_AT + page * size_of::<u32>()) };
        // SAFETY: as in `word`.
        Some(unsafe { at.cast::<AtomicU32>().as_ref() })
    }

    /// From here on clients may read: the store is as the words say, and none of its items was changed since.
    pub(super) fn begin(&self, clock: u32, flushed_up_to: u64) {
        self.word(Live::Clock).store(clock.into(), Ordering::Relaxed);
        self.word(Live::FlushedUpTo).store(flushed_up_to, Ordering::Relaxed);
        self.word(Live::AskUpTo).store(0, Ordering::Relaxed);
        self.word(Live::Generation).store(self.generation, Ordering::SeqCst);
    }

    /// From here on no client reads.
    pub(super) fn end(&self) {
        self.word(Live::Generation).store(0, Ordering::SeqCst);
    }

    /// The clock is about to be set to this.
    pub(super) fn clock(&self, now: u32) {
        self.word(Live::Clock).store(now.into(), Ordering::Release);
    }

    /// Items up to this number are about to be flushed.
    pub(super) fn flush(&self, up_to: u64) {
        self.word(Live::FlushedUpTo).fetch_max(up_to, Ordering::SeqCst);
    }

    /// Of the items up to this number some are about to be flushed with their prefix. Under the prefixes' lock.
    pub(super) fn flush_prefix(&self, up_to: u64) {
        self.word(Live::AskUpTo).fetch_max(up_to, Ordering::SeqCst);
    }

    /// No item is left that was flushed with its prefix. Under the prefixes' lock.
    pub(super) fn no_prefixes(&self) {
        self.word(Live::AskUpTo).store(0, Ordering::Release);
    }

    /// The page is about to leave its class: what its chunks are next has nothing to do with what they were.
    pub(super) fn leave(&self, page: u32) {
        if let Some(left) = self.left(page) {
            left.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// How often the page has left a class.
    pub(super) fn times_left(&self, page: u32) -> u32 {
        self.left(page).map_or(0, |left| left.load(Ordering::Acquire))
    }

    /// The name of this start.
    pub(super) fn generation(&self) -> u64 {
        self.generation
    }
}

impl Drop for Published {
    fn drop(&mut self) {
        self.end();
    }
}
