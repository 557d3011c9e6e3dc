//! The hit rate study of live servers: how much of the same requests two caches of one size can serve.
//!
//! Each trace is played at fresh servers, at all of them at once, by one read-through client each:
//! what is not there is stored. Requests go out in multi-gets; the misses of one are stored before
//! the next. When the trace is over, every key that was ever stored is requested once more, so that
//! items and bytes held are counted by what comes back and not by what the server says.
//!
//! [`traces`] says which keys are requested, [`client`] talks to a server.

pub mod cli;
pub mod client;
pub mod traces;

use super::server::Server;
use client::Client;
use serde_json::{Value, json};
use std::io;
use std::thread;
pub use traces::{Shape, Trace};

/// Keys in one multi-get.
const KEYS_PER_GET: usize = 32;

/// What one server made of one trace.
#[derive(Debug, Clone, Copy, Default)]
pub struct Score {
    /// Keys requested.
    pub requests: u64,
    /// Of these, found.
    pub hits: u64,
    /// Found in the second half of the trace.
    pub late_hits: u64,
    /// Items there at the end.
    pub items: u64,
    /// Bytes of their keys and values.
    pub bytes: u64,
    /// Memory for items: as the server was configured, or more, if by its own account it took more.
    pub memory_bytes: u64,
    /// Memory that the process used in all, at the end.
    pub resident_bytes: u64,
}

#[expect(clippy::cast_precision_loss, reason = "counts and sizes below 2^52")]
impl Score {
    /// Hits among all requests.
    fn hit_rate(&self) -> f64 {
        self.hits as f64 / self.requests as f64
    }

    /// Hits among the requests of the second half.
    fn late_hit_rate(&self) -> f64 {
        self.late_hits as f64 / (self.requests - self.requests / 2) as f64
    }

    /// Bytes of key and value of an item held, on average.
    pub fn item_bytes(&self) -> f64 {
        self.bytes as f64 / self.items as f64
    }

    /// Bytes of item memory that an item costs beyond its key and value.
    fn overhead_bytes(&self) -> f64 {
        (self.memory_bytes as f64 - self.bytes as f64) / self.items as f64
    }

    /// All of it, for programs.
    pub fn json(&self) -> Value {
        json!({
            "requests": self.requests,
            "hits": self.hits,
            "hit_rate": self.hit_rate(),
            "hit_rate_second_half": self.late_hit_rate(),
            "items": self.items,
            "mean_item_bytes": self.item_bytes(),
            "overhead_bytes_per_item": self.overhead_bytes(),
            "memory_bytes": self.memory_bytes,
            "resident_bytes": self.resident_bytes,
        })
    }
}

/// Plays the trace at a fresh server of each command, at all of them at the same time.
///
/// # Errors
/// A server that does not start, or does not answer as it must.
pub fn play(trace: &Trace, commands: &[&str], memory_mb: u64) -> io::Result<Vec<Score>> {
    let one = |command: &str| {
        let server = Server::start(command, memory_mb)?;
        let mut client = Client::connect(server.address())?;
        let mut score = through(trace, &mut client)?;
        (score.items, score.bytes) = held(trace, &mut client)?;
        score.memory_bytes = client.slab_bytes()?.max(memory_mb << 20);
        score.resident_bytes = server.resident_bytes()?;
        Ok(score)
    };
    thread::scope(|scope| {
        let all: Vec<_> = commands.iter().map(|c| scope.spawn(|| one(c))).collect();
        let join = |t: thread::ScopedJoinHandle<'_, _>| match t.join() {
            Ok(score) => score,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        all.into_iter().map(join).collect()
    })
}

/// The trace itself: get, and set what was missing.
fn through(trace: &Trace, client: &mut Client) -> io::Result<Score> {
    let mut score = Score::default();
    let mut requests = trace.requests();
    let mut asked = Vec::with_capacity(KEYS_PER_GET);
    loop {
        asked.clear();
        asked.extend(requests.by_ref().take(KEYS_PER_GET));
        if asked.is_empty() {
            return Ok(score);
        }
        client.get(asked.iter().map(|r| r.key), |_, _| ())?;
        for request in &asked {
            let hit = client.had(request.key);
            score.hits += u64::from(hit);
            score.late_hits += u64::from(hit && score.requests >= trace.length / 2);
            score.requests += 1;
            if !hit {
                client.set(request.key, request.value_bytes);
            }
        }
    }
}

/// Items held, and their keys' and values' bytes.
fn held(trace: &Trace, client: &mut Client) -> io::Result<(u64, u64)> {
    let (mut items, mut bytes) = (0, 0);
    let keys = trace.keys_used();
    for first in (0..keys).step_by(KEYS_PER_GET) {
        let some: Vec<u64> = (first..keys.min(first + KEYS_PER_GET as u64)).collect();
        client.get(some.into_iter(), |key_bytes, value_bytes| {
            items += 1;
            bytes += (key_bytes + value_bytes) as u64;
        })?;
    }
    Ok((items, bytes))
}
