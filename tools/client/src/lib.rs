//! memcached's protocols as clients speak them ([`codec`]), and a client of one-sided reads.
//!
//! [`Client`] gets a value by RDMA READ where it has the key's stag, checks what came ([`image`]), and
//! asks over TCP where it has none or the check fails. A [`Reader`] carries READs out:
//! [`frames::FrameReader`] is a requester in user space (RoCEv2, [`requester`]) over whatever moves frames, the kernel's
//! UDP sockets among them ([`sockets`]); with the feature `verbs` there is libibverbs. docs/rdma.md has the formats, and why each check is needed.
//!
//! [`SharedClient`] does the same on the server's machine, without a network: it reads items in the server's memory
//! file ([`shared`]; docs/shared-reads.md).
//!
//! ```no_run
//! use gnomon_client::codec::connection::Connection;
//! use gnomon_client::{Client, frames::FrameReader, sockets::Sockets};
//!
//! let mut service = Connection::open("10.0.0.5:11211".parse()?)?;
//! let sockets = Sockets::beside(&service)?;
//! let reader = FrameReader::connect(&mut service, sockets)?;
//! let mut client = Client::new(service, Some(reader));
//! client.set(b"sun", 0, b"shine")?;
//! let got = client.get(b"sun")?;
//! assert_eq!(got.map(|got| got.value), Some(&b"shine"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod client;
pub mod codec;
pub mod frames;
pub mod image;
mod mapping;
pub mod names;
pub mod reader;
pub mod requester;
pub mod service;
pub mod shared;
pub mod shared_client;
pub mod sockets;
pub mod stags;
#[cfg(feature = "verbs")]
pub mod verbs;

pub use client::Client;
pub use codec::{Place, Stag};
pub use reader::{ReadError, Reader};
pub use shared::Shared;
pub use shared_client::SharedClient;
