//! The memcached protocol: bytes to [`Command`]s, commands to reply bytes.
//!
//! [`ascii`], with [`meta`] for commands of two letters, and [`binary`] parse, as the [`dialect`] has
//! it; [`executor`] carries out (D3: the one and only); [`stream`] runs both over a connection's
//! bytes, once [`admission`] lets it begin. Datagrams are framed by [`udp_frame`].

pub mod admin;
pub mod admission;
pub mod ascii;
pub mod binary;
pub mod command;
pub mod dialect;
pub mod executor;
pub(crate) mod keys;
pub mod meta;
mod parsed;
pub mod sink;
pub mod stats;
pub mod stream;
pub mod tuning;
pub mod udp_frame;
pub mod watch;

pub use admin::Admin;
pub use ascii::{PlainSet, plain_set};
pub use command::{Arith, Command, KEY_MAX_BYTES, Keys, Refusal, Store, StoreMode};
pub use dialect::{Dialect, Dialects};
pub use executor::{Flow, execute};
pub use parsed::Parsed;
pub use sink::Sink;
pub use stats::{OpCounters, Server};
