//! What the processor does: random lines of memory, and values copied to where replies are built.
//!
//! In: a number of threads. Out: operations a second of all of them. The upper bound of the stage that
//! fills replies, which is the processor's work whatever engine there is.

use super::{Extent, median};
use crate::report::Report;
use driver_shim::prefetch_read;
use serde_json::json;
use std::hint::black_box;
use std::io;
use std::sync::Barrier;
use std::thread;
use std::time::Instant;

/// A line of the cache.
type Line = [u64; 8];
/// Reads that overlap.
const GROUP: usize = 32;
/// Lines that replies are built in, by each thread: as many as slots of a receive ring.
const REPLIES: usize = 1024;

/// Measures for 1, 2, 4, … threads, up to the processor's.
///
/// # Errors
/// The report cannot be written.
pub fn run(report: &mut Report, extent: &Extent) -> io::Result<()> {
    let lines = vec![[1_u64; 8]; extent.pick(1 << 24, 1 << 12)];
    let most = thread::available_parallelism().map_or(1, usize::from);
    let mut threads = 1;
    while extent.goes_on() {
        let each = extent.pick(1 << 22, 1 << 10);
        for (what, fill) in [("random line", false), ("value fill, 64 B", true)] {
            let mut rates: Vec<f64> =
                (0..extent.runs()).map(|_| rate(&lines, threads, each, fill)).collect();
            let rate = median(&mut rates);
            report.row(
                "cpu",
                json!({ "what": what, "threads": threads, "per_s": rate,
                        "per_s_and_thread": rate / threads as f64 }),
            )?;
        }
        if threads >= most {
            break;
        }
        threads = (threads * 2).min(most);
    }
    Ok(())
}

/// Operations a second of `threads` threads, each of which does `each`.
fn rate(lines: &[Line], threads: usize, each: usize, fill: bool) -> f64 {
    let start = Barrier::new(threads + 1);
    let (begun, ()) = thread::scope(|scope| {
        for number in 0..threads {
            let start = &start;
            scope.spawn(move || {
                let mut replies = vec![[0_u64; 8]; REPLIES];
                start.wait();
                black_box(work(lines, &mut replies, number, each, fill));
            });
        }
        start.wait();
        (Instant::now(), ())
    });
    (threads * each) as f64 / begun.elapsed().as_secs_f64()
}

fn work(lines: &[Line], replies: &mut [Line], number: usize, each: usize, fill: bool) -> u64 {
    let mut random = (number as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut sum = 0_u64;
    let mut reply = 0;
    for _ in 0..each / GROUP {
        let group: [Option<&Line>; GROUP] = std::array::from_fn(|_| {
            // xorshift64 (Marsaglia, 2003).
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let line = lines.get(usize::try_from(random >> 8).unwrap_or(0) % lines.len());
            if let Some(line) = line {
                prefetch_read(line);
            }
            line
        });
        for line in group.into_iter().flatten() {
            if fill {
                reply = (reply + 1) % REPLIES;
                if let Some(to) = replies.get_mut(reply) {
                    *to = *line;
                }
            } else {
                sum = sum.wrapping_add(line.iter().fold(0, |a, b| a.wrapping_add(*b)));
            }
        }
    }
    sum.wrapping_add(replies.iter().flatten().fold(0, |a, b| a.wrapping_add(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_of_the_work_is_done() {
        let lines = vec![[1_u64; 8]; 100];
        let mut replies = vec![[0_u64; 8]; REPLIES];
        assert_eq!(work(&lines, &mut replies, 0, 10 * GROUP, false), 8 * 10 * GROUP as u64);
        assert_eq!(work(&lines, &mut replies, 0, 10 * GROUP, true), 8 * 10 * GROUP as u64);
    }
}
