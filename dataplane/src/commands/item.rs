//! `me`.
//!
//! In: a key. Out: what is known of the item itself.

use super::ctx::Ctx;
use memcache::{Facts, Reply, Sink};

/// Says what is known of an item.
pub(super) fn debug<S: Sink>(ctx: &mut Ctx<'_>, key: &[u8], reply: &mut Reply<'_, S>) {
    let before = ctx.observer.before(ctx.session, key);
    let guard = ctx.session.pin();
    let store = guard.store();
    let item = guard.find(store.hash(key), key);
    let now = i64::from(store.now());
    let facts = item.map(|item| Facts {
        key,
        base64_key: item.has_base64_key(),
        expired_s: match item.expiry() {
            0 => -1,
            expiry => now - i64::from(expiry),
        },
        idle_s: now - i64::from(item.accessed()),
        cas: ctx.observer.server.cas_shown(item.cas()),
        fetched: item.was_fetched(),
        class: store.class_of(&item) + 1,
        bytes: item.len_bytes(),
    });
    ctx.observer.asked_about(key, before);
    reply.facts(facts.as_ref());
}
