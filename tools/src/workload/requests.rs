//! The stream of requests: what each client asks, in order, drawn from a seed.
//!
//! Enters: a [`Workload`]. Leaves: one [`Op`] at a time and its text in the ASCII protocol,
//! behind the 8-byte UDP frame header. Memory: two bytes per client, whatever the length.

use super::sizes::{Of, Sizes};
use super::{Clients, Popularity, Sampler, clients::BadClients, keys, values};
use dataplane::protocol::command::KEY_MAX_BYTES;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;
use std::io::Write as _;

/// Bytes of memcached's UDP frame header: request id, sequence number, total, reserved.
pub const UDP_FRAME_BYTES: usize = 8;
/// Draws for a key that the same multi-get does not hold yet, before its neighbours are taken.
const DISTINCT_DRAWS: u32 = 16;

/// All that defines a stream of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Keys are `0..keys`.
    pub keys: u64,
    /// Key sizes.
    pub key_size: Sizes,
    /// Value sizes.
    pub value_size: Sizes,
    /// Which keys are wanted.
    pub popularity: Popularity,
    /// Share of requests that are gets, 0 to 1; the others are sets.
    pub get_ratio: f64,
    /// Keys per get, all different.
    pub multi_get: u32,
    /// Who asks.
    pub clients: Clients,
    /// Where the draw begins.
    pub seed: u64,
}

/// A workload that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorkloadError {
    /// No keys, or a bad exponent.
    #[error("at least one key and a Zipf exponent from 0 up are needed")]
    Popularity,
    /// Key sizes out of range.
    #[error("key sizes must lie between 1 and {KEY_MAX_BYTES} bytes, not {0}")]
    KeySize(Sizes),
    /// Too many keys for their size.
    #[error("{keys} keys need longer names: there are only {capacity} keys of {size} bytes")]
    KeyNames {
        /// Keys wanted.
        keys: u64,
        /// The least key size.
        size: usize,
        /// Names of that size.
        capacity: u64,
    },
    /// The ratio is no share.
    #[error("the share of gets must lie between 0 and 1, not {0}")]
    GetRatio(f64),
    /// More keys per get than keys.
    #[error("a get of {multi_get} different keys needs 1 to {keys} keys")]
    MultiGet {
        /// Keys per get.
        multi_get: u32,
        /// Keys in all.
        keys: u64,
    },
    /// Clients do not fit.
    #[error(transparent)]
    Clients(#[from] BadClients),
}

/// One request, without its envelope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// Read these keys.
    Get(&'a [u64]),
    /// Write this version of this key's value.
    Set {
        /// The key.
        index: u64,
        /// Which of its values.
        version: u32,
    },
}

impl Workload {
    /// # Errors
    /// [`WorkloadError`] says what is out of range.
    pub fn check(&self) -> Result<(), WorkloadError> {
        if self.key_size.min() == 0 || self.key_size.max() > KEY_MAX_BYTES {
            return Err(WorkloadError::KeySize(self.key_size.clone()));
        }
        let size = self.key_size.min();
        let capacity = keys::capacity(size);
        if self.keys > capacity {
            return Err(WorkloadError::KeyNames { keys: self.keys, size, capacity });
        }
        if !(0.0..=1.0).contains(&self.get_ratio) {
            return Err(WorkloadError::GetRatio(self.get_ratio));
        }
        if self.multi_get == 0 || u64::from(self.multi_get) > self.keys {
            return Err(WorkloadError::MultiGet { multi_get: self.multi_get, keys: self.keys });
        }
        self.clients.check()?;
        Ok(())
    }

    /// Longest request as a UDP payload, frame header included. `sets`: whether any are made.
    pub fn longest_bytes(&self, sets: bool) -> usize {
        let key = self.key_size.max();
        let get = "get".len() + self.multi_get as usize * (key + 1) + 2;
        let value = self.value_size.max();
        let digits = value.checked_ilog10().unwrap_or(0) as usize + 1;
        let set = "set  0 0 ".len() + key + digits + 2 + value + 2;
        UDP_FRAME_BYTES + if sets { get.max(set) } else { get }
    }

    /// Appends key `index` by name.
    pub fn append_key(&self, index: u64, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + self.key_size.of(index, Of::Key), 0);
        keys::write(index, &mut out[at..]);
    }

    /// Appends an operation as one UDP payload: frame header with `id`, then ASCII text.
    pub fn append_payload(&self, id: u16, op: Op<'_>, out: &mut Vec<u8>) {
        let [hi, lo] = id.to_be_bytes();
        out.extend_from_slice(&[hi, lo, 0, 0, 0, 1, 0, 0]);
        match op {
            Op::Get(indexes) => {
                out.extend_from_slice(b"get");
                for index in indexes {
                    out.push(b' ');
                    self.append_key(*index, out);
                }
            }
            Op::Set { index, version } => {
                out.extend_from_slice(b"set ");
                self.append_key(index, out);
                let size = self.value_size.of(index, Of::Value);
                // Writing to a vector cannot fail.
                let _ = write!(out, " {} 0 {size}\r\n", values::flags(index));
                values::append(index, version, size, out);
            }
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// The stream itself.
#[derive(Debug, Clone)]
pub struct Requests {
    workload: Workload,
    sampler: Sampler,
    rng: Xoshiro256PlusPlus,
    /// The next request id of each client.
    next_id: Vec<u16>,
    /// Keys of the get at hand.
    picked: Vec<u64>,
    /// Version of the next set; version 0 is the preload's.
    version: u32,
}

impl Requests {
    /// # Errors
    /// [`WorkloadError`], as [`Workload::check`] says.
    pub fn new(workload: Workload) -> Result<Self, WorkloadError> {
        workload.check()?;
        let sampler =
            Sampler::new(workload.keys, workload.popularity).ok_or(WorkloadError::Popularity)?;
        Ok(Self {
            sampler,
            rng: Xoshiro256PlusPlus::seed_from_u64(workload.seed),
            next_id: vec![0; workload.clients.count as usize],
            picked: Vec::with_capacity(workload.multi_get as usize),
            version: 1,
            workload,
        })
    }

    /// What the stream is drawn from.
    pub fn workload(&self) -> &Workload {
        &self.workload
    }

    /// Some client, and its next request id.
    pub fn envelope(&mut self) -> (u32, u16) {
        let client = self.rng.random_range(0..self.workload.clients.count);
        let next = &mut self.next_id[client as usize];
        let id = *next;
        *next = id.wrapping_add(1);
        (client, id)
    }

    /// True in `share` of all calls.
    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random::<f64>() < share
    }

    /// The next operation.
    pub fn next_op(&mut self) -> Op<'_> {
        if self.rng.random::<f64>() < self.workload.get_ratio {
            self.pick_keys();
            return Op::Get(&self.picked);
        }
        let index = self.sampler.write(&mut self.rng);
        let version = self.version;
        self.version = version.checked_add(1).unwrap_or(1);
        Op::Set { index, version }
    }

    fn pick_keys(&mut self) {
        self.picked.clear();
        for _ in 0..self.workload.multi_get {
            let mut key = self.sampler.read(&mut self.rng);
            let mut draws = 1;
            while self.picked.contains(&key) {
                key = if draws < DISTINCT_DRAWS {
                    self.sampler.read(&mut self.rng)
                } else {
                    (key + 1) % self.workload.keys
                };
                draws += 1;
            }
            self.picked.push(key);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn workload() -> Workload {
        Workload {
            keys: 1_000,
            key_size: Sizes::Fixed(16),
            value_size: "1..100".parse().unwrap(),
            popularity: Popularity::Zipf(0.99),
            get_ratio: 0.9,
            multi_get: 1,
            clients: Clients {
                count: 4,
                first: "10.0.0.1".parse().unwrap(),
                addresses: 2,
                first_port: 20_000,
            },
            seed: 1,
        }
    }

    #[test]
    fn the_papers_request_is_a_72_byte_frame() {
        let w = workload();
        let mut p = Vec::new();
        w.append_payload(0x0102, Op::Get(&[5]), &mut p);
        assert_eq!(p, b"\x01\x02\0\0\0\x01\0\0get kkkkk00000000005\r\n");
        assert_eq!(14 + 20 + 8 + p.len(), 72);
    }

    #[test]
    fn one_seed_one_stream_and_ids_count_per_client() {
        let draw = |seed| {
            let mut r = Requests::new(Workload { seed, multi_get: 3, ..workload() }).unwrap();
            let mut all = Vec::new();
            let mut next = [0u16; 4];
            for _ in 0..200_000 {
                let (c, id) = r.envelope();
                assert_eq!(id, next[c as usize]);
                next[c as usize] = id.wrapping_add(1);
                all.push(match r.next_op() {
                    Op::Get(k) => {
                        assert!(k[0] != k[1] && k[1] != k[2] && k[0] != k[2]);
                        (c, k[0], 0)
                    }
                    Op::Set { index, version } => (c, index, version),
                });
            }
            all
        };
        let (a, b, c) = (draw(7), draw(7), draw(8));
        assert_eq!(a, b);
        assert_ne!(a, c);
        let sets = a.iter().filter(|(.., v)| *v > 0).count();
        assert!((19_000..21_000).contains(&sets), "{sets}");
    }

    #[test]
    fn no_request_is_longer_than_promised() {
        let w = Workload { key_size: "4..250".parse().unwrap(), multi_get: 4, ..workload() };
        let mut longest = 0;
        let mut r = Requests::new(w.clone()).unwrap();
        for _ in 0..50_000 {
            let mut p = Vec::new();
            w.append_payload(0, r.next_op(), &mut p);
            longest = longest.max(p.len());
            assert!(p.len() <= w.longest_bytes(true));
        }
        assert!(longest > w.longest_bytes(true) / 2);
    }

    #[test]
    fn impossible_workloads_are_refused() {
        let bad = |w: Workload| Requests::new(w).unwrap_err();
        assert_eq!(bad(Workload { keys: 0, ..workload() }).to_string(), {
            "a get of 1 different keys needs 1 to 0 keys"
        });
        let k = Workload { key_size: Sizes::Fixed(1), ..workload() };
        assert!(matches!(bad(k), WorkloadError::KeyNames { capacity: 64, .. }));
        for s in ["0", "16..251"] {
            let k = Workload { key_size: s.parse().unwrap(), ..workload() };
            assert!(matches!(bad(k), WorkloadError::KeySize(_)));
        }
        let g = Workload { get_ratio: 1.1, ..workload() };
        assert!(matches!(bad(g), WorkloadError::GetRatio(_)));
        let m = Workload { multi_get: 1_001, ..workload() };
        assert!(matches!(bad(m), WorkloadError::MultiGet { .. }));
    }
}
