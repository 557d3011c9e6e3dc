//! Clients that read items in the memory file: what they get, and a storm of changes beside them.

use crate::client::{Tcp, Udp};
use crate::restart::MemoryFile;
use crate::server::{Server, refuses, run};
use gnomon_client::codec::connection::Connection;
use gnomon_client::{Shared, SharedClient};
use nix::sys::signal::Signal;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

type Client = SharedClient<Connection>;

fn client(server: &Server, file: &MemoryFile) -> Client {
    let shared = Shared::open(Path::new(file.path())).unwrap();
    SharedClient::new(Connection::open(server.tcp()).unwrap(), Some(shared))
}

/// The value, and whether it was read in the file.
fn get(client: &mut Client, key: &str) -> (Option<Vec<u8>>, bool) {
    let reads = client.counts().reads;
    let value = client.get(key.as_bytes()).unwrap().map(|got| got.value.to_vec());
    (value, client.counts().reads > reads)
}

fn read(value: &str) -> (Option<Vec<u8>>, bool) {
    (Some(value.as_bytes().to_vec()), true)
}

fn asked(value: Option<&str>) -> (Option<Vec<u8>>, bool) {
    (value.map(|value| value.as_bytes().to_vec()), false)
}

#[test]
fn places_are_for_those_who_asked_for_them() {
    refuses(&run(&["serve", "--shared-reads"]), "--shared-reads is for clients");
    let file = MemoryFile::new("places");
    let server = file.serve(&[]);
    let mut tcp = Tcp::connect(server.tcp());
    tcp.set("sun", b"shine");
    tcp.expect("mg sun v p\r\n", "CLIENT_ERROR invalid flag\r\n");
    tcp.expect("ms sun 1 p\r\nx\r\n", "CLIENT_ERROR invalid flag\r\n");
    assert_eq!(
        Client::new(Connection::open(server.tcp()).unwrap(), None)
            .get(b"sun")
            .unwrap_err()
            .to_string(),
        "CLIENT_ERROR invalid flag"
    );
    server.stop();

    let server = file.serve(&["--shared-reads", "-I", "4m"]);
    let mut tcp = Tcp::connect(server.tcp());
    tcp.expect("mg sun v p\r\n", "EN\r\n");
    tcp.send("ms sun 5 p k\r\nshine\r\n");
    let stored = tcp.until("\r\n");
    let place = stored.strip_prefix("HD p").unwrap().strip_suffix(" ksun\r\n").unwrap();
    let numbers: Vec<u64> = place.split(',').map(|n| u64::from_str_radix(n, 16).unwrap()).collect();
    let [generation, offset, 0, 1] = numbers[..] else { panic!("{stored}") };
    assert!(generation != 0 && offset >= 2 << 20 && offset.is_multiple_of(64), "{stored}");
    let found = format!("VA 5 s5 p{place} f0\r\nshine\r\n");
    tcp.expect("mg sun s p v f\r\n", &found);
    Udp::to(server.udp()).expect(3, "mg sun s p v f\r\n", &found);
    // A key in base64 has the same one; what is in several chunks has none, and other commands know no such flag.
    tcp.expect("mg c3Vu b p\r\n", &format!("HD p{place}\r\n"));
    tcp.expect("mg sun p1\r\n", "CLIENT_ERROR invalid flag\r\n");
    tcp.expect("md sun p\r\n", "CLIENT_ERROR invalid or duplicate flag\r\n");
    let lines = ["ms sun 5 MA p\r\n, sun\r\n", "mg sun p\r\n"].map(|line| {
        tcp.send(line);
        tcp.until("\r\n")
    });
    assert!(
        lines[0] == lines[1] && lines[0] != stored && lines[0].starts_with("HD p"),
        "{lines:?}"
    );
    tcp.send(format!("ms long {} p\r\n", 3 << 20));
    tcp.send(vec![b'x'; 3 << 20]);
    tcp.expect("\r\n", "HD\r\n");
    tcp.expect("mg long p s\r\n", "HD s3145728\r\n");
    server.stop();
}

#[test]
fn what_changes_is_asked_for_and_what_stays_is_read() {
    let file = MemoryFile::new("changes");
    let server = file.serve(&["--shared-reads"]);
    let (mut tcp, mut c) = (Tcp::connect(server.tcp()), client(&server, &file));
    assert_eq!(get(&mut c, "sun"), asked(None));
    tcp.set("sun", b"shine");
    assert_eq!(get(&mut c, "sun"), asked(Some("shine")));
    assert_eq!(get(&mut c, "sun"), read("shine"));
    tcp.set("sun", b"dusk");
    assert_eq!(get(&mut c, "sun"), asked(Some("dusk")));
    assert_eq!(get(&mut c, "sun"), read("dusk"));
    tcp.expect("delete sun\r\n", "DELETED\r\n");
    assert_eq!(get(&mut c, "sun"), asked(None));
    // One's own sets bring the place.
    for value in ["", "x", "shine", &"v".repeat(100_000)] {
        c.set(b"sun", 7, value.as_bytes()).unwrap();
        assert_eq!(get(&mut c, "sun"), read(value));
        assert_eq!(c.get(b"sun").unwrap().unwrap().flags, 7);
    }
    // A number, in place of another.
    tcp.set("n", b"9");
    assert_eq!([get(&mut c, "n"), get(&mut c, "n")], [asked(Some("9")), read("9")]);
    tcp.expect("incr n 1\r\n", "10\r\n");
    assert_eq!([get(&mut c, "n"), get(&mut c, "n")], [asked(Some("10")), read("10")]);
    // Another expiry time leaves the item where it is; when it comes, it is not read.
    tcp.expect("touch n 1000\r\n", "TOUCHED\r\n");
    assert_eq!(get(&mut c, "n"), read("10"));
    tcp.expect("touch n -1\r\n", "TOUCHED\r\n");
    assert_eq!(get(&mut c, "n"), asked(None));
    // A CAS id of a client's own is no matter; what is out of date is for the server to say.
    tcp.expect("ms own 2 E77 T0\r\nab\r\n", "HD\r\n");
    assert_eq!([get(&mut c, "own"), get(&mut c, "own")], [asked(Some("ab")), read("ab")]);
    tcp.expect("md own I\r\n", "HD\r\n");
    assert_eq!([get(&mut c, "own"), get(&mut c, "own")], [asked(Some("ab")), asked(Some("ab"))]);
    // Flushed with others, and at once.
    for (key, flush) in [("a:b", "flush_prefix a\r\n"), ("a", "flush_all\r\n")] {
        c.set(key.as_bytes(), 0, b"x").unwrap();
        assert_eq!(get(&mut c, key), read("x"));
        tcp.expect(flush, "OK\r\n");
        assert_eq!(get(&mut c, key), asked(None), "{flush}");
    }
    // Flushed later: no earlier than others see it, and no later.
    c.set(b"late", 0, b"x").unwrap();
    tcp.expect("flush_all 3\r\n", "OK\r\n");
    assert_eq!(get(&mut c, "late"), read("x"));
    let begun = Instant::now();
    while tcp.until_end("get late\r\n") != "END\r\n" {
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
    assert_eq!(get(&mut c, "late"), asked(None));
    // While a prefix is remembered, what may lie under it is asked for; then it is read again.
    c.set(b"other", 0, b"x").unwrap();
    tcp.expect("flush_prefix p\r\n", "OK\r\n");
    assert_eq!(get(&mut c, "other"), asked(Some("x")));
    let begun = Instant::now();
    while get(&mut c, "other") != read("x") {
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", c.counts());
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
}

#[test]
fn whoever_ends_the_server_ends_the_reads() {
    let file = MemoryFile::new("ends");
    let server = file.serve(&["--shared-reads"]);
    let mut c = client(&server, &file);
    c.set(b"sun", 0, b"shine").unwrap();
    assert_eq!(get(&mut c, "sun"), read("shine"));
    server.stop_by(Signal::SIGUSR1);
    assert!(c.get(b"sun").is_err() && !c.has_shared(), "{:?}", c.counts());

    // A place of the process before is none, and the item is where it was.
    let server = file.serve(&["--shared-reads"]);
    let mut late = client(&server, &file);
    assert_eq!(
        [get(&mut late, "sun"), get(&mut late, "sun")],
        [asked(Some("shine")), read("shine")]
    );
    server.kill();
    // Nobody has said so in the file, but a new start does, whatever its flags; with less memory the file is shorter.
    assert_eq!(get(&mut late, "sun"), read("shine"));
    let server = Server::start(&["-m", "8", "-e", file.path()]);
    server.wait_for_log("its items are discarded");
    assert!(late.get(b"sun").is_err() && !late.has_shared(), "{:?}", late.counts());
    // Another server's file: its places are not this one's.
    let other = MemoryFile::new("ends-other");
    let another = other.serve(&["--shared-reads"]);
    let mut one = client(&another, &other);
    let mut mixed = client(&another, &file);
    one.set(b"sun", 0, b"shine").unwrap();
    assert_eq!(get(&mut one, "sun"), read("shine"));
    assert_eq!(
        [get(&mut mixed, "sun"), get(&mut mixed, "sun")],
        [(); 2].map(|()| asked(Some("shine")))
    );
    server.stop();
    another.stop();
}

/// Keys that each writer has, and bytes of their values: two size classes at a time.
const KEYS: usize = 200;

/// What says itself whose it is, which, how long, and what each of its bytes must be.
fn value(key: &str, version: u64, len: usize) -> Vec<u8> {
    let mut text = format!("{key} {version} {len} ").into_bytes();
    let word = version.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
    text.extend(word.repeat(len / word.len()));
    text
}

/// The version of a value that is whole.
fn version(key: &str, value: &[u8]) -> Option<u64> {
    let head = value.get(..50.min(value.len()))?;
    let mut words = head.split(|b| *b == b' ').map(|word| std::str::from_utf8(word).ok());
    let (its, version, len) = (words.next()??, words.next()??, words.next()??);
    let version = version.parse().ok()?;
    (its == key && self::value(key, version, len.parse().ok()?) == value).then_some(version)
}

/// What is known to be over: each holds for values of lower versions.
struct Past {
    next: AtomicU64,
    keys: Vec<AtomicU64>,
    all: AtomicU64,
    prefix: AtomicU64,
    /// Held while something is written, and alone while something is flushed.
    writes: RwLock<()>,
    over: AtomicBool,
}

fn key_of(n: usize) -> String {
    if n.is_multiple_of(4) { format!("p:key-{n}") } else { format!("key-{n}") }
}

/// Sets, deletes, counts and touches its own keys, one after the other.
fn write(past: &Past, server: SocketAddr, writer: usize) {
    let mut tcp = Tcp::connect(server);
    let mut turn = writer as u64;
    while !past.over.load(Ordering::Relaxed) {
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(97);
        let dice = turn >> 33;
        // A few keys are written most, so that they are read while they are.
        let n = writer * KEYS
            + if dice & 3 == 0 { (dice >> 20) as usize % KEYS } else { (dice >> 20) as usize % 4 };
        let key = key_of(n);
        let _held = past.writes.read().unwrap();
        let version = past.next.fetch_add(1, Ordering::SeqCst);
        match (dice >> 4) % 16 {
            0 => {
                tcp.send(format!("md {key}\r\n"));
                tcp.until("\r\n");
            }
            1 => {
                // It stays the value that it is.
                tcp.send(format!("touch {key} 1000\r\n"));
                tcp.until("\r\n");
                continue;
            }
            how => {
                // The sizes change over time, and with them the classes.
                let epoch = version / 2_000 % 3;
                let len = 60
                    + (dice as usize >> 8)
                        % if how < 8 { 100 } else { [100_000, 20_000, 50_000][epoch as usize] };
                tcp.set(&key, &value(&key, version, len));
            }
        }
        past.keys[n].fetch_max(version, Ordering::SeqCst);
    }
}

/// Flushes all, or a prefix, and moves pages, now and then.
fn flush(past: &Past, server: SocketAddr) {
    let mut tcp = Tcp::connect(server);
    for turn in 0.. {
        if past.over.load(Ordering::Relaxed) {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
        for class in [5, 28, 35] {
            tcp.send(format!("slabs reassign -1 {class}\r\n"));
            tcp.until("\r\n");
        }
        let (word, which) = match turn % 20 {
            9 => ("flush_prefix p\r\n", &past.prefix),
            19 => ("flush_all\r\n", &past.all),
            _ => continue,
        };
        let _alone = past.writes.write().unwrap();
        let version = past.next.fetch_add(1, Ordering::SeqCst);
        tcp.expect(word, "OK\r\n");
        which.store(version, Ordering::SeqCst);
    }
}

/// Reads any key, and compares what it gets with what it knew before.
fn look(past: &Past, mut c: Client, reader: usize) -> gnomon_client::shared_client::Counts {
    let mut seen = vec![0; past.keys.len()];
    let mut turn = reader as u64 + 1000;
    while !past.over.load(Ordering::Relaxed) {
        turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(97);
        let dice = turn >> 33;
        let n = (dice >> 3) as usize % 2 * KEYS
            + if dice & 3 == 0 { (dice >> 20) as usize % KEYS } else { (dice >> 20) as usize % 4 };
        let key = key_of(n);
        let mut before = past.keys[n].load(Ordering::SeqCst).max(past.all.load(Ordering::SeqCst));
        if key.starts_with("p:") {
            before = before.max(past.prefix.load(Ordering::SeqCst));
        }
        // Several times, as most clients read more than they write.
        for _ in 0..8 {
            let reads = c.counts().reads;
            let Some(got) = c.get(key.as_bytes()).unwrap() else { break };
            let Some(now) = version(&key, got.value) else {
                let start = got.value.get(..60).unwrap_or(got.value);
                panic!("{key}: torn: {}", start.escape_ascii())
            };
            let how = if c.counts().reads > reads { "read" } else { "asked" };
            let least = before.max(seen[n]);
            assert!(now >= least, "{key}, {how}: {now} after {before} and {}", seen[n]);
            seen[n] = now;
        }
    }
    c.counts()
}

#[test]
fn no_value_is_torn_or_older_than_what_was_known() {
    let seconds = std::env::var("SHARED_READS_SECONDS").map_or(6, |s| s.parse().unwrap());
    let file = MemoryFile::new("storm");
    let server = file.serve(&["--shared-reads", "-o", "slab_automove=2"]);
    let numbers = || AtomicU64::new(0);
    let past = Past {
        next: AtomicU64::new(1),
        keys: (0..2 * KEYS).map(|_| numbers()).collect(),
        all: numbers(),
        prefix: numbers(),
        writes: RwLock::default(),
        over: AtomicBool::new(false),
    };
    let (past, address) = (&past, server.tcp());
    /// Ends the others, whatever becomes of its thread.
    struct Ends<'a>(&'a AtomicBool);
    impl Drop for Ends<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    let counts = std::thread::scope(|scope| {
        let ends = Ends(&past.over);
        let ending = |work: Box<dyn FnOnce() + Send>| {
            move || {
                let _ends = Ends(&past.over);
                work();
            }
        };
        for writer in 0..2 {
            scope.spawn(ending(Box::new(move || write(past, address, writer))));
        }
        scope.spawn(ending(Box::new(move || flush(past, address))));
        let readers: Vec<_> = (0..2)
            .map(|reader| {
                let c = client(&server, &file);
                scope.spawn(move || {
                    let _ends = Ends(&past.over);
                    look(past, c, reader)
                })
            })
            .collect();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(seconds) && !past.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(20));
        }
        drop(ends);
        readers.into_iter().map(|reader| reader.join().unwrap()).collect::<Vec<_>>()
    });
    let mut tcp = Tcp::connect(server.tcp());
    let stats = tcp.until_end("stats\r\n") + &tcp.until_end("stats slabs\r\n");
    let stat = |name: &str| -> u64 {
        let line = stats.lines().find_map(|line| line.strip_prefix(&format!("STAT {name} ")));
        line.unwrap_or_else(|| panic!("{name}: {stats}")).parse().unwrap()
    };
    println!("{counts:?} evictions {} moved {}", stat("evictions"), stat("slabs_moved"));
    for c in counts {
        assert!(c.reads > c.asked, "{c:?}");
        assert!(c.gone > 0 && c.flushed > 0, "{c:?}");
    }
    assert!(stat("slabs_moved") > 0 && stat("cmd_set") > 1000);
}
