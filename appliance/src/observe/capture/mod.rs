//! `gnomon capture`: frames of a running gnomon, as pcapng.
//!
//! ```text
//!  workers ─► rings ─► session ─► file ─► stream ── socket of --metrics ──► client ─► FILE, stdout
//! ```
//!
//! In: a [`Request`], from the flags of a client by way of a query. Out: a pcapng file, byte by
//! byte over the socket on which metrics are served. The server opens no file and starts no
//! thread. One capture at a time; who may connect to the socket may capture, and only over a Unix
//! socket. Fails towards the client, never towards the service: a client that reads too slowly
//! loses frames, which the file shows, and one that does not read at all loses the capture.

mod client;
mod file;
mod request;
mod session;
mod stream;
mod sums;

pub use client::capture;
pub use request::{Request, RequestError};
pub(crate) use session::Captures;
pub(crate) use stream::{Refused, serve};
