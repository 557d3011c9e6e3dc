//! What a parser refuses.
//!
//! In: why, and what must not survive the failed request. Out: the refusal, in the client's dialect.

use super::ctx::{Ctx, Flow};
use memcache::{Outcome, Refused, Reply, Sink};
use store::verbs;

/// Refuses.
pub(super) fn refused<S: Sink>(
    ctx: &mut Ctx<'_>,
    what: &Refused<'_>,
    reply: &mut Reply<'_, S>,
) -> Flow {
    ctx.observer.refused(ctx.session, what.why, what.forget);
    if let Some(key) = what.forget {
        verbs::delete(ctx.session, None, key);
    }
    reply.put(Outcome::Refused(what.why));
    if what.close { Flow::Close } else { Flow::Continue }
}
