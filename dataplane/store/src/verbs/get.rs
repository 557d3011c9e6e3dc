//! `get`: the whole look-up on the host.

use crate::{Guard, ItemRef, KeyHash, Supposed};

/// The live item with this key. Marks for the evicting hand that it was read.
#[inline]
pub fn get<'g>(guard: &'g Guard<'_>, key: &[u8]) -> Option<ItemRef<'g>> {
    let store = guard.store();
    let item = guard.find(store.hash(key), key)?;
    item.mark_visited(store.now());
    Some(item)
}

/// [`get`] of a key that something is known of: its hash, or where its item may be.
pub fn get_by<'g>(
    guard: &'g Guard<'_>,
    hint: &mut Supposed,
    hash: Option<KeyHash>,
    key: &[u8],
) -> Option<ItemRef<'g>> {
    let store = guard.store();
    let item = guard.find_by(hint, store.hash_of(key, hash), key)?;
    item.mark_visited(store.now());
    Some(item)
}
