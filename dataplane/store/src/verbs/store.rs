//! `set`, `add`, `replace`, `append`, `prepend`, `cas`: store a value.

use crate::change::{Change, NewValue, Replacement};
use crate::index::Expect;
use crate::item::Value;
use crate::item_flags::Marks;
use crate::new_item::{NewItem, PlainItem};
use crate::write::Refused;
use crate::{ItemRef, KeyHash, Session};
use base::{Store, StoreMode, checksum};

/// Why nothing was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStored {
    /// The item has another CAS id. Its size class, from 0.
    Exists(usize),
    /// A CAS id was given, and there is no item.
    NotFound,
    /// There is something (`add`), or nothing (`replace`, `append`, `prepend`).
    Condition,
    /// Above the item limit. After a plain `set`, what was stored under the key is gone.
    TooLarge,
    /// No memory. After a plain `set`, what was stored under the key is gone.
    OutOfMemory,
}

/// What was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// The CAS id of the new item.
    pub cas: u64,
    /// The length of its value, with what it was joined to.
    pub len: usize,
    /// The size class, from 0, of the item that was there, where the verb looked.
    pub class: Option<usize>,
}

impl From<Refused> for NotStored {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::TooLarge => Self::TooLarge,
            Refused::OutOfMemory => Self::OutOfMemory,
            Refused::Mismatch => Self::Exists(usize::MAX),
        }
    }
}

/// Stores an item.
///
/// # Errors
/// [`NotStored`].
#[inline(always)]
pub fn store(
    session: &mut Session,
    hash: Option<KeyHash>,
    what: &Store<'_>,
) -> Result<Stored, NotStored> {
    match (what.mode, what.cas, what.own_cas) {
        (StoreMode::Set, None, None) => {
            let stored = set(session, hash, None, what);
            session.settle();
            stored
        }
        _ => store_if(session, hash, what),
    }
}

/// Stores if what is there meets the client's condition, or makes a new value of it.
#[inline(never)]
fn store_if(
    session: &mut Session,
    hash: Option<KeyHash>,
    what: &Store<'_>,
) -> Result<Stored, NotStored> {
    // `create` is the expiry time of an item that an append or prepend creates.
    let expiry = session.store().clock().expiry(what.create.unwrap_or(what.exptime));
    let hash = session.store().hash_of(what.key, hash);
    let done =
        session.modify(hash, what.key, what.value, |store, item| match decide(store, what, item) {
            Ok(Decision { value, stale }) => {
                let joined = item.filter(|_| value != NewValue::Given);
                let len = what.value.len() + joined.map_or(0, |item| item.value().len());
                let own = own_marks(what);
                let (marks, keeps) = match joined {
                    Some(_) => (Marks::default(), Marks::BASE64_KEY),
                    None if stale => (own.and(Marks::STALE), Marks::WON),
                    None => (own, Marks::default()),
                };
                let new = Replacement {
                    value,
                    flags: joined.map_or(what.flags, |i| i.flags()),
                    expiry: (joined.is_none() && !stale).then_some(expiry),
                    marks,
                    keeps,
                    own_cas: what.own_cas,
                    in_place: false,
                };
                Change::Replace(new, Ok((len, item.map(|item| store.class_of(&item)))))
            }
            Err(why) => Change::None(Err(why)),
        });
    let (result, cas) = done?;
    result.map(|(len, class)| Stored { cas: cas.unwrap_or(0), len, class })
}

fn own_marks(what: &Store<'_>) -> Marks {
    if what.base64_key { Marks::BASE64_KEY } else { Marks::default() }
}

struct Decision {
    value: NewValue,
    /// Older than what is there: it is taken, but as stale, and for no longer.
    stale: bool,
}

fn decide(
    store: &crate::Store,
    what: &Store<'_>,
    item: Option<ItemRef<'_>>,
) -> Result<Decision, NotStored> {
    let value = match what.mode {
        StoreMode::Add | StoreMode::Set | StoreMode::Replace => NewValue::Given,
        StoreMode::Append => NewValue::PresentThenGiven,
        StoreMode::Prepend => NewValue::GivenThenPresent,
    };
    let joins = value != NewValue::Given;
    match (what.mode, item, what.cas) {
        (StoreMode::Add, Some(_), _) => Err(NotStored::Condition),
        (StoreMode::Add, None, _) => Ok(Decision { value, stale: false }),
        (_, None, _) if joins && what.create.is_some() => {
            Ok(Decision { value: NewValue::Given, stale: false })
        }
        (StoreMode::Set, None, None) => Ok(Decision { value, stale: false }),
        (_, None, Some(_)) if !joins => Err(NotStored::NotFound),
        (_, None, _) => Err(NotStored::Condition),
        // 0 can be an item's own, and is no CAS id to compare with all the same.
        (_, Some(item), Some(cas)) if cas != item.cas() || cas == 0 => {
            let stale = what.or_stale && !joins && cas < item.cas();
            if stale {
                Ok(Decision { value, stale })
            } else {
                Err(NotStored::Exists(store.class_of(&item)))
            }
        }
        (_, Some(_), _) => Ok(Decision { value, stale: false }),
    }
}

/// Stores, whatever was there; mode and CAS ids are not looked at. When that fails, what was there
/// before goes too, so that no client reads a value that its writer believes replaced (as in
/// memcached).
///
/// The memory of what was there comes back with [`Session::settle`], for many at once. `value_sum` is that
/// of the value, if it is known, as [`ItemRef::value_sum`] has it.
///
/// # Errors
/// [`NotStored`].
#[inline(always)]
pub fn set(
    session: &mut Session,
    hash: Option<KeyHash>,
    value_sum: Option<u16>,
    what: &Store<'_>,
) -> Result<Stored, NotStored> {
    debug_assert!(value_sum.is_none_or(|sum| sum == checksum::sum(what.value)), "of other bytes");
    let hash = session.store().hash_of(what.key, hash);
    let new = NewItem {
        key: what.key,
        flags: what.flags,
        expiry: session.store().clock().expiry(what.exptime),
        value: [what.value.into(), Value::Whole(&[])],
        sums: [value_sum, None],
        marks: own_marks(what),
        own_cas: None,
    };
    match session.put(hash, &new) {
        Ok(cas) => Ok(Stored { cas, len: what.value.len(), class: None }),
        Err(refused) => {
            session.store().unlink(hash, what.key, Expect::Any);
            Err(refused.into())
        }
    }
}

/// A `set` of which more is known than a client says.
#[derive(Debug, Clone, Copy)]
pub struct HashedSet<'a> {
    /// The key's hash.
    pub hash: KeyHash,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// The value's, as [`ItemRef::value_sum`] has it, if it is known.
    pub value_sum: Option<u16>,
    /// Client flags.
    pub flags: u32,
    /// As clients say it.
    pub exptime: i64,
}

/// [`set`] of something for which [`Session::reserve`] has taken a chunk, mostly.
///
/// # Errors
/// [`NotStored`].
#[inline(always)]
pub fn set_reserved(session: &mut Session, what: HashedSet<'_>) -> Result<Stored, NotStored> {
    let HashedSet { hash, key, value, value_sum, flags, exptime } = what;
    debug_assert!(value_sum.is_none_or(|sum| sum == checksum::sum(value)), "of other bytes");
    debug_assert_eq!(hash, session.store().hash(key), "of another key");
    let expiry = session.store().clock().expiry(exptime);
    match session.put_reserved(hash, PlainItem { key, value, sum: value_sum, flags, expiry }) {
        Some(cas) => Ok(Stored { cas, len: value.len(), class: None }),
        None => set_late(session, hash, value_sum, key, value, flags, exptime),
    }
}

/// [`set`], not inlined, with arguments that fit registers: what a caller stores otherwise need not be in memory
/// for it.
#[cold]
#[inline(never)]
fn set_late(
    session: &mut Session,
    hash: KeyHash,
    value_sum: Option<u16>,
    key: &[u8],
    value: &[u8],
    flags: u32,
    exptime: i64,
) -> Result<Stored, NotStored> {
    set(session, Some(hash), value_sum, &Store::set(key, flags, exptime, value))
}
