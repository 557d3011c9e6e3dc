//! The only writer of the index on the device.
//!
//! In: hashes from the [`Feed`], and the store's answer to what is there now. Out: batches of
//! changes, each a kernel launch on a stream of the updater's own, every so many cycles (Mega-KV's
//! delayed scheduling), never one for each `set`. With rows it decides what the device has of which key, and
//! says which changes are there ([`super::Filter`]). Runs on a thread of its own. Every wait has a
//! bound. Fails by the device's fault, and then empties the feed and drops it all, so that the store goes
//! on as if there were no device.
#![allow(unsafe_code)]

mod of_rows;

use super::form::Form;
use super::rows::Rows;
use super::{Feed, Source};
use crate::card::{CardError, CardMemory, Kernel, Stream};
use crate::host::Column;
use crate::offload::{Fault, Offload};
use crate::params::{DevAddr, Op, OpKind, UpdateCounts, UpdateParams, WAYS};
use crate::tables::Row;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Changes of one batch.
const OPS_MAX: usize = 4096;
/// Rows of a turn: of as many hashes that changed, at most all ways of each one's set, and as many more that were asked for.
const WANTED_MAX: usize = (WAYS + 1) * OPS_MAX;
/// Longest time for a batch of changes, unless one of requests may take longer.
const UPDATE_MAX: Duration = Duration::from_secs(1);
/// Pause between two looks whether a batch is done.
const UPDATE_PAUSE: Duration = Duration::from_micros(20);
/// Time without a change after which an updater sleeps until the next one: a writer wakes it some
/// hundred times a second at most.
const AWAKE: Duration = Duration::from_millis(5);
/// Longest sleep: how late it sees that it is to stop, and passes the store's clock on.
const IDLE_MAX: Duration = Duration::from_millis(50);

/// When the index is brought up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// Length of a cycle.
    pub cycle: Duration,
    /// Cycles from one batch of changes to the next.
    pub every: u32,
}

impl Default for Schedule {
    /// A hint is 400 µs old at most, as long as fewer than 10 M keys a second are written.
    fn default() -> Self {
        Self { cycle: Duration::from_micros(200), every: 2 }
    }
}

macro_rules! counters {
    ($($(#[doc = $doc:literal])* $name:ident)*) => {
        /// What the updater has done. It alone writes them.
        #[derive(Debug, Default)]
        pub struct UpdaterCounters {
            $($(#[doc = $doc])* pub $name: AtomicU64,)*
        }

        impl UpdaterCounters {
            /// Names and values, in order.
            pub fn rows(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name.load(Ordering::Relaxed)),)*]
            }
        }
    };
}

counters! {
    /// Hashes taken from the feed.
    looks
    /// Of those, the same as another one of the batch.
    looks_saved
    /// Batches of changes given to the device.
    updates
    /// Changes in them.
    changes
    /// Keys that became new in the index.
    inserted
    /// Keys that got a new location.
    replaced
    /// Keys taken out.
    removed
    /// Keys to be taken out that were not there.
    absent
    /// Keys that lost their way to another one.
    evicted
    /// Cells moved along.
    moved
    /// Keys that found no cell.
    overflowed
    /// Times that all rows were taken out.
    cleared
}

impl UpdaterCounters {
    /// Keys in the index, as far as can be seen from what went in and out.
    pub fn filled(&self) -> u64 {
        let get = |n: &AtomicU64| n.load(Ordering::Relaxed);
        get(&self.inserted).saturating_sub(get(&self.removed) + get(&self.evicted))
    }

    /// Adds what the device has counted since `before`.
    fn add(&self, now: &UpdateCounts, before: &UpdateCounts) {
        let pairs = [
            (&self.inserted, now.inserted, before.inserted),
            (&self.replaced, now.replaced, before.replaced),
            (&self.removed, now.removed, before.removed),
            (&self.absent, now.absent, before.absent),
            (&self.evicted, now.evicted, before.evicted),
            (&self.moved, now.moved, before.moved),
            (&self.overflowed, now.overflowed, before.overflowed),
        ];
        for (counter, now, before) in pairs {
            bump(counter, u64::from(now.wrapping_sub(before)));
        }
    }
}

fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Keeps the index on the device up to date.
pub struct Updater {
    offload: Arc<Offload>,
    stream: Box<dyn Stream>,
    feed: Arc<Feed>,
    source: Box<dyn Source>,
    schedule: Schedule,
    kernel: Kernel,
    hashes: Vec<u64>,
    /// Rows to be written or taken out.
    wanted: Vec<(u64, Form)>,
    ops: Column<Op>,
    keys: Column<u8>,
    /// One value, in the device's memory.
    totals: CardMemory,
    /// Its copy here, as of the last launch.
    counts: Column<UpdateCounts>,
    counted: UpdateCounts,
    /// Number of the last launch.
    launches: u32,
    counters: Arc<UpdaterCounters>,
    rows: Option<Rows>,
}

impl fmt::Debug for Updater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updater").field("schedule", &self.schedule).finish_non_exhaustive()
    }
}

impl Updater {
    /// An updater of `offload`'s index, which no other thread updates. Takes all its memory here.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(
        offload: &Arc<Offload>,
        feed: Arc<Feed>,
        source: Box<dyn Source>,
        schedule: Schedule,
    ) -> Result<Self, CardError> {
        let card = offload.card();
        let rows = match (offload.filter(), feed.filter()) {
            (None, _) => None,
            (Some(filter), Some(raised)) if Arc::ptr_eq(filter, raised) => {
                // It does not know of rows that one before it wrote: its first turn takes them out.
                if filter.is_in_use() {
                    filter.change_all(|| ());
                }
                Some(Rows::new(filter, offload.index().params().rows.n_sets))
            }
            (Some(_), _) => {
                let why = "the feed does not raise the filter".to_owned();
                return Err(CardError::Refused { call: "update", why });
            }
        };
        let key_bytes = if rows.is_some() { size_of::<Row>() } else { usize::from(u8::MAX) };
        let mut counts = Column::mapped(card, 1)?;
        counts.set_len(1);
        offload.set_now(source.now());
        Ok(Self {
            stream: card.stream()?,
            feed,
            source,
            schedule: Schedule { every: schedule.every.max(1), ..schedule },
            kernel: offload.index().kind().update_kernel(),
            hashes: Vec::with_capacity(OPS_MAX),
            wanted: Vec::with_capacity(if rows.is_some() { WANTED_MAX } else { 0 }),
            ops: Column::mapped(card, OPS_MAX)?,
            keys: Column::mapped(card, OPS_MAX * key_bytes)?,
            totals: CardMemory::new(card, size_of::<UpdateCounts>())?,
            counts,
            counted: UpdateCounts::default(),
            launches: 0,
            counters: Arc::default(),
            offload: Arc::clone(offload),
            rows,
        })
    }

    /// What it has done, for others to read.
    pub fn counters(&self) -> Arc<UpdaterCounters> {
        Arc::clone(&self.counters)
    }

    /// Works until `stop` is set. It alone knows what is on the device, and so it is returned.
    pub fn run(mut self, stop: &AtomicBool) -> Self {
        let mut busy = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            if busy.elapsed() < AWAKE || self.feed.wait(IDLE_MAX) {
                self.gather(stop);
            }
            if self.turn() > 0 {
                busy = Instant::now();
            }
        }
        self
    }

    /// Lets changes come together for one period of the schedule, or until they fill a batch.
    fn gather(&self, stop: &AtomicBool) {
        for _ in 0..self.schedule.every {
            thread::sleep(self.schedule.cycle);
            if self.feed.len() >= OPS_MAX || stop.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// One batch of changes, of what waits in the feed; done when this returns. Says how many
    /// hashes it took.
    pub fn turn(&mut self) -> usize {
        self.offload.set_now(self.source.now());
        if let Some(mut rows) = self.rows.take() {
            let taken = self.turn_of_rows(&mut rows);
            self.rows = Some(rows);
            return taken;
        }
        self.hashes.clear();
        while self.hashes.len() < OPS_MAX
            && let Some(hash) = self.feed.take()
        {
            self.hashes.push(hash);
        }
        let taken = self.hashes.len();
        if taken == 0 || self.offload.fault().is_some() {
            return taken;
        }
        self.hashes.sort_unstable();
        self.hashes.dedup();
        bump(&self.counters.looks, taken as u64);
        bump(&self.counters.looks_saved, (taken - self.hashes.len()) as u64);
        self.write_ops();
        if let Err(fault) = self.apply() {
            self.offload.fail(fault);
        }
        taken
    }

    fn write_ops(&mut self) {
        let Self { ops, keys, source, hashes, .. } = self;
        ops.clear();
        keys.clear();
        source.look(hashes, &mut |hash, found| {
            let mut op = Op { hash, kind: OpKind::REMOVE, ..Op::default() };
            if let Some(found) = found {
                op.kind = OpKind::PUT;
                (op.location, op.flags) = (found.location, found.flags);
                op.value_len = found.value_len;
                op.key_off = u32::try_from(keys.len()).unwrap_or(u32::MAX);
                // A key has at most 250 bytes, for which every change has space.
                op.key_len = u8::try_from(found.key.len()).unwrap_or(0);
                for byte in found.key.iter().take(usize::from(op.key_len)) {
                    let _ = keys.push(*byte);
                }
            }
            let _ = ops.push(op);
        });
    }

    fn apply(&mut self) -> Result<(), Fault> {
        let changes = self.ops.len();
        let per_block = self.kernel.facts().per_block.max(1) as usize;
        self.launches = self.launches.wrapping_add(1).max(1);
        let params = UpdateParams {
            index: self.offload.index().params(),
            ops: self.ops.at(),
            keys: self.keys.at(),
            totals: self.totals.at(),
            counts: self.counts.at(),
            n: u32::try_from(changes).unwrap_or(0),
            now: self.source.now(),
            launch: self.launches,
            reserved: 0,
        };
        debug_assert_ne!(params.counts, DevAddr(0));
        let blocks = u32::try_from(changes.div_ceil(per_block)).unwrap_or(u32::MAX);
        let at: *const UpdateParams = &raw const params;
        // SAFETY: the kernel's own structure; memory of ours and the offload's index, which stay
        // until the kernel has ended: `wait` sees to that, or makes it a fault, and then they stay
        // for ever.
        unsafe { self.stream.launch(self.kernel, blocks, at.cast()) }?;
        self.wait(changes)?;
        if let Some(now) = self.counts.first() {
            self.counters.add(now, &self.counted);
            self.counted = *now;
        }
        bump(&self.counters.updates, 1);
        bump(&self.counters.changes, changes as u64);
        Ok(())
    }

    fn wait(&mut self, changes: usize) -> Result<(), Fault> {
        let (begun, most) = (Instant::now(), UPDATE_MAX.max(self.offload.config().deadline));
        while !self.stream.is_idle()? {
            if begun.elapsed() > most {
                let waited_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
                return Err(Fault::UpdateLate { changes, waited_us });
            }
            thread::sleep(UPDATE_PAUSE);
        }
        Ok(())
    }
}
