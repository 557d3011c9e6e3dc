//! Conversations, whole and in pieces, with much room and with little.

use super::*;
use crate::commands::Sender;
use crate::observe::{OpCounters, Server};
use driver_shim::Pages;
use memcache::binary::Header;
use proptest::prelude::*;
use std::sync::Arc;
use store::{Session, Store, StoreConfig};

/// Feeds `input` in pieces of `piece` bytes and takes the output away whenever it is full.
fn converse(input: &[u8], piece: usize, out_max_bytes: usize) -> (Vec<u8>, bool, usize) {
    let config =
        StoreConfig { memory_bytes: 32 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let mut session = store.session().unwrap();
    let server = Server::new(Arc::clone(&store), "test".to_owned());
    let ops = server.ops();
    let mut conversation = Conversation::new(1 << 20);
    let (mut waiting, mut sent, mut largest) = (Vec::new(), Vec::new(), 0);
    for piece in input.chunks(piece) {
        waiting.extend_from_slice(piece);
        loop {
            let mut out = Vec::new();
            let mut ctx = Ctx::new(&mut session, &ops, &server);
            let p = conversation.advance(&mut ctx, &waiting, Buffer::new(&mut out, out_max_bytes));
            waiting.drain(..p.consumed);
            largest = largest.max(out.len());
            let stuck = p.consumed == 0 && out.is_empty() && !p.more;
            sent.extend_from_slice(&out);
            if p.close {
                return (sent, true, largest);
            }
            if stuck || waiting.is_empty() {
                break;
            }
        }
    }
    (sent, false, largest)
}

#[test]
fn a_turn_has_so_many_requests_and_no_more() {
    let config =
        StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let mut session = store.session().unwrap();
    let server = Server::new(Arc::clone(&store), "test".to_owned());
    let ops = server.ops();
    let mut conversation = Conversation::new(1 << 20).in_turns_of(3);
    let input = b"get a\r\n".repeat(7);
    let (mut at, mut turns) = (0, Vec::new());
    loop {
        let mut out = Vec::new();
        let rest = &input[at..];
        let mut ctx = Ctx::new(&mut session, &ops, &server);
        let p = conversation.advance(&mut ctx, rest, Buffer::new(&mut out, 1 << 20));
        at += p.consumed;
        turns.push((out.len() / b"END\r\n".len(), p.more));
        if !p.more {
            break;
        }
    }
    assert_eq!(turns, [(3, true), (3, true), (1, false)]);
    assert_eq!(at, input.len());
}

#[test]
fn pieces_make_no_difference() {
    let input = b"set a 1 0 3\r\nabc\r\nget a b a\r\nset big 0 0 9999999\r\n";
    let input =
        [&input[..], &[b'x'; 9_999_999], b"\r\nget a\r\nbogus\r\nquit\r\nget a\r\n"].concat();
    let want = b"STORED\r\nVALUE a 1 3\r\nabc\r\nVALUE a 1 3\r\nabc\r\nEND\r\n\
        SERVER_ERROR object too large for cache\r\nVALUE a 1 3\r\nabc\r\nEND\r\nERROR\r\n";
    for piece in [1 << 24, 4096, 17] {
        let (sent, closed, _) = converse(&input, piece, 1 << 20);
        assert_eq!(String::from_utf8_lossy(&sent), String::from_utf8_lossy(want));
        assert!(closed);
    }
}

#[test]
fn the_first_byte_of_a_connection_tells_its_dialect_for_good() {
    let noop = [&[0x80, 0x0a][..], &[0; 10], b"mark", &[0; 8]].concat();
    let answer = [&[0x81, 0x0a][..], &[0; 10], b"mark", &[0; 8]].concat();
    for piece in [1, 23, 1 << 20] {
        let (sent, closed, _) = converse(&noop.repeat(3), piece, 1 << 20);
        assert_eq!((sent, closed), (answer.repeat(3), false));
        let then_ascii = [&noop[..], b"get a\r\nget a\r\nget a\r\nget a\r\n"].concat();
        let (sent, closed, _) = converse(&then_ascii, piece, 1 << 20);
        assert_eq!((&sent, closed), (&answer, true));
    }
    let (sent, closed, _) = converse(b"get \x80\r\n\x80\r\n", 1 << 20, 1 << 20);
    assert_eq!((sent.as_slice(), closed), (&b"END\r\nERROR\r\n"[..], false));
}

#[test]
fn a_get_of_many_large_values_pauses_between_them() {
    let value = "v".repeat(50_000);
    let set = format!("set b 0 0 50000\r\n{value}\r\n");
    let input = [set.as_bytes(), b"gets", &b" b".repeat(1000), b" \r\nget b\r\n"].concat();
    let (sent, _, largest) = converse(&input, 1 << 20, 100_000);
    assert!(largest < 200_000, "{largest} bytes were waiting at once");
    let text = String::from_utf8(sent).unwrap();
    assert_eq!(text.matches("VALUE b 0 50000").count(), 1001);
    assert_eq!(text.matches("END\r\n").count(), 2);
    assert!(text.ends_with("END\r\n"));
}

/// A server, and a conversation with it.
struct Dialogue {
    session: Session,
    server: Server,
    ops: Arc<OpCounters>,
    conversation: Conversation,
    /// Most bytes of replies with a value in them.
    reply_max: usize,
}

impl Dialogue {
    fn new() -> Self {
        let config =
            StoreConfig { memory_bytes: 32 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let session = store.session().unwrap();
        let server = Server::new(store, "test".to_owned());
        let ops = server.ops();
        let conversation = Conversation::new(1 << 20);
        Self { session, server, ops, conversation, reply_max: usize::MAX }
    }

    /// What is answered, and what became of the input.
    fn advance(&mut self, input: &[u8]) -> (String, Progress) {
        let mut out = Vec::new();
        let mut ctx = Ctx::new(&mut self.session, &self.ops, &self.server);
        let buffer = Buffer::new(&mut out, 1 << 20).limited_to(self.reply_max);
        let p = self.conversation.advance(&mut ctx, input, buffer);
        (String::from_utf8(out).unwrap(), p)
    }

    fn refuse(&mut self, input: &[u8]) -> (Vec<u8>, Progress) {
        let mut out = Vec::new();
        let mut ctx = Ctx::new(&mut self.session, &self.ops, &self.server);
        let p = self.conversation.refuse(&mut ctx, input, &mut out);
        (out, p)
    }
}

const UNREAD: &str = "SERVER_ERROR out of memory reading request\r\n";

#[test]
fn a_request_refused_in_its_midst_is_thrown_away_and_the_next_is_answered() {
    for (line, refusal) in [
        ("set a 1 0 5000", UNREAD),
        ("cas a 1 0 5000 7", UNREAD),
        ("set a 1 0 5000 noreply", ""),
        ("ms a 5000", UNREAD),
    ] {
        let mut dialogue = Dialogue::new();
        assert_eq!(dialogue.advance(b"set a 0 0 1\r\nx\r\n").0, "STORED\r\n");
        let request = format!("{line}\r\n{}\r\n", "v".repeat(5000));
        let come = &request.as_bytes()[..3000];
        let (said, p) = dialogue.advance(come);
        assert_eq!((said.as_str(), p), ("", Progress::of(0, false)));
        assert_eq!(dialogue.refuse(come), (vec![], Progress::of(come.len(), false)), "{line}");
        let rest = [&request.as_bytes()[3000..], b"get a\r\n"].concat();
        let (said, p) = dialogue.advance(&rest);
        // As memcached: no client is to read what a set was to replace.
        let kept = if line.starts_with("cas") { "VALUE a 0 1\r\nx\r\n" } else { "" };
        assert_eq!(said, format!("{refusal}{kept}END\r\n"), "{line}");
        assert_eq!(p.consumed, rest.len());
        assert_eq!(dialogue.server.totals().store_no_memory, 1);
        assert_eq!(dialogue.server.totals().store_too_large, 0);
    }
}

#[test]
fn what_is_too_large_is_refused_when_it_has_come() {
    const TEXT: &str = "SERVER_ERROR object too large for cache\r\n";
    let mut binary = vec![0x80, 1, 0, 1, 8, 0, 0, 0, 0, 0x20, 0, 9];
    binary.extend([0; 4 + 8 + 8]);
    binary.push(b'a');
    for (line, value_end, refusal) in [
        ("set a 0 0 2097152\r\n".as_bytes(), "\r\n", TEXT),
        (b"append a 0 0 2097152\r\n", "\r\n", TEXT),
        (b"ms a 2097152\r\n", "\r\n", TEXT),
        (b"set a 0 0 2097152 noreply\r\n", "\r\n", ""),
        (&binary, "", "Too large."),
    ] {
        let mut dialogue = Dialogue::new();
        let value = vec![b'v'; 2_097_152];
        for part in [line, &value[1..], b"v"] {
            let last = part.len() == 1 && value_end.is_empty();
            let mut out = Vec::new();
            let mut ctx = Ctx::new(&mut dialogue.session, &dialogue.ops, &dialogue.server);
            let p = dialogue.conversation.advance(&mut ctx, part, Buffer::new(&mut out, 1 << 20));
            assert_eq!(p, Progress::of(part.len(), false));
            assert!(String::from_utf8_lossy(&out).ends_with(if last { refusal } else { "" }));
            assert_eq!(out.is_empty(), !last);
        }
        if !value_end.is_empty() {
            let (said, p) = dialogue.advance(format!("{value_end}mn\r\n").as_bytes());
            assert_eq!((said, p.close), (format!("{refusal}MN\r\n"), false));
        }
        assert_eq!(dialogue.server.totals().store_too_large, 1);
    }
}

#[test]
fn a_refused_store_is_answered_behind_its_block() {
    const FORMAT: &str = "CLIENT_ERROR bad command line format\r\n";
    for (line, refusal) in [
        ("set a abc 0 10", FORMAT),
        ("set a 0 abc 10", FORMAT),
        ("cas a 0 0 10 abc", FORMAT),
        ("cas a 0 0 10", FORMAT),
        (&format!("set {} 0 0 10", "k".repeat(251)), FORMAT),
        ("set a abc 0 10 noreply", ""),
        ("ms ??? 10 b", "CLIENT_ERROR error decoding key\r\n"),
        ("ms a 10 MX", "CLIENT_ERROR invalid mode for ms M token\r\n"),
        ("ms a 10 Tabc", "CLIENT_ERROR bad token in command line format\r\n"),
    ] {
        let mut dialogue = Dialogue::new();
        for part in [format!("{line}\r\n").as_str(), "0123456789", "\r"] {
            assert_eq!(dialogue.advance(part.as_bytes()).0, "", "{line}: {part:?}");
            assert!(dialogue.conversation.unsaid().is_some());
        }
        assert_eq!(dialogue.advance(b"\nmn\r\n").0, format!("{refusal}MN\r\n"), "{line}");
        assert!(dialogue.conversation.unsaid().is_none());
    }
}

#[test]
fn a_binary_request_is_refused_with_a_status() {
    let mut dialogue = Dialogue::new();
    let mut packet = vec![0x80, 1, 0, 1, 8, 0, 0, 0, 0, 0, 0x13, 0x88 + 9];
    packet.extend(*b"mark");
    packet.extend([0; 8 + 8]);
    packet.push(b'a');
    packet.extend(vec![b'v'; 5000]);
    assert_eq!(dialogue.advance(&packet[..2000]).1, Progress::of(0, false));
    assert_eq!(dialogue.refuse(&packet[..2000]), (vec![], Progress::of(2000, false)));
    let mut out = Vec::new();
    let mut ctx = Ctx::new(&mut dialogue.session, &dialogue.ops, &dialogue.server);
    let rest = &packet[2000..];
    let p = dialogue.conversation.advance(&mut ctx, rest, Buffer::new(&mut out, 1 << 20));
    assert_eq!((&out[..8], &out[12..16]), (&[0x81, 1, 0, 0, 0, 0, 0, 0x82][..], &b"mark"[..]));
    assert_eq!(p.consumed, rest.len());
}

#[test]
fn a_line_whose_end_nobody_knows_is_refused_for_good() {
    let mut dialogue = Dialogue::new();
    let line = [&b"get"[..], &b" k".repeat(3000)].concat();
    assert_eq!(dialogue.advance(&line).1, Progress::of(0, false));
    let (said, p) = dialogue.refuse(&line);
    assert_eq!((said, p.close), (UNREAD.as_bytes().to_vec(), true));
    assert!(dialogue.conversation.is_lost());
}

#[test]
fn a_value_without_room_is_put_when_there_is_and_done_once() {
    let value = "v".repeat(5000);
    for (line, reply) in [
        ("get a", format!("VALUE a 0 5000\r\n{value}\r\nEND\r\n")),
        ("gat 0 a", format!("VALUE a 0 5000\r\n{value}\r\nEND\r\n")),
        // Found, once: it has expired then.
        ("gat -1 a", format!("VALUE a 0 5000\r\n{value}\r\nEND\r\n")),
        // Not found before, not read before, and won: by this request alone.
        ("mg a s v h R100", format!("VA 5000 s5000 h0 W\r\n{value}\r\n")),
        ("mg a v h l", format!("VA 5000 h0 l0\r\n{value}\r\n")),
        ("mg a s", "HD s5000\r\n".to_owned()),
    ] {
        let mut dialogue = Dialogue::new();
        dialogue.advance(format!("set a 0 50 5000\r\n{value}\r\n").as_bytes());
        dialogue.reply_max = 4000;
        let input = format!("mn\r\n{line}\r\nmn\r\n");
        let (said, p) = dialogue.advance(input.as_bytes());
        if !line.contains('v') && line.starts_with('m') {
            assert_eq!(said, format!("MN\r\n{reply}MN\r\n"));
            continue;
        }
        assert_eq!((said.as_str(), p.consumed), ("MN\r\n", 4), "{line}");
        assert!((5000..7000).contains(&p.needs), "{p:?}");
        dialogue.reply_max = p.needs;
        let (said, p) = dialogue.advance(&input.as_bytes()[4..]);
        assert_eq!(said, format!("{reply}MN\r\n"), "{line}");
        assert_eq!((p.consumed, p.needs), (input.len() - 4, 0));
        let counted = dialogue.server.totals();
        assert_eq!((counted.get_hits + counted.touch_hits, counted.get_misses), (1, 0), "{line}");
    }
}

/// However much is taken at once. Where more is said to follow, it does, at the latest in the next turn.
#[test]
fn long_values_are_sent_from_where_they_lie_in_every_form() {
    let set = |key, len: usize| format!("set {key} 0 0 {len}\r\n{}\r\n", "v".repeat(len));
    let sets = [set("a", 20_000), set("s", 5), set("c", 600_000), set("d", 1_000_000)].concat();
    let binary =
        |opcode: u8, key: &str| Header::request(opcode).packet(b"", key.as_bytes(), b"").unwrap();
    let mut asked: Vec<Vec<u8>> = ["a", "s a", "a s", "a none", "d", "none c a", "a a a", "c d "]
        .iter()
        .flat_map(|keys| ["get", "gets", "gat 0"].map(|verb| format!("{verb} {keys}\r\n").into()))
        .chain(
            ["mg a v\r\n", "mg d s v k q\r\nmn\r\n", "get a\r\nget d\r\nmg c v\r\n"].map(Vec::from),
        )
        .collect();
    asked.extend([0x00, 0x0c].map(|opcode| [binary(opcode, "c"), binary(opcode, "a")].concat()));
    for asked in asked {
        let mut dialogue = Dialogue::new();
        dialogue.advance(sets.as_bytes());
        let mut said = |most: Option<usize>| {
            dialogue.conversation = Conversation::new(1 << 20);
            let (mut at, mut sent) = (0, Vec::new());
            while at < asked.len() {
                let (mut out, mut left) = (Vec::new(), most.unwrap_or(0));
                let mut corked = false;
                let mut send = |pieces: [&[u8]; 3], last: bool| {
                    let all = pieces.concat();
                    let taken = all.len().min(left);
                    (left, corked) = (left - taken, !last);
                    sent.extend_from_slice(&all[..taken]);
                    taken
                };
                let Dialogue { session, ops, server, conversation, .. } = &mut dialogue;
                let mut ctx = Ctx::new(session, ops, server);
                let mut buffer = Buffer::new(&mut out, 1 << 16);
                if most.is_some() {
                    buffer = buffer.sent_by(Sender(&mut send));
                }
                let p = conversation.advance(&mut ctx, &asked[at..], buffer);
                assert!(!corked || !out.is_empty() || p.full);
                at += p.consumed;
                sent.extend_from_slice(&out);
            }
            sent
        };
        let whole = said(None);
        assert!(whole.len() > 20_000);
        for most in [0, 10, 20_001, 650_000, usize::MAX] {
            assert!(said(Some(most)) == whole, "{}", String::from_utf8_lossy(&asked));
        }
    }
}

#[test]
fn a_reply_without_room_can_be_refused() {
    let mut dialogue = Dialogue::new();
    dialogue.advance(format!("set a 0 0 5000\r\n{}\r\n", "v".repeat(5000)).as_bytes());
    dialogue.reply_max = 4000;
    let input = b"get b a b a\r\nget b\r\n";
    assert!(dialogue.advance(input).1.needs > 0);
    let (said, p) = dialogue.refuse(input);
    assert_eq!(said, b"SERVER_ERROR out of memory writing get response\r\n");
    assert_eq!(p, Progress::of(b"get b a b a\r\n".len(), false));
    assert_eq!(dialogue.advance(&input[p.consumed..]).0, "END\r\n");
    // What is refused has changed nothing.
    let input = b"gat 50 a\r\n";
    assert!(dialogue.advance(input).1.needs > 0);
    assert_eq!(dialogue.refuse(input).0, said);
    assert_eq!(dialogue.advance(b"mg a t\r\n").0, "HD t-1\r\n");
}

/// All that is answered, turn by turn, and how many turns it took.
fn whole(dialogue: &mut Dialogue, input: &[u8]) -> (String, usize) {
    let (mut said, mut at, mut turns) = (String::new(), 0, 0);
    loop {
        let (piece, p) = dialogue.advance(&input[at..]);
        said.push_str(&piece);
        at += p.consumed;
        turns += 1;
        if !p.more {
            assert_eq!(at, input.len());
            return (said, turns);
        }
        // What a caller has in two pieces it gives one by one: nothing may come of the first alone.
        if p.consumed == 0 {
            let (said, p) = dialogue.advance(&input[at..][..100]);
            assert_eq!((said.as_str(), p), ("", Progress::of(0, false)));
        }
    }
}

#[test]
fn a_get_of_very_many_keys_has_several_turns() {
    for (verb, cas) in [("get", ""), ("gets", " 1"), ("gat 0", "")] {
        let mut dialogue = Dialogue::new();
        assert_eq!(dialogue.advance(b"set a 0 0 1\r\nx\r\n").0, "STORED\r\n");
        // A key that is a verb, first in its turn.
        let keys = [" b".repeat(1023), " a get a".to_owned(), " b".repeat(3000), " a ".to_owned()];
        for end in ["\r\n", "\n"] {
            let input = format!("{verb}{}{end}get a\r\n", keys.concat());
            let (said, turns) = whole(&mut dialogue, input.as_bytes());
            let (one, last) = (format!("VALUE a 0 1{cas}\r\nx\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
            assert_eq!(said, format!("{}END\r\n{last}", one.repeat(3)), "{verb}");
            assert_eq!(turns, 4027_usize.div_ceil(1024));
        }
    }
}

#[test]
fn the_end_of_a_long_line_is_found_in_pieces() {
    let keys = b" key".repeat(3000);
    for (input, pieces) in [
        ([b"get", &keys[..], b"\r\nget a\r\n"].concat(), [1, 1400, 2048]),
        ([b"  gets", &keys[..], b"\nget a\r\n"].concat(), [7, 2049, 5000]),
        // No get: an end that is far from the start, and a block without one.
        (
            [b"set a 0 0 5000", &b" ".repeat(2100)[..], b"\r\n", &[b'v'; 5000], b"XXget a\r\n"]
                .concat(),
            [2200, 3000, 7117],
        ),
    ] {
        let (want, closed, _) = converse(&input, input.len(), 1 << 20);
        assert!(want.ends_with(b"END\r\n") && !closed);
        for piece in pieces {
            let (said, closed, _) = converse(&input, piece, 1 << 20);
            assert_eq!((&said, closed), (&want, false), "{piece}");
        }
    }
    for (text, closed_at) in [(b"foo ", 2049), (b"get ", (1 << 20) + 1)] {
        let mut dialogue = Dialogue::new();
        let line = text.repeat((1 << 18) + 1);
        let ends = [2000, 2048, 2049, 5000, 1 << 20, (1 << 20) + 1];
        let end = ends.into_iter().find(|&end| dialogue.advance(&line[..end]).1.close);
        assert_eq!(end, Some(closed_at));
    }
}

/// `-C`: every item's is 0, shown or compared.
#[test]
fn without_cas_ids_meta_commands_know_none_either() {
    let mut dialogue = Dialogue::new();
    dialogue.server.cas_enabled = false;
    for (request, reply) in [
        ("ms a 1 c\r\n1", "HD c0"),
        ("mg a c v", "VA 1 c0\r\n1"),
        ("ma a c", "HD c0"),
        ("md a C5", "EX"),
        ("ma a C5", "EX"),
        ("ms a 1 C0\r\n1", "EX"),
        ("ms a 1 MA C0\r\n1", "HD"),
        ("md a C0", "HD"),
        ("mg a", "EN"),
    ] {
        let (said, _) = dialogue.advance(format!("{request}\r\n").as_bytes());
        assert_eq!(said, format!("{reply}\r\n"), "{request}");
    }
}

/// Requests of all kinds, most of them plain, and some that are none.
fn requests() -> impl Strategy<Value = Vec<u8>> {
    let value = |len: usize| "v".repeat(len);
    let request = prop_oneof![
        6 => (0..4).prop_map(|k| format!("get k{k}\r\n")),
        1 => (0..4).prop_map(|k| format!("get k{k}\n")),
        1 => (0..4).prop_map(|k| format!("get  k{k} k1\r\n")),
        1 => (0..4).prop_map(|k| format!("gets k{k}\r\n")),
        1 => (240_usize..260).prop_map(|len| format!("get {}\r\n", "k".repeat(len))),
        5 => (0..4, 0_usize..300).prop_map(move |(k, n)| format!("set k{k} 1 0 {n}\r\n{}\r\n", value(n))),
        1 => (0..4, 900_usize..3000).prop_map(move |(k, n)| format!("set k{k} 1 0 {n}\r\n{}\r\n", value(n))),
        1 => (0..4).prop_map(|k| format!("set k{k} 1 0 3 noreply\r\nxyz\r\n")),
        1 => (0..4).prop_map(|k| format!("set k{k} 0 0 2\r\nxyz\r\n")),
        1 => (0..4).prop_map(|k| format!("delete k{k}\r\n")),
        1 => Just("get\r\n".to_owned()),
        1 => Just("set k 1\r\n".to_owned()),
        1 => Just("flush_all\r\n".to_owned()),
    ];
    prop::collection::vec(request, 0..40).prop_map(|all| all.concat().into_bytes())
}

proptest! {
    /// Runs of plain requests are answered and counted as the executor answers and counts them,
    /// wherever the input is cut, however little room there is, and however short turns are.
    #[test]
    fn runs_are_what_the_executor_makes_of_them(
        input in requests(),
        cuts in prop::collection::vec(1_usize..400, 1..30),
        room in prop_oneof![Just(1_usize << 20), 1_usize..3000],
        most in prop_oneof![Just(usize::MAX), 1_usize..6],
    ) {
        let carry_out = |one_by_one: bool| {
            let mut dialogue = Dialogue::new();
            dialogue.conversation = Conversation::new(2500).in_turns_of(most);
            dialogue.conversation.one_by_one = one_by_one;
            let (mut come, mut waiting, mut said) = (&input[..], Vec::new(), Vec::new());
            let mut steps = Vec::new();
            let mut cuts = cuts.iter().cycle();
            loop {
                let piece = come.split_off(..come.len().min(*cuts.next().unwrap())).unwrap();
                waiting.extend_from_slice(piece);
                loop {
                    let mut out = Vec::new();
                    let Dialogue { session, ops, server, conversation, .. } = &mut dialogue;
                    let mut ctx = Ctx::new(session, ops, server);
                    let buffer = Buffer::new(&mut out, room).limited_to(room.max(4000));
                    let p = conversation.advance(&mut ctx, &waiting, buffer);
                    waiting.drain(..p.consumed);
                    said.extend_from_slice(&out);
                    steps.push((p, out.len()));
                    if p.close || p.consumed == 0 && out.is_empty() {
                        break;
                    }
                }
                if come.is_empty() {
                    break;
                }
            }
            (said, steps, waiting, format!("{:?}", dialogue.server.totals()))
        };
        let (runs, one_by_one) = (carry_out(false), carry_out(true));
        prop_assert_eq!(String::from_utf8_lossy(&runs.0), String::from_utf8_lossy(&one_by_one.0));
        prop_assert_eq!(runs, one_by_one);
    }
}
