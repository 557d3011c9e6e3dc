//! Addresses that are announced because the control plane says so.

use crate::world::{ADDRESSES, World};
use driver_shim::ports::memory::MAC;
use driver_shim::{Burst, QueuePair, Region, TxQueue};
use store::StoreConfig;
use wire::eth;

/// Takes nothing.
struct Full;

impl TxQueue for Full {
    fn burst(&mut self, _from: &mut Burst) -> usize {
        0
    }
}

fn world(wrap: impl FnMut(QueuePair, &Region) -> QueuePair) -> World {
    World::with(2, StoreConfig { memory_bytes: 16 << 20, ..StoreConfig::default() }, wrap)
}

#[test]
fn one_worker_announces_each_address_once_for_each_order() {
    let mut w = world(|q, _| q);
    w.settle();
    assert!(w.received(0).is_empty(), "nobody ordered it");
    for round in 1..=3 {
        w.announcer.order();
        w.settle();
        let frames = w.received(0);
        let types: Vec<u16> = frames
            .iter()
            .map(|frame| {
                assert_eq!(frame.bytes()[6..12], MAC.0);
                u16::from_be_bytes(frame.bytes()[12..14].try_into().unwrap())
            })
            .collect();
        assert_eq!(types, [eth::ARP, eth::IPV6]);
        assert!(w.received(1).is_empty());
        assert_eq!(w.counters[0].announcements.get(), 2 * round);
    }
    assert_eq!((w.counters[0].tx_frames.get(), w.counters[0].announcements_lost.get()), (6, 0));
    let ledger = w.end();
    assert_eq!((ledger.received, ledger.answered), (0, 0));
}

#[test]
fn what_finds_no_slot_or_does_not_leave_is_counted() {
    let mut w = world(|q, _| QueuePair { rx: q.rx, tx: Box::new(Full) });
    let addresses = ADDRESSES.len() as u64;
    w.announcer.order();
    w.settle();
    assert_eq!(w.counters[0].announcements_lost.get(), addresses);
    let held: Vec<_> = std::iter::from_fn(|| w.region.alloc()).collect();
    w.announcer.order();
    w.settle();
    assert_eq!(w.counters[0].announcements_lost.get(), 2 * addresses);
    assert_eq!(w.counters[0].announcements.get(), 0);
    drop(held);
    w.end();
}
