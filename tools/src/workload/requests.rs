//! The stream of requests: each client's requests, in order, drawn from a seed.
//!
//! In: a [`Workload`]. Out: one [`Request`] at a time. Memory: two bytes per client,
//! whatever the length.

#[cfg(test)]
mod tests;

use super::models::{Mix, Writes};
use super::sizes::{Of, Sizes};
use super::values::{self, Stored};
use super::{Clients, Sampler, clients::BadClients, keys};
use gnomon_client::codec::{Field, Protocol, Set, udp};
use memcache::command::KEY_MAX_BYTES;
use rand::RngExt;
use rand_xoshiro::Xoshiro256PlusPlus;
use rand_xoshiro::rand_core::SeedableRng;

/// Draws for a key that the same multi-get does not hold yet, before its neighbours are taken.
const DISTINCT_DRAWS: u32 = 16;

/// All that defines a stream of requests.
#[derive(Debug, Clone, PartialEq)]
pub struct Workload {
    /// Keys are `0..keys`.
    pub keys: u64,
    /// What is asked.
    pub mix: Mix,
    /// The clients.
    pub clients: Clients,
    /// Where the draw begins.
    pub seed: u64,
}

/// A workload that cannot be.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum WorkloadError {
    #[error("at least one key and a Zipf exponent from 0 up are needed")]
    Popularity,
    #[error("key sizes must lie between 1 and {KEY_MAX_BYTES} bytes, not {0}")]
    KeySize(Sizes),
    #[error("{keys} keys need longer names: there are only {capacity} keys of {size} bytes")]
    KeyNames { keys: u64, size: usize, capacity: u64 },
    #[error("the share of gets must lie between 0 and 1, not {0}")]
    GetRatio(f64),
    #[error("a get of {multi_get} different keys needs 1 to {keys} keys")]
    MultiGet { multi_get: u32, keys: u64 },
    /// Clients do not fit.
    #[error(transparent)]
    Clients(#[from] BadClients),
}

/// A key by its number, and the length of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key {
    /// Its number.
    pub index: u64,
    /// Bytes of its name.
    pub bytes: usize,
}

impl Field for Key {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn append(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + self.bytes, 0);
        keys::write(self.index, out.get_mut(at..).unwrap_or_default());
    }
}

/// A request's command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op<'a> {
    /// Read these keys.
    Get(&'a [Key]),
    /// Write this version of this key's value.
    Set {
        /// The key.
        key: Key,
        /// Which of its values.
        version: u32,
        /// Bytes of the value.
        value_bytes: usize,
        /// Seconds after which it expires; 0 is never.
        ttl_s: u32,
    },
    /// Forget this key.
    Delete(Key),
}

/// One request: client and command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The client.
    pub client: u32,
    /// Its request id.
    pub id: u16,
    /// Its command.
    pub op: Op<'a>,
}

impl Op<'_> {
    /// Appends the request, as on a connection.
    pub fn append(self, protocol: Protocol, out: &mut Vec<u8>) {
        match self {
            Self::Get(keys) => protocol.get(keys.iter().copied(), out),
            Self::Set { key, version, value_bytes, ttl_s } => {
                let flags = values::flags(key.index);
                let value = Stored { index: key.index, version, bytes: value_bytes };
                protocol.set(&Set { key, flags, ttl_s, value, quiet: false }, out);
            }
            Self::Delete(key) => protocol.delete(&key, out),
        }
    }
}

impl Request<'_> {
    /// Appends the request as one datagram, behind its header.
    pub fn append(self, protocol: Protocol, out: &mut Vec<u8>) {
        out.extend_from_slice(&udp::header(self.id));
        self.op.append(protocol, out);
    }
}

impl Workload {
    /// # Errors
    /// [`WorkloadError`] says what is out of range.
    pub fn check(&self) -> Result<(), WorkloadError> {
        let Mix { key_size, get_ratio, multi_get, .. } = &self.mix;
        if key_size.min() == 0 || key_size.max() > KEY_MAX_BYTES {
            return Err(WorkloadError::KeySize(key_size.clone()));
        }
        let size = key_size.min();
        let capacity = keys::capacity(size);
        if self.keys > capacity {
            return Err(WorkloadError::KeyNames { keys: self.keys, size, capacity });
        }
        if !(0.0..=1.0).contains(get_ratio) {
            return Err(WorkloadError::GetRatio(*get_ratio));
        }
        if *multi_get == 0 || u64::from(*multi_get) > self.keys {
            return Err(WorkloadError::MultiGet { multi_get: *multi_get, keys: self.keys });
        }
        self.clients.check()?;
        Ok(())
    }

    /// Key `index`, with the size that belongs to it.
    pub fn key(&self, index: u64) -> Key {
        Key { index, bytes: self.mix.key_size.of(index, Of::Key) }
    }

    /// The set of `version` of key `index`'s value.
    pub fn set(&self, index: u64, version: u32) -> Op<'static> {
        let value_bytes = self.mix.value_size.of(index, Of::Value);
        Op::Set { key: self.key(index), version, value_bytes, ttl_s: 0 }
    }
}

/// Request ids: each client counts its own.
#[derive(Debug, Clone)]
struct Ids(Vec<u16>);

impl Ids {
    /// For so many clients.
    fn new(clients: u32) -> Self {
        Self(vec![0; clients as usize])
    }

    /// The next id of `client`.
    fn next(&mut self, client: u32) -> u16 {
        self.0.get_mut(client as usize).map_or(0, |next| {
            let id = *next;
            *next = id.wrapping_add(1);
            id
        })
    }
}

/// The stream itself.
#[derive(Debug, Clone)]
pub struct Requests {
    workload: Workload,
    sampler: Sampler,
    rng: Xoshiro256PlusPlus,
    ids: Ids,
    /// Keys of the get at hand.
    picked: Vec<Key>,
    /// Version of the next set; version 0 is the preload's.
    version: u32,
    /// The client that has read a key in order to set it, and the key.
    modifies: Option<(u32, u64)>,
}

impl Requests {
    /// # Errors
    /// [`WorkloadError`], as [`Workload::check`] says.
    pub fn new(workload: Workload) -> Result<Self, WorkloadError> {
        workload.check()?;
        let sampler = Sampler::new(workload.keys, workload.mix.popularity)
            .ok_or(WorkloadError::Popularity)?;
        Ok(Self {
            sampler,
            rng: Xoshiro256PlusPlus::seed_from_u64(workload.seed),
            ids: Ids::new(workload.clients.count),
            picked: Vec::with_capacity(workload.mix.multi_get as usize),
            version: 1,
            modifies: None,
            workload,
        })
    }

    /// Some client, and its next request id.
    pub fn envelope(&mut self) -> (u32, u16) {
        let client = self.rng.random_range(0..self.workload.clients.count);
        (client, self.ids.next(client))
    }

    /// The next request id of `client`.
    pub fn id_of(&mut self, client: u32) -> u16 {
        self.ids.next(client)
    }

    /// True in `share` of all calls.
    pub fn chance(&mut self, share: f64) -> bool {
        share > 0.0 && self.rng.random::<f64>() < share
    }

    /// The first set of key `index`, from some client.
    pub fn preload(&mut self, index: u64) -> Request<'static> {
        let (client, id) = self.envelope();
        Request { client, id, op: self.workload.set(index, 0) }
    }

    /// The next request.
    pub fn next_request(&mut self) -> Request<'_> {
        if let Some((client, index)) = self.modifies.take() {
            let id = self.ids.next(client);
            return Request { client, id, op: self.next_set(index) };
        }
        let (client, id) = self.envelope();
        if self.rng.random::<f64>() < self.workload.mix.get_ratio {
            self.pick_keys();
            return Request { client, id, op: Op::Get(&self.picked) };
        }
        let index = match self.workload.mix.writes {
            Writes::Update => self.sampler.write(&mut self.rng),
            Writes::Insert => self.sampler.insert(),
            Writes::Modify => {
                let index = self.sampler.read(&mut self.rng);
                self.modifies = Some((client, index));
                self.picked.clear();
                self.picked.push(self.workload.key(index));
                return Request { client, id, op: Op::Get(&self.picked) };
            }
        };
        Request { client, id, op: self.next_set(index) }
    }

    fn next_set(&mut self, index: u64) -> Op<'static> {
        let version = self.version;
        self.version = version.checked_add(1).unwrap_or(1);
        self.workload.set(index, version)
    }

    fn pick_keys(&mut self) {
        let Workload { keys, mix, .. } = &self.workload;
        self.picked.clear();
        if mix.scans {
            let first = self.sampler.read(&mut self.rng);
            let count = self.rng.random_range(1..=u64::from(mix.multi_get));
            let row = (0..count).map(|n| self.workload.key((first % keys + n) % keys));
            self.picked.extend(row);
            return;
        }
        for _ in 0..mix.multi_get {
            let mut index = self.sampler.read(&mut self.rng);
            let mut draws = 1;
            while self.picked.iter().any(|k| k.index == index) {
                index = if draws < DISTINCT_DRAWS {
                    self.sampler.read(&mut self.rng)
                } else {
                    (index + 1) % keys
                };
                draws += 1;
            }
            self.picked.push(self.workload.key(index));
        }
    }
}
