//! Segments of TCP connections, in any order and with anything in their headers. Whatever a client
//! sends, what it gets is the replies to the bytes at their sequence numbers, within the window that it
//! gave, behind right checksums; a client that then goes on honestly gets the rest, and no reset; and no slot is lost.

use crate::tcp::{LONG_ITEM_MAX_BYTES, on_a_new_server_with_long_items};
use dataplane::observe::Server;
use dataplane::policy::{Gate, Policy};
use dataplane::stages::stream::{StreamPort, Streams, StreamsConfig};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use driver_shim::{Pages, Region};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, Instant};
use store::verbs;
use wire::{At, tcp};

const PORT: u16 = 11_211;
const SLOTS: u32 = 256;
/// Connections of the client's, one of them over IPv6.
const CLIENTS: usize = 3;
/// Bytes of the input that make a segment.
const STEP: usize = 8;
const STEPS_MAX: usize = 64;
/// Most bytes of a segment, with room to spare.
const SEGMENT_MAX: usize = 2048;
/// Bytes behind what it has acknowledged that the server may have kept: its window, while a connection has long buffers.
const WINDOW: u32 = 256 << 10;
const MS: u64 = 1_000_000;
/// A client that says nothing for so long may be given up.
const SILENCE: u64 = 180_000 * MS;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// What only such options begin with as are longer than there is room for, or shorter than they can be: the kind of SACK.
const WRONG_OPTION: [u8; 1] = [5];

/// Bytes of the value that clients set and get: long, so that a window is full after a few requests.
const VALUE_BYTES: usize = 900;
/// Bytes of the value that is there: longer than the buffers of a connection, which then has others for a while.
const LONG_BYTES: usize = 20_000;

thread_local! {
    static REGION: Region = Region::new(SLOTS, Pages::Small).expect("a region");
    static TEXT: (Vec<u8>, Vec<u8>) = text();
    static LONG: String = long();
}

/// What every client says, over and over, and what it is answered: whole requests.
fn text() -> (Vec<u8>, Vec<u8>) {
    let value: String = ('a'..='z').cycle().take(VALUE_BYTES).collect();
    let set = format!("set a 7 0 {VALUE_BYTES}\r\n{value}\r\n");
    let of_long = format!("VALUE long 0 {LONG_BYTES}\r\n{}\r\n", long());
    let of_a = format!("VALUE a 7 {VALUE_BYTES}\r\n{value}\r\n");
    let (mut says, mut hears) = (Vec::new(), Vec::new());
    for (request, reply) in [
        (set.clone(), "STORED\r\n".to_owned()),
        ("get a\r\n".to_owned(), format!("{of_a}END\r\n")),
        ("mn\r\n".to_owned(), "MN\r\n".to_owned()),
        ("get none a none\r\n".to_owned(), format!("{of_a}END\r\n")),
        ("mg a v\r\n".to_owned(), format!("VA {VALUE_BYTES}\r\n{value}\r\n")),
        ("nonsense\r\n".to_owned(), "ERROR\r\n".to_owned()),
        ("get a a a\r\n".to_owned(), format!("{}END\r\n", of_a.repeat(3))),
        ("get long a\r\n".to_owned(), format!("{of_long}{of_a}END\r\n")),
        // So that a round of requests is not much shorter than its replies.
        (set.repeat(4), "STORED\r\n".repeat(4)),
    ] {
        says.extend_from_slice(request.as_bytes());
        hears.extend_from_slice(reply.as_bytes());
    }
    let again = |mut text: Vec<u8>| {
        let rest: Vec<_> = text.iter().cycle().take(SEGMENT_MAX).copied().collect();
        text.extend(rest);
        text
    };
    (again(says), again(hears))
}

/// The long value.
fn long() -> String {
    ('A'..='Z').cycle().take(LONG_BYTES).collect()
}

/// Puts it into the store.
fn keep_long(server: &Server) {
    let mut session = server.store.session().expect("a session");
    LONG.with(|value| {
        let set = base::Store::set(b"long", 0, 0, value.as_bytes());
        verbs::store(&mut session, None, &set).expect("there is memory for it");
    });
}

/// `len` bytes from number `at` on of what is said again and again, of which `of` has a round and all that a segment
/// can have besides.
fn bytes(of: &[u8], at: u32, len: usize) -> &[u8] {
    // What lies before the first byte counts downwards, as sequence numbers do.
    let round = i32::try_from(of.len() - SEGMENT_MAX).expect("short");
    let from = usize::try_from(at.cast_signed().rem_euclid(round)).expect("not negative");
    &of[from..from + len]
}

/// One connection, as its client knows it.
#[derive(Debug, Default)]
struct Client {
    ipv6: bool,
    port: u16,
    /// Of the last SYN sent, and of the connection that the server has agreed to, which it has not yet
    /// ended with a reset.
    asked: u32,
    isn: u32,
    iss: u32,
    agreed: bool,
    /// Ends of what was sent, and of what the server has said that it has, counted from `isn`.
    sent: u32,
    acked: u32,
    /// Replies that came without a gap, and the furthest byte that the client has given room for, counted
    /// from `iss` + 1.
    got: u32,
    room: u64,
    /// Bytes that came before their time.
    early: Vec<(u32, u32)>,
    shift: u32,
    fin_at: Option<u32>,
    /// It has sent an end, and perhaps bytes behind it, which the server has then, too.
    ended: bool,
    /// It has acknowledged what it does not have, or ended, or said what the server may take for that.
    odd: bool,
    /// Bytes of replies that it said it has.
    claimed: u32,
    /// Ends of what was sent, as they are counted there, and when that was.
    said: Vec<(u32, u64)>,
    /// The server has taken something that the client said on this connection, the last of which was said then.
    confirmed: bool,
    taken_ns: u64,
}

struct Segment {
    flags: u8,
    seq: u32,
    ack: u32,
    window: u16,
    options: Vec<u8>,
    payload: Vec<u8>,
}

impl Client {
    fn ends(&self) -> (IpAddr, IpAddr) {
        if self.ipv6 {
            let of = |n| IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, n));
            (of(1), of(2))
        } else {
            let of = |n| IpAddr::V4(Ipv4Addr::new(10, 0, 0, n));
            (of(1), of(2))
        }
    }

    /// The frame, whose checksums are right.
    fn frame(&self, s: &Segment) -> Vec<u8> {
        let head = 20 + s.options.len();
        let len = u16::try_from(head + s.payload.len()).expect("short");
        let mut f = [&MAC.0[..], &PEER_MAC.0].concat();
        match self.ends() {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
                ip[2..4].copy_from_slice(&(20 + len).to_be_bytes());
                ip.extend(from.octets().into_iter().chain(to.octets()));
                let pairs = ip.chunks(2).map(|p| u32::from(p[0]) << 8 | u32::from(p[1]));
                let sum: u32 = pairs.sum();
                let sum = !u16::try_from((sum & 0xffff) + (sum >> 16)).expect("a carry at most");
                ip[10..12].copy_from_slice(&sum.to_be_bytes());
                f.extend([8, 0]);
                f.extend(ip);
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                f.extend([0x86, 0xdd, 0x60, 0, 0, 0]);
                f.extend(len.to_be_bytes().into_iter().chain([6, 64]));
                f.extend(from.octets().into_iter().chain(to.octets()));
            }
            _ => unreachable!("one version"),
        }
        f.extend(self.port.to_be_bytes().into_iter().chain(PORT.to_be_bytes()));
        f.extend(s.seq.to_be_bytes().into_iter().chain(s.ack.to_be_bytes()));
        f.extend([u8::try_from(head / 4 * 16).expect("15 words"), s.flags]);
        f.extend(s.window.to_be_bytes().into_iter().chain([0; 4]));
        f.extend_from_slice(&s.options);
        f.extend_from_slice(&s.payload);
        let l4 = if self.ipv6 { 40 } else { 20 };
        tcp::seal(&mut f[14..], l4, self.ipv6);
        f
    }

    /// Notes what the client says by this.
    fn note_sent(&mut self, s: &Segment, now_ns: u64) {
        // With an option of a wrong length it asks for nothing.
        if s.flags & (SYN | ACK | RST | FIN) == SYN && !s.options.starts_with(&WRONG_OPTION) {
            self.asked = s.seq;
        }
        if s.flags & (SYN | RST | FIN) != 0 {
            self.odd = true;
            self.ended |= s.flags & FIN != 0;
        }
        let len = u32::try_from(s.payload.len()).expect("short") + u32::from(s.flags & FIN);
        let end = s.seq.wrapping_sub(self.isn).wrapping_add(len);
        if end < 1 << 30 {
            self.sent = self.sent.max(end);
            self.said.push((end, now_ns));
        }
        if s.flags & ACK != 0 && self.agreed {
            let has = s.ack.wrapping_sub(self.iss.wrapping_add(1));
            if has <= 1 << 30 {
                self.odd |= has > self.got;
                self.claimed = self.claimed.max(has);
                self.room = self.room.max(u64::from(has) + (u64::from(s.window) << self.shift));
            }
        }
    }

    /// Takes in what the server sent, and judges it.
    fn hear(&mut self, hears: &[u8], h: &Heard<'_>, now_ns: u64) {
        if h.flags & RST != 0 {
            assert!(h.payload.is_empty() && h.flags & (SYN | FIN) == 0, "a bare reset");
            let is_silent = now_ns >= self.taken_ns + SILENCE;
            let is_honest = self.agreed && self.confirmed && !self.odd;
            assert!(!is_honest || is_silent, "a reset for an honest client: {self:?}");
            self.agreed = false;
            return;
        }
        assert!(h.flags & ACK != 0, "all but resets acknowledge");
        if h.flags & SYN != 0 {
            assert!(h.payload.is_empty() && h.flags & FIN == 0);
            if !self.agreed || self.iss != h.seq || self.isn.wrapping_add(1) != h.ack {
                assert_eq!(h.ack, self.asked.wrapping_add(1), "it agrees to what was asked");
                let (ipv6, port, asked) = (self.ipv6, self.port, self.asked);
                let (isn, iss, shift) = (asked, h.seq, self.shift);
                *self = Self { ipv6, port, asked, isn, iss, shift, ..Self::default() };
                (self.agreed, self.acked, self.sent) = (true, 1, 1);
                // Windows that were announced before it agreed count, too.
                self.room = 0xffff << shift;
            }
            return;
        }
        if !self.agreed {
            return;
        }
        let has = h.ack.wrapping_sub(self.isn);
        let sent = self.sent + u32::from(self.ended);
        assert!(has <= sent, "it acknowledges {has}, and {} was sent", self.sent);
        assert!(has >= self.acked, "it has {has}, and had {}", self.acked);
        if has > self.acked {
            // The first that was long enough may be what it has taken.
            let first = self.said.iter().find(|&&(end, _)| end >= has);
            (self.confirmed, self.taken_ns) = (true, first.map_or(0, |&(_, ns)| ns));
            self.said.retain(|&(end, _)| end > has);
        }
        self.acked = has;
        let at = h.seq.wrapping_sub(self.iss.wrapping_add(1));
        if h.payload.is_empty() && h.flags & FIN == 0 {
            return;
        }
        // It asks whether somebody is there, with a byte that the client has.
        // Or said that it has.
        if h.payload == [0] && at.wrapping_add(1) <= self.got.max(self.claimed) {
            return;
        }
        assert_eq!(h.payload, bytes(hears, at, h.payload.len()), "replies from byte {at} on");
        let end = at.wrapping_add(u32::try_from(h.payload.len()).expect("short"));
        assert!(u64::from(end) <= self.room + 1, "{end} bytes into {} of room", self.room);
        if let Some(fin) = self.fin_at {
            assert!(end <= fin, "more behind its end");
        }
        if h.flags & FIN != 0 {
            assert!(self.fin_at.is_none_or(|fin| fin == end), "one end");
            self.fin_at = Some(end);
        }
        self.early.push((at, end));
        self.early.sort_unstable();
        for &(at, end) in &self.early {
            if at <= self.got {
                self.got = self.got.max(end);
            }
        }
        let got = self.got;
        self.early.retain(|&(_, end)| end > got);
    }
}

/// A segment of the server's.
struct Heard<'a> {
    flags: u8,
    seq: u32,
    ack: u32,
    payload: &'a [u8],
}

struct World {
    streams: Streams,
    gate: Gate,
    region: Region,
    clients: Vec<Client>,
    says: Vec<u8>,
    hears: Vec<u8>,
    now_ns: u64,
}

impl World {
    fn new(server: &Arc<Server>) -> Self {
        let session = server.store.session().expect("a session");
        let config = StreamsConfig {
            requests_per_turn: 3,
            drain_max: Duration::from_secs(5),
            ..StreamsConfig::new(CLIENTS - 1, session, LONG_ITEM_MAX_BYTES)
        };
        let region = REGION.with(Region::clone);
        let ports = [StreamPort { mtu: 1500, tcp_port: PORT }];
        let streams =
            Streams::new(config, Arc::clone(server), &ports, region.clone(), Instant::now());
        let client = |n: u16| Client { ipv6: n == 2, port: 5000 + n, ..Client::default() };
        let (says, hears) = TEXT.with(Clone::clone);
        let gate = Gate::new(&Policy::default());
        let clients = (0..3).map(client).collect();
        Self { streams, gate, region, clients, says, hears, now_ns: 1_000 * MS }
    }

    /// Adds a segment to the burst.
    fn enter(&mut self, n: usize, segment: &Segment) {
        let client = &mut self.clients[n];
        client.note_sent(segment, self.now_ns);
        let bytes = client.frame(segment);
        let mut frame = self.region.alloc().expect("a slot");
        frame.fill(&bytes).expect("it fits");
        let l4 = 14 + if client.ipv6 { 40 } else { 20 };
        let at = At { l3: 14, l4, ipv6: client.ipv6, limited: false };
        // Why a segment is not taken is the accounts' affair.
        let _ = self.streams.enter(frame, at, 0);
    }

    /// Takes the burst. The clock moves between two bursts, as it does on a wire: the initial sequence
    /// number follows from the ends and the time, and must not come twice.
    fn take_all(&mut self) {
        self.now_ns += MS / 1000;
        self.streams.take_all(self.now_ns, |_, _, _| {});
    }

    /// A burst of one.
    fn send(&mut self, n: usize, segment: &Segment) {
        self.enter(n, segment);
        self.take_all();
    }

    fn turn(&mut self) {
        let mut turns = 0;
        while self.streams.turn(&mut self.gate, self.now_ns) > 0 {
            turns += 1;
            assert!(turns < 1000, "it does not come to rest");
            self.hear();
        }
        self.hear();
    }

    /// All that the server has sent, to the clients.
    fn hear(&mut self) {
        let frames: Vec<_> = self.streams.frames().collect();
        for (_, frame) in frames {
            let f = frame.bytes();
            assert_eq!((&f[..6], &f[6..12]), (&PEER_MAC.0[..], &MAC.0[..]));
            let ipv6 = f[12..14] == [0x86, 0xdd];
            let l4 = if ipv6 { 54 } else { 34 };
            let len = |at: usize| usize::from(u16::from_be_bytes([f[at], f[at + 1]]));
            assert_eq!(f.len(), if ipv6 { 54 + len(18) } else { 14 + len(16) });
            assert!(tcp::verify(&f[14..], l4 - 14, ipv6), "a right checksum");
            let number = |at: usize| u32::from_be_bytes(f[at..at + 4].try_into().expect("four"));
            let to = u16::from_be_bytes([f[l4 + 2], f[l4 + 3]]);
            let payload = &f[l4 + usize::from(f[l4 + 12] >> 4) * 4..];
            let (seq, ack) = (number(l4 + 4), number(l4 + 8));
            let heard = Heard { flags: f[l4 + 13] & 0x1f, seq, ack, payload };
            let client = self.clients.iter_mut().find(|c| c.port == to).expect("one of them");
            assert_eq!(client.ipv6, ipv6);
            client.hear(&self.hears, &heard, self.now_ns);
        }
    }

    /// One segment, as eight bytes have it.
    fn step(&mut self, step: &[u8; STEP]) {
        let [what, flags, from, by, acks, len, window, extra] = *step;
        let n = usize::from(what & 3) % CLIENTS;
        self.now_ns +=
            [0, 0, 1, 250, 1_000, 3_000, 10_000, 61_000][usize::from(what >> 2 & 7)] * MS;
        if what & 0x20 != 0 {
            self.turn();
        }
        let c = &mut self.clients[n];
        let flags = match flags {
            0..0xc0 => ACK,
            0xc0..0xd0 => SYN,
            0xd0..0xd8 => ACK | FIN,
            0xd8..0xe0 => RST,
            flags => flags & 0x1f,
        };
        let far = i32::from(by.cast_signed()) * [1, 1, 16, 999][usize::from(from >> 2 & 3)];
        let (base, far) = match from & 3 {
            0 => (c.isn.wrapping_add(c.acked), 0),
            1 => (c.isn.wrapping_add(c.sent), far),
            2 => (c.isn.wrapping_add(c.acked), far),
            // Near the end of the numbers.
            _ => (0_u32.wrapping_sub(by.into()), 0),
        };
        // Half of all numbers away, which is neither before nor behind.
        let half = |bit: u8| u32::from(from & bit != 0) << 31;
        let seq = base.wrapping_add_signed(far).wrapping_add(half(0x80));
        let behind = c.iss.wrapping_add(1);
        let ack = match acks {
            0..0x90 => behind.wrapping_add(c.got),
            0x90..0xb0 => behind.wrapping_add(c.got / 2),
            0xb0..0xd0 => behind.wrapping_add(c.got).wrapping_sub(acks.into()),
            0xd0..0xe0 => behind.wrapping_add(c.got).wrapping_add(u32::from(acks) - 0xcf),
            _ => u32::from(acks) << 24,
        };
        let ack = ack.wrapping_add(half(0x40));
        let window = [0xffff, 0, 1, 40, 1000, 1460, 8000, 65_000][usize::from(window & 7)];
        let len = [0, 1, 7, 100, 536, 1400, 23, 0][usize::from(len & 7)] + u32::from(len >> 3);
        let payload = if flags & SYN != 0 && extra & 1 == 0 { 0 } else { len };
        let first = seq.wrapping_sub(c.isn).wrapping_sub(1);
        let first = if flags & SYN != 0 { 0 } else { first };
        let payload = bytes(&self.says, first, payload as usize).to_vec();
        let options = match extra >> 1 & 7 {
            // As FreeBSD has them: MSS, a shift, SACK, timestamps.
            1 => vec![2, 4, 5, 0xb4, 1, 3, 3, 6, 4, 2, 8, 10, 0, 0, 0, 9, 0, 0, 0, 0],
            2 => vec![2, 4, 0, extra, 1, 3, 3, extra >> 4],
            3 => vec![1, 1, 8, 10, 0, 0, 0, 9, 0, 0, 0, extra],
            4 => [&WRONG_OPTION[..], &[extra, 3, 0, 2, 2, 0, 0]].concat(),
            5 => vec![0, 0, 0, 0],
            // It says that it has what it may lack: sooner or later it gets it all the same.
            6 => {
                let from = behind.wrapping_add(c.got).wrapping_add(u32::from(extra & 0xf0));
                let to = from.wrapping_add_signed(i32::from(by.cast_signed()) * 8);
                let mut options = vec![1, 1, 5, 10];
                options.extend(from.to_be_bytes().into_iter().chain(to.to_be_bytes()));
                options
            }
            _ => vec![],
        };
        if flags & SYN != 0 {
            // It may be asked for anew; the most that a window can mean then.
            c.shift = 14;
        }
        let segment = Segment { flags, seq, ack, window, options, payload };
        self.enter(n, &segment);
        if what & 0x40 != 0 {
            self.enter(n, &segment);
        }
        self.take_all();
        if what & 0x80 == 0 {
            self.turn();
        }
    }

    /// A client that has been honest goes on to the end of a round of requests, whatever was lost, and of what the
    /// server may have kept.
    fn finish(&mut self, n: usize) {
        let ends = |c: &Client| !c.agreed || c.odd || c.fin_at.is_some() || c.sent > 1 << 20;
        let round = |text: &[u8]| u32::try_from(text.len() - SEGMENT_MAX).expect("short");
        let (says, hears) = (round(&self.says), round(&self.hears));
        let c = &self.clients[n];
        let kept = c.sent.min(c.acked.saturating_add(WINDOW));
        let mut in_vain = 0;
        while in_vain < 200 {
            let c = &self.clients[n];
            if ends(c) {
                return;
            }
            let rounds = kept.max(c.acked).saturating_sub(1).div_ceil(says).max(1);
            let (all, replies) = (1 + rounds * says, rounds * hears);
            if c.acked == all && c.got == replies {
                return;
            }
            let (from, got) = (c.acked, c.got);
            let to = all.min(from + 1400);
            let payload = bytes(&self.says, from - 1, (to - from) as usize).to_vec();
            let (seq, ack) = (c.isn.wrapping_add(from), c.iss.wrapping_add(1 + c.got));
            let (flags, window, options) = (ACK, 0xffff, vec![]);
            self.send(n, &Segment { flags, seq, ack, window, options, payload });
            self.turn();
            self.now_ns += 700 * MS;
            self.turn();
            let c = &self.clients[n];
            in_vain = if (c.acked, c.got) == (from, got) { in_vain + 1 } else { 0 };
        }
        panic!("it hangs: {:?}, from {kept} on", self.clients[n]);
    }

    /// Ends it. Every slot returns.
    fn end(mut self, server: &Server) {
        // From here on it ends connections, and may say so.
        self.clients.iter_mut().for_each(|client| client.odd = true);
        self.streams.stop(self.now_ns);
        self.turn();
        // All are silent now, and none is served for longer than a second.
        self.now_ns += 1_100 * MS;
        self.turn();
        self.streams.cut();
        self.turn();
        assert!(self.streams.is_quiet(self.now_ns));
        drop(self.streams);
        assert_eq!(self.region.available(), self.region.capacity(), "slots were lost");
        let totals = server.totals();
        assert!(totals.closed_connections <= totals.total_connections);
    }
}

/// The first three bytes say near what number each client's own begin.
pub(crate) fn run(data: &[u8]) {
    let Some((begins, data)) = data.split_first_chunk::<CLIENTS>() else { return };
    on_a_new_server_with_long_items(|server| {
        keep_long(server);
        let mut world = World::new(server);
        for (n, begin) in begins.iter().enumerate() {
            let isn = (u32::from(*begin) << 24).wrapping_sub(u32::from(*begin));
            let syn = Segment {
                flags: SYN,
                seq: isn,
                ack: 0,
                window: 0xffff,
                options: vec![],
                payload: vec![],
            };
            if begin & 3 != 3 {
                world.send(n, &syn);
                world.turn();
                let c = &world.clients[n];
                let (seq, ack) = (isn.wrapping_add(1), c.iss.wrapping_add(1));
                let window = if begin & 4 == 0 { 0xffff } else { 0 };
                world.send(n, &Segment { flags: ACK, seq, ack, window, ..syn });
                world.turn();
            }
        }
        let (steps, _) = data.as_chunks::<STEP>();
        for step in steps.iter().take(STEPS_MAX) {
            world.step(step);
        }
        world.turn();
        for n in 0..CLIENTS {
            world.finish(n);
        }
        world.end(server);
    });
}
