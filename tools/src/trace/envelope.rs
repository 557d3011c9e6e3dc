//! What all frames of a capture have in common: everything around the payload but the client.

use driver_shim::MacAddr;
use std::net::SocketAddr;
use wire::build::UdpFrame;
use wire::{ipv4, ipv6, udp};

/// Longest IP packet on plain Ethernet.
const MTU_BYTES: usize = 1500;

/// Stations, VLAN and server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Envelope {
    /// The clients' Ethernet address.
    pub src_mac: MacAddr,
    /// The server's Ethernet address.
    pub dst_mac: MacAddr,
    /// VLAN id, if the frames are tagged.
    pub vlan: Option<u16>,
    /// The server.
    pub server: SocketAddr,
}

impl Envelope {
    /// Longest UDP payload that fits an unfragmented packet to this server.
    pub fn payload_max_bytes(&self) -> usize {
        let ip = if self.server.is_ipv6() { ipv6::HEADER_BYTES } else { ipv4::HEADER_BYTES };
        MTU_BYTES - ip - udp::HEADER_BYTES
    }

    /// The frame that brings `payload` from `client` to the server.
    pub fn frame<'a>(&'a self, client: SocketAddr, payload: &'a [u8]) -> UdpFrame<'a> {
        UdpFrame {
            src_mac: self.src_mac,
            dst_mac: self.dst_mac,
            vlans: self.vlan.as_slice(),
            src: client,
            dst: self.server,
            payload,
        }
    }
}
