//! Commands that mean something, spelt from a few bytes: every verb of each dialect on a few keys.
//! No line or value is so long that some hundred bytes of noise before it make 2,048: that ends a
//! connection or does not, as the input is cut.

/// The keys.
pub(crate) const KEYS: [&str; 5] =
    ["a", "b", "ns:c", "ns:d:e", "a-key-that-is-somewhat-longer-than-others"];

/// What `stats` says of times and memory.
const PAGES: [&str; 12] = [
    "",
    " items",
    " slabs",
    " sizes",
    " settings",
    " conns",
    " reset",
    " latency",
    " hotkeys",
    " cachedump 1 0",
    " cachedump 2 3",
    " nothing",
];

/// What an administrator sets, or begins.
const SETTINGS: [&str; 14] = [
    "lru_crawler crawl all",
    "lru_crawler crawl 1,2",
    "lru_crawler disable",
    "lru_crawler enable",
    "lru_crawler sleep 100",
    "lru_crawler tocrawl 7",
    "lru mode flat",
    "lru tune 10 20 0.1 2.0",
    "lru temp_ttl 61",
    "slabs automove 2",
    "slabs reassign 1 2",
    "slabs reassign 2 0",
    "cache_memlimit 8",
    "watch fetchers mutations evictions",
];

/// A command, or part of one.
#[derive(Debug, Default)]
pub(crate) struct Command {
    pub(crate) text: Vec<u8>,
    /// Answered over UDP as over TCP.
    pub(crate) for_udp: bool,
    /// The answer describes times and memory, which no two servers have in common.
    pub(crate) own: bool,
}

/// An ASCII command, or a byte of noise.
pub(crate) fn ascii(op: u8, arg: u8) -> Command {
    let n_arg = usize::from(arg);
    let key = KEYS[n_arg % KEYS.len()];
    let (n, len) = (n_arg / KEYS.len(), n_arg * n_arg / 64);
    let value = "7".repeat(len);
    let (mut for_udp, mut own) = (true, false);
    let line = match op % 40 {
        0 => format!("get {key}"),
        1 => format!("gets {key} b {key}"),
        2 => format!("set {key} {n} 0 {len}\r\n{value}"),
        3 => format!("add {key} {n} 100 1\r\n5"),
        4 => format!("replace {key} 0 0 {len}\r\n{value}"),
        5 => format!("append {key} 0 0 2\r\n12"),
        6 => format!("prepend {key} 0 0 {len}\r\n{value}"),
        7 => format!("cas {key} 0 0 1 {n}\r\n3"),
        8 => format!("incr {key} {n}"),
        9 => format!("decr {key} {n}"),
        10 => format!("delete {key}"),
        11 => format!("touch {key} {n}"),
        12 => format!("gat {n} {key} a"),
        13 => format!("mg {key} v f c t s k h O{n}"),
        14 => format!("mg {key} N30 R{n} v q"),
        15 => format!("ms {key} {len} T{n} I C{n} c\r\n{value}"),
        16 => format!("ms {key} 1 MA q\r\nx"),
        17 => format!("md {key} I T{n} q"),
        18 => format!("ma {key} N0 J{n} D{n} MD v c t"),
        19 => format!("get {}", KEYS.join(" ")),
        20 => format!("set {key} 0 0 {len} noreply\r\n{value}"),
        21 => format!("gats {n} {key} b"),
        22 => format!("gets {key}"),
        23 => format!("set {key} 0 {n} 1\r\n{}", n % 10),
        24 => format!("ms YWI= {len} b F{n} k\r\n{value}"),
        25 => "mg YWI= b k v c t f".to_owned(),
        26 => format!("ms {key} 2 MP I k C{n}\r\nab"),
        27 if n % 2 == 0 => format!("set {key} 0 0 5000\r\n{n}"),
        27 => format!("set {key} 4294967295 0 1300\r\n{}", "6".repeat(1300)),
        28 => format!("incr {key} 18446744073709551615"),
        29 => format!("delete {key} noreply\r\nmn"),
        30 => format!("get{}", format!(" {key}").repeat(n % 30)),
        other => {
            for_udp = false;
            match other {
                31 => format!("flush_prefix {key}"),
                32 => "flush_all".to_owned(),
                33 => format!("flush_all {n}"),
                34 => format!("lru_crawler metadump all\r\nme {key}\r\nmn"),
                35 => format!("verbosity {n}"),
                36 => {
                    own = true;
                    format!("stats{}", PAGES[n % PAGES.len()])
                }
                37 => format!("stats detail {}", ["on", "dump", "off"][n % 3]),
                38 => SETTINGS[n % SETTINGS.len()].to_owned(),
                _ => {
                    // Noise, and an end of line only now and then.
                    return Command { text: vec![arg], for_udp, own };
                }
            }
        }
    };
    let (end, for_udp) = if op < 240 { ("\r\n", for_udp) } else { ("\n", false) };
    Command { text: [&line, end].concat().into(), for_udp, own }
}

/// A binary one.
pub(crate) fn binary(op: u8, arg: u8) -> Command {
    let opcode = op % 0x26;
    let extras = match opcode {
        0x01..=0x03 | 0x11..=0x13 => 8,
        0x05 | 0x06 | 0x15 | 0x16 => 20,
        0x1c..=0x1e | 0x23 | 0x24 => 4,
        _ => 0,
    };
    let keyless = matches!(opcode, 0x07 | 0x08 | 0x0a | 0x0b | 0x17 | 0x18);
    let page = PAGES[usize::from(arg) % PAGES.len()].trim_start();
    let key = match opcode {
        _ if keyless => "",
        0x10 => page,
        _ => KEYS[usize::from(arg) % KEYS.len()],
    };
    let stores = matches!(opcode, 0x01..=0x03 | 0x0e | 0x0f | 0x11..=0x13 | 0x19 | 0x1a);
    let value = if stores { vec![b'8'; usize::from(arg / 2)] } else { Vec::new() };
    let body = extras + key.len() + value.len();
    let mut text = vec![0u8; 24];
    text[0] = 0x80;
    text[1] = opcode;
    text[3] = key.len().to_le_bytes()[0];
    text[4] = extras.to_le_bytes()[0];
    text[10..12].copy_from_slice(&u16::try_from(body).unwrap_or(0).to_be_bytes());
    text[15] = arg;
    // A CAS id, sometimes the right one.
    text[23] = if op > 200 { arg } else { 0 };
    text.extend((0..extras).map(|n| if n == 7 { arg / 16 } else { 0 }));
    text.extend_from_slice(key.as_bytes());
    text.extend_from_slice(&value);
    Command { text, for_udp: !matches!(opcode, 0x08 | 0x10 | 0x18), own: opcode == 0x10 }
}
