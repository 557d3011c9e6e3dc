//! The strict parser keeps the protocol's law on any input.

/// The strict parser keeps the protocol's law on any input.
pub(crate) fn run(data: &[u8]) {
    use dataplane::protocol::meta::Verb;
    use dataplane::protocol::{Command, KEY_MAX_BYTES};
    use dataplane::protocol::{Parsed, ascii::parse};
    const ITEM_MAX_BYTES: usize = 4096;

    let key_ok = |k: &[u8]| {
        assert!(!k.is_empty() && k.len() <= KEY_MAX_BYTES);
        assert!(!k.contains(&b' ') && !k.contains(&b'\n'));
    };
    let mut rest = data;
    while !rest.is_empty() {
        let parsed = parse(rest, ITEM_MAX_BYTES);
        match parsed {
            Parsed::Command { command, used } => {
                assert!(used > 0 && used <= rest.len());
                match command {
                    Command::Get { keys, .. } => {
                        keys.iter().for_each(key_ok);
                    }
                    Command::Store { what, .. } => {
                        key_ok(what.key);
                        assert!(what.value.len() <= ITEM_MAX_BYTES);
                        assert_eq!(rest.get(used - 2..used), Some(&b"\r\n"[..]));
                    }
                    Command::Delete { key, .. } | Command::Touch { key, .. } => key_ok(key),
                    Command::Arith { what, .. } => key_ok(what.key),
                    Command::Meta(request) if request.verb == Verb::Noop => {}
                    Command::Meta(request) => key_ok(request.key),
                    _ => {}
                }
                // What follows a whole request does not change it.
                let alone = rest.get(..used).unwrap_or_default();
                assert_eq!(parse(alone, ITEM_MAX_BYTES), Parsed::Command { command, used });
                rest = rest.get(used..).unwrap_or_default();
            }
            Parsed::Swallow { command, used, skip } => {
                // Too large a value, whose key is forgotten, or flags that mean nothing.
                assert!(used > 0 && used <= rest.len() && skip >= 2);
                match command {
                    Command::Refused { forget, .. } => {
                        assert!(forget.is_none() || skip > ITEM_MAX_BYTES);
                    }
                    Command::Meta(request) => {
                        assert!(request.verb == Verb::SetTooLarge && skip > ITEM_MAX_BYTES);
                    }
                    other => panic!("{other:?}"),
                }
                rest = rest.get(used.saturating_add(skip)..).unwrap_or_default();
            }
            Parsed::Incomplete { at_least } => {
                assert!(at_least > rest.len());
                return;
            }
            Parsed::Hopeless => return,
        }
    }
}
