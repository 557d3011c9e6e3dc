//! A client's next request.
//!
//! Half of the keys hold text, the others numbers. Every value is new: it names the client and
//! counts its requests, so that an answer shows whose value it is. `cas` mostly follows a `gets`
//! of the same key at once, or it would hardly ever succeed. A flush is rare, or there would be nothing to flush.

use super::model::{Answer, Call, Condition};
use super::wire::Verb;
use rand::seq::IndexedRandom;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

/// Numbers start this far apart, so that counting rarely takes one to another.
const NUMBERS_APART: u64 = 1_000;

/// Values a client stores before its numbers would run into the next client's.
const VALUES_MAX: u64 = 1_000_000;

/// One request in so many is a flush, if one may be.
const FLUSH_ONE_IN: u32 = 2_000;

/// An expiry time far beyond any run, in seconds.
pub const LONG: u32 = 3600;

/// A client's next request.
#[derive(Debug)]
pub struct Next {
    /// Which key.
    pub key: usize,
    /// How.
    pub verb: Verb,
    /// What.
    pub call: Call,
    /// The expiry time in it, in seconds; 0 for none.
    pub exptime: u32,
}

/// One client's requests.
#[derive(Debug)]
pub struct Mix {
    verbs: Vec<Verb>,
    flushes: Vec<Verb>,
    /// Expiry times may pass: the shortest, in seconds.
    shortest: Option<u32>,
    rng: Xoshiro256PlusPlus,
    client: u32,
    stored: u64,
    /// The last CAS id seen of each key.
    ids: Vec<Option<u64>>,
    /// A `gets` was sent so that this may follow.
    then: Option<(usize, Verb)>,
}

impl Mix {
    /// Requests of `client` for `keys` keys, with the verbs given; none may be empty. With a `shortest` time, items
    /// may expire after as many seconds, or somewhat more.
    pub fn new(
        verbs: Vec<Verb>,
        keys: usize,
        shortest: Option<u32>,
        client: u32,
        seed: u64,
    ) -> Self {
        let seed = crate::workload::mix(seed ^ crate::workload::mix(u64::from(client)));
        let rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (flushes, verbs) = verbs.into_iter().partition(|verb| verb.is_flush());
        let ids = vec![None; keys];
        Self { verbs, flushes, shortest, rng, client, stored: 0, ids, then: None }
    }

    /// The next request.
    pub fn next_call(&mut self) -> Next {
        let (key, verb, call) = self.next_of_a_key();
        // Some end in the history, some must not.
        let often = if verb.sets_exptime() { 2 } else { 4 };
        let says = verb.sets_exptime() || verb.stores_exptime();
        let exptime = match self.shortest {
            Some(shortest) if says && self.rng.random_ratio(1, often) => {
                shortest + 3 * u32::from(self.rng.random_ratio(1, 3))
            }
            _ if verb.sets_exptime() => LONG,
            _ => 0,
        };
        Next { key, verb, call, exptime }
    }

    fn next_of_a_key(&mut self) -> (usize, Verb, Call) {
        if let Some((key, verb)) = self.then.take() {
            return (key, verb, self.call(verb, key));
        }
        if !self.flushes.is_empty()
            && self.rng.random_ratio(1, FLUSH_ONE_IN)
            && let Some(verb) = self.flushes.choose(&mut self.rng)
        {
            return (0, *verb, Call::Flush);
        }
        // Reads see what the others did: half as often again as any other verb.
        let verb = match self.rng.random_range(0..3) {
            0 => self
                .pick(|v| matches!(v, Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats | Verb::Mg)),
            _ => self.pick(|_| true),
        };
        let numbers = match verb {
            Verb::Append | Verb::Prepend => false,
            // Now and then on text, which must be refused.
            Verb::Incr | Verb::Decr | Verb::Ma => !self.rng.random_ratio(1, 16),
            _ => self.rng.random(),
        };
        let keys = self.ids.len();
        let key = (self.rng.random_range(0..keys) & !1 | usize::from(numbers)).min(keys - 1);
        let reader = match verb {
            Verb::Cas => Some(Verb::Gets),
            Verb::Ms | Verb::Md if self.rng.random_ratio(1, 4) => Some(Verb::Mg),
            _ => None,
        };
        match reader {
            Some(reader) if self.ids[key].is_none() || self.rng.random_ratio(3, 4) => {
                self.then = Some((key, verb));
                (key, reader, Call::Get)
            }
            _ => (key, verb, self.call(verb, key)),
        }
    }

    /// One of the verbs of a kind; any, if none is of that kind.
    fn pick(&mut self, kind: impl Fn(Verb) -> bool) -> Verb {
        let some: Vec<Verb> = self.verbs.iter().copied().filter(|v| kind(*v)).collect();
        let of = if some.is_empty() { &self.verbs } else { &some };
        of.choose(&mut self.rng).copied().unwrap_or(Verb::Get)
    }

    fn call(&mut self, verb: Verb, key: usize) -> Call {
        let id = self.ids[key];
        let unchanged = id.map_or(Condition::Absent, Condition::Unchanged);
        match verb {
            Verb::Get | Verb::Gets | Verb::Gat | Verb::Gats | Verb::Mg => Call::Get,
            Verb::Set => self.store(key, Condition::None),
            Verb::Add => self.store(key, Condition::Absent),
            Verb::Replace => self.store(key, Condition::Present),
            // An id that no server gives stands for "none seen yet".
            Verb::Cas => self.store(key, id.map_or(Condition::Unchanged(0), Condition::Unchanged)),
            Verb::Append => self.join(false),
            Verb::Prepend => self.join(true),
            Verb::Ms => match self.rng.random_range(0..6) {
                0 | 1 => self.store(key, unchanged),
                2 => self.store(key, Condition::Absent),
                3 => self.store(key, Condition::Present),
                4 if key.is_multiple_of(2) => {
                    let front = self.rng.random();
                    self.join(front)
                }
                _ => self.store(key, Condition::None),
            },
            Verb::Delete => Call::Delete { only: None },
            Verb::Md => Call::Delete { only: id.filter(|_| self.rng.random()) },
            Verb::Incr | Verb::Decr | Verb::Ma => {
                let up = match verb {
                    Verb::Ma => self.rng.random(),
                    _ => verb == Verb::Incr,
                };
                Call::Count { up, by: self.rng.random_range(1..NUMBERS_APART) }
            }
            Verb::Touch => Call::Touch,
            Verb::FlushAll | Verb::FlushPrefix => Call::Flush,
        }
    }

    /// A value that was not stored before.
    fn fresh(&mut self, number: bool) -> Vec<u8> {
        let n = u64::from(self.client) * VALUES_MAX + self.stored % VALUES_MAX;
        self.stored += 1;
        if number { (n * NUMBERS_APART).to_string() } else { format!("<{}.{n}>", self.client) }
            .into_bytes()
    }

    fn store(&mut self, key: usize, condition: Condition) -> Call {
        let value = self.fresh(!key.is_multiple_of(2));
        Call::Store { condition, value, flags: self.rng.random_range(0..4) }
    }

    fn join(&mut self, front: bool) -> Call {
        Call::Join { front, value: self.fresh(false) }
    }

    /// Takes notice of an answer.
    pub fn heard(&mut self, key: usize, answer: &Answer) {
        if let Answer::Value { cas: Some(id), .. } = answer {
            self.ids[key] = Some(*id);
        }
    }
}
