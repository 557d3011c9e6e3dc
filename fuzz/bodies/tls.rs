//! The server's TLS session with a library's client, and with whatever else comes: the client's records in
//! pieces, spoilt, doubled, in another order, forged, and bytes that are no records. Nothing makes it panic; what it
//! makes of it is records, and no more of them than callers reckon with; and where all that the client said
//! came in order, the client reads what it is answered without TLS.
//!
//! The two libraries draw nothing from chance (`harness/tls.rs`): one input is one run, always.

use super::peer::{self, ANY_TAG, Terms};
use super::session::Session;
use super::tcp::{Connection, on_a_new_server};
use dataplane::observe::Server;
use dataplane::stages::stream::{
    TLS_OVERHEAD_BYTES, TLS_PARTIAL_MAX_BYTES, TLS_PLAIN_MAX_BYTES, TlsSession, TlsStep,
};
use rustls::{ClientConfig, ClientConnection, ServerConfig};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::sync::Arc;

/// Fewer than records that a key may seal: the client's part does not come to an end of its own.
const STEPS_MAX: usize = 48;
/// Fewer than the library takes in a row.
const KEY_UPDATES_MAX: usize = 30;
/// Bytes from which on nothing on the wire is doubled.
const WIRE_MAX_BYTES: usize = 64 << 10;
/// What a session may say of its own in all: its flight with two certificates, tickets, alerts.
const OWN_MAX_BYTES: usize = 4 << 10;

/// What the client says: whole requests, the last of which ends the connection.
const SAYS: [&str; 8] = [
    "mn\r\n",
    "set a 7 0 5\r\nhello\r\n",
    "get a\r\n",
    "get nobody a b\r\n",
    "mg a v\r\n",
    "nonsense\r\n",
    "",
    "quit\r\n",
];

/// Configurations that the runs before made.
type Known = HashMap<Terms, (Arc<ClientConfig>, Arc<ServerConfig>)>;

thread_local! {
    static KNOWN: RefCell<Known> = RefCell::default();
}

/// Both ends, and what is between them.
struct World<'s> {
    terms: Terms,
    client: ClientConnection,
    session: Session,
    /// The server behind the session, which answers what it opens.
    server: &'s Server,
    store: store::Session,
    connection: Connection,
    /// Records of the client's that have not come yet.
    wire: Vec<u8>,
    incoming: Vec<u8>,
    step: io::Result<TlsStep>,
    /// Records that the session made and the client has not got.
    outgoing: Vec<u8>,
    /// Bytes that the session said of its own.
    own: usize,
    /// What the client has read, and how often it took other keys.
    got: Vec<u8>,
    key_updates: usize,
    /// It has said the end.
    ended: bool,
    /// All that the client said, and the bytes of what was opened.
    said: Vec<u8>,
    opened: usize,
    /// Not all that the client said came as it was, or not all that is said to it.
    spoilt: bool,
    /// We have said the end.
    closed: bool,
}

impl<'s> World<'s> {
    fn new(terms: Terms, server: &'s Arc<Server>) -> Self {
        let (client, config) = KNOWN.with_borrow_mut(|known| {
            known.entry(terms).or_insert_with(|| (peer::client(terms), peer::server(terms))).clone()
        });
        let name = "localhost".try_into().expect("a name");
        let mut client = ClientConnection::new(client, name).expect("a client");
        client.set_buffer_limit(None);
        Self {
            terms,
            client,
            session: Session::new(config).expect("a session"),
            server,
            store: server.store.session().expect("a session"),
            connection: Connection::new(),
            wire: Vec::new(),
            incoming: Vec::new(),
            step: Ok(TlsStep::Blocked),
            outgoing: Vec::new(),
            own: 0,
            got: Vec::new(),
            key_updates: 0,
            ended: false,
            said: Vec::new(),
            opened: 0,
            spoilt: false,
            closed: false,
        }
    }

    /// Puts what the client has to send on the wire.
    fn speak(&mut self) {
        while self.client.wants_write() {
            self.client.write_tls(&mut self.wire).expect("a vector");
        }
    }

    /// The client says something.
    fn say(&mut self, text: &str) {
        if !self.ended {
            // Before the handshake is over the library keeps it.
            let taken = self.client.writer().write_all(text.as_bytes());
            self.spoilt |= taken.is_err();
            self.said.extend_from_slice(text.as_bytes());
        }
    }

    /// Takes so many bytes from the wire.
    fn come(&mut self, most: usize) {
        let come: Vec<u8> = self.wire.drain(..most.min(self.wire.len())).collect();
        self.give(&come);
    }

    /// Gives the session bytes.
    fn give(&mut self, bytes: &[u8]) {
        // Callers give it nothing behind the end or a failure.
        if !matches!(self.step, Ok(TlsStep::Blocked | TlsStep::Open)) && !self.closed {
            return;
        }
        self.incoming.extend_from_slice(bytes);
        let (mut plain, before) = (Vec::new(), self.outgoing.len());
        let given = self.incoming.len();
        let done = self.session.advance(&mut self.incoming, &mut plain, &mut self.outgoing);
        self.own += self.outgoing.len() - before;
        assert!(plain.len() <= given, "{} plain bytes of {given}", plain.len());
        self.step = done.map(|(used, step)| {
            assert!(used <= given);
            self.incoming.drain(..used);
            step
        });
        // Callers end the connection.
        if self.incoming.len() > TLS_PARTIAL_MAX_BYTES {
            self.step = Err(io::ErrorKind::InvalidData.into());
        }
        assert!(!self.closed || plain.is_empty(), "bytes behind our end");
        self.opened += plain.len();
        let mut replies = Vec::new();
        self.connection.say(self.server, &mut self.store, &plain, usize::MAX, &mut replies);
        for reply in replies.chunks(TLS_PLAIN_MAX_BYTES) {
            self.seal(reply);
        }
        if self.connection.is_closed() {
            self.close();
        }
    }

    fn seal(&mut self, reply: &[u8]) {
        let before = self.outgoing.len();
        let sealed = self.session.seal(reply, &mut self.outgoing);
        assert!(self.outgoing.len() - before <= reply.len() + TLS_OVERHEAD_BYTES);
        if sealed.is_err() {
            self.spoilt = true;
            self.close();
        }
    }

    fn close(&mut self) {
        let before = self.outgoing.len();
        self.session.close(&mut self.outgoing).expect("memory");
        self.own += self.outgoing.len() - before;
        self.closed = true;
    }

    /// Gives the client what the session has made, which is whole records.
    fn hear(&mut self) {
        let mut rest = &self.outgoing[..];
        while let [kind, 3, _, high, low, records @ ..] = rest {
            assert!((20..=23).contains(kind), "no record: {kind}");
            let len = usize::from(u16::from_be_bytes([*high, *low]));
            rest = records.get(len..).expect("a whole record");
        }
        assert!(rest.is_empty(), "no record: {rest:?}");
        assert!(self.own <= OWN_MAX_BYTES, "{} bytes of its own", self.own);
        let outgoing = std::mem::take(&mut self.outgoing);
        let mut rest = &outgoing[..];
        while !rest.is_empty() {
            let taken = self.client.read_tls(&mut rest).unwrap_or(0);
            let judged = self.client.process_new_packets();
            if !self.spoilt {
                judged.expect("a server that can be understood");
            }
            // Where no end was said it would block.
            let _ = self.client.reader().read_to_end(&mut self.got);
            if taken == 0 {
                break;
            }
        }
    }

    /// A record of any kind with these bytes, as if the client had sealed it.
    fn forge(&mut self, kind: u8, bytes: &[u8]) {
        let mut payload = bytes.to_vec();
        payload.extend(self.terms.is_1_3.then_some(kind));
        payload.extend_from_slice(&ANY_TAG);
        let kind = if self.terms.is_1_3 { 23 } else { kind };
        let [high, low] = u16::try_from(payload.len()).expect("short").to_be_bytes();
        self.wire.extend([kind, 3, 3, high, low]);
        self.wire.extend(payload);
    }

    /// One step, and what it takes of the input behind it.
    fn step(&mut self, op: u8, arg: u8, rest: &mut &[u8]) {
        let n = usize::from(arg);
        let at = n * 7 % self.wire.len().max(1);
        let spoils = matches!(op % 24, 16..);
        self.spoilt |= spoils;
        match op % 24 {
            0..=2 => self.speak(),
            3 => self.come(n + 1),
            4..=6 => self.come(usize::MAX),
            // Each byte alone.
            7 => (0..=n).for_each(|_| self.come(1)),
            8 => self.say(SAYS[n % SAYS.len()]),
            9 => self.say(&SAYS[n % SAYS.len()].repeat(n / SAYS.len() + 1)),
            10 => self.say(&format!("set b 0 0 {}\r\n{}\r\n", 15 * n, "v".repeat(15 * n))),
            11..=13 => self.hear(),
            14 if self.key_updates < KEY_UPDATES_MAX => {
                // Not in the handshake, and not with TLS 1.2.
                self.key_updates += usize::from(self.client.refresh_traffic_keys().is_ok());
            }
            15 if !self.client.is_handshaking() => {
                self.client.send_close_notify();
                self.ended = true;
            }
            16 if !self.wire.is_empty() => self.wire[at] ^= 1 << (arg & 7),
            17 => self.wire.truncate(at),
            18 if self.wire.len() < WIRE_MAX_BYTES => self.wire.extend_from_within(at..),
            19 if !self.wire.is_empty() => self.wire.rotate_left(at),
            20 => drop(self.wire.drain(..at)),
            // Bytes of the input, as they are or in a record that is sealed.
            21 | 22 => {
                let (bytes, behind) = rest.split_at((n & 31).min(rest.len()));
                *rest = behind;
                match op % 24 {
                    21 => self.wire.extend_from_slice(bytes),
                    _ => self.forge(20 + (arg >> 5), bytes),
                }
            }
            // The server has something to say, or ends it.
            23 if n % 2 == 0 => {
                let _ = self.session.seal(&b"unasked"[..1 + n % 7], &mut self.outgoing);
            }
            23 => self.close(),
            _ => {}
        }
    }

    /// Lets all that is under way come. What the client said and what it got, where all came as it was.
    fn end(mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        for _ in 0..8 {
            self.hear();
            self.speak();
            self.come(usize::MAX);
        }
        self.hear();
        // Whatever has become of it, it can be asked for anything.
        let _ = self.session.seal(b"late", &mut Vec::new());
        self.session.close(&mut Vec::new()).expect("memory");
        let _ = self.session.seal(b"later", &mut Vec::new());
        if self.spoilt {
            return None;
        }
        assert!(self.step.is_ok(), "{:?}", self.step);
        assert!(self.closed || self.opened == self.said.len(), "not all of it came");
        Some((self.said, self.got))
    }
}

/// What a client is answered without TLS.
fn answered(said: &[u8]) -> Vec<u8> {
    on_a_new_server(|server| {
        let mut store = server.store.session().expect("a session");
        let mut out = Vec::new();
        Connection::new().say(server, &mut store, said, usize::MAX, &mut out);
        out
    })
}

/// The first byte says what the two agree about.
pub(crate) fn run(data: &[u8]) {
    let Some((&begins, mut rest)) = data.split_first() else { return };
    let terms = Terms {
        is_1_3: begins & 1 != 0,
        mutual: begins & 2 != 0,
        retry: begins & 4 != 0,
        tickets: begins & 8 != 0,
    };
    let all = on_a_new_server(|server| {
        let mut world = World::new(terms, server);
        if begins & 16 != 0 {
            // To its end at once.
            for _ in 0..4 {
                world.speak();
                world.come(usize::MAX);
                world.hear();
            }
        }
        for _ in 0..STEPS_MAX {
            let [op, arg, behind @ ..] = rest else { break };
            rest = behind;
            world.step(*op, *arg, &mut rest);
        }
        world.end()
    });
    if let Some((said, got)) = all {
        let answered = answered(&said);
        assert!(got == answered, "{} bytes, not {}", got.len(), answered.len());
    }
}
