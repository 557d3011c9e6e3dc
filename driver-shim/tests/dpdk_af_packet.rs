//! `net_af_packet` on one end of a veth pair, a UDP socket of the kernel's on the other.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::ports::dpdk::PortConfig;

#[test]
fn af_packet() {
    enter_new_netns();
    veth();
    let eal = eal();
    let region = small_region(&eal);
    for queues in [1, 2] {
        let spec = format!("net_af_packet{queues},iface=gnp,qpairs={queues},qdisc_bypass=1");
        let mut port = start(&eal, &region, &PortConfig { queues, ..config(&spec) });
        assert!(!port.info.busy_poll && !port.info.tx_caps.udp);
        answer_questions(&mut port);
        drop(port);
        assert_eq!(region.available(), region.capacity());
    }
}
