//! One connection's conversation: bytes in, whole commands carried out in order, bytes out.
//!
//! The caller owns both buffers and decides when to read, write and stop; nothing here blocks.

use super::admin::Admin;
use super::command::{Command, Keys};
use super::dialect::Dialect;
use super::executor::{Flow, execute};
use super::parsed::Parsed;
use super::sink::{Buffer, Sink};
use super::stats::{OpCounters, Server};
use super::watch::Watching;
use crate::store::{Cursor, Session};

/// Where one connection stands between two reads.
#[derive(Debug)]
pub struct Conversation {
    item_max_bytes: usize,
    /// Most requests per turn.
    requests_max: usize,
    /// What is spoken. The first byte that comes tells.
    dialect: Option<Dialect>,
    /// Bytes of a refused data block still to be thrown away.
    skip: usize,
    /// No use parsing again below this many bytes of input.
    wait_for: usize,
    /// The get at the start of the input was answered in part: this many bytes of its key list
    /// are still to be answered.
    keys_left: Option<usize>,
    /// The dump at the start of the input was sent in part, and goes on here.
    dump_at: Option<Cursor>,
    /// The client watches, and says nothing more that matters.
    watching: Option<Watching>,
    /// What came could not be followed.
    is_lost: bool,
}

/// What became of the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Bytes used up. The caller drops them and comes back with the rest and more.
    pub consumed: usize,
    /// The connection is to be closed once the output is sent.
    pub close: bool,
    /// The turn is over and requests may be left: others first, then again.
    pub more: bool,
}

impl Conversation {
    /// A fresh conversation with the given item size limit.
    pub fn new(item_max_bytes: usize) -> Self {
        Self {
            item_max_bytes,
            requests_max: usize::MAX,
            dialect: None,
            skip: 0,
            wait_for: 0,
            keys_left: None,
            dump_at: None,
            watching: None,
            is_lost: false,
        }
    }

    /// Whether it was closed because what came could not be followed.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The same, answering that many requests at most each time it advances.
    pub fn in_turns_of(self, requests_max: usize) -> Self {
        Self { requests_max, ..self }
    }

    /// The lines that the client watches from now on, once it has asked to. Its input is not to
    /// be given to [`Self::advance`] any more.
    pub fn take_watching(&mut self) -> Option<Watching> {
        self.watching.take()
    }

    /// Bytes of input that the next [`Self::advance`] needs to get anywhere: room to make in the
    /// buffer before reading on. 0 when any byte will do.
    pub fn wants(&self) -> usize {
        self.wait_for
    }

    /// Answers whole commands of `input`, in order, until the input is used up, `out` holds
    /// `out_max_bytes` or the turn is over, whichever comes first. One value may go beyond that bound; a get of many
    /// pauses between two and goes on at the next call.
    pub fn advance(
        &mut self,
        session: &mut Session,
        ops: &OpCounters,
        server: &Server,
        input: &[u8],
        out: &mut Vec<u8>,
        out_max_bytes: usize,
    ) -> Progress {
        let (mut consumed, mut requests) = (0, 0);
        let (mut close, mut more) = (false, false);
        let Some(&first) = input.first() else { return Progress { consumed, close, more } };
        let dialect = *self.dialect.get_or_insert_with(|| server.dialects.of(first));
        let mut out = Buffer::new(out, out_max_bytes);
        while !close && !out.is_full() {
            let rest = input.get(consumed..).unwrap_or_default();
            let dropped = self.skip.min(rest.len());
            if dropped > 0 {
                self.skip -= dropped;
                consumed += dropped;
                continue;
            }
            if rest.is_empty() || rest.len() < self.wait_for {
                break;
            }
            if requests == self.requests_max {
                more = true;
                break;
            }
            requests += 1;
            self.wait_for = 0;
            match dialect.parse(rest, self.item_max_bytes) {
                Parsed::Command { command, used } => {
                    let command = resume(command, self.keys_left.take(), self.dump_at.take());
                    match execute(&command, session, ops, server, &mut out) {
                        Flow::Continue => {}
                        Flow::Rest(Command::Get { keys, .. }) => {
                            self.keys_left = Some(keys.0.len());
                            break;
                        }
                        Flow::Rest(Command::Admin { what: Admin::Dump { from, .. }, .. }) => {
                            // Others first: a piece without an item is a piece too.
                            self.dump_at = Some(from);
                            more = true;
                            break;
                        }
                        Flow::Watch(events) => {
                            self.watching = server.watchers.watch(events);
                            if self.watching.is_some() {
                                out.put(b"OK\r\n");
                                consumed += used;
                                break;
                            }
                            out.put(b"WATCHER_TOO_MANY log watcher limit reached\r\n");
                        }
                        Flow::Rest(_) | Flow::Close => close = true,
                    }
                    consumed += used;
                }
                Parsed::Swallow { command, used, skip } => {
                    execute(&command, session, ops, server, &mut out);
                    consumed += used;
                    self.skip = skip;
                }
                Parsed::Incomplete { at_least } => {
                    self.wait_for = at_least;
                    break;
                }
                Parsed::Hopeless => {
                    self.is_lost = true;
                    close = true;
                }
            }
        }
        if !out.finish() {
            ops.malloc_fails.inc();
            (close, more) = (true, false);
        }
        Progress { consumed, close, more }
    }
}

/// The command, or what is left of it.
fn resume(command: Command<'_>, keys_left: Option<usize>, dump_at: Option<Cursor>) -> Command<'_> {
    match (command, keys_left, dump_at) {
        (Command::Get { keys, with_cas, touch }, Some(left), _) => {
            let done = keys.0.len().saturating_sub(left);
            Command::Get { keys: Keys(keys.0.get(done..).unwrap_or_default()), with_cas, touch }
        }
        (Command::Admin { what: Admin::Dump { classes, .. }, noreply }, _, Some(from)) => {
            Command::Admin { what: Admin::Dump { classes, from }, noreply }
        }
        (command, ..) => command,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Store, StoreConfig};
    use driver_shim::Pages;
    use std::sync::Arc;

    /// Feeds `input` in pieces of `piece` bytes and takes the output away whenever it is full.
    fn converse(input: &[u8], piece: usize, out_max_bytes: usize) -> (Vec<u8>, bool, usize) {
        let config =
            StoreConfig { memory_bytes: 8 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let mut session = store.session().unwrap();
        let server = Server::new(Arc::clone(&store), "test".to_owned());
        let ops = server.ops();
        let mut conversation = Conversation::new(1 << 20);
        let (mut waiting, mut sent, mut largest) = (Vec::new(), Vec::new(), 0);
        for piece in input.chunks(piece) {
            waiting.extend_from_slice(piece);
            loop {
                let mut out = Vec::new();
                let p = conversation.advance(
                    &mut session,
                    &ops,
                    &server,
                    &waiting,
                    &mut out,
                    out_max_bytes,
                );
                waiting.drain(..p.consumed);
                largest = largest.max(out.len());
                let stuck = p.consumed == 0 && out.is_empty();
                sent.extend_from_slice(&out);
                if p.close {
                    return (sent, true, largest);
                }
                if stuck || waiting.is_empty() {
                    break;
                }
            }
        }
        (sent, false, largest)
    }

    #[test]
    fn a_turn_has_so_many_requests_and_no_more() {
        let config =
            StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let mut session = store.session().unwrap();
        let server = Server::new(Arc::clone(&store), "test".to_owned());
        let ops = server.ops();
        let mut conversation = Conversation::new(1 << 20).in_turns_of(3);
        let input = b"get a\r\n".repeat(7);
        let (mut at, mut turns) = (0, Vec::new());
        loop {
            let mut out = Vec::new();
            let rest = &input[at..];
            let p = conversation.advance(&mut session, &ops, &server, rest, &mut out, 1 << 20);
            at += p.consumed;
            turns.push((out.len() / b"END\r\n".len(), p.more));
            if !p.more {
                break;
            }
        }
        assert_eq!(turns, [(3, true), (3, true), (1, false)]);
        assert_eq!(at, input.len());
    }

    #[test]
    fn pieces_make_no_difference() {
        let input = b"set a 1 0 3\r\nabc\r\nget a b a\r\nset big 0 0 9999999\r\n";
        let input =
            [&input[..], &[b'x'; 9_999_999], b"\r\nget a\r\nbogus\r\nquit\r\nget a\r\n"].concat();
        let want = b"STORED\r\nVALUE a 1 3\r\nabc\r\nVALUE a 1 3\r\nabc\r\nEND\r\n\
            SERVER_ERROR object too large for cache\r\nVALUE a 1 3\r\nabc\r\nEND\r\nERROR\r\n";
        for piece in [1 << 24, 4096, 17] {
            let (sent, closed, _) = converse(&input, piece, 1 << 20);
            assert_eq!(String::from_utf8_lossy(&sent), String::from_utf8_lossy(want));
            assert!(closed);
        }
    }

    #[test]
    fn the_first_byte_of_a_connection_tells_its_dialect_for_good() {
        let noop = [&[0x80, 0x0a][..], &[0; 10], b"mark", &[0; 8]].concat();
        let answer = [&[0x81, 0x0a][..], &[0; 10], b"mark", &[0; 8]].concat();
        for piece in [1, 23, 1 << 20] {
            let (sent, closed, _) = converse(&noop.repeat(3), piece, 1 << 20);
            assert_eq!((sent, closed), (answer.repeat(3), false));
            let then_ascii = [&noop[..], b"get a\r\nget a\r\nget a\r\nget a\r\n"].concat();
            let (sent, closed, _) = converse(&then_ascii, piece, 1 << 20);
            assert_eq!((&sent, closed), (&answer, true));
        }
        let (sent, closed, _) = converse(b"get \x80\r\n\x80\r\n", 1 << 20, 1 << 20);
        assert_eq!((sent.as_slice(), closed), (&b"END\r\nERROR\r\n"[..], false));
    }

    #[test]
    fn a_get_of_many_large_values_pauses_between_them() {
        let value = "v".repeat(50_000);
        let set = format!("set b 0 0 50000\r\n{value}\r\n");
        let input = [set.as_bytes(), b"gets", &b" b".repeat(1000), b" \r\nget b\r\n"].concat();
        let (sent, _, largest) = converse(&input, 1 << 20, 100_000);
        assert!(largest < 200_000, "{largest} bytes were waiting at once");
        let text = String::from_utf8(sent).unwrap();
        assert_eq!(text.matches("VALUE b 0 50000").count(), 1001);
        assert_eq!(text.matches("END\r\n").count(), 2);
        assert!(text.ends_with("END\r\n"));
    }
}
