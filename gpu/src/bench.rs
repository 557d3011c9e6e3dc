//! Kernels by hand: batches and changes through a device, one at a time, each waited for.
//!
//! In: frames and changes. Out: descriptors, heads and counts. For tests and studies of the kernels,
//! over any device; what serves requests are the engines. Everything lies in host memory that is
//! mapped to the device, the index too, so that its bytes can be set to anything. Fails as the device
//! does, or when a kernel does not end.
#![allow(unsafe_code)]

mod device;
mod multiply;

pub use device::{DeviceIndex, DeviceSizes, KEY_BYTES, Updates};
pub use multiply::Multiply;

use crate::card::{Card, CardError, CardMemory, Kernel, Stream};
use crate::host::{Column, HostMemory};
use crate::layout::{Entry, ReplyHead, ReqDesc};
use crate::params::{
    CuckooTable, DevAddr, DigestParams, Doorbells, GetParams, HashKey, Index, Op, Order,
    PacketRegion, RingSlot, ServeParams, SetTable, TABLE_KEY_MAX, UpdateCounts, UpdateParams, WAYS,
    Work, WorkQueue,
};
use crate::tables::{Bucket, Set, way_bytes};
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Parts in the work queue of a kernel that stays: more than a batch has, and more than blocks.
const QUEUED: u32 = 1024;
/// Longest wait for a kernel.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// An index to look things up in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// So many sets in each table.
    Setassoc {
        /// Sets; 0 for no table.
        n_sets: [u32; TABLE_KEY_MAX.len()],
    },
    /// So many buckets.
    Cuckoo {
        /// A power of two.
        n_buckets: u32,
        /// Most cells that one insertion may move along.
        kicks_max: u32,
    },
}

/// How much of everything there is.
#[derive(Debug, Clone, Copy)]
pub struct Sizes {
    /// Places for frames.
    pub slots: u32,
    /// Bytes of each, a multiple of 16.
    pub slot_bytes: u32,
    /// Most requests in a batch, and changes in a list.
    pub batch: usize,
}

/// A device with an index, packet memory, and one batch.
#[derive(Debug)]
pub struct Bench {
    // Before what their kernels use: they wait for them.
    stream: Box<dyn Stream>,
    updates: Box<dyn Stream>,
    memory: ManuallyDrop<Memory>,
    sizes: Sizes,
    kind: IndexKind,
    hash_key: HashKey,
    /// Number of the newest batch.
    number: u32,
    /// Number of the last launch of an update.
    launches: u32,
    /// A kernel did not end: what it uses must stay.
    stuck: bool,
    /// Persistent blocks run.
    serving: bool,
}

/// What kernels use.
#[derive(Debug)]
struct Memory {
    packets: Column<u8>,
    entries: Column<Entry>,
    descs: Column<ReqDesc>,
    heads: Column<ReplyHead>,
    /// Sets or buckets of each table; keys of each table.
    tables: Vec<(Column<u8>, Column<u8>)>,
    ops: HostMemory,
    keys: Column<u8>,
    lengths: Column<u32>,
    hashes: Column<u64>,
    sums: Column<u32>,
    ring_slot: HostMemory,
    doorbells: HostMemory,
    queue: CardMemory,
    totals: CardMemory,
    counts: Column<UpdateCounts>,
    arrived: CardMemory,
}

impl Bench {
    /// An empty index on `card`.
    ///
    /// # Errors
    /// What the device says.
    pub fn new(
        card: &Arc<dyn Card>,
        kind: IndexKind,
        hash_key: HashKey,
        sizes: Sizes,
    ) -> Result<Self, CardError> {
        let bytes = |n: usize| {
            let mut column = Column::<u8>::mapped(card, n)?;
            column.set_len(n);
            Ok::<_, CardError>(column)
        };
        let tables: Vec<(usize, usize)> = match kind {
            IndexKind::Setassoc { n_sets } => n_sets
                .iter()
                .zip(TABLE_KEY_MAX)
                .map(|(&n, key_max)| (n as usize, n as usize * WAYS * way_bytes(key_max)))
                .map(|(n, keys)| (n * size_of::<Set>(), keys))
                .collect(),
            IndexKind::Cuckoo { n_buckets, .. } => {
                vec![(n_buckets as usize * size_of::<Bucket>(), 0)]
            }
        };
        let tables = tables.into_iter().map(|(a, b)| Ok::<_, CardError>((bytes(a)?, bytes(b)?)));
        let memory = Memory {
            packets: bytes(sizes.slots as usize * sizes.slot_bytes as usize)?,
            entries: Column::mapped(card, sizes.batch)?,
            descs: Column::mapped(card, sizes.batch)?,
            heads: Column::mapped(card, sizes.batch)?,
            tables: tables.collect::<Result<_, _>>()?,
            ops: HostMemory::mapped(card, sizes.batch * size_of::<Op>())?,
            keys: Column::mapped(card, sizes.batch * 256)?,
            lengths: Column::mapped(card, sizes.slots as usize)?,
            hashes: Column::mapped(card, sizes.slots as usize)?,
            sums: Column::mapped(card, sizes.slots as usize)?,
            ring_slot: HostMemory::mapped(card, size_of::<RingSlot>())?,
            doorbells: HostMemory::mapped(card, size_of::<Doorbells>())?,
            queue: CardMemory::new(
                card,
                size_of::<WorkQueue>() + QUEUED as usize * size_of::<Work>(),
            )?,
            totals: CardMemory::new(card, size_of::<UpdateCounts>())?,
            counts: Column::mapped(card, 1)?,
            arrived: CardMemory::new(card, size_of::<u32>())?,
        };
        Ok(Self {
            stream: card.stream()?,
            updates: card.stream()?,
            memory: ManuallyDrop::new(memory),
            sizes,
            kind,
            hash_key,
            number: 0,
            launches: 0,
            stuck: false,
            serving: false,
        })
    }

    /// The bytes of a slot.
    pub fn slot(&mut self, slot: u32) -> &mut [u8] {
        let bytes = self.sizes.slot_bytes as usize;
        let start = slot as usize * bytes;
        self.memory.packets.get_mut(start..start + bytes).unwrap_or_default()
    }

    /// The bytes of the index, to be set to anything.
    pub fn tables(&mut self) -> impl Iterator<Item = &mut [u8]> {
        self.memory.tables.iter_mut().flat_map(|(a, b)| [&mut **a, &mut **b])
    }

    fn index(&self) -> Index {
        let mut index = Index { key: self.hash_key, ..Index::default() };
        match self.kind {
            IndexKind::Setassoc { n_sets } => {
                let memory = self.memory.tables.iter().zip(n_sets).zip(TABLE_KEY_MAX);
                for (table, (((sets, keys), n_sets), key_max)) in
                    index.tables.iter_mut().zip(memory)
                {
                    *table = SetTable { sets: sets.at(), keys: keys.at(), n_sets, key_max };
                }
            }
            IndexKind::Cuckoo { n_buckets, kicks_max } => {
                let buckets = self.memory.tables.first().map_or(DevAddr(0), |(at, _)| at.at());
                index.cuckoo = CuckooTable { buckets, n_buckets, kicks_max };
            }
        }
        index
    }

    fn packets(&self) -> PacketRegion {
        let Sizes { slots, slot_bytes, .. } = self.sizes;
        PacketRegion { base: self.memory.packets.at(), slot_bytes, slots }
    }

    fn is_setassoc(&self) -> bool {
        matches!(self.kind, IndexKind::Setassoc { .. })
    }

    /// Puts a batch in its slot and rings the doorbell.
    fn ring(&mut self, entries: &[Entry], now: u32, with_heads: bool) {
        self.number += 1;
        let memory = &mut *self.memory;
        memory.entries.clear();
        for &entry in entries {
            // No more than a batch holds.
            let _ = memory.entries.push(entry);
        }
        memory.descs.set_len(memory.entries.len());
        memory.heads.set_len(if with_heads { memory.entries.len() } else { 0 });
        let order = Order {
            entries: memory.entries.at(),
            descs: memory.descs.at(),
            prebuilt: if with_heads { memory.heads.at() } else { DevAddr(0) },
            n: u16::try_from(memory.entries.len()).unwrap_or(0),
            now: (now & 0xffff) as u16,
            number: self.number,
        };
        // SAFETY: memory of a slot's size and more, on a page; its kernel, if one runs, looks at
        // nothing but the doorbells before they ring.
        unsafe { memory.ring_slot.start().cast::<Order>().write(order) };
        if self.serving
            && let [doorbell, ..] = &self.doorbells().rung
        {
            doorbell.fetch_add(1, Ordering::Release);
        }
    }

    /// Looks a batch up with one launch of `blocks` blocks, and waits for it.
    ///
    /// # Errors
    /// What the device says, and [`CardError::Refused`] when the kernel does not end or ends without
    /// a word.
    pub fn get(
        &mut self,
        entries: &[Entry],
        now: u32,
        with_heads: bool,
        blocks: u32,
    ) -> Result<(), CardError> {
        self.ring(entries, now, with_heads);
        let params = GetParams {
            packets: self.packets(),
            index: self.index(),
            ring_slot: self.memory.ring_slot.at(),
            arrived: self.memory.arrived.at(),
        };
        let kernel = if self.is_setassoc() { Kernel::GetSetassoc } else { Kernel::GetCuckoo };
        self.launch(kernel, blocks, &params)?;
        self.wait_until(Self::is_idle)?;
        if self.is_done() { Ok(()) } else { Err(refused("the batch was not finished")) }
    }

    /// Starts `blocks` persistent blocks. They end after `exit_after` batches (0: never), or when
    /// `patience_ms` (0: never) pass without a beat.
    ///
    /// # Errors
    /// What the device says.
    pub fn start_serving(
        &mut self,
        blocks: u32,
        exit_after: u32,
        patience_ms: u32,
    ) -> Result<(), CardError> {
        if self.serving {
            return Err(refused("it serves already"));
        }
        self.doorbells().stop.store(0, Ordering::Release);
        let params = ServeParams {
            packets: self.packets(),
            index: self.index(),
            doorbells: self.memory.doorbells.at(),
            ring_slots: self.memory.ring_slot.at(),
            arrived: self.memory.arrived.at(),
            queue: self.memory.queue.at(),
            slots_per_ring: 1,
            queue_mask: QUEUED - 1,
            patience_ms,
            batches_max: exit_after,
        };
        let kernel = if self.is_setassoc() { Kernel::ServeSetassoc } else { Kernel::ServeCuckoo };
        // One more polls.
        self.launch(kernel, blocks + 1, &params)?;
        self.serving = true;
        Ok(())
    }

    fn doorbells(&self) -> &Doorbells {
        // SAFETY: zeroed memory of that size and more, on a page, and the bench's alone; all
        // of it is atomic, and kernels only read it.
        unsafe { self.memory.doorbells.start().cast::<Doorbells>().as_ref() }
    }

    /// Has the persistent blocks look a batch up, and waits for it.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn serve(
        &mut self,
        entries: &[Entry],
        now: u32,
        with_heads: bool,
    ) -> Result<(), CardError> {
        self.doorbells().beat.fetch_add(1, Ordering::Relaxed);
        self.ring(entries, now, with_heads);
        self.wait_until(|bench| Ok(bench.is_done()))
    }

    /// Waits for the persistent blocks to end, which end at once if `stop`.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn end_serving(&mut self, stop: bool) -> Result<(), CardError> {
        if stop {
            self.doorbells().stop.store(1, Ordering::Release);
        }
        self.wait_until(Self::is_idle)?;
        self.serving = false;
        Ok(())
    }

    /// Makes changes, each of a key, with one launch of `blocks` blocks, and waits for it. Returns
    /// what became of all changes so far.
    ///
    /// # Errors
    /// As [`Self::get`]; too many changes, or too long keys, are refused.
    pub fn update(
        &mut self,
        ops: &[(Op, &[u8])],
        now: u32,
        blocks: u32,
    ) -> Result<UpdateCounts, CardError> {
        self.begin_update(ops, now, blocks)?;
        self.end_update()
    }

    /// As [`Self::update`], without waiting. Batches may be served meanwhile.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn begin_update(
        &mut self,
        ops: &[(Op, &[u8])],
        now: u32,
        blocks: u32,
    ) -> Result<(), CardError> {
        self.wait_until(|bench| bench.updates.is_idle())?;
        if ops.len() > self.sizes.batch {
            return Err(refused("more changes than there is room for"));
        }
        let memory = &mut *self.memory;
        if !ops.is_empty() {
            // What a launch adds to, and does not write, gives wrong counts.
            memory.counts.clear();
            let junk = UpdateCounts { inserted: 1 << 30, replaced: 1 << 30, ..Default::default() };
            let _ = memory.counts.push(junk);
        }
        memory.keys.clear();
        for (i, (op, key)) in ops.iter().enumerate() {
            let (key_off, key_len) = (u32::try_from(memory.keys.len()), u8::try_from(key.len()));
            let (Ok(key_off), Ok(key_len)) = (key_off, key_len) else {
                return Err(refused("a key that is too long"));
            };
            for &byte in *key {
                memory.keys.push(byte).map_err(|_| refused("too many bytes of keys"))?;
            }
            // SAFETY: there is room for `batch` of them, and `i` is less.
            let place = unsafe { memory.ops.start().cast::<Op>().add(i) };
            // SAFETY: as above; the update before this one has ended.
            unsafe { place.write(Op { key_off, key_len, ..*op }) };
        }
        self.launches = self.launches.wrapping_add(1).max(1);
        let params = UpdateParams {
            index: self.index(),
            ops: self.memory.ops.at(),
            keys: self.memory.keys.at(),
            totals: self.memory.totals.at(),
            counts: self.memory.counts.at(),
            n: u32::try_from(ops.len()).unwrap_or(0),
            now,
            launch: self.launches,
            reserved: 0,
        };
        let kernel = if self.is_setassoc() { Kernel::UpdateSetassoc } else { Kernel::UpdateCuckoo };
        launch(&mut *self.updates, kernel, blocks, &params)
    }

    /// Waits for the changes that were begun.
    ///
    /// # Errors
    /// As [`Self::update`].
    pub fn end_update(&mut self) -> Result<UpdateCounts, CardError> {
        self.wait_until(|bench| bench.updates.is_idle())?;
        Ok(self.memory.counts.first().copied().unwrap_or_default())
    }

    /// Hashes and sums of what stands at the beginning of the first slots, so many bytes of each.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn digest(&mut self, lengths: &[u32]) -> Result<Vec<(u64, u32)>, CardError> {
        let n = lengths.len().min(self.sizes.slots as usize);
        let memory = &mut *self.memory;
        memory.lengths.clear();
        for &len in lengths.iter().take(n) {
            // There are as many as there are slots.
            let _ = memory.lengths.push(len.min(self.sizes.slot_bytes));
        }
        memory.hashes.set_len(n);
        memory.sums.set_len(n);
        let params = DigestParams {
            key: self.hash_key,
            bytes: memory.packets.at(),
            lengths: memory.lengths.at(),
            hashes: memory.hashes.at(),
            sums: memory.sums.at(),
            n: u32::try_from(n).unwrap_or(0),
            stride: self.sizes.slot_bytes,
        };
        let blocks = params.n.div_ceil(Kernel::Digest.facts().per_block);
        self.launch(Kernel::Digest, blocks, &params)?;
        self.wait_until(Self::is_idle)?;
        let (hashes, sums) = (self.memory.hashes.iter(), self.memory.sums.iter());
        Ok(hashes.copied().zip(sums.copied()).collect())
    }

    /// The descriptors of the last batch.
    pub fn descs(&self) -> &[ReqDesc] {
        &self.memory.descs
    }

    /// The heads of the last batch, if they were requested.
    pub fn heads(&self) -> &[ReplyHead] {
        &self.memory.heads
    }

    fn launch<P>(&mut self, kernel: Kernel, blocks: u32, params: &P) -> Result<(), CardError> {
        if self.stuck || self.serving {
            return Err(refused("another kernel still runs"));
        }
        launch(&mut *self.stream, kernel, blocks, params)
    }

    fn is_idle(&mut self) -> Result<bool, CardError> {
        self.stream.is_idle()
    }

    fn is_done(&self) -> bool {
        // SAFETY: zeroed memory of that size and more, on a page, borrowed with the bench; what
        // kernels write there is atomic.
        let slot = unsafe { self.memory.ring_slot.start().cast::<RingSlot>().as_ref() };
        slot.done.load(Ordering::Acquire) == self.number
    }

    fn wait_until(
        &mut self,
        mut is_so: impl FnMut(&mut Self) -> Result<bool, CardError>,
    ) -> Result<(), CardError> {
        let begun = Instant::now();
        while !is_so(self)? {
            // Persistent blocks that failed never finish a batch.
            self.stream.is_idle()?;
            self.updates.is_idle()?;
            if begun.elapsed() > WAIT_MAX {
                self.stuck = true;
                return Err(refused("the kernel does not end"));
            }
            std::thread::yield_now();
        }
        Ok(())
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        self.stuck |= self.end_serving(true).is_err() || self.end_update().is_err();
        if !self.stuck {
            // SAFETY: dropped here and nowhere else; no kernel runs.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
    }
}

/// Launches a kernel over the memory of a [`Bench`], with its own structure of parameters.
fn launch<P>(
    stream: &mut dyn Stream,
    kernel: Kernel,
    blocks: u32,
    params: &P,
) -> Result<(), CardError> {
    if size_of::<P>() != kernel.facts().params_bytes {
        return Err(refused("parameters of another kernel"));
    }
    // SAFETY: the kernel's own structure, by its size, and as the callers in this module give it.
    // What it points to is the bench's, of the sizes that it says, and stays until the kernel has ended:
    // `drop` sees to it.
    unsafe { stream.launch(kernel, blocks, std::ptr::from_ref(params).cast()) }
}

fn refused(why: &str) -> CardError {
    CardError::Refused { call: "bench", why: why.to_owned() }
}
