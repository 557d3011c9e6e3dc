//! `stats hotkeys`: the keys that are requested most, by a sample and a sketch.
//!
//! In: every key that a thread serves, of which it looks at one in `SAMPLE_EVERY` on average,
//! at random distances, so that no pattern of requests hides from it. Out: the keys with the highest
//! estimated counts over all threads. The sketch is Space-Saving (Metwally, Agrawal, El Abbadi,
//! ICDT 2005): `KEYS` keys; a new one takes the place of the one seen least and inherits its
//! count as its error. A key not sampled costs a load and a store. The sketch's lock is never
//! waited for on the data path: a sample that finds it taken is lost. Never fails.

use super::key_text::encoded;
use super::rows::Rows;
use crate::counters::Counter;
use memcache::KEY_MAX_BYTES;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Keys of which one is looked at.
const SAMPLE_EVERY: u64 = 64;

/// Keys that a thread's sketch holds.
const KEYS: usize = 128;

/// Keys that are shown.
const SHOWN: usize = 20;

/// One thread's sketch. That thread alone adds to it.
#[derive(Debug)]
pub struct HotKeys {
    /// Keys to pass over before the next sample.
    pass_over: Counter,
    /// State of the generator of distances.
    random: Counter,
    sketch: Mutex<Box<Sketch>>,
}

impl Default for HotKeys {
    fn default() -> Self {
        let random = Counter::default();
        random.set(0x9e37_79b9_7f4a_7c15);
        Self { pass_over: Counter::default(), random, sketch: Mutex::default() }
    }
}

#[derive(Debug)]
struct Sketch {
    used: usize,
    hashes: [u64; KEYS],
    counts: [Count; KEYS],
    keys: Box<[Key; KEYS]>,
    samples: u64,
    /// No count was below this when a key last had to go.
    least: u64,
    /// Places before this one have more.
    hand: usize,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Count {
    samples: u64,
    /// Of these, at most so many of other keys.
    error: u64,
}

#[derive(Debug, Clone, Copy)]
struct Key {
    len: u8,
    bytes: [u8; KEY_MAX_BYTES],
}

impl Default for Sketch {
    fn default() -> Self {
        let keys = Box::new([Key { len: 0, bytes: [0; KEY_MAX_BYTES] }; KEYS]);
        let counts = [Count::default(); KEYS];
        Self { used: 0, hashes: [0; KEYS], counts, keys, samples: 0, least: 0, hand: 0 }
    }
}

impl HotKeys {
    /// A request names this key.
    #[inline]
    pub fn see(&self, key: &[u8]) {
        match self.pass_over.get().checked_sub(1) {
            Some(left) => self.pass_over.set(left),
            None => self.sample(key),
        }
    }

    /// Requests name so many keys. How many of them come before one that must be shown to
    /// [`Self::see`]; `None`: none is to be.
    #[inline]
    pub fn pass(&self, keys: u64) -> Option<u64> {
        let over = self.pass_over.get();
        self.pass_over.set(over.saturating_sub(keys));
        (over < keys).then_some(over)
    }

    #[cold]
    fn sample(&self, key: &[u8]) {
        // xorshift64 (Marsaglia 2003).
        let mut x = self.random.get();
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        self.random.set(x);
        self.pass_over.set(x % (2 * SAMPLE_EVERY - 1));
        if let Some(mut sketch) = self.sketch.try_lock() {
            sketch.add(key);
        }
    }

    /// Forgets what was seen.
    pub(super) fn forget(&self) {
        let mut sketch = self.sketch.lock();
        (sketch.used, sketch.samples) = (0, 0);
        (sketch.least, sketch.hand) = (0, 0);
    }
}

impl Sketch {
    fn add(&mut self, key: &[u8]) {
        self.samples += 1;
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let hash = hasher.finish();
        if let Some(count) = self.known(hash).and_then(|n| self.counts.get_mut(n)) {
            count.samples += 1;
            return;
        }
        let (place, error) = if self.used < KEYS {
            self.used += 1;
            (self.used - 1, 0)
        } else {
            (self.seen_least(), self.least)
        };
        let (Some(h), Some(c), Some(k)) =
            (self.hashes.get_mut(place), self.counts.get_mut(place), self.keys.get_mut(place))
        else {
            return;
        };
        *h = hash;
        *c = Count { samples: error + 1, error };
        if let (Ok(len), Some(to)) = (u8::try_from(key.len()), k.bytes.get_mut(..key.len())) {
            to.copy_from_slice(key);
            k.len = len;
        }
    }

    /// The place of the key with this hash.
    fn known(&self, hash: u64) -> Option<usize> {
        const RUN: usize = 16;
        // Without a branch for each: nearly all keys are not there.
        let any = |run: &[u64; RUN]| run.iter().fold(false, |any, h| any | (*h == hash));
        let (runs, _) = self.hashes.as_chunks::<RUN>();
        let run = runs.iter().position(any)?;
        let n = run * RUN + runs.get(run)?.iter().position(|h| *h == hash)?;
        (n < self.used).then_some(n)
    }

    /// A place with the smallest count, when all are in use; that count is `least` then. The hand
    /// moves on, so that places with the same count take turns and few are looked at.
    fn seen_least(&mut self) -> usize {
        let is_least = |least: u64| move |c: &Count| c.samples <= least;
        let ahead = self.counts.iter().skip(self.hand).position(is_least(self.least));
        let place = ahead.map(|n| self.hand + n).or_else(|| {
            self.least = self.counts.iter().map(|c| c.samples).min().unwrap_or(0);
            self.counts.iter().position(is_least(self.least))
        });
        let place = place.unwrap_or(0);
        self.hand = place + 1;
        place
    }

    fn each(&self) -> impl Iterator<Item = (&[u8], Count)> {
        let keys = self.keys.iter().map(|k| k.bytes.get(..k.len.into()).unwrap_or_default());
        keys.zip(self.counts).take(self.used)
    }
}

/// Writes the page: how many keys were sampled, and the hottest with their counts.
pub(super) fn page<'a>(threads: impl Iterator<Item = &'a HotKeys>, rows: &mut impl Rows) {
    let mut merged: HashMap<Vec<u8>, Count> = HashMap::new();
    let mut samples = 0;
    for thread in threads {
        let sketch = thread.sketch.lock();
        samples += sketch.samples;
        for (key, count) in sketch.each() {
            let sum = merged.entry(key.to_owned()).or_default();
            sum.samples += count.samples;
            sum.error += count.error;
        }
    }
    let mut hottest: Vec<(Vec<u8>, Count)> = merged.into_iter().collect();
    hottest.sort_by(|(a, x), (b, y)| y.samples.cmp(&x.samples).then_with(|| a.cmp(b)));
    rows.row("sample_every", &SAMPLE_EVERY);
    rows.row("samples", &samples);
    for (n, (key, count)) in hottest.iter().take(SHOWN).enumerate() {
        rows.row(&format!("{}:key", n + 1), &encoded(key));
        rows.row(&format!("{}:count", n + 1), &(count.samples * SAMPLE_EVERY));
        rows.row(&format!("{}:error", n + 1), &(count.error * SAMPLE_EVERY));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Display;

    #[derive(Default)]
    struct All(Vec<(String, String)>);

    impl Rows for All {
        fn row(&mut self, name: &str, value: &dyn Display) {
            self.0.push((name.to_owned(), value.to_string()));
        }
    }

    fn shown(threads: &[&HotKeys]) -> Vec<(String, String)> {
        let mut rows = All::default();
        page(threads.iter().copied(), &mut rows);
        rows.0
    }

    #[test]
    fn the_hottest_keys_come_first() {
        let (a, b) = (HotKeys::default(), HotKeys::default());
        for i in 0..400_000u64 {
            // A third of all requests, and a sixth; the rest is spread over 50,000 keys.
            let key = match i % 6 {
                0 | 1 => "hot".to_owned(),
                2 => "warm one".to_owned(),
                _ => format!("key{}", i * 7919 % 50_000),
            };
            if i % 2 == 0 { &a } else { &b }.see(key.as_bytes());
        }
        let rows = shown(&[&a, &b]);
        let number = |n: usize| rows[n].1.parse::<u64>().unwrap();
        assert_eq!(rows[0], ("sample_every".to_owned(), "64".to_owned()));
        let expected = 400_000 / SAMPLE_EVERY;
        assert!(number(1) > expected * 8 / 10 && number(1) < expected * 12 / 10, "{rows:?}");
        assert_eq!((rows[2].0.as_str(), rows[2].1.as_str()), ("1:key", "hot"));
        assert!((100_000..170_000).contains(&number(3)), "{rows:?}");
        assert_eq!(rows[5].1, "warm%20one");
        assert_eq!(rows.len(), 2 + 3 * SHOWN);
        a.forget();
        b.forget();
        assert_eq!(shown(&[&a, &b]).len(), 2);
        a.sketch.lock().add(b"new");
        assert_eq!(
            shown(&[&a, &b])[2..],
            [
                ("1:key".to_owned(), "new".to_owned()),
                ("1:count".to_owned(), "64".to_owned()),
                ("1:error".to_owned(), "0".to_owned()),
            ]
        );
    }

    #[test]
    fn a_new_key_inherits_the_least_count() {
        let mut sketch = Sketch::default();
        for i in 0..KEYS {
            for _ in 0..=i {
                sketch.add(format!("k{i}").as_bytes());
            }
        }
        sketch.add(&[b'x'; KEY_MAX_BYTES]);
        let all: Vec<_> = sketch.each().collect();
        assert_eq!(all.len(), KEYS);
        assert_eq!(all[0], (&[b'x'; KEY_MAX_BYTES][..], Count { samples: 2, error: 1 }));
        assert_eq!(all[1], (&b"k1"[..], Count { samples: 2, error: 0 }));
    }
}
