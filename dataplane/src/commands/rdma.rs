//! `rdma`: connects a queue pair for one-sided reads.
//!
//! In: the client's end. Out: our end. Fails: where there are no one-sided reads, it is refused as any other
//! command that memcached does not have.

use super::ctx::{Ctx, Flow};
use memcache::{FarEnd, Outcome, Refusal, Reply, Sink};

/// Leaves it to the conversation to connect, which knows the connection's addresses.
pub(super) fn connect<S: Sink>(
    ctx: &Ctx<'_>,
    far: Option<FarEnd>,
    reply: &mut Reply<'_, S>,
) -> Flow {
    match (&ctx.server().rdma, far) {
        (Some(_), Some(far)) => return Flow::Connect(far),
        (Some(_), None) => reply.put(Outcome::Refused(Refusal::BadLineFormat)),
        (None, _) => reply.put(Outcome::Refused(Refusal::Error)),
    }
    Flow::Continue
}
