//! The service: what clients of one-sided reads ask it by ordinary commands, and what it names items by for them.
//!
//! In: a key, a value, or an end of a queue pair. Out: what the service says. Fails: a key that no command can
//! have, before anything is sent; a refusal, after which the connection is as good as before; the connection
//! itself, and replies that are none to what was asked: after these two nothing more goes over it.

use crate::codec::connection::Connection;
use crate::codec::reply::{Reply, Value, parse};
use crate::codec::{Place, Protocol, Stag, request, stag};
use memcache::{FarEnd, KEY_MAX_BYTES};
use std::io::{self, ErrorKind};

/// What an item is read by without a request.
pub trait Name: Copy {
    /// The flag of `mg` and `ms` that brings it.
    const FLAG: char;
    /// What came with a value.
    fn of(value: &Value<'_>) -> Option<Self>;
    /// What came with the answer to a set.
    fn of_stored(reply: &Reply<'_>) -> Option<Self>;
}

impl Name for Stag {
    const FLAG: char = 'g';

    fn of(value: &Value<'_>) -> Option<Self> {
        value.stag
    }

    fn of_stored(reply: &Reply<'_>) -> Option<Self> {
        if let Reply::Named(stag) = reply { Some(*stag) } else { None }
    }
}

impl Name for Place {
    const FLAG: char = 'p';

    fn of(value: &Value<'_>) -> Option<Self> {
        value.place
    }

    fn of_stored(reply: &Reply<'_>) -> Option<Self> {
        if let Reply::Placed(place) = reply { Some(*place) } else { None }
    }
}

/// What clients of one-sided reads ask by ordinary commands.
pub trait Service<N: Name = Stag> {
    /// Gets a value into `into`, which is empty; its flags, and its name if it can be read at once.
    /// `None`: there is none.
    ///
    /// # Errors
    /// See the module.
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> io::Result<Option<(u32, Option<N>)>>;

    /// Stores a value; its name if it can be read at once.
    ///
    /// # Errors
    /// See the module.
    fn set(&mut self, key: &[u8], flags: u32, value: &[u8]) -> io::Result<Option<N>>;
}

fn refused(line: &[u8]) -> io::Error {
    io::Error::other(String::from_utf8_lossy(line).into_owned())
}

/// Words end at blanks and commands at line ends: a key with one in it would be another command.
fn checked(key: &[u8]) -> io::Result<()> {
    let is_word = key.iter().all(|byte| *byte > b' ' && *byte != 0x7f);
    match is_word && (1..=KEY_MAX_BYTES).contains(&key.len()) {
        true => Ok(()),
        false => Err(io::Error::new(
            ErrorKind::InvalidInput,
            "no key: 1 to 250 bytes, no blanks or control characters",
        )),
    }
}

/// It is not what answers the command, but another one's reply.
fn out_of_step(reply: &Reply<'_>) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("no reply to what was asked: {reply:?}"))
}

/// Appends the command that gets a value and its name.
pub fn append_get<N: Name>(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"mg ");
    out.extend_from_slice(key);
    request::text(&format!(" v f k {}", N::FLAG), None, out);
}

/// Appends the command that stores a value and gets its name.
pub fn append_set<N: Name>(key: &[u8], flags: u32, value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"ms ");
    out.extend_from_slice(key);
    request::text(&format!(" {} F{flags} {}", value.len(), N::FLAG), Some(value), out);
}

/// Connects this end of a queue pair, over a connection that is then to be kept.
///
/// # Errors
/// See the module.
pub fn connect(service: &mut Connection, near: &FarEnd) -> io::Result<FarEnd> {
    service.send(stag::connect(near).as_bytes())?;
    let far = service.receive(|come| match stag::connected(come)? {
        None => io::Result::Ok(None),
        Some((said, rest)) => Ok(Some((said.map_err(refused), rest))),
    })??;
    // Responses to a READ are counted by it.
    match far.mtu == near.mtu {
        true => Ok(far),
        false => {
            Err(io::Error::new(ErrorKind::InvalidData, "the path MTU is not what was asked for"))
        }
    }
}

impl<N: Name> Service<N> for Connection {
    fn get(&mut self, key: &[u8], into: &mut Vec<u8>) -> io::Result<Option<(u32, Option<N>)>> {
        checked(key)?;
        let mut line = Vec::new();
        append_get::<N>(key, &mut line);
        self.send(&line)?;
        self.receive(|come| match parse(Protocol::Meta, come)? {
            None => io::Result::Ok(None),
            Some((Reply::Miss, rest)) => Ok(Some((Ok(None), rest))),
            Some((Reply::Value(value), rest)) if value.key == Some(key) => {
                into.extend_from_slice(value.data);
                Ok(Some((Ok(Some((value.flags.unwrap_or(0), N::of(&value)))), rest)))
            }
            Some((Reply::Refused(line), rest)) => Ok(Some((Err(refused(line)), rest))),
            Some((other, _)) => Err(out_of_step(&other)),
        })?
    }

    fn set(&mut self, key: &[u8], flags: u32, value: &[u8]) -> io::Result<Option<N>> {
        checked(key)?;
        let mut text = Vec::new();
        append_set::<N>(key, flags, value, &mut text);
        self.send(&text)?;
        self.receive(|come| match parse(Protocol::Meta, come)? {
            None => io::Result::Ok(None),
            Some((reply, rest)) if let Some(name) = N::of_stored(&reply) => {
                Ok(Some((Ok(Some(name)), rest)))
            }
            Some((Reply::Done, rest)) => Ok(Some((Ok(None), rest))),
            Some((Reply::NotStored, rest)) => Ok(Some((Err(refused(b"NS")), rest))),
            Some((Reply::Refused(line), rest)) => Ok(Some((Err(refused(line)), rest))),
            Some((other, _)) => Err(out_of_step(&other)),
        })?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread::JoinHandle;

    /// A service that answers each piece that comes with the next of these; gives all that came.
    fn service(answers: &'static [&'static [u8]]) -> (Connection, JoinHandle<Vec<u8>>) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, mut all) = (listener.accept().unwrap().0, Vec::new());
            let mut piece = [0; 4096];
            for answer in answers {
                let len = stream.read(&mut piece).unwrap();
                all.extend_from_slice(&piece[..len]);
                stream.write_all(answer).unwrap();
            }
            stream.read_to_end(&mut all).unwrap();
            all
        });
        (Connection::open(address).unwrap(), server)
    }

    fn get(
        it: &mut Connection,
        key: &[u8],
        into: &mut Vec<u8>,
    ) -> io::Result<Option<(u32, Option<Stag>)>> {
        it.get(key, into)
    }

    fn set(it: &mut Connection, key: &[u8], flags: u32, value: &[u8]) -> io::Result<Option<Stag>> {
        it.set(key, flags, value)
    }

    fn near() -> FarEnd {
        FarEnd { qpn: 5, psn: 6, gid: "::ffff:10.0.0.1".parse().unwrap(), mtu: 1024 }
    }

    #[test]
    fn a_refusal_is_said_once_and_the_connection_goes_on() {
        let (mut it, server) = service(&[
            b"SERVER_ERROR busy\r\n",
            b"VA 5 f3 ksun g0000000000000abc,48\r\nshine\r\n",
            b"SERVER_ERROR out of memory storing object\r\n",
            b"HD g0000000000000abc,48\r\n",
            b"NS\r\n",
            b"SERVER_ERROR all queue pairs are in use\r\n",
            b"RDMA 17 1 ::ffff:10.0.0.2 1024\r\n",
            b"RDMA 17 1 ::ffff:10.0.0.2 0\r\n",
            b"EN\r\n",
        ]);
        let (mut value, stag) = (Vec::new(), Stag { id: 0xabc, len: 48 });
        let why = get(&mut it, b"sun", &mut value).unwrap_err();
        assert_eq!((why.to_string().as_str(), value.len()), ("SERVER_ERROR busy", 0));
        assert_eq!(get(&mut it, b"sun", &mut value).unwrap(), Some((3, Some(stag))));
        assert_eq!(value, b"shine");
        let why = set(&mut it, b"sun", 3, b"shine").unwrap_err();
        assert!(why.to_string().contains("out of memory"), "{why}");
        assert_eq!(set(&mut it, b"sun", 3, b"shine").unwrap(), Some(stag));
        assert_eq!(set(&mut it, b"sun", 3, b"shine").unwrap_err().to_string(), "NS");
        let why = connect(&mut it, &near()).unwrap_err();
        assert!(why.to_string().contains("in use"), "{why}");
        assert_eq!(connect(&mut it, &near()).unwrap().qpn, 17);
        let why = connect(&mut it, &near()).unwrap_err();
        assert!(why.to_string().contains("path MTU"), "{why}");
        assert_eq!(get(&mut it, b"sun", &mut Vec::new()).unwrap(), None);
        drop(it);
        let asked = server.join().unwrap();
        assert!(asked.starts_with(b"mg sun v f k g\r\nmg sun v f k g\r\nms sun 5 F3 g\r\n"));
    }

    #[test]
    fn places_come_with_values_and_with_what_is_stored() {
        let (mut it, server) = service(&[
            b"VA 5 f3 ksun pa,200000,1,5\r\nshine\r\n",
            b"HD pa,200000,1,6\r\n",
            b"VA 5 f3 ksun\r\nshine\r\n",
            b"HD\r\n",
            b"HD ga1b2c3d4e5f60718,48\r\n",
        ]);
        let place = Place { generation: 10, offset: 0x20_0000, left: 1, number: 5 };
        let mut value = Vec::new();
        assert_eq!(it.get(b"sun", &mut value).unwrap(), Some((3, Some(place))));
        assert_eq!(it.set(b"sun", 3, b"shine").unwrap(), Some(Place { number: 6, ..place }));
        assert_eq!(it.get(b"sun", &mut value).unwrap(), Some((3, None::<Place>)));
        assert_eq!(it.set(b"sun", 3, b"shine").unwrap(), None::<Place>);
        let stag: io::Result<Option<Place>> = it.set(b"sun", 3, b"shine");
        assert_eq!(stag.unwrap_err().kind(), ErrorKind::InvalidData, "it was not asked for");
        drop(it);
        let asked = server.join().unwrap();
        assert!(asked.starts_with(b"mg sun v f k p\r\nms sun 5 F3 p\r\nshine\r\nmg sun"));
    }

    #[test]
    fn what_answers_another_command_ends_the_connection() {
        for stray in [
            &b"VA 4 f3 kmoon\r\ndusk\r\n"[..],
            b"VA 4 f3\r\ndusk\r\n",
            b"HD\r\n",
            b"VA 4 x\r\ndusk\r\n",
        ] {
            let answers = Box::leak(Box::new([stray]));
            let (mut it, server) = service(answers);
            let mut value = Vec::new();
            let why = get(&mut it, b"sun", &mut value).unwrap_err();
            assert_eq!((why.kind(), value.len()), (ErrorKind::InvalidData, 0), "{why}");
            for why in [
                get(&mut it, b"moon", &mut value).unwrap_err(),
                set(&mut it, b"moon", 0, b"dusk").unwrap_err(),
                connect(&mut it, &near()).unwrap_err(),
            ] {
                assert_eq!(why.kind(), ErrorKind::NotConnected, "{why}");
            }
            drop(it);
            assert_eq!(server.join().unwrap(), b"mg sun v f k g\r\n");
        }
    }

    #[test]
    fn no_key_is_a_command() {
        let (mut it, server) = service(&[b"EN\r\n"]);
        let long = [b'k'; 251];
        for key in [&b""[..], b"a\r\nflush_all", b"a b", b"a\0", b"a\x7f", b"a\t", &long] {
            let get = get(&mut it, key, &mut Vec::new()).unwrap_err();
            let set = set(&mut it, key, 0, b"x").unwrap_err();
            assert_eq!([get.kind(), set.kind()], [ErrorKind::InvalidInput; 2]);
        }
        assert_eq!(get(&mut it, &long[..250], &mut Vec::new()).unwrap(), None);
        drop(it);
        assert_eq!(server.join().unwrap().len(), "mg  v f k g\r\n".len() + 250);
    }
}
