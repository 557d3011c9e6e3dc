//! The model checker's view of the epochs. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p store --test loom_epoch --target-dir target/loom`.
#![cfg(loom)]
#![allow(unsafe_code, clippy::unwrap_used)]

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU8, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;
use store::epoch::{Epochs, Participant};

const LINKED: u8 = 1;
const UNLINKED: u8 = 2;
const WRITING: u8 = 3;

/// A chunk as the slabs know it: a state, and bytes that readers look at while it is linked.
struct Chunk {
    state: AtomicU8,
    bytes: UnsafeCell<()>,
}

// SAFETY: there are no bytes; the cell is what loom watches, and it panics when a write overlaps
// a read.
unsafe impl Sync for Chunk {}

struct World {
    epochs: Epochs,
    chunk: Chunk,
}

impl World {
    fn new() -> Arc<Self> {
        let chunk = Chunk { state: AtomicU8::new(LINKED), bytes: UnsafeCell::new(()) };
        Arc::new(Self { epochs: Epochs::new(3), chunk })
    }

    /// Follows a hint: the location is known, only the state says whether it holds anything.
    fn look(&self, me: &Participant) {
        self.epochs.pin(me);
        if self.chunk.state.load(Ordering::Acquire) == LINKED {
            self.chunk.bytes.with(|_| ());
        }
        self.epochs.unpin(me);
    }

    fn read_once(&self) {
        self.look(&self.epochs.join().unwrap());
    }

    fn read_twice(&self) {
        let me = self.epochs.join().unwrap();
        self.look(&me);
        self.look(&me);
        self.epochs.leave(me);
    }

    /// Unlinks the item, and if `wait` allows, writes the next one into its memory.
    fn replace(&self, wait: bool) {
        self.chunk.state.store(UNLINKED, Ordering::Release);
        let stamp = self.epochs.stamp();
        self.epochs.advance();
        if wait && !self.epochs.safe_epoch().is_past(stamp) {
            return;
        }
        self.rewrite();
    }

    fn rewrite(&self) {
        self.chunk.state.store(WRITING, Ordering::Relaxed);
        self.chunk.bytes.with_mut(|_| ());
        self.chunk.state.store(LINKED, Ordering::Release);
    }
}

#[test]
fn a_reader_never_sees_reused_memory() {
    loom::model(|| {
        let world = World::new();
        let reader = Arc::clone(&world);
        let t = thread::spawn(move || reader.read_twice());
        world.replace(true);
        t.join().unwrap();
    });
}

/// One unlinks, another reclaims, as when a retired chunk passes through its class's lock.
#[test]
fn another_thread_may_reclaim() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = World::new();
        let limbo = Arc::new(Mutex::new(None));
        let (reader, reclaimer, theirs) =
            (Arc::clone(&world), Arc::clone(&world), Arc::clone(&limbo));
        let a = thread::spawn(move || reader.read_twice());
        let b = thread::spawn(move || {
            let limbo = theirs.lock().unwrap();
            if let Some(stamp) = *limbo {
                reclaimer.epochs.advance();
                if reclaimer.epochs.safe_epoch().is_past(stamp) {
                    reclaimer.rewrite();
                }
            }
        });
        world.chunk.state.store(UNLINKED, Ordering::Release);
        *limbo.lock().unwrap() = Some(world.epochs.stamp());
        a.join().unwrap();
        b.join().unwrap();
    });
}

/// Epochs may be opened by anybody at any time.
#[test]
fn another_thread_may_advance() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(|| {
        let world = World::new();
        let (reader, opener) = (Arc::clone(&world), Arc::clone(&world));
        let a = thread::spawn(move || reader.read_once());
        let b = thread::spawn(move || opener.epochs.advance());
        world.chunk.state.store(UNLINKED, Ordering::Release);
        let stamp = world.epochs.stamp();
        if world.epochs.safe_epoch().is_past(stamp) {
            world.rewrite();
        }
        a.join().unwrap();
        b.join().unwrap();
    });
}

/// The model can see: without asking for the safe epoch, it finds the overlap.
#[test]
#[should_panic]
fn reusing_without_the_horizon_is_found() {
    loom::model(|| {
        let world = World::new();
        let reader = Arc::clone(&world);
        let t = thread::spawn(move || reader.read_twice());
        world.replace(false);
        t.join().unwrap();
    });
}
