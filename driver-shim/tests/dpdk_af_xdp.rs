//! `net_af_xdp` on one end of a veth pair, a UDP socket of the kernel's on the other.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::ports::dpdk::{DpdkError, DpdkPort};
use driver_shim::{Burst, Frame};

#[test]
fn af_xdp() {
    // No constant of it in nix.
    if !have_af_xdp() {
        return;
    }
    enter_new_netns();
    veth();
    let eal = eal();
    let region = small_region(&eal);
    let mut port = start(&eal, &region, &config("net_af_xdp0,iface=gnp"));
    assert!(!port.info.busy_poll && !port.info.tx_caps.udp);
    answer_questions(&mut port);
    assert_eq!(region.available(), region.capacity(), "frames were copied");

    // With no slot to move it into, a frame is lost, and counted.
    let before = port.control.counters();
    let all: Vec<Frame> = std::iter::from_fn(|| region.alloc()).collect();
    asker(&port).send(b"anyone?").unwrap();
    wait_for("a frame to be lost", || {
        let mut burst = Burst::new();
        assert_eq!(port.queues[0].rx.burst(&mut burst), 0, "there is no slot for it");
        port.control.counters().rx_no_slot == 1
    });
    let now = port.control.counters();
    assert_eq!((now.rx_frames, now.rx_errors), (before.rx_frames, before.rx_errors));
    drop(all);
    answer_questions(&mut port);

    run("ip", "link set gnk down");
    wait_for("the link's end", || !port.control.link_up());
    // Its queue is taken, and the error says at which step.
    let taken = DpdkPort::open(&eal, &region, &config("net_af_xdp1,iface=gnp")).unwrap_err();
    assert!(matches!(taken, DpdkError::Setup { step: "set up a receive queue", .. }), "{taken}");
    drop(port);
    assert_eq!(region.available(), region.capacity());
}
