//! What can be done with the store, one file per verb.
//!
//! A verb that reads takes a [`Guard`](super::Guard) and borrows from it; a verb that writes takes
//! the [`Session`](super::Session) itself, so that no look can be going on in it: a writer that
//! waits for memory must not be the one who holds it up.

mod delete;
mod get;
mod set;

pub use delete::delete;
pub use get::get;
pub use set::{SetOutcome, set};
