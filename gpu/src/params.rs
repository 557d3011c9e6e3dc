//! What kernels are launched with: structures passed by value, and the words in host memory by
//! which host and card talk. `gpu/kernels/layout.h` says the same in CUDA C++.
//!
//! Addresses are the card's ([`DevAddr`]), of its own memory or of host memory mapped to it.

/// An address as the card sees it.
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
pub(crate) const GET_SHARED_BYTES: u32 = 45_584;
/// Shared memory of a block of `digest`, in bytes.
pub(crate) const DIGEST_SHARED_BYTES: u32 = 16_896;

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

/// Where the index lies; a kernel uses one of the two kinds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Index {
    /// What keys are hashed with.
    pub key: HashKey,
    /// The set-associative index.
    pub tables: [SetTable; TABLES],
    /// The cuckoo index.
    pub cuckoo: CuckooTable,
}

/// A place for one batch in flight, in mapped host memory: the host's line, then the card's.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Place {
    /// The batch's [`crate::Entry`]s, on a multiple of 4 bytes.
    pub entries: DevAddr,
    /// Room for a [`crate::ReqDesc`] each.
    pub descs: DevAddr,
    /// Room for a [`crate::ReplyHead`] each, or 0: none are wanted.
    pub heads: DevAddr,
    /// Requests.
    pub n: u32,
    /// The store's clock, in seconds: what recency is stamped with.
    pub now: u32,
    /// Number of the newest batch. Written last, with release.
    pub rung: std::sync::atomic::AtomicU32,
    /// Zero.
    pub reserved0: [u32; 7],
    /// Number of the newest batch whose descriptors are all written. The card's; read with
    /// acquire.
    pub done: std::sync::atomic::AtomicU32,
    /// Zero.
    pub reserved1: [u32; 15],
}

/// The host's part of a [`Place`] before the doorbell, which a kernel looks at only when it has rung.
#[repr(C)]
pub(crate) struct Order {
    pub(crate) entries: DevAddr,
    pub(crate) descs: DevAddr,
    pub(crate) heads: DevAddr,
    pub(crate) n: u32,
    pub(crate) now: u32,
}

const _: () = assert!(size_of::<Order>() == std::mem::offset_of!(Place, rung));
const _: () = assert!(std::mem::offset_of!(Order, now) == std::mem::offset_of!(Place, now));

/// `get_setassoc`, `get_cuckoo`: one batch. The grid may be larger than the batch.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct GetParams {
    /// Where packets lie.
    pub packets: PacketRegion,
    /// What is looked up.
    pub index: Index,
    /// The batch's [`Place`].
    pub place: DevAddr,
    /// A word of the card's own, 0 at first, by which blocks find out which is the last.
    pub arrived: DevAddr,
}

/// `serve_setassoc`, `serve_cuckoo`: batches until told to stop. Needs all its blocks at once.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct ServeParams {
    /// Where packets lie.
    pub packets: PacketRegion,
    /// What is looked up.
    pub index: Index,
    /// `n_places` [`Place`]s, one behind the other.
    pub places: DevAddr,
    /// A word of the card's own for each place, 0 at first.
    pub arrived: DevAddr,
    /// The [`Control`].
    pub control: DevAddr,
    /// Places. The grid has `n_places * blocks_per_place` blocks.
    pub n_places: u32,
    /// Blocks that share the work of one place.
    pub blocks_per_place: u32,
}

/// How a persistent kernel is held, in mapped host memory.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Control {
    /// Not 0: end.
    pub stop: std::sync::atomic::AtomicU32,
    /// Raised by the host at least once in each `patience` milliseconds.
    pub beat: std::sync::atomic::AtomicU32,
    /// Batches after which each place's blocks end by themselves; 0: never.
    pub exit_after: u32,
    /// Milliseconds without a beat after which the kernel takes the host for dead and ends; 0:
    /// never.
    pub patience: u32,
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
}

/// One change of the index. A batch of them names each key at most once.
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

/// What became of changes. The card only adds to it.
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
    /// Zero.
    pub reserved: u32,
}

/// `update_setassoc`, `update_cuckoo`: a batch of changes.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct UpdateParams {
    /// What is changed.
    pub index: Index,
    /// The [`Op`]s.
    pub ops: DevAddr,
    /// The bytes of their keys.
    pub keys: DevAddr,
    /// An [`UpdateCounts`].
    pub counts: DevAddr,
    /// Changes.
    pub n: u32,
    /// The store's clock, in seconds.
    pub now: u32,
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
