//! `net_tap`: the port is one end of a kernel device, UDP sockets stand at the other, in this
//! network namespace or in one that the device was moved to.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::ports::dpdk::PortConfig;
use driver_shim::{Burst, MacAddr, Port};
use std::net::UdpSocket;
use std::sync::mpsc;
use std::time::Duration;

const PORT: u16 = 11211;
const SOCKETS: usize = 8;

#[test]
fn tap() {
    if !have_tun() {
        return;
    }
    enter_new_netns();
    let eal = eal();
    let region = small_region(&eal);
    for (n, queues, moved) in [(1, 1, false), (2, 2, false), (3, 1, true)] {
        let spec = format!("net_tap{n},iface=gn{n},mac=02:00:00:00:00:01");
        let mut port = start(&eal, &region, &PortConfig { queues, ..config(&spec) });
        assert_eq!(port.info.mac, MacAddr([2, 0, 0, 0, 0, 1]));
        assert!(port.info.tx_caps.ip && port.info.tx_caps.udp, "tap fills in checksums");
        assert!(!port.info.busy_poll);
        wait_for("the link", || port.control.link_up());

        std::thread::scope(|s| {
            let (where_to, here) = mpsc::channel();
            let (ready, go) = mpsc::channel();
            let asker = s.spawn(move || {
                if moved {
                    enter_new_netns();
                }
                where_to.send(thread_number()).unwrap();
                go.recv().unwrap();
                ask(n);
            });
            let there = here.recv().unwrap();
            if moved {
                run("ip", &format!("link set gn{n} netns {there}"));
            }
            ready.send(()).unwrap();
            answer(&mut port);
            asker.join().unwrap();
        });
        // The driver looks for the device by name, in the namespace where it made it.
        assert!(moved || port.control.link_up());
        let counters = port.control.counters();
        assert!(counters.rx_frames >= 8 && counters.tx_frames >= 8, "{counters:?}");
        drop(port);
        assert_eq!(region.available(), region.capacity());
    }
}

/// The kernel's side: sends a question from each of several sockets and wants it back.
fn ask(n: usize) {
    run("ip", &format!("link set gn{n} address 02:00:00:00:00:02 up"));
    run("ip", &format!("addr add 10.77.{n}.1/24 dev gn{n}"));
    let peer = format!("10.77.{n}.2");
    run("ip", &format!("neigh replace {peer} lladdr 02:00:00:00:00:01 dev gn{n} nud permanent"));
    // Several flows, so that they fall on several queues.
    let sockets: Vec<UdpSocket> = (0..SOCKETS)
        .map(|_| {
            let s = UdpSocket::bind(("0.0.0.0", 0)).unwrap();
            s.connect((peer.as_str(), PORT)).unwrap();
            s.set_nonblocking(true).unwrap();
            s
        })
        .collect();
    for (i, s) in sockets.iter().enumerate() {
        s.send(&pattern(i, 100 + i)).unwrap();
    }
    let mut answer = [0; 2048];
    for (i, s) in sockets.iter().enumerate() {
        let mut len = 0;
        wait_for("an answer", || {
            s.recv(&mut answer).is_ok_and(|n| {
                len = n;
                true
            })
        });
        assert_eq!(answer[..len], pattern(i, 100 + i));
    }
}

/// The port's side: sends every question back.
fn answer(port: &mut Port) {
    let mut answered = 0;
    wait_for("the questions", || {
        for pair in &mut port.queues {
            let mut burst = Burst::new();
            if pair.rx.burst(&mut burst) == 0 {
                pair.rx.idle(Duration::from_micros(50));
            }
            for mut f in burst.into_iter().filter(|f| is_udp_to(f, PORT)) {
                assert!(f.rx.ip_good.is_set() && f.rx.udp_good.is_set(), "tap verifies checksums");
                // Every other checksum is left to the driver.
                turn_round(&mut f, answered % 2 == 1);
                send(pair, f);
                answered += 1;
            }
        }
        answered == SOCKETS
    });
}
