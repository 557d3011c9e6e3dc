//! Round trips by mix of key lengths and by hit rate (MemcachedGPU's figure 5).
//!
//! In: a mix, hit rates, a client and a server that has items of every length of the mix. Out: for each
//! length by itself and for the mix, at each hit rate: the peak, and the round trip at one rate for all. The
//! peak of a mix stands beside what its parts' peaks come to. Fails on a wrong reply.

use super::asked::{Asked, KeyMix, asked};
use super::client::Client;
use super::mode::Mode;
use super::rounds::{Answering, Rounds, row};
use crate::study::frame::Frame;
use serde_json::{Value, json};
use std::error::Error;

/// The rate as a part of the first peak: the paper's 4 of 13 million requests a second.
const LOAD: f64 = 4.0 / 13.0;

/// A mix at a hit rate.
#[derive(Debug)]
struct Case {
    mix: KeyMix,
    /// Places of the cases of its lengths, each with its share.
    parts: Vec<(usize, f64)>,
    hit_rate: u32,
    requests: Vec<Asked>,
}

/// The cases, and what the first server's closed loop gave for them.
#[derive(Debug)]
pub(super) struct Cases {
    all: Vec<Case>,
    peaks: Vec<f64>,
}

impl Cases {
    /// Each length by itself and then the mix, at each rate, over `items` items of each length.
    ///
    /// # Errors
    /// A request that does not fit a frame.
    pub(super) fn new(
        mix: &KeyMix,
        rates: &[u32],
        items: u64,
        n: u64,
        seed: u64,
    ) -> Result<Self, Box<dyn Error>> {
        let mut all: Vec<Case> = Vec::new();
        for &hit_rate in rates {
            let mut parts = Vec::new();
            for (part, share) in mix.parts() {
                parts.push((all.len(), share));
                let requests = asked(&part, hit_rate, items, n, seed)?;
                all.push(Case { mix: part, parts: Vec::new(), hit_rate, requests });
            }
            if parts.len() > 1 {
                let requests = asked(mix, hit_rate, items, n, seed)?;
                all.push(Case { mix: mix.clone(), parts, hit_rate, requests });
            }
        }
        Ok(Self { all, peaks: Vec::new() })
    }

    /// Measures all of them with one server.
    pub(super) fn measure(
        &mut self,
        rounds: Rounds,
        frame: &mut Frame,
        mode: Mode,
        client: &mut Client<'_>,
        server: &mut dyn Answering,
    ) -> Result<(), Box<dyn Error>> {
        for case in &self.all {
            rounds.warm(&case.requests, client)?;
        }
        // Peaks are the first server's alone.
        let first = self.peaks.is_empty();
        for case in self.all.iter().skip(self.peaks.len()) {
            self.peaks.push(rounds.peak(&case.requests, client)?);
        }
        let offered = self.peaks.first().ok_or("no mix")? * LOAD;
        for (case, peak) in self.all.iter().zip(&self.peaks) {
            let measured = rounds.open(&case.requests, offered, client, server)?;
            let mut row = row((mode, LOAD, offered), measured)?;
            if let Value::Object(row) = &mut row {
                row.insert("keys".to_owned(), json!(case.mix.to_string()));
                row.insert("hit_rate".to_owned(), json!(case.hit_rate));
                let of_parts = self.of_parts(&case.parts, *peak).filter(|_| first);
                row.insert("peak_per_s".to_owned(), json!(first.then_some(peak)));
                row.insert("of_parts".to_owned(), json!(of_parts));
                row.insert("what".to_owned(), json!(format!("{}: {}", mode.name(), case.mix)));
            }
            frame.report.row("mix", row)?;
        }
        Ok(())
    }

    /// A peak over that of a server which takes for each request as long as for its length by itself.
    fn of_parts(&self, parts: &[(usize, f64)], peak: f64) -> Option<f64> {
        let each_s: f64 = parts
            .iter()
            .map(|(at, share)| Some(share / self.peaks.get(*at)?))
            .sum::<Option<f64>>()?;
        (!parts.is_empty()).then_some(peak * each_s)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_comes_after_its_parts_and_is_held_against_them() {
        let mix: KeyMix = "16:3,128:1".parse().unwrap();
        let mut cases = Cases::new(&mix, &[100, 85], 10, 5, 1).unwrap();
        let all: Vec<(String, u32)> =
            cases.all.iter().map(|c| (c.mix.to_string(), c.hit_rate)).collect();
        let want = [("16", 100), ("128", 100), ("16:3,128:1", 100), ("16", 85), ("128", 85)];
        assert_eq!(all[..5], want.map(|(keys, rate)| (keys.to_owned(), rate)));
        // 3 of 4 requests at 10 a second, one of 4 at 2: 0.2 s each.
        cases.peaks = vec![10.0, 2.0, 4.0];
        let of = |case: usize, peak| cases.of_parts(&cases.all[case].parts, peak);
        assert!((of(2, 4.0).unwrap() - 0.8).abs() < 1e-9);
        assert_eq!(of(0, 10.0), None);
    }
}
