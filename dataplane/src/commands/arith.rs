//! `incr`, `decr`, `ma`, and their binary forms.
//!
//! In: a key and how much. Out: the new number.

use super::ctx::Ctx;
use super::get::ttl;
use memcache::{Arith, Number, Outcome, Refusal, Reply, Sink, Ttls};
use store::verbs::{self, ArithFailure};

/// Counts.
pub(super) fn arith<S: Sink>(ctx: &mut Ctx<'_>, what: &Arith<'_>, reply: &mut Reply<'_, S>) {
    let (server, observer, key) = (ctx.server(), ctx.observer, what.key);
    let echo = reply.echo();
    let cas = what.cas.and_then(|cas| server.cas_compared(cas, echo.is_some()));
    let before = observer.before(ctx.session, key);
    let asked = Arith { cas, own_cas: server.own_cas(what.own_cas), ..*what };
    let hash = ctx.hash(key);
    let result = verbs::arith(ctx.session, hash, &asked);
    observer.counted(ctx.session, before, &asked, result);
    reply.put(match result {
        Ok(done) => {
            let clock = ctx.session.store().clock();
            let (now, expiry) = (clock.now(), |exptime| clock.expiry(exptime));
            let created = echo.and_then(|echo| echo.create).filter(|_| done.created);
            Outcome::Number(Number {
                number: done.number,
                cas: server.cas_shown(done.cas),
                created: done.created,
                ttls: Ttls {
                    found: ttl(done.expiry, now),
                    touched: what.exptime.map(|exptime| ttl(expiry(exptime), now)),
                    created: created.map(|exptime| ttl(expiry(exptime), now)),
                },
            })
        }
        Err(ArithFailure::NotFound) => Outcome::NotFound,
        Err(ArithFailure::Exists) => Outcome::Exists,
        Err(ArithFailure::NonNumeric) => Outcome::Refused(Refusal::NonNumeric),
        Err(ArithFailure::TooLarge | ArithFailure::OutOfMemory) => {
            Outcome::Refused(Refusal::OutOfMemoryArith)
        }
    });
}
