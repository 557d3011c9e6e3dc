//! `delete`: forget a key.

use crate::store::Session;
use crate::store::index::Expect;

/// Removes the item with this key. True when there was one that had not expired.
pub fn delete(session: &mut Session, key: &[u8]) -> bool {
    let store = session.store();
    store.unlink(store.hash(key), key, Expect::Any)
}
