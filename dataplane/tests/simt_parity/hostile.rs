//! A worker beside a GPU whose driver waits for kernels before it releases memory.

use crate::world::{Beside, World, Wrap, request};
use gpu::card::Card;
use gpu::index::IndexKind;
use gpu::offload::Mode;
use gpu::simt::SimtCard;
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::StoreConfig;

/// Its kernels end before its memory is unmapped: else it waits until they take it for dead.
#[test]
fn a_worker_ends_its_kernels_first() {
    let card = Arc::new(SimtCard::default());
    let shared: Arc<dyn Card> = Arc::clone(&card) as _;
    let beside = Beside { card: shared, ..Beside::new(Mode::Persistent, IndexKind::Cuckoo) };
    let config = StoreConfig { memory_bytes: 16 << 20, ..StoreConfig::default() };
    let mut w = World::beside(config, &beside);
    w.send(&request(Wrap::V4, 1, b"get key\r\n"));
    let begun = Instant::now();
    while w.received(0).is_empty() {
        w.workers[0].turn();
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert!(w.counters[0].gpu_batches.get() > 0);
    card.set_wait_max(Some(Duration::from_secs(20)));
    let begun = Instant::now();
    drop(w.workers.drain(..));
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}
