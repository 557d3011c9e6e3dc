//! Which key is requested next.
//!
//! In: a number of keys, a [`Popularity`], a generator of random numbers. Out: key numbers. No
//! memory beyond a few words, whatever the number of keys: [`Zipf`] draws by rejection, exactly.

#[cfg(test)]
mod tests;

use super::permutation::Permutation;
use rand::RngExt;
use rand_distr::{Distribution, Zipf};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::fmt;
use std::str::FromStr;

/// Zipf exponent where none is written: YCSB's.
pub const THETA_DEFAULT: f64 = 0.99;
/// `hotspot` without numbers: a fifth of the keys gets four fifths of the requests, as in YCSB.
const HOTSPOT_DEFAULT: (f64, f64) = (0.2, 0.8);

/// How popularity falls over keys. Written `uniform`, `zipf`, `zipf:0.99`, `scrambled:0.99`,
/// `latest`, `latest:0.8`, `scan`, `hotspot`, `hotspot:0.2:0.8`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Popularity {
    /// Every key alike.
    Uniform,
    /// Key `i` with a probability in proportion to 1 / (i + 1)^theta.
    Zipf(f64),
    /// As `Zipf`, the popular keys scattered over all by a fixed shuffle. (YCSB's `zipfian`, which
    /// scatters by a hash, so that some of its keys share a place and others have none.)
    Scrambled(f64),
    /// Writes go round the keys in order; reads fall off by Zipf from the key written last.
    Latest(f64),
    /// All keys in order, round and round.
    Scan,
    /// A share of the keys, the first ones, gets a share of the requests; within both groups
    /// every key alike.
    Hotspot {
        /// Share of the keys that is hot.
        keys: f64,
        /// Share of the requests that go there.
        requests: f64,
    },
}

/// The text names no popularity.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no popularity: write uniform, zipf:0.99, scrambled:0.99, latest, scan or \
     hotspot:0.2:0.8 (exponents from 0 to 100, shares from 0 to 1)"
)]
pub struct BadPopularity(String);

impl FromStr for Popularity {
    type Err = BadPopularity;

    fn from_str(s: &str) -> Result<Self, BadPopularity> {
        let bad = || BadPopularity(s.to_owned());
        let mut parts = s.split(':');
        let name = parts.next().unwrap_or_default();
        let numbers: Vec<f64> =
            parts.map(|p| p.parse().map_err(|_| bad())).collect::<Result<_, _>>()?;
        let theta = || match numbers[..] {
            [] => Ok(THETA_DEFAULT),
            [theta] if (0.0..=100.0).contains(&theta) => Ok(theta),
            _ => Err(bad()),
        };
        match (name, &numbers[..]) {
            ("uniform", []) => Ok(Self::Uniform),
            ("scan", []) => Ok(Self::Scan),
            ("zipf", _) => theta().map(Self::Zipf),
            ("scrambled", _) => theta().map(Self::Scrambled),
            ("latest", _) => theta().map(Self::Latest),
            ("hotspot", []) => {
                let (keys, requests) = HOTSPOT_DEFAULT;
                Ok(Self::Hotspot { keys, requests })
            }
            ("hotspot", [keys, requests])
                if [keys, requests].iter().all(|share| (0.0..=1.0).contains(*share)) =>
            {
                Ok(Self::Hotspot { keys: *keys, requests: *requests })
            }
            _ => Err(bad()),
        }
    }
}

impl fmt::Display for Popularity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => f.write_str("uniform"),
            Self::Scan => f.write_str("scan"),
            Self::Zipf(t) => write!(f, "zipf:{t}"),
            Self::Scrambled(t) => write!(f, "scrambled:{t}"),
            Self::Latest(t) => write!(f, "latest:{t}"),
            Self::Hotspot { keys, requests } => write!(f, "hotspot:{keys}:{requests}"),
        }
    }
}

#[derive(Debug, Clone)]
enum Kind {
    Uniform,
    Zipf(Zipf<f64>),
    Scrambled(Zipf<f64>, Permutation),
    Latest(Zipf<f64>),
    /// The key that comes next.
    Scan(u64),
    /// How many keys are hot, and the share of requests that they get.
    Hotspot(u64, f64),
}

/// Draws keys from `0..keys`.
#[derive(Debug, Clone)]
pub struct Sampler {
    keys: u64,
    kind: Kind,
    /// The key inserted last.
    front: u64,
}

impl Sampler {
    /// `None` when there are no keys, or a number of `popularity` is out of range.
    pub fn new(keys: u64, popularity: Popularity) -> Option<Self> {
        if keys == 0 {
            return None;
        }
        #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53 keys")]
        let zipf = |theta| Zipf::new(keys as f64, theta).ok();
        let kind = match popularity {
            Popularity::Uniform => Kind::Uniform,
            Popularity::Zipf(t) => Kind::Zipf(zipf(t)?),
            Popularity::Scrambled(t) => Kind::Scrambled(zipf(t)?, Permutation::new(keys)),
            Popularity::Latest(t) => Kind::Latest(zipf(t)?),
            Popularity::Scan => Kind::Scan(0),
            Popularity::Hotspot { keys: share, requests } => {
                if !(0.0..=1.0).contains(&share) || !(0.0..=1.0).contains(&requests) {
                    return None;
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_precision_loss,
                    clippy::cast_sign_loss,
                    reason = "a share of the keys; a rounding of one key in 2^53 does no harm"
                )]
                let hot = (keys as f64 * share).round() as u64;
                Kind::Hotspot(hot.clamp(1, keys), requests)
            }
        };
        Some(Self { keys, kind, front: keys - 1 })
    }

    /// A key to read.
    pub fn read(&mut self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        let keys = self.keys;
        match &mut self.kind {
            Kind::Uniform => rng.random_range(0..keys),
            Kind::Zipf(z) => rank(z, keys, rng),
            Kind::Scrambled(z, shuffle) => shuffle.place(rank(z, keys, rng)),
            Kind::Latest(z) => {
                let back = rank(z, keys, rng);
                if back <= self.front { self.front - back } else { self.front + keys - back }
            }
            Kind::Scan(next) => {
                let key = *next;
                *next = (key + 1) % keys;
                key
            }
            Kind::Hotspot(hot, requests) => {
                let hit = *hot == keys || rng.random::<f64>() < *requests;
                if hit { rng.random_range(0..*hot) } else { rng.random_range(*hot..keys) }
            }
        }
    }

    /// A key to write.
    pub fn write(&mut self, rng: &mut Xoshiro256PlusPlus) -> u64 {
        if let Kind::Latest(_) = self.kind { self.insert() } else { self.read(rng) }
    }

    /// The next new key. Keys are bounded: a new one takes the place of the oldest.
    pub fn insert(&mut self) -> u64 {
        self.front = (self.front + 1) % self.keys;
        self.front
    }
}

/// A rank in `0..keys`, 0 being the most popular.
fn rank(zipf: &Zipf<f64>, keys: u64, rng: &mut Xoshiro256PlusPlus) -> u64 {
    // The draw is a whole number from 1; rounding could take it one beyond the last.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "whole, positive, and at most the number of keys plus one"
    )]
    let drawn = zipf.sample(rng) as u64;
    drawn.clamp(1, keys) - 1
}
