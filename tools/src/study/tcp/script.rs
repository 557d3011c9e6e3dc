//! What is sent to a server, and what must come back, made before anything is measured.
//!
//! Every value belongs to its key and is always the same, so that the order in which connections
//! are served makes no difference.

use crate::workload::{keys, values};
use clap::ValueEnum;
use std::io::Write;

/// Bytes of every key.
pub const KEY_BYTES: usize = 24;

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
    pub fn new(verb: Verb, keys: u64, value_bytes: usize) -> Self {
        Self { exchanges: (0..keys).map(|key| Exchange::new(verb, key, value_bytes)).collect() }
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
    fn new(verb: Verb, key: u64, value_bytes: usize) -> Self {
        let mut name = [0; KEY_BYTES];
        keys::write(key, &mut name);
        let flags = values::flags(key);
        let (mut with_value, mut without) = (Vec::new(), Vec::new());
        let first = if verb == Verb::Set { &b"set "[..] } else { b"VALUE " };
        with_value.extend_from_slice(first);
        with_value.extend_from_slice(&name);
        let exptime = if verb == Verb::Set { " 0" } else { "" };
        // Writing to a vector cannot fail.
        let _ = write!(with_value, " {flags}{exptime} {value_bytes}\r\n");
        values::append(key, 0, value_bytes, &mut with_value);
        with_value.extend_from_slice(b"\r\n");
        match verb {
            Verb::Set => {
                without.extend_from_slice(b"STORED\r\n");
                Self { request: with_value, reply: without }
            }
            Verb::Get => {
                with_value.extend_from_slice(b"END\r\n");
                without.extend([&b"get "[..], &name, b"\r\n"].concat());
                Self { request: without, reply: with_value }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_set_is_what_is_got() {
        let (set, get) = (Script::new(Verb::Set, 12, 10), Script::new(Verb::Get, 12, 10));
        let (set, get) = (set.exchange(23).unwrap(), get.exchange(11).unwrap());
        let mut value = Vec::new();
        values::append(11, 0, 10, &mut value);
        let key = b"kkkkkkkkkkkkk0000000000b";
        let line = [b"set ", &key[..], b" 1 0 10\r\n", &value, b"\r\n"].concat();
        assert_eq!((&set.request, &set.reply[..]), (&line, &b"STORED\r\n"[..]));
        assert_eq!(get.request, [b"get ", &key[..], b"\r\n"].concat());
        let reply = [b"VALUE ", &key[..], b" 1 10\r\n", &value, b"\r\nEND\r\n"].concat();
        assert_eq!(get.reply, reply);
        assert!(Script::new(Verb::Get, 0, 1).exchange(0).is_none());
    }
}
