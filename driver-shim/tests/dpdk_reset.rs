//! A device that asks for a reset, or is gone: reported by DPDK's own events, on a `net_ring` whose
//! bursts go on meanwhile.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]
#![allow(unsafe_code)]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::{Burst, PortEvents, QueuePair, Region};
use scopeguard::defer;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

// What drivers call: not in the headers for applications, but in the library.
unsafe extern "C" {
    fn rte_eth_dev_allocated(name: *const c_char) -> *mut c_void;
    fn rte_eth_dev_callback_process(dev: *mut c_void, event: c_int, param: *mut c_void) -> c_int;
}
/// `RTE_ETH_EVENT_INTR_RESET` and `RTE_ETH_EVENT_INTR_RMV`.
const RESET: c_int = 3;
const REMOVED: c_int = 6;

/// Says what the driver of this device would say.
fn raise(device: &std::ffi::CStr, event: c_int) {
    // SAFETY: the name ends with a zero.
    let dev = unsafe { rte_eth_dev_allocated(device.as_ptr()) };
    assert!(!dev.is_null());
    // SAFETY: a device that is open stays where it is.
    unsafe { rte_eth_dev_callback_process(dev, event, std::ptr::null_mut()) };
}

#[test]
fn resets() {
    let eal = eal();
    let region = small_region(&eal);
    let mut port = start(&eal, &region, &config("net_ring0"));
    let mut pair = port.queues.remove(0);
    assert_eq!(port.control.events(), PortEvents::default());
    raise(c"net_ring0", RESET);
    let wanted = PortEvents { reset_wanted: true, removed: false };
    assert_eq!(port.control.events(), wanted);
    assert_eq!(port.control.events(), PortEvents::default(), "reported once");

    // Bursts go on, on a thread of their own, while the port is reset again and again.
    let (stop, moved) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|s| {
        defer! { stop.store(true, Ordering::Relaxed) }
        s.spawn(|| shuttle(&mut pair, &region, &stop, &moved));
        let mut took = Vec::new();
        for _ in 0..20 {
            let at = moved.load(Ordering::Relaxed);
            wait_for("frames", || moved.load(Ordering::Relaxed) > at + 1_000);
            let begun = Instant::now();
            port.control.reset().unwrap();
            took.push(begun.elapsed());
            assert!(port.control.link_up());
            // What was counted before a reset still counts.
            let at_least = moved.load(Ordering::Relaxed);
            let now = port.control.counters();
            assert!(now.rx_frames >= at_least, "{now:?}, {at_least} moved");
        }
        // Three seconds each. A busy machine holds up a few, a slow reset would be slow each time.
        took.sort_unstable();
        let strict = std::env::var_os("DRILLS_STRICT_TIME").is_some_and(|strict| strict == "1");
        let judged = took[if strict { took.len() - 1 } else { took.len() / 2 }];
        assert!(judged <= Duration::from_secs(3), "{took:?}");
    });
    assert_eq!(port.control.counters().rx_errors, 0);

    raise(c"net_ring0", REMOVED);
    assert!(port.control.events().removed);
    port.control.stop();
    assert!(port.control.reset().is_err(), "a port that is closed stays closed");
    assert_eq!(port.control.events(), PortEvents::default());
    let mut burst = Burst::new();
    assert_eq!(pair.rx.burst(&mut burst), 0);
    drop((pair, port));
    assert_eq!(region.available(), region.capacity(), "every slot is free");
}

/// Sends frames and receives them, and looks whether they are what they were.
fn shuttle(pair: &mut QueuePair, region: &Region, stop: &AtomicBool, moved: &AtomicU64) {
    let (mut out, mut back) = (Burst::new(), Burst::new());
    while !stop.load(Ordering::Relaxed) {
        while out.len() < 32 {
            out.push(frame(region, 5, 60));
        }
        pair.tx.burst(&mut out);
        pair.rx.burst(&mut back);
        for f in back.drain(..) {
            assert_eq!(f.bytes(), pattern(5, 60));
            moved.fetch_add(1, Ordering::Relaxed);
        }
    }
}
