//! What has come of a connection, and what of it is answered.
//!
//! In: the receive buffer, and for a request that is longer a buffer of the spill. Out: requests answered, in their
//! order, into the worker's output; the rest stays where it is. Fails where there is no memory for the rest
//! of a request.

use super::connection::{Connection, IN_BYTES, OUT_BYTES, WorkerShared};
use crate::commands::login::Login;
use crate::commands::{Buffer, Conversation, Ctx, Progress};

impl Connection {
    /// Gives the conversation what there is of the next requests.
    pub(super) fn advance(&mut self, shared: &mut WorkerShared, now_ns: u64) -> Progress {
        if self.long_input.is_some() {
            return self.advance_long(shared, now_ns);
        }
        let room = Room::Short(self.machine.room().min(OUT_BYTES));
        let (login, conversation) = (&mut self.login, &mut self.conversation);
        let read = self.machine.read(|bytes| {
            let progress = answer(login, conversation, shared, bytes, room);
            (progress.consumed, (progress, bytes.len()))
        });
        let Some((progress, seen)) = read else { return NOTHING };
        shared.ops.bytes_read.add(progress.consumed as u64);
        if progress != NOTHING || !shared.out.is_empty() {
            return self.got_on(progress, shared, now_ns);
        }
        let waiting = self.machine.waiting();
        if waiting > seen {
            let mut flat = std::mem::take(&mut shared.flat);
            let n = self.machine.peek(&mut flat);
            let bytes = flat.get(..n).unwrap_or_default();
            let progress = answer(&mut self.login, &mut self.conversation, shared, bytes, room);
            shared.flat = flat;
            self.machine.skip(progress.consumed);
            shared.ops.bytes_read.add(progress.consumed as u64);
            if progress != NOTHING || !shared.out.is_empty() {
                return self.got_on(progress, shared, now_ns);
            }
        }
        if self.conversation.wants() > IN_BYTES || waiting >= IN_BYTES / 4 * 3 {
            let Some(buffer) = shared.spill.take() else { return NO_BUFFER };
            self.spill(&mut shared.long, now_ns);
            self.long_input = Some(buffer);
            return self.advance_long(shared, now_ns);
        }
        NOTHING
    }

    /// Something came of the input, unless it waits for a buffer.
    fn got_on(&mut self, progress: Progress, shared: &WorkerShared, now_ns: u64) -> Progress {
        if progress.consumed > 0 || progress.needs == 0 || !shared.out.is_empty() {
            self.moved_ns = now_ns;
        }
        progress
    }

    /// The same for a request that is longer than the receive buffer. More is read only where what there is
    /// has no answer: the rest stays in the receive buffer, and its window closes.
    fn advance_long(&mut self, shared: &mut WorkerShared, now_ns: u64) -> Progress {
        let Some(mut input) = self.long_input.take() else { return NOTHING };
        let room = Room::Long(self.machine.room().min(OUT_BYTES));
        let mut progress = NOTHING;
        if self.may_have_request(&input) {
            progress = answer(&mut self.login, &mut self.conversation, shared, &input, room);
        }
        if progress == NOTHING && shared.out.is_empty() {
            if !self.read_on(&mut input, shared, now_ns) {
                self.long_input = Some(input);
                return Progress { close: true, ..NOTHING };
            }
            progress = answer(&mut self.login, &mut self.conversation, shared, &input, room);
        }
        // A get of very many keys moves, too, from turn to turn.
        if progress.consumed > 0 || progress.more {
            self.moved_ns = now_ns;
        }
        input.drain(..progress.consumed);
        if input.is_empty() {
            shared.spill.give(input);
        } else {
            self.long_input = Some(input);
        }
        progress
    }

    /// Whether as much of a long request is there as the conversation waits for.
    pub(super) fn may_have_request(&self, input: &[u8]) -> bool {
        !input.is_empty() && input.len() >= self.conversation.wants()
    }

    /// Reads behind `input` what its request needs of what has come, and no more: the buffer is given back when
    /// that is answered. False: there is no memory for it.
    fn read_on(&mut self, input: &mut Vec<u8>, shared: &mut WorkerShared, now_ns: u64) -> bool {
        let before = input.len();
        let missing = self.conversation.wants().saturating_sub(before);
        // Grows with what has come, not with what was announced.
        let space = match missing {
            0 | 1 => input.try_reserve(self.machine.waiting()),
            _ => input.try_reserve_exact(missing.min(before.max(self.machine.waiting()))),
        };
        if space.is_err() {
            shared.ops.malloc_fails.inc();
            return false;
        }
        let mut is_there = false;
        while !is_there && self.machine.waiting() > 0 {
            self.machine.read(|bytes| {
                let needed = match missing {
                    // A line, whose end is not known.
                    0 | 1 => bytes.iter().position(|&b| b == b'\n').map(|end| end + 1),
                    _ => Some(missing - (input.len() - before)).filter(|&n| n <= bytes.len()),
                };
                is_there = needed.is_some();
                let bytes = bytes.get(..needed.unwrap_or(bytes.len())).unwrap_or(bytes);
                input.extend_from_slice(bytes);
                (bytes.len(), ())
            });
        }
        let came = input.len() - before;
        if came > 0 {
            self.note_moved(came, now_ns);
        }
        shared.ops.bytes_read.add(came as u64);
        true
    }
}

/// Whether `input`, of which `before` bytes have been looked at, has what its request `wants`, or an end of its
/// line where it has not said how much that is.
pub(super) fn has_enough(input: &[u8], before: usize, wants: usize) -> bool {
    match wants.saturating_sub(before) {
        0 | 1 => input.get(before..).is_some_and(|come| come.contains(&b'\n')),
        _ => input.len() >= wants,
    }
}

/// A request is longer than the receive buffer: it needs a buffer of the spill, and there is none.
pub(super) const NO_BUFFER: Progress = Progress { needs: IN_BYTES + 1, ..NOTHING };
pub(super) const NOTHING: Progress =
    Progress { consumed: 0, close: false, more: false, needs: 0, full: false };

/// Bytes of replies that a send buffer takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Room {
    /// For a connection without memory of the spill.
    Short(usize),
    /// For one with a long request, which holds a buffer that others may wait for.
    Long(usize),
}

/// Answers whole requests of `input` into `shared.out`, until that has `room` bytes or more. Values
/// go beyond only where the spill has a buffer for them, or where waiting for one would hold up another.
pub(super) fn answer(
    login: &mut Login,
    conversation: &mut Conversation,
    shared: &mut WorkerShared,
    input: &[u8],
    room: Room,
) -> Progress {
    let mut consumed = 0;
    if !login.is_open() {
        let of_login = login.advance(input, (&shared.ops, &shared.server.version), &mut shared.out);
        consumed = of_login.consumed;
        if !login.is_open() || of_login.close {
            return Progress { consumed, close: of_login.close, ..NOTHING };
        }
    }
    let (room, is_free) = match room {
        Room::Short(room) => (room, shared.spill.has_one()),
        Room::Long(room) => (room, true),
    };
    let WorkerShared { session, ops, server, ahead, out, .. } = shared;
    let mut ctx = Ctx::new(session, ops, server).expecting(ahead);
    let rest = input.get(consumed..).unwrap_or_default();
    let out = Buffer::new(out, room).limited_to(if is_free { usize::MAX } else { room });
    let progress = conversation.advance(&mut ctx, rest, out);
    Progress { consumed: consumed + progress.consumed, ..progress }
}
