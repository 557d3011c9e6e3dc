//! A look-up without the key: by the place that the index has for it.

use crate::{Guard, ItemRef, KeyHash};

/// The live item at this place ([`KeyHash::place`]). Two keys can have one, though hardly ever: the reader
/// must compare the key. Marks for the evicting hand that it was read.
#[inline]
pub fn get_by_place<'g>(guard: &'g Guard<'_>, place: KeyHash) -> Option<ItemRef<'g>> {
    let store = guard.store();
    let item = store.index.find(place, |loc| {
        let item = guard.at(loc)?;
        (store.hash(item.key()).place() == place && store.is_live(&item)).then_some(item)
    })?;
    item.mark_visited(store.now());
    Some(item)
}
