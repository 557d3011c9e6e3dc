//! `set`, `add`, `replace`, `append`, `prepend`, `cas`, `ms`, and their binary forms.
//!
//! In: a value, and when to store it. Out: whether it was. The dialects differ in whose CAS ids count,
//! in what is forgotten when nothing could be stored, and in what counts as a storage command.

use super::ctx::Ctx;
use super::one_sided;
use crate::observe::{Kind, StoreCount};
use memcache::text::line;
use memcache::{Form, Outcome, PlainSet, Refusal, Reply, Sink, Store, StoreMode, Unstored};
use store::verbs::{self, HashedSet, NotStored, Stored};

/// Stores.
pub(super) fn store<S: Sink>(ctx: &mut Ctx<'_>, what: &Store<'_>, reply: &mut Reply<'_, S>) {
    let (server, observer) = (ctx.server(), ctx.observer);
    let joins = matches!(what.mode, StoreMode::Append | StoreMode::Prepend);
    let binary = matches!(reply.form(), Form::Binary { .. });
    let adjusted;
    let asked = match (reply.form(), what.cas) {
        // As memcached: an item without a CAS id can be joined whatever is expected of it, and nothing else.
        (Form::Meta(_), cas) if !server.cas_enabled => {
            let or_stale = what.or_stale && cas.is_none();
            let cas = cas.filter(|_| !joins).map(|cas| server.cas_expected(cas));
            adjusted = Store { cas, or_stale, own_cas: None, ..*what };
            &adjusted
        }
        (_, None) | (Form::Meta(_), _) => what,
        (Form::Text { .. }, Some(cas)) => {
            adjusted = Store { cas: Some(server.cas_expected(cas)), ..*what };
            &adjusted
        }
        // As memcached: without CAS ids none is looked at, and with one, `add` and `replace` are `set`.
        (Form::Binary { .. }, cas) => {
            let cas = cas.filter(|_| server.cas_enabled);
            let mode = if cas.is_some() && !joins { StoreMode::Set } else { what.mode };
            adjusted = Store { mode, cas, ..*what };
            &adjusted
        }
    };
    let before = observer.before(ctx.session, what.key);
    let hash = ctx.hash(what.key);
    // A value that is to be joined is not looked at together with what there is, before it fits by itself.
    let fits = !(binary || joins)
        || ctx.session.store().fits(what.key.len(), what.flags, what.value.len());
    let result =
        if fits { verbs::store(ctx.session, hash, asked) } else { Err(NotStored::TooLarge) };
    let outcome = match result {
        Err(NotStored::TooLarge) if joins && fits => Outcome::NotStored(Unstored::Condition),
        Ok(Stored { cas, .. }) => Outcome::Stored(server.cas_shown(cas)),
        result => outcome(result),
    };
    let refused = matches!(outcome, Outcome::Refused(_));
    // No client is to read a value that its writer believes replaced. One that was to be longer stays.
    let forget = match reply.form() {
        // A `set` has done so already.
        Form::Text { .. } => false,
        Form::Meta(_) => !joins,
        Form::Binary { .. } => what.mode == StoreMode::Set,
    };
    if refused && forget {
        verbs::delete(ctx.session, hash, what.key);
    }
    let count = StoreCount {
        command: !(binary && refused),
        // As memcached, which compares in these modes, too, and counts it in no other.
        cas: asked.cas.is_some() && !joins && asked.mode != StoreMode::Add,
    };
    observer.stored(ctx.session, asked, before, result, count);
    let len = result.map_or(what.value.len(), |stored| stored.len);
    let handles = one_sided::handles(ctx, reply.echo(), what.key);
    reply.put_sized(outcome, len, handles.sized(what.key.len(), len));
}

/// What became of a value, but for one that was to be joined.
#[inline(always)]
fn outcome(result: Result<Stored, NotStored>) -> Outcome<'static> {
    match result {
        Ok(stored) => Outcome::Stored(stored.cas),
        Err(NotStored::Exists(_)) => Outcome::NotStored(Unstored::Exists),
        Err(NotStored::NotFound) => Outcome::NotStored(Unstored::NotFound),
        Err(NotStored::Condition) => Outcome::NotStored(Unstored::Condition),
        Err(NotStored::TooLarge) => Outcome::Refused(Refusal::TooLarge),
        Err(NotStored::OutOfMemory) => Outcome::Refused(Refusal::OutOfMemory),
    }
}

/// Stores by the usual `set`, and returns the line to answer: none if there is to be none. Counted as [`store`] and
/// the command around it are. The session is to be settled after the last of several.
#[inline(always)]
pub(crate) fn plain_stored(ctx: &mut Ctx<'_>, set: &PlainSet<'_>) -> &'static [u8] {
    let what = &set.what;
    let before = ctx.observer.before(ctx.session, what.key);
    let hash = ctx.hash(what.key);
    let result = verbs::set(ctx.session, hash, None, what);
    let count = StoreCount { command: true, cas: false };
    ctx.observer.stored(ctx.session, what, before, result, count);
    ctx.observer.command(Kind::Store);
    if set.noreply { b"" } else { line(&outcome(result)) }
}

/// [`plain_stored`] where no connection watches and no prefix is counted. Returns the line to answer where the store
/// refused it. For several, chunks are to be reserved before, and all are to be counted by
/// [`Observer::sets`](crate::observe::Observer::sets).
#[inline(always)]
pub(crate) fn store_unwatched(ctx: &mut Ctx<'_>, set: HashedSet<'_>) -> Option<&'static [u8]> {
    let HashedSet { key, value, .. } = set;
    let result = verbs::set_reserved(ctx.session, set);
    ctx.observer.unwatched_set_part(ctx.session, key, value.len(), result);
    result.is_err().then(|| line(&outcome(result)))
}
