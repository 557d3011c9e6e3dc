//! `net_ring`: a port that receives what it sends. Also what needs no particular port: one EAL
//! per process, bad specifications, a full transmit ring, an empty pool, registered threads.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::ports::dpdk::{DpdkError, DpdkPort, Eal, EalConfig, PortConfig, register_thread};
use driver_shim::{BURST_MAX, Burst, Frame, HEADROOM_BYTES, Pages, Region, SLOT_BYTES};
use std::num::NonZero;
use std::thread::available_parallelism;

#[test]
fn ring() {
    let cores = available_parallelism().map(NonZero::get).unwrap();
    let eal = eal();
    assert_eq!(available_parallelism().map(NonZero::get).unwrap(), cores, "affinity was kept");
    assert!(matches!(Eal::init(&EalConfig::default()), Err(DpdkError::AlreadyStarted)));

    let region = small_region(&eal);
    assert_eq!(region.available(), region.capacity());
    frames_come_back_unchanged(&eal, &region);
    a_full_ring_leaves_the_rest_with_the_caller(&eal, &region);
    an_empty_pool_is_no_frame(&region);
    threads_hide_no_slots(&eal, &region);
    bad_ports_are_refused(&eal, &region);
    frames_of_another_region_do_not_leave(&eal, &region);
    assert_eq!(region.available(), region.capacity());

    // The region holds DPDK up, and the last handle lets it go.
    drop(eal);
    assert_eq!(region.alloc().unwrap().offset(), 128);
    let dir = format!("gnomon-{}", std::process::id());
    let dirs = ["/var/run/dpdk", "/run/user/0/dpdk"].map(|d| format!("{d}/{dir}"));
    drop(region);
    assert!(dirs.iter().all(|d| !std::path::Path::new(d).exists()), "left behind: {dirs:?}");
}

fn frames_come_back_unchanged(eal: &Eal, region: &Region) {
    let mut port = start(eal, region, &config("net_ring0"));
    assert!(!port.info.busy_poll && port.control.link_up());
    let pair = &mut port.queues[0];
    let lengths = [0, 1, 59, 60, 1500, 1514, SLOT_BYTES - HEADROOM_BYTES];
    let mut slots = Vec::new();
    for (seed, len) in lengths.into_iter().enumerate() {
        let f = frame(region, seed, len);
        slots.push(f.slot());
        send(pair, f);
    }
    let back = receive(pair, lengths.len());
    assert_eq!(back.iter().map(Frame::slot).collect::<Vec<_>>(), slots, "same slots, in order");
    for (seed, (f, len)) in back.iter().zip(lengths).enumerate() {
        assert_eq!(f.bytes(), pattern(seed, len));
        assert!(!f.rx.ip_good.is_set() && !f.rx.udp_good.is_set(), "a ring verifies nothing");
    }
    drop(back);
    assert_eq!(region.available(), region.capacity());

    // What is under way when the port stops returns too, and so does what is sent later.
    for seed in 0..100 {
        send(pair, frame(region, seed, 64));
    }
    assert_eq!(region.available(), region.capacity() - 100);
    port.control.stop();
    assert_eq!(region.available(), region.capacity());
    assert!(!port.control.link_up());
    let mut burst = Burst::new();
    burst.push(frame(region, 0, 64));
    assert_eq!(pair.tx.burst(&mut burst), 0, "a stopped port sends nothing");
    assert_eq!(burst.len(), 1);
    assert_eq!(pair.rx.burst(&mut burst), 0, "a stopped port receives nothing");
    let counters = port.control.counters();
    assert_eq!(counters.tx_frames, 107);
    assert_eq!(counters.tx_errors + counters.rx_errors, 0);
}

fn a_full_ring_leaves_the_rest_with_the_caller(eal: &Eal, region: &Region) {
    let mut port = start(eal, region, &config("net_ring1"));
    let pair = &mut port.queues[0];
    let mut sent = 0;
    let rest = loop {
        let mut burst: Burst = (0..BURST_MAX).map(|i| frame(region, sent + i, 60)).collect();
        sent += pair.tx.burst(&mut burst);
        if !burst.is_empty() {
            break burst;
        }
    };
    assert_eq!(pair.tx.burst(&mut rest.into_iter().collect()), 0);
    // The refused frames went home with the burst above; those taken are all in the ring.
    assert_eq!(region.available(), region.capacity() - sent);
    let back = receive(pair, sent);
    for (seed, f) in back.iter().enumerate() {
        assert_eq!(f.bytes(), pattern(seed, 60), "frame {seed}");
    }
    drop(back);
    drop(port);
    assert_eq!(region.available(), region.capacity());
}

fn an_empty_pool_is_no_frame(region: &Region) {
    let all: Vec<Frame> = std::iter::from_fn(|| region.alloc()).collect();
    assert_eq!(all.len(), region.capacity());
    assert_eq!(region.available(), 0);
    let mut slots: Vec<u32> = all.iter().map(Frame::slot).collect();
    slots.sort_unstable();
    assert!(slots.iter().copied().eq(0..4096), "each slot once");
    drop(all);
    assert_eq!(region.available(), region.capacity());
}

fn threads_hide_no_slots(eal: &Eal, region: &Region) {
    std::thread::scope(|s| {
        s.spawn(|| {
            let _registered = register_thread(eal).unwrap();
            for _ in 0..3 {
                let some: Vec<Frame> = (0..200).map_while(|_| region.alloc()).collect();
                assert_eq!(some.len(), 200);
            }
            assert_eq!(region.available(), region.capacity(), "caches are counted");
        });
    });
    // And what waited in the thread's cache can be had by others.
    an_empty_pool_is_no_frame(region);
}

fn bad_ports_are_refused(eal: &Eal, region: &Region) {
    let open = |c: &PortConfig| DpdkPort::open(eal, region, c).unwrap_err();
    for spec in ["", "net tap0", "0000:81:00", "!"] {
        assert!(matches!(open(&config(spec)), DpdkError::BadSpec { .. }), "{spec}");
    }
    for spec in ["net_nosuch0", "0000:fe:1f.7", "net_pcap7,rx_pcap=/nonexistent/in.pcap"] {
        let e = open(&config(spec));
        assert!(matches!(e, DpdkError::NoDevice { .. }), "{spec}: {e}");
    }
    let e = open(&PortConfig { queues: 500, ..config("net_ring2") });
    assert!(matches!(e, DpdkError::Queues { asked: 500, .. }), "{e}");
    let fewer = PortConfig { or_fewer: true, queues: 500, descriptors: 64, ..config("net_ring2") };
    let port = DpdkPort::open(eal, region, &fewer).unwrap();
    assert!((1..500).contains(&port.queues()), "{}", port.queues());
    drop(port);
    let e = open(&PortConfig { queues: 0, ..config("net_ring2") });
    assert!(matches!(e, DpdkError::Queues { asked: 0, .. }), "{e}");
    let e = open(&PortConfig { mtu: 9000, ..config("net_ring2") });
    assert!(matches!(e, DpdkError::Mtu { asked: 9000, max: 1898, .. }), "{e}");
    let e = open(&PortConfig { descriptors: 4096, ..config("net_ring2") });
    assert!(matches!(e, DpdkError::TooFewSlots { need: 4160, .. }), "{e}");
    let plain = Region::new(8, Pages::Small).unwrap();
    let e = DpdkPort::open(eal, &plain, &config("net_ring2")).unwrap_err();
    assert!(matches!(e, DpdkError::NoPool { .. }), "{e}");

    // None of that has taken the device, a second opening has.
    let first = DpdkPort::open(eal, region, &config("net_ring2")).unwrap();
    assert!(matches!(open(&config("net_ring2")), DpdkError::InUse { .. }));
    drop(first);
    drop(start(eal, region, &config("net_ring2")));
}

fn frames_of_another_region_do_not_leave(eal: &Eal, region: &Region) {
    let mut port = start(eal, region, &config("net_ring3"));
    let other = small_region(eal);
    let mut burst = Burst::new();
    burst.push(frame(region, 1, 60));
    burst.push(frame(&other, 2, 60));
    burst.push(frame(region, 3, 60));
    let pair = &mut port.queues[0];
    while !burst.is_empty() {
        assert_eq!(pair.tx.burst(&mut burst), 1);
    }
    let back = receive(pair, 2);
    assert_eq!(back[0].bytes(), pattern(1, 60));
    assert_eq!(back[1].bytes(), pattern(3, 60));
    assert_eq!(port.control.counters().tx_errors, 1);
    assert_eq!(other.available(), other.capacity());
}
