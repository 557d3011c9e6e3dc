//! The verbs that most tests need, for keys that nobody has hashed yet.

use store::Session;
use store::verbs::{self, NotStored};

/// Stores; leaves the CAS id.
pub(crate) fn set(s: &mut Session, what: &base::Store<'_>) -> Result<u64, NotStored> {
    verbs::store(s, None, what).map(|stored| stored.cas)
}

/// Whether a live item is gone.
pub(crate) fn delete(s: &mut Session, key: &[u8]) -> bool {
    verbs::delete(s, None, key).is_some()
}
