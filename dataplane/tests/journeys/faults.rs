//! A bad wire: loss, duplication, reordering, cut frames, flipped bits, refused transmissions.

use crate::world::{World, Wrap, request, try_open};
use driver_shim::ports::fault::{FaultConfig, Faults, PerMillion, wrap};
use driver_shim::{Burst, Pages, Region};
use store::StoreConfig;
use wire::DropReason;

#[test]
fn a_bad_wire_costs_replies_but_never_a_wrong_byte_or_a_slot() {
    for seed in 0..4 {
        let faults = Faults {
            lose: PerMillion(20_000),
            duplicate: PerMillion(20_000),
            reorder: PerMillion(50_000),
            truncate: PerMillion(20_000),
            flip: PerMillion(50_000),
            short_burst: PerMillion(100_000),
            refuse: PerMillion(50_000),
        };
        let mut counters = Vec::new();
        let config = StoreConfig { memory_bytes: 16 << 20, ..StoreConfig::default() };
        let mut w = World::with(1, config, |pair, region| {
            let (pair, c) = wrap(pair, region, &FaultConfig { seed, rx: faults, tx: faults });
            counters.push(c);
            pair
        });
        let mut right = 0;
        for n in 0..3_000_u16 {
            let (key, text) = (n % 50, if n < 200 { "set" } else { "get" });
            let line = match text {
                "set" => format!("set key{key:02} 0 0 6\r\nval{key:03}\r\n"),
                _ => format!("get key{key:02}\r\n"),
            };
            w.send(&request(Wrap::V4, key, line.as_bytes()));
            if n % 32 == 0 {
                w.settle();
                for f in w.received(0) {
                    right += u32::from(is_right(f.bytes()));
                }
            }
        }
        assert!(right > 2_000, "only {right} replies were right");
        let ledger = w.end();
        let rx = counters[0].rx();
        assert!(rx.lost > 0 && rx.duplicated > 0 && rx.flipped > 0 && rx.truncated > 0);
        assert_eq!(ledger.received, rx.left);
    }
}

/// A reply that came through whole must be the right one for its id. One that the wire broke
/// shows it by its checksums, as a kernel would see.
pub(crate) fn is_right(bytes: &[u8]) -> bool {
    let Ok(reply) = try_open(Wrap::V4, bytes) else { return false };
    let key = reply.id;
    let text = String::from_utf8(reply.text).unwrap();
    let value = format!("VALUE key{key:02} 0 6\r\nval{key:03}\r\nEND\r\n");
    assert!(["STORED\r\n", "END\r\n", &value].contains(&&text[..]), "id {key}: {text} {bytes:x?}");
    true
}

#[test]
fn frames_of_another_region_are_refused() {
    let mut w = World::new();
    let other = Region::new(4, Pages::Small).unwrap();
    let mut frame = other.alloc().unwrap();
    frame.fill(&request(Wrap::V4, 1, b"get k\r\n")).unwrap();
    let mut burst = Burst::new();
    burst.push(frame);
    w.wires[0].tx.burst(&mut burst);
    w.settle();
    assert!(w.received(0).is_empty());
    assert_eq!(w.dropped(DropReason::ForeignSlot), 1);
    w.end();
    assert_eq!(other.available(), 4);
}
