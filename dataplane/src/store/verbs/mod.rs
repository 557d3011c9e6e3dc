//! What can be done with the store, one file per verb.
//!
//! A verb that reads takes a [`Guard`](super::Guard) and borrows from it; a verb that writes takes
//! the [`Session`](super::Session) itself, so that nobody else's look is going on in it. Each is
//! one step: it happened before or after any other on the same key, never half.

mod arith;
mod delete;
mod fetch;
mod get;
mod store;
mod touch;

pub use arith::{ArithFailure, Counted, arith};
pub use delete::{NotDeleted, delete, delete_if, invalidate};
pub use fetch::{Claim, Fetch, Found, Recache, TooLong, fetch};
pub use get::get;
pub use store::{NotStored, set, store};
pub use touch::touch;
