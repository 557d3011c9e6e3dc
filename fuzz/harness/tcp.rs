//! A server for each run, and its clients on connections. A run must not depend on the ones before
//! it, so each begins on a new store; what would take most of the time, memory, is used again.

use dataplane::commands::{Ahead, Buffer, Conversation, Ctx};
use dataplane::observe::watch::Watching;
use dataplane::observe::{OpCounters, Server};
use driver_shim::Pages;
use std::cell::RefCell;
use std::sync::Arc;
use store::{Session, Store, StoreConfig};

/// Largest item,
#[allow(dead_code, reason = "not every target has short items")]
pub(crate) const ITEM_MAX_BYTES: usize = 4096;
/// and where they are long.
#[allow(dead_code, reason = "not every target has long items")]
pub(crate) const LONG_ITEM_MAX_BYTES: usize = 64 << 10;

thread_local! {
    /// Stores that were used, and that nobody uses now.
    static IDLE: RefCell<Vec<Arc<Store>>> = const { RefCell::new(Vec::new()) };
    /// The same, of those with long items.
    static IDLE_LONG: RefCell<Vec<Arc<Store>>> = const { RefCell::new(Vec::new()) };
    /// Only written to. It is in no server's books, so that `stats` of a run does not depend on it.
    static OPS: OpCounters = OpCounters::default();
}

/// Runs `f` with a new server, all of whose sessions have to be gone at the end.
#[allow(dead_code, reason = "not every target has short items")]
pub(crate) fn on_a_new_server<R>(f: impl FnOnce(&Arc<Server>) -> R) -> R {
    // A page for each of the four classes, so that nothing is evicted or refused.
    on_a_server(&IDLE, ITEM_MAX_BYTES, 10 << 20, f)
}

/// The same with items of 64 KB, which have two classes more.
#[allow(dead_code, reason = "not every target has long items")]
pub(crate) fn on_a_new_server_with_long_items<R>(f: impl FnOnce(&Arc<Server>) -> R) -> R {
    on_a_server(&IDLE_LONG, LONG_ITEM_MAX_BYTES, 16 << 20, f)
}

fn on_a_server<R>(
    idle: &'static std::thread::LocalKey<RefCell<Vec<Arc<Store>>>>,
    item_max_bytes: usize,
    memory_bytes: usize,
    f: impl FnOnce(&Arc<Server>) -> R,
) -> R {
    let mut store = idle.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
        let config = StoreConfig {
            memory_bytes,
            growth_factor: 4.0,
            item_max_bytes,
            pages: Pages::Small,
            // The hash decides where a dump finds an item.
            hash_key: Some([7; 16]),
            sessions_max: 2,
            ..StoreConfig::default()
        };
        Store::new(config).expect("a store")
    });
    Arc::get_mut(&mut store).expect("nobody else has it").renew();
    store.clock().hold();
    let server = Arc::new(Server::new(Arc::clone(&store), String::new()));
    let result = f(&server);
    drop(server);
    idle.with_borrow_mut(|idle| idle.push(store));
    result
}

/// A client's connection.
#[allow(dead_code, reason = "not every target has connections")]
pub(crate) struct Connection {
    conversation: Conversation,
    /// As connections have it: with debug assertions a wrong hash of a key ends the run.
    ahead: Ahead,
    waiting: Vec<u8>,
    /// The client has become a watcher, who is sent what happens and says nothing more.
    watching: Option<Watching>,
    closed: bool,
}

#[allow(dead_code, reason = "not every target has connections")]
impl Connection {
    pub(crate) fn new() -> Self {
        let conversation = Conversation::new(ITEM_MAX_BYTES);
        let ahead = Ahead::new(ITEM_MAX_BYTES, 20);
        Self { conversation, ahead, waiting: Vec::new(), watching: None, closed: false }
    }

    /// Whether it has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed
    }

    /// What it is still to be answered, when the rest of a value that is too large has come.
    pub(crate) fn unsaid(&self) -> &[u8] {
        self.conversation.unsaid().unwrap_or_default()
    }

    /// Sends `input` in pieces and adds what is answered to `out`.
    pub(crate) fn say(
        &mut self,
        server: &Server,
        session: &mut Session,
        input: &[u8],
        piece: usize,
        out: &mut Vec<u8>,
    ) {
        for piece in input.chunks(piece) {
            self.waiting.extend_from_slice(piece);
            while !self.closed && self.watching.is_none() {
                let before = out.len();
                let progress = OPS.with(|ops| {
                    let waiting = &self.waiting;
                    self.ahead.look(session.store(), waiting);
                    let mut ctx = Ctx::new(session, ops, server).expecting(&mut self.ahead);
                    self.conversation.advance(&mut ctx, waiting, Buffer::new(out, usize::MAX))
                });
                self.waiting.drain(..progress.consumed);
                self.closed = progress.close;
                self.watching = self.conversation.take_watching();
                if progress.consumed == 0 && out.len() == before && !progress.more {
                    break;
                }
            }
        }
    }
}
