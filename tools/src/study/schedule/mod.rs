//! Mega-KV's periodic delayed scheduling (section 5): the shortest cycle that a GPU can keep.
//!
//! In: what a batch costs on the GPU, fitted as lines of its size (the paper's Tesla K40c, or `--search` and
//! `--update`), and the part of searches. Out: the least cycle by input rate, by equation 2, beside that without
//! delay, and three cycles, the longest that a GET may take; and the other way about, the most operations by cycle
//! (equation 4, figure 12), and the clocks that Mega-KV's rule chooses by them (`clocks`, section 6).

mod clocks;

use super::frame::{Common, Frame};
use super::tco::positive;
use crate::report::table::{Draw, Table, table};
use clap::Parser;
use serde_json::{Value, json};
use std::error::Error;
use std::str::FromStr;

/// The time that a kernel takes by the size of its batch: `slope` µs for each operation, and `start` µs.
#[derive(Debug, Clone, Copy)]
pub struct Line {
    slope: f64,
    start: f64,
}

/// Figure 10: Search, and Insert and Delete, on a Tesla K40c.
const K40C: (Line, Line) =
    (Line { slope: 5.9e-3, start: 22.1 }, Line { slope: 6.2e-3, start: 144.5 });

impl FromStr for Line {
    type Err = String;

    /// `SLOPE:START`.
    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|n: &f64| n.is_finite() && *n >= 0.0);
        let line = text
            .split_once(':')
            .and_then(|(slope, start)| Some(Self { slope: number(slope)?, start: number(start)? }));
        line.ok_or_else(|| {
            format!("`{text}` is no SLOPE:START, microseconds by operation and microseconds")
        })
    }
}

/// What a GPU costs, and what is asked of it.
#[derive(Debug, Clone, Copy)]
struct Card {
    search: Line,
    update: Line,
    /// Part of searches among all operations.
    searches: f64,
}

impl Card {
    /// Time by operation that a µs of input causes, of searches and of updates, at `rate` operations per µs.
    fn shares(self, rate: f64) -> (f64, f64) {
        (self.search.slope * self.searches * rate, self.update.slope * (1.0 - self.searches) * rate)
    }

    /// The least cycle in µs when updates wait for `n` cycles (equation 2), if there is one at this rate.
    fn delayed(self, rate: f64, n: f64) -> Option<f64> {
        let (search, update) = self.shares(rate);
        let left = 2.0 - 2.0 * search - n * update;
        (left > 0.0).then(|| (2.0 * self.search.start + self.update.start) / left)
    }

    /// The same when updates go with each batch.
    fn at_once(self, rate: f64) -> Option<f64> {
        let (search, update) = self.shares(rate);
        let left = 1.0 - search - update;
        (left > 0.0).then(|| (self.search.start + self.update.start) / left)
    }

    /// The rate in operations per µs from which on no cycle is long enough.
    fn limit(self, n: f64) -> f64 {
        let (search, update) = self.shares(1.0);
        2.0 / (2.0 * search + n * update)
    }

    /// The most operations per µs in cycles of `cycle` µs, if any, when updates wait for two (equation 4).
    fn most_delayed(self, cycle: f64) -> Option<f64> {
        self.most(self.delayed(0.0, 2.0)?, cycle)
    }

    /// The same when updates go with each batch.
    fn most_at_once(self, cycle: f64) -> Option<f64> {
        self.most(self.at_once(0.0)?, cycle)
    }

    /// What is left of the limit, which is the same with and without delay, when `least` µs of a cycle are not for
    /// operations.
    fn most(self, least: f64, cycle: f64) -> Option<f64> {
        (cycle > least).then(|| self.limit(2.0) * (1.0 - least / cycle))
    }
}

const CYCLES: Table = table! {
    "cycles" "The least cycle by input rate" ["mops updates cycle_us longest_get_us"]
    "Microseconds: updates every second cycle (Mega-KV, equation 2), every fourth, and with each batch; a GET takes three cycles at most."
    => Draw::lines("mops", "cycle_us", "updates")
};
const SPEED: Table = table! {
    "speed" "The most that a GPU answers by cycle (figure 12)"
    ["cycle_us updates mops more_percent"]
    "Million operations per second, updates every second cycle (Mega-KV, equation 4) and with each batch; `more_percent`: what the delay gains, which the paper puts at 17.8 to 68.4."
    => Draw::lines("cycle_us", "mops", "updates")
};
const CLOCKS: Table = table! {
    "clocks" "Clocks of a K40c by cycle (tables 1 and 2)"
    ["cycle_us memory_mhz core_mhz mops cpu_from cpu_below"]
    "The most that it answers, in million operations per second, and from which to which throughput of the CPU the rule chooses them: the least throughput of the GPU above the CPU's."
};
const CHOSEN: Table = table! {
    "chosen" "Clocks that the paper chose (section 8.8.1)"
    ["data_sets cpu_mops core_mhz chosen_by_them from_cycle_us"]
    "`from_cycle_us`: the cycle from which on a clock is enough; none if no cycle is. `cpu_mops` of a, b and c: the most of the cluster, by GPU."
};
const MANAGED: Table = table! {
    "managed" "The frequency rule at work"
    ["second cycle_us cpu_mops clocks cpu_mhz gpu_core_mhz cpu_mops_at gpu_mops_at"]
    "At the longest cycle: what the CPU gives at its highest clock, measured every 10 s (`--cpu-mops`), the clocks chosen, and the throughput of both at them."
};

/// What to compute.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// Cost of a search batch, SLOPE:START: microseconds by operation, and microseconds.
    #[arg(long, value_name = "LINE")]
    search: Option<Line>,
    /// Cost of a batch of inserts and deletes. Like the other, of `cycles` and `speed`: the clocks are a K40c's.
    #[arg(long, value_name = "LINE")]
    update: Option<Line>,
    /// Part of searches among all operations.
    #[arg(long, default_value = "0.95", value_parser = part)]
    searches: f64,
    /// Cycles in microseconds that rates are computed for.
    #[arg(long, value_name = "US", value_delimiter = ',', value_parser = positive,
        default_value = "80,100,120,140,160,180,200,240,280,320,360,400,500,600")]
    cycle_us: Vec<f64>,
    /// Million operations per second of the CPU at its highest clock, one for every 10 s; the frequency rule follows. The default is
    /// an example.
    #[arg(long, value_name = "MOPS", value_delimiter = ',', value_parser = positive,
        default_value = "22,22.5,80,80,120,200,22")]
    cpu_mops: Vec<f64>,
}

fn part(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(part) if (0.0..=1.0).contains(&part) => Ok(part),
        _ => Err(format!("`{text}` is no number from 0 to 1")),
    }
}

impl Cli {
    /// Computes, prints and writes.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("schedule", &self.common)?;
        let card = Card {
            search: self.search.unwrap_or(K40C.0),
            update: self.update.unwrap_or(K40C.1),
            searches: self.searches,
        };
        frame.report.table("cycles", cycles(card))?;
        frame.report.table("speed", speed(card, &self.cycle_us))?;
        frame.report.table("clocks", clocks::clocks(self.searches, &self.cycle_us))?;
        frame.report.table("chosen", clocks::chosen(self.searches))?;
        let longest = self.cycle_us.iter().copied().fold(0.0, f64::max);
        let managed = clocks::managed(self.searches, longest, &self.cpu_mops);
        frame.report.table("managed", managed)?;
        Ok(frame.end(&[CYCLES, SPEED, CLOCKS, CHOSEN, MANAGED])?)
    }
}

/// The least cycles from no load up to 0.95 of the most that a GPU can take.
fn cycles(card: Card) -> Vec<Value> {
    const STEPS: u32 = 20;
    let most = card.limit(2.0) * 0.95;
    // No line has a slope: the GPU takes any rate.
    let most = if most.is_finite() { most } else { 1_000.0 };
    let mut rows = Vec::new();
    for step in 0..=STEPS {
        let rate = most * f64::from(step) / f64::from(STEPS);
        let ways = [
            ("every 2 cycles", card.delayed(rate, 2.0)),
            ("every 4 cycles", card.delayed(rate, 4.0)),
            ("with each batch", card.at_once(rate)),
        ];
        for (updates, cycle) in ways {
            let Some(cycle) = cycle else { continue };
            rows.push(json!({
                "mops": rate, "updates": updates, "cycle_us": cycle, "longest_get_us": 3.0 * cycle,
            }));
        }
    }
    rows
}

/// The most operations by cycle; no row where the cycle is too short for any.
fn speed(card: Card, cycles: &[f64]) -> Vec<Value> {
    let mut rows = Vec::new();
    for &cycle in cycles {
        let (delayed, at_once) = (card.most_delayed(cycle), card.most_at_once(cycle));
        let more = delayed.zip(at_once).map(|(delayed, at_once)| (delayed / at_once - 1.0) * 100.0);
        for (updates, mops, more) in
            [("every 2 cycles", delayed, more), ("with each batch", at_once, None)]
        {
            let Some(mops) = mops else { continue };
            rows.push(json!({
                "cycle_us": cycle, "updates": updates, "mops": mops, "more_percent": more,
            }));
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    const CARD: Card = Card { search: K40C.0, update: K40C.1, searches: 0.95 };

    /// The bounds of section 5.2 without load, and the 43.4 % between them.
    #[test]
    fn the_papers_bounds() {
        let (delayed, at_once) = (CARD.delayed(0.0, 2.0).unwrap(), CARD.at_once(0.0).unwrap());
        assert!((delayed - 94.35).abs() < 0.005, "{delayed}");
        assert!((at_once - 166.6).abs() < 0.05, "{at_once}");
        let mut spared = Vec::new();
        for step in 0..100 {
            let rate = CARD.limit(2.0) * 0.95 * f64::from(step) / 100.0;
            spared.push(1.0 - CARD.delayed(rate, 2.0).unwrap() / CARD.at_once(rate).unwrap());
        }
        let mean = spared.iter().sum::<f64>() / spared.len() as f64;
        assert!((mean - 0.434).abs() < 0.01, "{mean}");
    }

    /// Equation 1 holds at the least cycle, and not below it.
    #[test]
    fn the_least_cycle_is_the_least() {
        for rate in [0.0, 10.0, 100.0, 160.0] {
            let cycle = CARD.delayed(rate, 2.0).unwrap();
            let fits = |c: f64| {
                let searches = K40C.0.slope * 0.95 * rate * c + K40C.0.start;
                let updates = K40C.1.slope * 0.05 * rate * c * 2.0 + K40C.1.start;
                searches + (searches + updates) <= 2.0 * c + 1e-9
            };
            assert!(fits(cycle * 1.000_1) && !fits(cycle * 0.999), "{rate}: {cycle}");
        }
        assert!(CARD.delayed(CARD.limit(2.0) * 1.01, 2.0).is_none());
    }

    /// Section 8.2: bounds of the cycle, and the gains from 17.8 to 68.4 %, which lie 300 µs apart.
    #[test]
    fn the_most_by_cycle() {
        assert!(CARD.most_delayed(94.3).is_none() && CARD.most_delayed(94.4).is_some());
        assert!(CARD.most_at_once(166.6).is_none() && CARD.most_at_once(166.7).is_some());
        for cycle in [100.0, 160.0, 320.0, 1e6] {
            let rate = CARD.most_delayed(cycle).unwrap();
            assert!((CARD.delayed(rate, 2.0).unwrap() / cycle - 1.0).abs() < 1e-9, "{cycle}");
        }
        for (cycle, percent) in [(572.5, 17.8), (272.2, 68.4)] {
            let rows = speed(CARD, &[cycle]);
            let more = rows[0]["more_percent"].as_f64().unwrap();
            assert!((more - percent).abs() < 0.05, "{cycle}: {more}");
        }
    }

    #[test]
    fn lines_are_read() {
        assert!("0.1:20".parse::<Line>().is_ok());
        for bad in ["", "1", "a:b", "-1:2", "1:inf"] {
            assert!(bad.parse::<Line>().is_err(), "{bad}");
        }
    }
}
