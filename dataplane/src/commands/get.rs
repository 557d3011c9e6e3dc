//! `get`, `gets`, `gat`, `gats`, `mg`; binary `get`, `getk`, `gat`, `gatk`, `touch`.
//!
//! In: keys. Out: the values of those that are there, as far as the sink has space. Never fails.

use super::ctx::{Ctx, Flow, Rest};
use super::one_sided;
use crate::observe::{LookUps, Seen};
use arrayvec::ArrayVec;
use memcache::outcome::fits;
use memcache::sink::Tail;
use memcache::{Body, Fetch, Fetched, Get, Hit, Keys, Reply, Sink, Ttl, Ttls};
use store::verbs::{self, Recache, TooLong};
use store::{ItemRef, KeyHash, Store, Supposed, Value};

/// A stored value, to be sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bytes<'a>(pub(crate) Value<'a>);

impl Body for Bytes<'_> {
    #[inline]
    fn len(&self) -> usize {
        self.0.len()
    }

    #[inline(always)]
    fn put(&self, tail: Tail, out: &mut impl Sink) {
        if let Some(bytes) = self.0.whole() {
            return out.put_with_tail(bytes, tail);
        }
        let mut pieces = self.0.pieces().peekable();
        while let Some(piece) = pieces.next() {
            let on = Tail { bytes: b"", last: false };
            out.put_with_tail(piece, if pieces.peek().is_some() { on } else { tail });
        }
    }
}

/// Keys of a get that are looked up together, so that they wait for memory about as long as one does.
const TOGETHER: usize = 8;

/// The hashes of the first of `keys`, whose items are prefetched. For one key nothing is.
fn look_ahead(keys: Keys<'_>, store: &Store) -> ArrayVec<KeyHash, TOGETHER> {
    let hashes: ArrayVec<_, TOGETHER> =
        keys.iter().take(TOGETHER).map(|key| store.hash(key)).collect();
    if hashes.len() > 1 {
        hashes.iter().for_each(|hash| store.prefetch_near(*hash));
        for hash in &hashes {
            match store.propose_near(*hash) {
                Some(location) => store.prefetch_item(location),
                None => store.prefetch_far(*hash),
            }
        }
    }
    hashes
}

/// Answers keys until none is left, the sink is full, or as many are answered as one turn has.
pub(super) fn get<S: Sink>(ctx: &mut Ctx<'_>, what: &Get<'_>, reply: &mut Reply<'_, S>) -> Flow {
    let observer = ctx.observer;
    let touched = what.touch.is_some();
    let cas = |item: &ItemRef<'_>| what.with_cas.then(|| observer.server.cas_shown(item.cas()));
    let (mut run, mut none) = (LookUps::default(), Supposed::Nothing);
    let guard = ctx.session.pin();
    let (mut keys, mut flow, mut ended) = (what.keys, Flow::Continue, false);
    let mut hashes = ArrayVec::new().into_iter();
    let mut next = keys.split_first();
    while let Some((key, behind)) = next {
        if reply.out.is_full() || run.keys == ctx.keys_max {
            flow = Flow::Rest(Rest::Keys(keys.bytes()));
            break;
        }
        next = behind.split_first();
        let seen = ctx.known.hash(&mut ctx.ahead, key);
        let hash = hashes.next().or(seen);
        if hash.is_none() {
            // Not seen with the requests: nothing of it was prefetched.
            hashes = look_ahead(keys, guard.store()).into_iter();
        }
        let hash = hash.or_else(|| hashes.next());
        let item = match what.touch {
            // What is not sent now is not changed either.
            Some(exptime) => verbs::touch(&guard, hash, key, exptime, |item| {
                reply.admits(item.value().len())
                    && reply.has_left(|reply| reply.hit(&hit(key, &item, cas(&item)), true))
            }),
            None => {
                let hint = ctx.known.hint(key, &mut none);
                let item = verbs::get_by(&guard, hint, hash, key);
                match item.map(|item| item.value().len()).filter(|bytes| !reply.admits(*bytes)) {
                    Some(bytes) => Err(TooLong(bytes)),
                    None => Ok(item),
                }
            }
        };
        let Ok(item) = item else {
            flow = Flow::Rest(Rest::Keys(keys.bytes()));
            break;
        };
        match item {
            Some(item) => reply.hit(&hit(key, &item, cas(&item)), next.is_none()),
            None => reply.miss(key),
        }
        let found = item.map(|item| Seen::of(&guard, &item));
        observer.key(key, found, touched);
        ended = found.is_some();
        run.keys += 1;
        run.hits += u64::from(found.is_some());
        keys = behind;
    }
    if flow == Flow::Continue && !ended {
        reply.end_of_hits();
    }
    drop(guard);
    observer.look_ups(run, touched);
    observer.dead(ctx.session);
    flow
}

/// What is said of an item that was found.
#[inline]
pub(super) fn hit<'a>(key: &'a [u8], item: &ItemRef<'a>, cas: Option<u64>) -> Hit<'a, Bytes<'a>> {
    Hit { key, flags: item.flags(), cas, value: Bytes(item.value()) }
}

/// Answers one key, and does with its item what flags say.
pub(super) fn fetch<S: Sink>(
    ctx: &mut Ctx<'_>,
    what: &Fetch<'_>,
    reply: &mut Reply<'_, S>,
) -> Flow {
    let observer = ctx.observer;
    let Some(echo) = reply.echo() else { return Flow::Continue };
    let clock = ctx.session.store().clock();
    let (now, expiry) = (clock.now(), |exptime| clock.expiry(exptime));
    let (key, touch) = (what.key, what.touch.map(expiry));
    let recache = what.recache.map(expiry);
    let recache = recache.map(|before| Recache { before, touched: what.recache_touched });
    let room = if echo.value { reply.out.room() } else { usize::MAX };
    let (create, own_cas) = (what.create.map(expiry), ctx.server().own_cas(what.own_cas));
    let unnoticed = what.unnoticed;
    let said_to_create = echo.create.map(expiry);
    let mut none = Supposed::Nothing;
    let hash = ctx.hash(key);
    let handles = one_sided::handles(ctx, Some(echo), key);
    let hint = ctx.known.hint(key, &mut none);
    let how = verbs::Fetch { key, hash, touch, recache, create, own_cas, unnoticed, room };
    let fetched = shown_by(|found: &verbs::Found<'_>| {
        let cas = observer.server.cas_shown(found.cas);
        let created = said_to_create.filter(|_| found.created);
        Fetched {
            key,
            base64_key: found.base64_key,
            value: Bytes(found.value),
            flags: found.flags,
            cas,
            ttls: Ttls {
                found: ttl(found.expiry, now),
                touched: touch.map(|expiry| ttl(expiry, now)),
                created: created.map(|expiry| ttl(expiry, now)),
            },
            fetched: found.fetched,
            idle_s: now.saturating_sub(found.accessed),
            stale: found.stale,
            known: what.known == Some(cas),
            by: handles.sized(key.len(), found.value.len()),
            claim: found.claim,
        }
    });
    // What is refused for its length changes nothing.
    let (form, left) = (reply.form(), reply.out.left());
    let takes = |found: &verbs::Found<'_>| fits(form, left, |reply| reply.fetched(&fetched(found)));
    let done = verbs::fetch(ctx.session, &how, hint, takes, |found| {
        let seen = found.map(|found| Seen { class: found.class, bytes: found.value.len() });
        let made = found.is_some_and(|found| found.created);
        observer.key_or_made(key, seen, made, touch.is_some());
        let Some(found) = found else { return reply.miss(key) };
        reply.fetched(&fetched(&found));
    });
    observer.dead(ctx.session);
    match done {
        Err(TooLong(bytes)) => {
            reply.out.admits(bytes);
            Flow::Rest(Rest::All)
        }
        Ok(()) => Flow::Continue,
    }
}

/// Says of a closure that what it returns shows what it was given.
fn shown_by<'k, F>(shown: F) -> F
where
    F: for<'f> Fn(&verbs::Found<'f>) -> Fetched<'k, Bytes<'f>>,
{
    shown
}

/// Seconds from `now` until `expiry`, on the store's clock.
pub(super) fn ttl(expiry: u32, now: u32) -> Ttl {
    (expiry != 0).then(|| expiry.saturating_sub(now))
}
