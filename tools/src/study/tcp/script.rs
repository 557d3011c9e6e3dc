//! What is sent to a server, and what must come back, made before anything is measured.
//!
//! Every value belongs to its key and is always the same, so that the order in which connections
//! are served makes no difference.

use crate::workload::Key;
use crate::workload::values::{self, Stored};
use clap::ValueEnum;
use gnomon_client::codec::reply::append_value;
use gnomon_client::codec::{Protocol, Set};

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verb {
    /// `set`.
    Set,
    /// `get` of a key that is there.
    Get,
}

/// A request for every key, each with its reply.
#[derive(Debug)]
pub struct Script {
    exchanges: Vec<Exchange>,
}

/// A request and its reply.
#[derive(Debug)]
pub struct Exchange {
    /// The bytes to send.
    pub request: Vec<u8>,
    /// The bytes that come back.
    pub reply: Vec<u8>,
}

impl Script {
    /// The same verb for every key, from 0.
    pub fn new(verb: Verb, keys: u64, key_bytes: usize, value_bytes: usize) -> Self {
        let exchange = |key| Exchange::new(verb, key, key_bytes, value_bytes);
        Self { exchanges: (0..keys).map(exchange).collect() }
    }

    /// These exchanges.
    pub fn of(exchanges: Vec<Exchange>) -> Self {
        Self { exchanges }
    }

    /// The exchange for the n-th of all draws, over and over.
    pub fn exchange(&self, n: u64) -> Option<&Exchange> {
        let n = n.checked_rem(self.exchanges.len() as u64)?;
        self.exchanges.get(usize::try_from(n).ok()?)
    }

    /// Keys.
    pub fn len(&self) -> u64 {
        self.exchanges.len() as u64
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.exchanges.is_empty()
    }
}

impl Exchange {
    fn new(verb: Verb, key: u64, key_bytes: usize, value_bytes: usize) -> Self {
        let (name, flags) = (Key { index: key, bytes: key_bytes }, values::flags(key));
        let value = Stored { index: key, version: 0, bytes: value_bytes };
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        match verb {
            Verb::Set => {
                let set = Set { key: name, flags, ttl_s: 0, value, quiet: false };
                Protocol::Ascii.set(&set, &mut request);
                reply.extend_from_slice(b"STORED\r\n");
            }
            Verb::Get => {
                Protocol::Ascii.get([name].iter().copied(), &mut request);
                append_value(&name, flags, &value, &mut reply);
                reply.extend_from_slice(b"END\r\n");
            }
        }
        Self { request, reply }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_what_is_got() {
        let (set, get) = (Script::new(Verb::Set, 12, 24, 10), Script::new(Verb::Get, 12, 24, 10));
        let (set, get) = (set.exchange(23).unwrap(), get.exchange(11).unwrap());
        let mut value = Vec::new();
        values::append(11, 0, 10, &mut value);
        let key = b"kkkkkkkkkkkkk0000000000b";
        let line = [b"set ", &key[..], b" 1 0 10\r\n", &value, b"\r\n"].concat();
        assert_eq!((&set.request, &set.reply[..]), (&line, &b"STORED\r\n"[..]));
        assert_eq!(get.request, [b"get ", &key[..], b"\r\n"].concat());
        let reply = [b"VALUE ", &key[..], b" 1 10\r\n", &value, b"\r\nEND\r\n"].concat();
        assert_eq!(get.reply, reply);
        assert!(Script::new(Verb::Get, 0, 24, 1).exchange(0).is_none());
    }
}
