//! GETs beside another user of the device (MemcachedGPU 5.4, figures 6 and 7).
//!
//! In: a [`Lab`], and a rate of GETs. Out: how long they wait before, during and after a task of vector products that
//! others have launched, and how long that takes, by the blocks of each of its launches, and with and without a
//! priority of the GETs. Products and descriptors are looked at afterwards. Fails on wrong ones, and as the device
//! does.

use super::lab::Lab;
use super::stage::{Case, Cases, Fed, check};
use super::{Extent, Result, percentile};
use crate::plot::Axis;
use crate::report::Report;
use crate::report::table::{Draw, Table, table};
use gpu::bench::Multiply;
use gpu::index::IndexKind;
use gpu::offload::Mode;
use serde_json::{Value, json};
use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The paper's rate.
pub const GETS_PER_S: f64 = 4e6;
/// The paper's task: so many blocks of 1,024 threads, which take so long in one launch.
const BLOCKS: u32 = 256;
const TASK: Duration = Duration::from_millis(32);
/// In the smallest form.
const BLOCKS_TINY: u32 = 32;
const TASK_TINY: Duration = Duration::from_millis(10);
/// Threads of a block.
const THREADS: u32 = 1024;
/// Blocks of the other task, for each multiprocessor: several times what runs at once.
const BLOCKS_PER_SM: u32 = 16;
/// Elements of a vector, so that no cache has it. A task goes through all of it, in launches of whatever size.
const ELEMENTS: u32 = 1 << 24;
/// Launches of a task: from one on, each time four times as many.
const LAUNCHES_MAX: u32 = 256;
/// Multiprocessors that a kernel that stays may fill: it has registers of each that it is on, and one of a task's blocks
/// takes nearly all of one.
const GRID: u32 = 8;
/// Requests of a batch: the paper's window.
const BATCH: usize = 256;
/// Longest time for a task.
const TASK_MAX: Duration = Duration::from_secs(20);
/// Pause between two looks whether it is done.
const LOOK: Duration = Duration::from_micros(20);

/// What a task of another user does to GETs, and they to it; and the same over time.
pub const TABLES: &[Table] = table! {
    "consolidation" "GETs beside another user of the GPU (MemcachedGPU, figure 7)"
        ["engine priority blocks blocks_per_launch launches alone_ms beside_ms us_before us_mean \
          us_p99 us_max disturbed_ms refused"]
        "Vector products in launches of so many blocks: alone, and beside GETs in batches of 256 at the paper's 4 M/s, with none going first or GETs. Microseconds from a request's arrival to the host's sight of the answer, on average of a batch: before the task and beside it. `disturbed_ms`: for how long batches took more than twice as long as before.";
    "consolidation_course" "The course of it (MemcachedGPU, figure 6)" ["blocks_per_launch ms us"]
        "The paper's task of 256 blocks, begun at 25 ms, with no priority: what GETs take, on average of a millisecond."
        => Draw::Lines { x: Axis::linear("ms"), y: Axis::log("us"), by: "blocks_per_launch" };
};

/// What a device is given beside GETs.
#[derive(Debug, Clone, Copy)]
struct Other {
    blocks: u32,
    /// It waits for GETs.
    background: bool,
}

/// When a task began and ended.
type Span = (Instant, Instant);
/// When each batch was due, and how many microseconds its requests waited, on average.
type Waits = Vec<(Instant, f64)>;

/// What is measured of one size of launches.
struct Measured {
    span: Span,
    /// What the task takes without GETs.
    alone: Duration,
    waits: Waits,
}

/// Both tasks, with and without a priority, beside `per_s` GETs a second.
///
/// # Errors
/// Wrong descriptors or products, or what the device says.
pub fn run(lab: &mut Lab, per_s: f64, extent: Extent, report: &mut Report) -> Result<()> {
    let filling = BLOCKS_PER_SM * lab.multiprocessors();
    let mut rows = Cases::new("consolidation", report);
    lab.hold_grid_to(GRID);
    for how in [(Mode::Graph, IndexKind::SetAssoc), (Mode::Persistent, IndexKind::SetAssoc)] {
        let full = Case::full(lab, how, extent);
        let case = Case { workers: 1, batch: extent.pick(BATCH, 32), ..full };
        for blocks in extent.pick(&[BLOCKS, filling][..], &[BLOCKS_TINY]) {
            for background in [false, true] {
                if !extent.goes_on() {
                    break;
                }
                let other = Other { blocks: *blocks, background };
                let measured = beside(lab, case, other, per_s, extent, &mut rows);
                rows.done(&case, measured)?;
            }
        }
    }
    lab.hold_grid_to(u32::MAX);
    rows.end()
}

/// One task, in fewer and fewer blocks a launch.
fn beside(
    lab: &mut Lab,
    case: Case,
    other: Other,
    per_s: f64,
    extent: Extent,
    rows: &mut Cases<'_>,
) -> Result<()> {
    let mut fed = case.feed(lab)?;
    let rounds = extent.pick(ELEMENTS / (other.blocks * THREADS).max(1), 1);
    let card = lab.offload()?;
    let mut task = Multiply::new(card.card(), other.blocks, rounds.max(1), other.background)?;
    lab.ready()?;
    let gap = Duration::from_secs_f64(case.batch as f64 / per_s);
    let mut go = || {
        let one = fed.first_mut().ok_or("no engine")?;
        calibrate(&mut task, other.blocks, extent.pick(TASK, TASK_TINY))?;
        let sizes = (0..)
            .map(|n| other.blocks >> (2 * n))
            .take_while(|size| *size > 0 && other.blocks / size <= LAUNCHES_MAX);
        // All of these first, while no kernel stays.
        let sizes: Result<Vec<_>> = sizes.map(|size| Ok((size, alone(&mut task, size)?))).collect();
        for (per_launch, alone) in sizes? {
            if !extent.goes_on() {
                break;
            }
            let (span, waits) = measure(one, &mut task, per_launch, gap, extent)?;
            let measured = Measured { span, alone, waits };
            rows.row(&case, &measured.row(other, per_launch, gap))?;
            // The paper's figure 6: its task, and no priorities.
            if case.how.0 == Mode::Graph && other.blocks <= BLOCKS && !other.background {
                for row in measured.course(per_launch) {
                    rows.report().row("consolidation_course", row)?;
                }
            }
        }
        Ok::<_, Box<dyn Error>>(task.end()?)
    };
    let done = go();
    // First the engines' kernels, then what is taken beside them.
    let checked = check(lab, fed);
    drop(task);
    checked?;
    done
}

/// Has the task take so long in one launch.
fn calibrate(task: &mut Multiply, blocks: u32, wanted: Duration) -> Result<()> {
    let mut passes = 1;
    // The first time for caches and clocks; one pass is too short to be measured well.
    for _ in 0..3 {
        task.repeat(passes);
        let took = alone(task, blocks)?.as_nanos().max(1);
        let all = (u128::from(passes) * wanted.as_nanos()).div_ceil(took);
        passes = u32::try_from(all).unwrap_or(u32::MAX);
    }
    task.repeat(passes);
    Ok(())
}

/// How long the task takes.
fn alone(task: &mut Multiply, per_launch: u32) -> Result<Duration> {
    let begun = Instant::now();
    task.begin(per_launch)?;
    while !task.is_idle()? {
        if begun.elapsed() > TASK_MAX {
            return Err("the other task does not end".into());
        }
        thread::sleep(LOOK);
    }
    Ok(begun.elapsed())
}

/// GETs at their rate: for a while, then beside the task, and for a while after its end.
fn measure(
    one: &mut Fed,
    task: &mut Multiply,
    per_launch: u32,
    gap: Duration,
    extent: Extent,
) -> Result<(Span, Waits)> {
    let around = extent.pick(Duration::from_millis(25), 4 * gap);
    let over = AtomicBool::new(false);
    let (waits, span) = thread::scope(|scope| {
        let other = scope.spawn(|| {
            thread::sleep(around);
            let begun = Instant::now();
            let took = alone(task, per_launch).map_err(|why| why.to_string());
            thread::sleep(around);
            over.store(true, Ordering::Relaxed);
            took.map(|took| (begun, begun + took))
        });
        let waits = one.pace(gap, || over.load(Ordering::Relaxed));
        (waits, other.join().unwrap_or_else(|_| Err("a thread died".to_owned())))
    });
    let gathering = gap.as_secs_f64() * 1e6 / 2.0;
    let waits = waits?.into_iter().map(|(due, us)| (due, us + gathering)).collect();
    Ok((span?, waits))
}

impl Measured {
    /// For the table.
    fn row(&self, other: Other, per_launch: u32, gap: Duration) -> Value {
        let (begun, ended) = self.span;
        let of = |within: &dyn Fn(Instant) -> bool| -> Vec<f64> {
            let mut us: Vec<f64> =
                self.waits.iter().filter(|(due, _)| within(*due)).map(|(_, us)| *us).collect();
            us.sort_by(f64::total_cmp);
            us
        };
        let mean = |us: &[f64]| us.iter().sum::<f64>() / us.len() as f64;
        let before = mean(&of(&|due| due < begun));
        let during = of(&|due| due >= begun && due <= ended);
        let slow = self.waits.iter().filter(|(due, us)| *due >= begun && *us > 2.0 * before);
        let (alone, took) = (self.alone.as_secs_f64(), (ended - begun).as_secs_f64());
        json!({
            "priority": if other.background { "GETs" } else { "none" },
            "blocks": other.blocks, "blocks_per_launch": per_launch,
            "launches": other.blocks.div_ceil(per_launch),
            "alone_ms": alone * 1e3, "beside_ms": took * 1e3,
            "us_before": before, "us_mean": mean(&during), "us_p99": percentile(&during, 0.99),
            "us_max": percentile(&during, 1.0),
            "disturbed_ms": slow.count() as f64 * gap.as_secs_f64() * 1e3,
        })
    }

    /// The mean of each millisecond since the first batch.
    fn course(&self, per_launch: u32) -> Vec<Value> {
        let Some((first, _)) = self.waits.first() else { return Vec::new() };
        let ms = |due: &Instant| due.duration_since(*first).as_millis();
        let mean =
            |of: &[(Instant, f64)]| of.iter().map(|(_, us)| us).sum::<f64>() / of.len() as f64;
        self.waits
            .chunk_by(|(one, _), (next, _)| ms(one) == ms(next))
            .filter_map(|of| Some((ms(&of.first()?.0), mean(of))))
            .map(|(ms, us)| json!({ "blocks_per_launch": per_launch, "ms": u64::try_from(ms).ok(), "us": us }))
            .collect()
    }
}
