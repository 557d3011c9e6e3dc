//! Sources that are served but not trusted: bounded replies, bounded rates, every drop by name.

use crate::world::{CLIENT_PORT, PORT, SERVER4, SERVER6, World, datagram};
use dataplane::Ledger;
use dataplane::policy::{Policy, Rate};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use memcache::Store as SetRequest;
use memcache::binary::Header;
use proptest::prelude::*;
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64};
use store::verbs;
use wire::DropReason;
use wire::build::{UdpFrame, arp_request, echo_request, neighbour_solicit};
use wire::{AllowList, Cidr};

/// On the server's own networks: trusted.
const FRIEND: &str = "10.0.0.1";
/// Served, not trusted.
const OTHER: &str = "192.0.2.1";
const OTHER6: &str = "2001:db8::1";
/// Not served.
const STRANGER: &str = "203.0.113.1";

pub(crate) fn networks(list: &[&str]) -> AllowList {
    list.iter().map(|n| n.parse::<Cidr>().unwrap()).collect()
}

fn world(policy: Policy) -> World {
    World::policed(&networks(&["192.0.2.0/24", "2001:db8::/32"]), policy)
}

pub(crate) fn rate(requests: u32, reply_bytes: u64) -> Rate {
    Rate { requests: NonZeroU32::new(requests), reply_bytes: NonZeroU64::new(reply_bytes) }
}

pub(crate) fn request(from: &str, text: &[u8]) -> Vec<u8> {
    let src: IpAddr = from.parse().unwrap();
    let dst: IpAddr = if src.is_ipv4() { SERVER4.into() } else { SERVER6.into() };
    UdpFrame {
        src_mac: PEER_MAC,
        dst_mac: MAC,
        vlans: &[],
        src: (src, CLIENT_PORT).into(),
        dst: (dst, PORT).into(),
        payload: &datagram(7, text),
    }
    .to_vec()
    .unwrap()
}

/// The UDP payloads of the answer.
pub(crate) fn ask(w: &mut World, from: &str, text: &[u8]) -> Vec<Vec<u8>> {
    w.send(&request(from, text));
    w.settle();
    w.received(0).iter().map(|f| payload(f.bytes()).to_vec()).collect()
}

fn payload(frame: &[u8]) -> &[u8] {
    &frame[if frame[12..14] == [0x86, 0xdd] { 62 } else { 42 }..]
}

pub(crate) fn text(datagrams: &[Vec<u8>]) -> Vec<u8> {
    datagrams.iter().flat_map(|d| d[8..].to_vec()).collect()
}

/// Stores behind the worker's back, as TCP would.
pub(crate) fn store(w: &World, key: &str, len: usize) {
    let mut session = w.store.session().unwrap();
    let value = vec![b'v'; len];
    verbs::store(&mut session, None, &SetRequest::set(key.as_bytes(), 0, 0, &value)).unwrap();
}

pub(crate) fn drops(ledger: &Ledger) -> Vec<(DropReason, u64)> {
    ledger.dropped.iter().filter(|(_, n)| **n > 0).map(|(r, n)| (r, *n)).collect()
}

#[test]
fn three_times_the_request_passes_and_one_byte_more_does_not() {
    let mut w = world(Policy::default());
    // `get k` is 15 bytes with its frame header, so 45 may come back.
    let fits = 45 - 8 - b"VALUE k 0 16\r\n\r\nEND\r\n".len();
    assert_eq!(fits, 16);
    for from in [OTHER, OTHER6] {
        store(&w, "k", fits);
        let got = ask(&mut w, from, b"get k\r\n");
        assert_eq!(got.iter().map(Vec::len).sum::<usize>(), 45);
        assert!(text(&got).ends_with(b"v\r\nEND\r\n"));
        store(&w, "k", fits + 1);
        let got = ask(&mut w, from, b"get k\r\n");
        assert_eq!(text(&got), b"SERVER_ERROR too large, use TCP\r\n");
    }
    assert_eq!(w.counters[0].amplification_refused.get(), 2);
    assert_eq!(w.end().answered, 4);
}

/// What the client is not sent, it has not got: neither the right to fetch the value anew nor another end of it.
#[test]
fn what_is_refused_has_changed_nothing() {
    const REFUSED: &[u8] = b"SERVER_ERROR too large, use TCP\r\n";
    let mut w = world(Policy::default());
    store(&w, "k", 1000);
    let mut is = |from: &str, request: &str, reply: &str| {
        let got = ask(&mut w, from, request.as_bytes());
        assert_eq!(String::from_utf8_lossy(&text(&got)), reply, "{request}");
    };
    let refused = std::str::from_utf8(REFUSED).unwrap();
    is(FRIEND, "mg k T20 t\r\n", "HD t20\r\n");
    is(OTHER, "mg k v R30 t\r\n", refused);
    is(OTHER, "mg k v T100\r\n", refused);
    is(OTHER, "gat -1 k\r\n", refused);
    is(OTHER, "gats 100 k\r\n", refused);
    is(FRIEND, "mg k t\r\n", "HD t20\r\n");
    // Nor have those behind it, which the refusal answers, too.
    is(OTHER, "get k\r\nmg k T100\r\n", refused);
    is(FRIEND, "mg k t\r\n", "HD t20\r\n");
    is(OTHER, "mg k R30 s\r\n", "HD s1000 W\r\n");
    is(OTHER, "mg k R30 s\r\n", "HD s1000 Z\r\n");
}

/// As far as the last byte: `gat 9 k` is 17 bytes with its frame header, so 51 may come back, and `mg k v T9` 19.
#[test]
fn what_just_fits_is_changed_and_sent() {
    let mut w = world(Policy::default());
    for (request, beside) in [
        ("gat 9 k\r\n", "VALUE k 0 22\r\n\r\nEND\r\n".len()),
        ("mg k v T9\r\n", "VA 39\r\n\r\n".len()),
    ] {
        let fits = 3 * (8 + request.len()) - 8 - beside;
        for (len, sent) in [(fits + 1, false), (fits, true)] {
            store(&w, "k", len);
            let got = ask(&mut w, OTHER, request.as_bytes());
            assert_eq!(text(&got).ends_with(b"use TCP\r\n"), !sent, "{request} {len}");
            let ttl = text(&ask(&mut w, FRIEND, b"mg k t\r\n"));
            assert_eq!(
                ttl,
                if sent { &b"HD t9\r\n"[..] } else { b"HD t-1\r\n" },
                "{request} {len}"
            );
        }
    }
}

#[test]
fn the_factor_is_the_operators() {
    for (factor, len, answer) in [
        (1, 1, None),
        (2, 2, Some(&b"VALUE k 0 2\r\nvv\r\nEND\r\n"[..])),
        (2, 3, None),
        (3, 300, Some(b"SERVER_ERROR too large, use TCP\r\n")),
        (100, 300, Some(b"VALUE k 0 300\r\nvvv")),
        (100, 3000, Some(b"SERVER_ERROR too large, use TCP\r\n")),
        (1000, 3000, Some(b"VALUE k 0 3000\r\nvvv")),
    ] {
        let mut w =
            world(Policy { amp_factor: NonZeroU32::new(factor).unwrap(), ..Policy::default() });
        store(&w, "k", len);
        let got = ask(&mut w, OTHER, b"get k\r\n");
        match answer {
            Some(answer) => assert!(text(&got).starts_with(answer), "{factor} {len}"),
            None => assert!(got.is_empty(), "{factor} {len}"),
        }
        let ledger = w.end();
        let dropped = u64::from(answer.is_none());
        assert_eq!(*ledger.dropped.of(DropReason::Amplification), dropped);
        assert_eq!(ledger.answered, 1 - dropped);
    }
}

#[test]
fn trusted_sources_are_answered_in_full_beside_others_that_are_not() {
    let mut w = world(Policy::default());
    store(&w, "big", 100_000);
    store(&w, "small", 3);
    for _ in 0..3 {
        let whole = text(&ask(&mut w, FRIEND, b"get big\r\n"));
        assert_eq!(whole.len(), b"VALUE big 0 100000\r\n\r\nEND\r\n".len() + 100_000);
        for from in [OTHER, OTHER6] {
            let refused = text(&ask(&mut w, from, b"get big\r\n"));
            assert_eq!(refused, b"SERVER_ERROR too large, use TCP\r\n");
            let hit = text(&ask(&mut w, from, b"get small\r\n"));
            assert_eq!(hit, b"VALUE small 0 3\r\nvvv\r\nEND\r\n");
            assert_eq!(text(&ask(&mut w, from, b"get none\r\n")), b"END\r\n");
            assert_eq!(text(&ask(&mut w, from, b"set s 0 0 1\r\nx\r\n")), b"STORED\r\n");
            // One reply for the datagram, so one refusal; what it changed is changed.
            let both = b"set t 0 0 1\r\nx\r\nget big\r\n";
            let refused = text(&ask(&mut w, from, both));
            assert_eq!(refused, b"SERVER_ERROR too large, use TCP\r\n");
            assert_eq!(text(&ask(&mut w, from, b"delete t\r\n")), b"DELETED\r\n");
            assert!(ask(&mut w, from, b"delete s noreply\r\n").is_empty());
        }
        assert!(ask(&mut w, STRANGER, b"get small\r\n").is_empty());
    }
    let ledger = w.end();
    assert_eq!(ledger.answered, 3 * (1 + 2 * 7));
    assert_eq!(drops(&ledger), [(DropReason::SourceNotAllowed, 3)]);
}

/// All that is sent before `settle` is taken in within one turn, which reads the clock once: how
/// many pass a full bucket is exact.
fn burst(w: &mut World, from: &str, n: usize) {
    for _ in 0..n {
        w.send(&request(from, b"get k\r\n"));
    }
    w.settle();
}

#[test]
fn sources_above_their_rate_are_dropped_by_name_and_hurt_nobody() {
    let mut w = world(Policy { source: rate(5, 0), total: rate(8, 0), ..Policy::default() });
    for (from, n) in [(OTHER, 20), (OTHER6, 20), (FRIEND, 20)] {
        for _ in 0..n {
            w.send(&request(from, b"get k\r\n"));
        }
    }
    w.settle();
    let ledger = w.end();
    assert_eq!(ledger.answered, 5 + 3 + 20);
    assert_eq!(ledger.received, 60);
    assert_eq!(drops(&ledger), [(DropReason::RateSource, 15 + 15), (DropReason::RateTotal, 2)]);
}

#[test]
fn trusted_sources_have_a_rate_when_one_is_asked_for() {
    let mut w = world(Policy { trusted_source: rate(4, 0), ..Policy::default() });
    burst(&mut w, FRIEND, 10);
    burst(&mut w, OTHER, 10);
    let ledger = w.end();
    assert_eq!(ledger.answered, 4 + 10);
    assert_eq!(drops(&ledger), [(DropReason::RateSource, 6)]);
}

#[test]
fn bytes_of_replies_are_paid_for_by_the_source_that_got_them() {
    // One reply is worth more seconds than the test takes, however slow the machine.
    let mut w =
        world(Policy { trusted_source: rate(0, 1000), total: rate(0, 50), ..Policy::default() });
    store(&w, "big", 200_000);
    assert!(text(&ask(&mut w, FRIEND, b"get big\r\n")).len() > 200_000);
    assert!(ask(&mut w, FRIEND, b"get k\r\n").is_empty());
    // Another one of the same network is not concerned.
    assert_eq!(text(&ask(&mut w, "10.0.0.9", b"get k\r\n")), b"END\r\n");
    // Requests taken in together are answered; that overdraws the account of all.
    burst(&mut w, OTHER, 60);
    let answered = w.received(0).len();
    assert_eq!(answered, 60);
    assert!(ask(&mut w, OTHER6, b"get k\r\n").is_empty());
    let ledger = w.end();
    assert_eq!(drops(&ledger), [(DropReason::RateSourceBytes, 1), (DropReason::RateTotalBytes, 1)]);
}

#[test]
fn pings_and_neighbour_answers_are_limited_apart() {
    let mut w = World::policed(
        &AllowList::default(),
        Policy { answers: NonZeroU32::new(10), ..Policy::default() },
    );
    let echo = echo_request([PEER_MAC, MAC], FRIEND.parse().unwrap(), SERVER4.into(), b"ping");
    let mut broken = echo.clone();
    *broken.last_mut().unwrap() ^= 1;
    let arp = arp_request(PEER_MAC, [10, 0, 0, 1].into(), SERVER4.into());
    let solicit = neighbour_solicit(PEER_MAC, "fd00::1".parse().unwrap(), SERVER6.into());
    // What is malformed takes nothing from what is not.
    for _ in 0..10 {
        w.send(&broken);
    }
    for frame in [&echo, &arp, &solicit] {
        for _ in 0..12 {
            w.send(frame);
        }
    }
    w.settle();
    assert_eq!(w.received(0).len(), 20);
    let responded = w.counters[0].responded.get();
    let ledger = w.end();
    assert_eq!((ledger.answered, responded), (20, 20));
    assert_eq!(
        drops(&ledger),
        [
            (DropReason::IcmpMalformed, 10),
            (DropReason::RateEcho, 2),
            (DropReason::RateNeighbour, 14)
        ]
    );
}

/// Lines that a client may send, and some that none should.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let key = prop::sample::select(vec!["a", "b", "c", "d", "e", "none", "a-rather-long-key"]);
    prop_oneof![
        4 => prop::collection::vec(key.clone(), 1..20)
            .prop_map(|keys| format!("get {}\r\n", keys.join(" ")).into_bytes()),
        2 => prop::collection::vec(key.clone(), 1..4)
            .prop_map(|keys| format!("gets {}\r\n", keys.join(" ")).into_bytes()),
        2 => (key.clone(), 0..200usize)
            .prop_map(|(k, n)| format!("set {k} 0 0 {n}\r\n{}\r\n", "x".repeat(n)).into_bytes()),
        1 => key.prop_map(|k| format!("delete {k}\r\n").into_bytes()),
        1 => prop::sample::select(vec!["stats\r\n", "version\r\n", "bogus\r\n", "\n", "quit\r\n"])
            .prop_map(|l| l.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 1..40),
        1 => binary_get(),
    ]
}

/// A binary packet that asks for a value which fits into one datagram, or for one that does not.
fn binary_get() -> impl Strategy<Value = Vec<u8>> {
    const GET_GETQ_GETK_NONE: [u8; 4] = [0x00, 0x09, 0x0c, 0x7f];
    (prop::sample::select(&GET_GETQ_GETK_NONE), prop::sample::select(b"bd"))
        .prop_map(|(opcode, key)| Header::request(opcode).packet(b"", &[key], b"").unwrap())
}

/// Whether that is the one datagram which says that the answer is too much, in either dialect. No
/// other binary answer here is "too large", as nothing larger than the limit is stored.
fn is_refusal(datagrams: &[Vec<u8>]) -> bool {
    match datagrams {
        [one] => one.ends_with(b"too large, use TCP\r\n") || one.ends_with(b"Too large."),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn no_reply_to_an_untrusted_source_is_above_the_factor(
        factor in 1u32..12,
        requests in prop::collection::vec(prop::collection::vec(line(), 1..4), 1..40),
    ) {
        let mut w = world(Policy { amp_factor: NonZeroU32::new(factor).unwrap(), ..Policy::default() });
        for (n, key) in ["a", "b", "c", "d", "e"].into_iter().enumerate() {
            store(&w, key, [0, 5, 60, 1500, 30_000][n]);
        }
        let (mut sent, mut refused, mut replies) = (0, 0, 0);
        for (n, lines) in requests.iter().enumerate() {
            let from = if n % 2 == 0 { OTHER } else { OTHER6 };
            let text = lines.concat();
            let got = ask(&mut w, from, &text);
            let bytes: usize = got.iter().map(Vec::len).sum();
            let most = factor as usize * (8 + text.len());
            prop_assert!(bytes <= most, "{bytes} > {most} for {}", text.escape_ascii());
            sent += 1;
            replies += u64::from(!got.is_empty());
            let counted = w.counters[0].amplification_refused.get() - refused;
            refused += counted;
            prop_assert_eq!(counted, u64::from(is_refusal(&got)), "{}", text.escape_ascii());
        }
        let ledger = w.end();
        let silenced = *ledger.dropped.of(DropReason::Amplification);
        prop_assert_eq!(ledger.answered + silenced, sent);
        prop_assert!(replies <= ledger.answered);
        prop_assert_eq!(drops(&ledger).iter().map(|(_, n)| n).sum::<u64>(), silenced);
    }
}
