//! `delete`: forget a key, or mark what is stored as out of date.

use crate::change::{Change, NewValue, Replacement};
use crate::index::Expect;
use crate::item_flags::Marks;
use crate::write::Refused;
use crate::{KeyHash, Session};

/// Why nothing was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotDeleted {
    /// No such item.
    NotFound,
    /// The item has another CAS id.
    Exists,
    /// No memory for the item's new state.
    OutOfMemory,
}

impl From<Refused> for NotDeleted {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Mismatch => Self::Exists,
            Refused::TooLarge | Refused::OutOfMemory => Self::OutOfMemory,
        }
    }
}

/// Removes the item with this key. Returns the size class, from 0, of the live one that was there.
pub fn delete(session: &mut Session, hash: Option<KeyHash>, key: &[u8]) -> Option<usize> {
    let store = session.store();
    let gone = store.unlink(store.hash_of(key, hash), key, Expect::Any)?;
    Some(store.slabs.class_of(gone).map_or(0, |id| id.0.into()))
}

/// Removes the item with this key if it has this CAS id. Returns its size class, from 0.
///
/// # Errors
/// [`NotDeleted`].
pub fn delete_if(
    session: &mut Session,
    hash: Option<KeyHash>,
    key: &[u8],
    cas: u64,
) -> Result<usize, NotDeleted> {
    let hash = session.store().hash_of(key, hash);
    let done = session.modify(hash, key, &[], |store, item| match item {
        None => Change::None(Err(NotDeleted::NotFound)),
        Some(item) if item.cas() != cas => Change::None(Err(NotDeleted::Exists)),
        Some(item) => Change::Remove(Ok(store.class_of(&item))),
    });
    done?.0
}

/// What is left of an item in place of deleting it (`md` with flags I and x).
#[derive(Debug, Clone, Copy)]
pub struct Tombstone {
    /// Only of the item with this CAS id.
    pub cas: Option<u64>,
    /// Its new exptime. Without one a stale item keeps its own, and one without a value has none.
    pub exptime: Option<i64>,
    /// It is marked as stale.
    pub stale: bool,
    /// Its value goes; these are the client's flags of what stays.
    pub empty: Option<u32>,
    /// Its new CAS id. Without one what is not stale keeps its own.
    pub own_cas: Option<u64>,
}

/// Leaves a tombstone; a stale one under a new CAS id. Returns its size class, from 0.
///
/// # Errors
/// [`NotDeleted`].
pub fn invalidate(
    session: &mut Session,
    hash: Option<KeyHash>,
    key: &[u8],
    what: &Tombstone,
) -> Result<usize, NotDeleted> {
    let &Tombstone { cas, exptime, stale, empty, own_cas } = what;
    let exptime = exptime.or_else(|| empty.map(|_| 0));
    let expiry = exptime.map(|e| session.store().clock().expiry(e));
    let hash = session.store().hash_of(key, hash);
    let done = session.modify(hash, key, &[], |store, item| match item {
        None => Change::None(Err(NotDeleted::NotFound)),
        Some(item) if cas.is_some_and(|cas| cas != item.cas()) => {
            Change::None(Err(NotDeleted::Exists))
        }
        Some(item) => {
            let own_cas = own_cas.or_else(|| (!stale).then(|| item.cas()));
            let len = if empty.is_some() { 0 } else { item.value().len() };
            let class = store.class_for(key.len(), len, own_cas.is_some()).unwrap_or(0);
            let new = Replacement {
                // Nothing is given.
                value: if empty.is_some() { NewValue::Given } else { NewValue::Present },
                flags: empty.unwrap_or_else(|| item.flags()),
                expiry,
                marks: if stale { Marks::STALE } else { Marks::default() },
                keeps: if empty.is_some() { Marks::default() } else { Marks::BASE64_KEY },
                own_cas,
                in_place: empty.is_none(),
            };
            Change::Replace(new, Ok(class))
        }
    });
    done?.0
}
