//! What the updater asks the store.
//!
//! In: hashes. Out: what the store has there. Never fails.

/// What the store has at a hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Found<'a> {
    /// Where the item is.
    pub location: u32,
    /// What clients get of its CAS id.
    pub cas: u64,
    /// Its flags.
    pub flags: u32,
    /// Bytes of its value.
    pub value_len: u32,
    /// Its key, 1 to 250 bytes.
    pub key: &'a [u8],
    /// Its value, if that lies in one piece.
    pub value: &'a [u8],
    /// When it expires, on the store's clock; 0 for never.
    pub expiry: u32,
    /// Its size class, from 0.
    pub class: u8,
    /// The reply to an `mg` says more of it than what is asked: that it is stale or won, or that its key is in base64.
    pub marked: bool,
}

/// The store's index, from which the updater reads what is true.
pub trait Source: Send {
    /// Reports for each hash, in order, what is there now, or that nothing is: after every change that
    /// the feed was notified of before.
    fn look(&mut self, hashes: &[u64], tell: &mut dyn FnMut(u64, Option<Found<'_>>));

    /// The store's clock, in seconds.
    fn now(&self) -> u32;
}
