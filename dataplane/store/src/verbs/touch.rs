//! `touch`, `gat`: a new exptime for what there is.

use super::TooLong;
use crate::{Guard, ItemRef, KeyHash};

/// Moves the expiry time of the live item with this key, which counts as asking for it, if the caller takes it.
///
/// # Errors
/// [`TooLong`]: the caller has no room for it, and nothing was done.
pub fn touch<'g>(
    guard: &'g Guard<'_>,
    hash: Option<KeyHash>,
    key: &[u8],
    exptime: i64,
    takes: impl FnOnce(ItemRef<'_>) -> bool,
) -> Result<Option<ItemRef<'g>>, TooLong> {
    let store = guard.store();
    let expiry = store.clock().expiry(exptime);
    let hash = store.hash_of(key, hash);
    let held = guard.hold(hash, key, |item| {
        let taken = takes(item);
        if taken {
            guard.renew(hash, item, expiry);
        }
        taken
    });
    match held {
        None => Ok(None),
        Some((item, false)) => Err(TooLong(item.value().len())),
        Some((item, true)) => {
            item.mark_visited(store.now());
            Ok(Some(item))
        }
    }
}
