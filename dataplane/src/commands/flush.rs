//! `flush_all`, `flush_prefix`.
//!
//! In: what is to be forgotten. Out: whether it is. Fails: `flush_all` may be forbidden (`-F`); only
//! so many prefixes can be flushed at a time.

use super::ctx::Ctx;
use memcache::{Outcome, Refusal, Reply, Sink};
use store::PrefixRefused;

/// Forgets everything, at once or later.
pub(super) fn all<S: Sink>(ctx: &mut Ctx<'_>, delay: i64, reply: &mut Reply<'_, S>) {
    if !ctx.server().flush_allowed {
        return reply.put(Outcome::Refused(Refusal::FlushNotAllowed));
    }
    ctx.session.store().flush(delay);
    ctx.observer.flushed();
    reply.put(Outcome::Done);
}

/// Forgets the keys that begin with a prefix.
pub(super) fn prefix<S: Sink>(ctx: &mut Ctx<'_>, prefix: &[u8], reply: &mut Reply<'_, S>) {
    let result = ctx.session.store().flush_prefix(prefix);
    ctx.observer.flushed();
    reply.put(match result {
        Ok(()) => Outcome::Done,
        Err(PrefixRefused::Malformed) => Outcome::Refused(Refusal::BadLineFormat),
        Err(PrefixRefused::TooMany) => Outcome::Refused(Refusal::TooManyPrefixes),
    });
}
