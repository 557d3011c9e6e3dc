//! One connection: read, answer whole commands, write, in turn. What takes much memory is in
//! [`large`].

use super::drain;
use super::input::Input;
use super::large::{self, Gathered};
use super::pool::{OUT_BYTES, SMALL_BYTES, TURN_OUT_BYTES};
use super::shared::{End, ThreadShared, answer, send_some};
use super::transport::Stream;
use super::waiting::idle;
use dataplane::commands::login::Login;
use dataplane::commands::{Conversation, PARTING_MAX_NS};
use dataplane::observe::watch::{self, BUFFER_BYTES, Watching};
use dataplane::observe::{Conn, ConnState, Transport};
use dataplane::rdma::Between;
use std::future::{Future, ready};
use std::io;
use std::mem::take;
use std::pin::{Pin, pin};
use std::time::{Duration, Instant};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// Buffer for bytes that are read and dropped.
const UNHEARD_BYTES: usize = 512;
/// Longest wait for a client that is to receive the last replies of a connection that we end.
pub(super) const PARTING_MAX: Duration = Duration::from_nanos(PARTING_MAX_NS);

/// What a connection has said, from its first byte on.
pub(super) struct Dialogue {
    login: Login,
    conversation: Conversation,
}

impl Dialogue {
    /// Whether the rest of a refused store's data block is awaited.
    pub(super) fn is_in_refused(&self) -> bool {
        self.conversation.unsaid().is_some()
    }

    fn new(shared: &ThreadShared, stream: &Stream) -> Self {
        let mut conversation =
            Conversation::new(shared.item_max_bytes).in_turns_of(shared.requests_per_turn);
        if shared.server.rdma.is_some()
            && let Some((ours, theirs)) = stream.addresses()
        {
            conversation.allow_pair(Between { ours, theirs });
        }
        let login = Login::new(shared.server.dialects, shared.users.clone());
        Self { login, conversation }
    }
}

/// Ends the connection in good order, where its client may still hear of it.
pub(super) async fn finish(
    stream: &mut Stream,
    shared: &ThreadShared,
    conn: &Conn,
    ended: io::Result<End>,
) -> End {
    let end = match ended {
        Ok(end) => end,
        Err(error) if is_idle(&error) && shared.is_over() => End::Cut,
        Err(error) if is_idle(&error) => End::Idle,
        Err(error) if error.kind() == io::ErrorKind::QuotaExceeded => End::Stalled,
        Err(error) => {
            shared.count_shortage(&error);
            End::Failed(error)
        }
    };
    if matches!(end, End::Idle) {
        shared.ops.idle_kicks.inc();
    }
    let most = match end {
        End::Conversation | End::Lost => PARTING_MAX,
        End::Service { heard } => drain::fin_max(heard),
        End::Cut => drain::fin_max(true),
        End::Client | End::Stalled | End::Idle | End::Failed(_) => {
            stream.discard();
            return end;
        }
    };
    conn.set_state(ConnState::Closing);
    // On the heap: every connection would have to hold space for it.
    let _ = timeout(most, Box::pin(take_leave(stream))).await;
    end
}

/// Ends the connection from our side and reads on until the client has ended it too: closing with
/// bytes unread would reset it, and take from the client replies that have not arrived yet.
async fn take_leave(stream: &mut Stream) -> io::Result<()> {
    stream.shutdown()?;
    let mut unwanted = Vec::with_capacity(UNHEARD_BYTES);
    while stream.read_buf(&mut unwanted).await? > 0 {
        unwanted.clear();
    }
    Ok(())
}

/// Whether it is sending that gave up, and not the kernel.
fn is_idle(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none()
}

/// Answers until nothing has come in part, or the connection is to end. There is a dialogue from
/// the first byte on.
pub(super) async fn converse(
    stream: &mut Stream,
    shared: &ThreadShared,
    conn: &Conn,
    dialogue: &mut Option<Box<Dialogue>>,
) -> io::Result<Option<End>> {
    let mut input = Input::default();
    // Made once: it is only asked, and only when nothing has come.
    let mut stop = pin!(shared.stopping());
    let mut heard = false;
    loop {
        let draining = shared.drain().is_some();
        let in_request = input.is_begun();
        let in_refused = dialogue.as_ref().is_some_and(|dialogue| dialogue.is_in_refused());
        let in_part = in_request || in_refused || stream.holds_part();
        if shared.is_over() {
            let cut = in_part || input.has_more(stream);
            return Ok(Some(if cut { End::Cut } else { End::Service { heard } }));
        }
        if input.unread().len() > SMALL_BYTES
            && let Some(Dialogue { conversation, .. }) = dialogue.as_deref_mut()
        {
            match large::gather(stream, shared, conn, conversation, &mut input).await? {
                Gathered::More => {}
                Gathered::Refused => continue,
                Gathered::End(end) => return Ok(Some(end)),
            }
        } else {
            // A line without its end may end with any byte.
            let wants = dialogue.as_ref().map_or(0, |dialogue| dialogue.conversation.wants());
            conn.set_state(match wants > input.unread().len() + 1 {
                _ if in_refused => ConnState::Swallowing,
                true => ConnState::ReadingRest,
                false => ConnState::Reading,
            });
            let most = shared.time_allowed(in_part);
            let come = tokio::select! {
                biased;
                come = input.receive(stream, &shared.spare_input, || shared.may_read_much()) => Some(come?),
                // Nothing has come: it waits outside.
                () = ready(()), if !in_request && !draining => return Ok(None),
                _ = &mut stop, if !draining => continue,
                () = idle(most) => None,
            };
            let Some(come) = come else {
                match shared.drain() {
                    // The runtime has not noticed yet, as after a pause of the whole process.
                    None if input.has_more(stream) => yield_now().await,
                    None => return Ok(Some(End::Idle)),
                    // The same; or there is more to say at the bound.
                    Some(drain) if input.has_more(stream) || drain.is_over() => yield_now().await,
                    // A part of a record has come only now: its rest is waited for.
                    Some(_) if !in_part && stream.holds_part() => {}
                    Some(_) => return Ok(Some(End::Service { heard })),
                }
                continue;
            };
            let Some(new) = come else { return Ok(Some(End::Client)) };
            shared.ops.bytes_read.add(new as u64);
        }
        heard |= draining;
        let Dialogue { login, conversation } =
            &mut **dialogue.get_or_insert_with(|| Box::new(Dialogue::new(shared, stream)));
        let came = Instant::now();
        conn.has_command(came);
        let mut out = shared.spare_output.take();
        if !login.is_open() {
            let progress =
                login.advance(input.unread(), (&shared.ops, &shared.server.version), &mut out);
            input.at += progress.consumed;
            if !login.is_open() {
                input.end_peek(stream, &shared.spare_input, false)?;
                if let Some(sent) = send(stream, shared, conn, &mut out)? {
                    large::finish_sending(stream, shared, &mut input, &mut out, sent).await?;
                }
                if progress.close {
                    return Ok(Some(End::Conversation));
                }
                input.rest(&shared.spare_input)?;
                shared.spare_output.give(out);
                continue;
            }
        }
        let buffers = (&mut input, &mut out);
        if let Some(end) = answer_all(stream, shared, conn, conversation, buffers, came).await? {
            return Ok(Some(end));
        }
        input.rest(&shared.spare_input)?;
        shared.spare_output.give(out);
        if !input.is_begun() && shared.drain().is_none() {
            return Ok(None);
        }
    }
}

/// Answers whole requests, until what has come of the next is a part. An end, if there is one.
async fn answer_all<'s>(
    stream: &mut Stream,
    shared: &'s ThreadShared,
    conn: &Conn,
    conversation: &mut Conversation,
    (input, out): (&mut Input<'s>, &mut Vec<u8>),
    came: Instant,
) -> io::Result<Option<End>> {
    let fd = u64::try_from(conn.fd()).unwrap_or(0);
    loop {
        let done = shared.ops.latency.done();
        shared.ops.client.set(fd);
        // With little memory left, a little at a time.
        let (pause, most) = match shared.pool.has_turn() {
            true => (OUT_BYTES, TURN_OUT_BYTES),
            false => (SMALL_BYTES / 2, SMALL_BYTES),
        };
        let room = (&mut *out, pause, most);
        let progress = answer(stream, shared, conversation, input.unread(), room);
        input.at += progress.consumed;
        let has_more = progress.more || progress.full || progress.needs > 0;
        input.end_peek(stream, &shared.spare_input, has_more)?;
        let answered = shared.ops.latency.done();
        let left = send(stream, shared, conn, out)?;
        let ns = u64::try_from(came.elapsed().as_nanos()).unwrap_or(u64::MAX);
        shared.ops.latency.record_between(&done, &answered, Transport::Tcp, ns);
        if let Some(sent) = left {
            // Rare, and long.
            large::finish_sending(stream, shared, input, out, sent).await?;
        }
        if let Some(watching) = conversation.take_watching() {
            conn.set_state(ConnState::Watching);
            return watched(stream, shared, (input, take(out)), watching).await.map(Some);
        }
        if progress.close {
            return Ok(Some(End::of(conversation)));
        }
        if has_more && shared.is_over() {
            return Ok(Some(End::Cut));
        }
        if progress.needs > 0 {
            let large = (&mut *out, progress.needs);
            let end = large::reply(stream, shared, conn, conversation, input, large);
            if let Some(end) = end.await? {
                return Ok(Some(end));
            }
            if let Some(watching) = conversation.take_watching() {
                return watched(stream, shared, (input, take(out)), watching).await.map(Some);
            }
        } else if has_more {
            // Who takes much gives others a turn, and the buffer for it.
            if progress.more {
                shared.ops.conn_yields.inc();
            }
            shared.spare_output.give(take(out));
            let _kept = shared.keep(input)?;
            yield_now().await;
            *out = shared.spare_output.take();
        } else {
            return Ok(None);
        }
    }
}

/// [`watch`], on the heap. What is held of requests and replies is given back first: a client may watch for
/// days.
fn watched<'a>(
    stream: &'a mut Stream,
    shared: &'a ThreadShared,
    (input, out): (&mut Input<'_>, Vec<u8>),
    watching: Watching,
) -> Pin<Box<dyn Future<Output = io::Result<End>> + 'a>> {
    input.forget(&shared.spare_input);
    shared.spare_output.give(out);
    Box::pin(watch(stream, shared, watching))
}

/// Sends a watching client its lines until it goes. What it says is not heard.
async fn watch(stream: &mut Stream, shared: &ThreadShared, watching: Watching) -> io::Result<End> {
    let mut stop = pin!(shared.stopping());
    let mut unheard = Vec::with_capacity(UNHEARD_BYTES);
    let mut lines = Vec::with_capacity(BUFFER_BYTES);
    loop {
        tokio::select! {
            _ = &mut stop => return Ok(End::Service { heard: false }),
            come = stream.read_buf(&mut unheard) => {
                if come? == 0 {
                    return Ok(End::Client);
                }
                unheard.clear();
            }
            () = sleep(Duration::from_nanos(watch::PAUSE_NS)) => {}
        }
        watching.take(&mut lines);
        tokio::select! {
            _ = &mut stop => return Ok(End::Service { heard: false }),
            sent = stream.write_all(&lines) => sent?,
        }
        shared.ops.bytes_written.add(lines.len() as u64);
        lines.clear();
    }
}

/// Writes `out` to the socket, as far as the kernel takes it at once. Empties it if that was all; otherwise
/// returns how much it was.
fn send(
    stream: &mut Stream,
    shared: &ThreadShared,
    conn: &Conn,
    out: &mut Vec<u8>,
) -> io::Result<Option<usize>> {
    if out.is_empty() {
        return Ok(None);
    }
    conn.set_state(ConnState::Writing);
    let sent = send_some(stream, shared, out)?;
    if sent < out.len() {
        return Ok(Some(sent));
    }
    out.clear();
    Ok(None)
}

#[cfg(test)]
pub(super) mod tests;
