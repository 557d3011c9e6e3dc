//! Stage 3: what to do with a frame, from its headers unicast.
//!
//! In: the frame's bytes and what is ours on its port. Out: a [`Class`]. Payloads and checksums
//! are not read: that is the engine's work (stage 5). Headers are trusted for nothing else; a
//! fault in them has a name. Never panics, whatever the bytes.
//!
//! A request is ours when all of this holds; the first that does not gives the reason:
//! the frame is for this station, its lengths nest, the packet is for one of our addresses,
//! it is a whole UDP datagram to the service port, without options or extension headers, sent to
//! us unicast, of exact length, from a source and port that can exist and that may use the service.
//!
//! Of a request in fragments the first is answered, to say that it is too long. The others, and
//! fragmented UDP to other ports, are dropped: only the first fragment names the port.
//!
//! A TCP segment to the service, where that is served here ([`Local::tcp_port`]), obeys the same rules
//! and goes to the stream stage.
//!
//! RDMA packets (UDP port 4791), where those are answered ([`Local::rdma`]), obey them too.
//!
//! UDP to other ports, other TCP, and everything else that is well enough formed is the kernel's.

pub mod plain;

use super::arp::Arp;
use super::eth::{self, Eth};
use super::icmp::{self, Echo, Neighbour};
use super::ipv4::{self, Ipv4};
use super::ipv6::{self, Ipv6};
use super::local::{Local, To};
use super::roce;
use super::tcp::Tcp;
use super::udp::{self, Udp};
use crate::drop_reason::DropReason;
use std::net::{Ipv4Addr, Ipv6Addr};
use zerocopy::FromBytes;

/// Where the headers of a frame for the service stand, and whom it is from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// First byte of the IP header in the frame.
    pub l3: u8,
    /// First byte of the UDP or TCP header in the frame, which may stand behind a fragment header; all of it is there.
    pub l4: u8,
    /// The network header is IPv6.
    pub ipv6: bool,
    /// The source is served, but not trusted.
    pub limited: bool,
}

/// What to do with a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// A datagram for the service.
    Kv(At),
    /// The beginning of a datagram for the service that did not come in one packet.
    TooLong(At),
    /// A segment of a TCP connection to the service.
    Segment(At),
    /// An RDMA packet, where those are answered. The length of its datagram is exact.
    Rdma(At),
    /// To be answered in user space.
    Respond(Respond),
    /// For the kernel.
    Punt,
    /// Dropped.
    Drop(DropReason),
}

/// What is answered in user space (D9). Checked further by the stage that answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Respond {
    /// An ARP request for one of our addresses.
    Arp {
        /// First byte of the ARP packet in the frame.
        l3: u8,
    },
    /// A neighbour solicitation for one of our addresses.
    NeighbourSolicit {
        /// First byte of the IPv6 header in the frame.
        l3: u8,
        /// First byte of the ICMPv6 message in the frame.
        l4: u8,
    },
    /// An ICMP echo request to one of our addresses.
    Echo4 {
        /// First byte of the IPv4 header in the frame.
        l3: u8,
        /// First byte of the ICMP message in the frame.
        l4: u8,
    },
    /// An ICMPv6 echo request to one of our addresses.
    Echo6 {
        /// First byte of the IPv6 header in the frame.
        l3: u8,
        /// First byte of the ICMPv6 message in the frame.
        l4: u8,
    },
}

/// Says what to do with `frame`, received on the port that `local` describes.
#[inline]
pub fn classify(frame: &[u8], local: &Local) -> Class {
    try_classify(frame, local).unwrap_or_else(Class::Drop)
}

/// The class, or why the frame is dropped.
#[inline]
fn try_classify(frame: &[u8], local: &Local) -> Result<Class, DropReason> {
    let eth = Eth::checked(frame)?;
    if eth.dst() != local.mac && !eth::is_group(eth.dst()) {
        return Err(DropReason::EthNotOurs);
    }
    if eth::is_group(eth.src()) {
        return Err(DropReason::EthSource);
    }
    match eth.ethertype() {
        eth::IPV4 => over_ipv4(&eth, local),
        eth::IPV6 => over_ipv6(&eth, local),
        eth::ARP => over_arp(&eth, local),
        _ => punt(local),
    }
}

#[inline]
fn over_ipv4(eth: &Eth<'_>, local: &Local) -> Result<Class, DropReason> {
    let ip = Ipv4::checked(eth)?;
    let to = local.to4(ip.dst());
    if to == To::Other {
        return not_for_us(local);
    }
    let unicast = to == To::Us && !eth::is_group(eth.dst());
    match ip.protocol() {
        ipv4::UDP => {
            if ip.is_fragment() {
                return fragment4(eth, &ip, unicast, local);
            }
            let udp = Udp::over_ipv4(&ip).ok_or(DropReason::UdpTruncated)?;
            if !is_service(udp.dst_port(), local) {
                if !is_rdma(&udp, local) {
                    return punt(local);
                }
                if ip.has_options() {
                    return Err(DropReason::Ipv4Options);
                }
                let (spoofed, trust) = (local.is_spoofed4(ip.src()), trust4(ip.src(), local));
                return rdma(&udp, (eth.l3(), ip.l4(), false), unicast, spoofed, trust, local);
            }
            if ip.has_options() {
                return Err(DropReason::Ipv4Options);
            }
            check_request(
                &udp,
                unicast,
                udp.length_is_exact(),
                local.is_spoofed4(ip.src()),
                local,
            )?;
            let limited = trust4(ip.src(), local).limited()?;
            Ok(Class::Kv(At { l3: eth.l3(), l4: ip.l4(), ipv6: false, limited }))
        }
        ipv4::ICMP
            if unicast
                && !ip.is_fragment()
                && !ip.has_options()
                && icmp::kind_and_code(ip.payload()) == Some((icmp::ECHO4_REQUEST, 0)) =>
        {
            if ip.payload().len() < size_of::<Echo>() {
                return Err(DropReason::IcmpMalformed);
            }
            if local.is_spoofed4(ip.src()) {
                return Err(DropReason::SourceSpoofed);
            }
            Ok(Class::Respond(Respond::Echo4 { l3: eth.l3(), l4: ip.l4() }))
        }
        ipv4::TCP if local.tcp_port.is_some() => {
            let rest = if ip.is_fragment() {
                Err(DropReason::Ipv4Fragment)
            } else if ip.has_options() {
                Err(DropReason::Ipv4Options)
            } else if local.is_spoofed4(ip.src()) {
                Err(DropReason::SourceSpoofed)
            } else {
                limited_over_tcp(local, || trust4(ip.src(), local))
            };
            segment(ip.payload(), eth.l3(), ip.l4(), false, unicast, rest, local)
        }
        _ => punt(local),
    }
}

/// A TCP segment over either version, `rest` being what its IP header says of it as a request.
#[inline]
fn segment(
    payload: &[u8],
    l3: u8,
    l4: u8,
    ipv6: bool,
    unicast: bool,
    rest: Result<bool, DropReason>,
    local: &Local,
) -> Result<Class, DropReason> {
    // Only the first fragment has the port: the kernel could do nothing with the others.
    if rest == Err(DropReason::Ipv4Fragment) {
        return Err(DropReason::Ipv4Fragment);
    }
    let tcp = Tcp::checked(payload).ok_or(DropReason::TcpTruncated)?;
    if Some(tcp.dst_port()) != local.tcp_port {
        return punt(local);
    }
    let limited = rest?;
    if !unicast {
        return Err(DropReason::RequestToGroup);
    }
    if tcp.src_port() == 0 {
        return Err(DropReason::SourcePort);
    }
    Ok(Class::Segment(At { l3, l4, ipv6, limited }))
}

#[inline]
fn over_ipv6(eth: &Eth<'_>, local: &Local) -> Result<Class, DropReason> {
    let ip = Ipv6::checked(eth)?;
    let to = local.to6(ip.dst());
    if to == To::Other {
        return not_for_us(local);
    }
    let unicast = to == To::Us && !eth::is_group(eth.dst());
    match ip.next_header() {
        ipv4::UDP => {
            let udp = Udp::over_ipv6(&ip).ok_or(DropReason::UdpTruncated)?;
            if !is_service(udp.dst_port(), local) {
                if !is_rdma(&udp, local) {
                    return punt(local);
                }
                let (spoofed, trust) = (local.is_spoofed6(ip.src()), trust6(ip.src(), local));
                return rdma(&udp, (eth.l3(), ip.l4(), true), unicast, spoofed, trust, local);
            }
            check_request(
                &udp,
                unicast,
                udp.length_is_exact(),
                local.is_spoofed6(ip.src()),
                local,
            )?;
            let limited = trust6(ip.src(), local).limited()?;
            Ok(Class::Kv(At { l3: eth.l3(), l4: ip.l4(), ipv6: true, limited }))
        }
        ipv4::TCP if local.tcp_port.is_some() => {
            let rest = if local.is_spoofed6(ip.src()) {
                Err(DropReason::SourceSpoofed)
            } else {
                limited_over_tcp(local, || trust6(ip.src(), local))
            };
            segment(ip.payload(), eth.l3(), ip.l4(), true, unicast, rest, local)
        }
        ipv6::ICMPV6 => over_icmpv6(eth, &ip, unicast, local),
        next if ipv6::is_extension(next) => behind_extensions(eth, &ip, unicast, local),
        _ => punt(local),
    }
}

/// Checks what is the same over both versions.
#[inline]
fn check_request(
    udp: &Udp<'_>,
    unicast: bool,
    length_fits: bool,
    spoofed: bool,
    local: &Local,
) -> Result<(), DropReason> {
    if !unicast {
        return Err(DropReason::RequestToGroup);
    }
    if !length_fits {
        return Err(DropReason::UdpLength);
    }
    if spoofed {
        return Err(DropReason::SourceSpoofed);
    }
    if !is_from_client(udp.src_port(), local) {
        return Err(DropReason::SourcePort);
    }
    Ok(())
}

/// Whether this is for the RDMA responder, where there is one.
#[inline]
fn is_rdma(udp: &Udp<'_>, local: &Local) -> bool {
    local.rdma && udp.dst_port() == roce::PORT
}

/// An RDMA packet over either version: the same rules as for a request.
#[cold]
fn rdma(
    udp: &Udp<'_>,
    (l3, l4, ipv6): (u8, u8, bool),
    unicast: bool,
    spoofed: bool,
    trust: Trust,
    local: &Local,
) -> Result<Class, DropReason> {
    check_request(udp, unicast, udp.length_is_exact(), spoofed, local)?;
    let limited = trust.limited()?;
    Ok(Class::Rdma(At { l3, l4, ipv6, limited }))
}

/// Whether this is the service's UDP port. Port 0 is none.
#[inline]
fn is_service(port: u16, local: &Local) -> bool {
    port == local.service_port && port != 0
}

/// Whether a client may have sent from this port.
#[inline]
fn is_from_client(src_port: u16, local: &Local) -> bool {
    !udp::is_reflector(src_port) && src_port != local.service_port
}

/// How a source is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trust {
    /// Without limits.
    Trusted,
    /// Within the limits of the policy.
    Limited,
    /// Not at all.
    NotServed,
}

impl Trust {
    #[inline]
    fn of(trusted: bool, allowed: impl FnOnce() -> bool) -> Self {
        if trusted {
            Self::Trusted
        } else if allowed() {
            Self::Limited
        } else {
            Self::NotServed
        }
    }

    /// Whether a source that is served has limits.
    #[inline]
    fn limited(self) -> Result<bool, DropReason> {
        match self {
            Self::Trusted => Ok(false),
            Self::Limited => Ok(true),
            Self::NotServed => Err(DropReason::SourceNotAllowed),
        }
    }
}

#[inline]
fn trust4(src: Ipv4Addr, local: &Local) -> Trust {
    Trust::of(local.trusted.permits4(src), || local.allow.permits4(src))
}

#[inline]
fn trust6(src: Ipv6Addr, local: &Local) -> Trust {
    Trust::of(local.trusted.permits6(src), || local.allow.permits6(src))
}

#[inline]
fn limited_over_tcp(local: &Local, trust: impl FnOnce() -> Trust) -> Result<bool, DropReason> {
    if local.tcp_from_all { Ok(false) } else { trust().limited() }
}

/// Whether this is the beginning of a request.
fn begins_request(udp: &Udp<'_>, local: &Local) -> bool {
    is_service(udp.dst_port(), local) && udp.is_beginning()
}

/// Fragmented UDP over IPv4.
#[cold]
fn fragment4(
    eth: &Eth<'_>,
    ip: &Ipv4<'_>,
    unicast: bool,
    local: &Local,
) -> Result<Class, DropReason> {
    let udp = Udp::over_ipv4(ip).filter(|_| ip.is_first_fragment() && !ip.has_options());
    let udp = udp.filter(|u| begins_request(u, local)).ok_or(DropReason::Ipv4Fragment)?;
    check_request(&udp, unicast, true, local.is_spoofed4(ip.src()), local)?;
    let limited = trust4(ip.src(), local).limited()?;
    Ok(Class::TooLong(At { l3: eth.l3(), l4: ip.l4(), ipv6: false, limited }))
}

#[cold]
fn over_icmpv6(
    eth: &Eth<'_>,
    ip: &Ipv6<'_>,
    unicast: bool,
    local: &Local,
) -> Result<Class, DropReason> {
    let (l3, l4) = (eth.l3(), ip.l4());
    match icmp::kind_and_code(ip.payload()) {
        Some((icmp::ECHO6_REQUEST, 0)) if unicast => {
            if ip.payload().len() < size_of::<Echo>() {
                return Err(DropReason::IcmpMalformed);
            }
            if local.is_spoofed6(ip.src()) {
                return Err(DropReason::SourceSpoofed);
            }
            Ok(Class::Respond(Respond::Echo6 { l3, l4 }))
        }
        Some((icmp::NEIGHBOUR_SOLICIT, _)) => {
            let (asked, _) =
                Neighbour::ref_from_prefix(ip.payload()).map_err(|_| DropReason::NdMalformed)?;
            if local.owns6(asked.target.into()) {
                Ok(Class::Respond(Respond::NeighbourSolicit { l3, l4 }))
            } else {
                punt(local)
            }
        }
        _ => punt(local),
    }
}

/// Finds out whether a request hides behind extension headers.
#[cold]
fn behind_extensions(
    eth: &Eth<'_>,
    ip: &Ipv6<'_>,
    unicast: bool,
    local: &Local,
) -> Result<Class, DropReason> {
    if let Some(udp) = ip.first_fragment().and_then(|upper| Udp::over_first_fragment(&upper))
        && begins_request(&udp, local)
    {
        check_request(&udp, unicast, true, local.is_spoofed6(ip.src()), local)?;
        let limited = trust6(ip.src(), local).limited()?;
        let l4 = ip.l4() + ipv6::FRAGMENT_STEP;
        return Ok(Class::TooLong(At { l3: eth.l3(), l4, ipv6: true, limited }));
    }
    let upper = ip.upper().ok_or(DropReason::Ipv6Extension)?;
    let is_tcp = upper.protocol == ipv4::TCP && local.tcp_port.is_some();
    let may_be_ours = upper.protocol == ipv4::UDP || is_tcp || ipv6::is_extension(upper.protocol);
    if upper.fragment && may_be_ours {
        return Err(DropReason::Ipv6Fragment);
    }
    if is_tcp {
        // The kernel, which has the address and no connection, would end ours with a reset.
        let tcp = Tcp::checked(upper.payload).ok_or(DropReason::TcpTruncated)?;
        if Some(tcp.dst_port()) == local.tcp_port {
            return Err(DropReason::Ipv6Extension);
        }
    }
    if upper.protocol == ipv4::UDP {
        let udp = Udp::over_extensions(&upper).ok_or(DropReason::UdpTruncated)?;
        if is_service(udp.dst_port(), local) {
            return Err(DropReason::Ipv6Extension);
        }
    }
    punt(local)
}

#[cold]
fn over_arp(eth: &Eth<'_>, local: &Local) -> Result<Class, DropReason> {
    let arp = Arp::checked(eth)?;
    // From our own address: another host claims it, which is the kernel's to deal with.
    if arp.is_request() && local.owns4(arp.target_ip()) && !local.owns4(arp.sender_ip()) {
        Ok(Class::Respond(Respond::Arp { l3: eth.l3() }))
    } else {
        punt(local)
    }
}

#[cold]
fn punt(local: &Local) -> Result<Class, DropReason> {
    if local.exception_path { Ok(Class::Punt) } else { Err(DropReason::NoExceptionPath) }
}

#[cold]
fn not_for_us(local: &Local) -> Result<Class, DropReason> {
    if local.exception_path { Ok(Class::Punt) } else { Err(DropReason::NotForUs) }
}
