//! What clients can have done, one file per verb, for every dialect and transport.
//!
//! ```text
//! bytes ──parse──► Command ──verb──► store        ──► Outcome ──encode──► bytes
//!                                    └──► Observer: counted and shown once
//! ```
//!
//! In: a [`Command`], where it is carried out ([`Ctx`]) and where its answer goes. Out: the answer,
//! and whether the conversation goes on ([`Flow`]). [`Conversation`] does it for the bytes of a
//! connection, once [`login`] lets it begin; stage 6 (`stages::execute`, another thing) for datagrams, whose usual
//! `get` and `set` do not come by here (`fast_path`, `fast_get`, `fast_set`). Never fails: what the store refuses is an answer.

// What carries them out.
mod ahead;
mod conversation;
mod ctx;
pub mod login;
mod one_sided;
pub(crate) mod work;
// A file for each verb.
mod admin;
mod arith;
mod delete;
mod flush;
mod get;
mod item;
mod rdma;
mod refused;
pub mod stats;
mod store;
mod touch;

pub use ahead::Ahead;
pub use conversation::{Conversation, DRAIN_QUIET_NS, DRAIN_REST_MAX_NS, PARTING_MAX_NS, Progress};
pub(crate) use ctx::Known;
pub use ctx::{Ctx, Flow, Rest};
pub(crate) use get::Bytes;
pub use memcache::sink::{Buffer, Sender};
pub(crate) use store::{plain_stored, store_unwatched};

use crate::observe::Kind;
use memcache::{Command, Form, KEY_MAX_BYTES, Outcome, Reply, Sink, Verb};

/// Carries out `command` and appends the answer to `out`.
pub fn execute(ctx: &mut Ctx<'_>, command: &Command<'_>, out: &mut impl Sink) -> Flow {
    let refused = one_sided::refused(ctx, command);
    let command = refused.as_ref().unwrap_or(command);
    let mut key = [0; KEY_MAX_BYTES];
    let flow = match command.form {
        Form::Meta(echo) if echo.base64_key => {
            carry_out(ctx, command.decoded(&mut key).as_ref().unwrap_or(command), out)
        }
        _ => carry_out(ctx, command, out),
    };
    if !matches!(flow, Flow::Rest(_)) {
        ctx.observer.command(kind(command));
    }
    flow
}

fn carry_out(ctx: &mut Ctx<'_>, command: &Command<'_>, out: &mut impl Sink) -> Flow {
    let reply = &mut Reply::new(&command.form, out);
    match &command.verb {
        Verb::Get(what) => return get::get(ctx, what, reply),
        Verb::Fetch(what) => return get::fetch(ctx, what, reply),
        Verb::Store(what) => store::store(ctx, what, reply),
        Verb::Delete(what) => delete::delete(ctx, what, reply),
        Verb::Arith(what) => arith::arith(ctx, what, reply),
        Verb::Touch(what) => touch::touch(ctx, what, reply),
        Verb::Flush { delay } => flush::all(ctx, *delay, reply),
        Verb::FlushPrefix { prefix } => flush::prefix(ctx, prefix, reply),
        Verb::Debug { key } => item::debug(ctx, key, reply),
        Verb::Stats(what) => stats::stats(ctx, *what, reply),
        Verb::Admin(what) => return admin::admin(ctx, what, reply),
        Verb::Rdma(far) => return rdma::connect(ctx, *far, reply),
        Verb::Noop | Verb::Verbosity => reply.put(Outcome::Done),
        Verb::Version => reply.put(Outcome::Version(&ctx.server().version)),
        Verb::Quit => {
            reply.put(Outcome::Bye);
            return Flow::Close;
        }
        Verb::Refused(what) => return refused::refused(ctx, what, reply),
    }
    Flow::Continue
}

/// The kind that its duration is counted under.
pub fn kind(command: &Command<'_>) -> Kind {
    match (&command.verb, &command.form) {
        (Verb::Get(_), Form::Binary { header, .. }) if header.is_touch() => Kind::Touch,
        (Verb::Get(_) | Verb::Fetch(_), _) => Kind::Get,
        // An `ms` of a value that is too long is one.
        (Verb::Store(_), _) | (Verb::Refused(_), Form::Meta(_)) => Kind::Store,
        (Verb::Delete(_), _) => Kind::Delete,
        (Verb::Arith(_), _) => Kind::Arith,
        (Verb::Touch(_), _) => Kind::Touch,
        (Verb::Flush { .. } | Verb::FlushPrefix { .. } | Verb::Debug { .. }, _) => Kind::Other,
        (Verb::Stats(_) | Verb::Admin(_) | Verb::Rdma(_) | Verb::Noop, _) => Kind::Other,
        (Verb::Verbosity | Verb::Version | Verb::Quit | Verb::Refused(_), _) => Kind::Other,
    }
}

#[cfg(test)]
mod tests;
