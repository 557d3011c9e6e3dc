//! What memcached 1.6.18 answered to binary requests, byte for byte, and what is answered here.
#![cfg(not(loom))]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use dataplane::commands::{Buffer, Conversation, Ctx};
use dataplane::observe::Server;
use driver_shim::Pages;
use std::sync::Arc;
use store::{Store, StoreConfig};

mod recorded;
use recorded::{cases, normal};

const ITEM_MAX_BYTES: usize = 1 << 20;

#[test]
fn every_recorded_answer_is_ours_too() {
    let config =
        StoreConfig { memory_bytes: 16 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    let server = Server::new(Arc::clone(&store), "1.6.18".to_owned());
    let mut session = store.session().unwrap();
    let ops = server.ops();
    for case in cases() {
        // Whole, and byte by byte.
        for piece in [case.sent.len(), 1] {
            let mut conversation = Conversation::new(ITEM_MAX_BYTES);
            let (mut waiting, mut out, mut closed) = (Vec::new(), Vec::new(), false);
            for piece in case.sent.chunks(piece) {
                waiting.extend_from_slice(piece);
                let mut ctx = Ctx::new(&mut session, &ops, &server);
                let progress =
                    conversation.advance(&mut ctx, &waiting, Buffer::new(&mut out, 1 << 24));
                waiting.drain(..progress.consumed);
                closed |= progress.close;
                if closed {
                    break;
                }
            }
            let (ours, theirs) = (normal(&out), case.answer.clone());
            assert_eq!(ours, theirs, "{}: ours left, theirs right", case.name);
            assert_eq!(closed, case.closed, "{}: closed", case.name);
            session.store().flush(0);
        }
    }
}
