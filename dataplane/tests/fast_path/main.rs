//! The fast path against the general stages: the same bursts to three workers, each with a store of
//! its own, one without a fast path, one with it, one with its portable twin. Every byte of every
//! reply is the same, and everything that is counted.
//!
//! `FAST_PATH_PACKETS=10000000` in the environment for a longer run.
#![allow(clippy::unwrap_used, reason = "tests")]

mod general;
mod offload;
mod random;
mod world;

use dataplane::stages::fast_path::FastPathMode;
use driver_shim::TxCaps;
use driver_shim::ports::memory::{MAC, PEER_MAC};
use memcache::binary::{Header, opcode};
use memcache::{Dialect, Dialects};
use random::{Random, corpus};
use std::net::SocketAddr;
use store::StoreConfig;
use wire::DropReason;
use wire::build::UdpFrame;
use world::{PORT, SERVER, World};

/// `shares` are those of `set`s in bursts, as [`Random::text`] has them.
fn compare(seed: u64, packets: usize, caps: TxCaps, shares: &[Option<usize>]) {
    compare_tuned(seed, packets, caps, shares, (Dialects::Auto, true));
}

/// Shows where they differ alone.
fn assert_same(got: &[String], want: &[String], when: &str) {
    let odd: Vec<_> = got.iter().zip(want).filter(|(a, b)| a != b).collect();
    assert!(got == want, "{when}: {} and {} lines: {odd:?}", got.len(), want.len());
}

fn compare_tuned(
    seed: u64,
    packets: usize,
    caps: TxCaps,
    shares: &[Option<usize>],
    (dialects, cas_enabled): (Dialects, bool),
) {
    let corpus = corpus();
    let mut random = Random::new(seed);
    let mut keys: Vec<String> = (0..2000).map(|_| random.key()).collect();
    keys.sort_unstable();
    keys.dedup();
    keys.retain(|key| key.len() <= 250);
    let mut worlds = [FastPathMode::Off, FastPathMode::Vector, FastPathMode::Portable]
        .map(|mode| World::odd(mode, caps, (dialects, cas_enabled)));
    let (mut sent, mut bursts) = (0, 0);
    while sent < packets {
        let n = 1 + random.below(64);
        let sets = shares[random.below(shares.len())];
        random.mix();
        let frames: Vec<Vec<u8>> =
            (0..n).map(|id| random.frame(u16::try_from(id).unwrap(), sets, &corpus)).collect();
        // What comes over TCP, and time.
        let flush;
        let text = match random.below(1000) {
            0..50 => {
                World::later(&mut worlds, 1);
                ""
            }
            50..52 => "flush_all\r\n",
            52..54 => "flush_all 2\r\n",
            54 => {
                World::housekeep(&mut worlds);
                ""
            }
            55..57 => "stats detail on\r\n",
            57..69 => "stats detail off\r\n",
            69..74 => {
                // What stands before the first colon of a key, of which the store has some.
                let key = &keys[random.below(keys.len())];
                flush = format!("flush_prefix {}\r\n", key.split(':').next().unwrap());
                &flush
            }
            74..82 => {
                worlds.iter_mut().for_each(|world| world.watch(true));
                ""
            }
            82..120 => {
                worlds.iter_mut().for_each(|world| world.watch(false));
                ""
            }
            _ => "",
        };
        if !text.is_empty() {
            worlds.iter_mut().for_each(|world| drop(world.execute(text.as_bytes())));
        }
        let [want, fast, portable] = worlds.each_mut().map(|world| world.ask(&frames));
        for (got, name) in [(fast, "vector"), (portable, "portable")] {
            if got != want {
                let odd = got.iter().zip(&want).find(|(a, b)| a != b);
                let odd = odd.map(|(a, b)| [a, b].map(|f| String::from_utf8_lossy(f).into_owned()));
                panic!(
                    "seed {seed:#x}, burst {bursts}, {name}: {} replies for {}; {odd:?}",
                    got.len(),
                    want.len()
                );
            }
        }
        let [want, fast, portable] = worlds.each_ref().map(World::seen);
        assert!(fast == want && portable == want, "seed {seed:#x}, burst {bursts}, watched");
        sent += n;
        bursts += 1;
        if bursts % 64 == 0 || sent >= packets {
            let [want, fast, portable] = worlds.each_mut().map(World::counted);
            assert_same(&fast, &want, &format!("seed {seed:#x}, burst {bursts}, vector"));
            assert_same(&portable, &want, &format!("seed {seed:#x}, burst {bursts}, portable"));
            let [want, fast, portable] = worlds.each_mut().map(|world| world.stored(&keys));
            assert_same(&fast, &want, &format!("seed {seed:#x}, burst {bursts}, vector"));
            assert_same(&portable, &want, &format!("seed {seed:#x}, burst {bursts}, portable"));
            if shares.contains(&None) {
                let [want, fast, portable] = worlds.each_ref().map(World::hints);
                assert!(fast == want && portable == want, "{fast:?}, {portable:?}: {want:?}");
            }
        }
    }
    // It was not the general stages that answered.
    let batches = worlds.each_ref().map(|world| world.counters.batches.get());
    assert!(batches[1] > batches[0] && batches[2] == batches[1], "{batches:?}");
    for world in &worlds {
        let ledger = world.counters.ledger();
        assert!(ledger.balances() && ledger.in_flight == 0, "{ledger:?}");
        assert!(*ledger.dropped.of(DropReason::UdpChecksum) > 0);
    }
}

/// A datagram for the service.
fn datagram(src: &str, text: &[u8]) -> Vec<u8> {
    let payload = [&[0, 1, 0, 0, 0, 1, 0, 0], text].concat();
    let (src, dst) = (src.parse().unwrap(), SocketAddr::new(SERVER.into(), PORT));
    let (src_mac, dst_mac) = (PEER_MAC, MAC);
    UdpFrame { src_mac, dst_mac, vlans: &[], src, dst, payload: &payload }.to_vec().unwrap()
}

/// The same bursts to each kind of worker.
fn ask_all(dialects: Dialects, bursts: &[&[Vec<u8>]]) {
    let mut worlds = [FastPathMode::Off, FastPathMode::Vector, FastPathMode::Portable]
        .map(|mode| World::speaking(dialects, mode, TxCaps::default()));
    for burst in bursts {
        let [want, fast, portable] = worlds.each_mut().map(|world| world.ask(burst));
        let text = || burst.iter().map(|f| String::from_utf8_lossy(f)).collect::<Vec<_>>();
        assert!(fast == want && portable == want, "{:?}", text());
        let [want, fast, portable] = worlds.each_mut().map(World::counted);
        assert_eq!(fast, want, "{:?}", text());
        assert_eq!(portable, want, "{:?}", text());
    }
}

const CLIENT: &str = "10.0.0.1:40000";

#[test]
fn a_get_does_not_go_before_what_hides_behind_a_broken_request() {
    let binary = |tail: &[u8]| Header::request(opcode::GET).packet(b"", b"z", tail).unwrap();
    let ascii = Dialects::Only(Dialect::Ascii);
    for (dialects, text) in [
        // Lines that are no command: what follows is.
        (Dialects::Auto, b"set a 0 0 8 x y\r\ndelete b\r\n".to_vec()),
        (Dialects::Auto, b"cas a 0 0 8\r\ndelete b\r\n".to_vec()),
        // A control character is part of a word.
        (Dialects::Auto, b"set a 0 0\x0113 3\r\nxxx\r\ndelete b\r\n".to_vec()),
        // Text, whatever it begins with.
        (ascii, binary(b"\ndelete b\r\n")),
    ] {
        let set = |key| datagram(CLIENT, format!("set {key} 7 0 3\r\nold\r\n").as_bytes());
        let get = || datagram(CLIENT, b"get b\r\n");
        let sets = [set("a"), set("b")];
        ask_all(dialects, &[&sets, &[get()], &[datagram(CLIENT, &text), get(), get()]]);
    }
}

/// The same over IPv6, or with a tag.
fn datagram_of(v6: bool, vlans: &[u16], text: &[u8]) -> Vec<u8> {
    let payload = [&[0, 1, 0, 0, 0, 1, 0, 0], text].concat();
    let (src, dst) = match v6 {
        true => ("[fd00::1]:40000", "[fd00::2]:11211"),
        false => (CLIENT, "10.0.0.2:11211"),
    };
    let (src, dst, src_mac, dst_mac) = (src.parse().unwrap(), dst.parse().unwrap(), PEER_MAC, MAC);
    UdpFrame { src_mac, dst_mac, vlans, src, dst, payload: &payload }.to_vec().unwrap()
}

/// A binary get of this opcode.
fn binary(op: u8, key: &str) -> Vec<u8> {
    let header = Header { opaque: [1, 2, 3, 4], ..Header::request(op) };
    header.packet(b"", key.as_bytes(), b"").unwrap()
}

/// Gets of `key` in other forms.
fn other_forms(key: &str) -> Vec<Vec<u8>> {
    let texts =
        ["", " v", " k v", " v f t c s k", " q k v"].map(|flags| format!("mg {key}{flags}\r\n"));
    let mut texts: Vec<Vec<u8>> = texts.map(String::into_bytes).into();
    texts.extend([0, 9, 0xc, 0xd].map(|op| binary(op, key)));
    let mut frames: Vec<_> = texts.iter().map(|text| datagram_of(false, &[], text)).collect();
    texts.push(format!("get {key}\r\n").into_bytes());
    for (v6, vlans) in [(true, &[][..]), (false, &[7])] {
        frames.extend(texts.iter().map(|text| datagram_of(v6, vlans, text)));
    }
    frames
}

#[test]
fn other_forms_are_answered_before_the_general_stages() {
    for caps in [TxCaps::default(), TxCaps { ip: true, udp: true }] {
        let mut worlds = [FastPathMode::Off, FastPathMode::Vector, FastPathMode::Portable]
            .map(|mode| World::new(mode, caps));
        let long = "k".repeat(32);
        for world in &mut worlds {
            for (key, value) in [("a", "1"), (&long, "2"), ("b", &"v".repeat(300))] {
                world.ask(&[set(key, value, "")]);
            }
            world.ask(&[datagram(CLIENT, b"set f 123456 1000 5\r\nvalue\r\n")]);
        }
        for key in ["a", "b", "f", "none", &long] {
            let frames = other_forms(key);
            let before = worlds.each_ref().map(|world| world.counters.batches.get());
            let [want, fast, portable] = worlds.each_mut().map(|world| world.ask(&frames));
            assert!(fast == want && portable == want, "{key}");
            // One by one, what is answered is a batch of its own; all at once, they are one.
            let batches = worlds.each_ref().map(|world| world.counters.batches.get());
            assert_eq!([1, 1, 1], std::array::from_fn(|n| batches[n] - before[n]), "{key}");
            let [want, fast, portable] = worlds.each_mut().map(|world| {
                let delete = datagram(CLIENT, b"delete nothing\r\n");
                let mut replies = Vec::new();
                for frame in &frames {
                    let batches = world.counters.batches.get();
                    replies.extend(world.ask(&[frame.clone(), delete.clone()]));
                    replies
                        .push(vec![u8::try_from(world.counters.batches.get() - batches).unwrap()]);
                }
                replies
            });
            let batches_of = |all: &[Vec<u8>], n| all.iter().filter(|r| **r == [n]).count();
            let all = frames.len();
            assert_eq!(
                [batches_of(&want, 1), batches_of(&fast, 2), batches_of(&portable, 2)],
                [all; 3]
            );
        }
        let [want, fast, portable] = worlds.each_mut().map(World::counted);
        assert!(fast == want && portable == want);
    }
}

/// A `get`, a miss and a `set` each of keys that are longer than a block, and of 251 bytes, which no key has. The item of a
/// key that differs in its last byte alone is another.
#[test]
fn so_are_long_keys() {
    for caps in [TxCaps::default(), TxCaps { ip: true, udp: true }] {
        let mut worlds = [FastPathMode::Off, FastPathMode::Vector, FastPathMode::Portable]
            .map(|mode| World::new(mode, caps));
        for len in [33, 40, 63, 64, 65, 96, 97, 200, 249, 250, 251] {
            let key = |last| format!("{}{last}", "k".repeat(len - 1));
            for (frame, is_long) in [
                (set(&key('a'), "value", ""), len <= 250),
                (set(&key('b'), &"v".repeat(600), " noreply"), len <= 250),
                (datagram(CLIENT, format!("get {}\r\n", key('a')).as_bytes()), len <= 250),
                (datagram(CLIENT, format!("get {}\r\n", key('b')).as_bytes()), len <= 250),
                (datagram(CLIENT, format!("get {}\r\n", key('c')).as_bytes()), len <= 250),
                (datagram(CLIENT, format!("get {}\x01\r\n", key('a')).as_bytes()), false),
                (datagram(CLIENT, format!("get {} \r\n", key('a')).as_bytes()), false),
            ] {
                let delete = datagram(CLIENT, b"delete nothing\r\n");
                let [want, fast, portable] = worlds.each_mut().map(|world| {
                    let before = world.counters.batches.get();
                    let replies = world.ask(&[frame.clone(), delete.clone()]);
                    (replies, world.counters.batches.get() - before)
                });
                assert!(fast == portable && fast.0 == want.0, "{len}: {:?}", (fast, want));
                assert_eq!((want.1, fast.1 == 2), (1, is_long), "{len}");
            }
        }
        let [want, fast, portable] = worlds.each_mut().map(World::counted);
        assert!(fast == want && portable == want);
    }
}

#[test]
fn a_sum_that_is_right_with_no_checksum_is_left() {
    for (v6, vlans) in [(true, &[][..]), (false, &[7]), (false, &[])] {
        for text in [&b"get a\r\n"[..], b"mg a v\r\n", &binary(0, "a")] {
            let mut frame = datagram_of(v6, vlans, text);
            let at = 40 + 4 * vlans.len() + if v6 { 20 } else { 0 };
            // What the checksum was goes to the request's number, which is 1.
            let [sum, id] = [at, at + 2].map(|at| u16::from_be_bytes([frame[at], frame[at + 1]]));
            let (id, carry) = sum.overflowing_add(id);
            let id = id + u16::from(carry);
            frame[at..at + 2].fill(0);
            frame[at + 2..at + 4].copy_from_slice(&id.to_be_bytes());
            ask_all(Dialects::Auto, &[&[set("a", "1", "")], &[frame]]);
        }
    }
}

#[test]
fn what_meta_commands_say_more_of_is_left() {
    let ask = |text: &[u8]| datagram(CLIENT, text);
    let key = ask(b"ms YSBi 2 b\r\nab\r\n");
    let get = binary(0, "a b");
    let stale = [ask(b"ms s 2\r\nab\r\n"), ask(b"md s I T30\r\n")];
    let mg = || ask(b"mg s k v t c\r\n");
    ask_all(
        Dialects::Auto,
        &[
            &[key],
            &[ask(&get), ask(&binary(0xc, "a b")), ask(b"mg YSBi b k v\r\n")],
            &stale,
            &[mg(), mg(), ask(b"mg s h l\r\n"), mg()],
            &[ask(b"mg s E9 N30 v c\r\n"), mg()],
        ],
    );
    // Text, whatever it begins with.
    ask_all(Dialects::Only(Dialect::Ascii), &[&[set("s", "1", "")], &[ask(&binary(0, "s")), mg()]]);
}

#[test]
fn other_forms_keep_their_order_with_changes() {
    let change = |text: &str| datagram(CLIENT, text.as_bytes());
    for read in other_forms("a") {
        for other in [
            change("delete a\r\n"),
            change("append a 0 0 1\r\nx\r\n"),
            change("flush_all\r\n"),
            datagram_of(true, &[], b"set a 0 0 3\r\nsix\r\n"),
            change("mg a N30 T30 v\r\n"),
            change("get a\r\ndelete a\r\n"),
        ] {
            let (one, two) = (|| set("a", "1", ""), || set("a", "22", " noreply"));
            let read = || read.clone();
            ask_all(
                Dialects::Auto,
                &[
                    &[one(), read(), two(), read()],
                    &[read(), other.clone(), read(), one(), read()],
                    &[other.clone(), other.clone(), other.clone(), other.clone(), read(), one()],
                    &[one(), other.clone(), read(), two(), read(), other],
                    &[read()],
                ],
            );
        }
    }
}

/// A burst with many gets of two kinds is divided: none goes before what changes its key, of whichever kind that seems to be.
#[test]
fn a_divided_burst_keeps_its_order_with_changes() {
    let kinds = |key| {
        let mut kinds = other_forms(key);
        kinds.push(datagram(CLIENT, format!("get {key}\r\n").as_bytes()));
        kinds
    };
    let (known, asked) = (kinds("b"), kinds("a"));
    let changes =
        ["delete a\r\n", "get b\r\ndelete a\r\n", "mg b v\r\ndelete a\r\n", "mg a N30 T30 v\r\n"];
    for (own, of_own) in known.iter().zip(&asked) {
        for (other, of_other) in known.iter().zip(&asked) {
            let mut bursts = vec![vec![set("a", "1", ""), set("b", "2", "")]];
            for change in changes {
                for v6 in [false, true] {
                    let change = datagram_of(v6, &[], change.as_bytes());
                    let mut burst = vec![own.clone(); 2];
                    burst.extend(std::iter::repeat_n(other.clone(), 7));
                    burst.extend([of_own.clone(), of_other.clone(), change]);
                    burst.extend([of_own.clone(), of_other.clone(), other.clone()]);
                    bursts.push(burst);
                    bursts.push(vec![set("a", "3", "")]);
                }
            }
            let bursts: Vec<&[Vec<u8>]> = bursts.iter().map(Vec::as_slice).collect();
            ask_all(Dialects::Auto, &bursts);
        }
    }
}

fn set(key: &str, value: &str, tail: &str) -> Vec<u8> {
    let len = value.len();
    datagram(CLIENT, format!("set {key} 0 0 {len}{tail}\r\n{value}\r\n").as_bytes())
}

#[test]
fn sets_and_reads_of_a_key_keep_their_order() {
    let get = |keys: &str| datagram(CLIENT, format!("get {keys}\r\n").as_bytes());
    let binary = Header::request(opcode::GET).packet(b"", b"a", b"").unwrap();
    let many = "a b c d e f g h";
    for read in [
        get("a"),
        get("b a"),
        get(many),
        datagram(CLIENT, b"gets a\n"),
        datagram(CLIENT, b"mg a v\r\n"),
        datagram(CLIENT, &binary),
        datagram(CLIENT, b"get a\r\nget a\r\n"),
    ] {
        for tail in ["", " noreply"] {
            let sets = ["one", "two", "six"].map(|value| set("a", value, tail));
            let [one, two, six] = sets;
            let other = || set("b", "other", "");
            ask_all(
                Dialects::Auto,
                &[
                    &[one.clone(), read.clone(), two.clone(), read.clone(), six.clone()],
                    std::slice::from_ref(&read),
                    &[two.clone(), six, read.clone(), one, two, other(), read.clone(), other()],
                    &[read.clone(), other(), set("a", "last", tail), other()],
                    std::slice::from_ref(&read),
                ],
            );
        }
    }
}

#[test]
fn a_request_for_several_keys_that_fails_midway_is_as_it_was() {
    let get = |keys: &str, padding: usize| {
        let mut frame = datagram(CLIENT, format!("get {keys}\r\n").as_bytes());
        frame.extend(std::iter::repeat_n(0xaa, padding));
        frame
    };
    let dead = datagram(CLIENT, b"set dead 0 -1 4\r\nDEAD\r\n");
    let (long, longer) = ("k".repeat(32), "l".repeat(33));
    let big = "v".repeat(700);
    let flags = datagram(CLIENT, b"set flags 123456 0 3\r\nabc\r\n");
    let stored = [
        set("a", "1", ""),
        set("b", &"2".repeat(40), ""),
        set("c", &big, ""),
        set("d", &big, ""),
        set(&long, "32", ""),
        set(&longer, "33", ""),
        dead,
        flags,
    ];
    let mut asked = Vec::new();
    for keys in [
        "a dead".to_owned(),
        "a b none dead".to_owned(),
        "a b c d".to_owned(),
        "d c".to_owned(),
        "a none b".to_owned(),
        "flags a flags b".to_owned(),
        format!("a {long} b"),
        format!("a {long} b dead"),
        format!("a {longer} dead"),
        format!("{long} {long} {long} a"),
        format!("{long} {long} {long} {long}"),
        "a a a a".to_owned(),
        "a a a a a".to_owned(),
    ] {
        asked.extend([0, 1, 18, 60, 100].map(|padding| get(&keys, padding)));
    }
    ask_all(Dialects::Auto, &[&stored, &asked[..32], &asked[32..64], &asked[64..]]);
    for frame in &asked {
        ask_all(Dialects::Auto, &[&stored, std::slice::from_ref(frame)]);
    }
}

#[test]
fn what_the_store_refuses_is_refused_in_its_words() {
    let small = || StoreConfig { item_max_bytes: 1024, ..StoreConfig::default() };
    // Items above the limit, and later no memory for any.
    let full = || StoreConfig { memory_bytes: 4 << 20, evict: false, ..StoreConfig::default() };
    for caps in [TxCaps::default(), TxCaps { ip: true, udp: true }] {
        for config in [small as fn() -> StoreConfig, full] {
            let modes = [FastPathMode::Off, FastPathMode::Vector, FastPathMode::Portable];
            let mut worlds = modes.map(|mode| World::over(config(), Dialects::Auto, mode, caps));
            for round in 0..160 {
                let burst: Vec<Vec<u8>> = (0..64)
                    .map(|n| {
                        let value = "v".repeat([10, 955, 960, 990, 1000, 1300][n % 6]);
                        let tail = if n % 7 == 0 { " noreply" } else { "" };
                        set(&format!("{round}:{}", n / 2), &value, tail)
                    })
                    .collect();
                let [want, fast, portable] = worlds.each_mut().map(|world| world.ask(&burst));
                assert!(fast == want && portable == want, "round {round}");
            }
            let [want, fast, portable] = worlds.each_mut().map(World::counted);
            assert_eq!(fast, want);
            assert_eq!(portable, want);
            let refused = worlds[1].server.totals();
            assert!(refused.store_too_large + refused.store_no_memory > 100, "{refused:?}");
        }
    }
}

#[test]
fn writes_keep_their_order() {
    let delete = || datagram(CLIENT, b"delete a\r\n");
    let append = || datagram(CLIENT, b"append a 0 0 1\r\nx\r\n");
    let gets = || datagram(CLIENT, b"gets a b c\r\n");
    let (a, b) = (|| set("a", "1", ""), || set("b", "2", " noreply"));
    for burst in [
        [a(), delete(), b(), append()],
        [delete(), a(), append(), b()],
        [a(), append(), a(), delete()],
        [append(), b(), a(), append()],
    ] {
        ask_all(Dialects::Auto, &[&burst, &[gets()], &burst, &[gets()]]);
    }
}

#[test]
fn sets_are_answered_before_the_general_stages() {
    for (mode, batches) in
        [(FastPathMode::Off, 1), (FastPathMode::Vector, 2), (FastPathMode::Portable, 2)]
    {
        let mut world = World::new(mode, TxCaps::default());
        // What the general stages get is a batch of its own.
        let replies = world.ask(&[set("a", "1", ""), datagram(CLIENT, b"delete b\r\n")]);
        assert_eq!((replies.len(), world.counters.batches.get()), (2, batches));
        // A change that comes first is not overtaken.
        world.ask(&[datagram(CLIENT, b"delete b\r\n"), set("a", "1", "")]);
        assert_eq!(world.counters.batches.get(), batches + 1);
        // Nothing is left of sets without an answer.
        let quiet: Vec<Vec<u8>> = (0..64).map(|_| set("a", "1", " noreply")).collect();
        assert!(world.ask(&quiet).is_empty());
        let ledger = world.counters.ledger();
        assert!(ledger.balances() && ledger.answered == 68, "{ledger:?}");
        assert_eq!((world.counters.slow.get(), world.counters.tx_frames.get()), (68, 4));
    }
}

#[test]
fn a_port_that_fills_in_one_sum_alone_gets_both() {
    for mode in [FastPathMode::Vector, FastPathMode::Portable] {
        for caps in [TxCaps { ip: false, udp: true }, TxCaps { ip: true, udp: false }] {
            let mut world = World::new(mode, caps);
            // The general stages leave one sum to the port.
            world.near[0].sums = true;
            assert_eq!(world.ask(&[set("a", "1", "")]).len(), 1);
            assert_eq!(world.ask(&[datagram(CLIENT, b"get a\r\n")]).len(), 1);
        }
    }
}

#[test]
fn two_ports_at_a_time_have_their_own_replies() {
    let mut worlds = [FastPathMode::Off, FastPathMode::Vector, FastPathMode::Portable]
        .map(|mode| World::odd(mode, TxCaps::default(), (Dialects::Auto, true)));
    for size in [1, 300] {
        let mut frames = Vec::new();
        for key in ["aa", "bb"] {
            worlds.iter_mut().for_each(|w| drop(w.ask(&[set(key, &"v".repeat(size), "")])));
            let delete = || datagram(CLIENT, format!("delete {key}{key}\r\n").as_bytes());
            frames.extend([delete(), delete()]);
            frames.extend(other_forms(key));
            frames.push(delete());
        }
        let port_of = |frame: &[u8]| usize::from(frame.windows(2).any(|w| w == b"bb"));
        let [want, fast, portable] = worlds.each_mut().map(|w| w.ask_by(&frames, port_of));
        assert!(fast == want && portable == want, "{size}");
        let of = |port: &[u8]| want.iter().filter(|r| r.windows(6).any(|w| w == port)).count();
        let most = frames.len() / 2;
        assert!([of(b"port 0"), of(b"port 1")].iter().all(|n| most - 2 <= *n && *n <= most));
    }
    let [want, fast, portable] = worlds.each_mut().map(World::counted);
    assert!(fast == want && portable == want);
}

#[test]
fn a_source_that_is_nobody_is_not_answered() {
    for src in ["0.0.0.0:40000", "0.0.0.1:40000", "158.0.0.1:40000", "1.0.0.0:40000"] {
        ask_all(Dialects::Auto, &[&[datagram(src, b"get b\r\n"), datagram(CLIENT, b"get b\r\n")]]);
    }
}

fn packets() -> usize {
    std::env::var("FAST_PATH_PACKETS").ok().and_then(|n| n.parse().ok()).unwrap_or(100_000)
}

#[test]
fn every_reply_and_every_count_is_that_of_the_general_stages() {
    // Nearly all gets in some bursts, nearly all sets in others, or a mixture.
    let shares = [0, 0, 12, 39].map(Some);
    for seed in 1..=4 {
        compare(seed, packets() / 5, TxCaps::default(), &shares);
    }
    compare(5, packets() / 5, TxCaps { ip: true, udp: true }, &shares);
}

#[test]
fn so_they_are_without_cas_ids_and_in_text_alone() {
    let shares = [0, 0, 12, 39].map(Some);
    compare_tuned(7, packets() / 5, TxCaps::default(), &shares, (Dialects::Auto, false));
    let ascii = Dialects::Only(Dialect::Ascii);
    compare_tuned(8, packets() / 5, TxCaps::default(), &shares, (ascii, true));
}

#[test]
fn so_is_every_hint_where_sets_come_apart() {
    compare(6, packets() / 5, TxCaps::default(), &[None, Some(40)]);
}
