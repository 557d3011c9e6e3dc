//! A GPU beside the CPU: whatever its mode, its index and what it has not heard of yet, clients see
//! the very bytes that the CPU engine alone would have sent.

use crate::world::{Beside, World, Wrap, request};
use gpu::index::IndexKind;
use gpu::offload::Mode;
use memcache::binary::Header;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use store::{StoreConfig, verbs};

pub(crate) const MODES: [Mode; 3] = [Mode::Launch, Mode::Graph, Mode::Persistent];
pub(crate) const KINDS: [IndexKind; 2] = [IndexKind::SetAssoc, IndexKind::Cuckoo];

pub(crate) fn small() -> StoreConfig {
    StoreConfig { memory_bytes: 16 << 20, ..StoreConfig::default() }
}

/// Numbers from a seed (splitmix64).
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        usize::try_from((z ^ (z >> 31)) % n as u64).unwrap()
    }
}

/// A key of one of many lengths.
fn key(n: usize) -> String {
    let len = [3, 9, 16, 17, 40, 100, 250][n % 7];
    format!("{n:03}{}", "k".repeat(len - 3))
}

/// Something that a client might ask for.
pub(crate) fn any_request(draw: &mut Draw) -> Vec<u8> {
    let key = key(draw.below(60));
    let number = draw.below(1000);
    match draw.below(27) {
        0..=4 => {
            let len = [0, 1, 2, 63, 64, 65, 300, 1300][draw.below(8)];
            let value = char::from(b'a' + u8::try_from(number % 26).unwrap()).to_string();
            let (flags, value) = ([0, 7, 65_535, u32::MAX][number % 4], value.repeat(len));
            format!("set {key} {flags} 0 {len}\r\n{value}\r\n").into_bytes()
        }
        5 => format!("delete {key}\r\n").into_bytes(),
        6 => format!("append {key} 0 0 3\r\n+++\r\n").into_bytes(),
        7 => format!("touch {key} 1000\r\n").into_bytes(),
        8 => format!("gets {key}\r\n").into_bytes(),
        9 => format!("get {key} {} nobody\r\n", self::key(draw.below(60))).into_bytes(),
        // Most of what follows is small and there.
        19 => format!("gets {key} {}\r\n", self::key(draw.below(60))).into_bytes(),
        20 => {
            let keys = (0..=draw.below(6)).map(|_| self::key(draw.below(60) / 7 * 7));
            format!("get {}\r\n", keys.collect::<Vec<_>>().join(" ")).into_bytes()
        }
        10 => format!("mg {key} v f t\r\n").into_bytes(),
        21 | 22 => {
            // The usual ones twice, ones that have no rows, and what is no flag or no line.
            let flags = [
                " v",
                " v",
                " f v",
                " f v",
                "",
                " s v",
                " t",
                " k c q v",
                " q k v O1",
                " v v",
                "  v",
                "\tv",
                " v ",
                " v\r",
                " v\r\nmg k v",
                " t T9000",
                " v R9999",
                " v N100",
                " b",
            ];
            format!("mg {key}{}\r\n", flags[draw.below(flags.len())]).into_bytes()
        }
        11 => binary_get([0, 9, 12, 13][draw.below(4)], &key),
        12 => format!("get {key}\n").into_bytes(),
        13 => format!("get {key} \r\nget {key}\r\n").into_bytes(),
        // More keys than a descriptor has room for, and what ends a line too early.
        16 => format!("get {}{key}\r\n", "k ".repeat(draw.below(9))).into_bytes(),
        14 => format!("incr {key} {number}\r\n").into_bytes(),
        15 => b"bogus\r\n".to_vec(),
        // Look-ups that change something.
        17 => format!("mg {key} t T1000\r\n").into_bytes(),
        18 => format!("get nobody\r\ntouch {key} 2000\r\n").into_bytes(),
        _ => format!("get {key}\r\n").into_bytes(),
    }
}

fn is_look_up(request: &[u8]) -> bool {
    [&b"get"[..], b"mg ", b"\x80"].iter().any(|start| request.starts_with(start))
}

pub(crate) fn binary_get(opcode: u8, key: &str) -> Vec<u8> {
    let header = Header { opaque: *b"mark", ..Header::request(opcode) };
    header.packet(b"", key.as_bytes(), b"").unwrap()
}

/// Puts the same traffic through a world with the GPU and one without: every frame that comes out
/// must be the same. Requests that are no look-ups stand first in each burst, since beside a GPU they
/// pass the look-ups. `between` is called after each burst.
pub(crate) fn compare(
    beside: &Beside,
    bursts: usize,
    seed: u64,
    mut between: impl FnMut(&mut World, usize),
) -> World {
    let (mut with, mut without) = (World::beside(small(), beside), World::in_order(small()));
    let mut draw = Draw(seed);
    for burst in 0..bursts {
        let mut requests: Vec<_> = (0..=draw.below(200)).map(|_| any_request(&mut draw)).collect();
        requests.sort_by_key(|request| is_look_up(request));
        for text in requests {
            let wrap = Wrap::ALL[draw.below(4)];
            let id = u16::try_from(draw.below(1 << 16)).unwrap();
            let mut frame = request(wrap, id, &text);
            if draw.below(16) == 0 {
                // Behind the addresses of stations: a wrong sum, length or type, nearly always.
                let at = 12 + draw.below(frame.len() - 12);
                frame[at] ^= 1 << draw.below(8);
            }
            with.send(&frame);
            without.send(&frame);
        }
        with.settle();
        without.settle();
        // A batch that the CPU took over is answered behind those that the GPU still answered.
        let sorted = |world: &mut World| {
            let mut frames = world.received(0);
            frames.sort_by(|a, b| a.bytes().cmp(b.bytes()));
            frames
        };
        let (ours, theirs) = (sorted(&mut with), sorted(&mut without));
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let (a, b) = (ours.bytes(), theirs.bytes());
            assert!(a == b, "{}\n{}", String::from_utf8_lossy(a), String::from_utf8_lossy(b));
        }
        drop((ours, theirs));
        between(&mut with, burst);
    }
    without.end();
    with
}

#[test]
fn replies_are_the_cpu_engines_in_every_mode_and_with_both_indexes() {
    for kind in KINDS {
        for mode in MODES {
            let mut draw = Draw(99);
            let world = compare(&Beside::new(mode, kind), 60, 5, |world, _| {
                if draw.below(3) == 0 {
                    world.refresh();
                }
            });
            let c = Arc::clone(&world.counters[0]);
            assert!(world.offload().fault().is_none());
            world.end();
            let (look_ups, all) = (c.gpu_batched.get(), c.batched.get());
            assert!(look_ups > all / 2 && look_ups < all * 4 / 5, "{look_ups} {all} {mode:?}");
            assert!(c.gpu_checked.get() > 3 && c.gpu_lost.get() == 0);
            assert!(c.hints_right.get() > 300, "{} hints", c.hints_right.get());
            assert!(c.hints_wrong.get() > 10, "what changed since was found out");
            let heads = c.heads_used.get();
            assert!((heads > 100) == (kind == IndexKind::SetAssoc), "{heads} heads");
        }
    }
}

/// Writes are the CPU's alone, and a read sees the write before it.
#[test]
fn only_look_ups_go_to_the_card() {
    let mut w = World::beside(small(), &Beside::new(Mode::Persistent, IndexKind::Cuckoo));
    for n in 0..20 {
        w.send(&request(Wrap::ALL[n % 4], 1, format!("set k {n} 0 1\r\nx\r\n").as_bytes()));
        w.send(&request(Wrap::ALL[n % 4], 2, b"get k\r\n"));
        w.send(&request(Wrap::ALL[n % 4], 3, b"mg k f\r\n"));
    }
    w.settle();
    let replies = w.received(0);
    assert_eq!(replies.len(), 60);
    drop(replies);
    assert_eq!(w.ask(b"get k\r\n"), b"VALUE k 19 1\r\nx\r\nEND\r\n");
    let c = &w.counters[0];
    assert_eq!((c.gpu_batched.get(), c.batched.get()), (41, 61));
    w.end();
}

#[test]
fn an_index_that_hears_of_nothing_learns_from_those_who_ask() {
    let mut w = World::beside(small(), &Beside::new(Mode::Launch, IndexKind::SetAssoc));
    let mut session = w.store.session().unwrap();
    let mut set = |value: &[u8]| {
        verbs::store(&mut session, None, &memcache::Store::set(b"key", 0, 0, value)).unwrap();
    };
    set(b"one");
    // As a GPU that was put in later: what was reported before is gone.
    w.refresh();
    let right = |w: &World| w.counters[0].hints_right.get();
    let wrong = |w: &World| w.counters[0].hints_wrong.get();
    assert_eq!(w.ask(b"get key\r\n"), b"VALUE key 0 3\r\none\r\nEND\r\n");
    assert_eq!((right(&w), wrong(&w)), (1, 0));
    set(b"other");
    // The change waits in the feed; the hint is stale, the reply is not.
    assert_eq!(w.ask(b"get key\r\n"), b"VALUE key 0 5\r\nother\r\nEND\r\n");
    assert_eq!((right(&w), wrong(&w)), (1, 1));
    w.refresh();
    assert_eq!(w.ask(b"get key\r\n"), b"VALUE key 0 5\r\nother\r\nEND\r\n");
    assert_eq!((right(&w), wrong(&w)), (2, 1));
    drop(session);
    w.end();
}

#[test]
fn a_feed_that_overflows_heals() {
    let beside = Beside { feed: 1, ..Beside::new(Mode::Persistent, IndexKind::SetAssoc) };
    let mut w = World::beside(small(), &beside);
    let mut session = w.store.session().unwrap();
    for n in 0..5 {
        let key = format!("key{n}");
        let request = memcache::Store::set(key.as_bytes(), 0, 0, b"v");
        verbs::store(&mut session, None, &request).unwrap();
    }
    // One of five was announced. Each request for another one reports that, and is answered by the
    // host's index.
    for _ in 0..8 {
        for n in 0..5 {
            let asked = format!("get key{n}\r\n");
            let want = format!("VALUE key{n} 0 1\r\nv\r\nEND\r\n");
            assert_eq!(w.ask(asked.as_bytes()), want.as_bytes());
            w.refresh();
        }
    }
    let c = &w.counters[0];
    assert_eq!((c.hints_wrong.get(), c.hints_right.get(), c.gpu_missed.get()), (0, 40, 5));
    drop(session);
    w.end();
}

/// Values show their version; a reply must show one that is no older than what was stored before
/// the question went out, and its bytes must be of one piece.
#[test]
fn nobody_ever_reads_less_than_was_there_when_he_asked() {
    const KEYS: u64 = 8;
    for kind in KINDS {
        for mode in [Mode::Launch, Mode::Persistent] {
            let mut w = World::beside(small(), &Beside::new(mode, kind));
            let mut updater = w.updaters.remove(0);
            let stored: Arc<Vec<AtomicU64>> =
                Arc::new((0..KEYS).map(|_| AtomicU64::new(0)).collect());
            let stop = Arc::new(AtomicBool::new(false));
            let (mut session, mine, end) =
                (w.store.session().unwrap(), Arc::clone(&stored), Arc::clone(&stop));
            let writer = std::thread::spawn(move || {
                let mut draw = Draw(3);
                for version in 1.. {
                    let n = draw.below(8);
                    let value = format!("{version:08}").repeat(1 + draw.below(20));
                    let key = format!("key{n}");
                    let request = memcache::Store::set(key.as_bytes(), 0, 0, value.as_bytes());
                    verbs::store(&mut session, None, &request).unwrap();
                    mine[n].store(version, Ordering::Release);
                    if end.load(Ordering::Relaxed) {
                        return;
                    }
                    if version % 64 == 0 {
                        updater.turn();
                        std::thread::yield_now();
                    }
                }
            });
            let begun = Instant::now();
            for id in 0..500_u16 {
                let n = usize::from(id) % 8;
                let least = stored[n].load(Ordering::Acquire);
                let text = w.ask(format!("get key{n}\r\n").as_bytes());
                assert!(begun.elapsed() < Duration::from_secs(120));
                let text = String::from_utf8(text).unwrap();
                let Some(value) = text.lines().nth(1) else {
                    assert_eq!((text.as_str(), least), ("END\r\n", 0));
                    continue;
                };
                assert!(text.starts_with(&format!("VALUE key{n} 0 {}\r\n", value.len())), "{text}");
                let version: u64 = value[..8].parse().unwrap();
                assert_eq!(value, format!("{version:08}").repeat(value.len() / 8));
                assert!(version >= least, "{version} after {least}");
            }
            stop.store(true, Ordering::Relaxed);
            writer.join().unwrap();
            w.end();
        }
    }
}
