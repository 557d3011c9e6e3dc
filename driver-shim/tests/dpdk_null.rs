//! `net_null`: an endless source and a bottomless sink, with two queues. Workers poll while the
//! port is stopped under them.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::Burst;
use driver_shim::ports::dpdk::{PortConfig, register_thread};
use scopeguard::defer;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

#[test]
fn null() {
    let eal = eal();
    let region = small_region(&eal);
    let two = PortConfig { queues: 2, ..config("net_null0,size=100") };
    let mut port = start(&eal, &region, &two);
    assert_eq!(port.queues.len(), 2);

    let moved = AtomicU64::new(0);
    let end = AtomicBool::new(false);
    std::thread::scope(|s| {
        defer! { end.store(true, Ordering::Relaxed) }
        for mut pair in port.queues.drain(..) {
            let (eal, moved, end) = (&eal, &moved, &end);
            s.spawn(move || {
                let _registered = register_thread(eal).unwrap();
                let mut burst = Burst::new();
                while !end.load(Ordering::Relaxed) {
                    let got = pair.rx.burst(&mut burst);
                    assert!(burst.iter().all(|f| f.len() == 100));
                    let sent = pair.tx.burst(&mut burst);
                    burst.clear();
                    assert!(sent <= got);
                    moved.fetch_add(sent as u64, Ordering::Relaxed);
                }
            });
        }
        wait_for("traffic", || moved.load(Ordering::Relaxed) > 10_000);
        assert!(port.control.counters().rx_frames > 10_000);
        port.control.stop();
        let seen = moved.load(Ordering::Relaxed);
        // A burst's frames may still be on their way to the count, no more.
        std::thread::sleep(std::time::Duration::from_millis(20));
        let after = moved.load(Ordering::Relaxed);
        assert!(after <= seen + 128, "{} frames moved on a stopped port", after - seen);
    });
    let counters = port.control.counters();
    assert_eq!(counters.tx_frames, moved.load(Ordering::Relaxed));
    assert_eq!(region.available(), region.capacity());
}
