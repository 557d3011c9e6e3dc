//! What the connections of one thread share, and how each of them can end.

use super::drain::{Drain, QUIET};
use super::input::Spare;
use super::pool::Pool;
use super::transport::Stream;
use dataplane::protocol::admission::Users;
use dataplane::protocol::{OpCounters, Server};
use dataplane::store::Session;
use std::cell::RefCell;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, watch};
use tokio::time::{Sleep, sleep, sleep_until};

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
    pub(super) stopped: watch::Receiver<Option<Drain>>,
    /// What memory of connections is charged to, over all threads.
    pub(super) pool: Arc<Pool>,
    /// One large reply is made at a time, so that small ones need not wait for many.
    pub(super) large_turn: Semaphore,
    /// Room to read into, and to gather replies in.
    pub(super) spare_input: Spare,
    pub(super) spare_output: Spare,
}

impl Desk {
    /// Counts a connection that ends for want of memory.
    pub(super) fn count_shortage(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::OutOfMemory {
            self.ops.malloc_fails.inc();
        }
    }

    /// The stop that the service has been told, if it has been: nothing else is ever said.
    pub(super) fn drain(&self) -> Option<Drain> {
        match self.stopped.has_changed() {
            Ok(false) => None,
            _ => Some(self.stopped.borrow().unwrap_or_else(|| Drain::new(Duration::ZERO))),
        }
    }

    /// Whether the service stops, and has waited as long as it may.
    pub(super) fn is_over(&self) -> bool {
        self.drain().is_some_and(|drain| drain.is_over())
    }

    /// How long to wait for more of a client, which has sent a part of a request or has not.
    pub(super) fn patience(&self, in_request: bool) -> Option<Duration> {
        self.drain().map_or(self.idle_max, |drain| Some(drain.patience(in_request)))
    }

    /// Waits until the service is told to stop.
    pub(super) async fn stopping(&self) -> Drain {
        let told = self.stopped.clone().wait_for(Option::is_some).await.ok().and_then(|told| *told);
        told.unwrap_or_else(|| Drain::new(Duration::ZERO))
    }

    /// Ends when listeners are to be closed: connections made before the stop are accepted by then.
    pub(super) async fn stop_accepting(&self) {
        self.stopping().await;
        sleep(QUIET).await;
    }

    /// Ends when the bound of a drain has passed; never while the service runs.
    pub(super) async fn over(&self) {
        let drain = self.stopping().await;
        sleep_until(drain.until().into()).await;
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
    /// It held memory that others waited for, and took too little of its replies.
    Stalled,
    /// Nothing came for too long, or nothing was taken.
    Idle,
    /// The service stops, and all that came is answered.
    Service {
        /// Something came since it stops.
        heard: bool,
    },
    /// The service stops, and has waited as long as it may.
    Cut,
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
            Self::Service { .. } | Self::Cut => "shutdown",
            Self::Lost | Self::Stalled | Self::Failed(_) => "error",
        }
    }
}

/// Ends when a connection on which nothing moves has done so for too long.
pub(super) async fn idle(most: Option<Duration>) {
    match most {
        Some(most) => nap(most).await,
        None => std::future::pending().await,
    }
}

/// A timer on the heap: without `-o idle_timeout` nobody has one.
fn nap(time: Duration) -> Pin<Box<Sleep>> {
    Box::pin(sleep(time))
}

/// Sends as much as the kernel takes at once; what that was.
pub(super) fn send_some(stream: &Stream, desk: &Desk, out: &[u8]) -> io::Result<usize> {
    let mut sent = 0;
    while let Some(left) = out.get(sent..).filter(|left| !left.is_empty()) {
        match stream.try_write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => sent += written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    desk.ops.bytes_written.add(sent as u64);
    Ok(sent)
}
