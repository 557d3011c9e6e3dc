//! One-sided reads: queue pairs opened over TCP, READs answered straight from the store.

use crate::rdma_client::{Requester, Response, Stag, icrc, line, stag, store};
use crate::stream_client::{Client, ip};
use crate::world::{SERVER4, SERVER6, World, Wrap};
use dataplane::policy::{Policy, Rate};
use std::num::{NonZeroU32, NonZeroU64};
use wire::{AllowList, DropReason};

fn world() -> World {
    World::one_sided(&AllowList::default(), Policy::default())
}

/// The fields of an image: status, key, value, client's flags, seconds left, CAS id.
#[derive(Debug, PartialEq, Eq)]
struct Item<'a> {
    status: u8,
    key: &'a [u8],
    value: &'a [u8],
    flags: u32,
    seconds_left: u32,
    cas: u64,
}

/// Takes an image apart as a client must: `None` if it is of two versions.
fn open(image: &[u8]) -> Option<Item<'_>> {
    let n = |at: usize| u32::from_be_bytes(image[at..at + 4].try_into().unwrap());
    let (key_len, value_len) = (usize::from(image[1]), n(4) as usize);
    let (image, crc) = image.split_last_chunk::<4>().unwrap();
    let held = if image[0] == 0 { (key_len, value_len) } else { (0, 0) };
    if image[28..32] != image[image.len() - 4..] || 32 + held.0 + held.1 + 4 > image.len() {
        return None;
    }
    let (key, behind) = image[32..].split_at(held.0);
    let (value, rest) = behind.split_at(held.1);
    if crc32fast::hash(&[&image[24..32], key, value].concat()).to_be_bytes() != *crc {
        return None;
    }
    assert!(rest[..rest.len() - 4].iter().all(|b| *b == 0) && image[2..4] == [0, 0]);
    let cas = u64::from_be_bytes(image[16..24].try_into().unwrap());
    Some(Item { status: image[0], key, value, flags: n(8), seconds_left: n(12), cas })
}

fn value_of(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| u8::try_from(n % 251).unwrap() ^ seed).collect()
}

#[test]
fn values_are_read_by_stag_and_overwritten_and_read_again() {
    for (wrap, to) in [(Wrap::V4, ip(SERVER4)), (Wrap::V6, ip(SERVER6))] {
        for mtu in [256, 512, 1024] {
            let mut w = world();
            let mut client = Client::new();
            let c = client.connect(to);
            let mut qp = Requester::connect(&mut client, &mut w, c, wrap, (0xff_fff0, mtu));
            let mut reads = 0;
            for len in [0, 1, 2, 3, 5, 100, 980, 981, 1024, 5000, 65_536] {
                let key = format!("key-of-{len}");
                let first = value_of(len, 1);
                let named = store(&mut client, &mut w, c, &key, &first);
                let image = qp.fetch(&mut client, &mut w, named);
                let item = open(&image).unwrap();
                assert_eq!((item.status, item.key, item.value), (0, key.as_bytes(), &first[..]));
                assert_eq!((item.flags, item.seconds_left), (7, u32::MAX));
                let second = value_of(len, 2);
                assert_eq!(store(&mut client, &mut w, c, &key, &second), named, "it moved");
                let image = qp.fetch(&mut client, &mut w, named);
                assert_eq!(open(&image).unwrap().value, second);
                reads += 2;
            }
            let c0 = &w.counters[0];
            assert_eq!((c0.rdma_reads.get(), c0.rdma_refused.get()), (reads, 0));
            assert_eq!(w.server.totals().get_hits, reads);
            let timed =
                w.server.distributions().into_iter().find(|d| d.transport == "rdma").unwrap();
            assert_eq!((timed.kind, timed.count), ("get", reads));
            assert_eq!(w.end().dropped.iter().map(|(_, n)| n).sum::<u64>(), 0);
        }
    }
}

#[test]
fn what_is_not_there_is_a_status_and_what_is_longer_too() {
    let mut w = world();
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    let mut qp = Requester::connect(&mut client, &mut w, c, Wrap::V4, (5, 1024));
    let named = store(&mut client, &mut w, c, "k", b"sunny");
    assert_eq!(named.len, 32 + 1 + 5 + 8);
    let said = line(&mut client, &mut w, c, b"mg k s c g t\r\n");
    let cas = said.split(" c").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert_eq!(stag(said.split(" g").nth(1).unwrap().trim_end_matches(" t-1\r\n")), named);
    let image = qp.fetch(&mut client, &mut w, named);
    assert_eq!(open(&image).unwrap().cas, cas);

    // Longer than the READ: the head says how long.
    store(&mut client, &mut w, c, "k", b"sunny!");
    let image = qp.fetch(&mut client, &mut w, named);
    assert_eq!((image[0], image[1], &image[4..8]), (2, 1, &[0, 0, 0, 6][..]));
    assert!(open(&image).unwrap().value.is_empty());

    // Shorter: zeros behind it.
    assert_eq!(line(&mut client, &mut w, c, b"ms k 1 T60\r\nx\r\n"), "HD\r\n");
    let image = qp.fetch(&mut client, &mut w, named);
    let item = open(&image).unwrap();
    assert_eq!((item.value, item.flags), (&b"x"[..], 0));
    assert!((55..=60).contains(&item.seconds_left));

    for gone in [&b"delete k\r\n"[..], b"ms k 1 T-1 g\r\nx\r\n", b"flush_all\r\n"] {
        store(&mut client, &mut w, c, "k", b"sunny");
        assert_eq!(open(&qp.fetch(&mut client, &mut w, named)).unwrap().status, 0);
        line(&mut client, &mut w, c, gone);
        let image = qp.fetch(&mut client, &mut w, named);
        assert_eq!(image[0], 1);
        assert!(image[1..image.len() - 4].iter().all(|b| *b == 0));
        assert!(open(&image).is_some());
    }
    assert_eq!(w.counters[0].rdma_refused.get(), 0);

    // Too long to be read at once: there is no stag. A key in base64 has one.
    let long = value_of(66_000, 0);
    let said = line(&mut client, &mut w, c, &[b"ms l 66000 g\r\n", &long[..], b"\r\n"].concat());
    assert_eq!(said, "HD\r\n");
    let said = line(&mut client, &mut w, c, b"ms AAH/ 2 b g k\r\nhi\r\n");
    let (named, rest) = said.strip_prefix("HD g").unwrap().split_once(" k").unwrap();
    assert_eq!(rest, "AAH/ b\r\n");
    let image = qp.fetch(&mut client, &mut w, stag(named));
    assert_eq!(open(&image).unwrap().key, [0, 1, 0xff]);
    w.end();
}

fn nak(psn: u32, syndrome: u8, msn: u32) -> Vec<Response> {
    let (aeth, payload) = (Some((syndrome, msn)), Vec::new());
    vec![Response { opcode: 0x11, psn, aeth, payload }]
}

#[test]
fn lost_and_repeated_requests_are_answered_as_the_specification_says() {
    let mut w = world();
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    let mut qp = Requester::connect(&mut client, &mut w, c, Wrap::V4, (0xff_ffff, 1024));
    let value = value_of(4000, 3);
    let named = store(&mut client, &mut w, c, "k", &value);
    let whole = qp.fetch(&mut client, &mut w, named);
    assert_eq!(qp.psn, 3);

    // The client lost what came after the first response: it goes on there.
    let again = Requester { psn: 0, ..qp };
    let rest = again.ask(&mut client, &mut w, &again.read(named.stag, 1024, named.len - 1024));
    let payload: Vec<u8> = rest.iter().flat_map(|r| r.payload.clone()).collect();
    assert_eq!(payload, whole[1024..]);
    assert_eq!((rest[0].psn, rest[0].opcode, rest.len()), (0, 0x0d, 3));
    assert_eq!(w.counters[0].rdma_repeated.get(), 1);

    // Overwritten meanwhile: both halves together are of two versions, and show it.
    store(&mut client, &mut w, c, "k", &value_of(4000, 4));
    let rest = again.ask(&mut client, &mut w, &again.read(named.stag, 1024, named.len - 1024));
    let torn = [&whole[..1024], &rest.iter().flat_map(|r| r.payload.clone()).collect::<Vec<_>>()];
    assert_eq!(open(&torn.concat()), None);
    // On a network that reorders packets, one of the first responses can come after those of the second:
    // both ends are of one version, and what lies between is of the other.
    let mut mixed = whole.clone();
    mixed[1024..2048].copy_from_slice(&rest[0].payload);
    assert_eq!(open(&mixed), None);
    assert_eq!(open(&whole).unwrap().value, value);

    // A request was lost: the next is refused once, and then no more until the lost one comes.
    let later = Requester { psn: 8, ..qp };
    let ask = later.read(named.stag, 0, named.len);
    assert_eq!(later.ask(&mut client, &mut w, &ask), nak(3, 0x60, 1));
    assert_eq!(later.ask(&mut client, &mut w, &ask), []);
    assert_eq!(w.dropped(DropReason::RdmaSequence), 1);
    qp.fetch(&mut client, &mut w, named);
    assert_eq!(qp.psn, 7);
    assert_eq!(qp.fetch(&mut client, &mut w, named).len(), named.len as usize);
    // Earlier, but reaching beyond what was answered.
    let early = Requester { psn: 10, ..qp };
    assert_eq!(early.ask(&mut client, &mut w, &early.read(named.stag, 0, 60_000)), []);
    assert_eq!(w.dropped(DropReason::RdmaSequence), 2);
    w.end();
}

#[test]
fn what_is_not_permitted_is_refused_and_ends_the_pair() {
    let mut w = world();
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    let named = store(&mut client, &mut w, c, "k", b"sunny");
    let Stag { stag, len } = named;
    type Make = fn(&Requester, u64, u32) -> Vec<u8>;
    let asks: [(Make, u8); 8] = [
        // Another R_Key: what is so named is no stag, but for one in 65,536.
        (|qp, stag, len| qp.read(stag ^ 0xdead_beef << 32, 0, len), 0x62),
        (|qp, stag, len| qp.read(stag, u32::MAX, len), 0x62),
        // One that ends beyond the longest.
        (|qp, stag, _| qp.read(stag, 65_826 - 39, 40), 0x62),
        (|qp, stag, _| qp.read(stag, 0, 39), 0x62),
        (|qp, stag, _| qp.read(stag, 0, 70_000), 0x61),
        (|qp, stag, _| qp.read(stag, 0, u32::MAX), 0x61),
        // SEND, and compare and swap.
        (|qp, _, _| qp.packet(0x04, &[0; 64]), 0x61),
        (|qp, _, _| qp.packet(0x13, &[0; 28]), 0x61),
    ];
    for (make, syndrome) in asks {
        let mut qp = Requester::connect(&mut client, &mut w, c, Wrap::V4, (9, 1024));
        qp.fetch(&mut client, &mut w, named);
        let got = qp.ask(&mut client, &mut w, &make(&qp, stag, len));
        assert_eq!(got, nak(10, syndrome, 1), "{syndrome:x}");
        // It is over.
        let before = w.dropped(DropReason::RdmaNoQueuePair);
        assert_eq!(qp.ask(&mut client, &mut w, &qp.read(stag, 0, len)), []);
        assert_eq!(w.dropped(DropReason::RdmaNoQueuePair), before + 1);
    }
    // A READ of nothing is one of anything.
    let qp = Requester::connect(&mut client, &mut w, c, Wrap::V4, (9, 1024));
    let got = qp.ask(&mut client, &mut w, &qp.read(1, 0, 0));
    assert_eq!((got.len(), got[0].opcode, got[0].payload.len()), (1, 0x10, 0));
    w.end();
}

#[test]
fn each_drop_has_its_name_and_nothing_goes_out() {
    use DropReason as R;
    let mut w = world();
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    let qp = Requester::connect(&mut client, &mut w, c, Wrap::V4, (9, 1024));
    let Stag { stag, len } = store(&mut client, &mut w, c, "k", b"sunny");
    let good = qp.read(stag, 0, len);
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let icrc = icrc(&bytes);
        let end = bytes.len() - 4;
        bytes[end..].copy_from_slice(&icrc.to_le_bytes());
        bytes
    };
    let v6 = Requester { wrap: Wrap::V6, ..qp };
    let guessed = Requester { to: qp.to ^ 1 << 20, ..qp };
    let mut bad_sum = good.clone();
    bad_sum[24] ^= 1;
    let mut bad_icrc = good.clone();
    *bad_icrc.last_mut().unwrap() ^= 1;
    for (bytes, reason) in [
        (bad_icrc, R::RdmaIcrc),
        (bad_sum, R::Ipv4Checksum),
        // Transport version 1.
        (with(&|b| b[43] |= 1), R::RdmaMalformed),
        (qp.packet(0x0c, &[0; 15]), R::RdmaMalformed),
        (qp.packet(0x11, &[0; 4]), R::RdmaNotRequest),
        // Unreliable datagram.
        (qp.packet(0x64, &[0; 8]), R::RdmaNotRequest),
        (guessed.read(stag, 0, len), R::RdmaNoQueuePair),
        (v6.read(stag, 0, len), R::RdmaNoQueuePair),
        (Requester { to: 1, ..qp }.read(stag, 0, len), R::RdmaNoQueuePair),
    ] {
        let before = w.dropped(reason);
        w.send(&bytes);
        w.settle();
        assert_eq!(w.dropped(reason), before + 1, "{}", reason.name());
        assert!(qp.come(&mut client, &mut w).is_empty());
    }
    // Another thread has the pair.
    {
        let pairs = w.server.rdma.as_ref().unwrap().pairs.clone();
        let held = pairs.pair(qp.to).unwrap().lock();
        assert_eq!(qp.ask(&mut client, &mut w, &good), []);
        drop(held);
    }
    assert_eq!(w.dropped(R::RdmaBusy), 1);
    // More than wait.
    for _ in 0..300 {
        w.send(&good);
    }
    w.settle();
    let answered = qp.come(&mut client, &mut w).len();
    assert_eq!(answered as u64 + w.dropped(R::RdmaFull), 300);
    // With a right number but from behind another address nothing is said either; closed with the
    // connection it is gone.
    client.close(&mut w, c);
    let before = w.dropped(R::RdmaNoQueuePair);
    assert_eq!(qp.ask(&mut client, &mut w, &good), []);
    assert_eq!(w.dropped(R::RdmaNoQueuePair), before + 1);
    assert_eq!(w.server.rdma.as_ref().unwrap().pairs.open_now(), 0);
    w.end();
}

#[test]
fn a_turn_reads_no_more_than_its_share_and_the_rest_waits() {
    let mut w = world();
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    let mut qp = Requester::connect(&mut client, &mut w, c, Wrap::V4, (0, 1024));
    let named = store(&mut client, &mut w, c, "k", &value_of(30_000, 9));
    w.settle();
    qp.come(&mut client, &mut w);
    let packets = named.len.div_ceil(1024);
    for _ in 0..6 {
        w.send(&qp.read(named.stag, 0, named.len));
        qp.psn += packets;
    }
    for turn in 1..=3 {
        w.workers[0].turn();
        assert_eq!(qp.come(&mut client, &mut w).len(), 2 * packets as usize);
        assert_eq!(w.ledger().in_flight, 6 - 2 * turn);
        assert!(w.ledger().balances());
    }
    w.end();
}

#[test]
fn sources_that_are_not_trusted_have_their_rate_and_no_source_has_a_pair_elsewhere() {
    let requests = Rate { requests: NonZeroU32::new(4), reply_bytes: None };
    // A response without a byte of an item has bytes, too.
    let bytes = Rate { requests: None, reply_bytes: NonZeroU64::new(100) };
    for (source, reason) in
        [(requests, DropReason::RateSource), (bytes, DropReason::RateSourceBytes)]
    {
        let mut w = World::one_sided(
            &AllowList::default(),
            Policy { trusted_source: source, ..Policy::default() },
        );
        let mut client = Client::new();
        let c = client.connect(ip(SERVER4));
        let qp = Requester::connect(&mut client, &mut w, c, Wrap::V4, (0, 1024));
        for _ in 0..50 {
            w.send(&qp.read(0, 0, 0));
            w.settle();
        }
        assert!(w.dropped(reason) > 20, "{reason:?}");
        assert!(qp.come(&mut client, &mut w).len() < 10);
        w.end();
    }

    let mut w = world();
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    for (ask, reply) in [
        ("rdma 7 0 ::ffff:10.0.0.9 1024", "CLIENT_ERROR the GID is not this connection's address"),
        ("rdma 7 0 fd00::1 1024", "CLIENT_ERROR the GID is not this connection's address"),
        ("rdma 7 0 ::ffff:10.0.0.1 4096", "CLIENT_ERROR the path MTU must be 256, 512 or 1024"),
        ("rdma 7 0 ::ffff:10.0.0.1", "CLIENT_ERROR bad command line format"),
        ("md k g", "CLIENT_ERROR invalid or duplicate flag"),
        ("mg k gx", "CLIENT_ERROR invalid flag"),
        ("mg k g", "EN"),
    ] {
        assert_eq!(
            line(&mut client, &mut w, c, format!("{ask}\r\n").as_bytes()),
            format!("{reply}\r\n")
        );
    }
    assert_eq!(
        w.ask(b"rdma 7 0 ::ffff:10.0.0.1 1024\r\n"),
        b"SERVER_ERROR command not available over UDP\r\n"
    );
    w.end();
}

#[test]
fn without_one_sided_reads_all_is_as_ever() {
    let mut w = World::streaming(2, |q, _| q);
    let mut client = Client::new();
    let c = client.connect(ip(SERVER4));
    for (ask, reply) in [
        ("rdma 7 0 ::ffff:10.0.0.1 1024", "ERROR"),
        ("rdma", "ERROR"),
        ("mg k g", "CLIENT_ERROR invalid flag"),
        ("ms k 1 g\r\nx", "CLIENT_ERROR invalid flag"),
        ("mg k", "EN"),
    ] {
        assert_eq!(
            line(&mut client, &mut w, c, format!("{ask}\r\n").as_bytes()),
            format!("{reply}\r\n")
        );
    }
    assert_eq!(w.ask(b"rdma 7 0 ::ffff:10.0.0.1 1024\r\n"), b"ERROR\r\n");
    let qp = Requester { wrap: Wrap::V4, to: 4097, psn: 0, mtu: 1024 };
    w.send(&qp.read(1, 0, 100));
    w.settle();
    assert_eq!(w.dropped(DropReason::NoExceptionPath), 1);
    w.end();
}
