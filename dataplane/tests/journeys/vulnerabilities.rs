//! The holes that others had in their UDP framing, one test each: none of them is here.

use crate::world::{CLIENT_PORT, PORT, World, Wrap, frame};
use memcache::Store as SetRequest;
use store::verbs;
use wire::DropReason;

/// CVE-2022-48571: a request that says it comes in several datagrams. Dropped by name, and the
/// next client is served.
#[test]
fn a_request_in_several_datagrams_is_dropped_quietly() {
    let mut w = World::new();
    let totals = [0u16, 2, 3, 255, 256, 257, 0x7FFF, 0x8000, 0xFFFF];
    for text in [
        &b"get k\r\n"[..],
        b"set k 0 0 100\r\nhi",
        b"\x80\x0a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ] {
        for (seq, total) in
            totals.into_iter().flat_map(|total| [(0, total), (1, total), (total, total)])
        {
            let [a, b] = u16::to_be_bytes(seq);
            let [c, d] = total.to_be_bytes();
            let payload = [&[0x12, 0x34, a, b, c, d, 0, 0][..], text].concat();
            w.send(&frame(Wrap::V4, CLIENT_PORT, PORT, &payload));
        }
        w.settle();
        assert!(w.received(0).is_empty());
        assert_eq!(w.ask(b"get k\r\n"), b"END\r\n");
    }
    assert_eq!(w.dropped(DropReason::KvMultipart), 3 * 3 * totals.len() as u64);
    w.end();
}

/// A count of datagrams that was taken from 1,400 bytes of payload where 1,392 are sent: the reply
/// has as many as it says, for every length around a boundary up to a megabyte.
#[test]
fn a_reply_has_as_many_datagrams_as_it_says() {
    let mut w = World::new();
    let around_the_value = b"VALUE k 0 1000000\r\n".len() + b"\r\nEND\r\n".len();
    for datagrams in [1usize, 2, 3, 7, 128, 174, 175, 255, 256, 257, 700, 753] {
        for off in [-1isize, 0, 1] {
            let text_len = (datagrams * 1392).checked_add_signed(off).unwrap();
            // The length of the length depends on the length.
            let digits = (text_len - around_the_value).to_string().len();
            let mut value_len = text_len - around_the_value + 7 - digits;
            if value_len.to_string().len() > digits {
                value_len -= 1;
            }
            let value = vec![b'v'; value_len];
            let mut session = w.store.session().unwrap();
            verbs::store(&mut session, None, &SetRequest::set(b"k", 0, 0, &value)).unwrap();
            drop(session);
            let parts = w.ask_datagrams(Wrap::V4, b"get k\r\n");
            let sent: usize = parts.iter().map(|d| d.text.len()).sum();
            assert_eq!(sent, text_len);
            assert_eq!(parts.len(), text_len.div_ceil(1392), "{text_len} bytes");
            assert!(parts.iter().all(|d| usize::from(d.total) == parts.len()));
        }
    }
    w.end();
}
