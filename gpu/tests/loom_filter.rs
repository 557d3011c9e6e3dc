//! The model checker's view of the filter. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p gpu --test loom_filter --target-dir target/loom`.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use gpu::index::{Filter, signature};
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

const HASH: u64 = 0x1234_5678;

/// A key's value in the store, and what the device has of it.
struct World {
    filter: Filter,
    /// The key's bucket lock.
    bucket: Mutex<()>,
    value: AtomicU32,
    queued: AtomicU32,
    on_device: AtomicU32,
}

/// What a writer does first.
#[derive(Clone, Copy, PartialEq)]
enum First {
    Raise,
    Publish,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            filter: Filter::new(1),
            bucket: Mutex::new(()),
            value: AtomicU32::new(0),
            queued: AtomicU32::new(0),
            on_device: AtomicU32::new(0),
        })
    }

    fn raise(&self) {
        self.filter.raise(HASH, || {
            self.queued.fetch_add(1, Ordering::AcqRel);
            true
        });
    }

    fn write(&self, first: First) {
        let _locked = self.bucket.lock().unwrap();
        match first {
            First::Raise => {
                self.raise();
                self.value.store(1, Ordering::Release);
            }
            First::Publish => {
                self.value.store(1, Ordering::Release);
                self.raise();
            }
        }
    }

    /// A turn of the updater.
    fn update(&self) {
        let before = self.filter.advance();
        if self.queued.swap(0, Ordering::AcqRel) == 1 {
            // Whoever queued it is past its change.
            drop(self.bucket.lock().unwrap());
            let value = self.value.load(Ordering::Acquire);
            self.filter.rewrite(signature(HASH));
            self.on_device.store(value, Ordering::Release);
        }
        self.filter.apply(before);
    }

    /// A batch to the device and back, and a read of the store before its reply is taken.
    fn read(&self) {
        let stamp = self.filter.stamp();
        let replied = self.on_device.load(Ordering::Acquire);
        let seen = self.value.load(Ordering::Acquire);
        if self.filter.accepts(signature(HASH), stamp).is_ok() {
            assert!(replied >= seen, "the device's reply is older than one of the CPU's");
            let after = self.value.load(Ordering::Acquire);
            assert!(replied <= after, "a value from the future");
        }
    }
}

fn model(first: First, turns: usize) {
    loom::model(move || {
        let world = World::new();
        let (a, b) = (Arc::clone(&world), Arc::clone(&world));
        let writer = thread::spawn(move || a.write(first));
        let updater = thread::spawn(move || (0..turns).for_each(|_| b.update()));
        world.read();
        writer.join().unwrap();
        updater.join().unwrap();
        // All is at rest: after two more turns the device's reply is taken, and right.
        world.update();
        world.update();
        let stamp = world.filter.stamp();
        assert_eq!(world.filter.accepts(signature(HASH), stamp), Ok(()));
        assert_eq!(world.on_device.load(Ordering::Acquire), 1);
    });
}

#[test]
fn an_accepted_reply_is_what_the_store_has() {
    model(First::Raise, 1);
    model(First::Raise, 2);
}

/// The model sees what it is there to see.
#[test]
#[should_panic(expected = "older than one of the CPU's")]
fn raising_after_publication_is_found_out() {
    model(First::Publish, 1);
}
