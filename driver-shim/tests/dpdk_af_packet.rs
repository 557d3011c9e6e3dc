//! `net_af_packet` on one end of a veth pair, a UDP socket of the kernel's on the other.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::Burst;
use driver_shim::ports::dpdk::PortConfig;
use std::net::UdpSocket;
use std::time::Duration;

const PORT: u16 = 11211;

#[test]
fn af_packet() {
    enter_new_netns();
    run("ip", "link add gnp type veth peer name gnk");
    for end in ["gnp", "gnk"] {
        // Else the kernel leaves checksums to a device that does not exist.
        run("ethtool", &format!("-K {end} tx off"));
        std::fs::write(format!("/proc/sys/net/ipv6/conf/{end}/disable_ipv6"), "1").unwrap();
        run("ip", &format!("link set {end} up"));
    }
    // The port's end has no address and no ARP: the kernel never answers for it.
    run("ip", "link set gnp arp off");
    run("ip", "addr add 10.78.0.1/24 dev gnk");

    let eal = eal();
    let region = small_region(&eal);
    for queues in [1, 2] {
        let spec = format!("net_af_packet{queues},iface=gnp,qpairs={queues},qdisc_bypass=1");
        let mut port = start(&eal, &region, &PortConfig { queues, ..config(&spec) });
        assert!(!port.info.busy_poll && !port.info.tx_caps.udp);
        let neigh = format!("10.78.0.2 lladdr {} dev gnk", port.info.mac);
        run("ip", &format!("neigh replace {neigh} nud permanent"));
        wait_for("the link", || port.control.link_up());

        let socket = UdpSocket::bind(("10.78.0.1", 0)).unwrap();
        socket.connect(("10.78.0.2", PORT)).unwrap();
        socket.set_nonblocking(true).unwrap();
        // More than the ring holds, up to the longest packet.
        for seed in 0..600 {
            socket.send(&pattern(seed, 200 + 66 * (seed % 20))).unwrap();
            let mut answered = false;
            wait_for("a question", || {
                for pair in &mut port.queues {
                    let mut burst = Burst::new();
                    if pair.rx.burst(&mut burst) == 0 {
                        pair.rx.idle(Duration::from_micros(50));
                    }
                    for mut f in burst.into_iter().filter(|f| is_udp_to(f, PORT)) {
                        assert!(!f.rx.udp_good.is_set(), "nobody verified this checksum");
                        turn_round(&mut f, false);
                        send(pair, f);
                        answered = true;
                    }
                }
                answered
            });
            let mut answer = [0; 2048];
            let mut len = 0;
            wait_for("an answer", || {
                socket.recv(&mut answer).is_ok_and(|n| {
                    len = n;
                    true
                })
            });
            assert_eq!(answer[..len], pattern(seed, 200 + 66 * (seed % 20)));
        }
        drop(port);
        assert_eq!(region.available(), region.capacity());
    }
}
