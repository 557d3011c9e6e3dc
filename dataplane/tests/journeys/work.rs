//! How much one datagram may have done, and who pays for it.

use crate::policy::{ask, drops, networks, rate, request, store, text};
use crate::world::World;
use dataplane::policy::Policy;
use memcache::binary::{Header, opcode};
use std::time::Instant;
use store::StoreConfig;
use wire::DropReason;

/// On the server's own networks: trusted.
const FRIEND: &str = "10.0.0.1";
/// Served, not trusted.
const OTHER: &str = "192.0.2.1";
const THIRD: &str = "192.0.2.2";

const STORED: &str = "STORED\r\n";
const REFUSED: &str = "SERVER_ERROR too much work for one datagram, use TCP\r\n";

/// Bytes of a value near the largest.
const LARGE: usize = 1_000_000;

fn world(policy: Policy) -> World {
    World::policed(&networks(&["192.0.2.0/24"]), policy)
}

fn lines(lines: &[&str]) -> String {
    lines.concat()
}

fn said(w: &mut World, from: &str, commands: &str) -> String {
    String::from_utf8(text(&ask(w, from, commands.as_bytes()))).unwrap()
}

fn value_len(w: &mut World, key: &str) -> usize {
    let got = said(w, FRIEND, &format!("mg {key} s\r\n"));
    got.strip_prefix("HD s").unwrap().trim_end().parse().unwrap()
}

#[test]
fn a_datagram_of_many_large_appends_does_one() {
    for from in [FRIEND, OTHER] {
        let mut w = world(Policy::default());
        store(&w, "a", LARGE);
        let answers = said(&mut w, from, &"append a 0 0 1\r\nx\r\n".repeat(70));
        assert_eq!(answers, lines(&[STORED, &REFUSED.repeat(69)]), "{from}");
        assert_eq!(value_len(&mut w, "a"), LARGE + 1, "what is refused changes nothing");
        assert_eq!(w.counters[0].work_refused.get(), 69);
        // The next datagram begins anew.
        assert_eq!(said(&mut w, from, "prepend a 0 0 1\r\nx\r\n"), STORED);
        assert_eq!(w.end().answered, 3);
    }
}

#[test]
fn what_wants_no_answer_is_refused_in_silence_and_counted() {
    let mut w = world(Policy::default());
    store(&w, "a", LARGE);
    assert_eq!(said(&mut w, OTHER, &"append a 0 0 1 noreply\r\nx\r\n".repeat(50)), "");
    assert_eq!(value_len(&mut w, "a"), LARGE + 1);
    assert_eq!(w.counters[0].work_refused.get(), 49);
    // One that is too long to be read, one that is for TCP, and all that may follow.
    let mixed = lines(&[
        "append a 0 0 0\r\n\r\n",
        "set b 0 0 1 noreply\r\nx\r\n",
        "flush_all\r\n",
        "get b\r\n",
        "bogus\r\n",
        "quit\r\nget a\r\n",
    ]);
    let not_here = "SERVER_ERROR command not available over UDP\r\n";
    assert_eq!(said(&mut w, FRIEND, &mixed), lines(&[STORED, not_here, REFUSED, REFUSED]));
    assert_eq!(said(&mut w, FRIEND, "get b\r\n"), "END\r\n");
    assert_eq!(w.counters[0].work_refused.get(), 49 + 3);
    assert_eq!(w.end().answered, 4);
}

/// A quiet command says nothing when it went well: silence would be a lie.
#[test]
fn quiet_commands_are_told_that_they_were_refused() {
    let mut w = world(Policy::default());
    store(&w, "a", LARGE);
    let quiet = "ms a 1 MA q\r\nx\r\n";
    assert_eq!(said(&mut w, FRIEND, &lines(&[quiet, quiet, "mn\r\n"])), REFUSED.repeat(2));
    assert_eq!(value_len(&mut w, "a"), LARGE + 1);
    let append = Header::request(opcode::APPENDQ).packet(b"", b"a", b"x").unwrap();
    let noop = Header::request(opcode::NOOP).bytes().to_vec();
    let answer = text(&ask(&mut w, FRIEND, &[append.clone(), append, noop].concat()));
    assert_eq!(value_len(&mut w, "a"), LARGE + 2);
    assert_eq!(answer[..8], [0x81, 0x19, 0, 0, 0, 0, 0, 3], "too large");
    assert_eq!(answer[24 + usize::from(answer[11])..][..2], [0x81, 0x0a]);
    assert_eq!(w.counters[0].work_refused.get(), 4);
}

/// The most that honest datagrams ask for, of every kind, is done in full.
#[test]
fn honest_datagrams_are_not_refused() {
    let mut w = World::with(
        1,
        StoreConfig { memory_bytes: 64 << 20, ..StoreConfig::default() },
        |queues, _| queues,
    );
    // As many keys as a packet takes, and as many values as a reply.
    let keys = " k".repeat(720);
    store(&w, "k", 10);
    let got = said(&mut w, FRIEND, &format!("get{keys}\r\n"));
    assert_eq!(got.matches("VALUE k 0 10\r\n").count(), 720);
    store(&w, "v", 100_000);
    let got = said(&mut w, FRIEND, &"get v\r\n".repeat(13));
    assert_eq!(got.matches("VALUE v 0 100000\r\n").count(), 13);
    store(&w, "large", LARGE);
    let got = said(&mut w, FRIEND, "get large\r\n");
    assert_eq!(got.len(), LARGE + "VALUE large 0 1000000\r\n\r\nEND\r\n".len());
    // As many commands as a packet takes.
    assert_eq!(said(&mut w, FRIEND, &"mn\r\n".repeat(366)), "MN\r\n".repeat(366));
    store(&w, "list", 1000);
    let appends = "append list 0 0 1\r\nx\r\n".repeat(66);
    assert_eq!(said(&mut w, FRIEND, &appends), STORED.repeat(66));
    assert_eq!(w.counters[0].work_refused.get(), 0);
    w.end();
}

#[test]
fn statistics_are_work() {
    let mut w = world(Policy::default());
    let got = said(&mut w, FRIEND, &"stats\r\n".repeat(200));
    let told = got.matches("STAT pid ").count();
    assert_eq!((told, got.matches(REFUSED).count()), (2, 198));
    assert_eq!(w.counters[0].work_refused.get(), 198);
    w.end();
}

#[test]
fn work_is_paid_for_in_requests_by_sources_that_are_not_trusted() {
    // What a megabyte costs is worth more seconds than the test takes, however slow the machine.
    let policy = Policy { source: rate(10, 0), trusted_source: rate(10, 0), ..Policy::default() };
    let mut w = world(policy);
    store(&w, "a", LARGE);
    let append = "append a 0 0 0\r\n\r\n";
    assert_eq!(said(&mut w, OTHER, append), STORED);
    for _ in 0..3 {
        assert_eq!(said(&mut w, OTHER, append), "");
    }
    // Neither another one nor a trusted one is concerned, whatever the latter does.
    assert_eq!(said(&mut w, THIRD, "get k\r\n"), "END\r\n");
    for _ in 0..3 {
        assert_eq!(said(&mut w, FRIEND, append), STORED);
    }
    assert_eq!(drops(&w.end()), [(DropReason::RateSourceWork, 3)]);
}

#[test]
fn all_that_are_not_trusted_pay_together() {
    let mut w = world(Policy { total: rate(10, 0), ..Policy::default() });
    store(&w, "a", LARGE);
    assert_eq!(said(&mut w, OTHER, "append a 0 0 0 noreply\r\n\r\n"), "");
    assert_eq!(said(&mut w, THIRD, "get k\r\n"), "");
    assert_eq!(said(&mut w, FRIEND, "get k\r\n"), "END\r\n");
    assert_eq!(drops(&w.end()), [(DropReason::RateTotalWork, 1)]);
}

/// What one request of a rate pays for, from both sides of the border.
#[test]
fn small_requests_cost_no_more_than_themselves() {
    // Ten requests and no more, all within one turn of the clock or nearly.
    let rate = rate(10, 0);
    for (commands, left) in [
        ("set b 0 0 1000\r\n", 9),
        ("get k\r\n", 9),
        ("incr n 1\r\n", 9),
        ("mn\r\nmn\r\nmn\r\n", 9),
        // 4 commands of 1 KB.
        ("mn\r\nmn\r\nmn\r\nmn\r\n", 8),
        // 2 KB and a command, 10 KB and a command, 20 KB and a command.
        ("append v2 0 0 0\r\n\r\n", 9),
        ("append v10 0 0 0\r\n\r\n", 7),
        ("append v20 0 0 0\r\n\r\n", 4),
        // A key is a KB, but none in a get that is answered from the engine's descriptor.
        ("get k k k k\r\n", 9),
        ("get k k k k k k k k\r\n", 7),
    ] {
        let begun = Instant::now();
        let mut w = world(Policy { source: rate, ..Policy::default() });
        for (key, len) in [("v2", 2 << 10), ("v10", 10 << 10), ("v20", 20 << 10)] {
            store(&w, key, len);
        }
        let mut commands = commands.to_owned();
        if commands.starts_with("set") {
            commands += &format!("{}\r\n", "x".repeat(1000));
        }
        said(&mut w, OTHER, &commands);
        for _ in 0..20 {
            w.send(&request(OTHER, b"get k\r\n"));
        }
        w.settle();
        let passed = w.received(0).len();
        // What a tenth of a second brings.
        let earned = usize::try_from(begun.elapsed().as_millis() / 100).unwrap();
        assert!((left..=left + earned).contains(&passed), "{passed} of {left} after {commands}");
        w.end();
    }
}

/// What a unit of work takes, for the table of docs/decisions/0026-work-over-udp.md: nanoseconds of a
/// worker, frames in memory. `cargo test --release -p dataplane --test journeys what_work_takes --
/// --ignored --nocapture`
#[test]
#[ignore = "measures"]
fn what_work_takes() {
    let mut w = World::with(
        1,
        StoreConfig { memory_bytes: 256 << 20, ..StoreConfig::default() },
        |queues, _| queues,
    );
    for (key, len) in [("v1", 1 << 10), ("v32", 32 << 10), ("v240", 240 << 10), ("v1000", LARGE)] {
        store(&w, key, len);
    }
    (0..700).for_each(|n| store(&w, &format!("{n:03}"), 1));
    let keys: String = (0..360).map(|n| format!(" {:03}", n * 7 % 700)).collect();
    let cases = [
        ("get of one key", "get v1\r\n".to_owned(), 1),
        ("mn, 366", "mn\r\n".repeat(366), 366),
        ("touch, 100", "touch v1 0\r\n".repeat(100), 100),
        ("incr of nothing, 100", "incr none 1\r\n".repeat(100), 100),
        ("set of 1 byte, 70", "set 001 0 0 1\r\nx\r\n".repeat(70), 70),
        ("get of 360 keys", format!("get{keys}\r\n"), 360),
        ("stats, 2", "stats\r\n".repeat(2), 2),
        ("append to 1 KB, 60", "append v1 0 0 0\r\n\r\n".repeat(60), 60),
        ("append to 32 KB, 8", "append v32 0 0 0\r\n\r\n".repeat(8), 8),
        ("append to 240 KB", "append v240 0 0 0\r\n\r\n".to_owned(), 1),
        ("append to 1 MB", "append v1000 0 0 0\r\n\r\n".to_owned(), 1),
        ("70 appends to 1 MB", "append v1000 0 0 0\r\n\r\n".repeat(70), 1),
    ];
    for (what, commands, n) in cases {
        let median = median_ns(&mut w, &[request(FRIEND, commands.as_bytes())]);
        println!("{what:22} {median:>9} ns, {:>8} ns each", median / n);
    }
    // More than any cache holds.
    (0..96).for_each(|n| store(&w, &format!("cold{n}"), LARGE));
    let frames: Vec<_> = (0..96).map(|n| format!("append cold{n} 0 0 0\r\n\r\n")).collect();
    let frames: Vec<_> = frames.iter().map(|text| request(FRIEND, text.as_bytes())).collect();
    println!("{:22} {:>9} ns", "append to 1 MB, cold", median_ns(&mut w, &frames));
}

/// What a turn with one of these frames takes, each sent in its turn.
fn median_ns(w: &mut World, frames: &[Vec<u8>]) -> u128 {
    let mut times = Vec::new();
    for frame in frames.iter().cycle().take(400) {
        w.send(frame);
        let begun = Instant::now();
        w.workers[0].turn();
        times.push(begun.elapsed().as_nanos());
        w.received(0);
    }
    times.sort_unstable();
    times[times.len() / 2]
}
