//! `mg`: a look-up that may renew what it finds, hand out the right to replace it, or leave an
//! empty item where there is none.

use crate::change::{Change, NewValue, Replacement};
use crate::item_flags::Marks;
use crate::write::Refused;
use crate::{Guard, ItemRef, KeyHash, Session, Store, Supposed, Value, verbs};
use base::Claim;

/// What to look for, and what to do with it. Times are on the store's clock.
#[derive(Debug, Clone, Copy)]
pub struct Fetch<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its hash, if it is known.
    pub hash: Option<KeyHash>,
    /// A new expiry time.
    pub touch: Option<u32>,
    /// The first to come when less time than this is left may fetch the value anew.
    pub recache: Option<Recache>,
    /// When there is nothing: leave an empty item that expires then, and may be filled by the client that
    /// left it.
    pub create: Option<u32>,
    /// The CAS id of such an item.
    pub own_cas: Option<u64>,
    /// The look-up changes neither recency nor access time.
    pub unnoticed: bool,
    /// Longest value that the caller's buffer can hold. A longer one is neither changed nor reported.
    pub room: usize,
}

/// The value is longer than the caller's buffer can hold: its length in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooLong(pub usize);

/// When an item is to be fetched anew before it expires.
#[derive(Debug, Clone, Copy)]
pub struct Recache {
    /// If it expires before this time.
    pub before: u32,
    /// The new expiry time of [`Fetch::touch`] counts, not the one that was found.
    pub touched: bool,
}

/// What was found, as it was before the look-up changed it.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The value.
    pub value: Value<'a>,
    /// The client's own.
    pub flags: u32,
    /// The CAS id.
    pub cas: u64,
    /// On the store's clock; 0 for never, and for an item just created.
    pub expiry: u32,
    /// A client had read it before.
    pub fetched: bool,
    /// When it was last read, or when it was stored.
    pub accessed: u32,
    /// Its key is to be given in base64.
    pub base64_key: bool,
    /// It is out of date.
    pub stale: bool,
    /// Which client is to fetch it anew.
    pub claim: Claim,
    /// Its size class, from 0.
    pub class: usize,
    /// It was not there: the look-up made it.
    pub created: bool,
}

/// Looks, by `hint` first, and shows what was found. A miss that leaves an item is a find; without
/// memory for that it is a miss. What the look-up is to change stays as it is, if the caller does not take what
/// it is to be shown.
///
/// # Errors
/// [`TooLong`]: nothing was done.
pub fn fetch<R>(
    session: &mut Session,
    what: &Fetch<'_>,
    hint: &mut Supposed,
    takes: impl Fn(&Found<'_>) -> bool,
    show: impl FnOnce(Option<Found<'_>>) -> R,
) -> Result<R, TooLong> {
    loop {
        let guard = session.pin();
        if let Some(found) = look(&guard, what, hint, &takes)? {
            return Ok(show(Some(found)));
        }
        drop(guard);
        let Some(expiry) = what.create else { return Ok(show(None)) };
        match create(session, what, expiry) {
            Ok(Some(found)) => {
                if !what.unnoticed {
                    verbs::get(&session.pin(), what.key);
                }
                return Ok(show(Some(found)));
            }
            // Another thread stored something meanwhile.
            Ok(None) => {}
            Err(_) => return Ok(show(None)),
        }
    }
}

fn look<'g>(
    guard: &'g Guard<'_>,
    what: &Fetch<'_>,
    hint: &mut Supposed,
    takes: &impl Fn(&Found<'_>) -> bool,
) -> Result<Option<Found<'g>>, TooLong> {
    let store = guard.store();
    let hash = store.hash_of(what.key, what.hash);
    let changes = what.touch.is_some() || what.recache.is_some();
    let item = match changes {
        true => None,
        false => {
            let Some(item) = guard.find_by(hint, hash, what.key) else { return Ok(None) };
            fits(item, what)?;
            Some(item)
        }
    };
    let (item, (expiry, claim)) = match item {
        Some(item) if item.is_won() => (item, (item.expiry(), Claim::Taken)),
        Some(item) if !item.is_stale() => (item, (item.expiry(), Claim::None)),
        _ => {
            let held = guard.hold(hash, what.key, |item| {
                fits(item, what)?;
                let expiry = item.expiry();
                let claim = claim(item, expiry, what);
                if !takes(&found(store, item, expiry, claim)) {
                    return Err(TooLong(item.value().len()));
                }
                if let Some(new) = what.touch {
                    guard.renew(hash, item, new);
                }
                if claim == Claim::Won {
                    store.replicas.change_item(hash);
                    item.mark_won();
                }
                Ok((expiry, claim))
            });
            let Some((item, held)) = held else { return Ok(None) };
            (item, held?)
        }
    };
    let found = found(store, item, expiry, claim);
    if !what.unnoticed {
        item.mark_visited(store.now());
    }
    Ok(Some(found))
}

/// What is shown of an item that would have expired at `expiry`.
fn found<'g>(store: &Store, item: ItemRef<'g>, expiry: u32, claim: Claim) -> Found<'g> {
    Found {
        value: item.value(),
        flags: item.flags(),
        cas: item.cas(),
        expiry,
        fetched: item.was_fetched(),
        accessed: item.accessed(),
        base64_key: item.has_base64_key(),
        stale: item.is_stale(),
        claim,
        class: store.class_of(&item),
        created: false,
    }
}

/// Whether there is room for the value.
fn fits(item: ItemRef<'_>, what: &Fetch<'_>) -> Result<(), TooLong> {
    let bytes = item.value().len();
    if bytes <= what.room { Ok(()) } else { Err(TooLong(bytes)) }
}

/// Whose it is to fetch an item anew that is held, and that would have expired at `expiry`.
fn claim(item: ItemRef<'_>, expiry: u32, what: &Fetch<'_>) -> Claim {
    if item.is_won() {
        return Claim::Taken;
    }
    let due = what.recache.is_some_and(|r| {
        let expiry = what.touch.filter(|_| r.touched).unwrap_or(expiry);
        expiry != 0 && expiry < r.before
    });
    if due || item.is_stale() { Claim::Won } else { Claim::None }
}

/// Leaves an empty item, won, if there is none.
fn create(
    session: &mut Session,
    what: &Fetch<'_>,
    expiry: u32,
) -> Result<Option<Found<'static>>, Refused> {
    let key = what.key;
    let hash = session.store().hash_of(key, what.hash);
    let (_, cas) = session.modify(hash, key, &[], |_, item| match item {
        Some(_) => Change::None(()),
        None => {
            let new = Replacement {
                value: NewValue::Given,
                flags: 0,
                expiry: Some(expiry),
                marks: Marks::WON,
                keeps: Marks::default(),
                own_cas: what.own_cas,
                in_place: false,
            };
            Change::Replace(new, ())
        }
    })?;
    let accessed = session.store().now();
    let class = session.store().class_for(key.len(), 0, what.own_cas.is_some()).unwrap_or(0);
    Ok(cas.map(|cas| Found {
        value: Value::Whole(&[]),
        flags: 0,
        cas,
        expiry: 0,
        fetched: false,
        accessed,
        base64_key: false,
        stale: false,
        claim: Claim::Won,
        class,
        created: true,
    }))
}
