//! Batches that go at the end of a cycle (`BatchMode::Periodic`): requests wait for it, and replies that take more
//! than three are counted.

use crate::world::{Beside, World, Wrap, open, request};
use dataplane::stages::batch::{BatchMode, BatchPolicy};
use gpu::index::IndexKind;
use gpu::offload::Mode;
use std::thread;
use std::time::{Duration, Instant};

const CYCLE: Duration = Duration::from_millis(50);

/// Asks for a key that is not there, `n` times, and says how many of the requests wait in the worker.
fn send(world: &mut World, n: u16) -> u64 {
    for id in 0..n {
        world.send(&request(Wrap::V4, id, b"get k\r\n"));
    }
    world.workers[0].turn();
    world.ledger().in_flight
}

fn replies(world: &mut World) -> usize {
    let frames = world.received(0);
    frames.iter().for_each(|frame| assert_eq!(open(Wrap::V4, frame.bytes()).text, b"END\r\n"));
    frames.len()
}

/// Alone, and with a GPU's kernels.
fn worlds(cycle: Duration, size: usize) -> [World; 2] {
    let mode = BatchMode::Periodic;
    let cycle_ns = cycle.as_nanos().try_into().unwrap();
    let batch = BatchPolicy { size, mode, cycle_ns, ..BatchPolicy::default() };
    let beside = Beside::new(Mode::Launch, IndexKind::Cuckoo);
    [World::batching(batch, &[]), World::batching(batch, &[beside])]
}

#[test]
fn requests_wait_for_the_end_of_their_cycle() {
    for mut world in worlds(CYCLE, 64) {
        let begun = Instant::now();
        for _ in 0..4 {
            assert_eq!(send(&mut world, 3), 3, "none is answered in the turn in which it came");
            world.settle();
            assert_eq!(replies(&mut world), 3);
        }
        // From the first end to the fourth.
        assert!(begun.elapsed() >= 3 * CYCLE);
        assert_eq!(world.counters[0].batches.get(), 4);
        world.end();
    }
}

#[test]
fn a_full_batch_does_not_wait() {
    for mut world in worlds(Duration::from_secs(3600), 4) {
        send(&mut world, 7);
        let begun = Instant::now();
        let mut answered = 0;
        while answered < 4 {
            assert!(begun.elapsed() < Duration::from_secs(60), "it waits");
            world.workers[0].turn();
            answered += replies(&mut world);
        }
        assert_eq!((answered, world.ledger().in_flight), (4, 3));
        assert_eq!(world.counters[0].replies_late.get(), 0);
        // What waits is answered when the worker ends.
        world.workers[0].drain();
        assert_eq!(replies(&mut world), 3);
        world.end();
    }
}

#[test]
fn late_replies_are_counted() {
    for mut world in worlds(CYCLE, 64) {
        assert_eq!(send(&mut world, 5), 5);
        // The worker's thread has no processor for so long.
        thread::sleep(4 * CYCLE);
        world.settle();
        assert_eq!(replies(&mut world), 5);
        assert_eq!(world.counters[0].replies_late.get(), 5);
        world.end();
    }
}
