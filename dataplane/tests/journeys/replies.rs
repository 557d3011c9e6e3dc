//! Right questions get right answers.

use crate::world::{World, Wrap, request};
use memcache::Store as SetRequest;
use memcache::binary::{Header, opcode};
use store::StoreConfig;
use store::verbs;
use wire::DropReason;

#[test]
fn set_get_delete_over_every_wrapping() {
    for wrap in Wrap::ALL {
        let mut w = World::new();
        assert_eq!(w.ask_by(wrap, b"get k\r\n"), b"END\r\n");
        assert_eq!(w.ask_by(wrap, b"set k 5 0 3\r\nabc\r\n"), b"STORED\r\n");
        assert_eq!(w.ask_by(wrap, b"get k\r\n"), b"VALUE k 5 3\r\nabc\r\nEND\r\n");
        assert_eq!(w.ask_by(wrap, b"delete k\r\n"), b"DELETED\r\n");
        assert_eq!(w.ask_by(wrap, b"delete k\r\n"), b"NOT_FOUND\r\n");
        assert_eq!(w.ask_by(wrap, b"get k\r\n"), b"END\r\n");
        let ledger = w.end();
        assert_eq!((ledger.received, ledger.answered), (6, 6));
    }
}

/// Around where stage 6 begins to take a value's sum from the store, with the value at odd and even
/// places and of odd and even lengths. The world checks every checksum.
#[test]
fn values_of_every_length_and_place_have_right_checksums() {
    for wrap in [Wrap::V4, Wrap::V6] {
        let mut w = World::new();
        for len in (0..=12).chain(95..=102).chain(180..=200).chain([999, 1000, 1001]) {
            let value: String = ('!'..='z').cycle().step_by(7).take(len).collect();
            for key in ["k", "kk"] {
                let set = format!("set {key} {len} 0 {len}\r\n{value}\r\n");
                assert_eq!(w.ask_by(wrap, set.as_bytes()), b"STORED\r\n");
                let want = format!("VALUE {key} {len} {len}\r\n{value}\r\nEND\r\n");
                let got = w.ask_by(wrap, format!("get {key}\r\n").as_bytes());
                assert_eq!(got, want.as_bytes());
                let set = format!("set {key} 0 0 {len}\r\n{value}\r\n");
                assert_eq!(w.ask_by(wrap, set.as_bytes()), b"STORED\r\n");
                let want = format!("VALUE {key} 0 {len}\r\n{value}\r\nEND\r\n");
                let got = w.ask_by(wrap, format!("get {key}\r\n").as_bytes());
                assert_eq!(got, want.as_bytes());
            }
        }
        w.end();
    }
}

#[test]
fn many_keys_and_cas_ids() {
    let mut w = World::new();
    for k in ["a", "bb", "ccc"] {
        let line = format!("set {k} 1 0 {}\r\n{k}\r\n", k.len());
        assert_eq!(w.ask(line.as_bytes()), b"STORED\r\n");
    }
    let all = &b"VALUE a 1 1\r\na\r\nVALUE bb 1 2\r\nbb\r\nVALUE ccc 1 3\r\nccc\r\nEND\r\n"[..];
    assert_eq!(w.ask(b"get a x bb ccc\r\n"), all);
    // More keys than a descriptor holds: the strict parser's way gives the same bytes.
    assert_eq!(w.ask(b"get a x bb x x x x x ccc\r\n"), all);
    let text = w.ask(b"gets a bb\r\n");
    let text = String::from_utf8(text).unwrap();
    let cas: Vec<u64> = text
        .lines()
        .filter(|l| l.starts_with("VALUE"))
        .map(|l| l.rsplit(' ').next().unwrap().parse().unwrap())
        .collect();
    assert!(cas.len() == 2 && cas[0] != cas[1], "{text}");
    w.end();
}

/// Requests that only the strict parser understands find their item where the engine saw it.
#[test]
fn hints_spare_the_strict_parser_a_look_up() {
    let mut w = World::new();
    let binary_get = |key: &[u8]| Header::request(opcode::GET).packet(b"", key, b"").unwrap();
    assert_eq!(w.ask(b"set k 0 0 1\r\n1\r\n"), b"STORED\r\n");
    assert_eq!(w.ask(b"mg k v\r\n"), b"VA 1\r\n1\r\n");
    assert!(w.ask(&binary_get(b"k")).ends_with(b"1"));
    assert_eq!(w.ask(b"mg x v\r\n"), b"EN\r\n");
    let hints = |w: &World| (w.counters[0].hints_right.get(), w.counters[0].hints_wrong.get());
    assert_eq!(hints(&w), (2, 0));
    // The engine looks before the item changes, but for a plain `set`, which comes before its batch.
    w.send(&request(Wrap::V4, 1, b"replace k 0 0 1\r\n2\r\n"));
    w.send(&request(Wrap::V4, 2, b"mg k v\r\n"));
    w.settle();
    let got = w.received(0);
    assert_eq!(crate::world::open(Wrap::V4, got[1].bytes()).text, b"VA 1\r\n2\r\n");
    assert_eq!(hints(&w), (2, 1));
    drop(got);
    w.send(&request(Wrap::V4, 3, b"set k 0 0 1\r\n3\r\n"));
    w.send(&request(Wrap::V4, 4, b"mg k v\r\n"));
    w.settle();
    let got = w.received(0);
    assert_eq!(crate::world::open(Wrap::V4, got[1].bytes()).text, b"VA 1\r\n3\r\n");
    assert_eq!(hints(&w), (3, 1));
    drop(got);
    w.end();
}

#[test]
fn a_read_sees_the_write_before_it_in_the_same_burst() {
    let mut w = World::new();
    w.send(&request(Wrap::V4, 1, b"get k\r\n"));
    w.send(&request(Wrap::V4, 2, b"set k 0 0 1\r\n1\r\n"));
    w.send(&request(Wrap::V4, 3, b"get k\r\n"));
    w.send(&request(Wrap::V4, 4, b"set k 0 0 1\r\n2\r\n"));
    w.send(&request(Wrap::V4, 5, b"get k\r\n"));
    w.send(&request(Wrap::V4, 6, b"delete k\r\n"));
    w.send(&request(Wrap::V4, 7, b"get k\r\n"));
    w.settle();
    let got: Vec<_> =
        w.received(0).iter().map(|f| crate::world::open(Wrap::V4, f.bytes())).collect();
    let texts: Vec<&[u8]> = got.iter().map(|d| &d.text[..]).collect();
    assert_eq!(
        texts,
        [
            &b"END\r\n"[..],
            b"STORED\r\n",
            b"VALUE k 0 1\r\n1\r\nEND\r\n",
            b"STORED\r\n",
            b"VALUE k 0 1\r\n2\r\nEND\r\n",
            b"DELETED\r\n",
            b"END\r\n",
        ]
    );
    assert_eq!(got.iter().map(|d| d.id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6, 7]);
    w.end();
}

#[test]
fn several_commands_in_one_datagram_are_one_reply() {
    let mut w = World::new();
    let text =
        w.ask(b"set a 0 0 1\r\nx\r\nget a\r\nbogus\r\nset a 0 0 1 noreply\r\ny\r\nget a\r\n");
    assert_eq!(text, b"STORED\r\nVALUE a 0 1\r\nx\r\nEND\r\nERROR\r\nVALUE a 0 1\r\ny\r\nEND\r\n");
    w.end();
}

#[test]
fn a_cut_off_request_hurts_nobody_else() {
    let mut w = World::new();
    assert_eq!(w.ask(b"set victim 0 0 4\r\nsafe\r\n"), b"STORED\r\n");
    assert_eq!(w.ask(b"set w 0 0 100\r\nhi\r\n"), b"CLIENT_ERROR bad data chunk\r\n");
    assert_eq!(w.ask(b"get victim\r\n"), b"VALUE victim 0 4\r\nsafe\r\nEND\r\n");
    assert_eq!(w.ask(b"get victim"), b"ERROR\r\n");
    assert_eq!(w.ask(&[b'x'; 1000]), b"ERROR\r\n");
    assert_eq!(w.ask(b"get w\r\n"), b"END\r\n");
    w.end();
}

#[test]
fn silent_requests_are_answered_by_nothing() {
    let mut w = World::new();
    for quiet in [
        &b"set q 0 0 1 noreply\r\nx\r\n"[..],
        b"delete nope noreply\r\n",
        b"quit\r\n",
        // Refused.
        b"set q 0 0 5 noreply\r\ny\r\n",
        b"flush_all noreply\r\n",
    ] {
        assert!(w.ask_datagrams(Wrap::V4, quiet).is_empty());
    }
    assert_eq!(w.ask(b"get q\r\n"), b"VALUE q 0 1\r\nx\r\nEND\r\n");
    assert_eq!(w.end().answered, 6);
}

#[test]
fn version_stats_and_what_udp_refuses() {
    let mut w = World::new();
    assert_eq!(w.ask(b"version\r\n"), b"VERSION test\r\n");
    w.ask(b"set a 0 0 1\r\nx\r\n");
    w.ask(b"get a b\r\n");
    let stats = String::from_utf8(w.ask(b"stats\r\n")).unwrap();
    for line in ["curr_items 1", "cmd_get 2", "get_hits 1", "get_misses 1", "cmd_set 1"] {
        assert!(stats.contains(&format!("STAT {line}\r\n")), "{line} in {stats}");
    }
    assert!(stats.ends_with("END\r\n"));
    assert_eq!(w.ask(b"stats settings\r\n"), b"SERVER_ERROR command not available over UDP\r\n");
    w.end();
}

/// Stores behind the worker's back, as TCP would: values that no request datagram can carry.
fn store(w: &World, key: &[u8], value: &[u8]) {
    let mut session = w.store.session().unwrap();
    verbs::store(&mut session, None, &SetRequest::set(key, 0, 0, value)).unwrap();
}

#[test]
fn replies_of_every_size_around_a_datagram() {
    for wrap in [Wrap::V4, Wrap::QinQ6] {
        let mut w = World::new();
        for len in (0..4).chain(1330..1400).chain(2700..2790) {
            let value: Vec<u8> = (0..=255).cycle().take(len).collect();
            store(&w, b"k", &value);
            let want = [format!("VALUE k 0 {len}\r\n").as_bytes(), &value, b"\r\nEND\r\n"].concat();
            assert_eq!(w.ask_by(wrap, b"get k\r\n"), want, "{len}");
        }
        w.end();
    }
}

#[test]
fn a_value_of_a_megabyte_arrives_whole() {
    let mut w = World::new();
    let value: Vec<u8> = (0..=250).cycle().take(1_048_000).collect();
    store(&w, b"big", &value);
    let text = w.ask(b"get big\r\n");
    assert_eq!(
        text[..22],
        b"VALUE big 0 1048000\r\n"[..].iter().copied().chain([value[0]]).collect::<Vec<_>>()
    );
    assert_eq!(&text[21..21 + value.len()], value);
    // Two of them are more than one request may ask for.
    assert_eq!(w.ask(b"get big big\r\n"), b"SERVER_ERROR reply too large for UDP, use TCP\r\n");
    w.end();
}

#[test]
fn a_reply_without_slots_is_dropped_by_name() {
    let mut w = World::new();
    store(&w, b"big", &[b'x'; 100_000]);
    let mut hoard: Vec<_> = std::iter::from_fn(|| w.region.alloc()).collect();
    hoard.truncate(hoard.len() - 5);
    assert!(w.ask_datagrams(Wrap::V4, b"get big\r\n").is_empty());
    assert_eq!(w.dropped(DropReason::NoFrame), 1);
    drop(hoard);
    assert_eq!(w.ask(b"get big\r\n").len(), 20 + 100_000 + 7);
    w.end();
}

#[test]
fn keys_at_the_limits() {
    let mut w = World::new();
    for len in [1, 249, 250] {
        let key = "k".repeat(len);
        assert_eq!(w.ask(format!("set {key} 0 0 1\r\nv\r\n").as_bytes()), b"STORED\r\n");
        let want = format!("VALUE {key} 0 1\r\nv\r\nEND\r\n");
        assert_eq!(w.ask(format!("get {key}\r\n").as_bytes()), want.as_bytes());
    }
    let key = "k".repeat(251);
    let refused = b"CLIENT_ERROR bad command line format\r\n";
    assert_eq!(w.ask(format!("get {key}\r\n").as_bytes()), refused);
    // The data block goes with its line: it is no command.
    assert_eq!(w.ask(format!("set {key} 0 0 1\r\nv\r\n").as_bytes()), refused);
    w.end();
}

#[test]
fn two_workers_share_one_store() {
    let config = StoreConfig { memory_bytes: 16 << 20, ..StoreConfig::default() };
    let mut w = World::with(2, config, |q, _| q);
    for i in 0..100 {
        let set = format!("set key{i} 0 0 3\r\n{i:03}\r\n");
        w.send_to(i % 2, &request(Wrap::V4, 1, set.as_bytes()));
    }
    w.settle();
    assert_eq!(w.received(0).len() + w.received(1).len(), 100);
    for i in 0..100 {
        let get = format!("get key{i}\r\n");
        w.send_to((i + 1) % 2, &request(Wrap::V4, 1, get.as_bytes()));
        w.settle();
        let got = w.received((i + 1) % 2);
        let text = crate::world::open(Wrap::V4, got[0].bytes()).text;
        assert_eq!(text, format!("VALUE key{i} 0 3\r\n{i:03}\r\nEND\r\n").as_bytes());
    }
    w.end();
}
