//! Meta commands on a store: answers of whole lines, whatever is asked, and the same however the
//! input is cut.

use crate::tcp::{Connection, on_a_new_server};

/// Bytes in a piece: fewer than most words have.
const PIECE_BYTES: usize = 7;

/// Runs the input on two new servers, whole and in pieces, behind the letter that all meta
/// commands begin with.
pub(crate) fn run(data: &[u8]) {
    if data.windows(5).any(|word| word == b"stats") {
        // Times and bytes read are no two servers' own.
        return;
    }
    let input = [&b"m"[..], data].concat();
    let whole = answers(&input, usize::MAX);
    assert!(whole.is_empty() || whole.ends_with(b"\r\n"));
    if whole != answers(&input, PIECE_BYTES) {
        // Unless the clock moved on between the two, which an absolute exptime shows.
        assert_eq!(answers(&input, usize::MAX), answers(&input, PIECE_BYTES));
    }
}

fn answers(input: &[u8], piece: usize) -> Vec<u8> {
    on_a_new_server(|server| {
        let mut session = server.store.session().expect("a session");
        let mut out = Vec::new();
        Connection::new().say(server, &mut session, input, piece, &mut out);
        out
    })
}
