//! What takes more memory than every connection has: the rest of a large request, a large reply, a
//! reply that is not taken. All of it is charged to the account first.
//!
//! In: a connection that can go no further without. Out: the same with its request whole,
//! its reply sent, or a refusal in words. Every wait for memory has a bound, and who holds memory
//! that others wait for must move [`PROGRESS_BYTES`] in [`PROGRESS_TIME`]: a request that does not
//! is refused, and the rest of it thrown away as it comes; a reply that does not is the end of its
//! connection.

use super::input::{Input, copied};
use super::pool::{Charge, OUT_BYTES, READ_BYTES, RESERVE_BYTES, SMALL_BYTES};
use super::shared::{End, ThreadShared, answer, send_some};
use super::transport::Stream;
use super::waiting::{LATE, idle};
use crate::process::allocator;
use dataplane::commands::{Conversation, Ctx, Progress};
use dataplane::observe::{Conn, ConnState, Transport};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};
use tokio::sync::SemaphorePermit;
use tokio::task::yield_now;
use tokio::time::sleep;

/// What may be held of a request without a charge, beside a small reply.
const UNCHARGED_BYTES: usize = RESERVE_BYTES - SMALL_BYTES;
/// What a connection must read or send in that time, while others wait for the memory that it
/// holds.
const PROGRESS_BYTES: usize = 64 << 10;
/// What of this must have left the kernel: a client's kernel acknowledges it in steps, mostly of up to 64 KB.
const TAKEN_BYTES: usize = 30_000;
const PROGRESS_TIME: Duration = Duration::from_secs(1);
/// The most that is moved in one turn of what has to wait: then others have theirs, and the runtime looks for what has
/// come.
const PIECE_BYTES: usize = 128 << 10;

/// Work of its own on the heap: few connections need it, and every connection would have to hold space for it.
type Boxed<'a, T> = Pin<Box<dyn Future<Output = io::Result<T>> + 'a>>;

/// What became of a request that has come in part.
#[derive(Debug)]
pub(super) enum Gathered {
    /// More of it is there: all, where its length is known.
    More,
    /// It was refused.
    Refused,
    /// The connection is to end.
    End(End),
}

/// How much a connection has moved lately.
struct Pace {
    since: Instant,
    moved: usize,
    last: Instant,
    /// What the kernel had not got rid of when this time began.
    queued: usize,
    /// Less is too little.
    least: usize,
}

impl Pace {
    /// Of one that reads.
    fn of_reads() -> Self {
        let now = Instant::now();
        Self { since: now, moved: 0, last: now, queued: 0, least: PROGRESS_BYTES }
    }

    /// Of one that writes, behind so many bytes that the kernel still has.
    fn of_writes(queued: usize) -> Self {
        Self { queued, least: TAKEN_BYTES, ..Self::of_reads() }
    }

    fn note_moved(&mut self, bytes: usize) {
        self.moved = self.moved.saturating_add(bytes);
        self.last = Instant::now();
    }

    /// Whether it was too little, by the end of a time at which the kernel has so much of what was written: it is
    /// what its client took that counts. Begins a new one.
    fn ends_too_slow(&mut self, queued: usize) -> bool {
        let taken = (self.moved + self.queued).saturating_sub(queued);
        let now = Instant::now();
        if taken > 0 {
            self.last = now;
        }
        (self.since, self.moved, self.queued) = (now, 0, queued);
        taken < self.least
    }

    /// The rest of the present time. True: there was a pause in it.
    async fn time(&self) -> bool {
        sleep(PROGRESS_TIME.saturating_sub(self.since.elapsed())).await;
        self.since.elapsed() >= PROGRESS_TIME + LATE
    }
}

/// Reads on towards a whole request, in memory that is charged for all of it first.
pub(super) fn gather<'a, 'd: 'a>(
    stream: &'a mut Stream,
    shared: &'d ThreadShared,
    conn: &'a Conn,
    conversation: &'a mut Conversation,
    input: &'a mut Input<'d>,
) -> Boxed<'a, Gathered> {
    Box::pin(gather_charged(stream, shared, conn, conversation, input))
}

async fn gather_charged<'d>(
    stream: &mut Stream,
    shared: &'d ThreadShared,
    conn: &Conn,
    conversation: &mut Conversation,
    input: &mut Input<'d>,
) -> io::Result<Gathered> {
    input.bytes.drain(..input.at);
    input.at = 0;
    let come = input.bytes.len();
    let whole = conversation.wants();
    // A line whose end has not come may be some times as long.
    let whole = if whole > come + 1 { whole } else { (come + READ_BYTES).next_power_of_two() };
    conn.set_state(ConnState::ReadingRest);
    if input.charge.as_ref().is_none_or(|charge| charge.bytes() < whole) {
        let mut turn = None;
        let taken = match shared.pool.try_take(whole) {
            Some(charge) => Some(charge),
            None => {
                // What came is held meanwhile.
                let held = input.charge.is_none() && come > UNCHARGED_BYTES;
                if held && shared.pool.may_wait() {
                    input.shrink(&shared.spare_input)?;
                    input.charge = Some(shared.charge_behind(input.bytes.capacity())?);
                }
                if held && input.charge.is_none() {
                    None
                } else {
                    let taken = tokio::select! {
                        taken = shared.pool.take(whole) => taken,
                        () = shared.over() => return Ok(Gathered::End(End::Cut)),
                    };
                    if taken.is_none() {
                        turn = Turn::to_be_told(shared).await?;
                    }
                    taken
                }
            }
        };
        let Some(charge) = taken else {
            shared.pool.figures().refuse_request();
            return refuse(stream, shared, conversation, input, turn).await;
        };
        input.charge = Some(charge);
    }
    let known = conversation.wants() > come + 1;
    let mut pace = Pace::of_reads();
    while input.bytes.len() < if known { whole } else { come + 1 } {
        input.grow(whole, stream.needs_room())?;
        tokio::select! {
            biased;
            turn = turn_of(shared, stream.readable()) => {
                let turn = turn?;
                let come = match stream.try_read_buf(&mut input.bytes, PIECE_BYTES) {
                    Ok(0) => return Ok(Gathered::End(End::Client)),
                    come => none_if_blocked(come)?,
                };
                shared.ops.bytes_read.add(come as u64);
                pace.note_moved(come);
                turn.end().await;
            }
            () = shared.over() => return Ok(Gathered::End(End::Cut)),
            paused = pace.time() => {
                if paused {
                    pace = Pace::of_reads();
                    continue;
                }
                if shared.idle_max.is_some_and(|most| pace.last.elapsed() >= most) {
                    return Ok(Gathered::End(End::Idle));
                }
                if shared.drain().is_some_and(|drain| pace.last.elapsed() >= drain.time_allowed(true)) {
                    return Ok(Gathered::End(End::Cut));
                }
                if pace.ends_too_slow(0) && input.charge.as_ref().is_some_and(Charge::must_yield) {
                    shared.pool.figures().stall();
                    let turn = Turn::to_be_told(shared).await?;
                    return refuse(stream, shared, conversation, input, turn).await;
                }
            }
        }
    }
    Ok(Gathered::More)
}

/// A turn to move a piece, once there is something to move.
async fn turn_of<'d>(
    shared: &'d ThreadShared,
    ready: impl Future<Output = io::Result<()>>,
) -> io::Result<Turn<'d>> {
    ready.await?;
    Turn::of(shared).await
}

/// One connection of a thread moves much at a time, so that small requests need not wait for many.
struct Turn<'d>(SemaphorePermit<'d>);

impl<'d> Turn<'d> {
    async fn of(shared: &'d ThreadShared) -> io::Result<Self> {
        // It is never closed.
        shared.large_turn.acquire().await.map(Self).map_err(io::Error::other)
    }

    /// A turn to be refused in. When memory has run out the client does not wait for one.
    async fn to_be_told(shared: &'d ThreadShared) -> io::Result<Option<Self>> {
        match allocator::is_short() {
            true => Ok(None),
            false => Self::of(shared).await.map(Some),
        }
    }

    /// Others first, before the next has one.
    async fn end(self) {
        yield_now().await;
        drop(self.0);
    }
}

/// Nothing, where there was nothing after all.
fn none_if_blocked(moved: io::Result<usize>) -> io::Result<usize> {
    match moved {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        moved => moved,
    }
}

/// Refuses a request that has come in part. What came of it is forgotten.
async fn refuse<'d>(
    stream: &mut Stream,
    shared: &'d ThreadShared,
    conversation: &mut Conversation,
    input: &mut Input<'d>,
    turn: Option<Turn<'d>>,
) -> io::Result<Gathered> {
    let progress = told(stream, shared, conversation, input, (&mut Vec::new(), turn)).await?;
    Ok(if progress.close { Gathered::End(End::Lost) } else { Gathered::Refused })
}

/// Sends a client the refusal of its request. Those that came together have waited as long, and
/// each has a turn.
async fn told<'d>(
    stream: &mut Stream,
    shared: &'d ThreadShared,
    conversation: &mut Conversation,
    input: &mut Input<'d>,
    (out, turn): (&mut Vec<u8>, Option<Turn<'d>>),
) -> io::Result<Progress> {
    let progress = {
        let mut session = shared.session.borrow_mut();
        let mut ctx = Ctx::new(&mut session, &shared.ops, &shared.server);
        conversation.refuse(&mut ctx, input.unread(), out)
    };
    input.at += progress.consumed;
    input.rest(&shared.spare_input)?;
    let sent = send_some(stream, shared, out)?;
    if let Some(turn) = turn {
        turn.end().await;
    }
    send_rest(stream, shared, input, out, sent, None).await?;
    Ok(progress)
}

/// Makes and sends a reply that needs a buffer of so many bytes. Says how the connection is to end,
/// if it is.
pub(super) fn reply<'a, 'd: 'a>(
    stream: &'a mut Stream,
    shared: &'d ThreadShared,
    conn: &'a Conn,
    conversation: &'a mut Conversation,
    input: &'a mut Input<'d>,
    (out, needs): (&'a mut Vec<u8>, usize),
) -> Boxed<'a, Option<End>> {
    Box::pin(reply_charged(stream, shared, conn, conversation, input, (out, needs)))
}

async fn reply_charged<'d>(
    stream: &mut Stream,
    shared: &'d ThreadShared,
    conn: &Conn,
    conversation: &mut Conversation,
    input: &mut Input<'d>,
    (out, needs): (&mut Vec<u8>, usize),
) -> io::Result<Option<End>> {
    let came = Instant::now();
    shared.spare_output.give(std::mem::take(out));
    // With what came behind the request, which is held as long.
    let held = if input.charge.is_none() { input.unread().len() } else { 0 };
    let whole = needs.saturating_add(held);
    let mut turn = None;
    let granted = match shared.pool.try_take(whole) {
        Some(charge) => Some(charge),
        None => {
            let held = input.trim(&shared.spare_input)?;
            let _held = if held > RESERVE_BYTES { Some(shared.charge_behind(held)?) } else { None };
            let charge = tokio::select! {
                charge = shared.pool.take(whole) => charge,
                () = shared.over() => return Ok(Some(End::Cut)),
            };
            if charge.is_none() {
                turn = Turn::to_be_told(shared).await?;
            }
            charge
        }
    };
    let Some(charge) = granted else {
        shared.pool.figures().refuse_reply();
        let progress = told(stream, shared, conversation, input, (out, turn)).await?;
        return Ok(progress.close.then_some(End::Lost));
    };
    let turn = Turn::of(shared).await?;
    let done = shared.ops.latency.done();
    let room = (&mut *out, OUT_BYTES, needs);
    let progress = answer(stream, shared, conversation, input.unread(), room);
    input.at += progress.consumed;
    let answered = shared.ops.latency.done();
    conn.set_state(ConnState::Writing);
    let sent = send_piece(stream, shared, out)?;
    turn.end().await;
    send_rest(stream, shared, input, out, sent, Some(charge)).await?;
    let ns = u64::try_from(came.elapsed().as_nanos()).unwrap_or(u64::MAX);
    shared.ops.latency.record_between(&done, &answered, Transport::Tcp, ns);
    Ok(progress.close.then(|| End::of(conversation)))
}

/// Sends a piece, or as much of it as the kernel takes at once; what that was.
fn send_piece(stream: &mut Stream, shared: &ThreadShared, left: &[u8]) -> io::Result<usize> {
    send_some(stream, shared, left.get(..PIECE_BYTES).unwrap_or(left))
}

/// Sends what the kernel did not take at once, of which `sent` bytes have gone, in a buffer of its
/// own and charged. Leaves `out` empty.
pub(super) fn finish_sending<'a, 'd: 'a>(
    stream: &'a mut Stream,
    shared: &'d ThreadShared,
    input: &'a mut Input<'d>,
    out: &'a mut Vec<u8>,
    sent: usize,
) -> Boxed<'a, ()> {
    Box::pin(send_rest(stream, shared, input, out, sent, None))
}

/// The same, with what it is charged to already, which is kept: what is held beyond it, a record of TLS
/// for one, is charged as left behind.
async fn send_rest<'d>(
    stream: &mut Stream,
    shared: &'d ThreadShared,
    input: &mut Input<'_>,
    out: &mut Vec<u8>,
    sent: usize,
    charge: Option<Charge<'d>>,
) -> io::Result<()> {
    let left = out.get(sent..).unwrap_or_default();
    if left.is_empty() {
        out.clear();
        return Ok(());
    }
    // What is about as long as its buffer stays in it, as far as that is charged.
    let stays = charge.is_some() && left.len() > out.capacity() / 2;
    let (mut at, rest) = if stays { (sent, std::mem::take(out)) } else { (0, copied(left)?) };
    shared.spare_output.give(std::mem::take(out));
    let held = rest.capacity() + input.trim(&shared.spare_input)? + stream.held_bytes();
    let charge = charge.map(|mut charge| {
        charge.shrink_to(held);
        charge
    });
    let beyond = held.saturating_sub(charge.as_ref().map_or(0, Charge::bytes));
    let beyond = if beyond > RESERVE_BYTES { Some(shared.charge_behind(beyond)?) } else { None };
    let charges = [charge.as_ref(), beyond.as_ref(), input.charge.as_ref()];
    let is_charged = charges.iter().any(Option::is_some);
    let must_yield = || charges.iter().flatten().any(|charge| charge.must_yield());
    let mut pace = Pace::of_writes(stream.queued_bytes());
    while let Some(left) = rest.get(at..).filter(|left| !left.is_empty()) {
        let queued = if shared.idle_max.is_some() { stream.queued_bytes() } else { 0 };
        tokio::select! {
            biased;
            turn = turn_of(shared, stream.writable()) => {
                let turn = turn?;
                let written = send_piece(stream, shared, left)?;
                at += written;
                pace.note_moved(written);
                turn.end().await;
            }
            () = shared.over() => return Err(io::ErrorKind::TimedOut.into()),
            () = idle(shared.idle_max), if !is_charged => {
                // What it took during a pause the runtime has not noticed yet. Who took all waits for a turn.
                if stream.queued_bytes() >= queued.max(1) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
            }
            paused = pace.time(), if is_charged => {
                let queued = stream.queued_bytes();
                if paused || queued == 0 {
                    pace = Pace::of_writes(queued);
                    continue;
                }
                let slow = pace.ends_too_slow(queued);
                if shared.idle_max.is_some_and(|most| pace.last.elapsed() >= most) {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                if slow && must_yield() {
                    shared.pool.figures().stall();
                    return Err(io::ErrorKind::QuotaExceeded.into());
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
