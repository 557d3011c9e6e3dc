//! `docs/protocol.md` says what is spoken: here a server is asked whether that is so, verb by verb.

use crate::client::{Tcp, Udp};
use crate::server::{SOON, Server};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/protocol.md");

/// Each verb of the ASCII protocol, a request, and how the answer begins.
const ASCII: &[(&str, &str, &str)] = &[
    ("get", "get k", "VALUE k 0 1\r\n"),
    ("gets", "gets k", "VALUE k 0 1 "),
    ("gat", "gat 0 k", "VALUE k 0 1\r\n"),
    ("gats", "gats 0 k", "VALUE k 0 1 "),
    ("set", "set s 0 0 1\r\nv", "STORED\r\n"),
    ("add", "add k 0 0 1\r\nv", "NOT_STORED\r\n"),
    ("replace", "replace none 0 0 1\r\nv", "NOT_STORED\r\n"),
    ("append", "append none 0 0 1\r\nv", "NOT_STORED\r\n"),
    ("prepend", "prepend none 0 0 1\r\nv", "NOT_STORED\r\n"),
    ("cas", "cas none 0 0 1 1\r\nv", "NOT_FOUND\r\n"),
    ("delete", "delete none", "NOT_FOUND\r\n"),
    ("incr", "incr none 1", "NOT_FOUND\r\n"),
    ("decr", "decr none 1", "NOT_FOUND\r\n"),
    ("touch", "touch none 0", "NOT_FOUND\r\n"),
    ("flush_all", "flush_all 100000", "OK\r\n"),
    ("flush_prefix", "flush_prefix none", "OK\r\n"),
    ("verbosity", "verbosity 0", "OK\r\n"),
    ("version", "version", "VERSION "),
    ("stats", "stats", "STAT pid "),
    ("stats items", "stats items", "STAT items:"),
    ("stats slabs", "stats slabs", "STAT "),
    ("stats sizes", "stats sizes", "STAT sizes_status disabled\r\n"),
    ("stats settings", "stats settings", "STAT maxbytes "),
    ("stats conns", "stats conns", "STAT "),
    ("stats reset", "stats reset", "RESET\r\n"),
    ("stats detail", "stats detail on", "OK\r\n"),
    ("stats cachedump", "stats cachedump 1 1", "ITEM "),
    ("stats latency", "stats latency", "STAT "),
    ("stats hotkeys", "stats hotkeys", ""),
    ("stats engine", "stats engine", "STAT "),
    ("lru_crawler", "lru_crawler tocrawl 0", "OK\r\n"),
    ("lru", "lru temp_ttl 0", "OK\r\n"),
    ("slabs", "slabs automove 1", "OK\r\n"),
    ("cache_memlimit", "cache_memlimit 8", "OK\r\n"),
    ("watch", "watch evictions", "OK\r\n"),
    ("shutdown", "shutdown", "ERROR: shutdown not enabled\r\n"),
    ("refresh_certs", "refresh_certs", "Error TLS not enabled\r\n"),
    ("rdma", "rdma 17 5 fe80::1 1024", "ERROR\r\n"),
    ("quit", "quit", ""),
    ("mg", "mg k v", "VA 1\r\nv\r\n"),
    ("ms", "ms m 1\r\nv", "HD\r\n"),
    ("md", "md none", "NF\r\n"),
    ("ma", "ma none", "NF\r\n"),
    ("me", "me none", "EN\r\n"),
    ("mn", "mn", "MN\r\n"),
];

/// Commands of memcached's that are not spoken and must not be half spoken.
const NOT_SPOKEN: &[&str] = &["extstore free_memchunks 1 1", "misbehave", "debugtime p", "mx k"];

/// Each opcode that the page may name, with the bytes of extras that it needs and whether it has a
/// key.
const BINARY: &[(u8, &str, usize, bool)] = &[
    (0x00, "get", 0, true),
    (0x01, "set", 8, true),
    (0x02, "add", 8, true),
    (0x03, "replace", 8, true),
    (0x04, "delete", 0, true),
    (0x05, "increment", 20, true),
    (0x06, "decrement", 20, true),
    (0x07, "quit", 0, false),
    (0x08, "flush", 0, false),
    (0x09, "getq", 0, true),
    (0x0a, "noop", 0, false),
    (0x0b, "version", 0, false),
    (0x0c, "getk", 0, true),
    (0x0d, "getkq", 0, true),
    (0x0e, "append", 0, true),
    (0x0f, "prepend", 0, true),
    (0x10, "stat", 0, false),
    (0x11, "setq", 8, true),
    (0x12, "addq", 8, true),
    (0x13, "replaceq", 8, true),
    (0x14, "deleteq", 0, true),
    (0x15, "incrementq", 20, true),
    (0x16, "decrementq", 20, true),
    (0x17, "quitq", 0, false),
    (0x18, "flushq", 0, false),
    (0x19, "appendq", 0, true),
    (0x1a, "prependq", 0, true),
    (0x1c, "touch", 4, true),
    (0x1d, "gat", 4, true),
    (0x1e, "gatq", 4, true),
    (0x23, "gatk", 4, true),
    (0x24, "gatkq", 4, true),
];
const NOOP: u8 = 0x0a;
const SASL: [u8; 2] = [0x21, 0x22];
const QUITS: [u8; 2] = [0x07, 0x17];

/// A row of a table: the words in code style of its first cell, and its last cell.
struct Row {
    names: Vec<String>,
    first: String,
    udp: String,
}

/// The rows of the first table behind `heading`.
fn table(heading: &str) -> Vec<Row> {
    let page = std::fs::read_to_string(PAGE).unwrap().replace("\\|", "/");
    let (_, behind) = page.split_once(heading).unwrap();
    let rows =
        behind.lines().skip_while(|l| !l.starts_with('|')).take_while(|l| l.starts_with('|'));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let names = cells[0].split('`').skip(1).step_by(2).map(str::to_owned).collect();
        Row { names, first: cells[0].to_owned(), udp: cells.last().unwrap().to_string() }
    })
    .collect()
}

/// The verbs that the page names, and what it says of each over UDP.
fn documented() -> BTreeMap<String, String> {
    let mut verbs = BTreeMap::new();
    for row in table("## Verbs and transports").iter().filter(|row| row.first.starts_with('`')) {
        // `stats items`, `slabs`, ... are all arguments of one verb.
        let argument = row.first.starts_with("`stats ");
        for name in row.names.iter().filter(|name| *name != "noreply") {
            let words: Vec<&str> = name.split([' ', '/']).filter(|word| *word != "stats").collect();
            let verb = if argument { format!("stats {}", words[0]) } else { first_word(name) };
            verbs.insert(verb, row.udp.clone());
        }
    }
    verbs
}

fn first_word(text: &str) -> String {
    text.split(' ').next().unwrap().to_owned()
}

#[test]
fn the_page_names_every_ascii_verb_and_they_do_what_it_says() {
    let server = Server::start(&["-m", "8"]);
    let documented = documented();
    let named: BTreeSet<&str> = documented.keys().map(String::as_str).collect();
    let asked: BTreeSet<&str> = ASCII.iter().map(|(verb, ..)| *verb).collect();
    assert_eq!(named, asked, "on the page, and asked for here");
    let store = |tcp: &mut Tcp| tcp.expect("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    for (id, (verb, request, reply)) in (1..).zip(ASCII) {
        let mut tcp = Tcp::connect(server.tcp());
        store(&mut tcp);
        if *verb == "quit" {
            tcp.send("quit\r\n");
            assert_eq!(tcp.rest(), b"");
        } else {
            tcp.expect(&format!("{request}\r\n"), reply);
        }
        let udp = Udp::to(server.udp());
        udp.send(id, format!("{request}\r\n"));
        let expected = match documented[*verb].split([' ', ',', ':']).next().unwrap() {
            "yes" => reply,
            "refused" => "SERVER_ERROR command not available over UDP\r\n",
            "no" => {
                // No answer: the next one is to the next request.
                udp.expect(1000, "mn\r\n", "MN\r\n");
                continue;
            }
            other => panic!("{verb}: {other}"),
        };
        let got = udp.receive(SOON).unwrap_or_else(|| panic!("{verb}: no answer over UDP"));
        let text = String::from_utf8_lossy(&got[8..]);
        assert!(text.starts_with(expected), "{verb} over UDP: {text}");
    }
    for request in NOT_SPOKEN {
        Tcp::connect(server.tcp()).expect(&format!("{request}\r\n"), "ERROR\r\n");
    }
}

/// A request with the parts that the opcode needs, all zero but the key.
fn packet(opcode: u8, extras: usize, key: bool) -> Vec<u8> {
    let key: &[u8] = if key { b"k" } else { b"" };
    let mut bytes = vec![0; 24 + extras];
    bytes[0] = 0x80;
    bytes[1] = opcode;
    bytes[3] = key.len() as u8;
    bytes[4] = extras as u8;
    bytes[11] = (extras + key.len()) as u8;
    bytes.extend(key);
    bytes
}

#[test]
fn the_page_names_every_binary_opcode_and_no_other_is_known() {
    let server = Server::start(&["-m", "8"]);
    let mut named = BTreeSet::new();
    for row in table("The binary protocol:") {
        if row.first.starts_with("`verbosity`") || !row.first.starts_with('`') {
            continue;
        }
        let quiet = row.first.contains("each loud and quiet");
        for name in row.names.iter().filter(|name| !["getq", "Not found"].contains(&name.as_str()))
        {
            let loud_only = ["touch"].contains(&name.as_str());
            if quiet && !loud_only {
                named.insert(format!("{name}q"));
            }
            named.insert(name.clone());
        }
    }
    let asked: BTreeSet<String> = BINARY.iter().map(|(_, name, ..)| (*name).to_owned()).collect();
    assert_eq!(named, asked, "on the page, and asked for here");
    for opcode in 0..=u8::MAX {
        let known = BINARY.iter().find(|(n, ..)| *n == opcode);
        // SASL's steps have a key, without which the lengths are wrong.
        let sasl = SASL.contains(&opcode);
        let (extras, key) = known.map_or((0, sasl), |(_, _, extras, key)| (*extras, *key));
        let mut tcp = Tcp::connect(server.tcp());
        tcp.send([packet(opcode, extras, key), packet(NOOP, 0, false)].concat());
        // The answer, or else that of the noop behind it.
        let mut header = [0; 24];
        let answered = tcp.0.read_exact(&mut header).is_ok();
        if QUITS.contains(&opcode) {
            continue;
        }
        assert!(answered, "{opcode:#x}: no answer");
        let unknown = header[1] == opcode && header[6..8] == [0, 0x81];
        assert_eq!(unknown, known.is_none(), "{opcode:#x}: {header:x?}");
    }
}
