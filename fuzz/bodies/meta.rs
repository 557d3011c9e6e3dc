//! Meta commands on a store: answers of whole lines, whatever is asked, and the same however the
//! input is cut.

/// Runs the input over two fresh stores, whole and in pieces, behind the letter that all meta
/// commands begin with.
pub(crate) fn run(data: &[u8]) {
    use dataplane::protocol::Server;
    use dataplane::protocol::stream::Conversation;
    use dataplane::store::{Store, StoreConfig};
    use driver_shim::Pages;
    use std::sync::Arc;
    const ITEM_MAX_BYTES: usize = 4096;

    let answers = |piece: usize| {
        let store = Store::new(StoreConfig {
            memory_bytes: 4 << 20,
            item_max_bytes: ITEM_MAX_BYTES,
            pages: Pages::Small,
            ..StoreConfig::default()
        });
        let Ok(store) = store else { panic!("no store") };
        let Ok(mut session) = store.session() else { panic!("no session") };
        let server = Server::new(Arc::clone(&store), String::new());
        let ops = server.ops();
        let mut conversation = Conversation::new(ITEM_MAX_BYTES);
        let (mut waiting, mut out) = (Vec::new(), Vec::new());
        for piece in [&b"m"[..], data].concat().chunks(piece) {
            waiting.extend_from_slice(piece);
            let progress =
                conversation.advance(&mut session, &ops, &server, &waiting, &mut out, usize::MAX);
            waiting.drain(..progress.consumed);
            if progress.close {
                break;
            }
        }
        out
    };
    if data.windows(5).any(|word| word == b"stats") {
        // Times and bytes read are no two servers' own.
        return;
    }
    let whole = answers(usize::MAX);
    assert!(whole.is_empty() || whole.ends_with(b"\r\n"));
    if whole != answers(7) {
        // Unless the clock moved on between the two, which an absolute exptime tells.
        assert_eq!(answers(usize::MAX), answers(7));
    }
}
