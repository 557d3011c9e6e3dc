//! What the connections of one thread share, and how each of them can end.

use super::drain::{Drain, QUIET};
use super::input::{Input, Spare};
use super::pool::{Charge, Pool, SMALL_BYTES};
use super::transport::Stream;
use super::waiting::Waiting;
use dataplane::commands::login::Users;
use dataplane::commands::{Ahead, Buffer, Conversation, Ctx, Progress, Sender};
use dataplane::observe::{OpCounters, Server};
use std::cell::{Cell, RefCell};
use std::io;
use std::sync::Arc;
use std::time::Duration;
use store::Session;
use tokio::sync::{Semaphore, watch};
use tokio::time::{sleep, sleep_until};

/// What the connections of one thread need to answer requests.
pub(super) struct ThreadShared {
    pub(super) session: RefCell<Session>,
    /// What the next requests of a connection will read, prefetched.
    pub(super) ahead: RefCell<Ahead>,
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
    /// Connections that wait for a request.
    pub(super) waiting: Waiting,
    /// A buffer to read into, and to gather replies in.
    pub(super) spare_input: Spare,
    pub(super) spare_output: Spare,
    /// Buffers that connections keep uncharged while others have their turn.
    pub(super) kept: Cell<usize>,
}

/// Most such buffers of a thread, of [`READ_BYTES`] and a little each: they are set aside with what a
/// thread has of its own.
const KEPT_MAX: usize = 16;

/// A buffer that is kept while others have their turn, until it is dropped.
pub(super) struct Kept<'d>(&'d Cell<usize>);

impl Drop for Kept<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl ThreadShared {
    /// Whether much may be read: what is left of it behind a turn has to be kept.
    pub(super) fn may_read_much(&self) -> bool {
        self.kept.get() < KEPT_MAX && self.pool.has_turn()
    }

    /// Keeps what came and is not answered yet while others have their turn: uncharged, where few do;
    /// otherwise no more than a connection has uncharged, or charged.
    pub(super) fn keep<'d>(&'d self, input: &mut Input<'d>) -> io::Result<Option<Kept<'d>>> {
        if input.charge.is_some() {
            return Ok(None);
        }
        if self.kept.get() < KEPT_MAX {
            self.kept.set(self.kept.get() + 1);
            return Ok(Some(Kept(&self.kept)));
        }
        input.rest(&self.spare_input)?;
        if input.bytes.len() > SMALL_BYTES {
            input.shrink(&self.spare_input)?;
            input.charge = Some(self.charge_behind(input.bytes.capacity())?);
        }
        Ok(None)
    }

    /// Charges what a turn left behind.
    pub(super) fn charge_behind(&self, bytes: usize) -> io::Result<Charge<'_>> {
        self.pool.take_behind(bytes).ok_or_else(|| {
            self.pool.figures().refuse_reply();
            io::ErrorKind::OutOfMemory.into()
        })
    }

    /// Counts a connection that ends for lack of memory.
    pub(super) fn count_shortage(&self, error: &io::Error) {
        if error.kind() == io::ErrorKind::OutOfMemory {
            self.ops.malloc_fails.inc();
        }
    }

    /// The stop that the service has got, if it has: nothing else is ever said.
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
    pub(super) fn time_allowed(&self, in_request: bool) -> Option<Duration> {
        self.drain().map_or(self.idle_max, |drain| Some(drain.time_allowed(in_request)))
    }

    /// Waits until the service is ordered to stop.
    pub(super) async fn stopping(&self) -> Drain {
        let drain =
            self.stopped.clone().wait_for(Option::is_some).await.ok().and_then(|drain| *drain);
        drain.unwrap_or_else(|| Drain::new(Duration::ZERO))
    }

    /// Ends when only those are accepted that have been made.
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
    Failed(io::Error),
}

impl End {
    /// That of a conversation which says that it is over.
    pub(super) fn of(conversation: &Conversation) -> Self {
        if conversation.is_lost() { Self::Lost } else { Self::Conversation }
    }

    /// What watchers are sent.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Client | Self::Conversation => "normal",
            Self::Idle => "idle_timeout",
            Self::Service { .. } | Self::Cut => "shutdown",
            Self::Lost | Self::Stalled | Self::Failed(_) => "error",
        }
    }
}

/// Answers whole requests of `input` until `out` has `pause` bytes of replies. The last of them may go beyond, but
/// not with a value that would make it more than `most`. Long values are sent at once from where they lie, as far as
/// the kernel takes them; all else is in `out`, to be sent.
pub(super) fn answer(
    stream: &Stream,
    shared: &ThreadShared,
    conversation: &mut Conversation,
    input: &[u8],
    (out, pause, most): (&mut Vec<u8>, usize, usize),
) -> Progress {
    // What is wrong with the connection shows when the rest is sent. Over TLS nothing goes.
    let mut send = |pieces: [&[u8]; 3], last| {
        let sent = stream.try_send(pieces, last).unwrap_or(0);
        shared.ops.bytes_written.add(sent as u64);
        sent
    };
    let mut session = shared.session.borrow_mut();
    let mut ahead = shared.ahead.borrow_mut();
    if input.len() >= conversation.wants() {
        ahead.look(session.store(), input);
    } else {
        ahead.clear();
    }
    let mut ctx = Ctx::new(&mut session, &shared.ops, &shared.server).expecting(&mut ahead);
    let out = Buffer::new(out, pause).limited_to(most).sent_by(Sender(&mut send));
    conversation.advance(&mut ctx, input, out)
}

/// Sends as much as the kernel takes at once; what that was.
pub(super) fn send_some(
    stream: &mut Stream,
    shared: &ThreadShared,
    out: &[u8],
) -> io::Result<usize> {
    let mut sent = 0;
    while let Some(left) = out.get(sent..).filter(|left| !left.is_empty()) {
        match stream.try_write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => sent += written,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            Err(error) => return Err(error),
        }
    }
    shared.ops.bytes_written.add(sent as u64);
    Ok(sent)
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::pool::READ_BYTES;
    use super::*;
    use driver_shim::Pages;
    use std::iter;
    use store::{Store, StoreConfig};
    use tokio::time::timeout;

    /// What is to end by itself, and in a minute.
    pub(in super::super) async fn in_time<T>(work: impl Future<Output = T>) -> T {
        timeout(Duration::from_secs(60), work).await.expect("it ends")
    }

    /// A thread of a small store.
    pub(in super::super) fn thread(
        users: Option<Arc<dyn Users>>,
        stopped: watch::Receiver<Option<Drain>>,
    ) -> ThreadShared {
        let config =
            StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let server = Arc::new(Server::new(Arc::clone(&store), String::new()));
        ThreadShared {
            session: RefCell::new(store.session().unwrap()),
            ahead: RefCell::new(Ahead::new(1 << 20, 20)),
            ops: server.ops(),
            item_max_bytes: 1 << 20,
            requests_per_turn: 20,
            users,
            idle_max: None,
            stopped,
            pool: Arc::new(Pool::new(Arc::default(), 1 << 24, 1, 1)),
            large_turn: Semaphore::new(1),
            waiting: Waiting::default(),
            spare_input: Spare::of_input(),
            spare_output: Spare::of_output(),
            kept: Cell::new(0),
            server,
        }
    }

    #[test]
    fn little_is_kept_uncharged_while_others_have_their_turn() {
        let (_stop, stopped) = watch::channel(None);
        let shared = thread(None, stopped);
        let mut used = shared.pool.figures().now().used_bytes;
        let input = |left: usize| {
            let mut bytes = Vec::with_capacity(READ_BYTES);
            bytes.resize(READ_BYTES, 7);
            let mut input = Input::default();
            (input.bytes, input.at) = (bytes, READ_BYTES - left);
            input
        };
        let much = READ_BYTES / 2;
        let mut inputs: Vec<_> = iter::repeat_with(|| input(much)).take(KEPT_MAX).collect();
        let kept: Vec<_> = inputs.iter_mut().map(|input| shared.keep(input).unwrap()).collect();
        assert!(kept.iter().all(Option::is_some) && !shared.may_read_much());
        assert_eq!(shared.pool.figures().now().used_bytes, used);
        // What comes then is charged, or little and in a buffer of its size.
        let (mut more, mut less) = (input(much), input(100));
        assert!(
            shared.keep(&mut more).unwrap().is_none() && shared.keep(&mut less).unwrap().is_none()
        );
        used += much as u64;
        assert_eq!(shared.pool.figures().now().used_bytes, used);
        assert_eq!((more.unread().len(), more.bytes.capacity()), (much, much));
        assert_eq!((less.unread().len(), less.bytes.capacity()), (100, 100));
        drop(kept);
        assert!(shared.may_read_much());
    }
}
