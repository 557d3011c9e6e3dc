//! What a client asks for, and what it must get: keys of several lengths, a part of them never stored
//! (MemcachedGPU's figure 5).
//!
//! In: lengths of keys with their weights, how many items the store has of each, a hit rate. Out: request frames,
//! each with the text of its reply. A miss is the right reply to a key that was never stored, and to no other.
//! Fails when a text describes no mix.

use crate::study::load::{Load, Shape};
use crate::workload::{BadSizes, Sizes};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use std::error::Error;
use std::fmt;
use std::str::FromStr;

/// Shortest keys: shorter ones cannot name enough items; and the longest that memcached has.
const KEY_BYTES: std::ops::RangeInclusive<u32> = 10..=250;
/// Bytes of every value.
pub const VALUE_BYTES: usize = 64;

/// Lengths of keys with their weights, as `16:3,64:1`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyMix(Vec<(u32, u32)>);

/// The text describes no mix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadMix {
    /// No sizes at all.
    #[error(transparent)]
    Sizes(#[from] BadSizes),
    /// Sizes without end.
    #[error("`{0}` is no mix: write lengths and weights, such as 16,32 or 16:3,64:1")]
    Form(String),
    /// A length that keys do not have, or have twice.
    #[error("keys of {0} B: lengths are {low} to {high}, each once with a weight above 0", low = KEY_BYTES.start(), high = KEY_BYTES.end())]
    Length(u32),
}

impl FromStr for KeyMix {
    type Err = BadMix;

    fn from_str(text: &str) -> Result<Self, BadMix> {
        let list = match text.parse()? {
            Sizes::Fixed(length) => vec![(length, 1)],
            Sizes::List(list) => list,
            Sizes::Uniform { .. } | Sizes::Fit { .. } => return Err(BadMix::Form(text.to_owned())),
        };
        for (i, (length, weight)) in list.iter().enumerate() {
            let is_twice = list.iter().take(i).any(|(before, _)| before == length);
            if !KEY_BYTES.contains(length) || *weight == 0 || is_twice {
                return Err(BadMix::Length(*length));
            }
        }
        Ok(Self(list))
    }
}

impl fmt::Display for KeyMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0[..] {
            [(length, _)] => write!(f, "{length}"),
            list => write!(f, "{}", Sizes::List(list.to_vec())),
        }
    }
}

impl Default for KeyMix {
    /// 16 bytes.
    fn default() -> Self {
        Self(vec![(16, 1)])
    }
}

impl KeyMix {
    /// Its lengths one by one, each with its share.
    pub fn parts(&self) -> impl Iterator<Item = (Self, f64)> {
        let all: f64 = self.0.iter().map(|(_, weight)| f64::from(*weight)).sum();
        self.0.iter().map(move |(length, w)| (Self(vec![(*length, 1)]), f64::from(*w) / all))
    }

    /// Shapes of its items.
    pub fn shapes(&self) -> Vec<Shape> {
        self.0.iter().map(|(length, _)| shape(*length)).collect()
    }
}

fn shape(key_bytes: u32) -> Shape {
    Shape { key_bytes: key_bytes as usize, value_bytes: VALUE_BYTES }
}

/// A request, and the text of its reply.
#[derive(Debug)]
pub struct Asked {
    /// The frame, with the number 0.
    pub frame: Vec<u8>,
    /// What must come back.
    pub reply: Vec<u8>,
}

impl Asked {
    /// Whether the key is stored.
    pub fn is_hit(&self) -> bool {
        self.reply.starts_with(b"VALUE ")
    }
}

/// `n` gets of one key each: of a length of the mix, and of 100 so many of a key that is stored. There
/// are `items` items of each length.
///
/// # Errors
/// A request that does not fit a frame.
pub fn asked(
    mix: &KeyMix,
    hit_rate: u32,
    items: u64,
    n: u64,
    seed: u64,
) -> Result<Vec<Asked>, Box<dyn Error>> {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
    let weights: u64 = mix.0.iter().map(|(_, weight)| u64::from(*weight)).sum();
    let one = |_| {
        let mut at = rng.random_range(0..weights);
        let (length, _) = mix.0.iter().find(|(_, weight)| {
            let is_here = at < u64::from(*weight);
            at = at.saturating_sub(u64::from(*weight));
            is_here
        })?;
        let load = if rng.random_range(0..100) < hit_rate { Load::Get } else { Load::Miss };
        let (shape, item) = (shape(*length), rng.random_range(0..items));
        let frame = load.request(shape, &[item], items)?;
        Some(Asked { frame, reply: load.reply(shape, &[item]) })
    };
    (0..n).map(one).collect::<Option<_>>().ok_or_else(|| "a request does not fit a frame".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mix_is_read_and_written() {
        let mix: KeyMix = "16:3,128:1".parse().unwrap();
        assert_eq!(mix.to_string().parse(), Ok(mix.clone()));
        assert_eq!(mix.shapes().iter().map(|s| s.key_bytes).collect::<Vec<_>>(), [16, 128]);
        let parts: Vec<(String, f64)> =
            mix.parts().map(|(m, share)| (m.to_string(), share)).collect();
        assert_eq!(parts, [("16".to_owned(), 0.75), ("128".to_owned(), 0.25)]);
        for (bad, why) in [
            ("9", "keys of 9 B"),
            ("16,251", "keys of 251 B"),
            ("16,32,16", "keys of 16 B"),
            ("16:0,32:1", "keys of 16 B"),
            ("16..32", "is no mix"),
            ("etc-key", "is no mix"),
            ("long", "is no size"),
        ] {
            let error = bad.parse::<KeyMix>().unwrap_err().to_string();
            assert!(error.contains(why), "{bad}: {error}");
        }
    }

    #[test]
    fn requests_have_the_lengths_and_hits_that_were_asked_for() {
        let mix: KeyMix = "16:3,128:1".parse().unwrap();
        let all = asked(&mix, 85, 1000, 20_000, 1).unwrap();
        let (mut long, mut hits) = (0, 0);
        for Asked { frame, reply } in &all {
            // "get KEY\r\n" behind the headers.
            let key = &frame[14 + 20 + 8 + 8 + 4..frame.len() - 2];
            let number: u64 = std::str::from_utf8(key).unwrap().parse().unwrap();
            long += u32::from(key.len() == 128);
            hits += u32::from(number < 1000);
            assert!(key.len() == 16 || key.len() == 128);
            assert_eq!(number < 1000, reply != b"END\r\n", "only what is not stored may miss");
            assert!(number < 2000);
        }
        assert!((4_800..5_200).contains(&long), "{long}");
        assert!((16_800..17_200).contains(&hits), "{hits}");
        assert!(asked(&mix, 100, 9, 500, 1).unwrap().iter().all(|a| a.reply.len() > 5));
        assert!(asked(&mix, 0, 9, 500, 1).unwrap().iter().all(|a| a.reply == b"END\r\n"));
    }
}
