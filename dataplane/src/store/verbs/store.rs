//! `set`, `add`, `replace`, `append`, `prepend`, `cas`: store a value.

use crate::protocol::{Store, StoreMode};
use crate::store::index::Expect;
use crate::store::marks::Marks;
use crate::store::session::{Change, NewValue, Replacement};
use crate::store::value::{NewItem, Value};
use crate::store::write::Refused;
use crate::store::{ItemRef, Session};

/// Why nothing was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStored {
    /// The item has another CAS id.
    Exists,
    /// A CAS id was given, and there is no item.
    NotFound,
    /// There is something (`add`), or nothing (`replace`, `append`, `prepend`).
    Condition,
    /// Above the item limit. After a plain `set`, what was stored under the key is gone.
    TooLarge,
    /// No memory. After a plain `set`, what was stored under the key is gone.
    OutOfMemory,
}

impl From<Refused> for NotStored {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::TooLarge => Self::TooLarge,
            Refused::OutOfMemory => Self::OutOfMemory,
            Refused::Mismatch => Self::Exists,
        }
    }
}

/// Stores an item and returns its CAS id.
///
/// # Errors
/// [`NotStored`].
#[inline(always)]
pub fn store(session: &mut Session, what: &Store<'_>) -> Result<u64, NotStored> {
    match (what.mode, what.cas) {
        (StoreMode::Set, None) => {
            let stored = set(session, what);
            session.settle();
            stored
        }
        _ => store_if(session, what),
    }
}

/// Stores if what is there is as the client wants it, or makes a new value of it.
#[inline(never)]
fn store_if(session: &mut Session, what: &Store<'_>) -> Result<u64, NotStored> {
    let expiry = session.store().clock().expiry(what.exptime);
    let done = session.modify(what.key, what.value, |item| match decide(what, item) {
        Ok(Decision { value, stale }) => {
            let joined = item.filter(|_| value != NewValue::Given);
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
                in_place: false,
            };
            Change::Replace(new, Ok(()))
        }
        Err(why) => Change::None(Err(why)),
    });
    let (result, cas) = done?;
    result.map(|()| cas.unwrap_or(0))
}

fn own_marks(what: &Store<'_>) -> Marks {
    if what.base64_key { Marks::BASE64_KEY } else { Marks::default() }
}

struct Decision {
    value: NewValue,
    /// Older than what is there: it is taken, but as stale, and for no longer.
    stale: bool,
}

fn decide(what: &Store<'_>, item: Option<ItemRef<'_>>) -> Result<Decision, NotStored> {
    let value = match what.mode {
        StoreMode::Add | StoreMode::Set | StoreMode::Replace => NewValue::Given,
        StoreMode::Append => NewValue::PresentThenGiven,
        StoreMode::Prepend => NewValue::GivenThenPresent,
    };
    let joins = value != NewValue::Given;
    match (what.mode, item, what.cas) {
        (StoreMode::Add, Some(_), _) => Err(NotStored::Condition),
        (StoreMode::Add, None, _) => Ok(Decision { value, stale: false }),
        (_, None, Some(_)) if !joins => Err(NotStored::NotFound),
        (_, None, _) => Err(NotStored::Condition),
        (_, Some(item), Some(cas)) if cas != item.cas() => {
            let stale = what.or_stale && !joins && cas < item.cas();
            if stale { Ok(Decision { value, stale }) } else { Err(NotStored::Exists) }
        }
        (_, Some(_), _) => Ok(Decision { value, stale: false }),
    }
}

/// Stores, whatever was there; mode and CAS id are not looked at. When that fails, what was there
/// before goes too, so that nobody reads a value that its writer believes replaced (as in
/// memcached).
///
/// The memory of what was there comes back with [`Session::settle`], for many at once.
///
/// # Errors
/// [`NotStored`].
#[inline(always)]
pub fn set(session: &mut Session, what: &Store<'_>) -> Result<u64, NotStored> {
    let hash = session.hash(what.key);
    let new = NewItem {
        key: what.key,
        flags: what.flags,
        expiry: session.store().clock().expiry(what.exptime),
        value: [what.value.into(), Value::Whole(&[])],
        sums: [None; 2],
        marks: own_marks(what),
    };
    session.put(hash, &new).map_err(|refused| {
        session.store().unlink(hash, what.key, Expect::Any);
        refused.into()
    })
}
