//! One connection's conversation: bytes in, whole commands carried out in order, bytes out.
//!
//! Plain `get`s and `set`s are answered in runs (`plain`), everything else command by command ([`execute`]).
//! The caller owns both buffers and decides when to read, write and stop; nothing here blocks.

mod plain;

use super::ctx::{Ctx, Flow, Rest, Turn};
use super::execute;
use super::rdma::Pair;
use crate::observe::watch::Watching;
use crate::rdma::Between;
use memcache::sink::Buffer;
use memcache::text::{is_long_line, is_same_line};
use memcache::{Command, Dialect, Get, Keys, Parsed, Refusal, Sink, Verb, Words};
use store::Cursor;

/// Where one connection stands between two reads.
#[derive(Debug)]
pub struct Conversation {
    item_max_bytes: usize,
    /// Most requests per turn.
    requests_max: usize,
    /// What is spoken. The first byte that comes shows.
    dialect: Option<Dialect>,
    /// What of a refused store is still to come.
    refused: Option<Box<RefusedBlock>>,
    /// No use parsing again below this many bytes of input.
    wait_for: usize,
    /// What is done of the request at the start of the input.
    begun: Begun,
    /// The client watches, and says nothing more that matters.
    watching: Option<Watching>,
    /// The queue pair that the client may have, or has.
    pair: Pair,
    /// What came could not be followed.
    is_lost: bool,
    /// Nothing is answered in runs: the yardstick.
    #[cfg(test)]
    one_by_one: bool,
}

/// The data block of a store that is refused, which is thrown away as it comes.
#[derive(Debug)]
struct RefusedBlock {
    /// Bytes still to come.
    left: usize,
    /// What is said behind them. As in memcached: a proxy takes a reply to what it is still sending for a stray one, and
    /// gives the server up.
    reply: Vec<u8>,
}

/// How long a client may take to receive the last replies of a connection that we end, and to end its side.
pub const PARTING_MAX_NS: u64 = 2_000_000_000;
/// When the service stops, a connection is closed if nothing has come for so long.
pub const DRAIN_QUIET_NS: u64 = 50_000_000;
/// When the service stops, the rest of a request is waited for so long, and a client that goes on asking is served.
pub const DRAIN_REST_MAX_NS: u64 = 1_000_000_000;
/// Keys of one `get` that are looked up before others have a turn: 0.1 ms.
const KEYS_PER_TURN: u64 = 1024;

/// What is done of a request that has not come to its end.
#[derive(Debug, Clone, Copy)]
enum Begun {
    Nothing,
    /// It is a line, and so many bytes of it have no end.
    Line {
        searched: u32,
    },
    /// Some keys are answered.
    Get(RestOfGet),
    /// It was sent in part, and goes on here.
    Dump(Cursor),
}

/// A get whose last keys are still to be answered.
#[derive(Debug, Clone, Copy)]
struct RestOfGet {
    exptime: i64,
    touches: bool,
    with_cas: bool,
    /// Bytes of the line's end,
    end: u8,
    /// of the whole line,
    used: u32,
    /// and before the end, in which the keys stand.
    left: u32,
}

impl RestOfGet {
    /// What is left of `get` with this line: keys in the last `left` bytes. Nothing, where it has one key: then all
    /// is left.
    #[cold]
    fn of(get: &Get<'_>, line: &[u8], left: usize) -> Option<Self> {
        let Keys::Words(_) = get.keys else { return None };
        let end = if line.ends_with(b"\r\n") { 2 } else { 1 };
        let Get { with_cas, touch, .. } = *get;
        // A line is no longer than a parser takes.
        let (used, left) = (u32::try_from(line.len()).ok()?, u32::try_from(left).ok()?);
        let (touches, exptime) = (touch.is_some(), touch.unwrap_or(0));
        Some(Self { exptime, touches, with_cas, end, used, left })
    }

    /// The rest of it, as a command.
    #[cold]
    fn parsed<'a>(&self, input: &'a [u8]) -> Parsed<'a> {
        let Self { exptime, touches, with_cas, end, .. } = *self;
        let (used, left) = (self.used as usize, self.left as usize);
        let keys = used.saturating_sub(usize::from(end));
        let keys = input.get(keys.saturating_sub(left)..keys).unwrap_or_default();
        let touch = touches.then_some(exptime);
        let get = Get { keys: Keys::Words(Words(keys)), with_cas, touch };
        Parsed::Command { command: Command::text(Verb::Get(get), false), used }
    }
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
    /// The next reply needs a buffer of so many bytes, more than this one was limited to: again with
    /// that, or [`Conversation::refuse`] it. 0 when all was answered.
    pub needs: usize,
    /// The buffer was full, and requests may be left: again when it was sent.
    pub full: bool,
}

impl Progress {
    fn of(consumed: usize, close: bool) -> Self {
        Self { consumed, close, more: false, needs: 0, full: false }
    }
}

impl Conversation {
    /// A fresh conversation with the given item size limit.
    pub fn new(item_max_bytes: usize) -> Self {
        Self {
            item_max_bytes,
            requests_max: usize::MAX,
            dialect: None,
            refused: None,
            wait_for: 0,
            begun: Begun::Nothing,
            watching: None,
            pair: Pair::default(),
            is_lost: false,
            #[cfg(test)]
            one_by_one: false,
        }
    }

    /// Whether plain requests may be answered in runs.
    fn has_runs(&self) -> bool {
        #[cfg(test)]
        if self.one_by_one {
            return false;
        }
        self.dialect == Some(Dialect::Ascii)
    }

    /// Whether it was closed because what came could not be followed.
    pub fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// The same, answering that many requests at most each time it advances.
    pub fn in_turns_of(self, requests_max: usize) -> Self {
        Self { requests_max, ..self }
    }

    /// Its connection is between these: the client can have a queue pair.
    pub fn allow_pair(&mut self, between: Between) {
        self.pair = Pair::may(between);
    }

    /// Its connection is over: closes the client's queue pair, if there is one. Dropping the conversation
    /// does too.
    pub(crate) fn close_pair(&mut self) {
        self.pair = Pair::default();
    }

    /// The lines that the client watches from now on, once it has asked to. Its input is not to
    /// be given to [`Self::advance`] any more.
    pub fn take_watching(&mut self) -> Option<Watching> {
        self.watching.take()
    }

    /// Bytes of input that the next [`Self::advance`] needs to get anywhere: space to make in the
    /// buffer before reading on. 0 when any byte will do.
    pub fn wants(&self) -> usize {
        self.wait_for
    }

    /// What is said behind the refused block whose rest is awaited, if one is.
    pub fn unsaid(&self) -> Option<&[u8]> {
        self.refused.as_ref().map(|block| &*block.reply)
    }

    /// Answers whole commands of `input`, in order, until the input is used up, `out` is full or the turn
    /// is over, whichever comes first. One value may go beyond what fills `out`, up to its limit; a get of many pauses
    /// between two and goes on at the next call.
    pub fn advance(&mut self, ctx: &mut Ctx<'_>, input: &[u8], mut out: Buffer<'_>) -> Progress {
        let (mut consumed, mut requests) = (0, 0);
        let (mut close, mut more) = (false, false);
        let Some(&first) = input.first() else { return Progress::of(0, false) };
        let dialect = *self.dialect.get_or_insert_with(|| ctx.server().dialects.of(first));
        while !close && !out.is_full() {
            let rest = input.get(consumed..).unwrap_or_default();
            if let Some(block) = &mut self.refused {
                let dropped = block.left.min(rest.len());
                block.left -= dropped;
                consumed += dropped;
                if block.left > 0 {
                    break;
                }
                out.put(&block.reply);
                self.refused = None;
                continue;
            }
            if rest.is_empty() || rest.len() < self.wait_for {
                break;
            }
            if requests == self.requests_max {
                more = true;
                break;
            }
            if let Begun::Line { searched } = self.begun
                && is_same_line(rest, searched as usize)
            {
                self.waits_for_line(rest);
                break;
            }
            if matches!(self.begun, Begun::Nothing) && self.has_runs() {
                let requests_max = self.requests_max - requests;
                let item_max_bytes = self.item_max_bytes;
                let input = plain::Input { bytes: rest, requests_max, item_max_bytes };
                let run = plain::answer(ctx, input, &mut out);
                if run.requests > 0 {
                    consumed += run.bytes;
                    requests += run.requests;
                    self.wait_for = 0;
                    continue;
                }
            }
            requests += 1;
            self.wait_for = 0;
            let begun = std::mem::replace(&mut self.begun, Begun::Nothing);
            let mut dump_from = Cursor::default();
            let parsed = match begun {
                Begun::Get(get) => get.parsed(rest),
                Begun::Nothing | Begun::Line { .. } => dialect.parse(rest, self.item_max_bytes),
                Begun::Dump(from) => {
                    dump_from = from;
                    dialect.parse(rest, self.item_max_bytes)
                }
            };
            match parsed {
                Parsed::Command { command, used } => {
                    ctx.turn = Turn { keys_max: KEYS_PER_TURN, dump_from };
                    match execute(ctx, &command, &mut out) {
                        Flow::Continue => {}
                        Flow::Rest(what) => {
                            more = match what {
                                Rest::All => false,
                                Rest::Keys(_) => !out.is_full() && out.needs() == 0,
                                // Others first: a piece without an item is a piece too.
                                Rest::Dump(_) => true,
                            };
                            self.pause(what, &command, rest.get(..used).unwrap_or_default());
                            break;
                        }
                        Flow::Watch(events) => {
                            self.watching = ctx.server().watchers.watch(events);
                            if self.watching.is_some() {
                                out.put(b"OK\r\n");
                                consumed += used;
                                break;
                            }
                            out.put(b"WATCHER_TOO_MANY log watcher limit reached\r\n");
                        }
                        Flow::Connect(far) => self.pair.open(ctx.server(), &far, &mut out),
                        Flow::Close => {
                            self.is_lost = matches!(command.verb, Verb::Refused(_));
                            close = true;
                        }
                    }
                    consumed += used;
                }
                Parsed::Swallow { command, used, skip } => {
                    close = !self.refuse_behind(ctx, &command, skip);
                    consumed += used;
                }
                Parsed::Incomplete { at_least } => {
                    self.wait_for = at_least;
                    if dialect == Dialect::Ascii && is_long_line(rest) {
                        self.waits_for_line(rest);
                    }
                    break;
                }
                Parsed::Hopeless => {
                    self.is_lost = true;
                    close = true;
                }
            }
        }
        let (needs, full) = (out.needs(), out.is_full());
        if !out.finish() {
            ctx.observer.ops.malloc_fails.inc();
            (close, more) = (true, false);
        }
        Progress { consumed, close, more, needs, full }
    }

    /// Refuses a store, and says so behind so many bytes that are still to come. False: there is no memory to say it
    /// from.
    fn refuse_behind(&mut self, ctx: &mut Ctx<'_>, command: &Command<'_>, left: usize) -> bool {
        let mut block = RefusedBlock { left, reply: Vec::new() };
        let mut reply = Buffer::new(&mut block.reply, usize::MAX);
        execute(ctx, command, &mut reply);
        if !reply.finish() {
            ctx.observer.ops.malloc_fails.inc();
            return false;
        }
        self.refused = Some(Box::new(block));
        true
    }

    /// Keeps what is left of a command that is answered in part, the line of which stands at the start of the input.
    fn pause(&mut self, what: Rest, command: &Command<'_>, line: &[u8]) {
        match what {
            Rest::All => return,
            Rest::Keys(left) => {
                if let Verb::Get(get) = &command.verb
                    && let Some(get) = RestOfGet::of(get, line, left)
                {
                    self.begun = Begun::Get(get);
                }
            }
            Rest::Dump(from) => self.begun = Begun::Dump(from),
        }
        // The caller may have it in two pieces.
        self.wait_for = line.len();
    }

    /// The long line at the start of the input has no end in all of it.
    #[cold]
    fn waits_for_line(&mut self, input: &[u8]) {
        let searched = u32::try_from(input.len()).unwrap_or(0);
        (self.begun, self.wait_for) = (Begun::Line { searched }, input.len() + 1);
    }

    /// Refuses, for lack of memory, the request at the start of the input: one whose reply has no
    /// space, or one that has not come as a whole. Of the latter the rest is thrown away as it comes;
    /// a line whose end is unknown ends the connection.
    pub fn refuse(&mut self, ctx: &mut Ctx<'_>, input: &[u8], out: &mut Vec<u8>) -> Progress {
        let Some(dialect) = self.dialect else { return Progress::of(0, false) };
        let mut out = Buffer::new(out, usize::MAX);
        (self.begun, self.wait_for) = (Begun::Nothing, 0);
        match dialect.parse(input, self.item_max_bytes) {
            Parsed::Command { used, .. } => {
                dialect.refuse(input, Refusal::OutOfMemoryWriting, &mut out);
                Progress::of(used, false)
            }
            // Of a value that is too long, the parser needs no more than the announcement.
            _ => match dialect.parse(input, 0) {
                Parsed::Swallow { command, used, skip } => {
                    let (command, come) =
                        (command.unread(), skip.min(input.len().saturating_sub(used)));
                    let close = if come == skip {
                        execute(ctx, &command, &mut out);
                        false
                    } else {
                        !self.refuse_behind(ctx, &command, skip - come)
                    };
                    Progress::of(used + come, close)
                }
                _ => {
                    dialect.refuse(input, Refusal::OutOfMemoryReading, &mut out);
                    self.is_lost = true;
                    Progress::of(0, true)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests;
