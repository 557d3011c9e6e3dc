//! A client that gets many keys at a time, and looks at every byte that comes back.
//!
//! Fails: the connection, an answer that is none, a value that was never stored under its key.

use crate::workload::values::{self, Stored};
use crate::workload::{Key, keys};
use gnomon_client::codec::connection::Connection;
use gnomon_client::codec::reply::{Reply, parse};
use gnomon_client::codec::{Protocol, Set};
use std::collections::HashSet;
use std::io;
use std::net::SocketAddr;

/// Bytes of every key.
pub const KEY_BYTES: usize = 24;

/// A client.
#[derive(Debug)]
pub struct Client {
    connection: Connection,
    /// Not sent yet.
    request: Vec<u8>,
    /// Keys that the last get found.
    found: HashSet<u64>,
}

fn wrong(what: Reply<'_>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("the server answered {what:?}"))
}

fn name(index: u64) -> Key {
    Key { index, bytes: KEY_BYTES }
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// The socket's.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        let connection = Connection::open(server)?;
        Ok(Self { connection, request: Vec::new(), found: HashSet::new() })
    }

    /// Stores a value; it is sent with the next get.
    pub fn set(&mut self, key: u64, value_bytes: usize) {
        let value = Stored { index: key, version: 0, bytes: value_bytes };
        let set = Set { key: name(key), flags: 0, ttl_s: 0, value, quiet: true };
        Protocol::Ascii.set(&set, &mut self.request);
    }

    /// Whether the last get found the key.
    pub fn had(&self, key: u64) -> bool {
        self.found.contains(&key)
    }

    /// Bytes of the slab pages that the server has taken for items, from `stats slabs`.
    ///
    /// # Errors
    /// See the module.
    pub fn slab_bytes(&mut self) -> io::Result<u64> {
        self.connection.send(b"stats slabs\r\n")?;
        let mut taken = None;
        while self.next(|reply| match reply {
            Reply::Stat(b"total_malloced", bytes) => {
                taken = str::from_utf8(bytes).ok().and_then(|bytes| bytes.parse().ok());
                taken.map(|_| true)
            }
            Reply::Stat(..) => Some(true),
            Reply::End => Some(false),
            _ => None,
        })? {}
        taken.ok_or_else(|| wrong(Reply::End))
    }

    /// Waits for a reply and gives it to `each`, which says whether there is more to come; `None`:
    /// it should not have come.
    fn next(&mut self, mut each: impl FnMut(Reply<'_>) -> Option<bool>) -> io::Result<bool> {
        self.connection.receive(|come| {
            let Some((reply, rest)) = parse(Protocol::Ascii, come)? else { return Ok(None) };
            Ok(Some((each(reply).ok_or_else(|| wrong(reply))?, rest)))
        })
    }

    /// Gets keys, and calls `hit` with the sizes of each key found and its value.
    ///
    /// # Errors
    /// See the module.
    pub fn get(
        &mut self,
        asked: impl ExactSizeIterator<Item = u64>,
        mut hit: impl FnMut(usize, usize),
    ) -> io::Result<()> {
        Protocol::Ascii.get(asked.map(name), &mut self.request);
        self.connection.send(&self.request)?;
        self.request.clear();
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        while self.next(|reply| match reply {
            Reply::Value(value) => {
                let key = value.key.filter(|_| value.flags == Some(0) && value.cas.is_none())?;
                let index = keys::index(key)?;
                values::check(index, value.data)?;
                found.insert(index);
                hit(key.len(), value.data.len());
                Some(true)
            }
            Reply::End => Some(false),
            _ => None,
        })? {}
        self.found = found;
        Ok(())
    }
}
