//! Stage 3 and what it reads: checked views of the headers, and what to do with a frame.
//!
//! Views stack by type: a [`Udp`] can only be made from an [`Ipv4`] or [`Ipv6`] view, and those
//! only from an [`Eth`] view. Making a view checks every bound once; after that no getter can
//! fail. Each header's field map stands once, as a `repr(C)` structure of bytes in its file.
//!
//! In: untrusted bytes of a frame. Out: a [`classify::Class`], or a [`DropReason`]
//! that names the fault. Nothing here allocates, keeps a frame, or can panic on any bytes;
//! the builders for tests and tools, [`build`] and [`corrupt`], are the exception.
#![deny(clippy::indexing_slicing)]

pub mod drop_reason;
// From the wire inwards.
pub mod eth;
pub mod arp;
pub mod ipv4;
pub mod ipv6;
pub mod icmp;
pub mod advert;
pub mod udp;
pub mod tcp;
pub mod udp_frame;
pub mod roce;
// Stage 3, and what is ours.
pub mod allow;
pub mod local;
pub mod classify;
// For the engine and stage 7.
pub mod verify;
pub mod reply;
// For tests and tools.
pub mod build;
pub mod corrupt;

pub use allow::{AllowList, Cidr, CidrError};
pub use classify::plain::PlainMatcher;
pub use classify::{At, Class, Respond, classify};
pub use drop_reason::DropReason;
pub use eth::Eth;
pub use ipv4::Ipv4;
pub use ipv6::Ipv6;
pub use local::{Local, LocalError};
pub use tcp::Tcp;
pub use udp::Udp;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Changes the header at the beginning of `bytes`, if it is all there.
pub fn with<H>(bytes: &mut [u8], change: impl FnOnce(&mut H))
where
    H: FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned,
{
    if let Ok((head, _)) = H::mut_from_prefix(bytes) {
        change(head);
    }
}
