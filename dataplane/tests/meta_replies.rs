//! Meta commands and what memcached 1.6.18 answered to them, asked one by one on a fresh store.
//!
//! Each pair was recorded from the genuine server, with `\n` for line ends, `c#` for CAS ids and `#`
//! for the class and size of an item. Where we answer otherwise on purpose, docs/protocol.md says why.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use dataplane::commands::{Buffer, Conversation, Ctx};
use dataplane::observe::{OpCounters, Server};
use driver_shim::Pages;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use store::{Session, Store, StoreConfig};

/// What is stored before each case. CAS id 1 is none of theirs.
const BEFORE: &str =
    "set first 0 0 0\n\nset foo 5 0 3\nold\nset num 7 0 2\n10\nset ttl 0 100 1\nx\n";

struct Client {
    session: Session,
    server: Arc<Server>,
    ops: Arc<OpCounters>,
}

impl Client {
    fn new(server: &Arc<Server>) -> Self {
        let session = server.store.session().unwrap();
        Self { session, server: Arc::clone(server), ops: server.ops() }
    }

    /// The answer to whole commands, whose line ends are written `\n`.
    fn ask(&mut self, text: &str) -> String {
        let input: Vec<u8> = text.replace('\n', "\r\n").chars().map(|c| c as u8).collect();
        let mut out = Vec::new();
        let mut ctx = Ctx::new(&mut self.session, &self.ops, &self.server);
        let p =
            Conversation::new(1 << 20).advance(&mut ctx, &input, Buffer::new(&mut out, usize::MAX));
        assert_eq!((p.consumed, p.close), (input.len(), false), "{text}");
        let text: String = out.into_iter().map(char::from).collect();
        text.replace("\r\n", "\n")
    }
}

fn server() -> Arc<Server> {
    let config =
        StoreConfig { memory_bytes: 8 << 20, pages: Pages::Small, ..StoreConfig::default() };
    Arc::new(Server::new(Store::new(config).unwrap(), "test".to_owned()))
}

/// Puts `#` for numbers that are each server's own.
fn normal(answer: &str) -> String {
    let word = |word: &str| {
        let (text, end) = word.strip_suffix('\n').map_or((word, ""), |text| (text, "\n"));
        let own = |name: &str| {
            let number = text.strip_prefix(name)?;
            let digits = number.bytes().all(|b| b.is_ascii_digit()) && !number.is_empty();
            // What a case chose itself is longer.
            let own = digits && number != "0" && number.len() < 4;
            own.then(|| format!("{name}#{end}"))
        };
        ["c", "cas=", "cls=", "size="].into_iter().find_map(own).unwrap_or_else(|| word.to_owned())
    };
    let line = |line: &str| line.split(' ').map(word).collect::<Vec<_>>().join(" ");
    answer.split_inclusive('\n').map(line).collect()
}

fn replies(cases: &[(&str, &str)]) {
    for (asked, want) in cases {
        let mut client = Client::new(&server());
        client.ask(BEFORE);
        assert_eq!(normal(&client.ask(&format!("{asked}\n"))), *want, "to {asked:?}");
    }
}

#[test]
fn one_client_wins_and_all_others_are_told_so() {
    const THREADS: usize = 4;
    const ROUNDS: usize = 300;
    let server = server();
    let wins: Vec<AtomicUsize> = (0..ROUNDS).map(|_| AtomicUsize::new(0)).collect();
    let mut client = Client::new(&server);
    for (round, wins) in wins.iter().enumerate() {
        // Every other one is there and out of date; the rest are made by the first who asks.
        if round % 2 == 0 {
            client.ask(&format!("set k{round} 0 0 1\n1\nmd k{round} I\n"));
        }
        std::thread::scope(|scope| {
            for n in 0..THREADS {
                let mut client = Client::new(&server);
                scope.spawn(move || {
                    let answer = client.ask(&format!("mg k{round} N30 R60\n"));
                    let won = answer.contains('W');
                    assert_ne!(won, answer.contains('Z'), "{answer}");
                    wins.fetch_add(usize::from(won), Ordering::Relaxed);
                    // Counting hands on what was won.
                    if n == 0 {
                        client.ask(&format!("ma k{round}\n"));
                    }
                });
            }
        });
    }
    assert!(wins.iter().all(|w| w.load(Ordering::Relaxed) == 1), "{wins:?}");
}

#[test]
fn a_store_of_too_much_leaves_nothing() {
    let big = "v".repeat(1_100_000);
    for mode in ["", " ME", " MA", " C1", " b"] {
        let mut client = Client::new(&server());
        client.ask("ms Zm9v 3 b\nold\n");
        let key = if mode == " b" { "Zm9v" } else { "foo" };
        let answer = client.ask(&format!("ms {key} 1100000 q{mode}\n{big}\nmg foo v\n"));
        assert_eq!(answer, "SERVER_ERROR object too large for cache\nEN\n", "{mode}");
    }
}

#[test]
fn what_is_counted() {
    let server = server();
    let mut client = Client::new(&server);
    client.ask(BEFORE);
    client.ask("mg foo\nmg nope\nmg foo T0\nmg nope T0\nmg new N30\nme foo\nme nope\nmn\n");
    client.ask("ms foo 1\nx\nms foo 1 C1\nx\nms nope 1 C1\nx\nmd nope\nmd ttl C1\nmd ttl\n");
    client.ask("md foo I\nma num\nma nope\nma nope MD\nma num MD\nma n1 N0\nma num C1\nma foo\n");
    let t = server.totals();
    assert_eq!((t.cmd_get, t.get_hits, t.get_misses), (4, 2, 2));
    assert_eq!((t.cmd_touch, t.touch_hits, t.touch_misses, t.cmd_meta), (1, 1, 0, 2));
    assert_eq!((t.cmd_set, t.cas_hits, t.cas_badval, t.cas_misses), (7, 0, 1, 1));
    assert_eq!((t.delete_hits, t.delete_misses), (1, 2));
    assert_eq!((t.incr_hits, t.incr_misses, t.decr_hits, t.decr_misses), (1, 1, 1, 1));
}

#[test]
fn look_ups() {
    replies(&[
        ("mn", "MN\n"),
        ("mn x y", "MN\n"),
        ("mg", "ERROR\n"),
        ("mg foo", "HD\n"),
        ("mg foo v", "VA 3\nold\n"),
        ("mg foo k c f h l O1 s t u v", "VA 3 kfoo c# f5 h0 l0 O1 s3 t-1\nold\n"),
        ("mg nope", "EN\n"),
        ("mg nope k O123", "EN knope O123\n"),
        ("mg nope q", ""),
        ("mg nope q k O1\nmn", "MN\n"),
        ("mg foo q v", "VA 3\nold\n"),
        ("mg foo f123 vx", "VA 3 f5\nold\n"),
        ("mg foo u\nmg foo h\nmg foo h", "HD\nHD h0\nHD h1\n"),
        ("mg foo T30 t\nmg foo t\nmg foo t T0\nmg foo t", "HD t30\nHD t30\nHD t30\nHD t-1\n"),
        ("mg foo T-1\nmg foo", "HD\nEN\n"),
        ("mg foo C1 D1 F1 I J1 L MX P S1", "CLIENT_ERROR invalid flag\n"),
        ("mg foo C1 D1 F1 I J1 L MX P v", "VA 3\nold\n"),
        (" mg  foo   k  v ", "VA 3 kfoo\nold\n"),
        ("mg fo\x01o k", "EN kfo\x01o\n"),
        ("MG foo", "ERROR\n"),
        ("mgg foo", "ERROR\n"),
        ("mx foo", "ERROR\n"),
        ("m", "ERROR\n"),
        ("mg HTTP/1.1 k", "EN kHTTP/1.1\n"),
        ("mg foo\nset foo 0 0 1\nx\nmg foo h\nmg foo h", "HD\nSTORED\nHD h0\nHD h1\n"),
    ]);
}

#[test]
fn look_ups_that_create_or_claim() {
    replies(&[
        (
            "mg ttl R10\nmg ttl R101 t\nmg ttl R101 t\nmg ttl\nmg foo R101",
            "HD\nHD t100 W\nHD t100 Z\nHD Z\nHD\n",
        ),
        ("mg ttl T50 R60\nmg ttl R60", "HD W\nHD Z\n"),
        ("mg ttl R60 T50\nmg ttl t R60", "HD\nHD t50 W\n"),
        (
            "mg nope N30 v t k s h f\nmg nope v t N30 R60 h\nadd nope 0 0 1\nx\nms nope 1\ny\nmg nope v t",
            "VA 0 t30 knope s0 h0 f0 W\n\nVA 0 t30 h1 Z\n\nNOT_STORED\nHD\nVA 1 t-1\ny\n",
        ),
        ("mg nope N30 T60 t\nmg nope t", "HD t60 W\nHD t60 Z\n"),
        ("mg nope T60 N30 t\nmg nope t", "HD t30 W\nHD t30 Z\n"),
        ("mg nope N30 t T60\nmg nope t", "HD t30 W\nHD t60 Z\n"),
        ("mg nope T60 N0 t", "HD t-1 W\n"),
        ("mg nope N30 q\nmg nope q", "HD W\nHD Z\n"),
        ("mg foo N0 v", "VA 3\nold\n"),
    ]);
}

#[test]
fn stores() {
    replies(&[
        ("ms", "ERROR\n"),
        ("ms foo", "CLIENT_ERROR bad command line format\n"),
        ("ms foo x", "CLIENT_ERROR bad command line format\n"),
        ("ms foo -1", "CLIENT_ERROR bad command line format\n"),
        ("ms foo S3\nabc", "CLIENT_ERROR bad command line format\nERROR\n"),
        ("ms foo 3x", "CLIENT_ERROR bad command line format\n"),
        ("ms foo 2147483646", "CLIENT_ERROR bad command line format\n"),
        ("ms foo b 3", "CLIENT_ERROR bad command line format\n"),
        ("ms foo 3\nabc\nmg foo v f t", "HD\nVA 3 f0 t-1\nabc\n"),
        ("ms foo 3 T100 F9 k O1\nabc\nmg foo v f t", "HD kfoo O1\nVA 3 f9 t100\nabc\n"),
        ("ms foo 0\n\nmg foo v", "HD\nVA 0\n\n"),
        ("ms foo +3\nabc", "HD\n"),
        ("ms foo 3 q\nabc\nmg foo v", "VA 3\nabc\n"),
        ("ms foo 3 I k O1\nabc", "HD kfoo O1\n"),
        ("ms foo 3 s v t f h l u N0 R0 J1 D1\nabc", "HD s3\n"),
        ("ms foo 3\nabcdef\nmn", "CLIENT_ERROR bad data chunk\nERROR\nMN\n"),
        ("ms foo 3 q\nabcdef\nmn", "CLIENT_ERROR bad data chunk\nERROR\nMN\n"),
        ("ms foo 3 T-1\nabc\nmg foo", "HD\nEN\n"),
    ]);
}

#[test]
fn ways_to_store() {
    replies(&[
        ("ms foo 3 ME\nabc\nms nope 3 ME\nabc", "NS\nHD\n"),
        ("ms foo 3 MA F9\nabc\nmg foo v f", "HD\nVA 6 f5\noldabc\n"),
        ("ms foo 3 MP\nabc\nmg foo v", "HD\nVA 6\nabcold\n"),
        ("ms nope 3 MA k O1 c q\nabc", "NS knope O1 c0\n"),
        ("ms foo 3 MR\nabc\nms nope 3 MR c O1\nabc", "HD\nNS c0 O1\n"),
        ("ms foo 3 MS\nabc", "HD\n"),
        ("ms foo 3 Ms\nabc\nmn", "CLIENT_ERROR invalid mode for ms M token\nMN\n"),
        ("ms foo 3 MX O123\nabc\nmn", "CLIENT_ERROR invalid mode for ms M token\nMN\n"),
        ("ms nope 3 C5 c k\nabc", "NF c0 knope\n"),
        ("ms nope 3 C5 MR c\nabc", "NF c0\n"),
        ("ms nope 3 C5 MA c\nabc", "NS c0\n"),
        ("ms nope 3 C5 I c\nabc", "NF c0\n"),
        ("ms foo 3 C18446744073709551615\nabc", "EX\n"),
        ("ms foo 3 C18446744073709551615 I c\nabc", "EX c0\n"),
        ("ms foo 3 C1 MA\nabc\nms foo 3 C0 MA\nabc\nmg foo v", "EX\nHD\nVA 6\noldabc\n"),
        ("ms foo 3 C1 ME c\nabc", "NS c0\n"),
        ("ms foo 3 C0 I c\nabc", "EX c0\n"),
        ("ms foo 3 C1 q\nabc\nms nope 3 C1 q\nabc\nms foo 3 ME q\nabc", "EX\nNF\nNS\n"),
    ]);
}

#[test]
fn deletes() {
    replies(&[
        ("md", "ERROR\n"),
        ("md foo k O1\nmg foo", "HD kfoo O1\nEN\n"),
        ("md nope k O1", "NF knope O1\n"),
        ("md foo q\nmd nope q", "NF\n"),
        ("md foo C1 q k", "EX kfoo\n"),
        ("md foo C0", "EX\n"),
        ("md nope C1", "NF\n"),
        ("md foo T30\nmg foo", "HD\nEN\n"),
        ("md foo c t v f s h l u N30", "HD\n"),
        ("md foo Cx", "CLIENT_ERROR invalid or duplicate flag\n"),
        ("md foo q q", "CLIENT_ERROR invalid or duplicate flag\n"),
        ("md foo 0", "CLIENT_ERROR invalid or duplicate flag\n"),
        ("md foo noreply", "CLIENT_ERROR invalid or duplicate flag\n"),
        ("md nope I", "NF\n"),
    ]);
}

#[test]
fn stale_items() {
    replies(&[
        (
            "md foo I\nmg foo k v\nmg foo k v\nmg foo v R30 N30\nms foo 1\nx\nmg foo v",
            "HD\nVA 3 kfoo X W\nold\nVA 3 kfoo Z X\nold\nVA 3 Z X\nold\nHD\nVA 1\nx\n",
        ),
        ("md foo I T30\nmg foo t", "HD\nHD t30 X W\n"),
        ("md foo I q\nmg foo\nmd foo I\nmg foo", "HD X W\nHD\nHD X W\n"),
        ("md foo I T-1\nmg foo", "HD\nEN\n"),
        ("md foo I C1\nmg foo", "EX\nHD\n"),
        ("md foo I\nmg foo\nms foo 1 C1 I\nx\nmg foo", "HD\nHD X W\nHD\nHD Z X\n"),
        ("ms foo 1 C1 I T100 F3\nx\nmg foo f t v\nmg foo", "HD\nVA 1 f3 t-1 X W\nx\nHD Z X\n"),
        ("md foo I\nappend foo 0 0 1\nx\nmg foo v", "HD\nSTORED\nVA 4\noldx\n"),
        (
            "md foo I\ntouch foo 0\nget foo\nmg foo",
            "HD\nTOUCHED\nVALUE foo 5 3\nold\nEND\nHD X W\n",
        ),
        ("md num I\nma num v\nmg num v", "HD\nVA 2\n11\nVA 2 X W\n11\n"),
        ("mg foo\nmd foo I\nmg foo h", "HD\nHD\nHD h1 X W\n"),
    ]);
}

#[test]
fn counting() {
    replies(&[
        ("ma", "ERROR\n"),
        ("ma foo", "CLIENT_ERROR cannot increment or decrement non-numeric value\n"),
        ("ma num", "HD\n"),
        ("ma num v", "VA 2\n11\n"),
        ("ma num v t k O1", "VA 2 t-1 knum O1\n11\n"),
        ("ma num v t T30\nmg num t", "VA 2 t-1\n11\nHD t30\n"),
        ("ma num T30 t v", "VA 2 t30\n11\n"),
        ("ma nope", "NF\n"),
        ("ma nope k O1 q", "NF knope O1\n"),
        ("ma nope N0\nmg nope v t f", "HD\nVA 1 t-1 f0\n0\n"),
        ("ma nope N0 J5 v", "VA 1\n5\n"),
        ("ma nope N30 J5 t v T60\nmg nope t", "VA 1 t30\n5\nHD t60\n"),
        ("ma nope N30 J5 T60 t v", "VA 1 t60\n5\n"),
        ("ma nope T60 N30 t v", "VA 1 t30\n0\n"),
        ("ma nope q N0", "HD\n"),
        ("ma num q\nma num q v k O1\nmg num v", "VA 2\n12\n"),
        ("ma num D5 v", "VA 2\n15\n"),
        ("ma num D18446744073709551615 v", "VA 1\n9\n"),
        ("ma num MD D3 v", "VA 1\n7\n"),
        ("ma num M- D30 v", "VA 1\n0\n"),
        ("ma num M+ v", "VA 2\n11\n"),
        ("ma num MI v", "VA 2\n11\n"),
        ("ma num Md", "CLIENT_ERROR invalid mode for ma M token\n"),
        ("ma num Mi", "CLIENT_ERROR invalid mode for ma M token\n"),
        ("ma num Mincr", "CLIENT_ERROR invalid or duplicate flag\n"),
        ("ma num C1 v q k O1", "EX knum O1\n"),
        ("ma num C0 v", "VA 2\n11\n"),
        ("ma nope N0 J18446744073709551615 v\nma nope v", "VA 20\n18446744073709551615\nVA 1\n0\n"),
        ("ma num Jx", "CLIENT_ERROR invalid or duplicate flag\n"),
        ("ma num D-1", "CLIENT_ERROR invalid or duplicate flag\n"),
        ("ma num f s h l u v F5 I R0", "VA 2\n11\n"),
    ]);
}

/// As memcached 1.6.45 answers.
#[test]
fn what_came_after_1_6_18() {
    replies(&[
        ("mg foo v c\nmg foo s v C1", "VA 3 c#\nold\nVA 3 s3\nold\n"),
        ("ms k 3 T30 s\nabc\nms k 2 MA s\nde\nmg k v t", "HD s3\nHD s5\nVA 5 t30\nabcde\n"),
        ("ms k 2 MP s\nde", "NS s2\n"),
        ("ms k 2 MP N30 s F7\nde\nmg k v t f", "HD s2\nVA 2 t30 f7\nde\n"),
        ("ms foo 2 MA N30 s\nde\nmg foo v t", "HD s5\nVA 5 t-1\noldde\n"),
        ("md foo x\nmg foo v f t", "HD\nVA 0 f0 t-1\n\n"),
        ("md foo x I T30\nmg foo v t", "HD\nVA 0 t30 X W\n\n"),
        ("md foo x C1\nmg foo v", "EX\nVA 3\nold\n"),
        ("md nope x", "NF\n"),
        // CAS ids of the client's own.
        (
            "ms k 3 E7000 c\nabc\nmg k c v\ngets k",
            "HD c7000\nVA 3 c7000\nabc\nVALUE k 0 3 7000\nabc\nEND\n",
        ),
        (
            "ms foo 1 E7000\nn\nms foo 1 C7000 E7001 c\nx\nms foo 1 C7000\ny\nmg foo v c C7001",
            "HD\nHD c7001\nEX\nHD c7001\n",
        ),
        ("ms foo 1 E7000\nn\ncas foo 0 0 1 7000\nm\ncas foo 0 0 1 7000\nm", "HD\nSTORED\nEXISTS\n"),
        ("ms foo 1 MA E7000\nx\nms foo 1 MP E7001 c\ny\nmg foo v", "HD\nHD c7001\nVA 5\nyoldx\n"),
        ("ms foo 1 E9000\nn\nms foo 1 I C8000 E8500\no\nmg foo v c", "HD\nHD\nVA 1 c8500 X W\no\n"),
        ("ms foo 1 ME E7000\nn\nms foo 1 E0\nn\nms foo 1 C0\nn", "NS\nHD\nEX\n"),
        ("mg nope N30 E7000 c\nmg nope N30 E7001 c", "HD c7000 W\nHD c7000 Z\n"),
        ("mg foo T30 E7000\nmd foo C7000", "HD\nEX\n"),
        (
            "ma num E7000 c\nma num C7000 E7001 c\nma num C7000\nma num E0 c",
            "HD c7000\nHD c7001\nEX\nHD c0\n",
        ),
        ("ma nope N0 J5 E7000 c v\nma nope C7000 v", "VA 1 c7000\n5\nVA 1\n6\n"),
        ("md foo I E7000\nmg foo c", "HD\nHD c7000 X W\n"),
        ("md foo x E7000\nmg foo c v\nmd foo C7000 E1\nmg foo", "HD\nVA 0 c7000\n\nHD\nEN\n"),
        (
            "ms foo 1 E7000\nn\nmd foo x\nmg foo c\nmd foo x I\nmd foo C7000",
            "HD\nHD\nHD c7000\nHD\nEX\n",
        ),
        (
            "ms foo 1 Ex\nn\nmd foo E-1\nma num E18446744073709551616",
            "CLIENT_ERROR bad token in command line format\nCLIENT_ERROR invalid or duplicate flag\nCLIENT_ERROR invalid or duplicate flag\n",
        ),
        (
            "ms foo 1 E18446744073709551615 c\nn\nmg foo c",
            "HD c18446744073709551615\nHD c18446744073709551615\n",
        ),
    ]);
    // Whoever has the value already does not get it again.
    let mut client = Client::new(&server());
    client.ask(BEFORE);
    let cas = client.ask("mg foo c\n").trim_start_matches("HD c").trim().to_owned();
    assert_eq!(client.ask(&format!("mg foo v k C{cas}\n")), "HD kfoo\n");
}

#[test]
fn faults_in_flags() {
    replies(&[
        ("mg foo v v", "CLIENT_ERROR duplicate flag\n"),
        ("mg foo ff f", "CLIENT_ERROR duplicate flag\n"),
        ("mg foo E", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo S", "CLIENT_ERROR invalid flag\n"),
        ("mg foo 1", "CLIENT_ERROR invalid flag\n"),
        ("mg foo ~", "CLIENT_ERROR invalid flag\n"),
        ("mg foo M", "CLIENT_ERROR incorrect length for M token\n"),
        ("mg foo MTT", "CLIENT_ERROR incorrect length for M token\n"),
        ("mg foo J", "CLIENT_ERROR invalid numeric initial value\n"),
        ("mg foo D", "CLIENT_ERROR invalid numeric delta value\n"),
        ("mg foo Dx", "CLIENT_ERROR invalid numeric delta value\n"),
        ("mg foo F", "CLIENT_ERROR bad command line format\n"),
        ("mg foo Fx", "CLIENT_ERROR bad command line format\n"),
        ("mg foo T", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo Tx", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo Nx", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo Rx", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo T5x", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo Cx", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo T9999999999999999999999", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo Tx M", "CLIENT_ERROR incorrect length for M token\n"),
        ("mg foo M Tx", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo Fx Tx", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo Tx Fx", "CLIENT_ERROR bad token in command line format\n"),
        ("mg foo Tx zz", "CLIENT_ERROR invalid flag\n"),
        ("mg foo Tx b", "CLIENT_ERROR error decoding key\n"),
        ("ms foo 3 zz\nabc\nmn", "CLIENT_ERROR invalid flag\nMN\n"),
        ("ms foo 3 v v\nabc\nmn", "CLIENT_ERROR duplicate flag\nMN\n"),
        ("ms foo 3 Tx\nabc\nmn", "CLIENT_ERROR bad token in command line format\nMN\n"),
        ("ms foo 3 Fx\nabc\nmn", "CLIENT_ERROR bad command line format\nMN\n"),
        ("ms foo 3 F 5\nabc\nmn", "CLIENT_ERROR invalid flag\nMN\n"),
        ("ms foo 3 C\nabc\nmn", "CLIENT_ERROR bad token in command line format\nMN\n"),
        ("ms foo 3 M\nabc\nmn", "CLIENT_ERROR incorrect length for M token\nMN\n"),
        ("ms foo 3 J\nabc\nmn", "CLIENT_ERROR invalid numeric initial value\nMN\n"),
        ("mg foo Oooooooooooooooooooooooooooooooo", "HD Oooooooooooooooooooooooooooooooo\n"),
        ("mg foo Ooooooooooooooooooooooooooooooooo", "CLIENT_ERROR opaque token too long\n"),
        (
            "ms foo 3 Ooooooooooooooooooooooooooooooooo\nabc\nmn",
            "CLIENT_ERROR opaque token too long\nMN\n",
        ),
        (
            "ms foo 3 q Ooooooooooooooooooooooooooooooooo zz\nabc\nmn",
            "CLIENT_ERROR invalid flag\nMN\n",
        ),
        (
            "ms foo 3 Ooooooooooooooooooooooooooooooooo MX\nabc\nmn",
            "CLIENT_ERROR invalid mode for ms M token\nMN\n",
        ),
        (
            "md foo Ooooooooooooooooooooooooooooooooo\nmg foo",
            "CLIENT_ERROR opaque token too long\nHD\n",
        ),
        ("mg nope c f h k l O s t u v P L T0 R1 D1 J1 C1", "EN knope O\n"),
        (
            "mg nope c f h k l O s t u v P L T0 R1 D1 J1 C1 I",
            "CLIENT_ERROR options flags are too long\n",
        ),
        (
            "md nope c f h k l O s t u v P L T0 R1 D1 J1 C1 I",
            "CLIENT_ERROR options flags too long\n",
        ),
        (
            "ma nope c f h k l O s t u v P L T0 R1 D1 J1 C1 I",
            "CLIENT_ERROR options flags too long\n",
        ),
        (
            "ms foo 3 c f h k l O s t u v P L T0 R1 D1 J1 C1\nabc\nmn",
            "CLIENT_ERROR options flags too long\nMN\n",
        ),
        (
            "mg kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
            "CLIENT_ERROR bad command line format\n",
        ),
        (
            "md kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
            "CLIENT_ERROR bad command line format\n",
        ),
        (
            "ma kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
            "CLIENT_ERROR bad command line format\n",
        ),
        (
            "me kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk",
            "CLIENT_ERROR bad command line format\n",
        ),
        (
            "ms kkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkkk 3\nabc\nmn",
            "CLIENT_ERROR bad command line format\nMN\n",
        ),
    ]);
}

#[test]
fn keys_in_base64() {
    replies(&[
        ("mg Zm9v b k v", "VA 3 kfoo\nold\n"),
        ("mg Zm9v k b", "HD kfoo\n"),
        ("mg bm9w b k", "EN kbm9w b\n"),
        ("mg foo b", "CLIENT_ERROR error decoding key\n"),
        ("mg Zm9v= b", "CLIENT_ERROR error decoding key\n"),
        ("mg Zm9vYg b", "CLIENT_ERROR error decoding key\n"),
        ("mg Zm9vYg=== b", "CLIENT_ERROR error decoding key\n"),
        ("mg ==== b", "CLIENT_ERROR error decoding key\n"),
        ("mg Zm9v bxx k", "HD kfoo\n"),
        (
            "ms Zm9v 3 b k O1 F5\nabc\nmg foo k v f\nget foo\nset foo 0 0 1\nx\nmg Zm9v b k",
            "HD kZm9v b O1\nVA 3 kZm9v b f5\nabc\nVALUE foo 5 3\nabc\nEND\nSTORED\nHD kfoo\n",
        ),
        ("ms !!! 3 b\nabc\nmn", "CLIENT_ERROR error decoding key\nMN\n"),
        ("md Zm9v b k O1", "HD kZm9v b O1\n"),
        ("md foo b", "CLIENT_ERROR invalid or duplicate flag\n"),
        ("ma bnVt b k v", "VA 2 kbnVt b\n11\n"),
        ("ma bm9w k b", "NF kbm9w b\n"),
        (
            "ms YQo= 2 b k\n99\nmg YQo= b k v\nmd YQo= b k\nmg YQo= b k",
            "HD kYQo= b\nVA 2 kYQo= b\n99\nHD kYQo= b\nEN kYQo= b\n",
        ),
        ("ms AAECIA== 2 b k\n99\nmg AAECIA== b k v", "HD kAAECIA== b\nVA 2 kAAECIA== b\n99\n"),
        ("ms bm9w 2 b\n99\nmd bm9w b I\nmg nope k\nmg nop k", "HD\nHD\nEN knope\nHD kbm9w b X W\n"),
    ]);
}

#[test]
fn questions_about_items() {
    replies(&[
        ("me", "CLIENT_ERROR bad command line format\n"),
        ("me nope", "EN\n"),
        ("me foo", "ME foo exp=-1 la=0 cas=# fetch=no cls=# size=#\n"),
        ("me ttl", "ME ttl exp=-100 la=0 cas=# fetch=no cls=# size=#\n"),
        ("mg foo\nme foo", "HD\nME foo exp=-1 la=0 cas=# fetch=yes cls=# size=#\n"),
        ("me Zm9v b", "ME foo exp=-1 la=0 cas=# fetch=no cls=# size=#\n"),
        ("me foo b", "CLIENT_ERROR bad command line format\n"),
        ("me !!!! b", "CLIENT_ERROR bad command line format\n"),
        ("me foo x b", "ME foo exp=-1 la=0 cas=# fetch=no cls=# size=#\n"),
        ("me foo bx", "ME foo exp=-1 la=0 cas=# fetch=no cls=# size=#\n"),
        (
            "ms bm9w 2 b\n99\nme nop\nme bm9w b",
            "HD\nME bm9w exp=-1 la=0 cas=# fetch=no cls=# size=#\nME bm9w exp=-1 la=0 cas=# fetch=no cls=# size=#\n",
        ),
    ]);
}
