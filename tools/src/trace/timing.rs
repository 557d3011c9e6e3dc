//! When each packet leaves.
//!
//! In: a [`Timing`], packets per second, a seed. Out: nanoseconds from the start, never falling.

use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::fmt;
use std::str::FromStr;

/// How packets follow each other. Written `constant`, `poisson`, `etc`, `bursts:64`, `trace`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Timing {
    /// Evenly.
    Constant,
    /// Gaps drawn from an exponential distribution, as of many clients that know nothing of
    /// each other.
    Poisson,
    /// Gaps of the ETC pool (Atikoglu et al., SIGMETRICS 2012, section 5): generalised Pareto,
    /// scaled to the rate.
    Etc,
    /// So many at once, then a pause that keeps the rate.
    Bursts(u32),
    /// As the CSV trace says.
    Trace,
}

/// Shape of the gaps of ETC; the scale is that of the rate.
const ETC_SHAPE: f64 = 0.154_971;

/// The text names no timing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no timing: write constant, poisson, etc, bursts:64 or trace")]
pub struct BadTiming(String);

impl FromStr for Timing {
    type Err = BadTiming;

    fn from_str(s: &str) -> Result<Self, BadTiming> {
        let bad = || BadTiming(s.to_owned());
        match s {
            "constant" => Ok(Self::Constant),
            "poisson" => Ok(Self::Poisson),
            "etc" => Ok(Self::Etc),
            "trace" => Ok(Self::Trace),
            _ => match s.strip_prefix("bursts:").map(str::parse) {
                Some(Ok(n)) if n > 0 => Ok(Self::Bursts(n)),
                _ => Err(bad()),
            },
        }
    }
}

impl fmt::Display for Timing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Constant => f.write_str("constant"),
            Self::Poisson => f.write_str("poisson"),
            Self::Etc => f.write_str("etc"),
            Self::Bursts(n) => write!(f, "bursts:{n}"),
            Self::Trace => f.write_str("trace"),
        }
    }
}

/// Reports when each packet leaves.
#[derive(Debug, Clone)]
pub struct Clock {
    timing: Timing,
    gap_ns: f64,
    rng: Xoshiro256PlusPlus,
    /// Packets so far.
    packets: u64,
    /// When the last one left.
    at_ns: f64,
}

impl Clock {
    /// `rate` packets a second on average. Draws of its own, so that timing changes no request.
    pub fn new(timing: Timing, rate: f64, seed: u64) -> Self {
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed ^ 0x7469_6d69_6e67);
        Self { timing, gap_ns: 1e9 / rate, rng, packets: 0, at_ns: 0.0 }
    }

    /// When the next packet leaves. `recorded`: what the trace says, where it says something.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "exact up to 2^53; positive; saturates"
    )]
    pub fn next(&mut self, recorded: Option<u64>) -> u64 {
        let n = self.packets;
        self.packets += 1;
        self.at_ns = match self.timing {
            Timing::Constant => n as f64 * self.gap_ns,
            Timing::Bursts(size) => (n - n % u64::from(size)) as f64 * self.gap_ns,
            Timing::Trace => recorded.map_or(self.at_ns, |ns| self.at_ns.max(ns as f64)),
            Timing::Poisson if n == 0 => 0.0,
            Timing::Etc if n == 0 => 0.0,
            Timing::Poisson => self.at_ns - self.draw().ln() * self.gap_ns,
            Timing::Etc => {
                let scale = self.gap_ns * (1.0 - ETC_SHAPE);
                self.at_ns + scale / ETC_SHAPE * (self.draw().powf(-ETC_SHAPE) - 1.0)
            }
        };
        self.at_ns as u64
    }

    /// Above 0, up to 1.
    fn draw(&mut self) -> f64 {
        1.0 - self.rng.random::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(timing: &str, count: usize) -> Vec<u64> {
        let mut clock = Clock::new(timing.parse().unwrap(), 1e6, 1);
        (0..count).map(|_| clock.next(None)).collect()
    }

    #[test]
    fn text_and_back() {
        for t in ["constant", "poisson", "etc", "bursts:64", "trace"] {
            assert_eq!(t.parse::<Timing>().unwrap().to_string(), t);
        }
        for t in ["", "bursts", "bursts:0", "bursts:-1", "poisson:2"] {
            assert!(t.parse::<Timing>().is_err(), "{t}");
        }
    }

    #[test]
    fn even_and_in_bursts() {
        assert_eq!(times("constant", 4), [0, 1_000, 2_000, 3_000]);
        assert_eq!(times("bursts:3", 7), [0, 0, 0, 3_000, 3_000, 3_000, 6_000]);
    }

    #[test]
    fn random_gaps_keep_the_rate_and_have_their_shape() {
        // The share of gaps above twice the mean, by each distribution function.
        let pareto = (1.0 + ETC_SHAPE * 2.0 / (1.0 - ETC_SHAPE)).powf(-1.0 / ETC_SHAPE);
        for (name, above_twice) in [("poisson", (-2.0_f64).exp()), ("etc", pareto)] {
            let all = times(name, 500_000);
            assert!(all.windows(2).all(|w| w[0] <= w[1]));
            let mean = all[499_999] as f64 / 499_999.0;
            assert!((mean - 1_000.0).abs() < 5.0, "{name}: {mean}");
            let above = all.windows(2).filter(|w| w[1] - w[0] > 2_000).count() as f64 / 499_999.0;
            assert!((above - above_twice).abs() < 0.002, "{name}: {above} and not {above_twice}");
        }
    }

    #[test]
    fn a_trace_never_goes_back() {
        let mut clock = Clock::new(Timing::Trace, 1.0, 1);
        let times = [Some(5), Some(3), None, Some(9)].map(|t| clock.next(t));
        assert_eq!(times, [5, 5, 5, 9]);
    }
}
