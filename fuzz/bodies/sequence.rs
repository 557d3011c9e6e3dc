//! A whole server with several clients at a time: connections in each dialect, and datagrams through
//! a worker, some of which wait for the engine together. What each is answered must be what it is
//! answered when all ask one after the other, on connections, and input is not cut.

use crate::commands::{Command, KEYS, ascii, binary};
use crate::tcp::{Connection, on_a_new_server};
use crate::udp::{REQUEST_MAX_BYTES, Wire};
use dataplane::observe::Server;
use std::sync::Arc;
use store::{Session, verbs};

/// No more noise than `commands` reckons with.
const DATA_MAX_BYTES: usize = 1500;

/// Connections; the last one speaks binary.
const CONNECTIONS: usize = 3;

/// Pieces that the input of a step is cut into, and one more: each takes time.
const PIECES_MAX: usize = 16;

/// Requests that wait for the engine together.
const WAITING_MAX: usize = 12;

/// How what `stats` says of the server begins.
const STATS: &[u8] = b"STAT pid ";

/// Who does something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A connection.
    Tcp(usize),
    /// A datagram, over IPv4 or IPv6. It may wait for others.
    Udp { ipv6: bool, waits: bool },
    /// Time goes by, so many seconds.
    Time(u32),
}

#[derive(Debug)]
struct Step {
    who: Who,
    is_binary: bool,
    command: Command,
}

/// The steps, three bytes each: who, what command, and what about. At the end everybody is asked
/// for every key.
fn steps(data: &[u8]) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for step in data.chunks_exact(3) {
        let (who, op, arg) = (step[0], step[1], step[2]);
        let waits = who & 0x80 != 0;
        let (who, is_binary) = match who % 8 {
            n @ 0..=1 => (Who::Tcp(n.into()), false),
            2 => (Who::Tcp(CONNECTIONS - 1), true),
            3 => (Who::Udp { ipv6: false, waits }, false),
            4 => (Who::Udp { ipv6: true, waits }, false),
            5 => (Who::Udp { ipv6: true, waits }, true),
            // In the same packet as the one before.
            6 => match steps.last() {
                Some(last) => (last.who, last.is_binary),
                None => continue,
            },
            _ => (Who::Time(op.into()), false),
        };
        let command = match who {
            Who::Time(_) => Command::default(),
            _ if is_binary => binary(op, arg),
            _ => ascii(op, arg),
        };
        let over_udp = matches!(who, Who::Udp { .. });
        if over_udp && !(command.for_udp && command.text.len() <= REQUEST_MAX_BYTES) {
            continue;
        }
        match steps.last_mut() {
            Some(last)
                if step[0] % 8 == 6
                    && (!over_udp
                        || last.command.text.len() + command.text.len() <= REQUEST_MAX_BYTES) =>
            {
                last.command.text.extend_from_slice(&command.text);
                last.command.own |= command.own;
            }
            _ => steps.push(Step { who, is_binary, command }),
        }
    }
    for (n, key) in KEYS.into_iter().enumerate() {
        let text = format!("gets {key}\r\n").into_bytes();
        let command = Command { text, for_udp: true, own: false };
        let who = Who::Udp { ipv6: n % 2 == 1, waits: true };
        steps.push(Step { who, is_binary: false, command });
    }
    steps
}

/// The first byte says how the input of connections is cut.
pub(crate) fn run(data: &[u8]) {
    let data = data.get(..DATA_MAX_BYTES).unwrap_or(data);
    let Some((&cut, rest)) = data.split_first() else { return };
    let steps = steps(rest);
    let piece = usize::from(cut) + 1;
    let both = || (together(&steps, piece), one_by_one(&steps));
    let (one, other) = both();
    if one == other {
        return;
    }
    // Unless the clock moved on between the two, which absolute times show.
    let (one, other) = both();
    for ((step, one), other) in steps.iter().zip(&one).zip(&other) {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(one), text(other), "{:?}: {}", step.who, text(&step.command.text));
    }
    assert_eq!(one, other);
}

/// The answer is of whole lines, or of whole packets.
fn well_formed(step: &Step, mut answer: &[u8]) {
    if !step.is_binary {
        return assert!(answer.is_empty() || answer.ends_with(b"\n"));
    }
    while let Some((header, rest)) = answer.split_first_chunk::<24>() {
        assert_eq!((header[0], header[5]), (0x81, 0));
        let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
        let parts =
            usize::from(header[4]) + usize::from(u16::from_be_bytes([header[2], header[3]]));
        assert!(parts <= body && body <= rest.len());
        answer = &rest[body..];
    }
    assert!(answer.is_empty());
}

fn together(steps: &[Step], piece: usize) -> Vec<Vec<u8>> {
    on_a_new_server(|server| {
        let mut session = server.store.session().expect("a session");
        let mut connections = [(); CONNECTIONS].map(|()| Connection::new());
        let mut answers = vec![Vec::new(); steps.len()];
        let mut udp = Udp { wire: Wire::new(server), sent: Vec::new(), waiting: 0 };
        for (n, Step { who, command, .. }) in steps.iter().enumerate() {
            match *who {
                Who::Udp { ipv6, waits } => {
                    udp.send(n, ipv6, &command.text);
                    if !waits || udp.waiting == WAITING_MAX {
                        udp.settle(&mut answers);
                    }
                }
                Who::Tcp(c) => {
                    udp.settle(&mut answers);
                    let answer = &mut answers[n];
                    let piece = piece.max(command.text.len() / PIECES_MAX);
                    connections[c].say(server, &mut session, &command.text, piece, answer);
                }
                Who::Time(seconds) => {
                    udp.settle(&mut answers);
                    pass(server, seconds);
                }
            }
        }
        udp.settle(&mut answers);
        assert_eq!(udp.wire.hang_up(), 0, "a request was dropped");
        finish(server, session, steps, &mut answers);
        answers
    })
}

struct Udp {
    wire: Wire,
    /// The step of each request, by its id.
    sent: Vec<usize>,
    /// Requests that the worker has not seen yet.
    waiting: usize,
}

impl Udp {
    fn send(&mut self, step: usize, ipv6: bool, text: &[u8]) {
        let id = self.wire.send(ipv6, text);
        assert_eq!(usize::from(id), self.sent.len());
        self.sent.push(step);
        self.waiting += 1;
    }

    /// Has all requests answered.
    fn settle(&mut self, answers: &mut [Vec<u8>]) {
        if std::mem::take(&mut self.waiting) == 0 {
            return;
        }
        for reply in self.wire.settle() {
            let place = &mut answers[self.sent[usize::from(reply.id)]];
            assert!(place.is_empty(), "one reply to a request");
            *place = reply.text;
        }
    }
}

fn one_by_one(steps: &[Step]) -> Vec<Vec<u8>> {
    on_a_new_server(|server| {
        let mut session = server.store.session().expect("a session");
        let mut connections = [(); CONNECTIONS].map(|()| Connection::new());
        let mut answers = vec![Vec::new(); steps.len()];
        for (Step { who, command, .. }, answer) in steps.iter().zip(&mut answers) {
            let mut alone = Connection::new();
            let connection = match *who {
                Who::Tcp(c) => &mut connections[c],
                Who::Udp { .. } => &mut alone,
                Who::Time(seconds) => {
                    pass(server, seconds);
                    continue;
                }
            };
            connection.say(server, &mut session, &command.text, usize::MAX, answer);
            if let Who::Udp { .. } = who {
                // More will not come, which is known of a datagram.
                answer.extend_from_slice(connection.unsaid());
            }
        }
        finish(server, session, steps, &mut answers);
        answers
    })
}

fn pass(server: &Server, seconds: u32) {
    server.store.clock().skip_ahead(seconds);
    server.store.housekeep();
}

/// Deletes every key: then the store has nothing left that it counts. Answers are well formed; those
/// that are a server's own, which no other can give, are no more than that.
fn finish(server: &Arc<Server>, mut session: Session, steps: &[Step], answers: &mut [Vec<u8>]) {
    for key in KEYS {
        verbs::delete(&mut session, None, key.as_bytes());
    }
    drop(session);
    // Noise may have spelt other keys; what is there is what is counted.
    let stats = server.store.stats();
    assert_eq!(stats.curr_items == 0, stats.bytes == 0, "{stats:?}");
    for (step, answer) in steps.iter().zip(answers) {
        well_formed(step, answer);
        // Noise may have spelt `stats`, a byte at a time.
        let spelt = answer.windows(STATS.len()).any(|bytes| bytes == STATS);
        if step.command.own || spelt {
            answer.clear();
        }
    }
}
