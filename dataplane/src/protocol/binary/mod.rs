//! The binary protocol (protocol_binary.txt; where memcached 1.6 differs from it, as memcached).
//!
//! [`parse`] makes requests of bytes, [`execute`] carries them out. In both a [`Header`] is the
//! only thing that knows which byte of a packet means what.

mod execute;
mod header;
mod parse;
mod stat;
mod status;

pub use execute::{execute, refuse};
pub use header::{HEADER_BYTES, Header, REQUEST_MAGIC, RESPONSE_MAGIC, opcode};
pub use parse::parse;
pub use status::Status;

use super::command::{Arith, Store};

/// One request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// Its header, for what goes back with the answer.
    pub header: Header,
    /// Send no answer if all goes well, or, of a get, if there is nothing.
    pub quiet: bool,
    /// What it asks.
    pub action: Action<'a>,
}

/// What a request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action<'a> {
    /// `get`, `gat`, `touch`.
    Get {
        /// The key.
        key: &'a [u8],
        /// The new exptime of what is found (`gat`, `touch`), as in [`Store::exptime`].
        touch: Option<i64>,
        /// What to send of what is found.
        send: Send,
    },
    /// `set`, `add`, `replace`, `append`, `prepend`.
    Store(Store<'a>),
    /// `delete`.
    Delete {
        /// The key.
        key: &'a [u8],
        /// Only if the item has this CAS id.
        cas: Option<u64>,
    },
    /// `increment`, `decrement`.
    Arith(Arith<'a>),
    /// `flush`.
    Flush {
        /// When, as in [`Store::exptime`], but that 0 is now.
        delay: i64,
    },
    /// `noop`.
    Noop,
    /// `version`.
    Version,
    /// `stat`, with its argument or none.
    Stat(&'a [u8]),
    /// `quit`.
    Quit,
    /// Something that cannot be understood or carried out.
    Refused {
        /// What to answer.
        status: Status,
        /// A `set` of this key failed: what is stored under it must not survive.
        forget: Option<&'a [u8]>,
        /// Nobody knows where the next request begins: close the connection.
        close: bool,
    },
}

/// How much of a found item is sent; its flags are always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Send {
    /// Nothing (`touch`).
    Flags,
    /// The value.
    Value,
    /// The key and the value (`getk`). If nothing is found, the key.
    KeyAndValue,
}

/// The refusal of a value as too long, for want of memory instead.
pub(super) fn unread(request: Request<'_>) -> Request<'_> {
    match request.action {
        Action::Refused { status: Status::TooLarge, forget, close } => {
            let action = Action::Refused { status: Status::OutOfMemory, forget, close };
            Request { action, ..request }
        }
        _ => request,
    }
}
