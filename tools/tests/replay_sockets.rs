//! The player over kernel sockets: against a server that lies in known ways, and against
//! memcached itself.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

mod common;
use common::*;
use gnomon_client::codec::Protocol;
use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tools::replay::sockets::Sockets;
use tools::replay::{Pace, Plan, PlayError, Report, Source, play};
use tools::trace::{Envelope, Reader};

/// What the server does with its `n`th request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    Drop,
    Twice,
    /// Answer after the next one.
    Hold,
    WrongByte,
    WrongKey,
    Refuse,
    Unasked,
    Runt,
    PiecesBackwards,
    PieceMissing,
    PieceTwice,
}

struct Server {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(
        mut store: Store,
        piece: usize,
        fault: impl Fn(u64) -> Fault + Send + 'static,
    ) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        let address = socket.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let mut into = [0; 2048];
            let mut n = 0;
            let mut held: Option<(Vec<Vec<u8>>, SocketAddr)> = None;
            while !stopped.load(Ordering::Relaxed) {
                let Ok((len, from)) = socket.recv_from(&mut into) else { continue };
                let request = &into[..len];
                let id = [request[0], request[1]];
                let text = store.answer(&request[8..]);
                let mut reply = datagrams(id, &text, piece);
                let fault = fault(n);
                n += 1;
                match fault {
                    Fault::None => {}
                    Fault::Drop => reply.clear(),
                    Fault::Twice => reply.extend(reply.clone()),
                    Fault::Hold => {
                        held = Some((reply, from));
                        continue;
                    }
                    Fault::WrongByte => {
                        let last = text.len() - b"\r\nEND\r\n".len() - 1;
                        let mut text = text;
                        text[last] ^= 1;
                        reply = datagrams(id, &text, piece);
                    }
                    Fault::WrongKey => {
                        let mut text = text;
                        text["VALUE ".len()] ^= 1;
                        reply = datagrams(id, &text, piece);
                    }
                    Fault::Refuse => reply = datagrams(id, b"SERVER_ERROR out of order\r\n", piece),
                    Fault::Unasked => {
                        // An id that is far from coming up.
                        let far = [id[0] ^ 0x80, id[1]];
                        reply.extend(datagrams(far, &text, piece));
                    }
                    Fault::Runt => reply.push(vec![id[0], id[1], 0]),
                    Fault::PiecesBackwards => reply.reverse(),
                    Fault::PieceMissing => drop(reply.remove(1)),
                    Fault::PieceTwice => reply.insert(1, reply[0].clone()),
                }
                for d in reply {
                    socket.send_to(&d, from).unwrap();
                }
                for (late, to) in held.take().iter() {
                    for d in late {
                        socket.send_to(d, to).unwrap();
                    }
                }
            }
        });
        Self { address, stop, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(t) = self.thread.take() {
            t.join().unwrap();
        }
    }
}

/// One socket, so that the server sees requests in the order of the capture.
fn run(path: &Path, to: SocketAddr, plan: &Plan) -> Report {
    let mut link = Sockets::connect(to, 1).unwrap();
    play(&mut Reader::open(path).unwrap(), &mut link, plan, |_| ()).unwrap()
}

fn patient() -> Plan {
    Plan { outstanding: 64, timeout: Duration::from_secs(2), expect_hits: true, ..Plan::default() }
}

#[test]
fn every_injected_fault_is_reported_and_nothing_else() {
    use Fault::*;
    let dir = tempfile::tempdir().unwrap();
    let mut t = trace();
    t.requests = 640;
    t.workload.mix.value_size = "300".parse().unwrap();
    let (sets, _) = write(dir.path(), "sets.pcap", &preload(&t));
    let (gets, _) = write(dir.path(), "gets.pcap", &t);
    let mut store = Store::default();
    store.load(&sets);
    // Each once in 16 requests, 40 times in all; the one after a held reply is a good one.
    let cycle = [
        None,
        Drop,
        None,
        Twice,
        None,
        Hold,
        None,
        WrongByte,
        WrongKey,
        Refuse,
        Unasked,
        Runt,
        PiecesBackwards,
        PieceMissing,
        PieceTwice,
        None,
    ];
    let server = Server::start(store, 100, move |n| cycle[usize::try_from(n).unwrap() % 16]);
    let r = run(&gets, server.address, &patient());
    assert_eq!((r.sent, r.gets, r.sets, r.others, r.skipped), (640, 640, 0, 0, 0));
    assert_eq!(r.lost, 2 * 40, "dropped, and a piece missing");
    let wrong: Vec<_> = tools::replay::verify::Wrong::ALL
        .iter()
        .zip(r.wrong)
        .filter(|(_, n)| *n > 0)
        .map(|(w, n)| (w.name(), n))
        .collect();
    assert_eq!(wrong, [("refused", 40), ("key", 40), ("value", 40)]);
    assert_eq!(r.answered, 640 - 80 - 120);
    // A value of 300 bytes comes in 4 datagrams; the whole reply twice is 4 duplicates.
    assert_eq!(r.duplicates, 40 * 4 + 40);
    assert_eq!(r.reordered, 40);
    assert_eq!(r.pieces_reordered, 40);
    assert_eq!(r.in_pieces, 640 - 80 - 40, "all but the lost and the refused");
    assert_eq!(r.unexpected, 40 * 4);
    assert_eq!(r.bad_datagrams, 40);
    assert_eq!((r.late, r.refusals, r.pieces_dropped), (0, 0, 0));
    assert_eq!((r.keys_asked, r.misses()), (r.answered, 0));
    assert_eq!(r.latency_ns.len(), 640 - 80);
}

/// Frames in memory.
struct Captured(Vec<Vec<u8>>, usize);

impl Source for Captured {
    fn next_frame(&mut self) -> Result<Option<(u64, &[u8])>, PlayError> {
        self.1 += 1;
        Ok(self.0.get(self.1 - 1).map(|frame| (0, &frame[..])))
    }

    fn rewind(&mut self) -> Result<(), PlayError> {
        self.1 = 0;
        Ok(())
    }
}

/// Both directions, and keys that are not ours.
#[test]
fn of_a_capture_of_real_clients_the_requests_are_played_and_counted() {
    let there = trace().envelope;
    let client: SocketAddr = "10.0.0.1:20000".parse().unwrap();
    let back = Envelope { server: client, src_mac: there.dst_mac, dst_mac: there.src_mac, ..there };
    let frame = |requests: bool, id: u8, text: &[u8]| {
        let payload = [&[0, id, 0, 0, 0, 1, 0, 0], text].concat();
        let frame = match requests {
            true => there.frame(client, &payload),
            false => back.frame(there.server, &payload),
        };
        frame.to_vec().unwrap()
    };
    let frames = vec![
        frame(true, 1, b"set user:1 5 0 3\r\nabc\r\n"),
        frame(false, 1, b"STORED\r\n"),
        frame(true, 2, b"get user:1 user:2\r\n"),
        frame(false, 2, b"VALUE user:1 5 3\r\nabc\r\nEND\r\n"),
    ];
    let server = Server::start(Store::default(), 1392, |_| Fault::None);
    let mut link = Sockets::connect(server.address, 1).unwrap();
    let plan = Plan { outstanding: 1, loops: 3, expect_hits: false, ..patient() };
    let r = play(&mut Captured(frames, 0), &mut link, &plan, |_| ()).unwrap();
    assert_eq!((r.sent, r.gets, r.sets, r.others, r.skipped), (6, 3, 3, 0, 6));
    assert_eq!((r.answered, r.lost, r.wrong_total()), (6, 0, 0));
    assert_eq!((r.keys_asked, r.hits, r.unchecked), (6, 3, 3));
}

#[test]
fn multi_gets_in_pieces_and_misses() {
    let dir = tempfile::tempdir().unwrap();
    let mut t = trace();
    t.workload.mix.multi_get = 20;
    let (gets, _) = write(dir.path(), "gets.pcap", &t);
    // Half the keys are there.
    let mut half = preload(&t);
    half.workload.keys = 100;
    let (sets, _) = write(dir.path(), "sets.pcap", &half);
    let mut store = Store::default();
    store.load(&sets);
    let server =
        Server::start(
            store,
            1392,
            |n| {
                if n % 2 == 0 { Fault::None } else { Fault::PiecesBackwards }
            },
        );
    let r = run(&gets, server.address, &Plan { expect_hits: false, ..patient() });
    assert_eq!((r.answered, r.lost, r.wrong_total()), (2_000, 0, 0));
    assert_eq!(r.keys_asked, 40_000);
    assert!(r.hits > 20_000 && r.misses() > 1_000, "{} of 40000", r.hits);
    assert!(r.in_pieces > 1_000 && r.pieces_reordered > 500);

    let strict = run(&gets, server.address, &patient());
    assert!(strict.wrong[tools::replay::verify::Wrong::Miss as usize] > 0);
}

#[test]
fn a_lossy_preload_is_repeated_until_all_is_stored() {
    let dir = tempfile::tempdir().unwrap();
    let t = trace();
    let (sets, _) = write(dir.path(), "sets.pcap", &preload(&t));
    let (gets, _) = write(dir.path(), "gets.pcap", &t);
    let server = Server::start(Store::default(), 1392, |n| {
        if n < 200 && n % 10 == 0 { Fault::Drop } else { Fault::None }
    });
    let json = dir.path().join("report.json");
    let out = Command::new(env!("CARGO_BIN_EXE_gnomon-replay"))
        .arg(&gets)
        .args(["--target", &server.address.to_string(), "--sockets", "3", "--expect-hits"])
        .args(["--timeout-ms", "2000", "--outstanding", "64", "--max-lost", "0"])
        .arg("--preload")
        .arg(&sets)
        .arg("--json")
        .arg(&json)
        .output()
        .unwrap();
    let text = String::from_utf8(out.stdout).unwrap();
    assert_eq!(out.status.code(), Some(0), "{text}");
    let report: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!(report["preload"]["stored"], 200);
    assert!(report["preload"]["retries"].as_u64().unwrap() >= 20);
    assert_eq!((&report["answered"], &report["hits"]), (&2_000.into(), &2_000.into()));
    assert!(text.contains("latency us"), "{text}");
}

#[test]
fn rate_limit_and_loops() {
    let dir = tempfile::tempdir().unwrap();
    let t = trace();
    let (gets, _) = write(dir.path(), "gets.pcapng", &t);
    let server = Server::start(Store::default(), 1392, |_| Fault::None);
    let base = Plan { expect_hits: false, ..patient() };
    let r = run(&gets, server.address, &Plan { loops: 3, limit: Some(5_000), ..base.clone() });
    assert_eq!((r.sent, r.answered, r.misses()), (5_000, 5_000, 5_000));
    let begun = Instant::now();
    let r =
        run(&gets, server.address, &Plan { pace: Pace::Rate(4_000.0), limit: Some(1_000), ..base });
    assert_eq!(r.answered, 1_000);
    assert!(begun.elapsed() >= Duration::from_micros(249_750), "sent too fast");
}

#[test]
fn nobody_listens() {
    let dir = tempfile::tempdir().unwrap();
    let (gets, _) = write(dir.path(), "gets.pcap", &trace());
    // A port that was free a moment ago.
    let to = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let plan = Plan { limit: Some(20), timeout: Duration::from_millis(50), ..patient() };
    let r = run(&gets, to, &plan);
    assert_eq!((r.sent, r.lost, r.answered), (20, 20, 0));
    assert!(r.refusals > 0);
}

#[test]
fn exit_status_and_messages() {
    let dir = tempfile::tempdir().unwrap();
    let t = Trace100::write(dir.path());
    let lying = Server::start(Store::default(), 1392, |_| Fault::Refuse);
    let silent = Server::start(Store::default(), 1392, |_| Fault::Drop);
    let good = Server::start(Store::default(), 1392, |_| Fault::None);
    let text = dir.path().join("text.pcap");
    std::fs::write(&text, "this is no capture").unwrap();
    // As a NIC fills them in: 24 bytes of file, 16 of record, 14 of Ethernet, and 10 of IPv4 before the checksum.
    let unsummed = dir.path().join("unsummed.pcap");
    let mut frames = std::fs::read(&t).unwrap();
    let (mut at, mut n) = (24, 0);
    while let Some(len) =
        frames.get(at + 8..at + 12).map(|l| u32::from_le_bytes(l.try_into().unwrap()))
    {
        frames[at + 16 + 14 + 10] ^= 0xff;
        (at, n) = (at + 16 + len as usize, n + 1);
    }
    std::fs::write(&unsummed, frames).unwrap();
    let (unsummed, all) = (unsummed.to_str().unwrap(), format!(" was sent: {n} frames"));
    let [lying_to, silent_to, good_to] = [&lying, &silent, &good].map(|s| s.address.to_string());
    let t = t.to_str().unwrap();
    let fast = ["--timeout-ms", "100"];
    for (args, code, message) in [
        (vec![t, "--target", &good_to], 0, ""),
        (vec![t, "--target", &lying_to], 3, ""),
        (vec![t, "--target", &good_to, "--expect-hits"], 3, ""),
        ([&[t, "--target", &silent_to, "--max-lost", "0.5"][..], &fast].concat(), 3, ""),
        ([&[t, "--target", &silent_to][..], &fast].concat(), 3, ""),
        ([&[t, "--target", &silent_to, "--max-lost", "1"][..], &fast].concat(), 0, ""),
        // The first 64 sets: no more are sent.
        (
            vec!["--workload", "ycsb-c", "--target", &silent_to, "--fill"],
            1,
            "preload: 0 of 64 sets were stored (64 without an answer); is a server listening",
        ),
        (vec![unsummed, "--target", &good_to], 1, &all),
        (vec![t, "--target", &good_to, "--preload", unsummed], 1, &all),
        (vec!["/no/such.pcap", "--target", &good_to], 1, "check the name"),
        (vec![text.to_str().unwrap(), "--target", &good_to], 1, "neither a pcap nor"),
        (vec![t, "--target", &good_to, "--preload", "/no/such"], 1, "check the name"),
        (
            vec!["--workload", "ycsb-c", "--target", &good_to, "--as-captured"],
            1,
            "give FILE or --trace",
        ),
        (vec!["--workload", "ycsb-c", "--target", &good_to, "--timing", "poisson"], 1, "--rate"),
        (vec!["--trace", "-", "--target", &good_to, "--loop", "2"], 1, "standard input again"),
        (vec![t], 2, "required"),
        (vec![t, "--target", "localhost"], 2, "socket address"),
        (vec![t, "--target", &good_to, "--rate", "0"], 2, "above 0"),
        (vec![t, "--target", &good_to, "--max-lost", "2"], 2, "between 0 and 1"),
    ] {
        let out = Command::new(env!("CARGO_BIN_EXE_gnomon-replay")).args(&args).output().unwrap();
        let err = String::from_utf8(out.stderr).unwrap();
        assert_eq!(out.status.code(), Some(code), "{args:?}: {err}");
        assert!(err.contains(message), "{args:?}: {err}");
    }
}

struct Trace100;
impl Trace100 {
    fn write(dir: &Path) -> std::path::PathBuf {
        let mut t = trace();
        t.requests = 100;
        write(dir, "t.pcap", &t).0
    }
}

/// Debian's memcached on loopback, UDP alone. Killed, by its id, when dropped.
struct Memcached {
    child: Child,
    address: SocketAddr,
}

impl Memcached {
    fn start() -> Option<Self> {
        let free = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let child = Command::new("memcached")
            .args(["-u", "nobody", "-l", "127.0.0.1", "-p", "0", "-t", "1"])
            .args(["-U", &address.port().to_string()])
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let server = Self { child, address };
        let probe = UdpSocket::bind("127.0.0.1:0").unwrap();
        probe.connect(address).unwrap();
        probe.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let begun = Instant::now();
        loop {
            let _ = probe.send(b"\0\0\0\0\0\x01\0\0version\r\n");
            if probe.recv(&mut [0; 64]).is_ok() {
                return Some(server);
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "memcached does not answer");
        }
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn genuine_memcached_answers_rightly() {
    let Some(server) = Memcached::start() else {
        eprintln!("skipped: memcached is not installed");
        return;
    };
    for protocol in [Protocol::Ascii, Protocol::Meta, Protocol::Binary] {
        let dir = tempfile::tempdir().unwrap();
        let mut t = trace();
        t.protocol = protocol;
        t.requests = 5_000;
        t.workload.mix.get_ratio = 0.9;
        t.workload.mix.key_size = "4..100".parse().unwrap();
        // The largest come back in two datagrams.
        t.workload.mix.value_size = "1..1300".parse().unwrap();
        let (sets, _) = write(dir.path(), "sets.pcap", &preload(&t));
        let (gets, summary) = write(dir.path(), "gets.pcap", &t);
        let calm = Plan { outstanding: 16, retries: 5, ..patient() };
        assert_eq!(run(&sets, server.address, &calm).answered, 200);
        let r = run(&gets, server.address, &Plan { outstanding: 16, ..patient() });
        assert_eq!((r.gets, r.sets), (summary.gets, summary.sets));
        assert_eq!((r.answered, r.wrong_total(), r.lost), (5_000, 0, 0), "{protocol:?}\n{r}");
        assert_eq!((r.hits, r.misses()), (summary.gets, 0));
        assert!(r.in_pieces > 0, "some replies take two datagrams");
    }
}

#[test]
fn what_cannot_be_written_in_the_end_is_said_before_anything_is_sent() {
    let server = Server::start(Store::default(), 1392, |_| Fault::None);
    for flag in ["--json", "--plots"] {
        let out = Command::new(env!("CARGO_BIN_EXE_gnomon-replay"))
            .args(["--target", &server.address.to_string(), "--workload", "ycsb-c"])
            .args([flag, "/proc/none/of/these"])
            .output()
            .unwrap();
        let text = String::from_utf8([out.stdout, out.stderr].concat()).unwrap();
        assert!(text.contains("cannot write /proc/none/of/these"), "{flag}: {text}");
        assert!(!text.contains("seed") && !text.contains("sent"), "{flag}: {text}");
        assert_eq!(out.status.code(), Some(1), "{flag}: {text}");
    }
}

#[test]
fn made_up_traffic_is_played_timed_and_drawn() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(Store::default(), 1392, |_| Fault::None);
    let json = dir.path().join("report.json");
    let plots = dir.path().join("plots");
    let replay = |args: &str| {
        let out = Command::new(env!("CARGO_BIN_EXE_gnomon-replay"))
            .args(["--target", &server.address.to_string(), "--max-lost", "0"])
            .args(["--timeout-ms", "20000", "--outstanding", "64", "--json"])
            .arg(&json)
            .arg("--plots")
            .arg(&plots)
            .args(args.split(' '))
            .output()
            .unwrap();
        let text = [out.stdout, out.stderr].concat();
        (out.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = replay(
        "--workload ycsb-f --keys 300 --fill --requests 1200 --rate 20000 --timing poisson \
         --protocol binary --expect-hits --seed 5",
    );
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("seed 5") && text.contains("sent late"), "{text}");
    let r: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&r["preload"]["stored"], &r["answered"]), (&300.into(), &1_200.into()));
    assert_eq!(r["late_us"]["count"], 1_200);
    let over_time = &r["over_time"];
    let sum = |what: &str| -> u64 {
        over_time[what].as_array().unwrap().iter().map(|n| n.as_u64().unwrap()).sum()
    };
    assert_eq!((sum("sent"), sum("answered"), sum("lost")), (1_200, 1_200, 0));
    for name in ["rate.svg", "latency.svg"] {
        let svg = std::fs::read_to_string(plots.join(name)).unwrap();
        assert_eq!(svg.matches("<polyline").count(), 3, "{name}");
    }

    // A trace of a cache, at ten thousand times its speed.
    let csv = dir.path().join("t.csv");
    std::fs::write(&csv, "0,a,12,9,1,set,0\n1,a,12,9,1,get,0\nno row\n90,a,12,9,1,get,0\n")
        .unwrap();
    let csv = csv.to_str().unwrap();
    let line = format!("--trace {csv} --as-captured --speed 10000 --protocol meta");
    let (code, text) = replay(&line);
    assert_eq!(code, Some(0), "{text}");
    let r: serde_json::Value = serde_json::from_slice(&std::fs::read(&json).unwrap()).unwrap();
    assert_eq!((&r["sets"], &r["gets"], &r["hits"]), (&1.into(), &2.into(), &2.into()));
    assert_eq!(r["rows_skipped"], 1);
    assert!(r["seconds"].as_f64().unwrap() >= 0.008, "sent too fast");
}
