//! What kernels are launched with: structures passed by value, and the words in host memory by
//! which host and device talk. `gpu/kernels/layout.h` says the same in CUDA C++.
//!
//! Addresses are the device's ([`DevAddr`]), of its own memory or of host memory mapped to it.

/// An address as the device sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct DevAddr(pub u64);

impl DevAddr {
    /// The address `bytes` further on.
    #[must_use]
    pub fn plus(self, bytes: usize) -> Self {
        Self(self.0.wrapping_add(bytes as u64))
    }
}

/// Ways of a set in the set-associative index.
pub const WAYS: usize = 16;
/// Tables of the set-associative index, one for each class of key lengths.
pub const TABLES: usize = 5;
/// Longest key of each table, in bytes.
pub const TABLE_KEY_MAX: [u32; TABLES] = [16, 32, 64, 128, 250];
/// Cells of a bucket in the cuckoo index.
pub const CELLS: usize = 8;

/// Shared memory of a block of the GET kernels, in bytes.
pub(crate) const GET_SHARED_BYTES: u32 = 46_656;
/// Shared memory of a block of `digest`, in bytes.
pub(crate) const DIGEST_SHARED_BYTES: u32 = 16_896;
/// Shared memory of a block of the update kernels, in bytes.
pub(crate) const UPDATE_SHARED_BYTES: u32 = 32;

/// The shared region.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct PacketRegion {
    /// Its first byte; a multiple of 16.
    pub base: DevAddr,
    /// Bytes from one slot to the next; a multiple of 16.
    pub slot_bytes: u32,
    /// Slots.
    pub slots: u32,
}

/// The key of the store's hash function, SipHash-1-3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct HashKey {
    /// Its first half.
    pub k0: u64,
    /// Its second half.
    pub k1: u64,
}

/// One table of the set-associative index: keys of one class of lengths. What lies there is said
/// in [`crate::tables`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct SetTable {
    /// The sets, on a multiple of 128 bytes.
    pub sets: DevAddr,
    /// The keys of all ways, on a multiple of 32 bytes.
    pub keys: DevAddr,
    /// Sets; 0 when there is no such table.
    pub n_sets: u32,
    /// Longest key.
    pub key_max: u32,
}

/// The cuckoo index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct CuckooTable {
    /// The buckets, on a multiple of 64 bytes.
    pub buckets: DevAddr,
    /// Buckets, a power of two; 0 when there is no such index.
    pub n_buckets: u32,
    /// Most cells that one insertion may move along.
    pub kicks_max: u32,
}

/// Rows: texts of replies, by key. What lies there is said in [`crate::tables`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct RowTable {
    /// A u32 for each way, on a multiple of 64 bytes.
    pub signatures: DevAddr,
    /// A [`crate::tables::Row`] for each way.
    pub rows: DevAddr,
    /// Sets of 16 ways; 0 when there are none.
    pub n_sets: u32,
    /// Zero.
    pub reserved: u32,
}

/// Where the index lies; a kernel uses one of the three kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Index {
    /// What keys are hashed with.
    pub key: HashKey,
    /// The set-associative index.
    pub tables: [SetTable; TABLES],
    /// The cuckoo index.
    pub cuckoo: CuckooTable,
    /// Rows.
    pub rows: RowTable,
}

/// A batch as the host orders it, and its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Order {
    /// The batch's [`crate::Entry`]s, on a multiple of 4 bytes.
    pub entries: DevAddr,
    /// Room for a [`crate::ReqDesc`] each.
    pub descs: DevAddr,
    /// Room for what is prebuilt of each reply: a [`crate::ReplyHead`], or with rows a
    /// [`crate::WholeReply`]; 0: nothing is.
    pub prebuilt: DevAddr,
    /// Requests.
    pub n: u16,
    /// The low half of the store's clock, in seconds: what recency is stamped with.
    pub now: u16,
    /// The batch's number in its ring.
    pub number: u32,
}

/// A slot of a submission ring, in mapped host memory: the host's line, then the device's.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct RingSlot {
    /// What is to be done. Kernels read it after a doorbell or a launch; the host writes it when
    /// `done` is the number that it ordered last.
    pub order: Order,
    /// Zero.
    pub reserved0: [u32; 8],
    /// Number of the newest batch whose descriptors are all written. The device's; read with
    /// acquire.
    pub done: std::sync::atomic::AtomicU32,
    /// Zero.
    pub reserved1: [u32; 15],
}

/// Most requests of a batch.
pub const BATCH_MAX: usize = u16::MAX as usize;
/// Rings of a resident grid: as many as a line has doorbells.
pub const RINGS_MAX: usize = 126;

/// The line of mapped host memory that a resident grid polls.
#[derive(Debug)]
#[repr(C, align(128))]
pub struct Doorbells {
    /// Not 0: end, when all that was announced before is given out.
    pub stop: std::sync::atomic::AtomicU8,
    /// Changed by the host now and then as a sign of life.
    pub beat: std::sync::atomic::AtomicU8,
    /// Of each ring, the low byte of the number of its newest batch. Written with release, after
    /// the order.
    pub rung: [std::sync::atomic::AtomicU8; RINGS_MAX],
}

/// A part of a batch in the work queue of a resident grid. Kernels' own.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub struct Work {
    /// The batch.
    pub order: Order,
    /// Its [`RingSlot`].
    pub ring_slot: DevAddr,
    /// Which word of [`ServeParams::arrived`] counts its parts.
    pub arrived: u32,
    /// Which part this is.
    pub part: u16,
    /// Parts of the batch; 0: the block ends.
    pub parts: u16,
    /// The ticket that draws it, and 1.
    pub ticket: u32,
    /// The same, when the block has read it.
    pub taken: u32,
    /// Zero.
    pub reserved: [u32; 2],
}

/// What stands before the parts in a work queue. Kernels' own; zeros at first.
#[derive(Debug, Clone, Copy)]
#[repr(C, align(128))]
pub struct WorkQueue {
    /// Tickets drawn.
    pub drawn: u32,
    /// Zero.
    pub reserved0: [u32; 31],
    /// Tickets given work.
    pub given: u32,
    /// Zero.
    pub reserved1: [u32; 31],
    /// The line of doorbells, as far as batches were given out.
    pub seen: [u8; 128],
}

/// `get_setassoc`, `get_cuckoo`, `get_rows`: one batch. The grid may be larger than the batch.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct GetParams {
    /// Where packets lie.
    pub packets: PacketRegion,
    /// What is looked up.
    pub index: Index,
    /// The batch's [`RingSlot`].
    pub ring_slot: DevAddr,
    /// A word of the device's own, 0 at first, by which blocks find out which is the last.
    pub arrived: DevAddr,
}

/// `serve_setassoc`, `serve_cuckoo`, `serve_rows`: batches of all rings until stopped. Needs all its blocks at once,
/// two at least: the first polls.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ServeParams {
    /// Where packets lie.
    pub packets: PacketRegion,
    /// What is looked up.
    pub index: Index,
    /// The [`Doorbells`].
    pub doorbells: DevAddr,
    /// `slots_per_ring` [`RingSlot`]s for each ring, one ring behind the other. A batch's is the one of its
    /// number modulo `slots_per_ring`.
    pub ring_slots: DevAddr,
    /// A word of the device's own for each slot, 0 at first.
    pub arrived: DevAddr,
    /// A [`WorkQueue`], and behind it `queue_mask` + 1 [`Work`]s: one for each part of all batches that
    /// may be out, and for each block, so that the polling warp seldom waits for a vacant one.
    pub queue: DevAddr,
    /// Slots of a ring: a power of two, at most 128.
    pub slots_per_ring: u32,
    /// A power of two less 1.
    pub queue_mask: u32,
    /// Milliseconds without a change in the line after which the kernel takes the host for dead and
    /// ends; 0: never.
    pub patience_ms: u32,
    /// Batches after which it ends by itself; 0: never. For profilers.
    pub batches_max: u32,
}

/// What an [`Op`] does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct OpKind(pub u8);

impl OpKind {
    /// Puts the key's location in, or the new one in the place of the old.
    pub const PUT: Self = Self(0);
    /// Takes the key out, whatever key it is that has the hash: there is none in the batch.
    pub const REMOVE: Self = Self(1);
    /// Of rows: takes out `value_len` ways from `location` on.
    pub const CLEAR: Self = Self(2);
}

/// One change of the index. A batch of them names each key at most once.
///
/// Of rows: `location` is the way, which a batch names at most once; `flags` its signature, and
/// `value_len` the bytes that are to be written, in whole pieces of 16, from `key_off` on; `key_len` is
/// not 0 if the way was the key's already.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Op {
    /// The key's hash.
    pub hash: u64,
    /// Where the item is.
    pub location: u32,
    /// The item's flags.
    pub flags: u32,
    /// Bytes of its value.
    pub value_len: u32,
    /// First byte of the key in the batch's key bytes.
    pub key_off: u32,
    /// Bytes of the key.
    pub key_len: u8,
    /// What to do.
    pub kind: OpKind,
    /// Zero.
    pub reserved: [u8; 6],
}

/// What became of all changes so far: kept in the device's memory, and copied to the host's at the
/// end of each launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct UpdateCounts {
    /// Keys that are new in the index.
    pub inserted: u32,
    /// Keys that were there, with their new location.
    pub replaced: u32,
    /// Keys taken out.
    pub removed: u32,
    /// Keys to be taken out that were not there.
    pub absent: u32,
    /// Keys that lost their way to another one (set-associative).
    pub evicted: u32,
    /// Cells moved along (cuckoo).
    pub moved: u32,
    /// Keys that found no cell (cuckoo), or for whose length there is no table (set-associative),
    /// and are left to the host.
    pub overflowed: u32,
    /// Blocks of the launch that have ended; 0 between launches.
    pub arrived: u32,
}

/// `update_setassoc`, `update_cuckoo`, `update_rows`: a batch of changes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct UpdateParams {
    /// What is changed.
    pub index: Index,
    /// The [`Op`]s.
    pub ops: DevAddr,
    /// The bytes of their keys.
    pub keys: DevAddr,
    /// An [`UpdateCounts`] in the device's memory, zeros at first: only kernels touch it.
    pub totals: DevAddr,
    /// Where the last block copies it to, in mapped host memory.
    pub counts: DevAddr,
    /// Changes; 0: the kernel touches nothing.
    pub n: u32,
    /// The store's clock, in seconds.
    pub now: u32,
    /// Number of the launch, another one than the last launch had, not 0. Launches over one index
    /// run one after the other.
    pub launch: u32,
    /// Zero.
    pub reserved: u32,
}

/// `digest`: hashes and checksums of byte strings.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct DigestParams {
    /// What is hashed with.
    pub key: HashKey,
    /// The strings, `stride` bytes from one to the next, in whole pieces of 16 bytes.
    pub bytes: DevAddr,
    /// A u32 each: its length.
    pub lengths: DevAddr,
    /// Room for a u64 each: its hash.
    pub hashes: DevAddr,
    /// Room for a u32 each: its folded ones-complement sum, in network order.
    pub sums: DevAddr,
    /// Strings.
    pub n: u32,
    /// Bytes from one string to the next.
    pub stride: u32,
}

/// `micro_read`: reads of items, and writes of what was read.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct MicroReadParams {
    /// The items, each from a multiple of 16 bytes on.
    pub from: DevAddr,
    /// Room for as many, or 0: nothing is written but the sum.
    pub to: DevAddr,
    /// A u32 to which the words of all that is read are added, in some order.
    pub sum: DevAddr,
    /// Items, at least 1.
    pub items: u32,
    /// Bytes of an item that are read: 8, or 16 to 16 × `lanes`.
    pub item_bytes: u32,
    /// Bytes from one item to the next.
    pub stride: u32,
    /// The same where they are written to.
    pub to_stride: u32,
    /// Threads that read an item together: a power of two, at most 32.
    pub lanes: u32,
    /// Groups of so many threads; the grid may have more, which do nothing.
    pub groups: u32,
    /// Items that each group reads, a multiple of 4.
    pub rounds: u32,
    /// Which random items.
    pub seed: u32,
    /// Not 0: random items, else one after the other.
    pub random: u32,
    /// Zero.
    pub reserved: u32,
}

/// `micro_lookup_setassoc`, `micro_lookup_cuckoo`: keys against an index.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct MicroLookupParams {
    /// What is looked up.
    pub index: Index,
    /// The keys, each from a multiple of 16 bytes on.
    pub keys: DevAddr,
    /// Room for a u64 each: [`crate::Hint`], and the location in the high half.
    pub results: DevAddr,
    /// Keys.
    pub n: u32,
    /// The clock, in seconds: what recency is stamped with.
    pub now: u32,
    /// Bytes of every key.
    pub key_bytes: u32,
    /// Bytes from one key to the next.
    pub stride: u32,
}

/// `micro_multiply`: products of two vectors of u32.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct MicroMultiplyParams {
    /// One vector, in the device's own memory.
    pub a: DevAddr,
    /// The other.
    pub b: DevAddr,
    /// Room for the products.
    pub to: DevAddr,
    /// Number of the launch's first block among those of the whole task.
    pub first: u32,
    /// Elements of each thread.
    pub rounds: u32,
    /// Elements from one of a thread to its next: the threads of the whole task.
    pub stride: u32,
    /// How often each thread goes through its elements.
    pub passes: u32,
}

/// `micro_ping`: answers to a doorbell.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct MicroPingParams {
    /// A u32 that the host changes.
    pub bell: DevAddr,
    /// A u32 that the kernel makes equal to it.
    pub answer: DevAddr,
    /// Answers after which it ends.
    pub answers: u32,
    /// Milliseconds without a change after which it ends.
    pub patience: u32,
    /// Nanoseconds between two looks.
    pub pause_ns: u32,
    /// Zero.
    pub reserved: u32,
}

/// `micro_empty`: nothing.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct MicroEmptyParams {
    /// A u32 to which each run adds 1.
    pub runs: DevAddr,
}
