//! Real sockets on loopback.

use super::*;
use crate::Pages;
use crate::port::PortControl;
use crate::ports::tap::{Tap, tests as tap};
use std::collections::HashSet;
use std::time::Instant;

const PATIENCE: Duration = Duration::from_secs(10);

fn region(slots: u32) -> Region {
    Region::new(slots, Pages::Small).unwrap()
}

fn open_one(region: &Region, bind: &str) -> (Port, SocketAddr) {
    let (port, local) =
        open(&UdpPortConfig { binds: vec![bind.parse().unwrap()], queues: 1 }, region).unwrap();
    (port, local[0])
}

fn client(port: SocketAddr) -> UdpSocket {
    let any = if port.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" };
    let socket = UdpSocket::bind(any).unwrap();
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.connect(port).unwrap();
    socket
}

/// Receives until `n` frames are there, sleeping in `idle` as a worker does.
fn receive(q: &mut QueuePair, n: usize, into: &mut Burst) {
    let end = Instant::now() + PATIENCE;
    while into.len() < n {
        assert!(Instant::now() < end, "{} of {n} frames came", into.len());
        if q.rx.burst(into) == 0 {
            q.rx.idle(Duration::from_millis(100));
        }
    }
}

/// Makes each request its own answer: addresses and ports swapped, payload kept.
fn turn_round(frame: &mut Frame) {
    let (mut request, b) = (frame.bytes().to_vec(), frame.bytes_mut());
    let v6 = request[12..14] == [0x86, 0xdd];
    request.resize(b.len(), 0);
    let (ip, len) = if v6 { (22, 16) } else { (26, 4) };
    let udp = ip + 2 * len;
    for (at, len) in [(0, 6), (ip, len), (udp, 2)] {
        b[at..at + len].copy_from_slice(&request[at + len..at + 2 * len]);
        b[at + len..at + 2 * len].copy_from_slice(&request[at..at + len]);
    }
}

fn echo(bind: &str) {
    let region = region(512);
    let (mut port, addr) = open_one(&region, bind);
    let client = client(addr);
    let payloads: Vec<Vec<u8>> = [0, 1, 7, 100, 1400, 1858].map(|n| vec![7; n]).into();
    for p in &payloads {
        client.send(p).unwrap();
    }
    let mut burst = Burst::new();
    receive(&mut port.queues[0], payloads.len(), &mut burst);
    for (frame, payload) in burst.iter_mut().zip(&payloads) {
        let d = headers::parse(frame.bytes()).unwrap();
        assert_eq!((d.from, d.to), (client.local_addr().unwrap(), addr));
        assert_eq!(d.payload, payload);
        assert!(frame.rx.ip_good.is_set() && frame.rx.udp_good.is_set());
        assert_eq!(frame.bytes()[0..6], port.info.mac.0);
        turn_round(frame);
    }
    let bytes: usize = burst.iter().map(Frame::len).sum();
    assert_eq!(port.queues[0].tx.burst(&mut burst), payloads.len());
    assert!(burst.is_empty());
    let mut buffer = [0; 4096];
    for p in &payloads {
        let n = client.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], p);
    }
    let (n, bytes) = (payloads.len() as u64, bytes as u64);
    assert_eq!(
        port.control.counters(),
        PortCounters {
            rx_frames: n,
            tx_frames: n,
            rx_bytes: bytes,
            tx_bytes: bytes,
            ..Default::default()
        }
    );
    drop(port);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn echo_ipv4() {
    echo("127.0.0.1:0");
}

#[test]
fn echo_ipv6() {
    echo("[::1]:0");
}

#[test]
fn a_wildcard_answers_from_the_address_that_was_asked() {
    let region = region(256);
    let (mut port, addr) = open_one(&region, "0.0.0.0:0");
    assert!(port.info.any_destination && !port.info.busy_poll);
    // A connected client takes answers only from the address it asked.
    for ip in ["127.0.0.1", "127.0.0.2", "127.9.8.7"] {
        let client = client(SocketAddr::new(ip.parse().unwrap(), addr.port()));
        client.send(b"hello").unwrap();
        let mut burst = Burst::new();
        receive(&mut port.queues[0], 1, &mut burst);
        let to = headers::parse(burst[0].bytes()).unwrap().to;
        assert_eq!(to.ip().to_string(), ip);
        turn_round(&mut burst[0]);
        port.queues[0].tx.burst(&mut burst);
        let mut buffer = [0; 16];
        assert_eq!(client.recv(&mut buffer).unwrap(), 5);
    }
    drop(port);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn two_families_and_two_addresses_share_a_queue() {
    let region = region(1024);
    let binds = ["127.0.0.1:0", "[::]:0", "127.0.0.5:0"].map(|b| b.parse().unwrap()).into();
    let (mut port, local) = open(&UdpPortConfig { binds, queues: 1 }, &region).unwrap();
    assert_eq!(port.info.name, format!("udp:{},{},{}", local[0], local[1], local[2]));
    let asked = [local[0], SocketAddr::new("::1".parse().unwrap(), local[1].port()), local[2]];
    let clients = asked.map(client);
    for c in &clients {
        c.send(b"hello").unwrap();
    }
    let mut burst = Burst::new();
    receive(&mut port.queues[0], 3, &mut burst);
    burst.iter_mut().for_each(turn_round);
    assert_eq!(port.queues[0].tx.burst(&mut burst), 3);
    for c in &clients {
        assert_eq!(c.recv(&mut [0; 16]).unwrap(), 5);
    }
    assert_eq!(port.control.counters().tx_errors, 0);
}

#[test]
fn many_datagrams_in_order_and_a_full_burst() {
    let region = region(512);
    let (mut port, addr) = open_one(&region, "127.0.0.1:0");
    let client = client(addr);
    for i in 0..150_u8 {
        client.send(&[i]).unwrap();
    }
    let mut next = 0;
    while next < 150 {
        let mut burst = Burst::new();
        let want = BURST_MAX.min(150 - usize::from(next));
        receive(&mut port.queues[0], want, &mut burst);
        assert_eq!(burst.len(), want, "loopback has queued them all");
        for f in &burst {
            assert_eq!(headers::parse(f.bytes()).unwrap().payload, [next]);
            next += 1;
        }
    }
    assert_eq!(port.queues[0].rx.burst(&mut Burst::new()), 0);
}

#[test]
fn a_datagram_longer_than_a_slot_is_a_first_fragment_and_the_next_is_whole() {
    let region = region(256);
    let (mut port, addr) = open_one(&region, "127.0.0.1:0");
    let client = client(addr);
    let longest = FRAME_MAX_BYTES - headers::headers_len(false);
    client.send(b"before").unwrap();
    client.send(&vec![1; longest + 1]).unwrap();
    client.send(&vec![2; 60_000]).unwrap();
    client.send(&vec![3; longest]).unwrap();
    let mut burst = Burst::new();
    receive(&mut port.queues[0], 4, &mut burst);
    assert_eq!(headers::parse(burst[0].bytes()).unwrap().payload, b"before");
    assert_eq!(headers::parse(burst[3].bytes()).unwrap().payload, vec![3; longest]);
    for (frame, value, len) in [(&burst[1], 1, longest + 1), (&burst[2], 2, 60_000)] {
        let b = frame.bytes();
        assert_eq!(b[20..22], [0x20, 0], "more fragments");
        assert_eq!(usize::from(u16::from_be_bytes([b[38], b[39]])), 8 + len);
        assert!(b.len() > FRAME_MAX_BYTES - 8 && b[42..].iter().all(|b| *b == value));
        assert!(frame.rx.ip_good.is_set() && !frame.rx.udp_good.is_set());
    }
    let c = port.control.counters();
    assert_eq!((c.rx_frames, c.rx_errors), (4, 0));
    drop((port, burst));
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn peers_spread_over_queues_and_each_queue_answers() {
    let region = region(2048);
    let config = UdpPortConfig { binds: vec!["127.0.0.1:0".parse().unwrap()], queues: 4 };
    let (mut port, local) = open(&config, &region).unwrap();
    let clients: Vec<UdpSocket> = (0..64).map(|_| client(local[0])).collect();
    for c in &clients {
        c.send(b"hello").unwrap();
    }
    let mut used = HashSet::new();
    let mut answered = 0;
    let end = Instant::now() + PATIENCE;
    while answered < clients.len() {
        assert!(Instant::now() < end, "{answered} arrived");
        for (q, pair) in port.queues.iter_mut().enumerate() {
            let mut burst = Burst::new();
            if pair.rx.burst(&mut burst) > 0 {
                used.insert(q);
            }
            burst.iter_mut().for_each(turn_round);
            answered += pair.tx.burst(&mut burst);
        }
    }
    for c in &clients {
        assert_eq!(c.recv(&mut [0; 16]).unwrap(), 5);
    }
    // The first socket joined the group late: it must get its share all the same.
    assert_eq!(used, HashSet::from([0, 1, 2, 3]));
    drop(port);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn a_port_in_use_is_an_error_even_if_its_user_would_share() {
    let region = region(64);
    let any = "127.0.0.1:0".parse().unwrap();
    let shared = bind_one(any, 1, 2).unwrap();
    let taken = shared.addr;
    for queues in [1, 2] {
        let e = open(&UdpPortConfig { binds: vec![taken], queues }, &region).unwrap_err();
        assert!(matches!(e, UdpPortError::InUse(a) if a == taken), "{e}");
        assert!(e.to_string().contains(&taken.to_string()));
    }
}

#[test]
fn bad_configurations_are_errors() {
    let region = region(64);
    let fail = |binds: Vec<SocketAddr>, queues| {
        open(&UdpPortConfig { binds, queues }, &region).unwrap_err()
    };
    let any: SocketAddr = "127.0.0.1:0".parse().unwrap();
    assert!(matches!(fail(vec![], 1), UdpPortError::Binds(0)));
    assert!(matches!(fail(vec![any; 17], 1), UdpPortError::Binds(17)));
    assert!(matches!(fail(vec![any], 0), UdpPortError::NoQueues));
    let foreign = "192.0.2.77:11211".parse().unwrap();
    assert!(matches!(fail(vec![foreign], 1), UdpPortError::NotLocal(a) if a == foreign));
}

#[test]
fn what_cannot_leave_is_consumed_counted_and_does_not_hold_up_the_rest() {
    let region = region(256);
    let (mut port, addr) = open_one(&region, "127.0.0.1:0");
    let client = client(addr);
    for i in 0..7_u8 {
        client.send(&[i]).unwrap();
    }
    let mut burst = Burst::new();
    receive(&mut port.queues[0], 7, &mut burst);
    burst.iter_mut().for_each(turn_round);
    burst[0].bytes_mut()[23] = 6; // TCP
    burst[2].bytes_mut()[30..34].copy_from_slice(&[255; 4]); // broadcast: EACCES
    burst[3].bytes_mut()[34] ^= 1; // a source port that is no socket's
    burst[5].set_len(30).unwrap(); // cut short
    assert_eq!(port.queues[0].tx.burst(&mut burst), 7);
    assert!(burst.is_empty());
    for want in [1, 4, 6] {
        let mut buffer = [0; 16];
        assert_eq!(client.recv(&mut buffer).unwrap(), 1);
        assert_eq!(buffer[0], want);
    }
    let c = port.control.counters();
    assert_eq!((c.tx_frames, c.tx_errors), (3, 4));
    drop(port);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn a_full_socket_buffer_leaves_the_frames() {
    tap::in_namespace(|| {
        let region = region(256);
        let mut device = Tap::open(&tap::config("gn%d")).unwrap();
        let bound = bind_one("10.9.0.1:0".parse().unwrap(), 0, 1).unwrap();
        // The least buffer there is, and a peer whose Ethernet address is not known yet:
        // Linux holds the datagrams, on the socket's account.
        setsockopt(&bound.socket, sockopt::SndBuf, &1).unwrap();
        let source = bound.addr;
        let tally = Arc::<Tally>::default();
        let mut tx = UdpTx { sockets: vec![bound].into(), tally: Arc::clone(&tally) };
        let mut burst = Burst::new();
        for i in 0..BURST_MAX {
            let mut f = region.alloc().unwrap();
            f.set_len(1042 + i).unwrap();
            headers::write(f.bytes_mut(), source, "10.9.0.2".parse().unwrap(), 9).unwrap();
            burst.push(f);
        }
        let sent = tx.burst(&mut burst);
        assert!(0 < sent && sent < BURST_MAX, "{sent}");
        assert_eq!(burst.len(), BURST_MAX - sent);
        assert_eq!(burst[0].len(), 1042 + sent);
        assert_eq!(tx.burst(&mut burst), 0);

        // The address becomes known, the device takes what was held, and there is room again.
        device.write(&tap::arp(2, device_mac())).unwrap();
        let mut frame = region.alloc().unwrap();
        let end = Instant::now() + PATIENCE;
        let mut expected = 1042;
        while expected < 1042 + BURST_MAX {
            assert!(Instant::now() < end);
            tx.burst(&mut burst);
            if !device.read(&mut frame).unwrap() {
                device.wait(None, Duration::from_millis(100));
            } else if frame.bytes()[12..14] == [8, 0] {
                assert_eq!(frame.len(), expected, "none lost, in order");
                expected += 1;
            }
        }
        assert_eq!((tally.tx_frames.get(), tally.tx_errors.get()), (BURST_MAX as u64, 0));
        drop((burst, frame));
        assert_eq!(region.available(), region.capacity());
    });
}

fn device_mac() -> [u8; 6] {
    tap::config("").mac.0
}

#[test]
fn a_link_local_peer_is_answered_through_its_interface() {
    tap::in_namespace(|| {
        let region = region(256);
        let mut config = tap::config("gn%d");
        config.addrs = vec![("fe80::77".parse().unwrap(), 64)];
        let device = Tap::open(&config).unwrap();
        let index = nix::net::if_::if_nametoindex(device.name()).unwrap();
        let (mut port, addr) = open_one(&region, "[::]:0");
        let at = |port| std::net::SocketAddrV6::new("fe80::77".parse().unwrap(), port, 0, index);
        let client = UdpSocket::bind(at(0)).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut burst = Burst::new();
        let end = Instant::now() + PATIENCE;
        // Linux adds the route to a new IPv6 address shortly after the address. A connected
        // socket might keep the route from before.
        while port.queues[0].rx.burst(&mut burst) == 0 {
            assert!(Instant::now() < end, "nothing came");
            client.send_to(b"hello", at(addr.port())).unwrap();
            port.queues[0].rx.idle(Duration::from_millis(20));
        }
        burst.iter_mut().for_each(turn_round);
        assert!(port.queues[0].tx.burst(&mut burst) > 0);
        assert_eq!(port.control.counters().tx_errors, 0);
        assert_eq!(client.recv(&mut [0; 16]).unwrap(), 5);
    });
}

#[test]
fn without_free_slots_datagrams_wait_in_the_kernel() {
    let region = region(64);
    let (mut port, addr) = open_one(&region, "127.0.0.1:0");
    let client = client(addr);
    let held: Vec<Frame> = std::iter::from_fn(|| region.alloc()).collect();
    client.send(b"patient").unwrap();
    let mut burst = Burst::new();
    assert_eq!(port.queues[0].rx.burst(&mut burst), 0);
    drop(held);
    receive(&mut port.queues[0], 1, &mut burst);
    assert_eq!(headers::parse(burst[0].bytes()).unwrap().payload, b"patient");
    assert_eq!(region.available(), 32, "half of a small region is the ring, one of it out");
}

#[test]
fn what_the_kernel_drops_is_seen() {
    let region = region(64);
    let bound = bind_one("127.0.0.1:0".parse().unwrap(), 0, 1).unwrap();
    setsockopt(&bound.socket, sockopt::RcvBuf, &1).unwrap();
    let client = client(bound.addr);
    for _ in 0..100 {
        client.send(&[0; 1000]).unwrap();
    }
    let control = UdpControl { tallies: Tallies(Vec::new()), sockets: vec![Arc::new([bound])] };
    assert!(control.counters().rx_missed > 50);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn idle_is_bounded_and_wakes_early() {
    let region = region(64);
    let (mut port, addr) = open_one(&region, "127.0.0.1:0");
    let start = Instant::now();
    port.queues[0].rx.idle(Duration::from_millis(20));
    assert!(start.elapsed() >= Duration::from_millis(20));
    client(addr).send(b"x").unwrap();
    let start = Instant::now();
    port.queues[0].rx.idle(PATIENCE);
    assert!(start.elapsed() < PATIENCE / 2);
}
