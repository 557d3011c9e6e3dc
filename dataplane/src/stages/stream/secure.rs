//! A connection's conversation over TLS: its handshake, its records, its end.
//!
//! In: records that the state machine has in order, sessions that come back from the handshake thread. Out:
//! the same as of a conversation in the clear. What is not answered is kept as plain bytes: a little of it
//! with the connection, a long request in a buffer of the spill. What fails ends the connection, with
//! an alert where there is one to be sent, and is counted.

use super::connection::{Connection, IN_BYTES, OUT_BYTES, WorkerShared};
use super::handshakes::Tls;
use super::input::{NO_BUFFER, NOTHING, Room, answer, has_enough};
use super::outcome::{End, Next};
use super::tls::{Layer, Secure, TLS_OVERHEAD_BYTES, TlsStep, copy};
use crate::commands::Progress;
use std::io;
use std::mem::{replace, take};

/// Pause before the handshake thread is asked once more, which has too much to do.
const BUSY_NS: u64 = 1_000_000;
/// The most records of one turn's replies that are shorter than a send buffer.
const RECORDS: usize = 2;

impl Connection {
    /// Its client has confirmed the connection, and is to say who it is over TLS.
    pub(super) fn greet(&mut self, slot: u32, fd: i32, shared: &mut WorkerShared, now_ns: u64) {
        let (Some(tls), Some(tuple)) = (&mut shared.tls, self.tuple) else { return };
        // The handshake is to end so long after this.
        self.moved_ns = now_ns;
        if !tls.places.enter(tuple.theirs) {
            self.end = Some(End::Error);
            shared.ops.tls_refused.inc();
            let why = "too many handshakes of this source";
            shared.server.watchers.tls_failed(why, fd);
            return;
        }
        match tls.sessions.begin() {
            Ok(session) => {
                self.layer = Layer::Tls(Box::new(Secure::new(session, tuple.theirs, slot, fd)));
            }
            Err(error) => {
                tls.places.leave(tuple.theirs);
                self.end = Some(End::Error);
                shared.ops.tls_handshake_errors.inc();
                shared.server.watchers.tls_failed(&error.to_string(), fd);
                count_shortage(&error, shared);
            }
        }
    }

    /// Whether this is the number of the session that it waits for.
    pub(super) fn awaits(&self, number: u64) -> bool {
        matches!(self.layer, Layer::Away(awaited, _) if awaited == number)
    }

    /// Ends a connection whose handshake came to nothing.
    pub(super) fn handshake_failed(&mut self, why: &str, shared: &WorkerShared) {
        self.end = Some(End::Error);
        shared.ops.tls_handshake_errors.inc();
        shared.server.watchers.tls_failed(why, self.layer.fd());
    }

    /// Drops its TLS.
    #[cold]
    pub(super) fn forget_layer(&mut self, shared: &mut WorkerShared) {
        if let Layer::Tls(secure) = replace(&mut self.layer, Layer::Plain)
            && secure.shaking
            && let Some(tls) = &mut shared.tls
        {
            tls.places.leave(secure.source);
        }
    }

    /// Goes on with its handshake, or answers what has come.
    pub(super) fn converse_secure(&mut self, shared: &mut WorkerShared, now_ns: u64) -> Next {
        match self.shake(shared, now_ns) {
            Some(next) => next,
            None => self.converse_over::<true>(shared, now_ns),
        }
    }

    /// What the connection waits for in its handshake. `None`: that is over.
    fn shake(&mut self, shared: &mut WorkerShared, now_ns: u64) -> Option<Next> {
        if !self.layer.is_shaking() {
            return None;
        }
        if self.stopping.is_some() && self.end.is_none() {
            (self.end, self.moved_ns) = (Some(End::Shutdown), now_ns);
        }
        let Some(secure) = self.layer.tls() else {
            if self.end.is_some() {
                self.machine.close();
                self.machine.drop_input();
            }
            return Some(Next::Client);
        };
        let mut failure = None;
        match secure.found.take() {
            _ if self.end.is_some() => secure.drop_outgoing(),
            Some(Ok(step @ (TlsStep::Open | TlsStep::Ended))) => {
                if secure.is_new() {
                    shared.ops.tls_sessions.inc();
                }
                secure.ended = step == TlsStep::Ended;
                shared.ops.bytes_read.add(secure.plain.len() as u64);
                self.moved_ns = now_ns;
            }
            Some(Err(error)) => failure = Some(error),
            Some(Ok(TlsStep::Blocked)) | None => {
                if !secure.flush(&mut self.machine) {
                    return Some(Next::Client);
                }
                match secure.receive(&mut self.machine) {
                    Ok(true) => return Some(self.send_to_thread(shared, now_ns)),
                    Ok(false) if !self.has_all::<false>() => return Some(Next::Client),
                    Ok(false) => failure = Some(io::ErrorKind::UnexpectedEof.into()),
                    Err(error) => failure = Some(error),
                }
            }
        }
        if let Some(error) = failure {
            count_shortage(&error, shared);
            self.handshake_failed(&error.to_string(), shared);
            self.moved_ns = now_ns;
        }
        let secure = self.layer.tls()?;
        secure.shaking = false;
        if let Some(tls) = &mut shared.tls {
            tls.places.leave(secure.source);
        }
        None
    }

    fn send_to_thread(&mut self, shared: &mut WorkerShared, now_ns: u64) -> Next {
        let Some(tls) = &mut shared.tls else { return Next::Client };
        if let Layer::Tls(secure) = replace(&mut self.layer, Layer::Plain) {
            let fd = secure.fd;
            match tls.send(secure) {
                Ok(number) => self.layer = Layer::Away(number, fd),
                Err(secure) => {
                    self.layer = Layer::Tls(secure);
                    return Next::Until(now_ns + BUSY_NS);
                }
            }
        }
        Next::Client
    }

    /// Sends what TLS has to say first. False: not all of it yet.
    pub(super) fn flush_layer(&mut self) -> bool {
        self.layer.tls().is_none_or(|secure| secure.flush(&mut self.machine))
    }

    /// Says that nothing more will be sent. False: there is no space for it yet.
    pub(super) fn say_end(&mut self) -> bool {
        self.layer.tls().is_none_or(|secure| secure.say_end(&mut self.machine))
    }

    /// Seals as much as the send buffer has space for, and says how much that was. All, where the session
    /// can not: it is over then.
    pub(super) fn write_secure(&mut self, bytes: &[u8], tls: &mut Option<Box<Tls>>) -> usize {
        let (Some(secure), Some(tls)) = (self.layer.tls(), tls) else { return bytes.len() };
        secure.write(&mut self.machine, bytes, &mut tls.sealed).unwrap_or_else(|_| {
            self.end = Some(End::Error);
            bytes.len()
        })
    }

    /// Gives the conversation what there is of the next requests.
    pub(super) fn advance_secure(&mut self, shared: &mut WorkerShared, now_ns: u64) -> Progress {
        let Some(mut tls) = shared.tls.take() else { return NOTHING };
        let is_long = self.long_input.is_some();
        let mut plain = self.long_input.take().unwrap_or_else(|| take(&mut tls.plain));
        if let (Some(secure), false) = (self.layer.tls(), is_long) {
            plain.clear();
            plain.append(&mut secure.plain);
        }
        let mut input = Input { come: plain.len(), plain, is_long };
        let advanced = self.advance_over(&mut tls, &mut input, shared, now_ns);
        let Input { mut plain, is_long, come } = input;
        shared.ops.bytes_read.add(come as u64);
        if is_long && come > 0 {
            self.note_moved(come, now_ns);
        }
        let wants = self.conversation.wants();
        let done = advanced.and_then(|progress| {
            plain.drain(..progress.consumed.min(plain.len()));
            // What is left behind a long request is short again.
            let is_short = progress.consumed > 0 && plain.len() <= IN_BYTES && wants <= IN_BYTES;
            if let (Some(secure), true) = (self.layer.tls(), is_short || !is_long) {
                secure.plain = copy(&plain)?;
                if is_long {
                    plain.clear();
                }
            }
            Ok(progress)
        });
        let is_over = done.is_err();
        match is_long {
            true if plain.is_empty() || is_over => shared.spill.give(plain),
            true => self.long_input = Some(plain),
            false => tls.plain = plain,
        }
        shared.tls = Some(tls);
        let progress = done.unwrap_or_else(|error| self.is_no_record(&error, shared));
        if progress.consumed > 0 || progress.close || progress.more {
            self.moved_ns = now_ns;
        }
        progress
    }

    /// Answers what `input` has and what comes to it.
    fn advance_over(
        &mut self,
        tls: &mut Tls,
        input: &mut Input,
        shared: &mut WorkerShared,
        now_ns: u64,
    ) -> io::Result<Progress> {
        // Replies are to fit the send buffer with what records add.
        let room = self.machine.room().min(OUT_BYTES).saturating_sub(RECORDS * TLS_OVERHEAD_BYTES);
        let before = replace(&mut input.come, 0);
        // More is opened only where what there is has no answer.
        if input.is_long && self.may_have_request(&input.plain) {
            let (login, conversation) = (&mut self.login, &mut self.conversation);
            let progress = answer(login, conversation, shared, &input.plain, Room::Long(room));
            if progress != NOTHING || !shared.out.is_empty() {
                return Ok(progress);
            }
        }
        loop {
            let Some(secure) = self.layer.tls() else { return Ok(NOTHING) };
            let Input { plain, is_long, come } = input;
            if *is_long || Secure::may_hold(plain.len()) {
                let wants = self.conversation.wants();
                let enough = |plain: &[u8]| !*is_long || has_enough(plain, before, wants);
                let opened = secure.open(&mut self.machine, &mut tls.records, plain, enough);
                *come = plain.len() - before;
                opened?;
            }
            let (login, conversation) = (&mut self.login, &mut self.conversation);
            let room = if *is_long { Room::Long(room) } else { Room::Short(room) };
            let progress = answer(login, conversation, shared, plain, room);
            let answers = progress.consumed > 0 || progress.close || progress.more;
            let is_held_up = progress.needs > 0 || !shared.out.is_empty();
            let is_full = self.conversation.wants() > IN_BYTES
                || (!Secure::may_hold(plain.len()) && self.machine.waiting() > 0);
            if *is_long || answers || is_held_up || !is_full {
                return Ok(progress);
            }
            let Some(mut buffer) = shared.spill.take() else { return Ok(NO_BUFFER) };
            if let Err(error) = buffer.try_reserve(plain.len()) {
                shared.spill.give(buffer);
                return Err(error.into());
            }
            buffer.append(plain);
            tls.plain = replace(plain, buffer);
            *is_long = true;
            self.spill(&mut shared.long, now_ns);
        }
    }

    /// Ends the connection for what came of it.
    fn is_no_record(&mut self, error: &io::Error, shared: &WorkerShared) -> Progress {
        count_shortage(error, shared);
        if error.kind() == io::ErrorKind::InvalidData {
            shared.ops.tls_proto_errors.inc();
            shared.server.watchers.tls_failed(&error.to_string(), self.layer.fd());
        }
        self.end = Some(End::Error);
        Progress { close: true, ..NOTHING }
    }
}

/// Plain bytes that are to be answered.
struct Input {
    plain: Vec<u8>,
    /// In a buffer of the spill.
    is_long: bool,
    /// How many of them came just now.
    come: usize,
}

fn count_shortage(error: &io::Error, shared: &WorkerShared) {
    if error.kind() == io::ErrorKind::OutOfMemory {
        shared.ops.malloc_fails.inc();
    }
}
