//! What the CPU engine reads, guesses, confirms and completes.

use super::*;
use driver_shim::{Pages, Region, SLOT_BYTES};
use memcache::{self, binary::Header};
use store::{StoreConfig, verbs};

/// A frame whose UDP header stands at 0, with its checksum known to be good.
fn ask(text: &[u8]) -> (Vec<u8>, ReqDesc) {
    let mut frame = vec![0; 16];
    frame[4..6].copy_from_slice(&u16::try_from(16 + text.len()).unwrap().to_be_bytes());
    frame[12..14].copy_from_slice(&[0, 1]);
    frame.extend_from_slice(text);
    let flags = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
    let desc = read(&frame, &Entry { flags, ..Entry::default() });
    (frame, desc)
}

fn ready(text: &[u8]) -> Option<(Verb, Vec<Vec<u8>>)> {
    let (frame, desc) = ask(text);
    assert_eq!(usize::from(desc.payload_len), text.len());
    match desc.verdict {
        Verdict::READY => Some((desc.verb, keys(&desc, &frame).map(<[u8]>::to_vec).collect())),
        Verdict::SLOW => None,
        _ => panic!("{:?}", desc.reason),
    }
}

#[test]
fn simple_gets_are_ready() {
    assert_eq!(ready(b"get a\r\n"), Some((Verb::GET, vec![b"a".to_vec()])));
    assert_eq!(ready(b"get a\n"), Some((Verb::GET, vec![b"a".to_vec()])));
    assert_eq!(ready(b"get a \r\n"), Some((Verb::GET, vec![b"a".to_vec()])));
    assert_eq!(ready(b"gets a b \n"), Some((Verb::GETS, vec![b"a".to_vec(), b"b".to_vec()])));
    let six: Vec<Vec<u8>> = (b'a'..=b'f').map(|c| vec![c; 3]).collect();
    assert_eq!(ready(b"gets aaa bbb ccc ddd eee fff\r\n"), Some((Verb::GETS, six)));
    let long = [b"get ".to_vec(), vec![b'k'; 250], b"\r\n".to_vec()].concat();
    assert_eq!(ready(&long), Some((Verb::GET, vec![vec![b'k'; 250]])));
}

#[test]
fn everything_else_is_left_to_the_strict_parser() {
    for text in [
        &b"get a b c d e f g\r\n"[..],
        b"get a b c d e f \r\n",
        b"get  a\r\n",
        b"get a  \r\n",
        b"get a \r\r\n",
        b"get a ",
        b"get a",
        b"get \r\n",
        b"get a\r\nget b\r\n",
        b"get a\tb\r\n",
        b"get a\0\r\n",
        b"get a\r\r\n",
        b"get a\r\n\n",
        b"get a\n\r\n",
        b"get a\r",
        b"get \n",
        b"set a 0 0 1\r\nx\r\n",
        b"gat 0 a\r\n",
        b"\x80\0\0\0",
    ] {
        assert_eq!(ready(text), None, "{:?}", String::from_utf8_lossy(text));
    }
    let long = [b"get ".to_vec(), vec![b'k'; 251], b"\r\n".to_vec()].concat();
    assert_eq!(ready(&long), None);
}

#[test]
fn keys_end_where_they_should_at_every_length_and_with_every_byte() {
    for len in 1..=40 {
        for b in 0..=255u8 {
            for at in 0..len {
                let mut key = vec![b'k'; len];
                key[at] = b;
                let text = [b"get ", key.as_slice(), b"\r\n"].concat();
                let want = match (b, at) {
                    (..b' ', _) => None,
                    (b' ', 0) => None,
                    (b' ', at) if at + 1 == len => Some(vec![key[..at].to_vec()]),
                    (b' ', at) => Some(vec![key[..at].to_vec(), key[at + 1..].to_vec()]),
                    _ => Some(vec![key]),
                };
                let want = want.map(|keys| (Verb::GET, keys));
                assert_eq!(ready(&text), want, "{b:#x} at {at} of {len}");
            }
        }
    }
}

/// The key that the text is taken to have, which the descriptor shows too.
fn guessed(text: &[u8]) -> Option<Vec<u8>> {
    let (frame, mut desc) = ask(text);
    let key = guess_key(&mut desc, &frame)?;
    let KeyDesc { off, len, .. } = desc.keys[0];
    assert_eq!(key, &frame[usize::from(off)..][..usize::from(len)]);
    Some(key.to_vec())
}

#[test]
fn the_word_behind_the_verb_is_the_key() {
    for (text, key) in [
        (&b"set key 0 0 1\r\nx\r\n"[..], Some(&b"key"[..])),
        (b"prepend k 0 0 1\r\nx\r\n", Some(b"k")),
        (b"delete long-key-of-many-bytes\r\n", Some(b"long-key-of-many-bytes")),
        (b"mg k v", Some(b"k")),
        (b"version\r\n", None),
        (b"flush_all 10\r\n", None),
        (b"set ", Some(b"")),
        (b"", None),
    ] {
        assert_eq!(guessed(text).as_deref(), key, "{:?}", String::from_utf8_lossy(text));
    }
    let long = [&b"set "[..], &[b'k'; 300]].concat();
    assert_eq!(guessed(&long), Some(vec![b'k'; 250]));
}

#[test]
fn padding_behind_the_datagram_is_not_read() {
    let (mut frame, _) = ask(b"get a\r\n");
    frame.extend_from_slice(b"\0\0\0");
    let flags = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
    let desc = read(&frame, &Entry { flags, ..Entry::default() });
    assert_eq!((desc.verdict, desc.payload_len), (Verdict::READY, 7));
}

/// What is hinted of a binary get may be answered by a device's reply, so that no part of the datagram may be left out.
#[test]
fn a_binary_get_that_is_hinted_is_the_whole_datagram() {
    let entry = Entry { flags: EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD), ..Entry::default() };
    let get = |opcode, key: &[u8]| Header::request(opcode).packet(b"", key, b"").unwrap();
    let (frame, right) = ask(&get(0x0d, b"ab"));
    assert_eq!((right.verdict, right.verb), (Verdict::STRICT_HINTED, Verb::BINARY_GETK));
    assert!(is_possible(&frame, &entry, &right));
    let [key, ..] = right.keys;
    for (verb, off, len) in [(2, 0, 0), (3, 1, 0), (3, 0, 1), (3, 1, 255)] {
        let mut wrong = ReqDesc { verb: Verb(verb), ..right };
        wrong.keys[0] = KeyDesc { off: key.off + off, len: key.len.wrapping_add(len), ..key };
        assert!(!is_possible(&frame, &entry, &wrong), "{wrong:?}");
    }
    let (frame, slow) = ask(&[get(0x0d, b"ab"), get(0x0d, b"cd")].concat());
    assert_eq!(slow.verdict, Verdict::SLOW);
    let ReqDesc { payload_len, .. } = slow;
    let wrong = ReqDesc { payload_len, ..right };
    assert!(!is_possible(&frame, &entry, &wrong));
}

#[test]
fn an_mg_has_a_form_if_it_is_one_line_of_key_and_flags() {
    for (text, has_form) in [
        (&b"mg ab v\r\n"[..], true),
        (b"mg ab\n", true),
        (b"mg ab k f t\r\n", true),
        (b"mg ab v\r\nmn\r\n", false),
        (b"mg ab\r\nmg a\r\n", false),
        (b"mg ab O1\r\n", false),
        (b"mg ab v \r\n", false),
    ] {
        let (frame, right) = ask(text);
        assert_eq!((right.verdict, right.verb), (Verdict::STRICT_HINTED, Verb::META_GET));
        assert_eq!(
            form_of(&right, &frame).is_some(),
            has_form,
            "{}",
            String::from_utf8_lossy(text)
        );
        for (off, len) in [(1, 0), (0, 1), (1, 255)] {
            let mut wrong = right;
            let [key, ..] = &mut wrong.keys;
            (key.off, key.len) = (key.off + off, key.len.wrapping_add(len));
            assert_eq!(form_of(&wrong, &frame), None, "{wrong:?}");
        }
    }
}

#[test]
fn what_this_engine_says_is_possible_and_little_else() {
    let entry = Entry { flags: EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD), ..Entry::default() };
    for text in
        [&b"get a\r\n"[..], b"gets ab c def\n", b"get a \r\n", b"set a 0 0 1\r\nx\r\n", b"mn\r\n"]
    {
        let (frame, right) = ask(text);
        assert!(is_possible(&frame, &entry, &right) && same(&right, &right));
        let mut wrong = vec![
            ReqDesc { verdict: Verdict(9), ..right },
            ReqDesc { payload_off: right.payload_off + 1, ..right },
            ReqDesc { payload_len: right.payload_len - 1, ..right },
            ReqDesc::UNREAD,
            ReqDesc { verdict: Verdict::BAD, ..right },
        ];
        if right.verdict == Verdict::READY {
            wrong.push(ReqDesc { verb: Verb(right.verb.0 ^ 1), ..right });
            wrong.push(ReqDesc { n_keys: right.n_keys + 1, ..right });
            wrong.push(ReqDesc { n_keys: right.n_keys - 1, ..right });
            wrong.push(ReqDesc { n_keys: 255, ..right });
            for (off, len) in [(1, 0), (0, 1), (1, 255)] {
                let mut desc = right;
                desc.keys[0].off = desc.keys[0].off.wrapping_add(off);
                desc.keys[0].len = desc.keys[0].len.wrapping_add(len);
                wrong.push(desc);
            }
        }
        for wrong in wrong {
            assert!(!is_possible(&frame, &entry, &wrong), "{wrong:?}");
            assert!(!same(&right, &wrong), "{wrong:?}");
        }
        for n in 0..frame.len() {
            assert!(!is_possible(&frame[..n], &entry, &right));
        }
    }
}

#[test]
fn what_another_engine_left_undone_is_done() {
    let config =
        StoreConfig { pages: Pages::Small, memory_bytes: 4 << 20, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let mut session = store.session().unwrap();
    verbs::store(&mut session, None, &memcache::Store::set(b"here", 0, 0, b"v")).unwrap();
    let hash = |key: &str| store.hash(key.as_bytes());
    let place = store.propose(hash("here")).unwrap().0;
    let region = Region::new(8, Pages::Small).unwrap();
    for group in [1, 2, 32] {
        // SAFETY: the region outlives the engine.
        let packets = unsafe { PacketMemory::new(region.base(), SLOT_BYTES, region.capacity()) };
        // SAFETY: the frames are kept as they are until the end.
        let mut engine = unsafe { CpuEngine::new(Arc::clone(&store), packets, group) };
        let mut batch = Batch::new(0, 8);
        let mut frames = Vec::new();
        for (text, hint) in [
            (&b"get here\r\n"[..], Hint::MISS),
            (b"get gone\r\n", Hint::UNKNOWN),
            (b"get gone here\r\n", Hint(77)),
            (b"get gone\r\n", Hint::HIT),
            (b"set here 0 0 1\r\nx\r\n", Hint::HIT),
            (b"mg here v\r\n", Hint::MISS),
            (b"\r\n", Hint::HIT),
        ] {
            let (bytes, mut desc) = ask(text);
            desc.hash = 0xbad;
            desc.keys.iter_mut().for_each(|key| (key.hint, key.location) = (hint, 5));
            let mut frame = region.alloc().unwrap();
            frame.fill(&bytes).unwrap();
            let (slot, off) = (frame.slot(), frame.offset());
            let len = u16::try_from(bytes.len()).unwrap();
            batch.entries.push(Entry { slot, off, len, ..Entry::default() }).unwrap();
            batch.descs.push(desc).unwrap();
            frames.push(frame);
        }
        assert_eq!(engine.complete(&mut batch), 3);
        let told = |nth: usize, key: usize| {
            let key = batch.descs[nth].keys[key];
            (key.hint, key.location)
        };
        let (hit, miss) = ((Hint::HIT, place), (Hint::MISS, 0));
        assert_eq!((told(0, 0), told(1, 0)), (hit, miss));
        assert_eq!((told(2, 0), told(2, 1)), (miss, hit));
        assert_eq!(told(3, 0), (Hint::HIT, 5), "stage 6 decides");
        assert_eq!(told(5, 0), hit);
        let guessed = if group > 1 { hash("here").0 } else { 0 };
        let hashes: Vec<u64> = batch.descs.iter().map(|desc| desc.hash).collect();
        assert_eq!(hashes, [0, 0, 0, 0, guessed, 0, 0]);
    }
}

#[test]
fn short_frames_are_bad_not_fatal() {
    let flags = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
    for n in 0..24 {
        let entry = Entry { l4: n, flags, ..Entry::default() };
        assert_eq!(read(&[0; 16], &entry).verdict, Verdict::BAD);
    }
}
