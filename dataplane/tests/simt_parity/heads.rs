//! The heads that helpers write are what stages 6 and 7 send.

use crate::requests::keys;
use crate::rng::Rng;
use crate::world::{PORT, SERVER4, SERVER6, World};
use crate::{BATCH, SETASSOC, SLOT_BYTES, bench, put};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use gpu::layout::HEAD_BYTES_MAX;
use gpu::{Entry, EntryFlags, Hint, ReplyHead};
use memcache::Store as SetRequest;
use std::net::{IpAddr, SocketAddr};
use store::verbs;
use wire::build::UdpFrame;

/// RFC 1071, word by word.
fn sum(start: u32, bytes: &[u8]) -> u16 {
    let words = bytes.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(*w.get(1).unwrap_or(&0)));
    let sum = start + words.sum::<u32>();
    u16::try_from((sum & 0xffff) + (sum >> 16)).unwrap_or_else(|_| {
        let once = (sum & 0xffff) + (sum >> 16);
        u16::try_from((once & 0xffff) + (once >> 16)).unwrap()
    })
}

/// A request for `key`, with much in its headers that a reply must not repeat.
fn request(rng: &mut Rng, key: &[u8]) -> (Vec<u8>, Entry) {
    let ipv6 = rng.one_in(2);
    let vlans = &[7, 8][..rng.below(3)];
    let own: IpAddr = if ipv6 { SERVER6.into() } else { SERVER4.into() };
    let host = 1 + rng.byte() % 200;
    let peer: IpAddr = if ipv6 {
        let mut peer = SERVER6;
        peer[15] = host.max(3);
        peer.into()
    } else {
        [10, 0, 0, host.max(3)].into()
    };
    let port = 20_000 + u16::from(rng.byte());
    let id = u16::from_be_bytes([rng.byte(), rng.byte()]);
    let mut payload = id.to_be_bytes().to_vec();
    payload.extend([0, rng.byte(), 0, 1, 0, rng.byte()]);
    payload.extend_from_slice(b"get ");
    payload.extend_from_slice(key);
    payload.extend_from_slice(rng.one_of(&[&b"\r\n"[..], b"\n"]));
    let frame = UdpFrame {
        src_mac: PEER_MAC,
        dst_mac: MAC,
        vlans,
        src: SocketAddr::new(peer, port),
        dst: SocketAddr::new(own, PORT),
        payload: &payload,
    };
    let mut bytes = frame.to_vec().unwrap();
    let l3 = 14 + 4 * vlans.len();
    if ipv6 {
        bytes[l3 + 1..l3 + 4].fill(0x5a);
        bytes[l3 + 7] = 9;
    } else {
        // Class, id, time to live: the header's sum follows.
        bytes[l3 + 1] = 3;
        bytes[l3 + 4..l3 + 6].copy_from_slice(&[rng.byte(), rng.byte()]);
        bytes[l3 + 8] = 9;
        bytes[l3 + 10..l3 + 12].fill(0);
        let field = !sum(0, &bytes[l3..l3 + 20]);
        bytes[l3 + 10..l3 + 12].copy_from_slice(&field.to_be_bytes());
    }
    let l3 = u8::try_from(l3).unwrap();
    let entry = Entry {
        l3,
        l4: l3 + if ipv6 { 40 } else { 20 },
        flags: EntryFlags(u8::from(ipv6)),
        len: u16::try_from(bytes.len()).unwrap(),
        ..Entry::default()
    };
    (bytes, entry)
}

/// What the head of this reply should be: nothing where the value is not in it, or too much is.
fn check(head: &ReplyHead, reply: &[u8], entry: &Entry) {
    let l4 = usize::from(entry.l4);
    let text = &reply[l4 + 16..];
    let line = text.windows(2).position(|w| w == b"\r\n").unwrap() + 2;
    let len = l4 + 16 + line;
    if len > HEAD_BYTES_MAX {
        assert_eq!(head.len, 0);
        return;
    }
    assert_eq!((usize::from(head.len), head.has_line), (len, 1));
    let mut want = reply.to_vec();
    want[l4 + 6..l4 + 8].fill(0);
    assert_eq!(head.bytes(), &want[..len]);
    // The sum of the head, and of what comes behind it, is the reply's.
    let behind =
        if line % 2 == 0 { sum(0, &want[len..]) } else { sum(0, &want[len..]).swap_bytes() };
    let field = match !sum(u32::from(head.sum) + u32::from(behind), &[]) {
        0 => 0xffff,
        field => field,
    };
    assert_eq!(field.to_be_bytes(), reply[l4 + 6..l4 + 8]);
}

#[test]
fn heads_are_what_rooms_6_and_7_send() {
    let mut rng = Rng(4000);
    let mut bench = bench(SETASSOC, 4000);
    let mut world = World::new();
    let mut session = world.store.session().unwrap();
    let keys = keys(&mut rng, 300);
    let mut ops = Vec::new();
    let (mut values, mut with, mut without) = (Vec::new(), 0, 0);
    for (i, key) in keys.iter().enumerate() {
        let value_len = rng.one_of(&[0, 1, 9, 10, 99, 100, 999, 1000, 1300]) + rng.below(40);
        let flags = rng.one_of(&[0, 9, 10, u32::MAX, 12345]);
        let value = rng.bytes(value_len);
        verbs::store(&mut session, None, &SetRequest::set(key, flags, 0, &value)).unwrap();
        values.push((flags, value_len));
        ops.push(put(key, u32::try_from(i).unwrap(), flags, u32::try_from(value_len).unwrap()));
    }
    drop(session);
    bench.update(&ops, 1, 8).unwrap();
    for round in 0..12 {
        let mut packets = Vec::new();
        for slot in 0..BATCH {
            let i = rng.below(keys.len());
            let (bytes, mut entry) = request(&mut rng, &keys[i]);
            entry.slot = u32::try_from(slot).unwrap();
            let off = rng.below(SLOT_BYTES as usize - bytes.len() + 1);
            entry.off = u16::try_from(off).unwrap();
            bench.slot(entry.slot)[off..off + bytes.len()].copy_from_slice(&bytes);
            packets.push((i, bytes, entry));
        }
        let entries: Vec<_> = packets.iter().map(|p| p.2).collect();
        bench.get(&entries, 2, true, 1 + round).unwrap();
        for (n, (i, bytes, entry)) in packets.iter().enumerate() {
            let (desc, head) = (&bench.descs()[n], &bench.heads()[n]);
            assert_eq!(desc.keys[0].hint, Hint::HIT);
            let (flags, value_len) = values[*i];
            world.send(bytes);
            world.settle();
            let replies = world.received(0);
            assert!(!replies.is_empty());
            if replies.len() > 1 {
                assert_eq!(head.len, 0, "more than one datagram");
                without += 1;
                continue;
            }
            check(head, replies[0].bytes(), entry);
            if head.len == 0 {
                without += 1;
                continue;
            }
            assert_eq!((head.flags, head.value_len as usize), (flags, value_len));
            with += 1;
        }
    }
    assert!(with > 1000 && without > 500, "{with} {without}");
    world.end();
}

/// Nothing but a hit of one plain get has a head.
#[test]
fn no_head_without_a_hit() {
    let mut rng = Rng(5000);
    let mut bench = bench(SETASSOC, 0);
    bench.update(&[put(b"here", 1, 2, 3)], 1, 1).unwrap();
    let mut entries = Vec::new();
    for key in [&b"here"[..], b"gone", b"here here", b"here ", b"here  "] {
        let (bytes, mut entry) = request(&mut rng, key);
        entry.slot = u32::try_from(entries.len()).unwrap();
        bench.slot(entry.slot)[..bytes.len()].copy_from_slice(&bytes);
        entries.push(entry);
    }
    // A damaged one.
    let mut damaged = entries[0];
    damaged.slot = 9;
    let bytes = bench.slot(0).to_vec();
    bench.slot(9).copy_from_slice(&bytes);
    bench.slot(9)[usize::from(damaged.len) - 2] ^= 1;
    entries.push(damaged);
    bench.get(&entries, 2, true, 1).unwrap();
    let lens: Vec<bool> = bench.heads().iter().map(|h| h.len > 0).collect();
    assert_eq!(lens, [true, false, false, true, false, false]);
}
