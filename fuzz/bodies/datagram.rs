//! Datagrams to a worker, with anything in them: each is answered as the same text on a connection
//! of its own would be, also when several wait for the engine, and nothing is lost.

use crate::tcp::{Connection, on_a_new_server};
use crate::udp::{REQUEST_MAX_BYTES, Wire};
use dataplane::observe::Server;
use std::sync::Arc;

/// Stands between two datagrams.
const BETWEEN: [u8; 2] = [0xff, 0xfe];

const DATAGRAMS_MAX: usize = 8;

/// In every store, for gets to find.
const BEFORE: &[u8] = b"set a 7 0 3\r\nabc\r\nset n 0 0 2\r\n99\r\nset big 1 0 1500\r\n";
const BIG_BYTES: usize = 1500;

/// What is answered another way over UDP, or shows of the server and not of its items.
const OTHERWISE: [&[u8]; 11] = [
    b"stats",
    b"flush",
    b"verbosity",
    b"lru",
    b"slabs",
    b"cache_memlimit",
    b"watch",
    b"shutdown",
    b"\x80\x08",
    b"\x80\x10",
    b"\x80\x18",
];

/// The first byte says over what IP version each datagram goes, a bit each.
pub(crate) fn run(data: &[u8]) {
    let Some((&how, data)) = data.split_first() else { return };
    let datagrams = split(data);
    if compare(how, &datagrams).is_some() {
        // Unless the clock moved on between the two, which an absolute exptime shows.
        assert_eq!(compare(how, &datagrams), None, "the request, and its answers over UDP and TCP");
    }
}

fn split(data: &[u8]) -> Vec<&[u8]> {
    let (mut datagrams, mut rest) = (Vec::new(), data);
    while datagrams.len() < DATAGRAMS_MAX && !rest.is_empty() {
        let end = rest.windows(2).position(|two| two == BETWEEN);
        let (one, more) = match end {
            Some(end) => (&rest[..end], &rest[end + BETWEEN.len()..]),
            None => (rest, &[][..]),
        };
        datagrams.push(&one[..one.len().min(REQUEST_MAX_BYTES)]);
        rest = more;
    }
    datagrams
}

/// The first request that is answered otherwise over UDP than over TCP, with both answers.
fn compare(how: u8, datagrams: &[&[u8]]) -> Option<[String; 3]> {
    let over_udp = on_a_new_server(|server| over_udp(server, how, datagrams))?;
    let otherwise = |text: &[u8]| OTHERWISE.iter().any(|w| text.windows(w.len()).any(|t| t == *w));
    if datagrams.iter().any(|text| otherwise(text)) {
        return None;
    }
    let over_tcp = on_a_new_server(|server| over_tcp(server, datagrams));
    let all = datagrams.iter().zip(over_udp.iter().zip(&over_tcp));
    all.map(|(text, (udp, tcp))| [text, udp.as_slice(), tcp.as_slice()])
        // Over UDP what is not all there, or makes no sense, is refused: nothing more will come.
        .find(|[_, udp, tcp]| !udp.strip_prefix(*tcp).is_some_and(is_refusal))
        .map(|all| all.map(|bytes| bytes.escape_ascii().to_string()))
}

fn is_refusal(rest: &[u8]) -> bool {
    match rest {
        b"" | b"ERROR\r\n" | b"CLIENT_ERROR bad data chunk\r\n" => true,
        [0x81, _, 0, 0, 0, 0, 0, status, ..] => *status != 0,
        _ => false,
    }
}

fn prepare(server: &Server) {
    let mut session = server.store.session().expect("a session");
    let mut out = Vec::new();
    let input = [BEFORE, &[b'b'; BIG_BYTES], b"\r\n"].concat();
    Connection::new().say(server, &mut session, &input, usize::MAX, &mut out);
    assert_eq!(out, b"STORED\r\n".repeat(3));
}

/// `None` when frames ran out.
fn over_udp(server: &Arc<Server>, how: u8, datagrams: &[&[u8]]) -> Option<Vec<Vec<u8>>> {
    prepare(server);
    let mut wire = Wire::new(server);
    let mut answers = vec![Vec::new(); datagrams.len()];
    for (n, text) in datagrams.iter().enumerate() {
        wire.send(how >> n & 1 == 1, text);
    }
    for reply in wire.settle() {
        let place = &mut answers[usize::from(reply.id)];
        assert!(place.is_empty(), "one reply to a request");
        *place = reply.text;
    }
    let empty = datagrams.iter().filter(|text| text.is_empty()).count() as u64;
    (wire.hang_up() == empty).then_some(answers)
}

fn over_tcp(server: &Arc<Server>, datagrams: &[&[u8]]) -> Vec<Vec<u8>> {
    prepare(server);
    let mut session = server.store.session().expect("a session");
    let answer = |text: &&[u8]| {
        let mut out = Vec::new();
        let mut connection = Connection::new();
        connection.say(server, &mut session, text, usize::MAX, &mut out);
        // More will not come, which is known of a datagram.
        out.extend_from_slice(connection.unsaid());
        out
    };
    datagrams.iter().map(answer).collect()
}
