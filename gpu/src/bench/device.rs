//! An index in the device's own memory: filled, changed and asked without packets or a store.
//!
//! In: changes and keys. Out: for each key what the index says, and how much became of the changes.
//! For measurements: launches return at once, and the caller looks for their end. Owns its streams
//! and memory; what a kernel that does not end may use is never freed. Fails as the device does.
#![allow(unsafe_code)]

use super::{WAIT_MAX, launch, refused};
use crate::card::{Card, CardError, CardMemory, Kernel, Stream};
use crate::host::Column;
use crate::index::{IndexConfig, IndexKind, Mirror};
use crate::offload::Offload;
use crate::params::{HashKey, Index, MicroLookupParams, Op, UpdateCounts, UpdateParams};
use std::any::Any;
use std::fmt;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::time::Instant;

/// Bytes of every key here.
pub const KEY_BYTES: usize = KEY_LEN as usize;
/// The same, as changes say it.
const KEY_LEN: u8 = 16;

/// A list of changes, which can be made any number of times.
pub struct Updates {
    // Before what its kernels use.
    stream: Box<dyn Stream>,
    memory: ManuallyDrop<Changes>,
    index: Index,
    kernel: Kernel,
    /// Number of the last launch.
    launches: u32,
}

/// What update kernels use.
struct Changes {
    ops: Column<Op>,
    keys: Column<u8>,
    /// One value each: what the kernels count, and its copy as of the last launch.
    totals: CardMemory,
    counts: Column<UpdateCounts>,
    /// Holds the index.
    _index: Box<dyn Any + Send>,
}

impl fmt::Debug for Updates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Updates").field("kernel", &self.kernel).finish_non_exhaustive()
    }
}

impl Updates {
    /// Of an index that serves requests, whose own updater does nothing meanwhile: up to `most`
    /// changes.
    ///
    /// # Errors
    /// What the device says.
    pub fn beside(offload: &Arc<Offload>, most: usize) -> Result<Self, CardError> {
        let index = offload.index();
        let (params, kind) = (index.params(), index.kind());
        Self::new(offload.card(), params, kind, Box::new(Arc::clone(offload)), most)
    }

    fn new(
        card: &Arc<dyn Card>,
        index: Index,
        kind: IndexKind,
        keep: Box<dyn Any + Send>,
        most: usize,
    ) -> Result<Self, CardError> {
        let mut memory = Changes {
            ops: Column::mapped(card, most)?,
            keys: Column::mapped(card, most.saturating_mul(KEY_BYTES))?,
            totals: CardMemory::new(card, size_of::<UpdateCounts>())?,
            counts: Column::mapped(card, 1)?,
            _index: keep,
        };
        memory.counts.set_len(1);
        let (stream, memory) = (card.stream()?, ManuallyDrop::new(memory));
        Ok(Self { stream, memory, index, kernel: kind.update_kernel(), launches: 0 })
    }

    /// Writes a list of `n` changes, no more than there may be, and the [`KEY_BYTES`] bytes of the
    /// key of each. Waits for what runs.
    ///
    /// # Errors
    /// What the device says.
    pub fn write(
        &mut self,
        n: usize,
        write: impl FnOnce(&mut [Op], &mut [u8]),
    ) -> Result<(), CardError> {
        wait(&mut *self.stream)?;
        let Changes { ops, keys, .. } = &mut *self.memory;
        ops.set_len(n);
        keys.set_len(ops.len() * KEY_BYTES);
        write(ops, keys);
        // Whatever was written: no key lies outside.
        for (op, key_off) in ops.iter_mut().zip((0..).step_by(KEY_BYTES)) {
            (op.key_off, op.key_len) = (key_off, KEY_LEN);
        }
        Ok(())
    }

    /// Makes the changes, behind those that are under way.
    ///
    /// # Errors
    /// What the device says.
    pub fn begin(&mut self, now: u32) -> Result<(), CardError> {
        self.launches = self.launches.wrapping_add(1).max(1);
        let Changes { ops, keys, totals, counts, .. } = &*self.memory;
        let n = u32::try_from(ops.len()).unwrap_or(0);
        let params = UpdateParams {
            index: self.index,
            ops: ops.at(),
            keys: keys.at(),
            totals: totals.at(),
            counts: counts.at(),
            n,
            now,
            launch: self.launches,
            reserved: 0,
        };
        let blocks = n.div_ceil(self.kernel.facts().per_block).max(1);
        launch(&mut *self.stream, self.kernel, blocks, &params)
    }

    /// Whether all are made.
    ///
    /// # Errors
    /// What the device says.
    pub fn is_idle(&mut self) -> Result<bool, CardError> {
        self.stream.is_idle()
    }

    /// Waits until all are made, and says what became of them since the beginning.
    ///
    /// # Errors
    /// What the device says.
    pub fn end(&mut self) -> Result<UpdateCounts, CardError> {
        wait(&mut *self.stream)?;
        Ok(self.memory.counts.first().copied().unwrap_or_default())
    }
}

impl Drop for Updates {
    fn drop(&mut self) {
        if wait(&mut *self.stream).is_ok() {
            // SAFETY: dropped here and nowhere else; no kernel runs.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
    }
}

/// An index and keys to ask it for.
#[derive(Debug)]
pub struct DeviceIndex {
    // Before what its kernels use.
    stream: Box<dyn Stream>,
    /// Its changes.
    pub updates: Updates,
    memory: ManuallyDrop<Keys>,
    card: Arc<dyn Card>,
    kernel: Kernel,
}

/// What look-up kernels use, beside the index.
#[derive(Debug)]
struct Keys {
    keys: CardMemory,
    results: CardMemory,
    index: Arc<Mirror>,
}

/// How much of everything there is.
#[derive(Debug, Clone, Copy)]
pub struct DeviceSizes {
    /// Keys to look up.
    pub keys: usize,
    /// Of these, in one batch.
    pub batch: usize,
    /// Changes in a list.
    pub changes: usize,
}

impl DeviceIndex {
    /// An empty index.
    ///
    /// # Errors
    /// What the device says: not enough memory, say.
    pub fn new(
        card: &Arc<dyn Card>,
        config: IndexConfig,
        hash_key: HashKey,
        sizes: DeviceSizes,
    ) -> Result<Self, CardError> {
        let index = Arc::new(Mirror::new(card, config, hash_key)?);
        let (params, keep) = (index.params(), Box::new(Arc::clone(&index)));
        let updates = Updates::new(card, params, config.kind, keep, sizes.changes)?;
        let keys = CardMemory::new(card, sizes.keys.max(1).saturating_mul(KEY_BYTES))?;
        let results = CardMemory::new(card, sizes.batch.max(1).saturating_mul(size_of::<u64>()))?;
        let kernel = match config.kind {
            IndexKind::SetAssoc => Kernel::MicroLookupSetassoc,
            IndexKind::Cuckoo => Kernel::MicroLookupCuckoo,
            IndexKind::Rows => {
                let why = "rows are no index".to_owned();
                return Err(CardError::Refused { call: "bench", why });
            }
        };
        let memory = ManuallyDrop::new(Keys { keys, results, index });
        Ok(Self { stream: card.stream()?, updates, memory, card: Arc::clone(card), kernel })
    }

    /// Bytes of the index.
    pub fn bytes(&self) -> usize {
        self.memory.index.bytes()
    }

    /// Keys that fit in it.
    pub fn entries(&self) -> u64 {
        self.memory.index.entries()
    }

    /// Writes all keys to look up, one behind the other. Waits.
    ///
    /// # Errors
    /// What the device says.
    pub fn write_keys(&mut self, write: impl FnOnce(&mut [u8])) -> Result<(), CardError> {
        let bytes = self.memory.keys.bytes();
        let mut from = Column::<u8>::mapped(&self.card, bytes)?;
        from.set_len(bytes);
        write(&mut from);
        // SAFETY: both have so many bytes; they outlive the copy, or stay for ever.
        let done = unsafe { self.stream.copy(self.memory.keys.at(), from.at(), bytes) }
            .and_then(|()| wait(&mut *self.stream));
        if done.is_err() {
            std::mem::forget(from);
        }
        done
    }

    /// Looks `n` keys up, the first of which is `first`, behind what is under way.
    ///
    /// # Errors
    /// What the device says, and that there are not so many.
    pub fn begin(&mut self, first: usize, n: usize, now: u32) -> Result<(), CardError> {
        let Keys { keys, results, index } = &*self.memory;
        let end = first.saturating_add(n).saturating_mul(KEY_BYTES);
        if end > keys.bytes() || n.saturating_mul(size_of::<u64>()) > results.bytes() {
            return Err(refused("there are not so many keys"));
        }
        let params = MicroLookupParams {
            index: index.params(),
            keys: keys.at().plus(first * KEY_BYTES),
            results: results.at(),
            n: u32::try_from(n).map_err(|_| refused("too many keys"))?,
            now,
            key_bytes: u32::from(KEY_LEN),
            stride: u32::from(KEY_LEN),
        };
        let blocks = params.n.div_ceil(self.kernel.facts().per_block).max(1);
        launch(&mut *self.stream, self.kernel, blocks, &params)
    }

    /// Whether all are looked up.
    ///
    /// # Errors
    /// What the device says.
    pub fn is_idle(&mut self) -> Result<bool, CardError> {
        self.stream.is_idle()
    }

    /// Waits, and reads what was found of the first `n` keys of the last batch: the hint, and the
    /// location in the high half.
    ///
    /// # Errors
    /// What the device says.
    pub fn results(&mut self, n: usize) -> Result<Vec<u64>, CardError> {
        wait(&mut *self.stream)?;
        let mut bytes = vec![0; n.saturating_mul(size_of::<u64>())];
        self.memory.results.read(&mut bytes)?;
        Ok(bytes.as_chunks::<8>().0.iter().map(|b| u64::from_ne_bytes(*b)).collect())
    }
}

impl Drop for DeviceIndex {
    fn drop(&mut self) {
        if wait(&mut *self.stream).is_ok() {
            // SAFETY: dropped here and nowhere else; no kernel runs on it. The index stays as long
            // as the updates need it.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
    }
}

pub(super) fn wait(stream: &mut dyn Stream) -> Result<(), CardError> {
    let begun = Instant::now();
    while !stream.is_idle()? {
        if begun.elapsed() > WAIT_MAX {
            return Err(refused("the kernel does not end"));
        }
        std::hint::spin_loop();
    }
    Ok(())
}

#[cfg(test)]
#[cfg(feature = "simt")]
mod tests {
    use super::*;
    use crate::layout::Hint;
    use crate::simt::SimtCard;

    /// SipHash-1-3, by the kernel that the golden vectors check.
    fn hashes(card: &Arc<dyn Card>, key: HashKey, keys: &[[u8; KEY_BYTES]]) -> Vec<u64> {
        let kind = super::super::IndexKind::Cuckoo { n_buckets: 1, kicks_max: 0 };
        let slots = u32::try_from(keys.len()).unwrap();
        let sizes = super::super::Sizes { slots, slot_bytes: 256, batch: 1 };
        let mut bench = super::super::Bench::new(card, kind, key, sizes).unwrap();
        for (slot, key) in (0..).zip(keys) {
            bench.slot(slot)[..KEY_BYTES].copy_from_slice(key);
        }
        let lengths = vec![u32::from(KEY_LEN); keys.len()];
        bench.digest(&lengths).unwrap().into_iter().map(|(hash, _)| hash).collect()
    }

    #[test]
    fn what_was_put_in_is_found_and_nothing_else() {
        let card: Arc<dyn Card> = Arc::new(SimtCard::default());
        let hash_key = HashKey { k0: 1, k1: 2 };
        let keys: Vec<[u8; KEY_BYTES]> =
            (0..300u128).map(|i| (i * 0x9e37_79b9).to_le_bytes()).collect();
        let hashes = hashes(&card, hash_key, &keys);
        for kind in [IndexKind::SetAssoc, IndexKind::Cuckoo] {
            let shares = [1.0, 0.0, 0.0, 0.0, 0.0];
            let config = IndexConfig { kind, memory_bytes: 1 << 17, shares };
            let sizes = DeviceSizes { keys: 300, batch: 200, changes: 200 };
            let mut index = DeviceIndex::new(&card, config, hash_key, sizes).unwrap();
            assert!(index.bytes() > 1 << 15 && index.entries() > 400);
            let list = |ops: &mut [Op], bytes: &mut [u8]| {
                for (i, op) in ops.iter_mut().enumerate() {
                    // A key that says that it is elsewhere is where it must be.
                    *op = Op { hash: hashes[i], key_off: 1 << 30, ..Op::default() };
                    op.location = 7 + u32::try_from(i).unwrap();
                    bytes[i * KEY_BYTES..][..KEY_BYTES].copy_from_slice(&keys[i]);
                }
            };
            index.updates.write(200, list).unwrap();
            index.updates.begin(1).unwrap();
            index.updates.begin(1).unwrap();
            let counts = index.updates.end().unwrap();
            assert_eq!((counts.inserted, counts.replaced), (200, 200), "{counts:?}");
            index.write_keys(|to| to.copy_from_slice(keys.as_flattened())).unwrap();
            index.begin(100, 200, 2).unwrap();
            let results = index.results(200).unwrap();
            for (n, result) in (100..).zip(results) {
                let want = if n < 200 { u64::from(Hint::HIT.0) | (7 + n) << 32 } else { 2 };
                assert_eq!(result, want, "{kind:?} {n}");
            }
            assert!(index.begin(101, 200, 2).is_err() && index.begin(0, 201, 2).is_err());
        }
    }
}
