//! Segments from frames and into frames.
//!
//! In: one received IP packet, or none; IP packets that the state machine sends. Out: frames of the
//! shared region with the Ethernet header of the connection before the packet and checksums set, in the
//! [`Outbox`]. Where no slot is free or the outbox is full, nothing is taken from the state machine,
//! which keeps it; only an answer that belongs to no connection's state is lost then, and counted.

use crate::wire::{ipv4, ipv6, tcp};
use arrayvec::ArrayVec;
use driver_shim::{Frame, HEADROOM_BYTES, Region, SLOT_BYTES};
use smoltcp::phy::{Checksum, Device, DeviceCapabilities, Medium};
use smoltcp::time::Instant;

/// Longest Ethernet header: with two VLAN tags.
pub(super) const LINK_MAX_BYTES: usize = 22;
/// Longest IP packet that fits a slot behind that.
const PACKET_MAX_BYTES: usize = SLOT_BYTES - HEADROOM_BYTES - LINK_MAX_BYTES;
/// The longest headers that are written: IPv6's, and TCP's with all options.
const HEADERS_MAX_BYTES: usize = ipv6::HEADER_BYTES + 60;
/// Frames that may wait to leave: several full bursts, and a part of the region that others do not
/// miss.
const OUT_MAX: usize = 512;
/// Longest answer that belongs to no connection's state: a header with all options, over IPv6.
const ANSWER_MAX_BYTES: usize = HEADERS_MAX_BYTES;

/// The Ethernet header of what is sent to a client: the one that it sent, turned round.
pub(super) type Link = ArrayVec<u8, LINK_MAX_BYTES>;

/// Frames on their way out, each with the worker's number of its port.
#[derive(Debug)]
pub(super) struct Outbox {
    frames: Vec<(u8, Frame)>,
    /// Answers for which there was no slot.
    pub(super) lost: u64,
}

impl Outbox {
    pub(super) fn new() -> Self {
        Self { frames: Vec::with_capacity(OUT_MAX), lost: 0 }
    }

    pub(super) fn is_full(&self) -> bool {
        self.frames.len() == OUT_MAX
    }

    pub(super) fn drain(&mut self) -> std::vec::Drain<'_, (u8, Frame)> {
        self.frames.drain(..)
    }
}

/// One connection's view of the wire, for one call of the state machine.
pub(super) struct Wire<'a> {
    /// The IP packet that came, until it is taken.
    pub(super) packet: Option<&'a [u8]>,
    /// What stands before packets that leave.
    pub(super) link: &'a [u8],
    pub(super) port: u8,
    /// Longest IP packet of the port.
    pub(super) mtu: u16,
    pub(super) region: &'a Region,
    pub(super) out: &'a mut Outbox,
    /// There was no room for a packet.
    pub(super) stuck: bool,
}

impl Wire<'_> {
    /// Whether nothing more can be sent for now.
    pub(super) fn is_stuck(&self) -> bool {
        self.stuck
    }
}

impl Device for Wire<'_> {
    type RxToken<'b>
        = Received<'b>
    where
        Self: 'b;
    type TxToken<'b>
        = Sending<'b>
    where
        Self: 'b;

    fn receive(&mut self, _: Instant) -> Option<(Received<'_>, Sending<'_>)> {
        let packet = self.packet.take()?;
        let frame = if self.out.is_full() { None } else { self.region.alloc() };
        let (link, port) = (self.link, self.port);
        Some((Received(packet), Sending { frame, link, port, out: self.out }))
    }

    fn transmit(&mut self, _: Instant) -> Option<Sending<'_>> {
        let frame = if self.out.is_full() { None } else { self.region.alloc() };
        self.stuck = frame.is_none();
        let frame = Some(frame?);
        let (link, port) = (self.link, self.port);
        Some(Sending { frame, link, port, out: self.out })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut caps = DeviceCapabilities::default();
        caps.medium = Medium::Ip;
        caps.max_transmission_unit = usize::from(self.mtu).min(PACKET_MAX_BYTES);
        // Received sums are verified before; TCP's are set when the whole frame stands.
        caps.checksum.ipv4 = Checksum::Tx;
        caps.checksum.tcp = Checksum::None;
        caps
    }
}

/// A received packet.
pub(super) struct Received<'a>(&'a [u8]);

impl smoltcp::phy::RxToken for Received<'_> {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

/// Room for a packet to send.
pub(super) struct Sending<'a> {
    frame: Option<Frame>,
    link: &'a [u8],
    port: u8,
    out: &'a mut Outbox,
}

impl smoltcp::phy::TxToken for Sending<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let Self { frame, link, port, out } = self;
        let l3 = link.len();
        if let Some(mut frame) = frame
            && frame.set_len(l3 + len).is_ok()
            && let Some((head, packet)) = frame.bytes_mut().split_at_mut_checked(l3)
        {
            head.copy_from_slice(link);
            // Bits that the state machine has no use for hold what the slot held.
            packet.iter_mut().take(HEADERS_MAX_BYTES).for_each(|b| *b = 0);
            let result = f(packet);
            let ipv6 = packet.first().is_some_and(|b| b >> 4 == 6);
            let l4 = if ipv6 { ipv6::HEADER_BYTES } else { ipv4::HEADER_BYTES };
            tcp::seal(packet, l4, ipv6);
            out.frames.push((port, frame));
            return result;
        }
        out.lost += 1;
        let mut nowhere = [0; ANSWER_MAX_BYTES];
        match nowhere.get_mut(..len) {
            Some(nowhere) => f(nowhere),
            // Longer than any answer: not to be, and still no reason to fail.
            None => f(&mut vec![0; len]),
        }
    }
}
