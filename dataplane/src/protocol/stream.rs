//! One connection's conversation: bytes in, whole commands carried out in order, bytes out.
//!
//! The caller owns both buffers and decides when to read, write and stop; nothing here blocks.

use super::admin::Admin;
use super::binary;
use super::command::{Command, Keys, Refusal};
use super::dialect::Dialect;
use super::executor::{Flow, execute};
use super::meta;
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
    /// Most bytes of a reply with a value in it.
    reply_max: usize,
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
    /// The next reply needs a buffer of so many bytes, more than [`Conversation::may_reply`]
    /// allows: again with that, or [`Conversation::refuse`] it. 0 when all was answered.
    pub needs: usize,
}

impl Progress {
    fn of(consumed: usize, close: bool) -> Self {
        Self { consumed, close, more: false, needs: 0 }
    }
}

impl Conversation {
    /// A fresh conversation with the given item size limit.
    pub fn new(item_max_bytes: usize) -> Self {
        Self {
            item_max_bytes,
            requests_max: usize::MAX,
            reply_max: usize::MAX,
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

    /// Values are put as far as all that one call of [`Self::advance`] answers stays below
    /// `bytes`; without this call whatever their length.
    pub fn may_reply(&mut self, bytes: usize) {
        self.reply_max = bytes;
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
        let Some(&first) = input.first() else { return Progress::of(0, false) };
        let dialect = *self.dialect.get_or_insert_with(|| server.dialects.of(first));
        let mut out = Buffer::new(out, out_max_bytes).limited_to(self.reply_max);
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
                        Flow::NoRoom => break,
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
        let needs = out.needs();
        if !out.finish() {
            ops.malloc_fails.inc();
            (close, more) = (true, false);
        }
        Progress { consumed, close, more, needs }
    }

    /// Refuses, for want of memory, the request at the start of the input: one whose reply has no
    /// room, or one that has not come as a whole. Of the latter the rest is thrown away as it comes;
    /// a line whose end nobody knows ends the connection.
    pub fn refuse(
        &mut self,
        session: &mut Session,
        ops: &OpCounters,
        server: &Server,
        input: &[u8],
        out: &mut Vec<u8>,
    ) -> Progress {
        let Some(dialect) = self.dialect else { return Progress::of(0, false) };
        let mut out = Buffer::new(out, usize::MAX);
        (self.keys_left, self.dump_at, self.wait_for) = (None, None, 0);
        match dialect.parse(input, self.item_max_bytes) {
            Parsed::Command { used, .. } => {
                dialect.refuse(input, Refusal::OutOfMemoryWriting, &mut out);
                Progress::of(used, false)
            }
            // Of a value that is too long, the parser needs no more than the announcement.
            _ => match dialect.parse(input, 0) {
                Parsed::Swallow { command, used, skip } => {
                    execute(&unread(command), session, ops, server, &mut out);
                    let come = skip.min(input.len().saturating_sub(used));
                    self.skip = skip - come;
                    Progress::of(used + come, false)
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

/// The refusal of a value as too long, for want of memory instead.
fn unread(command: Command<'_>) -> Command<'_> {
    match command {
        Command::Refused { reply: Refusal::TooLarge, noreply, forget } => {
            Command::Refused { reply: Refusal::OutOfMemoryReading, noreply, forget }
        }
        Command::Meta(request @ meta::Request { verb: meta::Verb::SetTooLarge, .. }) => {
            Command::Meta(meta::Request { verb: meta::Verb::SetUnread, ..request })
        }
        Command::Binary(request) => Command::Binary(binary::unread(request)),
        other => other,
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
mod tests;
