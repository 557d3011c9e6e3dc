//! `gnomon capture` of a live server: what is in the file, how it ends, and whom it cannot hold.

use crate::client::{Tcp, Udp};
use crate::server::{SOON, Server, Tree, gnomon, run, text};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use wire::verify::{verify_ip4_header, verify_udp};

/// Bytes of the headers before a datagram, in frames made for IPv4.
const HEADERS: usize = 42;

/// A frame in a file: which way it went, what is said about it, its UDP payload.
type Packet = (u32, Option<String>, Vec<u8>);

#[derive(Debug, Default)]
struct Captured {
    packets: Vec<Packet>,
    times: Vec<Duration>,
    received: u64,
    wanted: u64,
    lost: u64,
    written: u64,
}

fn read(bytes: &[u8]) -> Captured {
    let mut all = Captured::default();
    let mut reader = PcapNgReader::new(bytes).unwrap();
    while let Some(block) = reader.next_block() {
        match block.unwrap() {
            Block::EnhancedPacket(packet) => {
                let (mut direction, mut comment) = (0, None);
                for option in packet.options {
                    match option {
                        EnhancedPacketOption::Flags(flags) => direction = flags,
                        EnhancedPacketOption::Comment(text) => comment = Some(text.into_owned()),
                        other => panic!("{other:?}"),
                    }
                }
                // What the kernel verified, and what it fills in, is filled in.
                if packet.data.len() == packet.original_len as usize {
                    let udp_sum = packet.data.get(40..42);
                    assert!(udp_sum != Some(&[0, 0]) && verify_udp(&packet.data, 14, 34, false));
                    assert!(verify_ip4_header(&packet.data, 14));
                }
                let payload = packet.data.get(HEADERS..).unwrap_or_default().to_vec();
                all.packets.push((direction, comment, payload));
                all.times.push(packet.timestamp);
            }
            Block::InterfaceStatistics(statistics) => {
                for option in statistics.options {
                    match option {
                        InterfaceStatisticsOption::IsbIfRecv(n) => all.received += n,
                        InterfaceStatisticsOption::IsbFilterAccept(n) => all.wanted += n,
                        InterfaceStatisticsOption::IsbIfDrop(n) => all.lost += n,
                        InterfaceStatisticsOption::IsbUsrDeliv(n) => all.written += n,
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    all
}

/// A `gnomon capture` that has begun.
struct Capturing {
    child: Child,
    stderr: BufReader<std::process::ChildStderr>,
    file: String,
}

impl Capturing {
    fn begin(tree: &Tree, args: &[&str]) -> Self {
        let file = tree.path("capture.pcapng");
        let mut child = gnomon()
            .args(["capture", "--socket", &tree.path("metrics.sock"), "--write", &file])
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stderr = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        stderr.read_line(&mut line).unwrap();
        assert!(line.starts_with("gnomon: capturing"), "{line}");
        Self { child, stderr, file }
    }

    fn interrupt(&self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGINT).unwrap();
    }

    /// Its exit status, what it said last, and the file.
    fn end(mut self) -> (ExitStatus, String, Captured) {
        let deadline = Instant::now() + SOON;
        while self.child.try_wait().unwrap().is_none() {
            assert!(Instant::now() < deadline, "the capture does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
        let mut said = String::new();
        self.stderr.read_to_string(&mut said).unwrap();
        let captured = read(&std::fs::read(&self.file).unwrap());
        (self.child.wait().unwrap(), said, captured)
    }
}

impl Drop for Capturing {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(name: &str, args: &[&str]) -> (Tree, Server) {
    let tree = Tree::empty(name);
    let at = format!("unix:{}", tree.path("metrics.sock"));
    let server = Server::start(&[&["-m", "8", "--cores", "0", "--metrics", &at], args].concat());
    (tree, server)
}

fn datagram(id: u16, text: &str) -> Vec<u8> {
    let [a, b] = id.to_be_bytes();
    [&[a, b, 0, 0, 0, 1, 0, 0], text.as_bytes()].concat()
}

fn asked(id: u16, text: &str) -> Packet {
    (1, None, datagram(id, text))
}

fn answered(id: u16, text: &str) -> Packet {
    (2, None, datagram(id, text))
}

#[test]
fn what_clients_sent_and_got_is_in_the_file() {
    let (tree, server) = start("capture", &[]);
    Tcp::connect(server.tcp()).set("user:1", b"x");
    let udp = Udp::to(server.udp());
    let begun = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let all = Capturing::begin(&tree, &[]);
    let mut expected = Vec::new();
    for id in 0..100 {
        let (request, reply) = match id % 2 {
            0 => ("get user:1\r\n", "VALUE user:1 0 1\r\nx\r\nEND\r\n"),
            _ => ("get none\r\n", "END\r\n"),
        };
        udp.expect(id, request, reply);
        expected.extend([asked(id, request), answered(id, reply)]);
    }
    all.interrupt();
    let (status, said, captured) = all.end();
    assert!(status.success(), "{said}");
    assert!(said.contains("200 frames captured, 0 lost"), "{said}");
    assert!(captured.packets == expected, "{:?}", captured.packets);
    let counts = (captured.received, captured.wanted, captured.lost, captured.written);
    assert_eq!(counts, (100, 200, 0, 200));
    let ended = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    assert!(captured.times.is_sorted());
    assert!(captured.times[0] >= begun && *captured.times.last().unwrap() <= ended);

    // Only one key, no more than three frames.
    let some =
        Capturing::begin(&tree, &["--key", "user:*", "--count", "3", "--source", "127.0.0.0/8"]);
    for id in 0..4 {
        udp.expect(id, "get none\r\n", "END\r\n");
        udp.expect(id, "get user:1\r\n", "VALUE user:1 0 1\r\nx\r\nEND\r\n");
    }
    let (status, said, captured) = some.end();
    assert!(status.success() && said.contains("3 frames captured"), "{said}");
    let (request, reply) = ("get user:1\r\n", "VALUE user:1 0 1\r\nx\r\nEND\r\n");
    assert_eq!(captured.packets, [asked(0, request), answered(0, reply), asked(1, request)]);
    let report = server.stop();
    assert_eq!(report["answered"], 108);
}

#[test]
fn drops_tell_their_reasons_and_ends_are_kept() {
    let (tree, server) = start("capture-drops", &["--allow", "10.0.0.0/8"]);
    let udp = Udp::to(server.udp());
    let drops = Capturing::begin(&tree, &["--drops", "--count", "5"]);
    for id in 0..5 {
        udp.send(id, "get k\r\n");
    }
    let (status, said, captured) = drops.end();
    assert!(status.success(), "{said}");
    let comment = "dropped: source_not_allowed: The source is outside every --allow network.";
    let expected: Vec<Packet> =
        (0..5).map(|id| (1, Some(comment.to_owned()), datagram(id, "get k\r\n"))).collect();
    assert_eq!(captured.packets, expected);
    // For another reason there are none, and whoever stops the server gets a whole file.
    let none = Capturing::begin(&tree, &["--drops", "udp_checksum"]);
    udp.send(9, "get k\r\n");
    while text(&run(&["stats", "--socket", &tree.path("metrics.sock")]).stdout)
        .lines()
        .any(|l| l.contains("source_not_allowed\"} 5"))
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.stop();
    let (status, said, captured) = none.end();
    assert!(status.success(), "{said}");
    assert_eq!((captured.packets.len(), captured.received), (0, 1));
}

#[test]
fn a_second_capture_is_refused_until_the_first_has_gone() {
    let (tree, server) = start("capture-two", &[]);
    let path = tree.path("metrics.sock");
    let first = Capturing::begin(&tree, &[]);
    let before = tree.path("before.pcapng");
    std::fs::write(&before, "one of before").unwrap();
    let second = run(&["capture", "--socket", &path, "--count", "1", "--write", &before]);
    let said = text(&second.stderr);
    assert_eq!(second.status.code(), Some(1));
    assert_eq!(std::fs::read_to_string(&before).unwrap(), "one of before");
    assert!(said.contains("refuses: another capture is running"), "{said}");
    // Killed, as by an operator without patience.
    drop(first);
    let deadline = Instant::now() + SOON;
    loop {
        let out = run(&["capture", "--socket", &path, "--seconds", "1", "--write", "-"]);
        if out.status.success() {
            assert!(read(&out.stdout).packets.is_empty());
            break;
        }
        assert!(Instant::now() < deadline, "{}", text(&out.stderr));
    }
    for (args, part) in [
        (&["--drops", "rain"][..], "no such reason; there are eth_truncated, "),
        (&["--key", ""], "a pattern of keys has 1 to 250 bytes"),
        (&["--source", "10.0.0.1/8"], "is not the beginning of a network"),
        (&["--write", "/nowhere/file"], "cannot write /nowhere/file"),
        (&["--server", "127.0.0.1:1"], "is gnomon running there"),
    ] {
        let at = if args[0] == "--server" { &[][..] } else { &["--socket", path.as_str()] };
        let out = run(&[&["capture"], at, args].concat());
        assert!(!out.status.success());
        assert!(text(&out.stderr).contains(part), "{args:?}: {}", text(&out.stderr));
    }
    server.stop();
}

#[test]
fn nobody_captures_over_tcp() {
    let server = Server::start(&["-m", "8", "--metrics", "127.0.0.1:0"]);
    let at = server.ready["metrics"].as_str().unwrap();
    let out = run(&["capture", "--server", at]);
    let said = text(&out.stderr);
    assert_eq!(out.status.code(), Some(1));
    assert!(said.contains("refuses: frames are captured only over a Unix socket"), "{said}");
    server.stop();
}

#[test]
fn a_reader_that_stands_still_loses_frames_and_holds_nobody() {
    let (tree, server) = start("capture-stall", &[]);
    Tcp::connect(server.tcp()).set("k", &[b'v'; 1000]);
    let mut stalled = UnixStream::connect(tree.path("metrics.sock")).unwrap();
    stalled.set_read_timeout(Some(SOON)).unwrap();
    stalled.write_all(b"GET /capture HTTP/1.0\r\n\r\n").unwrap();
    let mut head = [0; 15];
    stalled.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200 OK");
    // More than the socket and the ring hold, and every answer comes.
    let udp = Udp::to(server.udp());
    for id in 0..8000 {
        udp.send(id, "get k\r\n");
        assert_eq!(udp.receive(SOON).map(|reply| reply.len()), Some(8 + 16 + 1000 + 7));
    }
    // It wakes up, says that it has enough, and learns what it lost.
    stalled.shutdown(std::net::Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    stalled.read_to_end(&mut rest).unwrap();
    let body = rest.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let captured = read(&rest[body..]);
    assert_eq!((captured.received, captured.wanted), (8000, 16_000));
    assert!(captured.lost > 0);
    assert_eq!(captured.lost + captured.written, 16_000);
    assert_eq!(captured.packets.len() as u64, captured.written);
    assert_eq!(server.stop()["answered"], 8000);
}

/// What a program prints about the file, or `None` where it is not installed.
fn told(program: &str, args: &[&str], file: &str) -> Option<String> {
    let out = Command::new(program).args(args).arg(file).output().ok()?;
    assert!(out.status.success(), "{}", text(&out.stderr));
    Some(text(&out.stdout))
}

#[test]
fn wireshark_reads_it() {
    let (tree, server) = start("capture-tshark", &[]);
    let udp = Udp::to(server.udp());
    let all = Capturing::begin(&tree, &["--snaplen", "60"]);
    for id in 0..10 {
        udp.expect(id, "get none\r\n", "END\r\n");
    }
    all.interrupt();
    let file = all.file.clone();
    let (status, said, _) = all.end();
    assert!(status.success(), "{said}");
    server.stop();
    let fields = ["-T", "fields", "-e", "frame.packet_flags_direction", "-e", "udp.length"];
    let fields = [&fields[..], &["-e", "frame.cap_len", "-r"]].concat();
    let (Some(table), Some(infos)) = (told("tshark", &fields, &file), told("capinfos", &[], &file))
    else {
        eprintln!("skipped: there is no tshark or no capinfos");
        return;
    };
    // 8 and 8 bytes of headers, and the text.
    let pair = "0x00000001\t26\t60\n0x00000002\t21\t55\n";
    assert_eq!(table, pair.repeat(10));
    for part in ["pcapng", "Number of packets:   20", "gnomon", " queue 0", "nanoseconds"] {
        assert!(infos.contains(part), "{part} is not in {infos}");
    }
}
