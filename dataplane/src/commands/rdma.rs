//! `rdma`, and the flag `g` of `mg` and `ms`: what a client needs for one-sided reads.
//!
//! In: the client's end of a queue pair, or a key. Out: our end, or a stag. Fails: where there are no
//! one-sided reads, command and flag are refused as any other that memcached does not have.

use super::ctx::{Ctx, Flow};
use crate::rdma::read_len;
use memcache::{Command, Echo, FarEnd, Fault, Form, Outcome, Refusal, Refused, Reply, Sink};
use memcache::{Stag, Verb};
use store::KeyHash;

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

/// The refusal of a command that requests a stag where there are none.
#[inline]
pub(super) fn refused(ctx: &Ctx<'_>, command: &Command<'_>) -> Option<Command<'static>> {
    let asks = matches!(command.form, Form::Meta(Echo { stag: true, .. }));
    (asks && ctx.server().rdma.is_none()).then(|| {
        let why = Refusal::Meta(Fault::InvalidFlag);
        Command::text(Verb::Refused(Refused { why, forget: None, close: false }), false)
    })
}

/// The stag of a key, if the command requests it. `hash` is the key's, where it is known.
pub(super) fn stag(
    ctx: &Ctx<'_>,
    echo: Option<&Echo<'_>>,
    key: &[u8],
    hash: Option<KeyHash>,
) -> Option<u64> {
    let rdma = ctx.server().rdma.as_ref().filter(|_| echo.is_some_and(|echo| echo.stag))?;
    Some(rdma.stags.of(hash.unwrap_or_else(|| ctx.session.store().hash(key))))
}

/// With how much to read of an item with a key and a value of these lengths, if that can be read.
pub(super) fn sized(stag: Option<u64>, key_len: usize, value_len: usize) -> Option<Stag> {
    Some(Stag { stag: stag?, read_len: read_len(key_len, value_len)? })
}
