//! Rounds of the same: short, many, and the one in the middle counts.
//!
//! In: requests, a client, a server. Out: the peak of a closed loop; round trips at one rate, and what they
//! come to. Fails on a wrong reply.

use super::asked::Asked;
use super::client::{Client, Outcome};
use super::mode::Mode;
use crate::study::median;
use crate::study::paced::Pace;
use serde_json::{Value, json};
use std::error::Error;
use std::time::Duration;

/// Requests under way when the peak is measured.
const WINDOW: usize = 256;

/// A server that answers, in this process or another.
pub trait Answering {
    /// What requests took inside since it was asked last.
    ///
    /// # Errors
    /// The server is gone.
    fn inside(&mut self) -> Result<Value, Box<dyn Error>>;
}

/// How many, and how long.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds {
    pub(super) n: u64,
    pub(super) length: Duration,
    pub(super) seed: u64,
}

impl Rounds {
    /// Asks before anything is measured: the first requests find cold caches, and a port that is not up yet.
    pub(super) fn warm(
        self,
        requests: &[Asked],
        client: &mut Client<'_>,
    ) -> Result<(), Box<dyn Error>> {
        client.run(requests, Pace::Closed, WINDOW, self.length / 4, self.seed)?;
        Ok(())
    }

    /// Replies a second when each one makes room for the next request.
    pub(super) fn peak(
        self,
        requests: &[Asked],
        client: &mut Client<'_>,
    ) -> Result<f64, Box<dyn Error>> {
        let round = |_| {
            let outcome = client.run(requests, Pace::Closed, WINDOW, self.length, self.seed)?;
            Ok(outcome.per_s())
        };
        let mut rounds = (0..self.n).map(round).collect::<Result<Vec<_>, Box<dyn Error>>>()?;
        Ok(median(&mut rounds))
    }

    /// Round trips at this rate.
    pub(super) fn open(
        self,
        requests: &[Asked],
        per_s: f64,
        client: &mut Client<'_>,
        server: &mut dyn Answering,
    ) -> Result<Vec<(Outcome, Value)>, Box<dyn Error>> {
        let round = |round| {
            server.inside()?;
            let (pace, seed) = (Pace::Open(per_s), self.seed.wrapping_add(round));
            let outcome = client.run(requests, pace, usize::MAX, self.length, seed)?;
            Ok((outcome, server.inside()?))
        };
        (0..self.n).map(round).collect()
    }
}

/// What the rounds of one load come to.
///
/// # Errors
/// A wrong reply, or none at all.
pub(super) fn row(
    (mode, load, offered): (Mode, f64, f64),
    mut rounds: Vec<(Outcome, Value)>,
) -> Result<Value, Box<dyn Error>> {
    for (Outcome { wrong, answered, .. }, _) in &rounds {
        if *wrong > 0 || *answered == 0 {
            return Err(format!("{wrong} wrong replies, {answered} in all").into());
        }
    }
    let us = |outcome: &Outcome, q| outcome.rtt.value_at_quantile(q) as f64 / 1e3;
    let lost: u64 = rounds.iter().map(|(outcome, _)| outcome.lost).sum();
    rounds.sort_by_key(|(outcome, _)| outcome.rtt.value_at_quantile(0.99));
    let p99 = |round: Option<&(Outcome, Value)>| round.map(|(outcome, _)| us(outcome, 0.99));
    let (least, most) = (p99(rounds.first()), p99(rounds.last()));
    let (outcome, inside) = rounds.get(rounds.len() / 2).ok_or("no round")?;
    let inside = |field| inside.get(field).cloned().unwrap_or_default();
    Ok(json!({
        "mode": mode.name(), "load": load, "offered_per_s": offered, "per_s": outcome.per_s(),
        "requests": outcome.sent, "answered": outcome.answered, "lost": lost,
        "checked": outcome.checked,
        "hit_percent": 100.0 * outcome.hits as f64 / outcome.answered as f64,
        "mean_us": outcome.rtt.mean() / 1e3, "p50_us": us(outcome, 0.5), "p95_us": us(outcome, 0.95), "p99_us": us(outcome, 0.99),
        "p99_least_us": least, "p99_most_us": most, "max_us": us(outcome, 1.0),
        "inside_p50_us": inside("p50_us"), "inside_p95_us": inside("p95_us"),
        "inside_p99_us": inside("p99_us"), "inside_max_us": inside("max_us"),
        "cpu_percent": inside("cpu_percent"),
    }))
}
