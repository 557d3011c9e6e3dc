//! What the CPU engine reads from a datagram is what the strict parser reads from it.

/// What the CPU engine reads from a datagram is what the strict parser reads from it, and every
/// offset lies inside the frame.
pub(crate) fn run(data: &[u8]) {
    use dataplane::stages::engine::cpu_engine::{keys, read};
    use gpu::{Entry, EntryFlags, Verb, Verdict};
    use memcache::{Get, Verb as Asked};
    use memcache::{Parsed, text::parse};
    use wire::udp_frame::split;

    // A UDP header around the input, so that all of it is the datagram.
    let Ok(len) = u16::try_from(data.len() + 8) else { return };
    let mut frame = vec![0, 0, 0, 0];
    frame.extend_from_slice(&len.to_be_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(data);
    let flags = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
    let desc = read(&frame, &Entry { flags, ..Entry::default() });
    match split(data) {
        Err(reason) => assert_eq!((desc.verdict, desc.reason), (Verdict::BAD, reason)),
        Ok((_, text)) => {
            let start = usize::from(desc.payload_off);
            assert_eq!(frame.get(start..start + usize::from(desc.payload_len)), Some(text));
            assert_ne!(desc.verdict, Verdict::BAD);
            if desc.verdict == Verdict::READY {
                let Parsed::Command { command, used } = parse(text, 4096) else {
                    panic!("the engine read what the strict parser did not");
                };
                let Asked::Get(Get { keys: strict, with_cas, touch: None }) = command.verb else {
                    panic!("the engine read a get where the strict parser did not");
                };
                assert_eq!(used, text.len());
                assert_eq!(with_cas, desc.verb == Verb::GETS);
                assert!(strict.iter().eq(keys(&desc, &frame)));
            }
        }
    }
}
