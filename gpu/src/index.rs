//! The index on the device: a replica of the host's, made from what the host store says, always a
//! little behind, and never believed without a look at the item (D1), or in its place at the [`Filter`]
//! that rows have (D17).
//!
//! ```text
//!  store ── "look at this hash again" ──► Feed ──► Updater ── what is there now? ──► store
//!                                                     └── a batch of changes ──► kernel ──► Mirror
//! ```
//!
//! In: a kind, memory, and how long keys are expected to be. Out: tables of the right sizes in the
//! device's memory, as kernels see them. Owns that memory. Fails when the device has not got it.

mod feed;
mod filter;
mod form;
mod row;
mod rows;
mod source;
mod updater;

pub use feed::Feed;
pub use filter::{FILTER_WORDS, Filter, Stale, Stamp, signature};
pub use form::Form;
pub use source::{Found, Source};
pub use updater::{Schedule, Updater, UpdaterCounters};

use crate::card::{Card, CardError, CardMemory, Kernel};
use crate::params::{
    CELLS, CuckooTable, HashKey, Index, RowTable, SetTable, TABLE_KEY_MAX, TABLES, WAYS,
};
use crate::tables::{Bucket, Row, Set, way_bytes};
use std::sync::Arc;

/// How the index is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexKind {
    /// Sixteen ways a set, 8-bit tags, keys inline, in tables by the length of keys (MemcachedGPU).
    SetAssoc,
    /// Buckets of eight cells, a 32-bit signature and a location each (Mega-KV).
    Cuckoo,
    /// No index, but the texts of replies: sets of sixteen rows, a 32-bit signature each.
    Rows,
}

impl IndexKind {
    /// The word for people and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::SetAssoc => "setassoc",
            Self::Cuckoo => "cuckoo",
            Self::Rows => "rows",
        }
    }

    /// The kernel that answers a batch, or that stays and answers many.
    pub(crate) fn batch_kernel(self, stays: bool) -> Kernel {
        match (self, stays) {
            (Self::SetAssoc, false) => Kernel::GetSetassoc,
            (Self::SetAssoc, true) => Kernel::ServeSetassoc,
            (Self::Cuckoo, false) => Kernel::GetCuckoo,
            (Self::Cuckoo, true) => Kernel::ServeCuckoo,
            (Self::Rows, false) => Kernel::GetRows,
            (Self::Rows, true) => Kernel::ServeRows,
        }
    }

    pub(crate) fn update_kernel(self) -> Kernel {
        match self {
            Self::SetAssoc => Kernel::UpdateSetassoc,
            Self::Cuckoo => Kernel::UpdateCuckoo,
            Self::Rows => Kernel::UpdateRows,
        }
    }
}

/// What fraction of the keys falls in each table, by their length: the classes of
/// [`TABLE_KEY_MAX`].
pub type Shares = [f64; TABLES];

/// Shares when key lengths are not known: most keys of caches are short (Atikoglu et al., SIGMETRICS 2012: 90 %
/// within 20 to 40 bytes in their largest pool), and a table that is too small only sends its keys
/// to the host.
pub const SHARES_DEFAULT: Shares = [0.35, 0.40, 0.17, 0.06, 0.02];

/// What index to make.
#[derive(Debug, Clone, Copy)]
pub struct IndexConfig {
    /// How it is built.
    pub kind: IndexKind,
    /// Most memory for it, in bytes.
    pub memory_bytes: u64,
    /// How long keys are; for [`IndexKind::SetAssoc`].
    pub shares: Shares,
}

/// Most cells that one insertion moves along: beyond 32, a table of eight cells a bucket is full.
const KICKS_MAX: u32 = 32;
/// Where parts of the index begin.
const ALIGN: u64 = 256;

/// How large the parts of an index are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Sizes {
    /// Sets of each table.
    sets: [u32; TABLES],
    buckets: u32,
    /// Sets of rows.
    row_sets: u32,
}

/// Bytes of a set's signatures.
const SIGNATURES_BYTES: u64 = (WAYS * size_of::<u32>()) as u64;
/// Bytes of its rows.
const SET_ROWS_BYTES: u64 = (WAYS * size_of::<Row>()) as u64;
/// Most sets of rows: ways are counted in 32 bits.
const ROW_SETS_MAX: u64 = 1 << 27;

/// Bytes of a set, beside its keys.
const SET_BYTES: u64 = size_of::<Set>() as u64;
/// Bytes of a bucket.
const BUCKET_BYTES: u64 = size_of::<Bucket>() as u64;

/// Bytes of all ways of a set that hold keys of up to `key_max` bytes.
fn ways_bytes(key_max: u32) -> u64 {
    (WAYS * way_bytes(key_max)) as u64
}

/// Where the parts of an index begin, in bytes from its own beginning.
struct Layout {
    /// Sets and keys of each table.
    tables: [(u64, u64); TABLES],
    buckets: u64,
    /// Signatures, and rows.
    rows: (u64, u64),
    end: u64,
}

impl Sizes {
    /// The largest that fit.
    fn within(config: &IndexConfig) -> Self {
        let mut sizes = Self::default();
        match config.kind {
            IndexKind::Rows => {
                let sets = config.memory_bytes / (SIGNATURES_BYTES + SET_ROWS_BYTES);
                sizes.row_sets = u32::try_from(sets.clamp(1, ROW_SETS_MAX)).unwrap_or(1);
            }
            IndexKind::Cuckoo => {
                let most = (config.memory_bytes / BUCKET_BYTES).clamp(2, 1 << 31);
                let power = u32::try_from(most).unwrap_or(1 << 31).max(1).ilog2();
                sizes.buckets = 1 << power;
            }
            IndexKind::SetAssoc => {
                let weights = config.shares.map(|share| if share > 0.0 { share } else { 0.0 });
                let cost = |table: usize| {
                    let key_max = TABLE_KEY_MAX.get(table).copied().unwrap_or(0);
                    (SET_BYTES + ways_bytes(key_max)) as f64
                };
                let weighted: f64 =
                    weights.iter().enumerate().map(|(table, weight)| weight * cost(table)).sum();
                for (sets, weight) in sizes.sets.iter_mut().zip(weights) {
                    if weight <= 0.0 || weighted <= 0.0 {
                        continue;
                    }
                    let n = config.memory_bytes as f64 * weight / weighted;
                    // Within range by the clamp; a fraction of a set is none.
                    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
                    let n = n.clamp(1.0, f64::from(1 << 30)) as u32;
                    *sets = n;
                }
            }
        }
        sizes
    }

    /// The parts behind each other.
    fn layout(&self) -> Layout {
        let mut end = 0u64;
        let mut take = |bytes: u64| {
            let at = end;
            end = (end + bytes).next_multiple_of(ALIGN);
            at
        };
        let mut tables = [(0, 0); TABLES];
        for ((table, sets), key_max) in tables.iter_mut().zip(self.sets).zip(TABLE_KEY_MAX) {
            let sets = u64::from(sets);
            *table = (take(sets * SET_BYTES), take(sets * ways_bytes(key_max)));
        }
        let buckets = take(u64::from(self.buckets) * BUCKET_BYTES);
        let row_sets = u64::from(self.row_sets);
        let rows = (take(row_sets * SIGNATURES_BYTES), take(row_sets * SET_ROWS_BYTES));
        Layout { tables, buckets, rows, end }
    }

    fn entries(&self) -> u64 {
        let sets = self.sets.iter().chain([&self.row_sets]).copied().map(u64::from).sum::<u64>();
        sets * WAYS as u64 + u64::from(self.buckets) * CELLS as u64
    }
}

/// The index on a device.
#[derive(Debug)]
pub struct Mirror {
    /// Read by kernels only, not by the host.
    memory: CardMemory,
    params: Index,
    kind: IndexKind,
    entries: u64,
}

impl Mirror {
    /// An empty index.
    ///
    /// # Errors
    /// [`CardError::OutOfMemory`], or what the driver says.
    pub(crate) fn new(
        card: &Arc<dyn Card>,
        config: IndexConfig,
        key: HashKey,
    ) -> Result<Self, CardError> {
        let sizes = Sizes::within(&config);
        let Layout { tables: at, buckets, rows, end } = sizes.layout();
        let bytes =
            usize::try_from(end).map_err(|_| CardError::OutOfMemory { bytes: usize::MAX })?;
        let memory = CardMemory::new(card, bytes)?;
        // An offset within memory that was just taken.
        let plus = |offset: u64| memory.at().plus(usize::try_from(offset).unwrap_or(0));
        let mut params = Index { key, ..Index::default() };
        let shapes = sizes.sets.into_iter().zip(TABLE_KEY_MAX).zip(at);
        for (table, ((n_sets, key_max), (sets, keys))) in params.tables.iter_mut().zip(shapes) {
            if n_sets > 0 {
                *table = SetTable { sets: plus(sets), keys: plus(keys), n_sets, key_max };
            }
        }
        if sizes.buckets > 0 {
            let (buckets, n_buckets) = (plus(buckets), sizes.buckets);
            params.cuckoo = CuckooTable { buckets, n_buckets, kicks_max: KICKS_MAX };
        }
        if sizes.row_sets > 0 {
            let (signatures, rows) = (plus(rows.0), plus(rows.1));
            params.rows = RowTable { signatures, rows, n_sets: sizes.row_sets, reserved: 0 };
        }
        Ok(Self { memory, params, kind: config.kind, entries: sizes.entries() })
    }

    /// As kernels see it.
    pub(crate) fn params(&self) -> Index {
        self.params
    }

    /// How it is built.
    pub fn kind(&self) -> IndexKind {
        self.kind
    }

    /// Keys that fit in it.
    pub fn entries(&self) -> u64 {
        self.entries
    }

    /// Memory that it takes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    fn sizes(kind: IndexKind, memory_bytes: u64, shares: Shares) -> Sizes {
        Sizes::within(&IndexConfig { kind, memory_bytes, shares })
    }

    #[test]
    fn a_budget_is_used_and_kept() {
        for kind in [IndexKind::SetAssoc, IndexKind::Cuckoo, IndexKind::Rows] {
            for mb in [1, 3, 64, 1000, 20_000] {
                let sizes = sizes(kind, mb * MB, SHARES_DEFAULT);
                let bytes = sizes.layout().end;
                // Parts begin at round addresses.
                assert!(bytes <= mb * MB + 12 * ALIGN, "{kind:?} {mb}");
                let least = if kind == IndexKind::Cuckoo { mb * MB / 2 } else { mb * MB * 9 / 10 };
                assert!(bytes >= least, "{kind:?} {mb} {bytes}");
            }
        }
    }

    #[test]
    fn tables_hold_keys_in_their_shares() {
        let sizes = sizes(IndexKind::SetAssoc, 64 * MB, [0.5, 0.0, 0.25, 0.25, 0.0]);
        let [a, b, c, d, e] = sizes.sets;
        assert_eq!((b, e), (0, 0));
        assert!(c.abs_diff(d) <= 1 && a.abs_diff(2 * c) <= 2, "{:?}", sizes.sets);
        let total = u64::from(a) + u64::from(c) + u64::from(d);
        assert_eq!(sizes.entries(), 16 * total);
    }

    #[test]
    fn parts_do_not_overlap() {
        let sizes = sizes(IndexKind::SetAssoc, 5 * MB, SHARES_DEFAULT);
        let Layout { tables, buckets, end, .. } = sizes.layout();
        let mut last = 0;
        for (((sets, keys), n), key_max) in tables.into_iter().zip(sizes.sets).zip(TABLE_KEY_MAX) {
            assert!(sets >= last && sets % ALIGN == 0);
            assert!(keys >= sets + u64::from(n) * SET_BYTES && keys % ALIGN == 0);
            last = keys + u64::from(n) * ways_bytes(key_max);
        }
        assert!(buckets >= last && end >= buckets);
    }

    #[test]
    fn hopeless_numbers_are_survived() {
        for kind in [IndexKind::SetAssoc, IndexKind::Cuckoo, IndexKind::Rows] {
            for bytes in [0, 1, u64::MAX / 2] {
                sizes(kind, bytes, SHARES_DEFAULT).layout();
                sizes(kind, bytes, [f64::NAN, -1.0, 0.0, f64::INFINITY, 1e300]).layout();
            }
        }
    }
}
