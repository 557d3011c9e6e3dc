//! The strict parser keeps the protocol's law on any input.

/// The strict parser keeps the protocol's law on any input.
pub(crate) fn run(data: &[u8]) {
    use memcache::{KEY_MAX_BYTES, Refused, Verb};
    use memcache::{Parsed, text::parse};
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
                command.keys().iter().for_each(key_ok);
                match command.verb {
                    Verb::Store(what) => {
                        key_ok(what.key);
                        assert!(what.value.len() <= ITEM_MAX_BYTES);
                        assert_eq!(rest.get(used - 2..used), Some(&b"\r\n"[..]));
                    }
                    Verb::Delete(_) | Verb::Touch(_) | Verb::Arith(_) | Verb::Fetch(_) => {
                        assert_eq!(command.keys().iter().count(), 1);
                    }
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
                match command.verb {
                    Verb::Refused(Refused { forget, .. }) => {
                        assert!(forget.is_none() || skip > ITEM_MAX_BYTES);
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
