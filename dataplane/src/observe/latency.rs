//! `stats latency`: how long requests took, from their arrival to the hand-over of their replies.
//!
//! In: durations, counted by one thread in buckets of its own. Out: counts and percentiles
//! over all threads, by transport and kind of command. Buckets are log-linear, as in HDR
//! histograms: 16 to each power of two, so that a percentile is at most 6% too high. Counting takes no lock,
//! allocates nothing and never fails.

use super::rows::Rows;
use crate::counters::Counter;

/// Bits of a duration that distinguish buckets of the same power of two.
const FINE_BITS: u32 = 4;
const FINE: usize = 1 << FINE_BITS;

/// Durations of this many bits or more, in nanoseconds, share the last buckets: 69 seconds.
const BITS_MAX: u32 = 36;

const BUCKETS: usize = (BITS_MAX - FINE_BITS + 1) as usize * FINE;

/// What carried a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP, and Unix sockets.
    Tcp,
    /// UDP.
    Udp,
    /// READs of one-sided clients, all of the kind [`Kind::Get`].
    Rdma,
}

/// What kind of command a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `get`, `gets`, `gat`, `gats`.
    Get,
    /// `set`, `add`, `replace`, `append`, `prepend`, `cas`.
    Store,
    /// `delete`.
    Delete,
    /// `incr`, `decr`.
    Arith,
    /// `touch`.
    Touch,
    /// Everything else.
    Other,
}

/// Kinds there are.
pub const KINDS: usize = 6;

const NAMES: [&str; KINDS] = ["get", "store", "delete", "arith", "touch", "other"];
const TRANSPORTS: [&str; 3] = ["tcp", "udp", "rdma"];
/// Histograms that can have a request: the last transport has one kind.
const HISTOGRAMS: usize = 2 * KINDS + 1;
const _: () = assert!(Kind::Get as usize == 0 && Transport::Rdma as usize == 2);

/// One thread's durations. That thread alone counts here.
#[derive(Debug)]
pub struct Latency {
    /// Commands carried out so far, by kind.
    done: [Counter; KINDS],
    histograms: Box<[Histogram]>,
}

#[derive(Debug)]
struct Histogram {
    buckets: [Counter; BUCKETS],
    sum_ns: Counter,
    max_ns: Counter,
}

impl Default for Latency {
    fn default() -> Self {
        let histogram = |_| Histogram {
            buckets: std::array::from_fn(|_| Counter::default()),
            sum_ns: Counter::default(),
            max_ns: Counter::default(),
        };
        Self {
            done: std::array::from_fn(|_| Counter::default()),
            histograms: (0..HISTOGRAMS).map(histogram).collect(),
        }
    }
}

/// The bucket of a duration.
#[inline]
fn bucket(ns: u64) -> usize {
    let ns = ns.min((1 << BITS_MAX) - 1);
    let power = ns.checked_ilog2().unwrap_or(0).max(FINE_BITS);
    let fine = usize::try_from(ns >> (power - FINE_BITS)).unwrap_or(0);
    (power - FINE_BITS) as usize * FINE + fine
}

/// The longest duration of a bucket, in nanoseconds.
fn longest(bucket: usize) -> u64 {
    let (power, fine) = match bucket.checked_sub(FINE) {
        None => (0, bucket),
        Some(above) => (above / FINE, above % FINE + FINE),
    };
    ((fine as u64 + 1) << power) - 1
}

impl Latency {
    /// Notes that a command of this kind was carried out.
    #[inline]
    pub fn note(&self, kind: Kind) {
        self.note_all(kind, 1);
    }

    /// The same of several.
    #[inline]
    pub(crate) fn note_all(&self, kind: Kind, n: u64) {
        if let Some(done) = self.done.get(kind as usize) {
            done.add(n);
        }
    }

    /// Commands carried out so far, by kind.
    #[inline]
    pub fn done(&self) -> [u64; KINDS] {
        std::array::from_fn(|kind| self.done[kind].get())
    }

    /// Counts `n` requests of a kind that took this long.
    #[inline]
    pub fn record(&self, transport: Transport, kind: Kind, ns: u64, n: u64) {
        self.count(transport as usize * KINDS + kind as usize, ns, n);
    }

    /// Counts the requests carried out between two answers of [`Self::done`], which took this long.
    pub fn record_between(
        &self,
        before: &[u64; KINDS],
        after: &[u64; KINDS],
        transport: Transport,
        ns: u64,
    ) {
        for (kind, (after, before)) in after.iter().zip(before).enumerate() {
            if after > before {
                self.count(transport as usize * KINDS + kind, ns, after - before);
            }
        }
    }

    #[inline]
    fn count(&self, histogram: usize, ns: u64, n: u64) {
        let Some(histogram) = self.histograms.get(histogram) else { return };
        if let Some(bucket) = histogram.buckets.get(bucket(ns)) {
            bucket.add(n);
        }
        histogram.sum_ns.add(ns.saturating_mul(n));
        if ns > histogram.max_ns.get() {
            histogram.max_ns.set(ns);
        }
    }
}

/// Durations of all threads.
#[derive(Debug, Default)]
pub(crate) struct Totals(Vec<Total>);

#[derive(Debug)]
struct Total {
    buckets: Box<[u64]>,
    sum_ns: u64,
    max_ns: u64,
}

/// How long the requests of one kind that came by one transport took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Distribution {
    /// `tcp`, `udp` or `rdma`.
    pub transport: &'static str,
    /// `get`, `store`, …
    pub kind: &'static str,
    /// Requests.
    pub count: u64,
    /// The sum of their durations.
    pub sum_ns: u64,
    /// A duration of 2^n - 1 nanoseconds, and how many took no longer; the longest durations are
    /// in none of them.
    pub cumulative: Vec<(u64, u64)>,
}

/// Powers of two whose buckets a [`Distribution`] distinguishes: 1 µs to 17 s.
const POWERS: std::ops::RangeInclusive<u32> = 10..=34;

impl Totals {
    /// One for each transport and kind, used or not.
    pub(super) fn distributions(&self) -> Vec<Distribution> {
        let all = self.0.iter().enumerate().filter_map(|(n, total)| {
            Some(Distribution {
                transport: TRANSPORTS.get(n / KINDS)?,
                kind: NAMES.get(n % KINDS)?,
                count: total.buckets.iter().sum(),
                sum_ns: total.sum_ns,
                cumulative: POWERS
                    .map(|power| {
                        let below = total.buckets.get(..bucket(1 << power)).unwrap_or_default();
                        ((1 << power) - 1, below.iter().sum())
                    })
                    .collect(),
            })
        });
        all.collect()
    }

    /// Adds one thread's.
    pub(super) fn take(&mut self, thread: &Latency) {
        let empty = || Total { buckets: vec![0; BUCKETS].into(), sum_ns: 0, max_ns: 0 };
        self.0.resize_with(thread.histograms.len(), empty);
        for (total, histogram) in self.0.iter_mut().zip(&thread.histograms) {
            for (sum, bucket) in total.buckets.iter_mut().zip(&histogram.buckets) {
                *sum += bucket.get();
            }
            total.sum_ns = total.sum_ns.wrapping_add(histogram.sum_ns.get());
            total.max_ns = total.max_ns.max(histogram.max_ns.get());
        }
    }

    /// Takes away what had been counted before.
    pub(super) fn subtract(&mut self, before: &Self) {
        for (total, before) in self.0.iter_mut().zip(&before.0) {
            for (sum, before) in total.buckets.iter_mut().zip(&before.buckets) {
                *sum = sum.saturating_sub(*before);
            }
            total.sum_ns = total.sum_ns.wrapping_sub(before.sum_ns);
            // The longest of all time may be of before.
            let last = total.buckets.iter().rposition(|n| *n > 0);
            total.max_ns = total.max_ns.min(last.map_or(0, longest));
        }
    }

    /// Writes the page: a block of rows for each transport and kind that was used.
    pub(crate) fn page(&self, rows: &mut impl Rows) {
        for (n, total) in self.0.iter().enumerate() {
            let count: u64 = total.buckets.iter().sum();
            let (Some(transport), Some(kind), 1..) =
                (TRANSPORTS.get(n / KINDS), NAMES.get(n % KINDS), count)
            else {
                continue;
            };
            let mut row =
                |name, value: u64| rows.row(&format!("{transport}:{kind}:{name}"), &value);
            row("count", count);
            row("mean_ns", total.sum_ns / count);
            for (name, per_mille) in
                [("p50_ns", 500), ("p90_ns", 900), ("p99_ns", 990), ("p999_ns", 999)]
            {
                row(name, total.percentile(count, per_mille));
            }
            row("max_ns", total.max_ns);
        }
    }
}

impl Total {
    /// The duration that `per_mille` of `count` requests did not exceed.
    fn percentile(&self, count: u64, per_mille: u64) -> u64 {
        let rank = u128::from(count) * u128::from(per_mille);
        let mut seen = 0;
        let at = self.buckets.iter().position(|n| {
            seen += u128::from(*n) * 1000;
            seen >= rank
        });
        at.map_or(0, longest).min(self.max_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::fmt::Display;

    #[test]
    fn each_duration_has_a_bucket_of_its_size() {
        let mut last = 0;
        for ns in (0..5000).chain((13..=40).flat_map(|p| [(1u64 << p) - 1, 1 << p, (1 << p) + 1])) {
            let b = bucket(ns);
            assert!(b < BUCKETS && b >= last && b - last <= FINE, "{ns}");
            last = b;
            if ns < 1 << BITS_MAX {
                assert!(longest(b) >= ns && longest(b) - ns <= ns / 16, "{ns} {}", longest(b));
                assert!(b == 0 || longest(b - 1) < ns);
            }
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[derive(Default)]
    struct Map(BTreeMap<String, String>);

    impl Rows for Map {
        fn row(&mut self, name: &str, value: &dyn Display) {
            self.0.insert(name.to_owned(), value.to_string());
        }
    }

    fn page(totals: &Totals) -> BTreeMap<String, u64> {
        let mut map = Map::default();
        totals.page(&mut map);
        map.0.into_iter().map(|(k, v)| (k, v.parse().unwrap())).collect()
    }

    #[test]
    fn a_distribution_counts_what_took_no_longer() {
        let thread = Latency::default();
        for ns in [0, 1023, 1024, 2047, 2048, u64::MAX] {
            thread.record(Transport::Udp, Kind::Touch, ns, 2);
        }
        let mut totals = Totals::default();
        totals.take(&thread);
        let all = totals.distributions();
        assert_eq!(all.len(), HISTOGRAMS);
        let one = all.iter().find(|d| (d.transport, d.kind) == ("udp", "touch")).unwrap();
        assert_eq!(one.count, 12);
        assert_eq!(one.cumulative[..3], [(1023, 4), (2047, 8), (4095, 10)]);
        assert_eq!(one.cumulative.last(), Some(&((1 << 34) - 1, 10)));
        assert_eq!(all.iter().map(|d| d.count).sum::<u64>(), 12);
    }

    #[test]
    fn percentiles_of_what_was_counted() {
        let (a, b) = (Latency::default(), Latency::default());
        for ns in 1..=1000 {
            let thread = if ns % 3 == 0 { &a } else { &b };
            thread.record(Transport::Udp, Kind::Get, ns * 1000, 1);
        }
        let before = b.done();
        b.note(Kind::Store);
        b.note(Kind::Store);
        b.record_between(&before, &b.done(), Transport::Tcp, 777);
        let mut totals = Totals::default();
        totals.take(&a);
        totals.take(&b);
        let rows = page(&totals);
        assert_eq!(rows["udp:get:count"], 1000);
        assert_eq!(rows["udp:get:max_ns"], 1_000_000);
        assert_eq!(rows["udp:get:mean_ns"], 500_500);
        for (name, exact) in [("p50_ns", 500_000), ("p90_ns", 900_000), ("p99_ns", 990_000)] {
            let got = rows[&format!("udp:get:{name}")];
            assert!(got >= exact && got <= exact * 107 / 100, "{name}: {got}");
        }
        assert_eq!((rows["tcp:store:count"], rows["tcp:store:max_ns"]), (2, 777));
        assert_eq!(rows.len(), 14, "only what was used");
        let mut later = Totals::default();
        b.record(Transport::Udp, Kind::Get, 50, 1);
        later.take(&a);
        later.take(&b);
        later.subtract(&totals);
        let rows = page(&later);
        assert_eq!((rows["udp:get:count"], rows["udp:get:mean_ns"]), (1, 50));
        assert!(rows["udp:get:max_ns"] <= 51 && rows.len() == 7);
    }
}
