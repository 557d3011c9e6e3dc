//! The kernels, run by the SIMT executor, against the CPU engine, the stages after it, and a model
//! of an index.
//!
//! `GNOMON_TEST_CARD=cuda` runs the kernels on the first GPU instead, which must be there;
//! `GNOMON_TEST_CORPUS=DIRECTORY` is where the fuzz inputs are, when not in the tree.
//! `SIMT_PACKETS=N` sets how many random packets are compared; `SIMT_SEED=N` with what they begin.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod descriptors;
mod golden;
mod heads;
mod hostile;
mod index;
mod pcie;
mod requests;
mod rng;
mod serve;
#[path = "../journeys/world.rs"]
#[allow(dead_code, reason = "shared with the journeys, which use more of it")]
mod world;

use gpu::bench::{Bench, IndexKind, Sizes};
use gpu::card::Card;
use gpu::cuda::CudaCard;
use gpu::params::{HashKey, Op, OpKind};
use gpu::simt::SimtCard;
use std::sync::{Arc, LazyLock};

const HASH_KEY: HashKey = HashKey { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 };
const SETASSOC: IndexKind = IndexKind::Setassoc { n_sets: [64, 64, 64, 64, 64] };
const CUCKOO: IndexKind = IndexKind::Cuckoo { n_buckets: 256, kicks_max: 32 };
const BATCH: usize = 512;
const SLOT_BYTES: u32 = 2048;

/// The first GPU, opened once: that takes seconds.
static GPU: LazyLock<Arc<dyn Card>> = LazyLock::new(|| Arc::new(CudaCard::open(0).unwrap()));

/// An executor whose threads take turns in an order drawn from `seed`; or a GPU.
fn card(seed: u64) -> Arc<dyn Card> {
    if is_executor() { Arc::new(SimtCard::new(seed)) } else { Arc::clone(&*GPU) }
}

/// Rather than a GPU.
fn is_executor() -> bool {
    match std::env::var("GNOMON_TEST_CARD").as_deref() {
        Ok("cuda") => false,
        Ok("simt") | Err(_) => true,
        Ok(other) => panic!("GNOMON_TEST_CARD is cuda or simt, not {other}"),
    }
}

/// A bench over a GPU.
fn bench(kind: IndexKind, seed: u64) -> Bench {
    over(&card(seed), kind)
}

/// The same over an executor that watches every access.
fn watched_bench(kind: IndexKind, seed: u64) -> (Bench, Arc<SimtCard>) {
    let card = Arc::new(SimtCard::watching(seed));
    (over(&(Arc::clone(&card) as Arc<dyn Card>), kind), card)
}

fn over(card: &Arc<dyn Card>, kind: IndexKind) -> Bench {
    let sizes = Sizes { slots: 512, slot_bytes: SLOT_BYTES, batch: BATCH };
    Bench::new(card, kind, HASH_KEY, sizes).unwrap()
}

/// Hashes keys as the kernels do.
fn hash(key: &[u8]) -> u64 {
    use store::{Store, StoreConfig};
    static STORE: LazyLock<Arc<Store>> = LazyLock::new(|| {
        let bytes: [u8; 16] = std::array::from_fn(|i| u8::try_from(i).unwrap());
        let config =
            StoreConfig { memory_bytes: 4 << 20, hash_key: Some(bytes), ..Default::default() };
        Store::new(config).unwrap()
    });
    STORE.hash(key).0
}

/// Puts a key in.
fn put(key: &[u8], location: u32, flags: u32, value_len: u32) -> (Op, &[u8]) {
    let op = Op { hash: hash(key), location, flags, value_len, ..Op::default() };
    (op, key)
}

/// Takes a key out.
fn remove(key: &[u8]) -> (Op, &[u8]) {
    (Op { hash: hash(key), kind: OpKind::REMOVE, ..Op::default() }, key)
}
