//! Sizes of keys and values: one for all, or drawn per key.
//!
//! Written `64`, `16..250` (each alike likely, both ends included), `16,64,1024` (a list, with
//! weights where wanted: `16:8,1024:1`) or by the name of a published distribution (`etc-key`,
//! `etc-value`; `etc-value:1300` is cut at 1,300).

use super::fits::Fit;
use super::mix;
use std::fmt;
use std::str::FromStr;

/// Keeps the sizes of a key and of its value independent of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// Key sizes.
    Key,
    /// Value sizes.
    Value,
}

/// A distribution of sizes in bytes over keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sizes {
    /// All alike.
    Fixed(u32),
    /// `min..=max`, each size alike likely.
    Uniform {
        /// Least size.
        min: u32,
        /// Greatest size.
        max: u32,
    },
    /// Sizes with their weights; never empty, and the weights add up to more than 0.
    List(Vec<(u32, u32)>),
    /// A published distribution.
    Fit {
        /// Which.
        fit: Fit,
        /// Sizes above are cut to this.
        max: u32,
    },
}

/// The text does not describe sizes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no size: write 64, 16..250, a list such as 16,64 or 16:8,64:1, etc-key or etc-value"
)]
pub struct BadSizes(String);

impl From<Fit> for Sizes {
    fn from(fit: Fit) -> Self {
        Self::Fit { fit, max: fit.max() }
    }
}

impl Sizes {
    /// The same, with the tail of a published distribution cut at `limit`. What was written out
    /// stays as it is.
    #[must_use]
    pub fn cut_at(self, limit: u32) -> Self {
        match self {
            Self::Fit { fit, max } => Self::Fit { fit, max: max.min(limit).max(fit.min()) },
            other => other,
        }
    }

    /// The size that belongs to key `index`: always the same one.
    pub fn of(&self, index: u64, what: Of) -> usize {
        let salt = if what == Of::Key { 0x6b65_7973 } else { 0x7661_6c73 };
        let drawn = || mix(index ^ mix(salt));
        let draw = |n: u64| ((u128::from(drawn()) * u128::from(n)) >> 64) as u64;
        let size = match self {
            Self::Fixed(n) => u64::from(*n),
            Self::Uniform { min, max } => u64::from(*min) + draw(u64::from(max - min) + 1),
            Self::List(list) => {
                let mut at = draw(list.iter().map(|(_, w)| u64::from(*w)).sum());
                let hit = list.iter().find(|(_, w)| {
                    let here = at < u64::from(*w);
                    at = at.wrapping_sub(u64::from(*w));
                    here
                });
                hit.map_or(0, |(n, _)| u64::from(*n))
            }
            Self::Fit { fit, max } => {
                // The upper 53 bits, as many as a float holds, in the middle of their step.
                let share = ((drawn() >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
                u64::from(fit.quantile(share).min(*max))
            }
        };
        usize::try_from(size).unwrap_or(usize::MAX)
    }

    /// The least size that can occur.
    pub fn min(&self) -> usize {
        let min = match self {
            Self::Fixed(n) | Self::Uniform { min: n, .. } => *n,
            Self::List(l) => l.iter().filter(|(_, w)| *w > 0).map(|(n, _)| *n).min().unwrap_or(0),
            Self::Fit { fit, .. } => fit.min(),
        };
        min as usize
    }

    /// The greatest size that can occur.
    pub fn max(&self) -> usize {
        let max = match self {
            Self::Fixed(n) | Self::Uniform { max: n, .. } => *n,
            Self::List(l) => l.iter().filter(|(_, w)| *w > 0).map(|(n, _)| *n).max().unwrap_or(0),
            Self::Fit { max, .. } => *max,
        };
        max as usize
    }
}

impl FromStr for Sizes {
    type Err = BadSizes;

    fn from_str(s: &str) -> Result<Self, BadSizes> {
        let bad = || BadSizes(s.to_owned());
        let number = |t: &str| t.trim().parse::<u32>().map_err(|_| bad());
        let (name, limit) = s.split_once(':').map_or((s, None), |(n, l)| (n, Some(l)));
        if let Some(fit) = Fit::named(name) {
            let limit = limit.map(number).transpose()?.unwrap_or_else(|| fit.max());
            let known = fit.min()..=fit.max();
            return if known.contains(&limit) {
                Ok(Self::Fit { fit, max: limit })
            } else {
                Err(bad())
            };
        }
        if let Some((min, max)) = s.split_once("..") {
            let (min, max) = (number(min)?, number(max.trim_start_matches('='))?);
            return if min <= max { Ok(Self::Uniform { min, max }) } else { Err(bad()) };
        }
        if !s.contains([',', ':']) {
            return Ok(Self::Fixed(number(s)?));
        }
        let list = s
            .split(',')
            .map(|e| match e.split_once(':') {
                Some((n, w)) => Ok((number(n)?, number(w)?)),
                None => Ok((number(e)?, 1)),
            })
            .collect::<Result<Vec<_>, BadSizes>>()?;
        if list.iter().all(|(_, w)| *w == 0) { Err(bad()) } else { Ok(Self::List(list)) }
    }
}

impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(n) => write!(f, "{n}"),
            Self::Uniform { min, max } => write!(f, "{min}..{max}"),
            Self::List(l) => {
                for (i, (n, w)) in l.iter().enumerate() {
                    write!(f, "{}{n}:{w}", if i > 0 { "," } else { "" })?;
                }
                Ok(())
            }
            Self::Fit { fit, max } if *max == fit.max() => f.write_str(fit.name()),
            Self::Fit { fit, max } => write!(f, "{}:{max}", fit.name()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_and_back() {
        for t in ["64", "16..250", "16:8,64:1", "etc-key", "etc-value:1300"] {
            assert_eq!(t.parse::<Sizes>().unwrap().to_string(), t);
        }
        for t in
            ["", "x", "9..8", "-1", "3:0", "1,,2", "5000000000", "etc", "etc-key:10", "etc-value:"]
        {
            assert!(t.parse::<Sizes>().is_err(), "{t}");
        }
    }

    #[test]
    fn every_size_occurs_about_as_often_as_it_should() {
        let count = |s: &Sizes, n: usize| {
            (0..100_000).filter(|i| s.of(*i, Of::Value) == n).count().cast_signed()
        };
        let u: Sizes = "10..19".parse().unwrap();
        for n in 10..=19 {
            assert!((count(&u, n) - 10_000).abs() < 500);
        }
        let l: Sizes = "8:3,100:1".parse().unwrap();
        assert!((count(&l, 8) - 75_000).abs() < 1_000);
        assert_eq!(count(&l, 8) + count(&l, 100), 100_000);
        assert_eq!((l.min(), l.max(), u.min(), u.max()), (8, 100, 10, 19));
    }

    #[test]
    fn a_published_size_is_drawn_per_key_and_cut_on_demand() {
        let s = Sizes::from(Fit::EtcValue);
        let cut = s.clone().cut_at(1_300);
        let (mut small, mut at_the_cut) = (0, 0);
        for i in 0..100_000 {
            let whole = s.of(i, Of::Value);
            assert_eq!(cut.of(i, Of::Value), whole.min(1_300));
            small += u32::from(whole < 15);
            at_the_cut += u32::from(whole > 1_300);
        }
        assert!((43_000..45_300).contains(&small) && at_the_cut > 1_000, "{small} {at_the_cut}");
        assert_eq!((cut.min(), cut.max()), (0, 1_300));
        assert_eq!(Sizes::Fixed(9_000).cut_at(10), Sizes::Fixed(9_000));
    }

    #[test]
    fn key_and_value_sizes_are_independent() {
        let s: Sizes = "0..1".parse().unwrap();
        let same = (0..10_000).filter(|i| s.of(*i, Of::Key) == s.of(*i, Of::Value)).count();
        assert!((4_700..5_300).contains(&same), "{same}");
    }
}
