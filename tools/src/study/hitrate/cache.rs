//! What the caches of the study have in common, and the forms of their tables.

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

/// Forms of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Layout {
    /// A key has the places of one set.
    SetAssociative,
    /// A key has the places of two sets, and takes one in the emptier.
    TwoChoice,
    /// The same, and items move to their other set to make room.
    Cuckoo,
    /// A key has the places next to its home, and items move within theirs to make room.
    Hopscotch,
    /// A key may be anywhere.
    Chaining,
}

impl Layout {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::SetAssociative => "set-associative",
            Self::TwoChoice => "two-choice",
            Self::Cuckoo => "cuckoo",
            Self::Hopscotch => "hopscotch",
            Self::Chaining => "chaining",
        }
    }
}
