//! The model checker's view of the stack of free slots. Run with
//! `RUSTFLAGS="--cfg loom" cargo test -p driver-shim --test loom_free_stack --target-dir target/loom`.
#![cfg(loom)]
#![allow(clippy::unwrap_used)]

use driver_shim::free_stack::FreeStack;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;

/// Slots whose bytes the model watches: two threads that have one at once, or one that does not see what the holder
/// before it wrote, end the test.
struct World {
    free: FreeStack,
    slots: Vec<UnsafeCell<u32>>,
}

impl World {
    fn new(count: u32) -> Arc<Self> {
        let slots = (0..count).map(|_| UnsafeCell::new(0)).collect();
        Arc::new(Self { free: FreeStack::new(count), slots })
    }

    /// Holds a slot for a while.
    fn borrow(&self) {
        if let Some(slot) = self.free.take() {
            self.write(slot);
            self.free.give(slot);
        }
    }

    #[allow(unsafe_code)]
    fn write(&self, slot: u32) {
        // SAFETY: whoever has taken a slot has it alone; that this is so is what the model checks.
        self.slots[slot as usize].with_mut(|bytes| unsafe { *bytes += 1 });
    }

    /// All slots are there again, each once.
    fn end(&self) {
        assert_eq!(self.free.len(), self.slots.len());
        let mut slots: Vec<u32> = std::iter::from_fn(|| self.free.take()).collect();
        slots.iter().for_each(|slot| self.write(*slot));
        slots.sort_unstable();
        assert!(slots.into_iter().eq(0..u32::try_from(self.slots.len()).unwrap()));
    }
}

#[test]
fn a_slot_has_one_holder() {
    loom::model(|| {
        let world = World::new(2);
        let other = Arc::clone(&world);
        let thread = thread::spawn(move || {
            other.borrow();
            other.borrow();
        });
        world.borrow();
        thread.join().unwrap();
        world.end();
    });
}

/// What makes a stack without a count of changes lose slots: one thread has read the top and what is below it; another
/// takes both, and gives the first back.
#[test]
fn a_top_that_came_back_is_not_one_that_stayed() {
    loom::model(|| {
        let world = World::new(2);
        let other = Arc::clone(&world);
        let thread = thread::spawn(move || {
            let (first, second) = (other.free.take(), other.free.take());
            first.into_iter().chain(second).for_each(|slot| {
                other.write(slot);
                other.free.give(slot);
            });
        });
        world.borrow();
        thread.join().unwrap();
        world.end();
    });
}
