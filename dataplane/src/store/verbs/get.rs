//! `get`: the whole look-up on the host.

use crate::store::{Guard, ItemRef};

/// The live item with this key. Tells the evicting hand that it was asked for.
#[inline]
pub fn get<'g>(guard: &'g Guard<'_>, key: &[u8]) -> Option<ItemRef<'g>> {
    let store = guard.store();
    let item = guard.find(store.hash(key), key)?;
    item.mark_visited(store.now());
    Some(item)
}
