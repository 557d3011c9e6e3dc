//! One memory image after another recovered by one store, for tests that need very many.
//!
//! In: what a memory file would hold. Out: the store, and what [`Store::open`] would have
//! said to that file: the same functions check and recover it. There is no file: that it is
//! locked, set aside, marked and left alone when it is refused, is for `open`'s own tests.

use super::{AN_ITEM, Found, Settings, TakenUp, damaged, judge};
use crate::config::Shape;
use crate::layout::PAGE_BYTES;
use crate::store::Store;
use std::convert::Infallible;

impl Store {
    /// Begins anew with the items of a file of `len` bytes that begins with `start`, after `write`
    /// has made the store's memory what the file's pages would be: it finds there what it left
    /// when it last returned, and what the store did since. `None`: that file is refused.
    pub fn reopen(
        &mut self,
        len: u64,
        start: &[u8],
        write: impl FnOnce(&mut [u8]),
    ) -> Option<TakenUp> {
        self.forget_all();
        let (n_pages, sizes) = (self.slabs.n_pages() as usize, self.slabs.sizes().into());
        let shape = Shape { n_pages, sizes };
        let settings = Settings::new(&self.config, &shape);
        let memory = self.slabs.memory_mut();
        write(memory);
        let sum = |(page, len): &(u32, usize)| {
            let bytes = memory.get(*page as usize * PAGE_BYTES..).and_then(|b| b.get(..*len));
            crc32fast::hash(bytes.unwrap_or_default())
        };
        let sums = |pages: &[(u32, usize)]| Ok(pages.iter().map(sum).collect());
        let found: Result<_, Infallible> = judge((&settings, &shape), len, start, sums);
        let taken = match found {
            Ok(Found::Foreign) => return None,
            Ok(Found::Nothing) => TakenUp::New,
            Ok(Found::Unusable(why)) => TakenUp::Discarded(why),
            Ok(Found::Saved(saved, now)) => match self.take_up(&saved, now) {
                Ok(items) => TakenUp::Kept(items),
                Err(_) => {
                    self.forget_all();
                    TakenUp::Discarded(damaged(AN_ITEM))
                }
            },
        };
        self.assign_pages();
        Some(taken)
    }
}
