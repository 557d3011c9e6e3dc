//! A long answer over a network that loses, delays, copies and overtakes, on a clock of the test's own: how
//! long it takes follows from the seed alone.

use super::*;
use crate::wire::Ipv4Address;
use std::collections::BTreeMap;

/// One way through the network, in microseconds.
const WAY: i64 = 250;
const MB: usize = 1 << 20;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn happens(&mut self, per_million: u64) -> bool {
        self.next() % 1_000_000 < per_million
    }
}

/// Segments on their way, by when they arrive.
struct Way {
    random: Random,
    /// Segments of a million that are lost, and that three or so others overtake.
    faults: (u64, u64),
    under_way: BTreeMap<(i64, u64), (TcpRepr<'static>, Vec<u8>)>,
    count: u64,
    lost: u64,
}

impl Way {
    fn new(seed: u64, faults: (u64, u64)) -> Self {
        Self { random: Random(seed), faults, under_way: BTreeMap::new(), count: 0, lost: 0 }
    }

    fn enter(&mut self, now: i64, repr: &TcpRepr) {
        self.count += 1;
        // A segment a microsecond: what comes later is overtaken by as many as it is late.
        let late = if self.random.happens(self.faults.1) { 1 + self.random.next() % 4 * 10 } else { 0 };
        if self.random.happens(self.faults.0) {
            self.lost += 1;
            return;
        }
        let payload = repr.payload.to_vec();
        let head = TcpRepr { payload: &[], ..*repr };
        let at = (now + WAY + late as i64, self.count);
        if self.random.happens(self.faults.1 / 10) {
            self.under_way.insert((at.0 + 1, self.count), (head.clone(), payload.clone()));
        }
        self.under_way.insert(at, (head, payload));
    }
}

struct End {
    socket: Socket<'static>,
    cx: Context,
    ours: Ipv4Address,
    theirs: Ipv4Address,
}

impl End {
    fn new(coming: usize, going: usize, ours: [u8; 4], theirs: [u8; 4], modern: bool) -> Self {
        let buffer = |n| SocketBuffer::new(vec![0; n]);
        let mut socket = Socket::new(buffer(coming), buffer(going));
        socket.set_ack_delay(None);
        socket.set_nagle_enabled(false);
        if modern {
            socket.set_min_rto(Duration::from_millis(200));
            socket.set_large_initial_window(true);
        }
        let cx = Context { now: Instant::ZERO, ip_mtu: 1500, initial_seq: u32::MAX - 5000 };
        Self { socket, cx, ours: ours.into(), theirs: theirs.into() }
    }

    /// Takes what has arrived, and sends what it has to.
    fn go(&mut self, now: i64, from: &mut Way, to: &mut Way, sack: bool) {
        self.cx.now = Instant::from_micros(now);
        while let Some(entry) = from.under_way.first_entry() {
            if entry.key().0 > now {
                break;
            }
            let (mut head, payload) = entry.remove();
            head.sack_permitted &= sack;
            let repr = TcpRepr { payload: &payload, ..head };
            let (theirs, ours) = (self.theirs.into(), self.ours.into());
            let ip = IpRepr::new(theirs, ours, IpProtocol::Tcp, repr.buffer_len(), 64);
            if self.socket.accepts(&mut self.cx, &ip, &repr)
                && let Some((_, answer)) = self.socket.process(&mut self.cx, &ip, &repr)
            {
                to.enter(now, &answer);
            }
        }
        loop {
            let mut sent = false;
            let _ = self.socket.dispatch(&mut self.cx, |_, _, (_, repr)| {
                to.enter(now, &repr);
                sent = true;
                Ok::<_, ()>(())
            });
            if !sent {
                return;
            }
        }
    }

    fn due(&mut self) -> Option<i64> {
        match self.socket.poll_at(&mut self.cx) {
            PollAt::Now => Some(self.cx.now.total_micros() + 1),
            PollAt::Time(at) => Some(at.total_micros()),
            PollAt::Ingress => None,
        }
    }
}

/// Bytes a second of an answer of so many bytes, which is compared.
fn goodput(seed: u64, faults: (u64, u64), bytes: usize, modern: bool, sack: bool) -> f64 {
    goodput_with(seed, faults, bytes, (modern, sack), |_| {})
}

/// The same, with something done to both ends at each moment.
fn goodput_with(
    seed: u64,
    faults: (u64, u64),
    bytes: usize,
    (modern, sack): (bool, bool),
    mut also: impl FnMut([&mut End; 2]),
) -> f64 {
    let (server, client) = ([10, 0, 0, 2], [10, 0, 0, 1]);
    let mut server_end = End::new(16 << 10, 16 << 10, server, client, modern);
    let mut client_end = End::new(256 << 10, 16 << 10, client, server, true);
    server_end.socket.listen(80).unwrap();
    let local = (IpAddress::from(client_end.ours), 4000);
    let remote = (IpAddress::from(client_end.theirs), 80);
    client_end.socket.connect(&mut client_end.cx, remote, local).unwrap();
    let (mut there, mut back) = (Way::new(seed, faults), Way::new(!seed, faults));
    let byte = |n: usize| (n % 251) as u8;
    let (mut written, mut read, mut now) = (0, 0, 0i64);
    while read < bytes {
        server_end.go(now, &mut there, &mut back, sack);
        also([&mut server_end, &mut client_end]);
        while written < bytes && server_end.socket.can_send() {
            let next: Vec<u8> = (written..bytes.min(written + 4096)).map(byte).collect();
            written += server_end.socket.send_slice(&next).unwrap();
        }
        server_end.go(now, &mut there, &mut back, sack);
        client_end.go(now, &mut back, &mut there, sack);
        while client_end.socket.can_recv() {
            let taken = client_end.socket.recv(|came| {
                assert!(came.iter().enumerate().all(|(n, &b)| b == byte(read + n)), "at {read}");
                (came.len(), came.len())
            });
            read += taken.unwrap();
        }
        let arrives = |way: &Way| way.under_way.keys().next().map(|at| at.0);
        let next = [arrives(&there), arrives(&back), server_end.due(), client_end.due()];
        now = next.into_iter().flatten().min().expect("something is to come").max(now + 1);
        assert!(now < 3_600_000_000, "{read} bytes in an hour");
    }
    bytes as f64 / (now as f64 / 1e6)
}

/// Loss alone, and loss with segments that others overtake and that come twice.
const FAULTS: [(u64, u64); 2] = [(10_000, 0), (10_000, 50_000)];

#[test]
fn a_bad_network_costs_time_and_not_bytes() {
    let whole = goodput(1, (0, 0), 4 * MB, true, true);
    for faults in FAULTS {
        let of = |modern, sack| {
            let all = (1..=5).map(move |seed| goodput(seed, faults, 4 * MB, modern, sack) / whole);
            all.collect::<Vec<_>>()
        };
        let (now, without) = (of(true, true), of(false, false));
        println!("{faults:?}, of {whole:.0} B/s without faults: {now:.3?}; without SACK, at least a second to a retransmission: {without:.3?}");
        let least = now.iter().copied().fold(f64::MAX, f64::min);
        assert!(least > 0.25, "{now:?}");
        assert!(now.iter().sum::<f64>() > 2.5, "{now:?}");
        assert!(now.iter().sum::<f64>() > 4. * without.iter().sum::<f64>(), "{now:?}, {without:?}");
    }
}

/// Buffers that are exchanged for longer and shorter ones under way lose nothing, in order or behind a gap.
#[test]
fn buffers_may_be_exchanged_under_way() {
    let buffer = |n| SocketBuffer::new(vec![0; n]);
    for (n, faults) in FAULTS.into_iter().enumerate() {
        let mut random = Random(n as u64);
        let mut others = [0; 2].map(|_| (buffer(24 << 10), buffer(24 << 10)));
        let mut counts = [[0; 2]; 2];
        let exchange = |ends: [&mut End; 2]| {
            for (at, end) in ends.into_iter().enumerate() {
                if random.happens(100_000) {
                    let (rx, tx) = &mut others[at];
                    let done = end.socket.swap_buffers(rx, tx);
                    assert!(rx.is_empty() && tx.is_empty());
                    counts[at][usize::from(done)] += 1;
                }
            }
        };
        assert!(goodput_with(7, faults, 2 * MB, (true, true), exchange) > 0.);
        // What the server had to send did not always fit.
        let [[server_not, server], [_, client]] = counts;
        assert!(server_not > 10 && server > 10 && client > 10, "{counts:?}");
    }
}

/// A remote that does not have SACK gets every octet, too.
#[test]
fn without_sack_nothing_is_lost_either() {
    for faults in FAULTS {
        assert!(goodput(3, faults, MB / 2, true, false) > 0.);
    }
}

/// A server and its client, which are connected after four ways, and the two ways of a good network.
fn connected(mtu: usize) -> ([End; 2], [Way; 2]) {
    let mut end = End::new(16 << 10, 64 << 10, [10, 0, 0, 2], [10, 0, 0, 1], true);
    let mut client = End::new(64 << 10, 16 << 10, [10, 0, 0, 1], [10, 0, 0, 2], true);
    (end.cx.ip_mtu, client.cx.ip_mtu) = (mtu, mtu);
    end.socket.listen(80).unwrap();
    let (local, remote) = (IpAddress::from(client.ours), IpAddress::from(client.theirs));
    client.socket.connect(&mut client.cx, (remote, 80), (local, 4000)).unwrap();
    let (mut there, mut back) = (Way::new(1, (0, 0)), Way::new(2, (0, 0)));
    for n in 0..4 {
        client.go(n * WAY, &mut back, &mut there, true);
        end.go(n * WAY, &mut there, &mut back, true);
    }
    ([end, client], [there, back])
}

/// The second of five segments is lost, and one acknowledgement comes for all that arrived: recovery begins
/// with it, though it acknowledges the first (RFC 6675, section 5).
#[test]
fn an_acknowledgement_of_more_begins_recovery() {
    const MSS: usize = 1460;
    let ([mut end, client], [mut there, mut back]) = connected(1500);
    end.socket.send_slice(&[7; 5 * MSS]).unwrap();
    end.go(4 * WAY, &mut there, &mut back, true);
    let (first, sent) = (end.socket.local_seq_no, back.count);
    let number = |octets: usize| (first + octets).0 as u32;
    let acknowledgement = TcpRepr {
        src_port: 4000,
        dst_port: 80,
        control: TcpControl::None,
        seq_number: client.socket.local_seq_no,
        ack_number: Some(first + MSS),
        window_len: 60_000,
        window_scale: None,
        max_seg_size: None,
        sack_permitted: false,
        sack_ranges: [Some((number(2 * MSS), number(5 * MSS))), None, None],
        timestamp: None,
        payload: &[],
    };
    there.enter(4 * WAY, &acknowledgement);
    end.go(5 * WAY, &mut there, &mut back, true);
    let again = back.under_way.iter().filter(|((_, count), _)| *count > sent);
    let again: Vec<_> = again.map(|(_, (head, octets))| (head.seq_number, octets.len())).collect();
    assert_eq!(again, [(first + MSS, MSS)]);
}

/// Ten segments leave at once, or 14,600 octets where that is less, and no more.
#[test]
fn the_first_flight_is_of_ten_segments() {
    for (mtu, segments) in [(1500, 10), (576, 10), (3000, 5)] {
        let ([mut end, _], [mut there, mut back]) = connected(mtu);
        let sent = back.count;
        end.socket.send_slice(&[7; 60_000]).unwrap();
        end.go(4 * WAY, &mut there, &mut back, true);
        assert_eq!(back.count - sent, segments, "of packets of {mtu}");
    }
}
