//! A client that asks for many keys at a time, and looks at every byte that comes back.
//!
//! Fails: the connection, an answer that is none, a value that was never stored under its key.

use crate::workload::{keys, values};
use std::collections::HashSet;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Longest wait for an answer.
const ANSWER_MAX: Duration = Duration::from_secs(20);
/// Bytes of every key.
pub const KEY_BYTES: usize = 24;

/// A connection.
#[derive(Debug)]
pub struct Client {
    to: TcpStream,
    from: BufReader<TcpStream>,
    /// Not sent yet.
    request: Vec<u8>,
    line: Vec<u8>,
    value: Vec<u8>,
    /// Keys that the last get found.
    found: HashSet<u64>,
}

fn wrong(what: &[u8]) -> io::Error {
    let text = String::from_utf8_lossy(what).into_owned();
    io::Error::new(io::ErrorKind::InvalidData, format!("the server answered `{text}`"))
}

impl Client {
    /// Connects.
    ///
    /// # Errors
    /// The socket's.
    pub fn connect(server: SocketAddr) -> io::Result<Self> {
        let to = TcpStream::connect(server)?;
        to.set_nodelay(true)?;
        to.set_read_timeout(Some(ANSWER_MAX))?;
        to.set_write_timeout(Some(ANSWER_MAX))?;
        let from = BufReader::with_capacity(1 << 16, to.try_clone()?);
        let (request, line, value) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { to, from, request, line, value, found: HashSet::new() })
    }

    fn push_key(&mut self, key: u64) {
        let mut name = [0; KEY_BYTES];
        keys::write(key, &mut name);
        self.request.extend_from_slice(&name);
    }

    /// Stores a value; it is sent with the next get.
    pub fn set(&mut self, key: u64, value_bytes: usize) {
        self.request.extend_from_slice(b"set ");
        self.push_key(key);
        // Writing to a vector cannot fail.
        let _ = write!(self.request, " 0 0 {value_bytes} noreply\r\n");
        values::append(key, 0, value_bytes, &mut self.request);
        self.request.extend_from_slice(b"\r\n");
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
        self.to.write_all(b"stats slabs\r\n")?;
        let mut taken = None;
        loop {
            self.line.clear();
            self.from.read_until(b'\n', &mut self.line)?;
            let line = String::from_utf8_lossy(self.line.trim_ascii_end());
            if line == "END" {
                return taken.ok_or_else(|| wrong(b"no total_malloced"));
            }
            let Some(stat) = line.strip_prefix("STAT ") else { return Err(wrong(&self.line)) };
            if let Some(bytes) = stat.strip_prefix("total_malloced ") {
                taken = Some(bytes.parse().map_err(|_| wrong(&self.line))?);
            }
        }
    }

    /// Asks for keys, and calls `hit` with the sizes of each key found and its value.
    ///
    /// # Errors
    /// See the module.
    pub fn get(
        &mut self,
        asked: impl Iterator<Item = u64>,
        mut hit: impl FnMut(usize, usize),
    ) -> io::Result<()> {
        self.request.extend_from_slice(b"get");
        for key in asked {
            self.request.push(b' ');
            self.push_key(key);
        }
        self.request.extend_from_slice(b"\r\n");
        self.to.write_all(&self.request)?;
        self.request.clear();
        self.found.clear();
        loop {
            self.line.clear();
            self.from.read_until(b'\n', &mut self.line)?;
            if self.line == b"END\r\n" {
                return Ok(());
            }
            let words: Vec<&[u8]> = self.line.trim_ascii_end().split(|b| *b == b' ').collect();
            let [b"VALUE", name, b"0", bytes] = words[..] else { return Err(wrong(&self.line)) };
            let bytes: Option<u32> = std::str::from_utf8(bytes).ok().and_then(|b| b.parse().ok());
            let (Some(bytes), Some(key)) = (bytes, keys::index(name)) else {
                return Err(wrong(&self.line));
            };
            self.value.resize(bytes as usize + 2, 0);
            self.from.read_exact(&mut self.value)?;
            let value = self.value.strip_suffix(b"\r\n");
            if value.and_then(|v| values::check(key, v)).is_none() {
                return Err(wrong(&self.line));
            }
            self.found.insert(key);
            hit(name.len(), bytes as usize);
        }
    }
}
