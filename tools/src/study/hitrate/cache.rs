//! What the caches of the study have in common, and the forms of their tables.

use crate::report::named;
use clap::ValueEnum;

/// A cache of items.
pub trait Cache {
    /// Whether the key is there. If it was not, it is now.
    fn ask(&mut self, key: u64) -> bool;

    /// Items held.
    fn len(&self) -> usize;

    /// Nothing is held.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

named! {
    /// Forms of a table.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
    pub enum Layout {
        /// A key has the places of one set.
        SetAssociative = "set-associative",
        /// A key has the places of two sets, and takes one in the emptier.
        TwoChoice = "two-choice",
        /// The same, and items move to their other set to make room.
        Cuckoo = "cuckoo",
        /// A key has the places next to its home, and items move within theirs to make room.
        Hopscotch = "hopscotch",
        /// A key may be anywhere.
        Chaining = "chaining",
    }
}
