//! A cache as a GPU's multiprocessor has one: lines of sectors, sets of ways, the line that was not used for
//! the longest time leaves first.
//!
//! In: a shape; loads of a warp by line and sectors. Out: what was there. A load that misses a line takes one,
//! and fetches the sectors that it wants; one that finds the line without a sector fetches that sector. Cannot
//! fail once its shape is good.

use super::super::lanes::SECTOR_BYTES;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::str::FromStr;

/// Longest line: its sectors are bits of a word.
const LINE_BYTES_MAX: u64 = 32 * SECTOR_BYTES;
/// Largest cache.
const BYTES_MAX: u64 = 1 << 30;

/// A cache's size and form. Written `32k:128:8`: bytes, bytes of a line, ways; or `1m:128:full`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// All of it.
    pub bytes: u64,
    /// A line: a power of two, whole sectors.
    pub line_bytes: u64,
    /// Lines of a set.
    pub ways: u64,
}

/// The text names no shape.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadShape {
    /// It is not of that form.
    #[error("`{0}` is no cache: write BYTES:LINE:WAYS, such as 32k:128:8 or 1m:128:full")]
    Form(String),
    /// Lines that there are not.
    #[error("lines of {0} B: write a power of two from {SECTOR_BYTES} to {LINE_BYTES_MAX}")]
    Line(u64),
    /// Its sets are not whole.
    #[error(
        "{0}: the size must be a multiple of line and ways, and from one set to {BYTES_MAX} bytes"
    )]
    Sets(String),
}

impl Shape {
    /// Sets.
    pub fn sets(self) -> u64 {
        self.bytes / (self.line_bytes * self.ways)
    }

    /// Whether a line may be anywhere.
    pub fn is_full(self) -> bool {
        self.sets() == 1
    }
}

impl FromStr for Shape {
    type Err = BadShape;

    fn from_str(text: &str) -> Result<Self, BadShape> {
        let form = || BadShape::Form(text.to_owned());
        let [bytes, line, ways] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(form());
        };
        let (digits, unit) = match bytes.as_bytes() {
            [.., b'k' | b'K'] => (&bytes[..bytes.len() - 1], 1 << 10),
            [.., b'm' | b'M'] => (&bytes[..bytes.len() - 1], 1 << 20),
            _ => (bytes, 1),
        };
        let bytes: u64 = digits.parse().map_err(|_| form())?;
        let bytes = bytes.checked_mul(unit).ok_or_else(form)?;
        let line_bytes: u64 = line.parse().map_err(|_| form())?;
        if !line_bytes.is_power_of_two() || !(SECTOR_BYTES..=LINE_BYTES_MAX).contains(&line_bytes) {
            return Err(BadShape::Line(line_bytes));
        }
        let ways = match ways {
            "full" => bytes / line_bytes,
            ways => ways.parse().map_err(|_| form())?,
        };
        let set_bytes = line_bytes.checked_mul(ways).filter(|set| *set > 0);
        if bytes == 0 || bytes > BYTES_MAX || set_bytes.is_none_or(|set| bytes % set != 0) {
            return Err(BadShape::Sets(text.to_owned()));
        }
        Ok(Self { bytes, line_bytes, ways })
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes % 1024 {
            0 => write!(f, "{}k:{}:", self.bytes / 1024, self.line_bytes)?,
            _ => write!(f, "{}:{}:", self.bytes, self.line_bytes)?,
        }
        if self.is_full() { f.write_str("full") } else { write!(f, "{}", self.ways) }
    }
}

/// What a cache counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counts {
    /// Loads: one for each line that a warp's load touches.
    pub loads: u64,
    /// Of these, with a sector that was not there.
    pub misses: u64,
    /// Of these, because a sector was wanted for the first time: in a cache of any size.
    pub cold: u64,
    /// Sectors fetched.
    pub fetched: u64,
    /// Lines taken.
    pub lines: u64,
    /// Of these, used by one load until they left or all was over.
    pub used_once: u64,
}

impl Counts {
    /// The sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            loads: self.loads + other.loads,
            misses: self.misses + other.misses,
            cold: self.cold + other.cold,
            fetched: self.fetched + other.fetched,
            lines: self.lines + other.lines,
            used_once: self.used_once + other.used_once,
        }
    }
}

/// A line that is there.
#[derive(Debug)]
struct Line {
    sectors: u32,
    loads: u64,
    used: u64,
}

/// A set: its lines, and which of them was used when.
#[derive(Debug, Default)]
struct Set {
    lines: HashMap<u64, Line>,
    by_use: BTreeMap<u64, u64>,
}

/// A cache.
#[derive(Debug)]
pub struct Cache {
    shape: Shape,
    sets: Vec<Set>,
    /// Sectors that were ever wanted.
    known: HashSet<u64>,
    now: u64,
    counts: Counts,
}

impl Cache {
    /// An empty one.
    pub fn new(shape: Shape) -> Self {
        let sets = (0..shape.sets()).map(|_| Set::default()).collect();
        Self { shape, sets, known: HashSet::new(), now: 0, counts: Counts::default() }
    }

    /// A warp loads these sectors, which are in order, each once: line by line.
    pub fn load(&mut self, sectors: &[u64]) {
        let per_line = self.shape.line_bytes / SECTOR_BYTES;
        for line in sectors.chunk_by(|a, b| a / per_line == b / per_line) {
            self.load_line(line, per_line);
        }
    }

    fn load_line(&mut self, sectors: &[u64], per_line: u64) {
        let Some(line) = sectors.first().map(|sector| sector / per_line) else { return };
        let wanted = sectors.iter().fold(0, |bits, sector| bits | 1_u32 << (sector % per_line));
        let Ok(at) = usize::try_from(line % self.shape.sets()) else { return };
        let Some(set) = self.sets.get_mut(at) else { return };
        self.now += 1;
        self.counts.loads += 1;
        let is_new = sectors.iter().fold(false, |new, sector| self.known.insert(*sector) | new);
        let missing = match set.lines.get_mut(&line) {
            Some(here) => {
                set.by_use.remove(&here.used);
                self.counts.used_once -= u64::from(here.loads == 1);
                here.loads += 1;
                here.used = self.now;
                let missing = wanted & !here.sectors;
                here.sectors |= wanted;
                missing
            }
            None => {
                if set.lines.len() as u64 == self.shape.ways
                    && let Some((_, oldest)) = set.by_use.pop_first()
                {
                    set.lines.remove(&oldest);
                }
                set.lines.insert(line, Line { sectors: wanted, loads: 1, used: self.now });
                self.counts.lines += 1;
                self.counts.used_once += 1;
                wanted
            }
        };
        set.by_use.insert(self.now, line);
        self.counts.fetched += u64::from(missing.count_ones());
        self.counts.misses += u64::from(missing != 0);
        self.counts.cold += u64::from(is_new);
    }

    /// What it counted so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    fn of(shape: &str, loads: &[&[u64]]) -> Counts {
        let mut cache = Cache::new(shape.parse().unwrap());
        loads.iter().for_each(|sectors| cache.load(sectors));
        cache.counts()
    }

    #[test]
    fn shapes_are_read_and_written() {
        for (text, bytes, line_bytes, ways, sets) in [
            ("32k:128:8", 32 << 10, 128, 8, 32),
            ("1m:32:full", 1 << 20, 32, 1 << 15, 1),
            ("192:32:3", 192, 32, 3, 2),
        ] {
            let shape: Shape = text.parse().unwrap();
            assert_eq!(shape, Shape { bytes, line_bytes, ways });
            assert_eq!(shape.sets(), sets);
            assert_eq!(shape.to_string().parse(), Ok(shape));
        }
        for bad in [
            "",
            "32k",
            "32k:128",
            "32k:128:8:1",
            "xk:128:8",
            "32kk:128:8",
            "32k:128:many",
            "-1:128:1",
        ] {
            assert_eq!(bad.parse::<Shape>(), Err(BadShape::Form(bad.to_owned())), "{bad}");
        }
        for line in [0, 16, 96, 2048] {
            assert_eq!(format!("64k:{line}:1").parse::<Shape>(), Err(BadShape::Line(line)));
        }
        for bad in ["0:128:1", "32k:128:0", "32k:128:7", "64:128:full", "128:128:2", "2000m:128:1"]
        {
            assert_eq!(bad.parse::<Shape>(), Err(BadShape::Sets(bad.to_owned())), "{bad}");
        }
    }

    /// Two sets of two ways, lines of 4 sectors: lines 0, 2 and 4 share a set.
    #[test]
    fn the_line_that_was_not_used_for_longest_leaves() {
        // 0 and 2 come, 0 is used again, so 4 takes the place of 2.
        let [zero, two, four]: [&[u64]; 3] = [&[0], &[8], &[16]];
        let counts = of("512:128:2", &[zero, two, zero, four, zero, two]);
        let want = Counts { loads: 6, misses: 4, cold: 3, fetched: 4, lines: 4, used_once: 3 };
        assert_eq!(counts, want);
        // In another set there is room for line 1.
        assert_eq!(of("512:128:2", &[zero, two, &[4], zero, two]).misses, 3);
        // With one way the two put each other out; with all of them nothing leaves.
        assert_eq!(of("512:128:1", &[zero, four, zero, four]).misses, 4);
        assert_eq!(of("512:128:full", &[zero, two, four, zero, two, four]).misses, 3);
    }

    #[test]
    fn a_sector_that_a_line_lacks_is_fetched_by_itself() {
        // One load of two lines; then a sector that is there, one that is not, and both.
        let counts = of("512:128:2", &[&[0, 1, 4], &[1], &[2], &[1, 2]]);
        let want = Counts { loads: 5, misses: 3, cold: 3, fetched: 4, lines: 2, used_once: 1 };
        assert_eq!(counts, want);
        // A line that comes back has only what is wanted then.
        let counts = of("128:128:1", &[&[0, 1], &[4], &[0], &[1]]);
        assert_eq!((counts.misses, counts.cold, counts.fetched), (4, 2, 5));
    }

    /// The same by lists and nothing else: all lines, the one used last at the end.
    fn by_hand(shape: Shape, loads: &[Vec<u64>]) -> Counts {
        let per_line = shape.line_bytes / SECTOR_BYTES;
        let mut held: Vec<(u64, Vec<u64>, u64)> = Vec::new();
        let (mut gone, mut seen, mut counts) = (Vec::new(), Vec::new(), Counts::default());
        for sectors in loads {
            let mut lines: Vec<u64> = sectors.iter().map(|s| s / per_line).collect();
            lines.dedup();
            for line in lines {
                let wanted: Vec<u64> =
                    sectors.iter().copied().filter(|s| s / per_line == line).collect();
                counts.loads += 1;
                counts.cold += u64::from(wanted.iter().any(|s| !seen.contains(s)));
                seen.extend(&wanted);
                let (_, mut have, uses) = match held.iter().position(|held| held.0 == line) {
                    Some(at) => held.remove(at),
                    None => {
                        counts.lines += 1;
                        let same = |held: &(u64, Vec<u64>, u64)| {
                            held.0 % shape.sets() == line % shape.sets()
                        };
                        if held.iter().filter(|held| same(held)).count() as u64 == shape.ways {
                            let oldest = held.iter().position(same).unwrap();
                            gone.push(held.remove(oldest));
                        }
                        (line, Vec::new(), 0)
                    }
                };
                let missing: Vec<u64> = wanted.into_iter().filter(|s| !have.contains(s)).collect();
                counts.misses += u64::from(!missing.is_empty());
                counts.fetched += missing.len() as u64;
                have.extend(missing);
                held.push((line, have, uses + 1));
            }
        }
        counts.used_once = held.iter().chain(&gone).filter(|held| held.2 == 1).count() as u64;
        counts
    }

    #[test]
    fn random_loads_count_as_by_hand() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(7);
        let shapes = ["1k:128:2", "1k:32:4", "2k:64:1", "512:128:full", "3k:128:4", "128:128:1"];
        for shape in shapes {
            let shape: Shape = shape.parse().unwrap();
            for most in [20, 60, 300] {
                let loads: Vec<Vec<u64>> = (0..400)
                    .map(|_| {
                        let n = rng.random_range(1..6);
                        let mut sectors: Vec<u64> =
                            (0..n).map(|_| rng.random_range(0..most)).collect();
                        sectors.sort_unstable();
                        sectors.dedup();
                        sectors
                    })
                    .collect();
                let mut cache = Cache::new(shape);
                loads.iter().for_each(|sectors| cache.load(sectors));
                assert_eq!(cache.counts(), by_hand(shape, &loads), "{shape}, {most}");
            }
        }
    }

    /// By inclusion: what more ways of as many sets hold, fewer held, too.
    #[test]
    fn more_ways_never_miss_more() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(9);
        let loads: Vec<Vec<u64>> = (0..2000).map(|_| vec![rng.random_range(0..256)]).collect();
        let misses = |shape: &str| {
            let mut cache = Cache::new(shape.parse().unwrap());
            loads.iter().for_each(|sectors| cache.load(sectors));
            (cache.counts().misses, cache.counts().cold)
        };
        let of: Vec<(u64, u64)> =
            ["512:128:1", "1k:128:2", "2k:128:4", "4k:128:8", "8k:128:16"].map(misses).to_vec();
        assert!(of.windows(2).all(|two| two[0].0 > two[1].0), "{of:?}");
        // All that there is fits the last.
        assert_eq!(of[4].0, of[4].1);
    }
}
