//! What can be done with the store, one file per verb.
//!
//! A verb that reads takes a [`Guard`](super::Guard) and borrows from it; a verb that writes takes
//! the [`Session`](super::Session) itself, so that no guard of the same session is alive. Each is
//! one step: it happened before or after any other on the same key, never half. The hash of its key is an
//! argument: `None` where it has not been computed yet.

mod arith;
mod delete;
mod fetch;
mod get;
mod place;
mod store;
mod touch;

pub use arith::{ArithFailure, Counted, arith};
pub use base::Claim;
pub use delete::{NotDeleted, Tombstone, delete, delete_if, invalidate};
pub use fetch::{Fetch, Found, Recache, TooLong, fetch};
pub use get::{get, get_by};
pub use place::get_by_place;
pub use store::{HashedSet, NotStored, Stored, set, set_reserved, store};
pub use touch::touch;
