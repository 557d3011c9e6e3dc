//! TLS over a connection, with a session whose records are plain to see: what the stage makes of it.
//!
//! A record is `k`, `d`, `r` or `e` (handshake, data, what is refused, end), its length, and its bytes,
//! turned round.

use crate::world::{Heard, Made, Peer, SECOND, World, len, open as world_open};
use dataplane::observe::OpTotals;
use dataplane::policy::{Policy, Rate};
use dataplane::stages::stream::{TlsConfig, TlsHandshakes, TlsSession, TlsSessions, TlsStep};
use std::io;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

const HEAD_BYTES: usize = 3;

/// Records with these bytes.
fn records(kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    for piece in bytes.chunks(16 << 10) {
        all.push(kind);
        all.extend(u16::try_from(piece.len()).unwrap().to_be_bytes());
        all.extend(piece.iter().map(|b| !b));
    }
    all
}

/// What whole records say, the kind and the bytes of each.
fn opened(mut bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let mut all = Vec::new();
    while let [kind, high, low, rest @ ..] = bytes {
        let long = usize::from(u16::from_be_bytes([*high, *low]));
        let Some((said, rest)) = rest.split_at_checked(long) else { break };
        all.push((*kind, said.iter().map(|b| !b).collect()));
        bytes = rest;
    }
    all
}

#[derive(Debug)]
struct Toy {
    is_open: bool,
    /// Records that it can still seal.
    seals: usize,
    /// How often it says what the client said in the handshake.
    echoes: usize,
}

impl TlsSession for Toy {
    fn advance(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> io::Result<(usize, TlsStep)> {
        let mut at = 0;
        while let Some([kind, high, low]) = incoming.get(at..at + HEAD_BYTES) {
            let end = at + HEAD_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
            match (kind, incoming.get(at + HEAD_BYTES..end)) {
                (b'k', Some(said)) => {
                    self.is_open = true;
                    let said: Vec<u8> = said.iter().map(|b| !b).collect();
                    outgoing.extend(records(b'k', &said).repeat(self.echoes));
                }
                (b'd', Some(said)) if self.is_open => plain.extend(said.iter().map(|b| !b)),
                (b'r', Some(_)) if self.is_open => outgoing.extend(records(b'r', b"no")),
                (b'e', Some(_)) if self.is_open => return Ok((end, TlsStep::Ended)),
                (b'k' | b'd' | b'r' | b'e', None) => break,
                _ => {
                    outgoing.extend(records(b'a', b"alert"));
                    return Err(io::ErrorKind::InvalidData.into());
                }
            }
            at = end;
        }
        Ok((at, if self.is_open { TlsStep::Open } else { TlsStep::Blocked }))
    }

    fn seal(&mut self, plain: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        self.seals = self.seals.checked_sub(1).ok_or(io::ErrorKind::BrokenPipe)?;
        outgoing.extend(records(b'd', plain));
        Ok(())
    }

    fn close(&mut self, outgoing: &mut Vec<u8>) -> io::Result<()> {
        if self.is_open {
            outgoing.extend(records(b'e', b"end"));
        }
        Ok(())
    }

    fn is_new(&self) -> bool {
        true
    }
}

#[derive(Debug)]
struct Toys {
    /// Records that a session can seal.
    seals: usize,
    echoes: usize,
    /// There is no memory for one.
    is_short: bool,
}

impl TlsSessions for Toys {
    fn begin(&self) -> io::Result<Box<dyn TlsSession>> {
        match self.is_short {
            true => Err(io::ErrorKind::OutOfMemory.into()),
            false => Ok(Box::new(Toy { is_open: false, seals: self.seals, echoes: self.echoes })),
        }
    }
}

const TOYS: Toys = Toys { seals: usize::MAX, echoes: 1, is_short: false };

/// The stage, and the thread that makes its handshakes.
struct Secured {
    world: World,
    /// What came while the client was speaking.
    early: Vec<Heard>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Secured {
    fn new(connections: usize) -> Self {
        Self::with(connections, TOYS, Made::default())
    }

    fn with(connections: usize, toys: Toys, made: Made) -> Self {
        let handshakes = Arc::new(TlsHandshakes::new(connections));
        let stop = Arc::new(AtomicBool::new(false));
        let (of, until) = (Arc::clone(&handshakes), Arc::clone(&stop));
        let thread = Some(std::thread::spawn(move || of.run(&until)));
        let tls = TlsConfig { sessions: Arc::new(toys), handshakes };
        let world = World::made(connections, Made { tls: Some(tls), ..made });
        Self { world, early: Vec::new(), stop, thread }
    }

    /// What the stage sends to this client until it has said `wanted` bytes or has ended, all of it
    /// acknowledged. Says whether the end was among it.
    fn hear(&mut self, p: &mut Peer, wanted: usize) -> (Vec<u8>, bool) {
        let (mut got, mut ended, begun) = (Vec::new(), false, Instant::now());
        while got.len() < wanted && !ended && begun.elapsed() < Duration::from_secs(5) {
            ended |= self.hear_some(p, &mut got);
            self.world.send(*p, "A", b"").unwrap();
        }
        (got, ended)
    }

    /// Adds what the stage sends to this client now.
    fn hear_some(&mut self, p: &mut Peer, got: &mut Vec<u8>) -> bool {
        let (early, mut ended) = (std::mem::take(&mut self.early), false);
        for heard in early.into_iter().chain(self.world.hear()) {
            if heard.to == p.port && heard.seq == p.ack {
                p.ack = p.ack.wrapping_add(len(&heard.payload));
                got.extend(heard.payload);
                ended |= heard.flags.contains('F');
            }
        }
        ended
    }

    /// A connection, whatever becomes of it then.
    fn knock(&mut self, port: u16) -> Peer {
        let p = Peer { port, seq: 100, ack: 0 };
        self.world.send(p, "S", b"").unwrap();
        let ack = self.world.hear()[0].seq.wrapping_add(1);
        let p = Peer { seq: 101, ack, ..p };
        self.world.send(p, "A", b"").unwrap();
        p
    }

    fn send(&mut self, p: &mut Peer, bytes: &[u8]) {
        for piece in bytes.chunks(1400) {
            self.world.send(*p, "A", piece).unwrap();
            p.seq = p.seq.wrapping_add(len(piece));
            self.early.extend(self.world.hear());
        }
    }

    /// A connection whose handshake is over.
    fn greeted(&mut self, port: u16) -> Peer {
        let mut p = self.world.open(port);
        self.world.send(p, "A", &records(b'k', b"hello")).unwrap();
        p.seq = p.seq.wrapping_add(8);
        assert_eq!(self.hear(&mut p, 8), (records(b'k', b"hello"), false));
        p
    }

    /// One whose handshake is over soon, of those from `port` on: those for which there is no place are refused.
    fn greeted_soon(&mut self, mut port: u16) {
        let begun = Instant::now();
        loop {
            let refused = self.totals().tls_refused;
            let mut p = self.knock(port);
            self.world.hear();
            if self.totals().tls_refused == refused {
                self.world.send(p, "A", &records(b'k', b"hello")).unwrap();
                p.seq = p.seq.wrapping_add(8);
                assert_eq!(self.hear(&mut p, 8), (records(b'k', b"hello"), false));
                return;
            }
            let _ = self.world.send(p, "R", b"");
            self.world.hear();
            assert!(begun.elapsed() < Duration::from_secs(5), "a place is lost");
            port += 1;
        }
    }

    /// Asks in one record, and expects just this reply.
    fn say(&mut self, p: &mut Peer, request: &[u8], reply: &[u8]) {
        let request = records(b'd', request);
        self.world.send(*p, "A", &request).unwrap();
        p.seq = p.seq.wrapping_add(len(&request));
        let (got, ended) = self.hear(p, reply.len() + HEAD_BYTES);
        assert_eq!(opened(&got), [(b'd', reply.to_vec())]);
        assert!(!ended);
    }

    fn totals(&self) -> OpTotals {
        self.world.server.totals()
    }
}

impl Drop for Secured {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            thread.join().unwrap();
        }
    }
}

#[test]
fn requests_come_in_records_and_replies_go_in_records() {
    let mut s = Secured::new(4);
    let mut p = s.greeted(1000);
    s.say(&mut p, b"set k 0 0 1\r\nv\r\nget k\r\n", b"STORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
    // Each byte of a record a segment, and a request in two records.
    for byte in records(b'd', b"ge") {
        s.send(&mut p, &[byte]);
    }
    s.say(&mut p, b"t k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    let (totals, says) = (s.totals(), "set k 0 0 1\r\nv\r\nget k\r\nget k\r\n".len());
    assert_eq!((totals.tls_sessions, totals.bytes_read), (1, says as u64));
}

#[test]
fn long_values_come_and_go() {
    let mut s = Secured::new(4);
    let mut p = s.greeted(1000);
    for long in [15_000, 16_384, 40_000, 900_000] {
        let value = [vec![b'v'; long], b"\r\n".to_vec()].concat();
        let mut set = format!("set k 0 0 {long}\r\n").into_bytes();
        set.extend(&value);
        s.send(&mut p, &records(b'd', &set)[..]);
        assert_eq!(opened(&s.hear(&mut p, 11).0), [(b'd', b"STORED\r\n".to_vec())]);
        s.send(&mut p, &records(b'd', b"get k\r\n"));
        let reply = [format!("VALUE k 0 {long}\r\n").as_bytes(), &value, b"END\r\n"].concat();
        let mut got = Vec::new();
        // How many records there are depends on what fits.
        while opened(&got).iter().map(|(_, said)| said.len()).sum::<usize>() < reply.len() {
            let (more, ended) = s.hear(&mut p, 1);
            assert!(!more.is_empty() && !ended);
            got.extend(more);
        }
        let said: Vec<u8> = opened(&got).into_iter().flat_map(|(_, said)| said).collect();
        assert!(said == reply, "{long}");
    }
}

/// The buffer of a long request is for the next that needs one when that is answered, though its client goes on
/// without a pause; and what comes behind it waits outside.
#[test]
fn what_follows_a_long_request_holds_no_buffer() {
    const QUIET: &[u8] = b"mg a q\r\n";
    let mut s = Secured::new(100);
    let set = [&b"set k 0 0 20000\r\n"[..], &[b'v'; 20_000], b"\r\n"].concat();
    for port in 1000..1070 {
        let mut p = s.greeted(port);
        s.send(&mut p, &records(b'd', &[&set[..], b"m"].concat()));
        let (got, _) = s.hear(&mut p, 11);
        assert_eq!(opened(&got), [(b'd', b"STORED\r\n".to_vec())], "{port}");
    }
    let mut p = s.greeted(2000);
    let before = s.totals();
    let long = [&set[..], &QUIET.repeat(40_000)].concat();
    let mut more = 0;
    for piece in records(b'd', &long).chunks(1400) {
        s.world.send(p, "A", piece).unwrap();
        p.seq = p.seq.wrapping_add(len(piece));
        s.world.streams.turn(&mut s.world.gate, s.world.now_ns);
        s.early.extend(s.world.streams.frames().map(|(_, frame)| world_open(frame.bytes())));
        let (now, gets) = (s.totals(), QUIET.len() as u64);
        let answered = (now.cmd_get - before.cmd_get) * gets + set.len() as u64;
        more = more.max((now.bytes_read - before.bytes_read).saturating_sub(answered));
        if s.early.last().is_some_and(|h| h.window == 0) {
            break;
        }
    }
    assert!((10_000..40_000).contains(&more), "{more} bytes have been taken in");
}

#[test]
fn what_is_asked_before_the_end_is_answered_in_one_flight_with_the_handshake_too() {
    let mut s = Secured::new(4);
    let mut p = s.world.open(1000);
    let flight =
        [records(b'k', b"hello"), records(b'd', b"mn\r\n"), records(b'e', b"end")].concat();
    s.world.send(p, "FA", &flight).unwrap();
    p.seq = p.seq.wrapping_add(len(&flight) + 1);
    let (got, ended) = s.hear(&mut p, usize::MAX);
    let said = [(b'k', b"hello".to_vec()), (b'd', b"MN\r\n".to_vec()), (b'e', b"end".to_vec())];
    assert_eq!(opened(&got), said);
    assert!(ended);
}

#[test]
fn what_is_no_record_ends_with_an_alert_and_is_counted() {
    let mut s = Secured::new(4);
    let mut p = s.world.open(1000);
    s.world.send(p, "A", b"get k\r\n").unwrap();
    p.seq = p.seq.wrapping_add(7);
    let alert = (records(b'a', b"alert"), true);
    assert_eq!(s.hear(&mut p, usize::MAX), alert);
    assert_eq!((s.totals().tls_handshake_errors, s.totals().tls_proto_errors), (1, 0));
    let mut p = s.greeted(1001);
    s.world.send(p, "A", b"get k\r\n").unwrap();
    p.seq = p.seq.wrapping_add(7);
    let (got, ended) = s.hear(&mut p, usize::MAX);
    assert_eq!((opened(&got)[0].0, ended), (b'a', true));
    assert_eq!((s.totals().tls_handshake_errors, s.totals().tls_proto_errors), (1, 1));
}

#[test]
fn a_source_has_half_of_the_places_and_ten_seconds() {
    let mut s = Secured::new(8);
    let mut halves: Vec<Peer> = (0..4).map(|n| s.world.open(1000 + n)).collect();
    for p in &mut halves {
        s.send(p, b"k\xff");
    }
    // More are refused at once.
    s.knock(2000);
    assert!(s.world.hear()[0].flags.contains('F'));
    assert_eq!((s.totals().tls_refused, s.totals().tls_handshake_errors), (1, 0));
    // One byte a second does not keep it open.
    for _ in 0..9 {
        s.world.pass(1);
        s.send(&mut halves[0], b"\0");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(s.totals().tls_handshake_errors, 0);
    s.world.pass(5);
    assert_eq!(s.totals().tls_handshake_errors, 4);
    s.world.now_ns += 10 * SECOND;
    s.world.hear();
    // Their places are free again, each of them, when the thread has seen it.
    for port in [3000, 4000, 5000, 6000] {
        s.greeted_soon(port);
    }
}

#[test]
fn a_client_that_leaves_in_its_handshake_leaves_its_place_too() {
    let mut s = Secured::new(2);
    for n in 0..500 {
        let p = s.knock(1000 + n);
        s.world.hear();
        // The thread has its session then, or has had it.
        let _ = s.world.send(p, "A", b"k\xff");
        s.world.hear();
        let _ = s.world.send(Peer { seq: p.seq + 2, ..p }, "R", b"");
        s.world.hear();
    }
    // The thread has done with all of them soon, and no place is lost.
    s.greeted_soon(9000);
}

#[test]
fn a_client_that_takes_nothing_is_not_read_from() {
    let mut s = Secured::new(4);
    let mut p = s.greeted(1000);
    let set = [&b"set k 0 0 500000\r\n"[..], &[b'v'; 500_000], b"\r\n"].concat();
    s.send(&mut p, &records(b'd', &set));
    assert_eq!(opened(&s.hear(&mut p, 11).0).len(), 1);
    let asks = records(b'd', &b"get k\r\n".repeat(100));
    s.world.send(p, "A", &asks).unwrap();
    let sent: usize = s.world.hear().iter().map(|heard| heard.payload.len()).sum();
    assert!(sent < 300_000, "{sent} bytes without a word of the client's");
    assert_eq!(s.totals().cmd_get, 1, "one reply is made at a time");
}

#[test]
fn what_is_refused_is_told_at_once_and_before_later_replies() {
    let mut s = Secured::new(4);
    let mut p = s.greeted(1000);
    let no = || (b'r', b"no".to_vec());
    s.send(&mut p, &records(b'r', b"again?"));
    // Before the client says anything more.
    assert!(s.early.iter().any(|heard| opened(&heard.payload) == [no()]));
    s.hear(&mut p, 5);
    let both = [records(b'r', b"again?"), records(b'd', b"mn\r\n")].concat();
    s.send(&mut p, &both);
    assert_eq!(opened(&s.hear(&mut p, 12).0), [no(), (b'd', b"MN\r\n".to_vec())]);
}

#[test]
fn a_reply_that_cannot_be_sealed_ends_the_connection() {
    let mut s = Secured::with(4, Toys { seals: 1, ..TOYS }, Made::default());
    let mut p = s.greeted(1000);
    s.say(&mut p, b"mn\r\n", b"MN\r\n");
    s.send(&mut p, &records(b'd', b"mn\r\nmn\r\n"));
    // Before the client says anything more.
    let mut got = Vec::new();
    let ended = s.hear_some(&mut p, &mut got);
    assert_eq!((opened(&got), ended), (vec![(b'e', b"end".to_vec())], true));
    assert_eq!((s.totals().tls_handshake_errors, s.totals().tls_proto_errors), (0, 0));
}

#[test]
fn without_memory_for_a_session_there_is_none() {
    let mut s = Secured::with(8, Toys { is_short: true, ..TOYS }, Made::default());
    for n in 0..3 {
        let mut p = s.knock(1000 + n);
        // Nor is it served in the clear.
        let _ = s.world.send(p, "A", b"mn\r\n");
        assert_eq!(s.hear(&mut p, usize::MAX), (vec![], true));
        let _ = s.world.send(p, "R", b"");
        s.world.hear();
    }
    let totals = s.totals();
    assert_eq!((totals.tls_handshake_errors, totals.malloc_fails, totals.tls_refused), (3, 3, 0));
}

/// The rest of a record is waited for, as the rest of a request is.
#[test]
fn half_a_record_holds_up_a_stop_for_a_second() {
    for comes in [true, false] {
        let mut s = Secured::new(4);
        let mut p = s.greeted(1000);
        let record = records(b'd', b"mn\r\n");
        s.send(&mut p, &record[..4]);
        s.world.streams.stop(s.world.now_ns);
        s.world.now_ns += SECOND / 2;
        assert_eq!(s.world.hear(), []);
        if comes {
            s.send(&mut p, &record[4..]);
        }
        s.world.now_ns += SECOND;
        let (got, ended) = s.hear(&mut p, usize::MAX);
        let reply = comes.then(|| (b'd', b"MN\r\n".to_vec()));
        let said: Vec<_> = reply.into_iter().chain([(b'e', b"end".to_vec())]).collect();
        assert_eq!((opened(&got), ended), (said, true));
    }
}

/// What the handshake thread found, and what it has to say that found no space yet, waits until its source
/// may have more, and no longer.
#[test]
fn a_handshake_goes_on_when_its_rate_is_there_again() {
    let source = Rate { requests: NonZeroU32::new(50), reply_bytes: NonZeroU64::new(1 << 20) };
    let says = records(b'k', &[7; 9_000]);
    let flight = says.repeat(3);
    let (mut cases, mut early) = (vec![false, true], 0);
    while let Some(is_found) = cases.pop() {
        let policy = Policy { source, ..Policy::default() };
        let mut s =
            Secured::with(4, Toys { echoes: 3, ..TOYS }, Made { policy, ..Made::default() });
        s.world.limited = true;
        let mut first = s.world.open(1000);
        s.send(&mut first, &records(b'k', b"hello"));
        assert_eq!(s.hear(&mut first, 24).0.len(), 24);
        let mut p = s.world.open(1001);
        s.send(&mut p, &says);
        let mut got = Vec::new();
        let begun = Instant::now();
        // As much as has space.
        while !is_found && got.is_empty() {
            s.hear_some(&mut p, &mut got);
            assert!(begun.elapsed() < Duration::from_secs(5));
        }
        // The other one has all that there is.
        s.send(&mut first, &records(b'd', &b"mn\r\n".repeat(60)));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(200) {
            s.world.send(p, "A", b"").unwrap();
            s.hear_some(&mut p, &mut got);
        }
        if is_found && !got.is_empty() {
            // The thread had found it before the rate was used up: once more.
            early += 1;
            assert!(early < 20, "it is always early");
            cases.push(is_found);
            continue;
        }
        // What a send buffer has space for had been sent.
        assert_eq!(got.is_empty(), is_found);
        assert!(got.len() <= 16 << 10, "more than its rate");
        // The client says no more than what it has.
        while got.len() < flight.len() {
            let (had, begun) = (got.len(), s.world.now_ns);
            while got.len() == had {
                s.world.now_ns += SECOND / 100;
                std::thread::sleep(Duration::from_millis(2));
                s.hear_some(&mut p, &mut got);
                // Before other timers wake it.
                assert!(s.world.now_ns < begun + 3 * SECOND / 2, "{had} bytes, {is_found}");
            }
            s.world.send(p, "A", b"").unwrap();
        }
        assert!(got == flight);
    }
}

/// A stage whose clients may ask 400 times a second, four of them for something long at a time.
fn rated() -> Secured {
    let source = Rate { requests: NonZeroU32::new(400), reply_bytes: None };
    let policy = Policy { source, ..Policy::default() };
    let mut s = Secured::with(8, TOYS, Made { policy, spills_four: true, ..Made::default() });
    s.world.limited = true;
    s.world.keep(b"a", 500_000);
    s
}

/// Uses that up for 5 s and more.
fn burn(s: &mut Secured) {
    let mut p = s.greeted(999);
    s.send(&mut p, &records(b'd', &b"prepend a 0 0 1\r\nx\r\n".repeat(20)));
    assert!(s.hear(&mut p, 163).0.len() == 163);
}

/// A send buffer is never quite full of records.
#[test]
fn who_takes_nothing_is_slow_though_its_rate_is_used_up() {
    let mut s = rated();
    s.world.keep(b"k", 300_000);
    for port in 1000..1004 {
        let mut p = s.greeted(port);
        s.send(&mut p, &records(b'd', b"get k\r\n"));
    }
    burn(&mut s);
    assert_eq!(s.world.stalled(), 0);
    let heard = s.world.pass(5);
    assert_eq!(heard.iter().filter(|h| h.flags.contains('R')).count(), 1);
    assert_eq!(s.world.stalled(), 1);
}

/// The beginning of a record has been taken from the receive buffer.
#[test]
fn who_has_sent_all_is_not_slow_while_its_rate_is_used_up() {
    const REST: usize = 3000;
    let mut s = rated();
    let set = [&b"set k 0 0 40000\r\n"[..], &[b'v'; 40_000], b"\r\n"].concat();
    let all = records(b'd', &set);
    let mut uploads = [1000, 1001, 1002, 1003].map(|port| s.greeted(port));
    for p in &mut uploads {
        s.send(p, &all[..all.len() - REST]);
    }
    burn(&mut s);
    for p in &mut uploads {
        s.send(p, &all[all.len() - REST..]);
    }
    let heard = s.world.pass(3);
    assert!(heard.iter().all(|h| h.payload.is_empty() && h.flags == "A"), "{heard:?}");
    assert_eq!(s.world.stalled(), 0);
    s.world.now_ns += 3 * SECOND;
    assert_eq!(opened(&s.hear(&mut uploads[0], 11).0), [(b'd', b"STORED\r\n".to_vec())]);
}
