//! `touch`.
//!
//! In: a key and an exptime. Out: whether there was an item, which has it now.

use super::ctx::Ctx;
use memcache::{Outcome, Reply, Sink, Touch};
use store::verbs;

/// Gives an item a new exptime.
pub(super) fn touch<S: Sink>(ctx: &mut Ctx<'_>, what: &Touch<'_>, reply: &mut Reply<'_, S>) {
    let before = ctx.observer.before(ctx.session, what.key);
    let hash = ctx.hash(what.key);
    let guard = ctx.session.pin();
    let item = verbs::touch(&guard, hash, what.key, what.exptime, |_| true).unwrap_or_default();
    let class = item.map(|item| guard.store().class_of(&item));
    ctx.observer.touched(what.key, before, class);
    reply.put(if class.is_some() { Outcome::Touched } else { Outcome::NotFound });
}
