//! Plays a capture at a server and checks every byte that comes back.
//!
//! [`run`] takes frames from a [`source`], a capture or a workload, and paces them; [`pending`]
//! remembers what was asked and not answered yet; a [`link::Link`] carries requests out and
//! replies in ([`sockets`]: kernel sockets, [`queues`]: the queues of a port, [`reads`]: one-sided reads over
//! either); [`assembly`] puts
//! replies of several datagrams together; [`verify`] holds them against the request; [`report`]
//! counts and prints, and [`series`] shows what happened when.
//!
//! Nothing here allocates per packet once buffers have grown to the sizes in use.

pub mod assembly;
mod book;
pub mod cli;
#[cfg(feature = "dpdk")]
pub mod dpdk;
mod error;
pub mod link;
pub mod pending;
pub mod port_frames;
pub mod queues;
pub mod reads;
pub mod report;
pub mod run;
pub mod series;
pub mod sockets;
pub mod source;
pub mod verify;

pub use error::PlayError;
pub use link::{Link, Taken};
pub use report::Report;
pub use run::{Pace, Plan, play};
pub use source::{Generated, Source};
