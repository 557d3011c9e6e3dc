//! Stage 6 for every request that is not a plain get: strict parser, commands, reply.
//!
//! In: a request that the engine did not understand, or that the fast way has no answer to. Out: its
//! reply, in as many datagrams as it takes, or none where none is due. Nearly all of these requests
//! are one command that is answered in a line at most, a `set` above all: it is read where it
//! stands, and the line is written over it. The usual `set` goes to `fast_set` first, which makes no
//! command of it and picks its line from a few constants. What is answered by more than a line has its text
//! copied, because the frame becomes the reply. Fails: what cannot be sent is dropped by its name (D10).

use super::Execute;
use super::fast_get::headers;
use crate::commands::work::Work;
use crate::commands::{self, Ctx, Flow, Known, execute};
use crate::counters::WorkerCounters;
use crate::frame_accounting::Accounts;
use crate::observe::Kind;
use crate::policy::{Debt, allowance, source};
use crate::reply::{Datagrams, Reply, ReplyFault, Sum, in_place};
use base::small_bytes;
use driver_shim::Frame;
use gpu::{Entry, EntryFlags, Hint, ReqDesc, Verdict};
use memcache::{Command, Dialect, Parsed, Refusal, Sink, Verb};
use store::{KeyHash, Location, Supposed};
use wire::DropReason;

/// Longest line that a command with a key is answered with, its end included.
const LINE_MAX_BYTES: usize = 64;

impl Execute {
    /// Reads a request, carries it out and answers it. Returns of what kind it was, or its last
    /// command.
    #[inline(always)]
    pub(super) fn read_and_answer(
        &mut self,
        frame: Frame,
        entry: &Entry,
        desc: &ReqDesc,
        counters: &Accounts,
        emit: impl FnMut(Reply),
    ) -> Kind {
        counters.slow.inc();
        self.ops.bytes_read.add(u64::from(desc.payload_len));
        if let Some(line) = self.set_where_it_stands(&frame, entry, desc) {
            answer_in_a_line(frame, entry, line, counters, emit);
            return Kind::Store;
        }
        self.answer_other(frame, entry, desc, counters, emit)
    }

    /// [`Self::read_and_answer`] for all but the usual `set`.
    #[inline(never)]
    fn answer_other(
        &mut self,
        frame: Frame,
        entry: &Entry,
        desc: &ReqDesc,
        counters: &Accounts,
        emit: impl FnMut(Reply),
    ) -> Kind {
        // Memory of what the usual `set`s before replaced: this command may need it.
        self.session.settle();
        match self.carry_out_where_it_stands(&frame, entry, desc) {
            Some((kind, line)) => {
                answer_in_a_line(frame, entry, line.bytes(), counters, emit);
                kind
            }
            None => self.answer_in_datagrams(frame, entry, desc, counters, emit),
        }
    }

    /// Carries out a datagram that is one command, whole, and answered in a line at most. Returns
    /// the line, which may be empty. `None`: it is not, or the line may be more than its source may
    /// have, and nothing was done.
    #[inline]
    fn carry_out_where_it_stands(
        &mut self,
        frame: &Frame,
        entry: &Entry,
        desc: &ReqDesc,
    ) -> Option<(Kind, Line)> {
        let text = desc.text(frame.bytes()).unwrap_or_default();
        let first = text.first().copied()?;
        if !Command::may_be_answered_in_a_line(first) {
            return None;
        }
        let dialect = self.server.dialects.of(first);
        let parsed = dialect.parse(text, self.item_max_bytes);
        let Parsed::Command { command, used } = &parsed else { return None };
        if !command.is_answered_in_a_line()
            || *used != text.len()
            || entry.flags.has(EntryFlags::LIMITED)
        {
            return None;
        }
        let mut line = Line { bytes: [0; LINE_MAX_BYTES], len: 0 };
        let known = known(text, desc);
        execute(&mut self.ctx().knowing(known), command, &mut line);
        Some((commands::kind(command), line))
    }

    /// The way of all others. Several commands in one datagram are answered in order, in one reply;
    /// whatever is wrong with a datagram ends with it (D4). So does what it may have done: commands
    /// behind those that had it all are refused, and change nothing.
    fn answer_in_datagrams(
        &mut self,
        frame: Frame,
        entry: &Entry,
        desc: &ReqDesc,
        counters: &Accounts,
        emit: impl FnMut(Reply),
    ) -> Kind {
        let mut kind = Kind::Other;
        self.text.clear();
        self.text.extend_from_slice(desc.text(frame.bytes()).unwrap_or_default());
        let first = self.text.first().copied().unwrap_or_default();
        let dialect = self.server.dialects.of(first);
        let most = allowance(entry, desc.payload_len, self.amp_factor);
        let debtor = entry.flags.has(EntryFlags::LIMITED).then(|| source(frame.bytes(), entry));
        let mut work = Work::begin(&self.session, &self.ops);
        let mut out = Datagrams::new(&self.region, frame, headers(entry), most, &mut self.frames);
        let mut rest = self.text.as_slice();
        let mut known = known(rest, desc);
        // What stands behind a reply that cannot be sent is refused with it.
        while !rest.is_empty() && out.fault().is_none() {
            // Looked at where it is: a command is large to be moved.
            let parsed = dialect.parse(rest, self.item_max_bytes);
            let (command, used) = match &parsed {
                Parsed::Command { command, used } if command.verb.is_for_tcp() => {
                    work.count(1);
                    if !command.is_noreply() {
                        dialect.refuse(rest, Refusal::NotOverUdp, &mut out);
                    }
                    rest = rest.get(*used..).unwrap_or_default();
                    continue;
                }
                Parsed::Command { command, used } => (command, *used),
                Parsed::Swallow { command, used, skip } => (command, used.saturating_add(*skip)),
                Parsed::Incomplete { .. } => {
                    if dialect == Dialect::Binary || !is_noreply_line(rest) {
                        dialect.refuse(rest, cut_short(rest), &mut out);
                    }
                    break;
                }
                Parsed::Hopeless => {
                    dialect.refuse(rest, Refusal::Error, &mut out);
                    break;
                }
            };
            if work.is_done(&self.session, &self.ops) && !is_end(command) {
                work.count(1);
                counters.work_refused.inc();
                if !command.is_noreply() {
                    dialect.refuse(rest, Refusal::TooMuchWork, &mut out);
                }
                rest = rest.get(used..).unwrap_or_default();
                continue;
            }
            work.count(1);
            kind = commands::kind(command);
            let ctx = Ctx::new(&mut self.session, &self.ops, &self.server);
            let mut ctx = ctx.knowing(known);
            let flow = execute(&mut ctx, command, &mut out);
            known.hint = ctx.known.hint;
            match flow {
                Flow::Close => break,
                Flow::Connect(_) => dialect.refuse(rest, Refusal::NotOverUdp, &mut out),
                // There is no later for a datagram.
                Flow::Rest(_) => out.overflow(),
                _ => {}
            }
            rest = rest.get(used..).unwrap_or_default();
        }
        match known.hint {
            Supposed::Right => counters.hints_right.inc(),
            Supposed::Wrong => counters.hints_wrong.inc(),
            Supposed::Nothing | Supposed::Unknown | Supposed::At(_) => {}
        }
        if let Some(source) = debtor {
            let requests = work.requests(&self.session, &self.ops, out.text_bytes() as u64);
            if requests > 0 && self.debts.len() < self.debts.capacity() {
                self.debts.push(Debt { source, requests });
            }
        }
        refuse_too_large(dialect, &self.text, &mut out, counters);
        if let Some(fault) = out.fault() {
            match out.give_up(&self.text) {
                Some(frame) => counters.drop_frame(frame, entry.mark.into(), unsent(fault)),
                None => counters.count_drop(unsent(fault)),
            }
        } else if out.is_empty() {
            drop(out);
            counters.answered.inc();
        } else {
            out.finish(emit);
        }
        kind
    }
}

/// Writes the line over its request, if there is one.
#[inline(always)]
fn answer_in_a_line(
    mut frame: Frame,
    entry: &Entry,
    line: &[u8],
    counters: &Accounts,
    mut emit: impl FnMut(Reply),
) {
    let headers = headers(entry);
    if line.is_empty() {
        counters.answered.inc();
    } else if in_place(&mut frame, headers, line.len(), |out| out.put(line)) {
        emit(Reply::whole(frame, headers, Sum::Unknown));
    } else {
        counters.drop_frame(frame, entry.mark.into(), DropReason::NoFrame);
    }
}

/// A line, to be written when the request is not needed any more.
struct Line {
    bytes: [u8; LINE_MAX_BYTES],
    len: usize,
}

impl Line {
    fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or_default()
    }
}

impl Sink for Line {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let room = self.bytes.get_mut(self.len..).unwrap_or_default();
        debug_assert!(bytes.len() <= room.len(), "longer than any line");
        if bytes.len() <= room.len() {
            small_bytes::copy(room, bytes);
            self.len += bytes.len();
        }
    }
}

/// What the engine found of the one key of a request that it did not understand, in the request's
/// text: it guessed where the key is, and made its hash.
fn known<'t>(text: &'t [u8], desc: &ReqDesc) -> Known<'t> {
    let [guessed, ..] = desc.keys;
    let start = usize::from(guessed.off).checked_sub(desc.payload_off.into());
    let key = start.and_then(|start| text.get(start..start + usize::from(guessed.len)));
    let hint = match (desc.verdict, guessed.hint) {
        (Verdict::STRICT_HINTED, Hint::HIT) => Supposed::At(Location(guessed.location)),
        (Verdict::STRICT_HINTED, Hint::MISS) => Supposed::Unknown,
        _ => Supposed::Nothing,
    };
    let hash = (desc.hash != 0).then_some(KeyHash(desc.hash));
    Known { key: key.unwrap_or_default(), hash, hint }
}

/// Puts a refusal in the place of a reply that is too large to be sent. [`Datagrams::fault`] says
/// whether even that is too much.
fn refuse_too_large(
    dialect: Dialect,
    text: &[u8],
    out: &mut Datagrams<'_>,
    counters: &WorkerCounters,
) {
    let refusal = match out.fault() {
        Some(ReplyFault::TooLarge) => Refusal::ReplyTooLarge,
        Some(ReplyFault::Amplified) => Refusal::Amplified,
        Some(ReplyFault::NoFrame) | None => return,
    };
    out.restart();
    dialect.refuse(text, refusal, out);
    if refusal == Refusal::Amplified && out.fault().is_none() {
        counters.amplification_refused.inc();
    }
}

/// What a request is dropped for whose reply cannot be sent.
fn unsent(fault: ReplyFault) -> DropReason {
    match fault {
        ReplyFault::NoFrame | ReplyFault::TooLarge => DropReason::NoFrame,
        ReplyFault::Amplified => DropReason::Amplification,
    }
}

/// Why what is left of a datagram is no whole command: a storage command whose data block did not
/// fit, or a line without an end.
fn cut_short(rest: &[u8]) -> Refusal {
    if rest.contains(&b'\n') { Refusal::BadDataChunk } else { Refusal::Error }
}

/// Whether it is a storage command without its whole data block that asks for no answer.
fn is_noreply_line(rest: &[u8]) -> bool {
    let end = rest.iter().position(|b| *b == b'\n');
    let line = end.and_then(|end| rest.get(..end)).unwrap_or_default();
    line.trim_ascii_end().ends_with(b" noreply")
}

/// Whether nothing behind it is read.
fn is_end(command: &Command<'_>) -> bool {
    matches!(command.verb, Verb::Quit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_has_room() {
        for refusal in [
            Refusal::TooLarge,
            Refusal::OutOfMemory,
            Refusal::OutOfMemoryArith,
            Refusal::NonNumeric,
            Refusal::BadLineFormat,
        ] {
            assert!(refusal.line().len() <= LINE_MAX_BYTES, "{refusal:?}");
        }
        let mut line = Line { bytes: [0; LINE_MAX_BYTES], len: 0 };
        line.put_decimal(u64::MAX);
        line.put(b"\r\n");
        assert_eq!(line.bytes(), b"18446744073709551615\r\n");
    }
}
