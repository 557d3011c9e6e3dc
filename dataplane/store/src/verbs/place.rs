//! Look-ups without a key: by the place that the index has for it ([`KeyHash::place`]). Two keys can have one,
//! though hardly ever: the reader must compare the key.
//!
//! In: places, one or eight, with what the index had there. Out: live items. Nothing fails.

use crate::hash::{LANES, last_word};
use crate::{Fetched, Guard, ItemRef, KeyHash, Store};

/// The live item at this place.
fn get_by_place<'g>(guard: &'g Guard<'_>, place: KeyHash) -> Option<ItemRef<'g>> {
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

/// The live items at eight places; `found` is what [`Guard::fetch_near`] or, where that had nothing,
/// [`Guard::fetch_either`] had for each. They are not marked as read.
#[inline]
pub fn eight_by_place<'g>(
    guard: &'g Guard<'_>,
    places: &[Option<KeyHash>; LANES],
    found: &[Option<Fetched<'g>>; LANES],
) -> [Option<ItemRef<'g>>; LANES] {
    let store = guard.store();
    let mut items = found.map(|found| found.and_then(Fetched::item));
    let hashes = eight_hashes(store, &items);
    for (((item, place), found), hash) in items.iter_mut().zip(places).zip(found).zip(hashes) {
        // Nothing with this tag is a miss.
        let (Some(place), Some(_)) = (place, found) else {
            *item = None;
            continue;
        };
        if KeyHash(hash).place() != *place || !item.is_some_and(|item| store.is_live(&item)) {
            *item = get_by_place(guard, *place);
        }
    }
    items
}

/// The hashes of these items' keys; of those that there are none of, anything.
#[inline]
fn eight_hashes(store: &Store, items: &[Option<ItemRef<'_>>; LANES]) -> [u64; LANES] {
    let Some(first) = items.iter().flatten().next() else { return [0; LANES] };
    let words_of = |item: &ItemRef<'_>| usize::from(item.key_len()) / 8 + 1;
    let words = words_of(first);
    let other = |item: &ItemRef<'_>| {
        words_of(item) != words || usize::from(item.key_len()) > item.key_block().len()
    };
    if items.iter().flatten().any(other) {
        return items.map(|item| item.map_or(0, |item| store.hash(item.key()).0));
    }
    let mut message = [[0; LANES]; KEY_WORDS];
    for (lane, item) in items.iter().enumerate() {
        let item = item.unwrap_or(*first);
        let len = usize::from(item.key_len());
        let blocks = item.key_block().as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
        for ((n, words_of), word) in message.iter_mut().enumerate().zip(blocks.chain([0])) {
            let word = match n * 8 + 8 <= len {
                true => word,
                false => word & ((1 << (8 * (len % 8))) - 1) | last_word(&[], len),
            };
            if let Some(to) = words_of.get_mut(lane) {
                *to = word;
            }
        }
    }
    store.hasher.hash_eight(message.get(..words).unwrap_or_default())
}

/// Words of the longest key that is hashed beside others, with the last, of its length.
const KEY_WORDS: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{StoreConfig, verbs};
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
        let look_up = |keys: [String; LANES]| {
            let hashes = keys.each_ref().map(|key| store.hash(key.as_bytes()).place());
            let found = hashes.map(|place| guard.fetch_near(place));
            let mut found = found.into_iter().zip(hashes);
            let found = [(); LANES].map(|()| {
                found.next().and_then(|(near, place)| near.or_else(|| guard.fetch_either(place)))
            });
            eight_by_place(&guard, &hashes.map(Some), &found)
                .map(|item| item.map(|i| i.key().to_vec()))
        };
        for n in 0..2000 {
            // Of one length, of several, and with some that are not there.
            for step in [60, 7, 1000] {
                let keys = [0, 1, 2, 3, 4, 5, 6, 7].map(|k| key(n + k * step));
                let right = keys
                    .each_ref()
                    .map(|key| verbs::get(&guard, key.as_bytes()).map(|item| item.key().to_vec()));
                assert_eq!(look_up(keys), right, "{n}");
            }
        }
        store.flush(0);
        assert_eq!(
            look_up([0, 60, 120, 180, 240, 300, 360, 420].map(key)),
            [const { None }; LANES]
        );
        assert!(eight_by_place(&guard, &[None; LANES], &[None; LANES]).iter().all(Option::is_none));
        drop(guard);
        assert_eq!(session.dead_found(), (0, 8));
    }
}
