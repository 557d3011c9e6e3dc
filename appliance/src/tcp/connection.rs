//! One connection: read, answer whole commands, write, in turn.

use super::transport::Stream;
use dataplane::protocol::admission::{Gate, Users};
use dataplane::protocol::stats::{Conn, ConnState, Transport};
use dataplane::protocol::stream::Conversation;
use dataplane::protocol::watch::{BUFFER_BYTES, Watching};
use dataplane::protocol::{OpCounters, Server};
use dataplane::store::Session;
use std::cell::{Cell, RefCell};
use std::collections::TryReserveError;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// Room made for each read.
const READ_BYTES: usize = 16 << 10;
/// Replies gathered before they are sent: many small ones leave in one write.
const OUT_BYTES: usize = 64 << 10;
/// Largest buffer that is kept for the next to need one.
const KEEP_BYTES: usize = 256 << 10;
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
    /// Whom clients must be, where they must authenticate.
    pub(super) users: Option<Arc<dyn Users>>,
    /// How long a connection may send nothing, or take nothing of what it is owed.
    pub(super) idle_max: Option<Duration>,
    pub(super) stopped: watch::Receiver<bool>,
    /// Room to read into, and to gather replies in.
    pub(super) spare_input: Spare,
    pub(super) spare_output: Spare,
}

impl Desk {
    /// Counts a connection that ends for want of memory.
    fn count_shortage(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::OutOfMemory {
            self.ops.malloc_fails.inc();
        }
    }

    /// Whether the service has been told to stop: nothing else is ever said.
    fn is_stopping(&self) -> bool {
        self.stopped.has_changed().unwrap_or(true)
    }
}

/// How a connection ended.
#[derive(Debug)]
pub(super) enum End {
    /// The client closed it.
    Client,
    /// `quit`, or a refusal that ends it.
    Conversation,
    /// Input that cannot be followed.
    Lost,
    /// Nothing came for too long, or nothing was taken.
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
            Self::Lost | Self::Failed(_) => "error",
        }
    }
}

/// Serves the connection to its end.
pub(super) async fn serve(mut stream: Stream, desk: &Desk, conn: &Conn) -> End {
    let end = match converse(&mut stream, desk, conn).await {
        Ok(end) => end,
        Err(error) if is_idle(&error) => End::Idle,
        Err(error) => End::Failed(error),
    };
    if matches!(end, End::Idle) {
        desk.ops.idle_kicks.inc();
    }
    if matches!(end, End::Conversation | End::Lost) {
        conn.is(ConnState::Closing);
        let _ = timeout(PARTING_MAX, part(&mut stream)).await;
    }
    end
}

/// Ends the connection from our side and reads on until the client has ended it too: closing with
/// bytes unread would reset it, and take from the client replies that have not arrived yet.
async fn part(stream: &mut Stream) -> io::Result<()> {
    stream.shutdown()?;
    let mut unwanted = Vec::with_capacity(READ_BYTES);
    while stream.read_buf(&mut unwanted).await? > 0 {
        unwanted.clear();
    }
    Ok(())
}

/// Whether it is [`send`] that gave up, and not the kernel.
fn is_idle(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::TimedOut && error.raw_os_error().is_none()
}

/// Ends when a connection on which nothing moves has done so for too long.
async fn idle(most: Option<Duration>) {
    match most {
        Some(most) => sleep(most).await,
        None => std::future::pending().await,
    }
}

async fn converse(stream: &mut Stream, desk: &Desk, conn: &Conn) -> io::Result<End> {
    stream.set_nodelay()?;
    let mut stopped = desk.stopped.clone();
    let mut gate = Gate::new(desk.server.dialects, desk.users.clone());
    let mut conversation =
        Conversation::new(desk.item_max_bytes).in_turns_of(desk.requests_per_turn);
    let mut input = Input::default();
    let fd = u64::try_from(conn.fd()).unwrap_or(0);
    // Made once: it is only asked, and only when nothing has come.
    let mut stop = pin!(stopped.wait_for(|&stop| stop));
    loop {
        if desk.is_stopping() {
            return Ok(End::Service);
        }
        // A line without its end may end with any byte.
        let in_block = conversation.wants() > input.unread().len() + 1;
        conn.is(if in_block { ConnState::ReadingRest } else { ConnState::Reading });
        let come = tokio::select! {
            biased;
            come = input.receive(stream, &desk.spare_input, conversation.wants()) => {
                come.inspect_err(|e| desk.count_shortage(e))?
            }
            _ = &mut stop => return Ok(End::Service),
            () = idle(desk.idle_max) => return Ok(End::Idle),
        };
        if come == 0 {
            return Ok(End::Client);
        }
        desk.ops.bytes_read.add(come as u64);
        let came = Instant::now();
        conn.has_command(came);
        let mut out = desk.spare_output.take();
        if !gate.is_open() {
            let admission = gate.advance(input.unread(), &desk.ops, &mut out);
            input.at += admission.consumed;
            if !gate.is_open() {
                send(stream, desk, conn, &mut out).await?;
                if admission.close {
                    return Ok(End::Conversation);
                }
                input.rest(&desk.spare_input);
                desk.spare_output.give(out);
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
                return Ok(if conversation.is_lost() { End::Lost } else { End::Conversation });
            }
            if progress.more {
                desk.ops.conn_yields.inc();
                yield_now().await;
            } else if !full {
                break;
            }
        }
        input.rest(&desk.spare_input);
        desk.spare_output.give(out);
    }
}

/// Sends a watching client its lines until it goes. What it says is not heard.
async fn watch(stream: &mut Stream, desk: &Desk, watching: Watching) -> io::Result<End> {
    let mut stopped = desk.stopped.clone();
    let mut unheard = Vec::with_capacity(READ_BYTES);
    let mut lines = Vec::with_capacity(BUFFER_BYTES);
    loop {
        tokio::select! {
            _ = stopped.wait_for(|&stop| stop) => return Ok(End::Service),
            come = stream.read_buf(&mut unheard) => {
                if come? == 0 {
                    return Ok(End::Client);
                }
                unheard.clear();
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

async fn send(stream: &mut Stream, desk: &Desk, conn: &Conn, out: &mut Vec<u8>) -> io::Result<()> {
    if !out.is_empty() {
        conn.is(ConnState::Writing);
        let mut left = out.as_slice();
        while !left.is_empty() {
            let written = tokio::select! {
                biased;
                written = stream.write(left) => written?,
                () = idle(desk.idle_max) => return Err(io::ErrorKind::TimedOut.into()),
            };
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            left = left.get(written..).unwrap_or_default();
        }
        desk.ops.bytes_written.add(out.len() as u64);
        out.clear();
    }
    Ok(())
}

/// A buffer that the connections of one thread pass on: whoever owes nothing and is owed nothing
/// has none.
#[derive(Default)]
pub(super) struct Spare(Cell<Vec<u8>>);

impl Spare {
    /// An empty buffer.
    fn take(&self) -> Vec<u8> {
        self.0.take()
    }

    /// Gives a buffer back.
    fn give(&self, mut buffer: Vec<u8>) {
        if buffer.capacity() <= KEEP_BYTES {
            buffer.clear();
            self.0.set(buffer);
        }
    }
}

/// Bytes received and not used up yet.
#[derive(Debug, Default)]
struct Input {
    bytes: Vec<u8>,
    /// Bytes at the front that are used up.
    at: usize,
}

impl Input {
    /// Waits for more of a request of `whole` bytes, and takes what there is.
    async fn receive(
        &mut self,
        stream: &mut Stream,
        spare: &Spare,
        whole: usize,
    ) -> io::Result<usize> {
        poll_fn(|cx| {
            if self.make_room(spare, whole).is_err() {
                return Poll::Ready(Err(io::ErrorKind::OutOfMemory.into()));
            }
            let come = pin!(stream.read_buf(&mut self.bytes)).poll(cx);
            if come.is_pending() {
                self.rest(spare);
            }
            come
        })
        .await
    }

    fn unread(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Moves what is left to the front. Keeps no buffer for nothing.
    fn rest(&mut self, spare: &Spare) {
        self.bytes.drain(..self.at);
        self.at = 0;
        if self.bytes.is_empty() {
            spare.give(std::mem::take(&mut self.bytes));
        }
    }

    /// Makes room to read towards a request of `whole` bytes. Grows with what has come, not with
    /// what was announced.
    fn make_room(&mut self, spare: &Spare, whole: usize) -> Result<(), TryReserveError> {
        if self.bytes.capacity() == 0 {
            self.bytes = spare.take();
        }
        let missing = whole.saturating_sub(self.bytes.len());
        self.bytes.try_reserve(missing.min(self.bytes.len()).max(READ_BYTES))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn input_grows_with_what_has_come() {
        let (mut input, spare) = (Input::default(), Spare::default());
        input.make_room(&spare, 1 << 30).unwrap();
        assert!((READ_BYTES..2 * READ_BYTES).contains(&input.bytes.capacity()));
        input.bytes.resize(READ_BYTES, 0);
        input.make_room(&spare, 1 << 30).unwrap();
        assert!(input.bytes.capacity() <= 4 * READ_BYTES);
    }

    #[test]
    fn input_forgets_what_was_used_and_gives_memory_back() {
        let spare = Spare::default();
        let mut input = Input { bytes: vec![7; 1 << 20], at: (1 << 20) - 2 };
        assert_eq!(input.unread(), [7, 7]);
        input.rest(&spare);
        assert_eq!(input.unread(), [7, 7]);
        input.at = 2;
        input.rest(&spare);
        assert!(input.unread().is_empty());
        assert_eq!(input.bytes.capacity(), 0);
        assert_eq!(spare.take().capacity(), 0, "too large to be kept");
    }

    #[test]
    fn a_buffer_goes_from_one_input_to_the_next() {
        let spare = Spare::default();
        let (mut one, mut other) = (Input::default(), Input::default());
        one.make_room(&spare, 0).unwrap();
        one.bytes.extend([1, 2, 3]);
        one.at = 3;
        let buffer = one.bytes.as_ptr();
        other.make_room(&spare, 0).unwrap();
        assert_ne!(other.bytes.as_ptr(), buffer, "in use");
        one.rest(&spare);
        assert_eq!(one.bytes.capacity(), 0);
        one.make_room(&spare, 0).unwrap();
        assert_eq!((one.bytes.as_ptr(), one.bytes.len()), (buffer, 0));
    }
}
