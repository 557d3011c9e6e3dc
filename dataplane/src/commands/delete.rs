//! `delete`, `md`.
//!
//! In: a key. Out: whether there was an item that is gone now, or out of date.

use super::ctx::Ctx;
use crate::observe::{Deletion, Seen};
use memcache::{Delete, Form, Leave, Outcome, Refusal, Reply, Sink};
use store::verbs::{self, NotDeleted, Tombstone};

/// Deletes, or marks as out of date.
pub(super) fn delete<S: Sink>(ctx: &mut Ctx<'_>, what: &Delete<'_>, reply: &mut Reply<'_, S>) {
    let (server, observer, key) = (ctx.server(), ctx.observer, what.key);
    let is_meta = matches!(reply.form(), Form::Meta(_));
    let cas = what.cas.and_then(|cas| server.cas_compared(cas, is_meta));
    let before = observer.before(ctx.session, key);
    let command = match reply.form() {
        Form::Text { .. } => Some("delete"),
        Form::Meta(_) => Some("md"),
        // As in memcached, of these watchers hear nothing.
        Form::Binary { .. } => None,
    };
    let doomed = command.and_then(|command| Some((command, observer.doomed(ctx.session, key)?)));
    let hash = ctx.hash(key);
    let result = match (what.leave, cas) {
        (Some(Leave { exptime, stale, empty, own_cas }), cas) => {
            let own_cas = server.own_cas(own_cas);
            let what = Tombstone { cas, exptime, stale, empty, own_cas };
            let left = verbs::invalidate(ctx.session, hash, key, &what);
            left.map(|class| if stale { Deletion::Neither } else { Deletion::Hit(class) })
        }
        (None, Some(cas)) => verbs::delete_if(ctx.session, hash, key, cas).map(Deletion::Hit),
        (None, None) => {
            let class = verbs::delete(ctx.session, hash, key);
            class.map(Deletion::Hit).ok_or(NotDeleted::NotFound)
        }
    };
    let (how, outcome) = match result {
        Ok(how) => (how, Outcome::Deleted),
        Err(NotDeleted::NotFound) => (Deletion::Miss, Outcome::NotFound),
        Err(NotDeleted::Exists) if is_meta => (Deletion::Miss, Outcome::Exists),
        Err(NotDeleted::Exists) => (Deletion::Neither, Outcome::Exists),
        Err(NotDeleted::OutOfMemory) => (Deletion::Neither, Outcome::Refused(Refusal::OutOfMemory)),
    };
    observer.deleted(key, before, how);
    if let (Deletion::Hit(class), Some((command, gone))) = (how, doomed) {
        // Of a value that goes alone, what stays is shown.
        let bytes = if what.leave.is_some() { 0 } else { gone.bytes };
        observer.show_deleted(key, Seen { class, bytes }, command);
    }
    reply.put(outcome);
}
