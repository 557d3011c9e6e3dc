//! Whole conversations, made of commands that mean something: every verb of each dialect on a few
//! keys, with noise between. Answers are the same however the input is cut, and when all keys are
//! deleted the store has lost nothing.

const KEYS: [&str; 5] = ["a", "b", "ns:c", "ns:d:e", "a-key-that-is-somewhat-longer-than-others"];
const ITEM_MAX_BYTES: usize = 4096;
const DATA_MAX_BYTES: usize = 1000;

/// The input's bytes, two to a command, spelt in ASCII.
fn ascii(data: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    for pair in data.chunks_exact(2) {
        let (op, arg) = (pair[0], usize::from(pair[1]));
        let key = KEYS[arg % KEYS.len()];
        let (n, len) = (arg / KEYS.len(), arg * arg / 64);
        let value = "7".repeat(len);
        let line = match op % 24 {
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
            19 => format!("flush_prefix {key}"),
            20 => "flush_all".to_owned(),
            21 => format!("set {key} 0 0 {len} noreply\r\n{value}"),
            22 => format!("lru_crawler metadump all\r\nme {key}\r\nmn"),
            _ => {
                // Noise, and an end of line only now and then.
                text.push(pair[1]);
                continue;
            }
        };
        text.extend_from_slice(line.as_bytes());
        text.extend_from_slice(if op < 240 { b"\r\n" } else { b"\n" });
    }
    text
}

/// The same in binary.
fn binary(data: &[u8]) -> Vec<u8> {
    let mut packets = Vec::new();
    for pair in data.chunks_exact(2) {
        let (opcode, arg) = (pair[0] % 0x26, pair[1]);
        let extras = match opcode {
            0x01..=0x03 | 0x11..=0x13 => 8,
            0x05 | 0x06 | 0x15 | 0x16 => 20,
            0x1c..=0x1e | 0x23 | 0x24 => 4,
            _ => 0,
        };
        let keyless = matches!(opcode, 0x07 | 0x08 | 0x0a | 0x0b | 0x17 | 0x18);
        let key = if keyless { "" } else { KEYS[usize::from(arg) % KEYS.len()] };
        let stores = matches!(opcode, 0x01..=0x03 | 0x0e | 0x0f | 0x11..=0x13 | 0x19 | 0x1a);
        let value = if stores { vec![b'8'; usize::from(arg / 2)] } else { Vec::new() };
        let body = extras + key.len() + value.len();
        let mut header = [0u8; 24];
        header[0] = 0x80;
        header[1] = opcode;
        header[3] = key.len().to_le_bytes()[0];
        header[4] = extras.to_le_bytes()[0];
        header[10..12].copy_from_slice(&u16::try_from(body).unwrap_or(0).to_be_bytes());
        // A CAS id, sometimes the right one.
        header[23] = if pair[0] > 200 { arg } else { 0 };
        packets.extend_from_slice(&header);
        packets.extend((0..extras).map(|n| if n == 7 { arg / 16 } else { 0 }));
        packets.extend_from_slice(key.as_bytes());
        packets.extend_from_slice(&value);
    }
    packets
}

/// Runs the conversation over two fresh servers, whole and in pieces.
pub(crate) fn run(data: &[u8]) {
    // A line of 2,048 bytes ends the connection or does not, as the input is cut: there is none.
    let data = data.get(..DATA_MAX_BYTES).unwrap_or(data);
    let Some((first, rest)) = data.split_first() else { return };
    let input = if first & 1 == 0 { ascii(rest) } else { binary(rest) };
    let whole = answers(&input, usize::MAX);
    let piece = usize::from(first / 2) + 1;
    if whole != answers(&input, piece) {
        // Unless the clock moved on between the two, which absolute times tell.
        let (whole, cut) = (answers(&input, usize::MAX), answers(&input, piece));
        assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&cut));
    }
}

fn answers(input: &[u8], piece: usize) -> Vec<u8> {
    use dataplane::protocol::Server;
    use dataplane::protocol::stream::Conversation;
    use dataplane::store::{Store, StoreConfig, verbs};
    use driver_shim::Pages;
    use std::sync::Arc;

    let store = Store::new(StoreConfig {
        memory_bytes: 32 << 20,
        item_max_bytes: ITEM_MAX_BYTES,
        pages: Pages::Small,
        // The hash decides where a dump finds an item.
        hash_key: Some([7; 16]),
        ..StoreConfig::default()
    });
    let Ok(store) = store else { panic!("no store") };
    let Ok(mut session) = store.session() else { panic!("no session") };
    let server = Server::new(Arc::clone(&store), String::new());
    let ops = server.ops();
    let mut conversation = Conversation::new(ITEM_MAX_BYTES);
    let (mut waiting, mut out) = (Vec::new(), Vec::new());
    'all: for piece in input.chunks(piece) {
        waiting.extend_from_slice(piece);
        loop {
            let before = out.len();
            let progress =
                conversation.advance(&mut session, &ops, &server, &waiting, &mut out, usize::MAX);
            waiting.drain(..progress.consumed);
            if progress.close {
                break 'all;
            }
            if progress.consumed == 0 && out.len() == before {
                break;
            }
        }
    }
    for key in KEYS {
        verbs::delete(&mut session, key.as_bytes());
    }
    drop(session);
    // Noise may have spelt other keys; what is there is what is counted.
    let stats = store.stats();
    assert_eq!(stats.curr_items == 0, stats.bytes == 0, "{stats:?}");
    out
}
