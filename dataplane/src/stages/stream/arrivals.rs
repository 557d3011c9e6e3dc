//! The segments of a burst, before their connections take them.
//!
//! In: frames that stage 3 called `Segment`. Out: the same, checked, with the 4-tuples that they name and
//! where the hash of these leads. Between one step of a burst and the next, memory has time: with many
//! connections each of them has left the caches since its last segment, and one that waits for its lines
//! alone waits long. What fails has a [`DropReason`].

use super::table::{FourTuple, TupleHash};
use driver_shim::Frame;
use wire::verify::verify_ip4_header;
use wire::{At, DropReason, Tcp, tcp};

/// A segment whose checksums are right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segment<'f> {
    /// From TCP's header on.
    pub(super) bytes: &'f [u8],
    pub(super) head: Tcp<'f>,
    pub(super) tuple: FourTuple,
}

impl<'f> Segment<'f> {
    /// The segment in a frame. `verified`: its checksums were looked at before.
    #[inline]
    pub(super) fn read(
        frame: &'f Frame,
        (at, port): (At, usize),
        verified: bool,
    ) -> Result<Self, DropReason> {
        let At { l3, l4, ipv6, .. } = at;
        let has_ip_sum = !ipv6 && !verified && !frame.rx.ip_good.is_set();
        if has_ip_sum && !verify_ip4_header(frame.bytes(), l3) {
            return Err(DropReason::Ipv4Checksum);
        }
        let packet = tcp::packet(frame.bytes(), l3, ipv6).ok_or(DropReason::TcpTruncated)?;
        let behind = usize::from(l4 - l3);
        let is_known = verified || frame.rx.udp_good.is_set();
        if !is_known && !tcp::verify(packet.bytes, behind, ipv6) {
            return Err(DropReason::TcpChecksum);
        }
        let bytes = packet.bytes.get(behind..).ok_or(DropReason::TcpTruncated)?;
        let head = Tcp::checked(bytes).ok_or(DropReason::TcpTruncated)?;
        let tuple = FourTuple {
            nic: u8::try_from(port).unwrap_or(u8::MAX),
            ours: packet.dst,
            theirs: packet.src,
            their_port: head.src_port(),
        };
        Ok(Self { bytes, head, tuple })
    }
}

/// A segment of the burst.
#[derive(Debug)]
pub(super) struct Arrival {
    pub(super) frame: Frame,
    pub(super) at: At,
    /// The worker's number of its port.
    pub(super) port: usize,
    pub(super) hash: TupleHash,
}
