//! The binary parser keeps the protocol's law on any input, and so does the reader of SASL's packets.

/// The binary parser keeps the protocol's law on any input.
pub(crate) fn run(data: &[u8]) {
    use memcache::binary::{HEADER_BYTES, Header, REQUEST_MAGIC, parse};
    use memcache::{Form, KEY_MAX_BYTES, Parsed, Refused, Verb};
    const ITEM_MAX_BYTES: usize = 4096;
    /// Extras and key, of the longest.
    const PARTS_MAX_BYTES: usize = 255 + 65_535;

    let key_ok = |key: &[u8]| assert!((1..=KEY_MAX_BYTES).contains(&key.len()));
    let mut rest = data;
    while !rest.is_empty() {
        before_login(rest);
        let (command, used, skip) = match parse(rest, ITEM_MAX_BYTES) {
            Parsed::Command { command, used } => (command, used, 0),
            Parsed::Swallow { command, used, skip } => (command, used, skip),
            Parsed::Incomplete { at_least } => {
                assert!(at_least > rest.len());
                assert!(at_least <= HEADER_BYTES + PARTS_MAX_BYTES + ITEM_MAX_BYTES);
                return;
            }
            Parsed::Hopeless => {
                assert!(rest.len() >= HEADER_BYTES && rest.first() != Some(&REQUEST_MAGIC));
                return;
            }
        };
        assert!((HEADER_BYTES..=rest.len()).contains(&used));
        assert!(skip <= i32::MAX as usize);
        let Form::Binary { header, .. } = command.form else { panic!("{command:?}") };
        assert_eq!(Some(header), Header::split(rest).map(|(header, _)| header));
        let whole = HEADER_BYTES + header.body_bytes as usize;
        command.keys().iter().for_each(key_ok);
        match command.verb {
            Verb::Get(_) | Verb::Delete(_) | Verb::Arith(_) => {
                assert_eq!(command.keys().iter().count(), 1);
            }
            Verb::Store(what) => {
                key_ok(what.key);
                assert!(what.value.len() <= ITEM_MAX_BYTES);
            }
            Verb::Refused(Refused { close, .. }) => assert!(close || used + skip == whole),
            _ => {}
        }
        if !matches!(command.verb, Verb::Refused(_)) {
            assert_eq!((used, skip), (whole, 0));
            // What follows a whole request does not change it.
            let alone = rest.get(..used).unwrap_or_default();
            assert_eq!(parse(alone, ITEM_MAX_BYTES), Parsed::Command { command, used });
        }
        rest = rest.get(used.saturating_add(skip)..).unwrap_or_default();
    }
}

/// The packets before a login: none is waited for that is longer than may be, and what follows one does not change it.
fn before_login(input: &[u8]) {
    use memcache::binary::HEADER_BYTES;
    use memcache::binary::sasl::Request;
    const PACKET_MAX_BYTES: usize = HEADER_BYTES + 32 + 2048;

    let Some(request) = Request::read(input) else {
        return assert!(input.len() < PACKET_MAX_BYTES);
    };
    assert!((HEADER_BYTES..=input.len().min(PACKET_MAX_BYTES)).contains(&request.used));
    let alone = Request::read(input.get(..request.used).unwrap_or_default());
    assert_eq!(alone.map(|alone| (alone.used, alone.asks)), Some((request.used, request.asks)));
}
