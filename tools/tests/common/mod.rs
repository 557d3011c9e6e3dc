//! What the tests of the tools share: small traces, and a server that answers by the book.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tools::trace::{Envelope, Format, Summary, Trace, generate};
use tools::workload::{Clients, Popularity, Sizes, Workload};

/// 200 keys, 2,000 gets.
pub fn trace() -> Trace {
    Trace {
        workload: Workload {
            keys: 200,
            key_size: Sizes::Fixed(16),
            value_size: "1..400".parse().unwrap(),
            popularity: Popularity::Zipf(0.99),
            get_ratio: 1.0,
            multi_get: 1,
            clients: Clients {
                count: 8,
                first: "10.0.0.1".parse().unwrap(),
                addresses: 2,
                first_port: 20_000,
            },
            seed: 11,
        },
        envelope: Envelope {
            src_mac: driver_shim::MacAddr([2, 0, 0, 0, 0, 1]),
            dst_mac: driver_shim::MacAddr([2, 0, 0, 0, 0, 2]),
            vlan: None,
            server: "10.0.1.1:11211".parse().unwrap(),
        },
        preload: false,
        requests: 2_000,
        corrupt: 0.0,
        rate: 1e6,
    }
}

/// The sets of every key, and nothing else.
pub fn preload(trace: &Trace) -> Trace {
    Trace { preload: true, requests: 0, ..trace.clone() }
}

/// Writes a trace into `dir`.
pub fn write(dir: &Path, name: &str, trace: &Trace) -> (PathBuf, Summary) {
    let path = dir.join(name);
    let file = BufWriter::new(File::create(&path).unwrap());
    let summary = generate(trace, Format::of(&path), file, |_| ()).unwrap();
    (path, summary)
}

/// The same trace over IPv6.
pub fn over_ipv6(mut trace: Trace) -> Trace {
    trace.workload.clients.first = "fd00::1:0".parse().unwrap();
    trace.envelope.server = SocketAddr::new("fd00::2".parse().unwrap(), 11_211);
    trace
}

/// Answers requests from a table.
#[derive(Debug, Default)]
pub struct Store(HashMap<Vec<u8>, (String, Vec<u8>)>);

impl Store {
    /// The text of the reply to the text of a request.
    pub fn answer(&mut self, text: &[u8]) -> Vec<u8> {
        let end = text.windows(2).position(|w| w == b"\r\n").unwrap();
        let line = String::from_utf8(text[..end].to_vec()).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "get" => {
                let mut reply = Vec::new();
                for key in &words[1..] {
                    if let Some((flags, value)) = self.0.get(key.as_bytes()) {
                        let head = format!("VALUE {key} {flags} {}\r\n", value.len());
                        reply.extend_from_slice(head.as_bytes());
                        reply.extend_from_slice(value);
                        reply.extend_from_slice(b"\r\n");
                    }
                }
                reply.extend_from_slice(b"END\r\n");
                reply
            }
            "set" => {
                let len: usize = words[4].parse().unwrap();
                let value = text[end + 2..][..len].to_vec();
                self.0.insert(words[1].as_bytes().to_vec(), (words[2].to_owned(), value));
                b"STORED\r\n".to_vec()
            }
            _ => b"ERROR\r\n".to_vec(),
        }
    }

    /// Takes every set of a trace.
    pub fn load(&mut self, path: &Path) {
        let mut r = tools::trace::Reader::open(path).unwrap();
        while let Some(frame) = r.next_frame().unwrap() {
            let d = tools::trace::Datagram::parse(frame).unwrap();
            assert_eq!(self.answer(&frame[d.payload][8..]), b"STORED\r\n");
        }
    }
}

/// A reply's text as datagrams of at most `piece` bytes of text each.
pub fn datagrams(id: [u8; 2], text: &[u8], piece: usize) -> Vec<Vec<u8>> {
    let total = u16::try_from(text.len().div_ceil(piece)).unwrap();
    (0u16..)
        .zip(text.chunks(piece))
        .map(|(seq, part)| {
            let mut d = id.to_vec();
            d.extend_from_slice(&seq.to_be_bytes());
            d.extend_from_slice(&total.to_be_bytes());
            d.extend_from_slice(&[0, 0]);
            d.extend_from_slice(part);
            d
        })
        .collect()
}
