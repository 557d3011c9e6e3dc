//! Whether anything works at all: every kernel that serves requests does a little, by hand and through
//! engines, in every mode.
//!
//! In: a GPU. Out: a row for each, with its time or what went wrong. Fails when one did, after all have
//! been tried.

use super::lab::{HOW, Lab, SHAPE, name};
use super::stage;
use super::{Extent, Result};
use crate::report::Report;
use crate::study::load::{Load, UDP_AT};
use gpu::bench::{Bench, IndexKind, Sizes};
use gpu::card::Card;
use gpu::params::Op;
use gpu::{Entry, Hint, Verdict};
use serde_json::json;
use std::sync::Arc;
use std::time::Instant;
use store::Store;

/// Items that are requested.
const ITEMS: u64 = 2000;
/// Requests of a batch by hand; half of them for items that are there.
const REQUESTS: u32 = 200;

/// Tries everything once.
///
/// # Errors
/// What failed first.
pub fn run(card: &Arc<dyn Card>, extent: Extent, report: &mut Report) -> Result<()> {
    let mut failed = None;
    let mut row = |what: &str, begun: Instant, done: Result<()>| {
        let why = done.err().map(|why| why.to_string());
        let ms = begun.elapsed().as_secs_f64() * 1e3;
        let row = json!({ "what": what, "works": why.is_none(), "ms": ms, "why": why });
        failed = failed.take().or_else(|| why.map(|why| format!("{what}: {why}")));
        report.row("sanity", row)
    };
    let begun = Instant::now();
    let mut lab = Lab::new(card, ITEMS, extent)?.small();
    row("a store", begun, Ok(()))?;
    let setassoc = IndexKind::Setassoc { n_sets: [64, 64, 0, 0, 0] };
    let cuckoo = IndexKind::Cuckoo { n_buckets: 256, kicks_max: 32 };
    for (what, kind) in [("by hand, setassoc", setassoc), ("by hand, cuckoo", cuckoo)] {
        let begun = Instant::now();
        let done = by_hand(card, kind, lab.store());
        row(what, begun, done)?;
    }
    for how in HOW {
        let begun = Instant::now();
        let done = stage::once(&mut lab, how, extent);
        row(&name(how), begun, done)?;
    }
    failed.map_or(Ok(()), |why| Err(why.into()))
}

/// Changes, a launched batch, and one by kernels that stay.
fn by_hand(card: &Arc<dyn Card>, kind: IndexKind, store: &Store) -> Result<()> {
    let sizes = Sizes { slots: REQUESTS, slot_bytes: 2048, batch: REQUESTS as usize };
    let mut bench = Bench::new(card, kind, store.hash_key(), sizes)?;
    let keys: Vec<Vec<u8>> = (0..u64::from(REQUESTS)).map(|n| SHAPE.key(n)).collect();
    let there = |n: u32| n.is_multiple_of(2);
    let changes: Vec<(Op, &[u8])> = (0..)
        .zip(&keys)
        .filter(|(n, _)| there(*n))
        .map(|(n, key)| {
            let op = Op { hash: store.hash(key).0, location: 7 + n, ..Op::default() };
            (op, key.as_slice())
        })
        .collect();
    let counts = bench.update(&changes, 1, 3)?;
    if counts.inserted as usize != changes.len() {
        return Err(format!("of {} changes: {counts:?}", changes.len()).into());
    }
    let mut entries = Vec::new();
    for slot in 0..REQUESTS {
        let request = Load::Get.request(SHAPE, &[u64::from(slot)], ITEMS).ok_or("no request")?;
        bench.slot(slot).get_mut(..request.len()).ok_or("no slot")?.copy_from_slice(&request);
        let (len, l4) = (u16::try_from(request.len())?, u8::try_from(UDP_AT)?);
        entries.push(Entry { slot, len, l3: 14, l4, ..Entry::default() });
    }
    bench.get(&entries, 2, true, 2)?;
    look(&bench, there)?;
    bench.start_serving(2, 0, 10_000)?;
    bench.serve(&entries, 2, true)?;
    bench.end_serving(true)?;
    look(&bench, there)
}

/// Whether the last batch's answers are right.
fn look(bench: &Bench, there: impl Fn(u32) -> bool) -> Result<()> {
    if bench.descs().len() != REQUESTS as usize {
        return Err("a batch without answers".into());
    }
    for (n, desc) in (0..).zip(bench.descs()) {
        let key = desc.keys.first().copied().unwrap_or_default();
        let want = if there(n) { (Hint::HIT, 7 + n) } else { (Hint::MISS, 0) };
        if desc.verdict != Verdict::READY || (key.hint, key.location) != want {
            return Err(format!("wrong: request {n} is {desc:?}").into());
        }
    }
    Ok(())
}
