//! A walk over all items, in pieces.
//!
//! In: where the walk stands. Out: live items, page by page, and where to go on. A piece
//! looks at a bounded number of chunks under one pin, so that a walk over the whole store holds
//! no writer up and allocates nothing. An item that is replaced or moved during the walk is seen once,
//! twice or not at all; one that stays is seen once. Never fails.

use super::item::Location;
use super::layout::PAGE_SHIFT;
use super::{Guard, ItemRef};

/// Where a walk stands. The default is the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    page: u32,
    chunk: u32,
}

impl Guard<'_> {
    /// Goes on from `from`: calls `each` with live items of the size classes that `wanted` names
    /// (from 1), and with their class, until it says that this is enough, or until `left` chunks, which it
    /// counts down, were looked at. Returns where to go on; `None` at the end of the store.
    pub fn walk(
        &self,
        from: Cursor,
        left: &mut u32,
        wanted: impl Fn(u32) -> bool,
        mut each: impl FnMut(&ItemRef<'_>, u32) -> bool,
    ) -> Option<Cursor> {
        let (store, mut at) = (self.store(), from);
        while at.page < store.slabs.n_pages() {
            // A page that is passed over is a step too.
            if *left == 0 {
                return Some(at);
            }
            *left -= 1;
            let here = store.slabs.page(at.page);
            let here = here.map(|(id, carved)| (id, u32::from(id.0) + 1, carved));
            let Some((id, class, _)) =
                here.filter(|&(_, class, carved)| at.chunk < carved && wanted(class))
            else {
                at = Cursor { page: at.page + 1, chunk: 0 };
                continue;
            };
            let unit = at.chunk * store.slabs.size(id).units;
            at.chunk += 1;
            let item = self.at(Location((at.page << PAGE_SHIFT) + unit));
            if let Some(item) = item.filter(|item| store.is_live(item))
                && !each(&item, class)
            {
                return Some(at);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Store, StoreConfig, verbs};
    use driver_shim::Pages;
    use std::collections::BTreeSet;

    #[test]
    fn a_walk_in_pieces_sees_each_live_item_once() {
        let config =
            StoreConfig { memory_bytes: 64 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let mut session = store.session().unwrap();
        let mut wanted = BTreeSet::new();
        for i in 0..5000 {
            let key = format!("key{i}").into_bytes();
            let (value, exptime) = (vec![b'v'; i % 300], if i % 10 == 0 { -1 } else { 0 });
            let new = base::Store::set(&key, 0, exptime, &value);
            verbs::store(&mut session, None, &new).unwrap();
            if exptime == 0 {
                wanted.insert(key);
            }
        }
        // Stopped by its own bound, and by the caller.
        for (chunks, items) in [(100, usize::MAX), (u32::MAX, 7), (1, 1)] {
            let (mut seen, mut at, mut pieces) = (Vec::new(), Some(Cursor::default()), 0);
            while let Some(from) = at {
                let before = seen.len();
                let mut left = chunks;
                at = session.pin().walk(
                    from,
                    &mut left,
                    |_| true,
                    |item, class| {
                        assert!(class > 0);
                        seen.push(item.key().to_vec());
                        seen.len() - before < items
                    },
                );
                assert!(seen.len() - before <= items.min(chunks as usize));
                pieces += 1;
            }
            assert!(pieces > 40);
            let once: BTreeSet<_> = seen.iter().cloned().collect();
            assert!(once == wanted && once.len() == seen.len());
        }
        let mut others = 0;
        let small = |class| class == 1;
        session.pin().walk(Cursor::default(), &mut { u32::MAX }, small, |_, class| {
            others += u32::from(class != 1);
            true
        });
        assert_eq!(others, 0);
    }
}
