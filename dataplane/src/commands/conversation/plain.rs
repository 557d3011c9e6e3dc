//! Plain `get`s of one key and plain `set`s, answered in runs.
//!
//! In: input that may begin with some of them. Out: their replies, and how many bytes and requests they
//! were. A run is parsed where it is answered, has one look at the store's epoch and is counted once; what is not
//! plain, and whatever cannot be answered here as it stands, ends it and is left to the parser
//! and the verbs, which would have answered the run in the same words (a test holds them to it).
//! While watchers or prefix counters want each `get`, there are no runs of those.

use crate::commands::get::hit;
use crate::commands::{Ctx, plain_stored};
use crate::observe::{Kind, LookUps};
use memcache::admin::Events;
use memcache::sink::{Buffer, Sink};
use memcache::text::{LAST, put_value};
use memcache::{plain_get, plain_set};

/// What of the input a run was.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Run {
    pub(super) bytes: usize,
    pub(super) requests: usize,
}

/// What may begin with a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Input<'a> {
    pub(super) bytes: &'a [u8],
    /// Requests that are to be answered at most.
    pub(super) requests_max: usize,
    pub(super) item_max_bytes: usize,
}

/// Answers the requests of one kind that the input begins with.
#[inline]
pub(super) fn answer(ctx: &mut Ctx<'_>, input: Input<'_>, out: &mut Buffer<'_>) -> Run {
    let server = ctx.server();
    let apart = server.watchers.want(Events::FETCHERS) || server.detail.is_on();
    match input.bytes.first_chunk() {
        Some(b"get ") if !apart => gets(ctx, input, out),
        Some(b"set ") => sets(ctx, input, out),
        _ => Run::default(),
    }
}

fn gets(ctx: &mut Ctx<'_>, input: Input<'_>, out: &mut Buffer<'_>) -> Run {
    let observer = ctx.observer;
    let (mut run, mut keys) = (Run::default(), LookUps::default());
    let guard = ctx.session.pin();
    let store = guard.store();
    let ahead = &mut ctx.ahead;
    let now = store.now();
    while run.requests < input.requests_max
        && !out.is_full()
        && let Some((key, used)) = input.bytes.get(run.bytes..).and_then(plain_get)
    {
        let mut class = None;
        let hash = ahead.as_mut().and_then(|ahead| ahead.hash(key));
        let hash = store.hash_of(key, hash);
        if let Some(item) = guard.find(hash, key) {
            let value = item.value();
            if value.whole().is_none_or(|bytes| bytes.len() > out.room()) {
                break;
            }
            put_value(&hit(key, &item, None), LAST, out);
            item.mark_visited(now);
            class = Some(store.class_of(&item));
        } else {
            out.put(b"END\r\n");
        }
        observer.unwatched_key_part(key, class, false);
        keys.keys += 1;
        keys.hits += u64::from(class.is_some());
        run.bytes += used;
        run.requests += 1;
    }
    drop(guard);
    observer.dead(ctx.session);
    observer.look_ups(keys, false);
    observer.commands(Kind::Get, keys.keys);
    run
}

fn sets(ctx: &mut Ctx<'_>, input: Input<'_>, out: &mut Buffer<'_>) -> Run {
    let mut run = Run::default();
    while run.requests < input.requests_max
        && !out.is_full()
        && let Some(rest) = input.bytes.get(run.bytes..)
        && let Some(set) = plain_set(rest, input.item_max_bytes)
    {
        out.put(plain_stored(ctx, &set));
        run.bytes += set.used;
        run.requests += 1;
    }
    ctx.session.settle();
    run
}
