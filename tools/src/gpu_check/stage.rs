//! The GPU stage by itself: batches over packets that lie in the host's memory, given to engines again
//! and again. The host does nothing for a request.
//!
//! In: a [`Lab`]. Out: requests a second; how long batches take from the doorbell to the host's sight of
//! the answer, alone and at rates offered; what changes of the index cost them. Every descriptor of
//! every batch is looked at once, after the measurement. Fails on wrong descriptors, and as the
//! device does.

use super::lab::{BATCH_MAX, HOW, How, Lab, SHAPE, name};
use super::lookup::{CHANGES_PER_S, is_due};
use super::{Extent, Result, goals, percentile};
use crate::report::Report;
use crate::study::load::UDP_AT;
use driver_shim::Frame;
use gpu::bench::{KEY_BYTES, Updates};
use gpu::index::Source as _;
use gpu::offload::Mode;
use gpu::params::Op;
use gpu::{Batch, Engine, Entry, EntryFlags, Hint, Outcome, Verdict};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};
use store::StoreSource;

/// First byte of the IP header in a frame.
const L3: u8 = 14;
/// Longest time for which requests are gathered for a batch.
const GATHER_MAX_S: f64 = 130e-6;
/// Part of the requests that a replica of the index may miss: sets overflow.
const MISSES_MAX: f64 = 0.02;

/// What is given to engines.
#[derive(Debug, Clone, Copy)]
pub(super) struct Case {
    pub(super) how: How,
    pub(super) workers: usize,
    pub(super) batch: usize,
    pub(super) in_flight: usize,
    /// The device prepares reply headers.
    pub(super) heads: bool,
    /// The device verifies checksums; else the NIC has.
    pub(super) checksums: bool,
}

/// An engine and its batches. Frames go after both.
pub(super) struct Fed {
    engine: Box<dyn Engine>,
    #[expect(clippy::vec_box, reason = "engines take and give boxes")]
    idle: Vec<Box<Batch>>,
    frames: Vec<Frame>,
}

impl Case {
    pub(super) fn full(lab: &Lab, how: How, extent: Extent) -> Self {
        let (workers, in_flight) = (lab.workers(), lab.in_flight());
        let batch = extent.pick(1024, 64);
        Self { how, workers, batch, in_flight, heads: false, checksums: false }
    }

    /// Engines with full batches.
    pub(super) fn feed(&self, lab: &mut Lab) -> Result<Vec<Fed>> {
        let requests = lab.requests(self.batch * self.in_flight, 100, false)?;
        let engines = lab.engines((self.how, self.heads), self.workers, self.batch)?;
        let region = lab.region()?;
        let known = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
        let flags = if self.checksums { EntryFlags::default() } else { known };
        let mut all = Vec::new();
        for offloading in engines {
            let mut engine = offloading.engine;
            let (mut idle, mut frames) = (Vec::new(), Vec::new());
            let mut requests = requests.iter();
            for id in 0..self.in_flight {
                let mut batch = engine.new_batch(u32::try_from(id)?, self.batch);
                for request in requests.by_ref().take(self.batch) {
                    let mut frame = region.alloc().ok_or("no free slot")?;
                    frame.fill(request).map_err(|_| "a request does not fit a frame")?;
                    let (slot, off) = (frame.slot(), frame.offset());
                    let (len, l4) = (u16::try_from(frame.len())?, u8::try_from(UDP_AT)?);
                    let entry = Entry { slot, off, len, l3: L3, l4, flags, mark: 0 };
                    batch.entries.push(entry).map_err(|_| "a batch is full")?;
                    frames.push(frame);
                }
                idle.push(batch);
            }
            all.push(Fed { engine, idle, frames });
        }
        Ok(all)
    }

    fn row(&self) -> Value {
        json!({
            "engine": name(self.how), "workers": self.workers, "batch": self.batch,
            "in_flight": self.in_flight, "heads": self.heads,
            "checksums": if self.checksums { "device" } else { "NIC" },
        })
    }
}

impl Fed {
    /// Gives all idle batches to the engine, as far as it takes them.
    fn submit(&mut self) -> bool {
        let Some(batch) = self.idle.pop() else { return false };
        match self.engine.submit(batch) {
            Ok(()) => true,
            Err(batch) => {
                self.idle.push(batch);
                false
            }
        }
    }

    /// Requests of a batch that is done, if one is.
    fn poll(&mut self) -> Result<Option<usize>> {
        match self.engine.poll() {
            None if !self.engine.is_open() && self.engine.in_flight() == 0 => {
                Err("the device has failed".into())
            }
            None => Ok(None),
            Some((_, Outcome::Lost)) => Err("a batch was lost".into()),
            Some((batch, _)) => {
                let requests = batch.entries.len();
                self.idle.push(batch);
                Ok(Some(requests))
            }
        }
    }

    /// Has batches done until stopped; adds up their requests.
    fn run(&mut self, stop: &AtomicBool, done: &AtomicU64) -> Result<()> {
        while !stop.load(Ordering::Relaxed) {
            while self.submit() {}
            while let Some(requests) = self.poll()? {
                done.fetch_add(requests as u64, Ordering::Relaxed);
            }
        }
        self.finish()
    }

    /// A batch each time that another `gap` has passed, until it is over: when each was due, and how many
    /// microseconds later it was done. One that finds no free place waits.
    pub(super) fn pace(
        &mut self,
        gap: Duration,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<Vec<(Instant, f64)>> {
        let (mut waits, mut under_way) = (Vec::new(), VecDeque::new());
        let mut due = Instant::now();
        loop {
            let over = is_over();
            if over && under_way.is_empty() {
                return Ok(waits);
            }
            if !over && Instant::now() >= due && self.submit() {
                under_way.push_back(due);
                due += gap;
            }
            while self.poll()?.is_some() {
                if let Some(due) = under_way.pop_front() {
                    waits.push((due, due.elapsed().as_secs_f64() * 1e6));
                }
            }
        }
    }

    /// Waits for what is under way; engines bound that.
    fn finish(&mut self) -> Result<()> {
        while self.engine.in_flight() > 0 {
            self.poll()?;
        }
        Ok(())
    }

    /// Misses among the requests of all batches that were done.
    fn misses(&self) -> Result<(usize, usize)> {
        let (mut misses, mut all) = (0, 0);
        for batch in &self.idle {
            for (_, desc, _) in batch.requests() {
                // Never given to the engine.
                if batch.descs.is_empty() {
                    continue;
                }
                all += 1;
                let key = desc.keys.first().copied().unwrap_or_default();
                if desc.verdict != Verdict::READY || desc.n_keys != 1 {
                    return Err(format!("wrong: a descriptor of a get: {desc:?}").into());
                }
                misses += usize::from(key.hint != Hint::HIT);
            }
        }
        Ok((misses, all))
    }
}

/// Ends the engines' work and looks at what they said.
pub(super) fn check(lab: &mut Lab, fed: Vec<Fed>) -> Result<f64> {
    let (mut misses, mut all) = (0, 0);
    for one in &fed {
        let (missed, asked) = one.misses()?;
        (misses, all) = (misses + missed, all + asked);
    }
    for Fed { engine, idle, frames } in fed {
        // Kernels first, then what they use.
        drop(engine);
        drop(idle);
        drop(frames);
    }
    lab.is_well()?;
    let share = misses as f64 / all.max(1) as f64;
    if all == 0 || share > MISSES_MAX {
        return Err(format!("wrong: {misses} of {all} items are not found").into());
    }
    Ok(share)
}

/// Requests a second of all engines, over `length`, beside what `meanwhile` does until its end.
fn drive(
    fed: &mut [Fed],
    length: Duration,
    mut meanwhile: impl FnMut() -> Result<()>,
) -> Result<f64> {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    thread::scope(|scope| {
        let works: Vec<_> = fed
            .iter_mut()
            .map(|one| scope.spawn(|| one.run(&stop, &done).map_err(|why| why.to_string())))
            .collect();
        // A quarter first, for caches and clocks; on a slow machine until something is done.
        let count = || done.load(Ordering::Relaxed);
        let over = || works.iter().any(thread::ScopedJoinHandle::is_finished);
        let mut wait = |least: Duration, most: Duration, from: u64| {
            let begun = Instant::now();
            while begun.elapsed() < least || count() == from && begun.elapsed() < most && !over() {
                meanwhile()?;
            }
            Ok::<_, Box<dyn Error>>(())
        };
        let warm = wait(length / 4, 40 * length, 0);
        let (begun, from) = (Instant::now(), count());
        let measured = warm.and_then(|()| wait(length, 40 * length, from));
        let rate = (count() - from) as f64 / begun.elapsed().as_secs_f64();
        stop.store(true, Ordering::Relaxed);
        for work in works {
            work.join().map_err(|_| "a thread died")??;
        }
        measured.map(|()| rate)
    })
}

fn pause() -> Result<()> {
    thread::sleep(Duration::from_millis(1));
    Ok(())
}

fn length(extent: Extent) -> Duration {
    extent.pick(Duration::from_millis(300), Duration::from_millis(10))
}

/// Goes through cases; what a case refuses is a row, and the others go on.
pub(super) struct Cases<'a> {
    table: &'static str,
    report: &'a mut Report,
    refused: Option<String>,
}

impl<'a> Cases<'a> {
    pub(super) fn new(table: &'static str, report: &'a mut Report) -> Self {
        Self { table, report, refused: None }
    }

    /// Where rows of other tables go.
    pub(super) fn report(&mut self) -> &mut Report {
        self.report
    }

    /// Adds what was measured to what is known of the case.
    pub(super) fn row(&mut self, case: &Case, measured: &Value) -> Result<()> {
        let mut row = case.row();
        if let (Some(row), Some(measured)) = (row.as_object_mut(), measured.as_object()) {
            row.extend(measured.clone());
        }
        Ok(self.report.row(self.table, row)?)
    }

    pub(super) fn done(&mut self, case: &Case, measured: Result<()>) -> Result<()> {
        let Err(why) = measured else { return Ok(()) };
        let why = why.to_string();
        self.row(case, &json!({ "refused": why }))?;
        self.refused = Some(format!("{}: {why}", name(case.how)));
        Ok(())
    }

    pub(super) fn end(self) -> Result<()> {
        self.refused.map_or(Ok(()), |why| Err(why.into()))
    }
}

/// Requests a second: each way of use, and what workers, batches, headers and checksums make of it.
///
/// # Errors
/// Wrong descriptors, or what the device says.
pub fn rates(lab: &mut Lab, extent: Extent, report: &mut Report) -> Result<()> {
    let mut cases = Vec::new();
    for how in HOW {
        let full = Case::full(lab, how, extent);
        cases.push(full);
        if how.0 == Mode::Launch {
            continue;
        }
        for batch in extent.pick(&[128, 256, 512, 2048, BATCH_MAX][..], &[]) {
            cases.push(Case { batch: *batch, ..full });
        }
        for workers in extent.pick(&[1, 2, 4, 8][..], &[]) {
            if *workers < full.workers {
                cases.push(Case { workers: *workers, ..full });
            }
        }
        cases.push(Case { heads: true, checksums: true, ..full });
    }
    let mut rows = Cases::new("stage", report);
    for case in cases {
        if !extent.goes_on() {
            break;
        }
        let measured = rate(lab, case, extent).and_then(|(rate, misses)| {
            let roof = goals::packets(rows.report).map(|(_, roof)| roof);
            rows.row(
                &case,
                &json!({ "requests_per_s": rate, "missed": misses,
                                     "roof_per_s": roof, "of_roof": roof.map(|roof| rate / roof) }),
            )
        });
        rows.done(&case, measured)?;
    }
    rows.end()
}

fn rate(lab: &mut Lab, case: Case, extent: Extent) -> Result<(f64, f64)> {
    let mut fed = case.feed(lab)?;
    lab.ready()?;
    let rate = drive(&mut fed, length(extent), pause);
    let misses = check(lab, fed);
    Ok((rate?, misses?))
}

/// A batch or two with everything wanted of them, looked at.
///
/// # Errors
/// As [`rates`].
pub(super) fn once(lab: &mut Lab, how: How, extent: Extent) -> Result<()> {
    let tiny = Extent { tiny: true, ..extent };
    let case = Case { workers: 1, heads: true, checksums: true, ..Case::full(lab, how, tiny) };
    let mut fed = case.feed(lab)?;
    lab.ready()?;
    let done = fed.iter_mut().try_for_each(|one| {
        while one.submit() {}
        one.finish()
    });
    check(lab, fed)?;
    done
}

/// How long batches take: one at a time, and at rates offered.
///
/// # Errors
/// As [`rates`].
pub fn latencies(lab: &mut Lab, extent: Extent, report: &mut Report) -> Result<()> {
    let hows: Vec<How> = HOW.into_iter().filter(|how| how.0 != Mode::Launch).collect();
    let batches = extent.pick(&[32, 64, 128, 256, 512][..], &[32]);
    let rates = extent.pick(&[1e6, 2e6, 5e6, 10e6][..], &[1e4]);
    let mut refused = None;
    for how in hows {
        let one = Case { workers: 1, ..Case::full(lab, how, extent) };
        let mut rows = Cases::new("alone", report);
        for batch in extent.pick(&[1, 32, 128, 512, 1024, BATCH_MAX][..], &[32]) {
            let case = Case { batch: *batch, in_flight: 1, ..one };
            if extent.goes_on() {
                let measured = alone(lab, case, extent).and_then(|row| rows.row(&case, &row));
                rows.done(&case, measured)?;
            }
        }
        refused = rows.end().err().or(refused);
        let mut rows = Cases::new("offered", report);
        for (rate, batch) in rates.iter().flat_map(|rate| batches.iter().map(move |b| (rate, b))) {
            let case = Case { batch: *batch, ..one };
            // Such a batch is late before it is full.
            let too_late = case.batch as f64 / rate > GATHER_MAX_S && !extent.tiny;
            if extent.goes_on() && !too_late {
                let measured = offered(lab, case, *rate, extent);
                let measured = measured.and_then(|row| rows.row(&case, &row));
                rows.done(&case, measured)?;
            }
        }
        refused = rows.end().err().or(refused);
    }
    refused.map_or(Ok(()), Err)
}

/// The part of a row that says how long things took, in microseconds.
fn times(mut us: Vec<f64>) -> serde_json::Map<String, Value> {
    us.sort_by(f64::total_cmp);
    let at = |p| json!(percentile(&us, p));
    let fields = [
        ("batches", json!(us.len())),
        ("us_p50", at(0.5)),
        ("us_p99", at(0.99)),
        ("us_p999", at(0.999)),
        ("us_max", at(1.0)),
    ];
    fields.into_iter().map(|(field, value)| (field.to_owned(), value)).collect()
}

fn alone(lab: &mut Lab, case: Case, extent: Extent) -> Result<Value> {
    let mut fed = case.feed(lab)?;
    lab.ready()?;
    let length = length(extent) / 2;
    let measured = fed.first_mut().ok_or_else(|| "no engine".into()).and_then(|one| {
        let (mut us, begun) = (Vec::new(), Instant::now());
        // The first few are not counted.
        let mut warm = 20;
        while us.is_empty() || begun.elapsed() < length {
            let start = Instant::now();
            one.submit();
            while one.poll()?.is_none() {}
            if warm > 0 {
                warm -= 1;
            } else {
                us.push(start.elapsed().as_secs_f64() * 1e6);
            }
        }
        Ok::<_, Box<dyn Error>>(us)
    });
    let misses = check(lab, fed);
    let us = measured?;
    misses?;
    Ok(Value::Object(times(us)))
}

/// Full batches, one each time that as many requests would have come. A batch that finds no free
/// place waits, and its time counts from when it was due.
fn offered(lab: &mut Lab, case: Case, per_s: f64, extent: Extent) -> Result<Value> {
    let mut fed = case.feed(lab)?;
    lab.ready()?;
    let gap = Duration::from_secs_f64(case.batch as f64 / per_s);
    let length = (length(extent) * 2 / 3).max(3 * gap);
    let measured = fed.first_mut().ok_or_else(|| "no engine".into()).and_then(|one| {
        let begun = Instant::now();
        let waits = one.pace(gap, || begun.elapsed() >= length)?;
        let rate = (waits.len() * case.batch) as f64 / begun.elapsed().as_secs_f64();
        Ok::<_, Box<dyn Error>>((waits.into_iter().map(|(_, us)| us).collect(), rate))
    });
    let misses = check(lab, fed);
    let (us, rate) = measured?;
    misses?;
    let mut row = times(us);
    let gather_us = gap.as_secs_f64() * 1e6;
    let p99 = row.get("us_p99").and_then(Value::as_f64).unwrap_or(f64::NAN);
    row.insert("offered_per_s".to_owned(), json!(per_s));
    row.insert("requests_per_s".to_owned(), json!(rate));
    // The first and the last batch are cut off.
    row.insert("kept_up".to_owned(), json!(rate >= per_s * 0.97));
    row.insert("gather_us".to_owned(), json!(gather_us));
    row.insert("request_us_p99".to_owned(), json!(p99 + gather_us));
    Ok(Value::Object(row))
}

/// GETs at full speed beside changes of the index they look into.
///
/// # Errors
/// As [`rates`].
pub fn sets(lab: &mut Lab, extent: Extent, report: &mut Report) -> Result<()> {
    let mut rows = Cases::new("sets_beside_gets", report);
    for how in HOW.into_iter().filter(|how| how.0 != Mode::Launch) {
        let case = Case::full(lab, how, extent);
        let measured = beside_changes(lab, case, extent, &mut rows);
        rows.done(&case, measured)?;
    }
    rows.end()
}

fn beside_changes(lab: &mut Lab, case: Case, extent: Extent, rows: &mut Cases<'_>) -> Result<()> {
    let mut fed = case.feed(lab)?;
    let list = extent.pick(1 << 14, 1 << 6);
    let mut updates = changes(lab, list)?;
    lab.ready()?;
    let measured = drive(&mut fed, length(extent), pause).and_then(|alone| {
        for offered in CHANGES_PER_S {
            if !extent.goes_on() {
                break;
            }
            let (begun, mut made) = (Instant::now(), 0);
            let gets = drive(&mut fed, length(extent), || {
                if is_due(offered, made, begun.elapsed()) && updates.is_idle()? {
                    updates.begin(1)?;
                    made += list;
                }
                Ok(())
            })?;
            let seconds = begun.elapsed().as_secs_f64();
            updates.end()?;
            rows.row(
                &case,
                &json!({
                    "offered_per_s": offered, "changes_per_s": made as f64 / seconds,
                    "gets_per_s": gets, "alone_per_s": alone, "loss": 1.0 - gets / alone,
                }),
            )?;
        }
        Ok(())
    });
    // First the engines' kernels, then what is mapped beside them.
    let checked = check(lab, fed);
    drop(updates);
    checked?;
    measured
}

/// Changes that give items the locations that they have.
fn changes(lab: &Lab, list: usize) -> Result<Updates> {
    let mut updates = Updates::beside(&lab.offload()?, list)?;
    let mut source = StoreSource::new(lab.store().session()?, true);
    let step = (lab.items / list as u64).max(1);
    let keys: Vec<Vec<u8>> = (0..list as u64).map(|n| SHAPE.key(n * step % lab.items)).collect();
    let hashes: Vec<u64> = keys.iter().map(|key| lab.store().hash(key).0).collect();
    let mut at = Vec::new();
    source.look(&hashes, &mut |_, found| {
        at.push(found.map(|found| (found.location, found.value_len)))
    });
    updates.write(list, |ops, bytes| {
        let all = ops.iter_mut().zip(bytes.chunks_mut(KEY_BYTES)).zip(hashes.iter().zip(&at));
        for (((op, to), (hash, at)), key) in all.zip(&keys) {
            let (location, value_len) = at.unwrap_or_default();
            *op = Op { hash: *hash, location, value_len, ..Op::default() };
            to.copy_from_slice(key);
        }
    })?;
    Ok(updates)
}
