//! What is in a capture, as independent readers see it.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

mod common;
use common::*;
use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use gnomon_client::codec::Asked;
use gnomon_client::codec::Protocol;
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::Command;
use tools::trace::{Reader, Request, Timing, Trace};

/// Reads a frame with etherparse and checks each length and checksum.
fn dissect(frame: &[u8]) -> (SocketAddr, SocketAddr, Vec<u8>) {
    let p = SlicedPacket::from_ethernet(frame).unwrap();
    let Some(TransportSlice::Udp(udp)) = p.transport else { panic!("not UDP") };
    let h = udp.to_header();
    assert_ne!(h.checksum, 0);
    let (src, dst): (IpAddr, IpAddr) = match p.net.unwrap() {
        NetSlice::Ipv4(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(ip.header_checksum, ip.calc_header_checksum());
            assert_eq!(h.checksum, h.calc_checksum_ipv4(&ip, udp.payload()).unwrap());
            (ip.source.into(), ip.destination.into())
        }
        NetSlice::Ipv6(ip) => {
            let ip = ip.header().to_header();
            assert_eq!(h.checksum, h.calc_checksum_ipv6(&ip, udp.payload()).unwrap());
            (ip.source.into(), ip.destination.into())
        }
        other => panic!("{other:?}"),
    };
    ((src, h.source_port).into(), (dst, h.destination_port).into(), udp.payload().to_vec())
}

fn frames(trace: &Trace, name: &str) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let (path, summary) = write(dir.path(), name, trace);
    let mut reader = Reader::open(&path).unwrap();
    let mut all = Vec::new();
    while let Some(f) = reader.next_frame().unwrap() {
        all.push(f.to_vec());
    }
    assert_eq!(all.len() as u64, summary.packets);
    assert_eq!(all.iter().map(Vec::len).sum::<usize>() as u64, summary.bytes);
    all
}

#[test]
fn an_independent_parser_agrees_with_every_frame() {
    for base in [trace(), over_ipv6(trace())] {
        for (vlan, name) in [(None, "a.pcap"), (Some(100), "a.pcapng")] {
            let mut t = base.clone();
            t.workload.mix.get_ratio = 0.5;
            t.workload.mix.multi_get = 3;
            t.workload.mix.value_size = "1..1300".parse().unwrap();
            t.preload = true;
            t.envelope.vlan = vlan;
            let mut next_id: HashMap<SocketAddr, u16> = HashMap::new();
            let (mut gets, mut sets) = (0, 0);
            for (n, frame) in frames(&t, name).iter().enumerate() {
                let (src, dst, payload) = dissect(frame);
                assert_eq!(dst, t.envelope.server);
                assert!(frame.len() <= 1518);
                let id = next_id.entry(src).or_default();
                assert_eq!(payload[..2], id.to_be_bytes());
                *id = id.wrapping_add(1);
                assert_eq!(payload[2..8], [0, 0, 0, 1, 0, 0]);
                let tagged = frame[12..14] == [0x81, 0];
                assert_eq!(tagged.then(|| u16::from_be_bytes([frame[14], frame[15]])), vlan);
                match Request::parse(frame).unwrap().asked {
                    Asked::Get(count) => {
                        assert_eq!(count, 3);
                        gets += 1;
                    }
                    Asked::Set => sets += 1,
                    _ => panic!("{}", payload.escape_ascii()),
                }
                assert!(n >= 200 || gets == 0, "the preload comes first");
            }
            assert_eq!(gets + sets, 2_200);
            assert!((900..1_100).contains(&gets), "{gets}");
            assert_eq!(next_id.len(), 8, "every client speaks");
        }
    }
}

#[test]
fn one_seed_makes_one_file() {
    let with = |seed| {
        let mut t = Trace { corrupt: 0.1, ..trace() };
        t.workload.mix.get_ratio = 0.9;
        t.workload.seed = seed;
        frames(&t, "a.pcap")
    };
    let (a, b, c) = (with(1), with(1), with(2));
    assert_eq!(a, b);
    assert_ne!(a, c);
}

#[test]
fn spoilt_frames_are_even_counted_and_never_taken_for_requests() {
    for base in [trace(), over_ipv6(trace())] {
        let mut t = Trace { corrupt: 0.25, ..base };
        t.workload.mix.get_ratio = 0.5;
        let dir = tempfile::tempdir().unwrap();
        let (_, summary) = write(dir.path(), "a.pcap", &t);
        let counts: Vec<u64> = summary.corrupt.iter().map(|(_, n)| *n).collect();
        let (min, max) = (counts.iter().min().unwrap(), counts.iter().max().unwrap());
        assert!(counts.len() > 20 && max - min <= 1 && *min > 10, "{counts:?}");
        let total = summary.corrupt_total();
        assert_eq!(summary.gets + summary.sets, 2_000);
        assert_eq!(summary.packets, 2_000 + total);
        assert!((570..770).contains(&total), "{total} is far from a quarter of all");
        let requests = frames(&t, "a.pcap")
            .iter()
            .filter_map(|f| Request::parse(f))
            .fold(0, |n, r| if r.asked == Asked::Other { n } else { n + 1 });
        assert_eq!(requests, 2_000);
    }
}

/// Runs tshark over a capture: the lines that it prints.
fn tshark(path: &Path, args: &[&str]) -> Vec<String> {
    let out = Command::new("tshark")
        .args(["-o", "ip.check_checksum:TRUE", "-o", "udp.check_checksum:TRUE"])
        .args(args)
        .arg("-r")
        .arg(path)
        .output()
        .unwrap();
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect()
}

#[test]
fn tshark_finds_nothing_wrong() {
    if Command::new("tshark").arg("--version").output().is_err() {
        eprintln!("skipped: tshark is not installed");
        return;
    }
    for (name, protocol, vlan, v6) in [
        ("a.pcap", Protocol::Ascii, None, false),
        ("b.pcapng", Protocol::Meta, Some(5), true),
        ("c.pcapng", Protocol::Binary, Some(4_094), false),
        ("d.pcap", Protocol::Binary, None, true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut t = if v6 { over_ipv6(trace()) } else { trace() };
        t.protocol = protocol;
        t.envelope.vlan = vlan;
        t.workload.mix.get_ratio = 0.5;
        t.workload.mix.multi_get = 4;
        t.rate = 1000.0;
        let (path, _) = write(dir.path(), name, &t);
        let fields = ["-T", "fields", "-e", "frame.time_epoch", "-e", "udp.checksum.status"];
        let lines = tshark(&path, &fields);
        assert_eq!(lines.len(), 2_000);
        assert!(lines.iter().all(|l| l.ends_with("\t1")), "{}", lines[0]);
        assert!(lines[1_999].starts_with("1.999000000"), "{}", lines[1_999]);
        let bad = "_ws.malformed || ip.checksum.status == 0 || udp.checksum.status != 1";
        assert_eq!(tshark(&path, &["-Y", bad]), [""; 0], "{name}");
    }
}

#[test]
fn a_csv_trace_becomes_packets_in_its_order_and_times() {
    let dir = tempfile::tempdir().unwrap();
    let csv = dir.path().join("t.csv");
    let rows = "timestamp,key,key_size,value_size,client,op,ttl\n\
                100,k1,20,50,1,set,60\n100,k1,20,0,2,get,0\n102,k2,30,5000,1,set,0\n\
                nonsense\n102,k2,30,0,2,get,0\n103,k1,20,0,1,delete,0\n";
    std::fs::write(&csv, rows).unwrap();
    for protocol in [Protocol::Ascii, Protocol::Meta, Protocol::Binary] {
        let t = Trace {
            recorded: Some(csv.clone()),
            timing: Timing::Trace,
            requests: u64::MAX,
            protocol,
            ..trace()
        };
        let (path, summary) = write(dir.path(), "t.pcap", &t);
        assert_eq!((summary.gets, summary.sets, summary.deletes), (2, 2, 1));
        assert_eq!((summary.rows_skipped, summary.values_cut), (1, 1));
        let mut reader = Reader::open(&path).unwrap();
        let mut seen = Vec::new();
        while reader.advance().unwrap() {
            let request = Request::parse(reader.frame()).unwrap();
            let mut keys = Vec::new();
            request.append_keys(reader.frame(), &mut keys);
            assert!(reader.frame().len() <= 1514);
            seen.push((request.asked, keys.len(), reader.time_ns()));
        }
        let second = 1_000_000_000;
        let want = [
            (Asked::Set, 0, 0),
            (Asked::Get(1), 20, 0),
            (Asked::Set, 0, 2 * second),
            (Asked::Get(1), 30, 3 * second),
            (Asked::Delete, 0, 3 * second),
        ];
        assert_eq!(seen, want, "{protocol:?}");
    }
}

#[test]
fn the_command_says_what_it_did_or_why_not() {
    let dir = tempfile::tempdir().unwrap();
    let run = |args: &[&str]| {
        let out = Command::new(env!("CARGO_BIN_EXE_gnomon-pcapgen"))
            .args(args)
            .current_dir(dir.path())
            .output()
            .unwrap();
        let text = |b: Vec<u8>| String::from_utf8(b).unwrap();
        (out.status.code(), text(out.stdout), text(out.stderr))
    };
    let (code, out, _) =
        run(&["--out", "a.pcap", "--requests", "1000", "--corrupt", "0.1", "--json", "-"]);
    assert_eq!(code, Some(0));
    let json: serde_json::Value = serde_json::from_str(&out).unwrap();
    assert_eq!(json["gets"], 1000);
    let kinds = json["corrupt_by_kind"].as_object().unwrap();
    let sum: u64 = kinds.values().map(|v| v.as_u64().unwrap()).sum();
    assert_eq!(json["corrupt"], sum);
    assert_eq!(json["packets"], 1000 + sum);

    // The printed seed makes the same file.
    let seed = json["seed"].to_string();
    let args = ["--out", "b.pcap", "--requests", "1000", "--corrupt", "0.1", "--seed", &seed];
    let (code, out, _) = run(&args);
    assert!(code == Some(0) && out.contains(&seed), "{out}");
    // Models by name, cut to what a packet holds.
    for model in ["etc", "usr", "app", "var", "sys", "ycsb-a", "ycsb-d", "ycsb-e", "ycsb-f"] {
        for protocol in ["ascii", "meta", "binary"] {
            let args = ["--out", "m.pcap", "--workload", model, "--protocol", protocol];
            let (code, out, err) = run(&[&args[..], &["--requests", "500"]].concat());
            assert!(code == Some(0) && out.contains("packets   500"), "{model}: {out}{err}");
        }
    }
    let read = |n: &str| std::fs::read(dir.path().join(n)).unwrap();
    assert_eq!(read("a.pcap"), read("b.pcap"));

    for (args, code, message) in [
        (&["--out", "no/such/dir/a.pcap"][..], 1, "check that the directory exists"),
        (&["--out", "c.pcap", "--value-size", "1500", "--preload"], 1, "a packet holds 1472"),
        (&["--out", "c.pcap", "--dst", "fd00::2"], 1, "both be IPv6"),
        (&["--out", "c.pcap", "--key-size", "300"], 1, "between 1 and 250"),
        (&["--out", "c.pcap", "--corrupt", "1"], 1, "less than 1"),
        (&["--out", "c.pcap", "--rate", "0"], 1, "above 0"),
        (&["--out", "c.pcap", "--timing", "trace"], 1, "give one with --trace"),
        (&["--out", "c.pcap", "--trace", "/no/such.csv"], 1, "check the name"),
        (&["--out", "c.pcap", "--trace", "x", "--preload"], 1, "not known before"),
        (&["--out", "c.pcap", "--trace", "x", "--workload", "etc"], 2, "cannot be used with"),
        (&["--out", "c.pcap", "--popularity", "hot"], 2, "write uniform"),
        (&["--out", "c.pcap", "--dst-mac", "x"], 2, "no Ethernet address"),
        (&[], 2, "--out"),
    ] {
        let (got, _, err) = run(args);
        assert_eq!(got, Some(code), "{args:?}: {err}");
        assert!(err.contains(message), "{args:?}: {err}");
    }
    assert!(!dir.path().join("c.pcap").exists(), "a refused trace leaves no file");
}
