//! Look-ups without a key: by the place that the index has for it ([`KeyHash::place`]). Two keys can have one,
//! though hardly ever: the reader must compare the key.
//!
//! In: places. Out: live items. Nothing fails.

use crate::{Guard, ItemRef, KeyHash};

/// The live item at this place. It is not marked as read.
#[inline(never)]
pub fn get_by_place<'g>(guard: &'g Guard<'_>, place: KeyHash) -> Option<ItemRef<'g>> {
    let store = guard.store();
    let mut dead = None;
    let item = store.index.find(place, |loc| {
        let item = guard.at(loc).filter(|item| store.hash(item.key()).place() == place)?;
        if store.is_live(&item) {
            return Some(item);
        }
        dead = Some(item);
        None
    });
    if let (None, Some(dead)) = (item, dead) {
        guard.count_dead(&dead);
    }
    item
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, StoreConfig, verbs};
    use driver_shim::Pages;

    #[test]
    fn keys_of_any_length_are_found_by_place_and_what_is_not_there_or_dead_is_not() {
        let config = StoreConfig { pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let mut session = store.session().unwrap();
        let key = |n: usize| format!("{n:0len$}", len = 4 + n % 60 * 4 % 246);
        for n in 0..2000 {
            let key = key(n);
            let what = base::Store::set(key.as_bytes(), 0, 0, key.as_bytes());
            verbs::store(&mut session, None, &what).unwrap();
        }
        let guard = session.pin();
        let look_up = |key: &str| {
            let item = get_by_place(&guard, store.hash(key.as_bytes()).place());
            item.map(|item| item.key().to_vec())
        };
        for n in 0..3000 {
            let key = key(n);
            let right = verbs::get(&guard, key.as_bytes()).map(|item| item.key().to_vec());
            assert_eq!(right.is_some(), n < 2000);
            assert_eq!(look_up(&key), right, "{n}");
        }
        store.flush(0);
        for n in 0..8 {
            assert_eq!(look_up(&key(n * 60)), None);
        }
        drop(guard);
        assert_eq!(session.dead_found(), (0, 8));
    }
}
