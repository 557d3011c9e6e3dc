//! `touch`, `gat`: a new exptime for what there is.

use crate::{Guard, ItemRef, KeyHash};

/// Moves the expiry time of the live item with this key, which counts as asking for it.
pub fn touch<'g>(
    guard: &'g Guard<'_>,
    hash: Option<KeyHash>,
    key: &[u8],
    exptime: i64,
) -> Option<ItemRef<'g>> {
    let store = guard.store();
    let expiry = store.clock().expiry(exptime);
    let hash = store.hash_of(key, hash);
    let (item, ()) = guard.hold(hash, key, |item| guard.renew(hash, item, expiry))?;
    item.mark_visited(store.now());
    Some(item)
}
