//! Index look-ups by themselves: keys, index and results in the device's own memory.
//!
//! In: a GPU, how many items its index holds. Out: look-ups a second by index and batch, each beside
//! the random reads that it needs; the same beside changes of the index. Every result of one batch of
//! each size is compared. Fails on wrong results, and as the GPU does.

use super::{Extent, Result, goals, median, percentile};
use crate::report::Report;
use crate::study::engine::index_for;
use gpu::bench::{DeviceIndex, DeviceSizes, KEY_BYTES};
use gpu::card::Card;
use gpu::index::IndexKind;
use gpu::params::Op;
use serde_json::json;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};
use store::{Store, StoreConfig};

/// Batches that are given to the device before the host waits: fewer than any driver's queue holds.
const DEPTH: usize = 32;
/// Changes that the index gets a second beside look-ups; `None`: as many as it takes.
pub(super) const CHANGES_PER_S: [Option<f64>; 5] =
    [Some(5e6), Some(10e6), Some(25e6), Some(50e6), None];

/// A GPU with an index to ask.
struct Asked {
    index: DeviceIndex,
    kind: IndexKind,
    store: Arc<Store>,
    items: u64,
    /// Keys to look up.
    keys: usize,
    changes: usize,
    /// First key of the next batch.
    next: usize,
}

/// Measures both kinds, as long as there is time.
///
/// # Errors
/// Wrong results, or what the GPU says.
pub fn run(card: &Arc<dyn Card>, items: u64, extent: Extent, report: &mut Report) -> Result<()> {
    for kind in [IndexKind::Cuckoo, IndexKind::SetAssoc] {
        let mut asked = Asked::new(card, kind, items, extent, report)?;
        for batch in extent
            .pick(&[1 << 20, 4 << 20, 1 << 18, 1 << 16, 1 << 14, 1 << 12, 1 << 10][..], &[64, 256])
        {
            if extent.goes_on() {
                asked.batches(*batch, extent, report)?;
            }
        }
        asked.beside_changes(extent, report)?;
    }
    Ok(())
}

/// The key of an item: its number, and other bytes.
fn key(item: u64) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    let (number, rest) = key.split_at_mut(8);
    number.copy_from_slice(&item.to_le_bytes());
    rest.copy_from_slice(&item.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// Which item the `n`-th key to look up is: a random one (SplitMix64's finalizer by Vigna).
fn asked_for(n: usize, items: u64) -> u64 {
    let mut x = (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    (x ^ x >> 31) % items.max(1)
}

/// Does a piece of work for each part of a slice, on several threads.
fn in_parts<T: Send>(all: &mut [T], unit: usize, work: impl Fn(usize, &mut [T]) + Sync) {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(8);
    let part = (all.len() / unit.max(1)).div_ceil(threads).max(1) * unit.max(1);
    thread::scope(|scope| {
        for (number, slice) in all.chunks_mut(part).enumerate() {
            let work = &work;
            scope.spawn(move || work(number * part, slice));
        }
    });
}

impl Asked {
    fn new(
        card: &Arc<dyn Card>,
        kind: IndexKind,
        items: u64,
        extent: Extent,
        report: &mut Report,
    ) -> Result<Self> {
        // For its hash function.
        let store = Store::new(StoreConfig { memory_bytes: 4 << 20, ..StoreConfig::default() })?;
        let config = index_for(kind, items, KEY_BYTES)?;
        let keys = extent.pick(1 << 24, 1 << 10);
        let changes = extent.pick(1 << 20, 1 << 8);
        let sizes = DeviceSizes { keys, batch: extent.pick(4 << 20, 256), changes };
        let mut index = DeviceIndex::new(card, config, store.hash_key(), sizes)?;
        let (begun, mut busy, mut first) = (Instant::now(), Duration::ZERO, 0);
        let mut counts = index.updates.end()?;
        while first < items {
            let n = usize::try_from((items - first).min(changes as u64))?;
            let item = |n: usize| first + n as u64;
            index.updates.write(n, |ops, bytes| {
                in_parts(ops, 1, |from, ops| {
                    for (n, op) in (from..).zip(ops) {
                        let hash = store.hash(&key(item(n))).0;
                        // As the host's locations, a number of 32 bits.
                        let location = u32::try_from(item(n)).unwrap_or(u32::MAX);
                        *op = Op { hash, location, value_len: 64, ..Op::default() };
                    }
                });
                in_parts(bytes, KEY_BYTES, |from, bytes| {
                    for (n, to) in (from / KEY_BYTES..).zip(bytes.chunks_mut(KEY_BYTES)) {
                        to.copy_from_slice(&key(item(n)));
                    }
                });
            })?;
            let start = Instant::now();
            index.updates.begin(1)?;
            counts = index.updates.end()?;
            busy += start.elapsed();
            first += n as u64;
        }
        let filled = begun.elapsed().as_secs_f64();
        index.write_keys(|bytes| {
            in_parts(bytes, KEY_BYTES, |from, bytes| {
                for (n, to) in (from / KEY_BYTES..).zip(bytes.chunks_mut(KEY_BYTES)) {
                    to.copy_from_slice(&key(asked_for(n, items)));
                }
            });
        })?;
        report.row(
            "fills",
            json!({ "index": kind.name(), "items": items, "gigabytes": gigabytes(&index),
                    "load": items as f64 / index.entries() as f64, "seconds": filled,
                    "changes_per_s": items as f64 / busy.as_secs_f64(),
                    "evicted": counts.evicted, "moved": counts.moved,
                    "overflowed": counts.overflowed }),
        )?;
        Ok(Self { index, kind, store, items, keys, changes, next: 0 })
    }

    /// Begins to look the next `batch` keys up.
    fn begin(&mut self, batch: usize) -> Result<()> {
        if self.next + batch > self.keys {
            self.next = 0;
        }
        self.index.begin(self.next, batch, 2)?;
        self.next += batch;
        Ok(())
    }

    fn wait(&mut self) -> Result<()> {
        while !self.index.is_idle()? {
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// Looks up for a while; what a second gave.
    fn rate(&mut self, batch: usize, extent: Extent) -> Result<f64> {
        let (begun, mut done) = (Instant::now(), 0);
        while done == 0 || begun.elapsed() < extent.at_least() {
            for _ in 0..extent.pick(DEPTH, 2) {
                self.begin(batch)?;
                done += batch;
            }
            self.wait()?;
        }
        Ok(done as f64 / begun.elapsed().as_secs_f64())
    }

    fn batches(&mut self, batch: usize, extent: Extent, report: &mut Report) -> Result<()> {
        let (hits, wrong) = self.check(batch)?;
        let mut rates = Vec::new();
        for _ in 0..extent.runs() {
            rates.push(self.rate(batch, extent)?);
        }
        let rate = median(&mut rates);
        let mut alone = Vec::new();
        for _ in 0..extent.pick(300, 3) {
            let begun = Instant::now();
            self.begin(batch)?;
            self.wait()?;
            alone.push(begun.elapsed().as_secs_f64() * 1e6);
        }
        alone.sort_by(f64::total_cmp);
        let size = gigabytes(&self.index);
        // A bucket; or a set, and a sector with a key elsewhere.
        let roof = match self.kind {
            // They are no index, and none of those that are looked at.
            IndexKind::Rows => None,
            IndexKind::Cuckoo => goals::lines(report, size, 64),
            IndexKind::SetAssoc => goals::lines(report, size, 128)
                .zip(goals::lines(report, size, 32))
                .map(|(set, key)| 1.0 / (1.0 / set + 1.0 / key)),
        };
        report.row(
            "lookups",
            json!({ "index": self.kind.name(), "items": self.items, "gigabytes": size,
                    "batch": batch, "per_s": rate, "roof_per_s": roof,
                    "of_roof": roof.map(|roof| rate / roof),
                    "alone_us_p50": percentile(&alone, 0.5), "alone_us_p99": percentile(&alone, 0.99),
                    "hits": hits, "wrong": wrong }),
        )?;
        // A cuckoo cell holds 32 bits of a key: one in some 100 million is another's.
        if wrong > batch / 100_000 || hits * 10 < batch * 9 {
            let kind = self.kind.name();
            return Err(format!(
                "wrong: {kind}, of {batch} keys {hits} are found, {wrong} of them elsewhere"
            )
            .into());
        }
        Ok(())
    }

    /// Keys of a batch that are found, and those of them where they are not.
    fn check(&mut self, batch: usize) -> Result<(usize, usize)> {
        self.index.begin(0, batch, 2)?;
        let (mut hits, mut wrong) = (0, 0);
        for (n, result) in self.index.results(batch)?.into_iter().enumerate() {
            if result & 0xffff_ffff == u64::from(gpu::Hint::HIT.0) {
                hits += 1;
                wrong += usize::from(result >> 32 != asked_for(n, self.items));
            }
        }
        Ok((hits, wrong))
    }

    /// Look-ups beside changes: items get the locations that they have.
    fn beside_changes(&mut self, extent: Extent, report: &mut Report) -> Result<()> {
        let batch = extent.pick(1 << 18, 64);
        let list = self.changes.min(1 << 16);
        let (items, store) = (self.items, &self.store);
        self.index.updates.write(list, |ops, bytes| {
            for (n, (op, to)) in ops.iter_mut().zip(bytes.chunks_mut(KEY_BYTES)).enumerate() {
                // Others than those that are looked up first.
                let item = asked_for(usize::MAX - n, items);
                let location = u32::try_from(item).unwrap_or(u32::MAX);
                let hash = store.hash(&key(item)).0;
                *op = Op { hash, location, value_len: 64, ..Op::default() };
                to.copy_from_slice(&key(item));
            }
        })?;
        let alone = self.rate(batch, extent)?;
        for offered in CHANGES_PER_S {
            if !extent.goes_on() {
                break;
            }
            let (begun, mut looked_up, mut changed) = (Instant::now(), 0, 0);
            while looked_up == 0 || changed == 0 || begun.elapsed() < 4 * extent.at_least() {
                if self.index.is_idle()? {
                    for _ in 0..extent.pick(8, 1) {
                        self.begin(batch)?;
                        looked_up += batch;
                    }
                }
                let is_due = is_due(offered, changed, begun.elapsed());
                if is_due && self.index.updates.is_idle()? {
                    self.index.updates.begin(3)?;
                    changed += list;
                }
            }
            let seconds = begun.elapsed().as_secs_f64();
            self.wait()?;
            self.index.updates.end()?;
            let rate = looked_up as f64 / seconds;
            report.row(
                "lookups_beside_changes",
                json!({ "index": self.kind.name(), "offered_per_s": offered,
                        "changes_per_s": changed as f64 / seconds, "lookups_per_s": rate,
                        "alone_per_s": alone, "loss": 1.0 - rate / alone }),
            )?;
        }
        Ok(())
    }
}

/// Whether more changes are to be made, of which so many have been begun.
pub(super) fn is_due(per_s: Option<f64>, begun: usize, since: Duration) -> bool {
    per_s.is_none_or(|per_s| begun as f64 <= per_s * since.as_secs_f64())
}

fn gigabytes(index: &DeviceIndex) -> f64 {
    index.bytes() as f64 / f64::from(1 << 30)
}
