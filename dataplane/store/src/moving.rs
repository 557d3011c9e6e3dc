//! What page is being moved, from which class to which, and how eagerly.
//!
//! In and out: numbers; `mover.rs` and `drain.rs` have the work. Never fails.

use super::balance::Balance;
use super::slab::ClassId;

/// Who gives pages to whom.
#[derive(Debug)]
pub(super) struct Mover {
    pub(super) draining: Option<Drain>,
    /// Pages moved so far.
    pub(super) pages_moved: u64,
    /// How eagerly pages go to classes that need them more.
    pub(super) automove: Automove,
    /// The class that the page taken last is for, until it has got it.
    pub(super) promised: Option<ClassId>,
    pub(super) balance: Balance,
}

/// How eagerly pages go from classes that keep items for longer to those that keep them shorter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Automove {
    /// Not at all. A class without any page still gets one.
    Off,
    /// When that saves more items that are read again than it costs, by half.
    Slow,
    /// When it saves as many as it costs.
    Eager,
}

impl Automove {
    /// How many times as much a page must be worth to the class that gets it, if any is to.
    pub(super) fn gain(self) -> Option<f64> {
        match self {
            Self::Off => None,
            // A page on the way costs both of them some items.
            Self::Slow => Some(1.5),
            Self::Eager => Some(1.0),
        }
    }
}

/// Why a page is not moved as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotMoved {
    /// Another page is on its way.
    Busy,
    /// No such size class.
    BadClass,
    /// From a class to itself.
    Same,
    /// The class has no page to give, or evicting is switched off, or pages stay where they are.
    NoSpare,
}

impl Mover {
    pub(super) fn new(n_classes: usize) -> Self {
        Self {
            draining: None,
            pages_moved: 0,
            automove: Automove::Slow,
            promised: None,
            balance: Balance::new(n_classes),
        }
    }

    /// Whether a page is on its way.
    pub(super) fn is_busy(&self) -> bool {
        self.draining.is_some() || self.promised.is_some()
    }
}

/// A page on its way out of its class.
#[derive(Debug, Clone, Copy)]
pub(super) struct Drain {
    pub(super) class: ClassId,
    pub(super) page: u32,
    /// The chunk to look at next.
    pub(super) chunk: u32,
    /// Chunks in it that were not free at the start and have not been dealt with, about.
    pub(super) left: u32,
}

impl Drain {
    pub(super) fn new(class: ClassId, page: u32, taken: u32) -> Self {
        Self { class, page, chunk: 0, left: taken }
    }
}
