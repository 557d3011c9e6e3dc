//! What one thread has for its connections, and a seat there for each of them.
//!
//! In: connections that are accepted. Out: seats, given back when they end; the last one says so.
//! Never fails.

use super::desk::Desk;
use super::drain::Ended;
use super::handshake::Handshakes;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};

/// What the connections of one thread share.
pub(super) struct Room {
    pub(super) desk: Desk,
    /// One for each connection that `-c` allows, over all threads.
    pub(super) seats: Arc<Semaphore>,
    /// A connection that finds no seat is refused; otherwise it waits for one.
    pub(super) refuse_over_limit: bool,
    /// How long draining may take.
    pub(super) drain_max: Duration,
    /// Connections that have a seat.
    pub(super) seated: Cell<usize>,
    /// The last of them has gone.
    pub(super) is_empty: Notify,
    pub(super) ended: Arc<Ended>,
    /// Where TLS is spoken.
    pub(super) handshakes: Option<Arc<Handshakes>>,
}

/// One of the places that `-c` allows, given back on drop.
pub(super) struct Seat {
    pub(super) room: Rc<Room>,
    /// Its place among those that wait, from its first wait on.
    pub(super) place: Option<u32>,
}

impl Seat {
    /// The caller has taken a permit for it.
    pub(super) fn new(room: Rc<Room>) -> Self {
        room.desk.ops.total_connections.inc();
        room.seated.set(room.seated.get() + 1);
        Self { room, place: None }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        let room = &self.room;
        if let Some(place) = self.place {
            room.desk.waiting.leave(place);
        }
        room.desk.ops.closed_connections.inc();
        room.seats.add_permits(1);
        room.seated.set(room.seated.get() - 1);
        if room.seated.get() == 0 {
            room.is_empty.notify_one();
        }
    }
}
