//! `set`: store, whatever was there.

use crate::protocol;
use crate::store::Session;
use crate::store::index::Expect;
use crate::store::item::NewItem;
use crate::store::session::Refused;

/// What became of a `set`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetOutcome {
    /// Stored.
    Stored,
    /// Above the item limit. What was stored under the key is gone.
    TooLarge,
    /// No memory. What was stored under the key is gone.
    OutOfMemory,
}

/// Stores an item. When that fails, what was there before goes too, so that nobody reads a value
/// that its writer believes replaced (as in memcached).
pub fn set(session: &mut Session, what: &protocol::Store<'_>) -> SetOutcome {
    let store = session.store();
    let hash = store.hash(what.key);
    let new = NewItem {
        key: what.key,
        flags: what.flags,
        expiry: store.clock().expiry(what.exptime),
        value: [what.value, &[]],
    };
    let stored = store.make(&new).and_then(|fresh| store.link(hash, what.key, fresh, Expect::Any));
    let outcome = match stored {
        Ok(()) => return SetOutcome::Stored,
        Err(Refused::TooLarge) => SetOutcome::TooLarge,
        // Nothing was expected, so there is no mismatch.
        Err(Refused::OutOfMemory | Refused::Mismatch) => SetOutcome::OutOfMemory,
    };
    store.unlink(hash, what.key, Expect::Any);
    outcome
}
