//! What the tests of the tools share: small traces, and a server that answers by the book.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use gnomon_client::codec::Protocol;
use memcache::binary::{Header, REQUEST_MAGIC, RESPONSE_MAGIC, opcode};
use std::collections::HashMap;
use std::fs::File;
use std::io::BufWriter;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tools::trace::{Envelope, Format, Summary, Timing, Trace, generate};
use tools::workload::{Clients, Mix, Popularity, Workload};

/// 200 keys, 2,000 gets.
pub fn trace() -> Trace {
    Trace {
        workload: Workload {
            keys: 200,
            mix: Mix {
                value_size: "1..400".parse().unwrap(),
                popularity: Popularity::Zipf(0.99),
                ..Mix::default()
            },
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
        protocol: Protocol::Ascii,
        preload: false,
        requests: 2_000,
        corrupt: 0.0,
        rate: 1e6,
        timing: Timing::Constant,
        recorded: None,
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

/// Answers requests from a table, in all three protocols.
#[derive(Debug, Default)]
pub struct Store(HashMap<Vec<u8>, (u32, Vec<u8>)>);

impl Store {
    /// The text of the reply to the text of a request.
    pub fn answer(&mut self, text: &[u8]) -> Vec<u8> {
        if text[0] == REQUEST_MAGIC {
            return self.binary(text);
        }
        let end = text.windows(2).position(|w| w == b"\r\n").unwrap();
        let line = String::from_utf8(text[..end].to_vec()).unwrap();
        let words: Vec<&str> = line.split(' ').collect();
        let data = |len: &str| text[end + 2..][..len.parse::<usize>().unwrap()].to_vec();
        let key = || words[1].as_bytes().to_vec();
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
                self.0.insert(key(), (words[2].parse().unwrap(), data(words[4])));
                b"STORED\r\n".to_vec()
            }
            "delete" if self.0.remove(&key()).is_some() => b"DELETED\r\n".to_vec(),
            "delete" => b"NOT_FOUND\r\n".to_vec(),
            "mg" => self.meta_get(text),
            "ms" => {
                self.0.insert(key(), (words[3][1..].parse().unwrap(), data(words[2])));
                b"HD\r\n".to_vec()
            }
            "md" if self.0.remove(&key()).is_some() => b"HD\r\n".to_vec(),
            "md" => b"NF\r\n".to_vec(),
            _ => b"ERROR\r\n".to_vec(),
        }
    }

    fn meta_get(&self, text: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        let text = std::str::from_utf8(text).unwrap();
        let quiet = text.ends_with("mn\r\n");
        for line in text.lines() {
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "mn" => reply.extend_from_slice(b"MN\r\n"),
                _ => match self.0.get(words[1].as_bytes()) {
                    Some((flags, value)) => {
                        let head = format!("VA {} k{} f{flags}\r\n", value.len(), words[1]);
                        reply.extend_from_slice(head.as_bytes());
                        reply.extend_from_slice(value);
                        reply.extend_from_slice(b"\r\n");
                    }
                    None if quiet => {}
                    None => reply.extend_from_slice(b"EN\r\n"),
                },
            }
        }
        reply
    }

    fn binary(&mut self, text: &[u8]) -> Vec<u8> {
        let mut reply = Vec::new();
        let mut rest = text;
        while let Some((head, after)) = Header::split(rest) {
            let (body, after) = after.split_at(head.body_bytes as usize);
            rest = after;
            let (extras, body) = body.split_at(head.extras_bytes.into());
            let (key, value) = body.split_at(head.key_bytes.into());
            let mut put = |status, extras: &[u8], key: &[u8], value: &[u8]| {
                let header = Header { magic: RESPONSE_MAGIC, status, ..head };
                reply.extend(header.packet(extras, key, value).unwrap());
            };
            match head.opcode {
                opcode::SET => {
                    let flags = u32::from_be_bytes(*extras.first_chunk().unwrap());
                    self.0.insert(key.to_vec(), (flags, value.to_vec()));
                    put(0, &[], &[], &[]);
                }
                opcode::DELETE => put(u16::from(self.0.remove(key).is_none()), &[], &[], &[]),
                opcode::NOOP => put(0, &[], &[], &[]),
                op => match self.0.get(key) {
                    Some((flags, value)) => put(0, &flags.to_be_bytes(), key, value),
                    None if op == opcode::GETK => put(1, &[], key, &[]),
                    None => {}
                },
            }
        }
        reply
    }

    /// Takes every set of a trace.
    pub fn load(&mut self, path: &Path) {
        let mut r = tools::trace::Reader::open(path).unwrap();
        while let Some(frame) = r.next_frame().unwrap() {
            let d = tools::trace::Datagram::parse(frame).unwrap();
            self.answer(&frame[d.payload][8..]);
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
