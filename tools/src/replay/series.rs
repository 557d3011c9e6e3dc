//! What happened when: counts and latencies over the time of a run, in fixed memory.
//!
//! In: events with their times. Out: intervals of equal width. When a run outlasts them, two
//! neighbours become one and the width doubles, so that a run of any length has 120 to 240.

use crate::plot::{Axis, Plot, Scale};
use hdrhistogram::{CreationError, Histogram};
use serde_json::{Value, json};

const INTERVALS: usize = 240;
/// Width at first.
const WIDTH_NS: u64 = 1_000_000;
/// Longest latency that is distinguished from longer ones.
const LATENCY_MAX_NS: u64 = 100_000_000_000;

/// One stretch of time.
#[derive(Debug, Clone)]
struct Interval {
    sent: u64,
    answered: u64,
    lost: u64,
    latency_ns: Histogram<u32>,
}

/// The intervals of a run.
#[derive(Debug, Clone)]
pub struct Series {
    width_ns: u64,
    intervals: Vec<Interval>,
    used: usize,
}

impl Series {
    /// Nothing has happened.
    ///
    /// # Errors
    /// The histogram refuses its bounds.
    pub fn new() -> Result<Self, CreationError> {
        // One digit: a bar in a plot.
        let latency_ns = Histogram::new_with_bounds(1, LATENCY_MAX_NS, 1)?;
        let empty = Interval { sent: 0, answered: 0, lost: 0, latency_ns };
        Ok(Self { width_ns: WIDTH_NS, intervals: vec![empty; INTERVALS], used: 0 })
    }

    /// The interval of time `ns` since the start.
    fn at(&mut self, ns: u64) -> Option<&mut Interval> {
        while ns / self.width_ns >= self.intervals.len() as u64 {
            self.fold();
        }
        let n = usize::try_from(ns / self.width_ns).ok()?;
        self.used = self.used.max(n + 1);
        self.intervals.get_mut(n)
    }

    /// Makes one interval of each two.
    fn fold(&mut self) {
        for n in 0..self.intervals.len() {
            let (to, from) = (n / 2, n);
            let Some((head, tail)) = self.intervals.split_at_mut_checked(from) else { continue };
            let Some(from) = tail.first_mut() else { continue };
            // The first of two moves down whole; the second is added to it.
            if let Some(to) = head.get_mut(to) {
                if n % 2 == 0 {
                    std::mem::swap(to, from);
                } else {
                    to.sent += from.sent;
                    to.answered += from.answered;
                    to.lost += from.lost;
                    // Equal bounds: every value fits.
                    let _ = to.latency_ns.add(&from.latency_ns);
                }
                (from.sent, from.answered, from.lost) = (0, 0, 0);
                from.latency_ns.reset();
            }
        }
        self.used = self.used.div_ceil(2);
        self.width_ns = self.width_ns.saturating_mul(2);
    }

    /// A request left.
    pub fn sent(&mut self, now_ns: u64) {
        if let Some(i) = self.at(now_ns) {
            i.sent += 1;
        }
    }

    /// A reply came, so long after its request was due.
    pub fn answered(&mut self, now_ns: u64, latency_ns: u64) {
        if let Some(i) = self.at(now_ns) {
            i.answered += 1;
            i.latency_ns.saturating_record(latency_ns.max(1));
        }
    }

    /// A request was given up.
    pub fn lost(&mut self, now_ns: u64) {
        if let Some(i) = self.at(now_ns) {
            i.lost += 1;
        }
    }

    fn used(&self) -> impl Iterator<Item = &Interval> {
        self.intervals.iter().take(self.used)
    }

    fn width_s(&self) -> f64 {
        self.width_ns as f64 / 1e9
    }

    /// Each figure as a list, an element to an interval; `null` where nothing was answered.
    pub fn json(&self) -> Value {
        let list = |f: &dyn Fn(&Interval) -> Value| self.used().map(f).collect::<Vec<_>>();
        let latency = |p: f64| {
            list(&|i| match i.latency_ns.len() {
                0 => Value::Null,
                _ => micros(i.latency_ns.value_at_percentile(p)).into(),
            })
        };
        json!({
            "interval_s": self.width_s(),
            "sent": list(&|i| i.sent.into()),
            "answered": list(&|i| i.answered.into()),
            "lost": list(&|i| i.lost.into()),
            "latency_p50_us": latency(50.0),
            "latency_p99_us": latency(99.0),
            "latency_max_us": latency(100.0),
        })
    }

    /// Requests a second over time, as SVG.
    pub fn rate_svg(&self) -> String {
        let mut plot = self.plot("Rate", "per second", Scale::Linear);
        for (at, i) in self.middles() {
            for (name, n) in [("sent", i.sent), ("answered", i.answered), ("lost", i.lost)] {
                plot.add(name, (at, n as f64 / self.width_s()));
            }
        }
        plot.svg()
    }

    /// Latency over time, counted from when requests were due, as SVG.
    pub fn latency_svg(&self) -> String {
        let mut plot = self.plot("Latency, from when requests were due", "us", Scale::Log);
        for (at, i) in self.middles().filter(|(_, i)| !i.latency_ns.is_empty()) {
            for (name, p) in [("p50", 50.0), ("p99", 99.0), ("max", 100.0)] {
                plot.add(name, (at, micros(i.latency_ns.value_at_percentile(p))));
            }
        }
        plot.svg()
    }

    fn plot<'a>(&self, title: &'a str, y: &'a str, scale: Scale) -> Plot<'a> {
        let x = Axis { label: "seconds", scale: Scale::Linear };
        Plot { title, x, y: Axis { label: y, scale }, curves: Vec::new() }
    }

    /// The middle of each interval, in seconds, with the interval.
    fn middles(&self) -> impl Iterator<Item = (f64, &Interval)> {
        self.used().enumerate().map(|(n, i)| ((n as f64 + 0.5) * self.width_s(), i))
    }
}

/// Microseconds, for people and for JSON.
pub(super) fn micros(ns: u64) -> f64 {
    ns as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(json: &Value, what: &str) -> u64 {
        json[what].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
    }

    #[test]
    fn nothing_is_lost_however_long_it_takes() {
        let mut s = Series::new().unwrap();
        let ms = 1_000_000;
        for n in 0..10_000 {
            s.sent(n * ms);
            s.answered(n * ms, n * 1_000);
            if n % 10 == 0 {
                s.lost(n * ms);
            }
        }
        let json = s.json();
        assert_eq!(json["interval_s"], 0.064);
        assert_eq!(
            (sum(&json, "sent"), sum(&json, "answered"), sum(&json, "lost")),
            (10_000, 10_000, 1_000)
        );
        let sent = json["sent"].as_array().unwrap();
        assert_eq!(sent.len(), 157);
        assert!(sent[..156].iter().all(|n| n == 64), "{sent:?}");
        let p50 = json["latency_p50_us"].as_array().unwrap();
        let rising = p50.windows(2).all(|w| w[0].as_f64() <= w[1].as_f64());
        assert!(rising && (p50[0].as_f64().unwrap() - 32.0).abs() < 4.0, "{p50:?}");
        for (svg, curves) in [(s.rate_svg(), 3), (s.latency_svg(), 3)] {
            let lines: Vec<&str> = svg.lines().filter(|l| l.starts_with("<polyline")).collect();
            assert_eq!(lines.len(), curves);
            assert!(lines.iter().all(|l| l.matches(',').count() == 157));
        }
    }

    #[test]
    fn a_quiet_stretch_has_no_latency() {
        let mut s = Series::new().unwrap();
        s.answered(0, 5);
        s.sent(u64::from(u32::MAX));
        let json = s.json();
        assert_eq!(json["latency_p50_us"][1], Value::Null);
        assert_eq!(Series::new().unwrap().json()["sent"], json!([]));
        assert!(Series::new().unwrap().rate_svg().ends_with("</svg>\n"));
    }
}
