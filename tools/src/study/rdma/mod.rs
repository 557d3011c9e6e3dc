//! The study of one-sided reads: what a READ costs the server's processor beside a GET over TCP, here and
//! with memcached, and what stags cost; after "Wimpy Nodes with 10GbE" (memcached over soft-RDMA), figures 2,
//! 7 and 8.
//!
//! READs and gnomon's TCP are measured with a worker that is given frames in memory, so that they have
//! neither a NIC's driver nor the kernel in them; memcached has the kernel's sockets, over loopback, as there
//! is no other way to it. The requester is the client library's, and every value is checked to the byte.
//!
//! `reads` is the worker under READs, `stags` writes what is asked over TCP, [`cli`] measures and prints.

pub mod cli;
mod reads;
mod stags;

pub use cli::Cli;
