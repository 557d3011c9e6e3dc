//! A walk over all items, in pieces.
//!
//! Enters: where the walk stands. Leaves: live items, page by page, and where to go on. A piece
//! looks at a bounded number of chunks under one pin, so that a walk over the whole store holds
//! nobody up and takes no memory. An item that is replaced or moved during the walk is seen once,
//! twice or not at all; one that stays is seen once. Never fails.

use super::item::Location;
use super::sizes::PAGE_SHIFT;
use super::{Guard, ItemRef};

/// Where a walk stands. The default is the beginning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cursor {
    page: u32,
    chunk: u32,
}

impl Guard<'_> {
    /// Goes on from `from`: calls `each` with live items of the size classes that `wanted` names
    /// (from 1), and with their class, until it says that this is enough, or until `chunks_max`
    /// chunks were looked at. Returns where to go on; `None` at the end of the store.
    pub fn walk(
        &self,
        from: Cursor,
        chunks_max: u32,
        wanted: impl Fn(u32) -> bool,
        mut each: impl FnMut(&ItemRef<'_>, u32) -> bool,
    ) -> Option<Cursor> {
        let (store, mut at) = (self.store(), from);
        let mut left = chunks_max;
        while at.page < store.slabs.n_pages() {
            // A page that is passed over is a step too.
            if left == 0 {
                return Some(at);
            }
            left -= 1;
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
