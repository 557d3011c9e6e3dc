//! What memcached 1.6.18 answered to binary requests, byte for byte, for tests of what is answered here.
//!
//! `binary_recorded.txt` is written by `tests/e2e/record_binary.py`, which also says its form. CAS
//! ids are numbers of each server's own: they are compared by their order of appearance.

use memcache::binary::Header;

const RECORDED: &str = include_str!("../binary_recorded.txt");

/// What is sent, what comes back, and whether the connection ends with it.
#[derive(Debug, Default)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) sent: Vec<u8>,
    pub(crate) answer: Vec<u8>,
    pub(crate) closed: bool,
}

/// All of them.
pub(crate) fn cases() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for line in RECORDED.lines().skip(1) {
        let (mark, text) = line.split_at(1);
        let text = text.trim_start();
        if mark == "#" {
            cases.push(Case { name: text, ..Case::default() });
        }
        let case = cases.last_mut().expect("a name comes first");
        match mark {
            "#" => {}
            ">" => case.sent = bytes(text),
            "<" => case.answer = bytes(text),
            "=" => case.closed = text == "closed",
            other => panic!("a line that begins with {other}"),
        }
    }
    assert!(cases.len() > 100, "{} cases", cases.len());
    cases
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
}

/// The answer with CAS ids numbered from 1.
pub(crate) fn normal(answer: &[u8]) -> Vec<u8> {
    let (mut seen, mut normal, mut rest) = (Vec::new(), Vec::new(), answer);
    while let Some((mut header, body)) = Header::split(rest) {
        if header.cas != 0 {
            let place = seen.iter().position(|&cas| cas == header.cas).unwrap_or_else(|| {
                seen.push(header.cas);
                seen.len() - 1
            });
            header.cas = place as u64 + 1;
        }
        let (body, more) = body.split_at(header.body_bytes as usize);
        normal.extend_from_slice(&header.bytes());
        normal.extend_from_slice(body);
        rest = more;
    }
    assert!(rest.is_empty(), "half a packet: {rest:x?}");
    normal
}
