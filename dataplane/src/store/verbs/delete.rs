//! `delete`: forget a key, or mark what is stored as out of date.

use crate::store::Session;
use crate::store::index::Expect;
use crate::store::marks::Marks;
use crate::store::session::{Change, NewValue, Replacement};
use crate::store::write::Refused;

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

/// Removes the item with this key. True when there was a live one.
pub fn delete(session: &mut Session, key: &[u8]) -> bool {
    let store = session.store();
    let gone = store.unlink(session.hash(key), key, Expect::Any);
    session.note_changed(gone);
    gone.is_some()
}

/// Removes the item with this key if it has this CAS id.
///
/// # Errors
/// [`NotDeleted`].
pub fn delete_if(session: &mut Session, key: &[u8], cas: u64) -> Result<(), NotDeleted> {
    let done = session.modify(key, &[], |item| match item {
        None => Change::None(Err(NotDeleted::NotFound)),
        Some(item) if item.cas() != cas => Change::None(Err(NotDeleted::Exists)),
        Some(_) => Change::Remove(Ok(())),
    });
    done?.0
}

/// Marks the item as stale, under a new CAS id, with a new exptime if one is given; only if it
/// has CAS id `cas`, if that is given (`md` with flag I).
///
/// # Errors
/// [`NotDeleted`].
pub fn invalidate(
    session: &mut Session,
    key: &[u8],
    cas: Option<u64>,
    exptime: Option<i64>,
) -> Result<(), NotDeleted> {
    let expiry = exptime.map(|e| session.store().clock().expiry(e));
    let done = session.modify(key, &[], |item| match item {
        None => Change::None(Err(NotDeleted::NotFound)),
        Some(item) if cas.is_some_and(|cas| cas != item.cas()) => {
            Change::None(Err(NotDeleted::Exists))
        }
        Some(item) => {
            let new = Replacement {
                value: NewValue::Present,
                flags: item.flags(),
                expiry,
                marks: Marks::STALE,
                keeps: Marks::BASE64_KEY,
                in_place: true,
            };
            Change::Replace(new, Ok(()))
        }
    });
    done?.0
}
