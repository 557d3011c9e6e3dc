//! What a run found, as numbers, as a table and as JSON.

use super::series::{Series, micros};
use super::verify::Wrong;
use hdrhistogram::{CreationError, Histogram};
use serde_json::{Value, json};
use std::fmt;
use std::time::Duration;

/// Longest latency that is distinguished from longer ones.
const LATENCY_MAX_NS: u64 = 100_000_000_000;
/// Percentiles in reports, with their names.
const PERCENTILES: [(&str, f64); 5] =
    [("p50", 50.0), ("p90", 90.0), ("p99", 99.0), ("p999", 99.9), ("p9999", 99.99)];

/// Counters of one run. Requests, unless said otherwise.
#[derive(Debug, Clone)]
pub struct Report {
    /// Sent and expecting a reply.
    pub sent: u64,
    /// Of these, gets.
    pub gets: u64,
    /// Of these, sets.
    pub sets: u64,
    /// Of these, deletes.
    pub deletes: u64,
    /// Frames sent that call for no particular reply: damaged ones and other commands.
    pub others: u64,
    /// Frames that are not sent: the link cannot carry them, such as damaged headers through kernel sockets, or they
    /// are replies in a capture.
    pub skipped: u64,
    /// Rows of the CSV trace that made no sense, each time it was played.
    pub rows_skipped: u64,
    /// Values of the CSV trace that were longer than a packet holds, likewise.
    pub values_cut: u64,
    /// Sent once more after the time-out.
    pub retries: u64,
    /// Answered rightly.
    pub answered: u64,
    /// Answered wrongly, by what was wrong.
    pub wrong: [u64; Wrong::ALL.len()],
    /// Never answered in time.
    pub lost: u64,
    /// Replies that came after their request had been given up.
    pub late: u64,
    /// Datagrams of replies that had arrived before.
    pub duplicates: u64,
    /// Replies overtaken by the reply to a later request of the same client.
    pub reordered: u64,
    /// Replies whose datagrams came out of order.
    pub pieces_reordered: u64,
    /// Replies of more than one datagram.
    pub in_pieces: u64,
    /// Replies to `others`.
    pub others_answered: u64,
    /// Datagrams that answer nothing that was asked.
    pub unexpected: u64,
    /// Datagrams whose frame header is impossible.
    pub bad_datagrams: u64,
    /// Pieces lost because too many replies were incomplete.
    pub pieces_dropped: u64,
    /// Keys requested by gets that were answered rightly.
    pub keys_asked: u64,
    /// Values that came back for them.
    pub hits: u64,
    /// Of these, values of keys that no workload makes, which cannot be checked.
    pub unchecked: u64,
    /// Times that the other side answered that no socket listens (ICMP).
    pub refusals: u64,
    /// From the start to the last frame sent or received.
    pub elapsed: Duration,
    /// Nanoseconds from the moment a request should have left to its whole reply.
    pub latency_ns: Histogram<u64>,
    /// Nanoseconds from the moment it really left: what hides a stall of the player or of the
    /// server behind the requests that were never sent meanwhile.
    pub service_ns: Histogram<u64>,
    /// Nanoseconds by which frames left after they were due; empty flat out.
    pub late_ns: Histogram<u64>,
    /// Of these, frames that had to wait for a place in the window or in a queue.
    pub held: u64,
    /// What happened when.
    pub series: Series,
}

impl Report {
    /// All zero.
    ///
    /// # Errors
    /// A histogram refuses its bounds.
    pub(crate) fn new() -> Result<Self, CreationError> {
        let histogram = || Histogram::new_with_bounds(1, LATENCY_MAX_NS, 3);
        Ok(Self {
            sent: 0,
            gets: 0,
            sets: 0,
            deletes: 0,
            others: 0,
            skipped: 0,
            rows_skipped: 0,
            values_cut: 0,
            retries: 0,
            answered: 0,
            wrong: [0; Wrong::ALL.len()],
            lost: 0,
            late: 0,
            duplicates: 0,
            reordered: 0,
            pieces_reordered: 0,
            in_pieces: 0,
            others_answered: 0,
            unexpected: 0,
            bad_datagrams: 0,
            pieces_dropped: 0,
            keys_asked: 0,
            hits: 0,
            unchecked: 0,
            refusals: 0,
            elapsed: Duration::ZERO,
            latency_ns: histogram()?,
            service_ns: histogram()?,
            late_ns: histogram()?,
            held: 0,
            series: Series::new()?,
        })
    }

    /// Replies with anything wrong.
    pub fn wrong_total(&self) -> u64 {
        self.wrong.iter().sum()
    }

    /// Keys that did not come back.
    pub fn misses(&self) -> u64 {
        self.keys_asked.saturating_sub(self.hits)
    }

    /// Lost requests as a share of those sent.
    pub fn lost_share(&self) -> f64 {
        share(self.lost, self.sent)
    }

    /// As JSON.
    pub fn json(&self) -> Value {
        let wrong: serde_json::Map<String, Value> = Wrong::ALL
            .iter()
            .zip(self.wrong)
            .map(|(w, n)| (w.name().to_owned(), Value::from(n)))
            .collect();
        let mut all = json!({
            "wrong": self.wrong_total(),
            "wrong_by_kind": wrong,
            "misses": self.misses(),
            "hit_rate": share(self.hits, self.keys_asked),
            "seconds": self.elapsed.as_secs_f64(),
            "sent_per_s": per_second(self.sent, self.elapsed),
            "answered_per_s": per_second(self.answered, self.elapsed),
            "latency_us": spread(&self.latency_ns),
            "service_us": spread(&self.service_ns),
            "late_us": spread(&self.late_ns),
            "over_time": self.series.json(),
        });
        macro_rules! counters {
            ($($counter:ident)*) => { [$((stringify!($counter), self.$counter)),*] };
        }
        for (name, n) in counters! {
            sent gets sets deletes others skipped rows_skipped values_cut retries answered lost late
            duplicates reordered pieces_reordered in_pieces others_answered unexpected bad_datagrams
            pieces_dropped keys_asked hits unchecked refusals held
        } {
            all[name] = n.into();
        }
        all
    }
}

/// A histogram in microseconds.
fn spread(ns: &Histogram<u64>) -> Value {
    let mut all = serde_json::Map::new();
    all.insert("count".to_owned(), ns.len().into());
    all.insert("min".to_owned(), micros(ns.min()).into());
    all.insert("mean".to_owned(), (ns.mean() / 1e3).into());
    for (name, p) in PERCENTILES {
        all.insert(name.to_owned(), micros(ns.value_at_percentile(p)).into());
    }
    all.insert("max".to_owned(), micros(ns.max()).into());
    all.into()
}

#[expect(clippy::cast_precision_loss, reason = "shown to a few digits")]
fn ratio(a: u64, b: u64) -> f64 {
    a as f64 / b as f64
}

fn share(a: u64, of: u64) -> f64 {
    if of == 0 { 0.0 } else { ratio(a, of) }
}

fn per_second(n: u64, elapsed: Duration) -> f64 {
    let s = elapsed.as_secs_f64();
    if s > 0.0 { ratio(n, 1) / s } else { 0.0 }
}

/// One line of percentiles, in microseconds.
fn line(f: &mut fmt::Formatter<'_>, name: &str, ns: &Histogram<u64>) -> fmt::Result {
    write!(f, "{name} min {:.1}", micros(ns.min()))?;
    for (name, p) in PERCENTILES {
        write!(f, "  {name} {:.1}", micros(ns.value_at_percentile(p)))?;
    }
    writeln!(f, "  max {:.1}", micros(ns.max()))
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pct = |n: u64, of: u64| share(n, of) * 100.0;
        let Self { sent, gets, sets, deletes, .. } = self;
        writeln!(f, "sent        {sent:>12}  {gets} gets, {sets} sets, {deletes} deletes")?;
        if self.others + self.skipped + self.retries > 0 {
            writeln!(
                f,
                "besides     {:>12}  answered {}; {} skipped, {} retries",
                self.others, self.others_answered, self.skipped, self.retries
            )?;
        }
        if self.rows_skipped + self.values_cut > 0 {
            let Self { rows_skipped, values_cut, .. } = self;
            writeln!(f, "trace       {rows_skipped:>12}  rows skipped, {values_cut} values cut")?;
        }
        writeln!(
            f,
            "answered    {:>12}  {:.3} %, {:.0} per second",
            self.answered,
            pct(self.answered, self.sent),
            per_second(self.answered, self.elapsed)
        )?;
        writeln!(
            f,
            "lost        {:>12}  {:.3} %, {} late",
            self.lost,
            pct(self.lost, self.sent),
            self.late
        )?;
        write!(f, "wrong       {:>12} ", self.wrong_total())?;
        for (w, n) in Wrong::ALL.iter().zip(self.wrong).filter(|(_, n)| *n > 0) {
            write!(f, " {} {n}", w.name())?;
        }
        writeln!(f)?;
        writeln!(
            f,
            "unexpected  {:>12}  {} bad datagrams, {} pieces dropped",
            self.unexpected, self.bad_datagrams, self.pieces_dropped
        )?;
        writeln!(f, "duplicates  {:>12}", self.duplicates)?;
        writeln!(
            f,
            "reordered   {:>12}  replies; {} in pieces, of which out of order {}",
            self.reordered, self.in_pieces, self.pieces_reordered
        )?;
        writeln!(
            f,
            "hits        {:>12}  {:.3} % of {} keys",
            self.hits,
            pct(self.hits, self.keys_asked),
            self.keys_asked
        )?;
        if self.unchecked > 0 {
            writeln!(
                f,
                "unchecked   {:>12}  of these: values of keys that are not ours",
                self.unchecked
            )?;
        }
        if self.refusals > 0 {
            writeln!(f, "refusals    {:>12}  nothing listens at the target", self.refusals)?;
        }
        writeln!(f, "seconds     {:>12.3}", self.elapsed.as_secs_f64())?;
        line(f, "latency us ", &self.latency_ns)?;
        if self.late_ns.is_empty() {
            return Ok(());
        }
        line(f, "since sent ", &self.service_ns)?;
        line(f, "sent late  ", &self.late_ns)?;
        writeln!(f, "held        {:>12}  of these found no room when they were due", self.held)
    }
}
