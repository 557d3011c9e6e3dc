//! The writers study: several threads that store items of one size class, one item at a time and in bursts of 16, for
//! which a session takes chunks under one lock (Mega-KV's batched allocation, section 7).
//!
//! In: numbers of writers. Out: SETs a second of items that are there, either way in turn, and the share of GETs that
//! hit where half of the items fit and each miss is stored, by one writer whose requests are the same both ways. There is
//! the store alone: no packet, no protocol. Fails when there is not enough memory.

use super::frame::{Common, Frame};
use super::load::Shape;
use super::median;
use crate::report::named;
use crate::report::table::{Draw, Table, table};
use crate::workload::{Popularity, Sampler};
use clap::Parser;
use memcache::Store as SetRequest;
use rand::SeedableRng;
use rand_xoshiro::Xoshiro256PlusPlus;
use serde_json::json;
use std::error::Error;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};
use store::verbs::{self, HashedSet};
use store::{Session, Store, StoreConfig};

/// Keys and values: all items are of one class.
const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 64 };
/// SETs of a burst.
const BURST: usize = 16;

const TABLES: &[Table] = table! {
    "rate" "SETs of one size class by writers" ["way writers per_s times_singly"]
        "Medians of rounds, both ways in turn; `times_singly` is the rate over that of the same writers one item at a time."
        => Draw::lines("writers", "per_s", "way");
    "hits" "Hits where half of the items fit" ["way gets hit_percent evicted"]
        "The same GETs both ways, by Zipf's law (0.99); what misses is stored.";
};

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// Threads that store. May be given several times; 1 and 2 where it is not.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    writers: Vec<u16>,
    /// Keys of each writer, and of the store that has room for half.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1_000..=100_000_000))]
    keys: Option<u64>,
    /// Measurements of each.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=99))]
    rounds: Option<u64>,
}

named! {
    /// How items are stored.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Way {
        /// Each by itself: a lock of the class to take a chunk, and one to give back what was replaced.
        Singly = "singly",
        /// Bursts: two locks for all of one.
        Bursts = "16 at once",
    }
}

impl Way {
    /// Stores these.
    fn store(self, session: &mut Session, keys: &[Vec<u8>], value: &[u8]) -> Result<(), String> {
        if self == Self::Bursts {
            session.reserve(keys.iter().map(|key| (key.len(), value.len())));
        }
        for key in keys {
            let hash = session.store().hash(key);
            let stored = match self {
                Self::Singly => {
                    verbs::set(session, Some(hash), None, &SetRequest::set(key, 0, 0, value))
                }
                Self::Bursts => {
                    let what =
                        HashedSet { hash, key, value, value_sum: None, flags: 0, exptime: 0 };
                    verbs::set_reserved(session, what)
                }
            };
            stored.map_err(|why| format!("not stored: {why:?}"))?;
            if self == Self::Singly {
                session.settle();
            }
        }
        session.settle();
        Ok(())
    }
}

impl Cli {
    /// Measures, prints and writes.
    ///
    /// # Errors
    /// Not enough memory.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("writers", &self.common)?;
        let keys = self.keys.unwrap_or_else(|| self.common.pick(200_000, 2_000));
        let rounds = self.rounds.unwrap_or_else(|| self.common.pick(9, 1));
        frame.report.fact("keys", json!(keys))?;
        frame.report.fact("rounds", json!(rounds))?;
        let several = if self.writers.is_empty() { &[1, 2][..] } else { &self.writers };
        for &writers in several {
            let keys: Vec<Vec<Vec<u8>>> = (0..u64::from(writers))
                .map(|writer| (0..keys).map(|n| SHAPE.key(writer * keys + n)).collect())
                .collect();
            let store = with_room_for(keys.iter().map(Vec::len).sum::<usize>() * 5 / 4)?;
            let mut rates = [Vec::new(), Vec::new()];
            // The first round makes the items.
            for round in 0..=rounds {
                for (way, rates) in Way::ALL.into_iter().zip(&mut rates) {
                    let rate = rate(&store, way, &keys)?;
                    if round > 0 {
                        rates.push(rate);
                    }
                }
            }
            let rates = rates.map(|mut rates| median(&mut rates));
            for (way, rate) in Way::ALL.into_iter().zip(rates) {
                frame.report.row(
                    "rate",
                    json!({ "way": way.name(), "writers": writers, "per_s": rate,
                        "times_singly": rate / rates[0] }),
                )?;
            }
        }
        for way in Way::ALL {
            let gets = keys * self.common.pick(20, 5);
            let (hits, evicted) = self.hits(way, keys, gets)?;
            frame.report.row(
                "hits",
                json!({ "way": way.name(), "gets": gets, "evicted": evicted,
                    "hit_percent": 100.0 * hits as f64 / gets as f64 }),
            )?;
        }
        Ok(frame.end(TABLES)?)
    }

    /// Hits among so many GETs of keys of which half have room, and items evicted.
    fn hits(&self, way: Way, keys: u64, gets: u64) -> Result<(u64, u64), Box<dyn Error>> {
        let store = with_room_for(usize::try_from(keys / 2)?)?;
        let mut session = store.session()?;
        let mut sampler = Sampler::new(keys, Popularity::Zipf(0.99)).ok_or("no such popularity")?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(self.common.seed);
        let (value, mut hits) = (SHAPE.value(0), 0);
        for _ in 0..gets / BURST as u64 {
            let mut missing = Vec::new();
            {
                let guard = session.pin();
                for _ in 0..BURST {
                    let key = SHAPE.key(sampler.read(&mut rng));
                    match verbs::get(&guard, &key) {
                        Some(_) => hits += 1,
                        None => missing.push(key),
                    }
                }
            }
            way.store(&mut session, &missing, &value)?;
        }
        let stats = store.stats();
        Ok((hits, stats.evictions))
    }
}

/// A store for so many items.
fn with_room_for(items: usize) -> Result<Arc<Store>, Box<dyn Error>> {
    let memory_bytes = (items * SHAPE.item_bytes()).max(4 << 20);
    Ok(Store::new(StoreConfig { memory_bytes, ..StoreConfig::default() })?)
}

/// SETs a second of a thread for each list of keys, all at once.
fn rate(store: &Arc<Store>, way: Way, keys: &[Vec<Vec<u8>>]) -> Result<f64, Box<dyn Error>> {
    let together = Barrier::new(keys.len());
    let mut sessions = keys.iter().map(|_| store.session()).collect::<Result<Vec<_>, _>>()?;
    let value = SHAPE.value(0);
    let times = thread::scope(|scope| {
        let threads: Vec<_> = keys
            .iter()
            .zip(&mut sessions)
            .map(|(keys, session)| {
                let (together, value) = (&together, &value);
                scope.spawn(move || {
                    together.wait();
                    let begun = Instant::now();
                    keys.chunks(BURST).try_for_each(|burst| way.store(session, burst, value))?;
                    Ok::<_, String>((begun, Instant::now()))
                })
            })
            .collect();
        let ended = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err("a writer died".to_owned()))
        };
        threads.into_iter().map(ended).collect::<Result<Vec<(Instant, Instant)>, _>>()
    })?;
    let first = times.iter().map(|(begun, _)| *begun).min();
    let last = times.iter().map(|(_, ended)| *ended).max();
    let took = first.zip(last).map_or(Duration::ZERO, |(first, last)| last - first);
    Ok(keys.iter().map(Vec::len).sum::<usize>() as f64 / took.as_secs_f64())
}
