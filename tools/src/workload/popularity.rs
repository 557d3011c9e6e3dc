//! Which key is asked for next.

use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt;
use std::str::FromStr;

/// Zipf exponent of `latest`, and of `zipf` without one: YCSB's.
const THETA_DEFAULT: f64 = 0.99;

/// How popularity falls over keys. Written `uniform`, `zipf`, `zipf:0.99`, `latest`, `latest:0.8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Popularity {
    /// Every key alike.
    Uniform,
    /// Key `i` with a probability in proportion to 1 / (i + 1)^theta.
    Zipf(f64),
    /// Writes go round the keys in order; reads fall off by Zipf from the key written last.
    Latest(f64),
}

/// The text names no popularity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no popularity: write uniform, zipf:0.99 or latest (exponents from 0 to 100)")]
pub struct BadPopularity(String);

impl FromStr for Popularity {
    type Err = BadPopularity;

    fn from_str(s: &str) -> Result<Self, BadPopularity> {
        let bad = || BadPopularity(s.to_owned());
        let (name, theta) = match s.split_once(':') {
            Some((n, t)) => (n, Some(t.parse::<f64>().map_err(|_| bad())?)),
            None => (s, None),
        };
        if !(0.0..=100.0).contains(&theta.unwrap_or(0.0)) {
            return Err(bad());
        }
        match (name, theta) {
            ("uniform", None) => Ok(Self::Uniform),
            ("zipf", t) => Ok(Self::Zipf(t.unwrap_or(THETA_DEFAULT))),
            ("latest", t) => Ok(Self::Latest(t.unwrap_or(THETA_DEFAULT))),
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Zipf(t) => write!(f, "zipf:{t}"),
            Self::Latest(t) => write!(f, "latest:{t}"),
        }
    }
}

#[derive(Debug, Clone)]
enum Kind {
    Uniform,
    Zipf(Zipf<f64>),
    Latest(Zipf<f64>),
}

/// Draws keys from `0..keys`.
#[derive(Debug, Clone)]
pub struct Sampler {
    keys: u64,
    kind: Kind,
    /// `latest`: the key written last.
    front: u64,
}

impl Sampler {
    /// `None` when there are no keys, or the exponent is not a number from 0 up.
    pub fn new(keys: u64, popularity: Popularity) -> Option<Self> {
        if keys == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 keys")]
        let zipf = |theta| Zipf::new(keys as f64, theta).ok();
        let kind = match popularity {
            Popularity::Uniform => Kind::Uniform,
            Popularity::Zipf(t) => Kind::Zipf(zipf(t)?),
            Popularity::Latest(t) => Kind::Latest(zipf(t)?),
        };
        Some(Self { keys, kind, front: keys - 1 })
    }

    /// A key to read.
    pub fn read(&self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        match &self.kind {
            Kind::Uniform => rng.random_range(0..self.keys),
            Kind::Zipf(z) => self.rank(z, rng),
            Kind::Latest(z) => {
                let back = self.rank(z, rng);
                if back <= self.front { self.front - back } else { self.front + self.keys - back }
            }
        }
    }

    /// A key to write.
    pub fn write(&mut self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        if let Kind::Latest(_) = self.kind {
            self.front = (self.front + 1) % self.keys;
            return self.front;
        }
        self.read(rng)
    }

    /// A rank in `0..keys`, 0 being the most popular.
    fn rank(&self, zipf: &Zipf<f64>, rng: &mut Xoshiro256PlusPlus) -> u64 {
        // The draw is a whole number from 1; rounding could take it one beyond the last.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "whole, positive, and at most the number of keys plus one"
        )]
        let drawn = zipf.sample(rng) as u64;
        drawn.clamp(1, self.keys) - 1
    }
}

#[cfg(test)]
#[expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]
mod tests {
    use super::*;
    use rand_xoshiro::rand_core::SeedableRng;

    const DRAWS: u64 = 400_000;

    /// Chi-square of `DRAWS` draws against 1 / (i + 1)^theta over all of `keys`: each of the
    /// first 50 ranks is a cell, then each doubling of the rank. Divided by degrees of freedom.
    fn chi_square(keys: u64, drawn_from: f64, held_against: f64) -> f64 {
        let sampler = Sampler::new(keys, Popularity::Zipf(drawn_from)).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let cell = |rank: u64| {
            let far = || 50 + (rank / 50).ilog2() as usize;
            usize::try_from(rank).ok().filter(|r| *r < 50).unwrap_or_else(far)
        };
        let mut expected = vec![0.0; cell(keys - 1) + 1];
        for rank in 0..keys {
            expected[cell(rank)] += (rank as f64 + 1.0).powf(-held_against);
        }
        let sum: f64 = expected.iter().sum();
        let mut seen = vec![0u64; expected.len()];
        for _ in 0..DRAWS {
            seen[cell(sampler.read(&mut rng))] += 1;
        }
        let chi: f64 = seen
            .iter()
            .zip(&expected)
            .map(|(s, e)| {
                let e = e / sum * DRAWS as f64;
                (*s as f64 - e).powi(2) / e
            })
            .sum();
        chi / (seen.len() as f64 - 1.0)
    }

    #[test]
    fn zipf_is_the_analytic_distribution() {
        // About 60 degrees of freedom: chi-square per degree beyond 1.75 has p < 0.0005.
        for keys in [100, 10_000, 3_000_000] {
            for theta in [0.5, 0.9, 0.99, 1.0, 1.2] {
                let x = chi_square(keys, theta, theta);
                assert!(x < 1.75, "{keys} keys, theta {theta}: {x}");
            }
        }
    }

    #[test]
    fn the_check_sees_a_small_error() {
        assert!(chi_square(10_000, 0.97, 0.99) > 3.0);
    }

    #[test]
    fn uniform_covers_all_keys_alike() {
        let mut s = Sampler::new(100, Popularity::Uniform).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
        let mut seen = [0i64; 100];
        for _ in 0..100_000 {
            seen[usize::try_from(s.write(&mut rng)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|n| (n - 1_000).abs() < 200));
    }

    #[test]
    fn latest_follows_the_writes() {
        let mut s = Sampler::new(1_000, Popularity::Latest(0.99)).unwrap();
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
        assert_eq!(s.write(&mut rng), 0);
        assert_eq!(s.write(&mut rng), 1);
        let mut seen = vec![0; 1_000];
        for _ in 0..100_000 {
            seen[usize::try_from(s.read(&mut rng)).unwrap()] += 1;
        }
        assert!(seen[1] > seen[0] && seen[0] > seen[999] && seen[999] > seen[500], "{seen:?}");
    }

    #[test]
    fn text_and_back() {
        for t in ["uniform", "zipf:0.99", "latest:0.8"] {
            assert_eq!(t.parse::<Popularity>().unwrap().to_string(), t);
        }
        for t in ["", "zipf:", "zipf:-1", "zipf:NaN", "uniform:1", "hot"] {
            assert!(t.parse::<Popularity>().is_err(), "{t}");
        }
        assert!(Sampler::new(0, Popularity::Uniform).is_none());
    }
}
