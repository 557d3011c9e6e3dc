//! One connection: read, answer whole commands, write, in turn.

use super::auth::Gate;
use super::transport::Stream;
use crate::credentials::Credentials;
use crate::flags::Dialect;
use dataplane::protocol::stats::{Conn, ConnState, Transport};
use dataplane::protocol::stream::Conversation;
use dataplane::protocol::watch::{BUFFER_BYTES, Watching};
use dataplane::protocol::{OpCounters, Server};
use dataplane::store::Session;
use std::cell::RefCell;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// Room made for each read.
const READ_BYTES: usize = 16 << 10;
/// Replies gathered before they are sent: many small ones leave in one write.
const OUT_BYTES: usize = 64 << 10;
/// Largest buffer that a connection keeps while it waits.
const KEEP_BYTES: usize = 64 << 10;
/// Pause between two looks for lines that a watching client is to get.
const WATCH_PAUSE: Duration = Duration::from_millis(20);
/// How long a client may take to receive the last replies of a connection that we end.
const PARTING_MAX: Duration = Duration::from_secs(2);

/// What the connections of one thread answer with.
pub(super) struct Desk {
    pub(super) session: RefCell<Session>,
    pub(super) ops: Arc<OpCounters>,
    pub(super) server: Arc<Server>,
    pub(super) item_max_bytes: usize,
    pub(super) requests_per_turn: usize,
    pub(super) dialect: Dialect,
    /// Whom clients must be, where they must authenticate.
    pub(super) credentials: Option<Arc<Credentials>>,
    /// How long a connection may send nothing.
    pub(super) idle_max: Option<Duration>,
    pub(super) stopped: watch::Receiver<bool>,
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed it.
    Client,
    /// `quit`, or input that cannot be followed.
    Conversation,
    /// Nothing came for too long.
    Idle,
    /// The service stops.
    Service,
    /// The network.
    #[expect(dead_code, reason = "shown in the log")]
    Failed(io::Error),
}

impl End {
    /// What watchers are told.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Client | Self::Conversation => "normal",
            Self::Idle => "idle_timeout",
            Self::Service => "shutdown",
            Self::Failed(_) => "error",
        }
    }
}

/// Serves the connection to its end.
pub(super) async fn serve(stream: Stream, desk: &Desk, conn: &Conn) -> End {
    let end = converse(&stream, desk, conn).await.unwrap_or_else(End::Failed);
    if matches!(end, End::Conversation) {
        conn.is(ConnState::Closing);
        let _ = timeout(PARTING_MAX, part(&stream)).await;
    }
    end
}

/// Ends the connection from our side and reads on until the client has ended it too: closing with
/// bytes unread would reset it, and take from the client replies that have not arrived yet.
async fn part(stream: &Stream) -> io::Result<()> {
    stream.shutdown()?;
    let mut unwanted = Vec::with_capacity(READ_BYTES);
    loop {
        stream.readable().await?;
        match stream.try_read_buf(&mut unwanted) {
            Ok(0) => return Ok(()),
            Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
            _ => unwanted.clear(),
        }
    }
}

/// Ends when a connection that sends nothing has done so for too long.
async fn idle(most: Option<Duration>) {
    match most {
        Some(most) => sleep(most).await,
        None => std::future::pending().await,
    }
}

async fn converse(stream: &Stream, desk: &Desk, conn: &Conn) -> io::Result<End> {
    stream.set_nodelay()?;
    let mut stopped = desk.stopped.clone();
    let mut gate = Gate::new(desk.dialect, desk.credentials.as_deref());
    let mut conversation =
        Conversation::new(desk.item_max_bytes).in_turns_of(desk.requests_per_turn);
    let mut input = Input::default();
    let mut out = Vec::new();
    let fd = u64::try_from(conn.fd()).unwrap_or(0);
    // Made once: at every turn it is only asked.
    let mut stop = pin!(stopped.wait_for(|&stop| stop));
    loop {
        conn.is(ConnState::Reading);
        tokio::select! {
            biased;
            _ = &mut stop => return Ok(End::Service),
            ready = stream.readable() => ready?,
            () = idle(desk.idle_max) => {
                desk.ops.idle_kicks.inc();
                return Ok(End::Idle);
            }
        }
        input.make_room(conversation.wants());
        match stream.try_read_buf(&mut input.bytes) {
            Ok(0) => return Ok(End::Client),
            Ok(n) => desk.ops.bytes_read.add(n as u64),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
            Err(e) => return Err(e),
        }
        let came = Instant::now();
        conn.has_command();
        if !gate.is_open() {
            let admission = gate.advance(input.unread(), &desk.ops, &mut out);
            input.at += admission.consumed;
            if !gate.is_open() {
                send(stream, desk, conn, &mut out).await?;
                if admission.close {
                    return Ok(End::Conversation);
                }
                input.rest();
                continue;
            }
        }
        loop {
            let done = desk.ops.latency.done();
            desk.ops.client.set(fd);
            let progress = conversation.advance(
                &mut desk.session.borrow_mut(),
                &desk.ops,
                &desk.server,
                input.unread(),
                &mut out,
                OUT_BYTES,
            );
            input.at += progress.consumed;
            let full = out.len() >= OUT_BYTES;
            let answered = desk.ops.latency.done();
            send(stream, desk, conn, &mut out).await?;
            let ns = u64::try_from(came.elapsed().as_nanos()).unwrap_or(u64::MAX);
            desk.ops.latency.record_between(&done, &answered, Transport::Tcp, ns);
            if let Some(watching) = conversation.take_watching() {
                conn.is(ConnState::Watching);
                return watch(stream, desk, watching).await;
            }
            if progress.close {
                return Ok(End::Conversation);
            }
            if progress.more {
                desk.ops.conn_yields.inc();
                yield_now().await;
            } else if !full {
                break;
            }
        }
        input.rest();
    }
}

/// Sends a watching client its lines until it goes. What it says is not heard.
async fn watch(stream: &Stream, desk: &Desk, watching: Watching) -> io::Result<End> {
    let mut stopped = desk.stopped.clone();
    let mut unheard = Vec::with_capacity(READ_BYTES);
    let mut lines = Vec::with_capacity(BUFFER_BYTES);
    loop {
        tokio::select! {
            _ = stopped.wait_for(|&stop| stop) => return Ok(End::Service),
            ready = stream.readable() => {
                ready?;
                unheard.clear();
                match stream.try_read_buf(&mut unheard) {
                    Ok(0) => return Ok(End::Client),
                    Err(e) if e.kind() != io::ErrorKind::WouldBlock => return Err(e),
                    _ => {}
                }
            }
            () = sleep(WATCH_PAUSE) => {}
        }
        watching.take(&mut lines);
        tokio::select! {
            _ = stopped.wait_for(|&stop| stop) => return Ok(End::Service),
            sent = stream.write_all(&lines) => sent?,
        }
        desk.ops.bytes_written.add(lines.len() as u64);
        lines.clear();
    }
}

async fn send(stream: &Stream, desk: &Desk, conn: &Conn, out: &mut Vec<u8>) -> io::Result<()> {
    if !out.is_empty() {
        conn.is(ConnState::Writing);
        stream.write_all(out).await?;
        desk.ops.bytes_written.add(out.len() as u64);
        empty(out);
    }
    Ok(())
}

fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEEP_BYTES);
}

/// Bytes received and not used up yet.
#[derive(Debug, Default)]
struct Input {
    bytes: Vec<u8>,
    /// Bytes at the front that are used up.
    at: usize,
}

impl Input {
    fn unread(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Moves what is left to the front.
    fn rest(&mut self) {
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.is_empty() {
            empty(&mut self.bytes);
        }
    }

    /// Makes room to read towards a request of `whole` bytes. Grows with what has come, not with
    /// what was announced.
    fn make_room(&mut self, whole: usize) {
        let missing = whole.saturating_sub(self.bytes.len());
        self.bytes.reserve(missing.min(self.bytes.len()).max(READ_BYTES));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_grows_with_what_has_come() {
        let mut input = Input::default();
        input.make_room(1 << 30);
        assert!((READ_BYTES..2 * READ_BYTES).contains(&input.bytes.capacity()));
        input.bytes.resize(READ_BYTES, 0);
        input.make_room(1 << 30);
        assert!(input.bytes.capacity() <= 4 * READ_BYTES);
    }

    #[test]
    fn input_forgets_what_was_used_and_gives_memory_back() {
        let mut input = Input { bytes: vec![7; 1 << 20], at: (1 << 20) - 2 };
        assert_eq!(input.unread(), [7, 7]);
        input.rest();
        assert_eq!(input.unread(), [7, 7]);
        input.at = 2;
        input.rest();
        assert!(input.unread().is_empty());
        assert!(input.bytes.capacity() <= KEEP_BYTES);
    }
}
