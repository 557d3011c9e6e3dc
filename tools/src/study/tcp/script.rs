//! What is sent to a server, and what must come back, made before anything is measured.
//!
//! Every value belongs to its key and is always the same, so that the order in which connections
//! are served makes no difference.

use crate::workload::Key;
use crate::workload::values::{self, Stored};
use clap::ValueEnum;
use gnomon_client::codec::reply::append_value;
use gnomon_client::codec::request::Field;
use gnomon_client::codec::{Protocol, Set};

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Verb {
    /// `set`.
    Set,
    /// `get` of a key that is there.
    Get,
    /// `get` of four keys that are there.
    Multiget,
    /// `gat` of a key that is there.
    Gat,
    /// `touch` of a key that is there.
    Touch,
    /// `mg` of a key that is there, with the flags k, f and v.
    Mg,
    /// `ms`, with the flags F and T.
    Ms,
}

/// Keys of a [`Verb::Multiget`].
const MULTIGET_KEYS: u64 = 4;

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
        let exchange = |key| Exchange::new(verb, key, keys, (key_bytes, value_bytes));
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
    /// For key `index` of `keys`, with keys and values of so many bytes.
    fn new(verb: Verb, index: u64, keys: u64, (key_bytes, value_bytes): (usize, usize)) -> Self {
        let key = |index| Key { index, bytes: key_bytes };
        let stored = |index| Stored { index, version: 0, bytes: value_bytes };
        let (name, flags, value) = (key(index), values::flags(index), stored(index));
        let (mut request, mut reply) = (Vec::new(), Vec::new());
        let mut set = |protocol: Protocol, done: &[u8]| {
            protocol.set(&Set { key: name, flags, ttl_s: 0, value, quiet: false }, &mut request);
            reply.extend_from_slice(done);
        };
        match verb {
            Verb::Set => set(Protocol::Ascii, b"STORED\r\n"),
            Verb::Ms => set(Protocol::Meta, b"HD\r\n"),
            Verb::Get => {
                Protocol::Ascii.get([name].iter().copied(), &mut request);
                append_value(&name, flags, &value, &mut reply);
                reply.extend_from_slice(b"END\r\n");
            }
            Verb::Multiget => {
                let all: Vec<_> = (0..MULTIGET_KEYS).map(|n| (index + n) % keys).collect();
                Protocol::Ascii.get(all.iter().map(|index| key(*index)), &mut request);
                for index in all {
                    append_value(&key(index), values::flags(index), &stored(index), &mut reply);
                }
                reply.extend_from_slice(b"END\r\n");
            }
            Verb::Gat => {
                words(&[&"gat 0 ", &name, &"\r\n"], &mut request);
                append_value(&name, flags, &value, &mut reply);
                reply.extend_from_slice(b"END\r\n");
            }
            Verb::Touch => {
                words(&[&"touch ", &name, &" 0\r\n"], &mut request);
                reply.extend_from_slice(b"TOUCHED\r\n");
            }
            Verb::Mg => {
                Protocol::Meta.get([name].iter().copied(), &mut request);
                let line = format!("VA {value_bytes} k");
                let flags = format!(" f{flags}\r\n");
                words(&[&line, &name, &flags, &value, &"\r\n"], &mut reply);
            }
        }
        Self { request, reply }
    }
}

fn words(parts: &[&dyn Field], out: &mut Vec<u8>) {
    parts.iter().for_each(|part| part.append(out));
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
        let exchange = |verb| Exchange::new(verb, 11, 12, (24, 10));
        let mg = exchange(Verb::Mg);
        assert_eq!(mg.request, [b"mg ", &key[..], b" k f v\r\n"].concat());
        assert_eq!(mg.reply, [b"VA 10 k", &key[..], b" f1\r\n", &value, b"\r\n"].concat());
        let four = exchange(Verb::Multiget);
        let next = b" kkkkkkkkkkkkk0000000000";
        assert!(four.request.starts_with(&[b"get ", &key[..], next, b"0", next, b"1"].concat()));
        assert_eq!(four.reply.split(|b| *b == b'V').count(), 5);
    }
}
