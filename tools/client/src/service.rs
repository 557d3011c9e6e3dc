//! The service over TCP: what a reader of stags asks it by ordinary commands.
//!
//! In: a key, a value, or an end of a queue pair. Out: what the service says. Fails: the connection, a
//! refusal, and replies that the protocol does not have.

use crate::codec::connection::Connection;
use crate::codec::reply::{Reply, Value, parse};
use crate::codec::{Protocol, Stag, request, stag};
use memcache::FarEnd;
use std::io;

/// What clients of one-sided reads ask by ordinary commands.
pub trait Service {
    /// Gets a value into `into`, which is empty; its flags, and its stag if it can be read at once.
    /// `None`: there is none.
    ///
    /// # Errors
    /// See the module.
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> io::Result<Option<(u32, Option<Stag>)>>;

    /// Stores a value; its stag if it can be read at once.
    ///
    /// # Errors
    /// See the module.
    fn set(&mut self, key: &[u8], flags: u32, value: &[u8]) -> io::Result<Option<Stag>>;
}

fn refused(line: &[u8]) -> io::Error {
    io::Error::other(String::from_utf8_lossy(line).into_owned())
}

/// Appends the command that gets a value and its stag.
pub fn append_get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key);
    out.extend_from_slice(b" v f g\r\n");
}

/// Appends the command that stores a value and gets its stag.
pub fn append_set(key: &[u8], flags: u32, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"ms ");
    out.extend_from_slice(key);
    request::text(&format!(" {} F{flags} g", value.len()), Some(value), out);
}

/// Connects this end of a queue pair, over a connection that is then to be kept.
///
/// # Errors
/// See the module.
pub fn connect(service: &mut Connection, near: &FarEnd) -> io::Result<FarEnd> {
    service.send(stag::connect(near).as_bytes())?;
    service.receive(|come| match stag::connected(come)? {
        None => Ok(None),
        Some((Ok(far), rest)) => Ok(Some((far, rest))),
        Some((Err(line), _)) => Err(refused(line)),
    })
}

impl Service for Connection {
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> io::Result<Option<(u32, Option<Stag>)>> {
        let mut line = Vec::new();
        append_get(key, &mut line);
        self.send(&line)?;
        self.receive(|come| match parse(Protocol::Meta, come)? {
            None => Ok(None),
            Some((Reply::Miss, rest)) => Ok(Some((None, rest))),
            Some((Reply::Value(Value { flags, stag, data, .. }), rest)) => {
                into.extend_from_slice(data);
                Ok(Some((Some((flags.unwrap_or(0), stag)), rest)))
            }
            Some((Reply::Refused(line), _)) => Err(refused(line)),
            Some((other, _)) => Err(io::Error::other(format!("{other:?}"))),
        })
    }

    fn set(&mut self, key: &[u8], flags: u32, value: &[u8]) -> io::Result<Option<Stag>> {
        let mut text = Vec::new();
        append_set(key, flags, value, &mut text);
        self.send(&text)?;
        self.receive(|come| match parse(Protocol::Meta, come)? {
            None => Ok(None),
            Some((Reply::Named(stag), rest)) => Ok(Some((Some(stag), rest))),
            Some((Reply::Done, rest)) => Ok(Some((None, rest))),
            Some((Reply::Refused(line), _)) => Err(refused(line)),
            Some((other, _)) => Err(io::Error::other(format!("{other:?}"))),
        })
    }
}
