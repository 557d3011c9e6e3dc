//! Segments from frames and into frames.
//!
//! In: segments that the state machine sends. Out: frames of the
//! shared region with the Ethernet header of the connection before the packet and checksums set, in the
//! [`Outbox`]. Where no slot is free or the outbox is full, nothing is taken from the state machine,
//! which keeps it; only an answer that belongs to no connection's state is lost then, and counted.

use crate::plain::vector::copy_and_sum;
use arrayvec::ArrayVec;
use driver_shim::{Frame, HEADROOM_BYTES, Region, SLOT_BYTES};
use smoltcp::phy::{Checksum, ChecksumCapabilities};
use smoltcp::wire::{IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};
use wire::tcp::Plain;
use wire::{ipv6, tcp};

/// Longest Ethernet header: with two VLAN tags.
pub(super) const L2_MAX_BYTES: usize = 22;
/// Longest IP packet that fits a slot behind that.
const PACKET_MAX_BYTES: usize = SLOT_BYTES - HEADROOM_BYTES - L2_MAX_BYTES;
/// The longest headers that are written: IPv6's, and TCP's with all options.
const HEADERS_MAX_BYTES: usize = ipv6::HEADER_BYTES + 60;
/// Frames that may wait to leave: several full bursts, and a part of the region that others do not
/// miss.
const OUT_MAX: usize = 512;
/// The Ethernet header of what is sent to a client: the one that it sent, turned round.
pub(super) type L2Header = ArrayVec<u8, L2_MAX_BYTES>;

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

/// One connection's view of the wire.
pub(super) struct Wire<'a> {
    /// What stands before packets that leave.
    pub(super) l2: &'a [u8],
    pub(super) port: u8,
    /// Longest IP packet of the port.
    pub(super) mtu: u16,
    pub(super) region: &'a Region,
    pub(super) out: &'a mut Outbox,
}

impl<'a> Wire<'a> {
    /// That of a connection on a port.
    pub(super) fn new(
        l2: &'a [u8],
        port: u8,
        mtu: u16,
        region: &'a Region,
        out: &'a mut Outbox,
    ) -> Self {
        Self { l2, port, mtu, region, out }
    }
}

impl Wire<'_> {
    /// Longest IP packet that fits a frame.
    pub(super) fn mtu(&self) -> usize {
        usize::from(self.mtu).min(PACKET_MAX_BYTES)
    }

    /// Sends an answer that belongs to no connection's state, or counts it as lost.
    pub(super) fn answer(&mut self, ip: &IpRepr, tcp: &TcpRepr<'_>) {
        self.out.lost += u64::from(!self.send(ip, tcp));
    }

    /// Sends a segment. False: the outbox is full.
    pub(super) fn send(&mut self, ip: &IpRepr, tcp: &TcpRepr<'_>) -> bool {
        if self.out.is_full() {
            return false;
        }
        let Some(mut frame) = self.region.alloc() else { return false };
        let (l3, l4) = (self.l2.len(), ip.header_len());
        if frame.set_len(l3 + l4 + tcp.buffer_len()).is_err() {
            return false;
        }
        let Some((head, packet)) = frame.bytes_mut().split_at_mut_checked(l3) else { return false };
        head.copy_from_slice(self.l2);
        let written = match plain(tcp) {
            Some(plain) => write_plain(packet, ip, &plain, tcp.payload),
            None => write(packet, ip, tcp),
        };
        if written.is_none() {
            return false;
        }
        self.out.frames.push((self.port, frame));
        true
    }
}

/// What a segment without options says.
#[inline]
fn plain(tcp: &TcpRepr<'_>) -> Option<Plain> {
    let number = |number: TcpSeqNumber| number.0.cast_unsigned();
    (tcp.header_len() == tcp::HEADER_BYTES && tcp.control != TcpControl::Syn).then(|| Plain {
        ports: [tcp.src_port, tcp.dst_port],
        seq: number(tcp.seq_number),
        ack: tcp.ack_number.map(number),
        push: tcp.control == TcpControl::Psh,
        fin: tcp.control == TcpControl::Fin,
        rst: tcp.control == TcpControl::Rst,
        window: tcp.window_len,
    })
}

#[inline]
fn write_plain(packet: &mut [u8], ip: &IpRepr, plain: &Plain, payload: &[u8]) -> Option<()> {
    let place = packet.get_mut(ip.header_len() + tcp::HEADER_BYTES..)?;
    let sum = copy_and_sum(place, payload);
    plain.write(packet, (ip.src_addr().into(), ip.dst_addr().into()), sum)
}

#[cold]
fn write(packet: &mut [u8], ip: &IpRepr, tcp: &TcpRepr<'_>) -> Option<()> {
    // Bits that the library has no use for hold what the slot held.
    packet.iter_mut().take(HEADERS_MAX_BYTES).for_each(|b| *b = 0);
    // TCP's sum is set when the whole packet stands.
    let mut caps = ChecksumCapabilities::ignored();
    caps.ipv4 = Checksum::Tx;
    ip.emit(&mut *packet, &caps);
    let (src, dst, l4) = (ip.src_addr(), ip.dst_addr(), ip.header_len());
    let segment = packet.get_mut(l4..)?;
    tcp.emit(&mut TcpPacket::new_unchecked(segment), &src, &dst, &caps);
    tcp::seal(packet, l4, matches!(ip, IpRepr::Ipv6(_)));
    Some(())
}
