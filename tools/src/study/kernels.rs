//! A batch of requests for the watched kernels, which studies of the kernels count.
//!
//! In: an index, requests. Out: what the executor's watching build counted, and if it is recorded, what
//! each thread did, launch by launch. The same each time. Fails as the executor does.

use super::lanes::Sums;
use super::load::SERVER;
use crate::workload::{Popularity, Sampler};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use gnomon_client::codec::{Protocol, udp};
use gpu::bench::{Bench, IndexKind, Sizes};
use gpu::card::Card;
use gpu::params::{HashKey, Op};
use gpu::simt::{Event, SimtCard};
use gpu::{Entry, Hint};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use store::{Store, StoreConfig};
use wire::build::UdpFrame;

/// Requests in a full batch.
pub const BATCH: usize = 512;
/// Bytes of a packet's place.
const SLOT_BYTES: u32 = 2048;
/// Blocks of a launch, at least: each takes a part of the batch.
const BLOCKS_MIN: usize = 4;
/// Requests that a block takes.
const PER_BLOCK: usize = 128;
/// Bytes of the headers up to UDP's, without options.
const L3: u8 = 14;
const L4: u8 = 34;

/// How a request is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// As text.
    Ascii,
    /// As the binary protocol has it.
    Binary,
    /// Every other one.
    Mixed,
}

/// One batch.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Of the two indexes, this one or the cuckoo table.
    pub setassoc: bool,
    /// How requests are written.
    pub dialect: Dialect,
    /// Lengths of keys, one as likely as the other.
    pub lengths: &'static [usize],
    /// Of a hundred requests, those for a key that the index has.
    pub hits: u32,
    /// Requests.
    pub batch: usize,
    /// Which keys are asked for.
    pub popularity: Popularity,
}

impl Case {
    /// A full batch of hits: ASCII gets of 16-byte keys.
    pub fn plain(setassoc: bool) -> Self {
        let (dialect, popularity) = (Dialect::Ascii, Popularity::Uniform);
        Self { setassoc, dialect, lengths: &[16], hits: 100, batch: BATCH, popularity }
    }
}

/// What became of a batch.
#[derive(Debug)]
pub struct Done {
    /// What its kernel did.
    pub counts: Sums,
    /// Requests whose key was found.
    pub found: usize,
    /// What its kernel did, thread by thread, if that was to be recorded.
    pub gets: Vec<Event>,
    /// What each launch that filled the index did.
    pub updates: Vec<Vec<Event>>,
}

impl Case {
    /// The index's name.
    pub fn index(self) -> &'static str {
        if self.setassoc { "setassoc" } else { "cuckoo" }
    }

    /// Keys of each length in the index.
    pub fn keys(self) -> usize {
        self.batch.max(BATCH)
    }

    /// Fills an index, and looks the batch up.
    ///
    /// # Errors
    /// What the executor says.
    pub fn run(self, seed: u64, records: bool) -> Result<Done, Box<dyn Error>> {
        let card = Arc::new(SimtCard::watching(seed));
        let (keys, batch) = (self.keys(), self.batch.max(BATCH));
        let blocks = u32::try_from(self.batch.div_ceil(PER_BLOCK).max(BLOCKS_MIN))?;
        let sizes = Sizes { slots: u32::try_from(batch)?, slot_bytes: SLOT_BYTES, batch };
        // Room for eight times as many keys of a length; or twice as many of four lengths.
        let kind = if self.setassoc {
            IndexKind::Setassoc { n_sets: [u32::try_from(keys / 2)?; 5] }
        } else {
            IndexKind::Cuckoo { n_buckets: u32::try_from(2 * keys)?, kicks_max: 32 }
        };
        let as_card: Arc<dyn Card> = Arc::clone(&card) as _;
        let mut bench = Bench::new(&as_card, kind, HashKey::default(), sizes)?;
        // For its hash alone.
        let memory_bytes = 4 << 20;
        let config = StoreConfig { memory_bytes, hash_key: Some([0; 16]), ..Default::default() };
        let store = Store::new(config)?;
        let mut updates = Vec::new();
        for length in self.lengths {
            let keys: Vec<Vec<u8>> = (0..keys).map(|i| name(i, *length)).collect();
            let ops: Vec<(Op, &[u8])> = keys
                .iter()
                .map(|key| (Op { hash: store.hash(key).0, location: 1, ..Op::default() }, &key[..]))
                .collect();
            card.record(records);
            bench.update(&ops, 1, blocks)?;
            updates.push(card.events());
        }
        let entries = self.requests(&mut bench, seed)?;
        let before = card.counts();
        card.record(records);
        bench.get(&entries, 2, true, blocks)?;
        let (after, gets) = (card.counts(), card.events());
        let found = bench.descs().iter().filter(|d| d.keys.iter().any(|k| k.hint == Hint::HIT));
        let counts = Sums {
            steps: after.steps - before.steps,
            lanes: after.lanes - before.lanes,
            accesses: after.accesses - before.accesses,
            sectors: after.sectors - before.sectors,
        };
        Ok(Done { counts, found: found.count(), gets, updates })
    }

    /// Puts the requests in their places.
    fn requests(self, bench: &mut Bench, seed: u64) -> Result<Vec<Entry>, Box<dyn Error>> {
        let keys = self.keys();
        let mut sampler = Sampler::new(keys as u64, self.popularity).ok_or("no such popularity")?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut entries = Vec::new();
        for slot in 0..self.batch {
            let i = usize::try_from(sampler.read(&mut rng))?;
            let length = self.lengths.get(rng.random_range(0..self.lengths.len()));
            let hit = rng.random_range(0..100) < self.hits;
            let key = name(if hit { i } else { keys + i }, length.copied().unwrap_or(16));
            let binary = match self.dialect {
                Dialect::Ascii => false,
                Dialect::Binary => true,
                Dialect::Mixed => slot % 2 == 1,
            };
            let bytes = request(&key, binary).ok_or("a request does not fit a frame")?;
            let slot = u32::try_from(slot)?;
            let place = bench.slot(slot);
            place.get_mut(..bytes.len()).ok_or("no such slot")?.copy_from_slice(&bytes);
            let len = u16::try_from(bytes.len())?;
            entries.push(Entry { slot, len, l3: L3, l4: L4, ..Entry::default() });
        }
        Ok(entries)
    }
}

/// The name of a key: its number, filled up.
fn name(i: usize, length: usize) -> Vec<u8> {
    format!("{i:0length$}").into_bytes()
}

/// A get of one key.
fn request(key: &[u8], binary: bool) -> Option<Vec<u8>> {
    let protocol = if binary { Protocol::Binary } else { Protocol::Ascii };
    let mut payload = udp::header(1).to_vec();
    protocol.get([key].iter(), &mut payload);
    UdpFrame {
        src_mac: PEER_MAC,
        dst_mac: MAC,
        vlans: &[],
        src: SocketAddr::from((Ipv4Addr::new(10, 0, 0, 1), 40_000)),
        dst: SocketAddr::from(SERVER),
        payload: &payload,
    }
    .to_vec()
}
