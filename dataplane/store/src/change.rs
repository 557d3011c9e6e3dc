//! What a verb decides to do with the item that it is shown.
//!
//! In: what a verb has decided. Out: that, for the steps that carry it out. Never fails.

use super::item_flags::Marks;

/// What a verb decides to do with the item that it was shown, and its result.
#[derive(Debug)]
pub(super) enum Change<R> {
    /// Nothing.
    None(R),
    /// It goes.
    Remove(R),
    /// Another one comes in its place.
    Replace(Replacement, R),
}

/// A new item in the place of the present one.
#[derive(Debug)]
pub(super) struct Replacement {
    pub(super) value: NewValue,
    pub(super) flags: u32,
    /// On the store's clock; `None` for the present item's.
    pub(super) expiry: Option<u32>,
    pub(super) marks: Marks,
    /// Which of the present item's marks it has too.
    pub(super) keeps: Marks,
    /// The client's own CAS id.
    pub(super) own_cas: Option<u64>,
    /// It counts as read when the present one was.
    pub(super) in_place: bool,
}

/// Where a new value comes from: the client gave it, the present item has it, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NewValue {
    Given,
    Present,
    PresentThenGiven,
    GivenThenPresent,
    /// In decimal, with blanks behind up to a width of at most [`BLANKS`](crate::write::BLANKS).
    Number {
        number: u64,
        width: usize,
    },
}
