//! Stage 3 for the usual request: its headers are recognised by one comparison.
//!
//! In: the frame's bytes. Out: the [`Class`] that [`super::classify()`] would give, if this is a plain
//! request: Ethernet II without tags, IPv4 without options, a whole datagram to the service, or to the RDMA
//! responder, on our first address. `None` says only that [`super::classify()`] has to look; it alone names the rule
//! that a frame breaks.

use super::{At, Class, Trust, is_from_client, trust4, trust6};
use crate::eth::{self, EthHeader};
use crate::ipv4::{self, Ipv4Header, PART_OF_PACKET, PLAIN_L3, PLAIN_L4};
use crate::local::{Local, To};
use crate::roce;
use crate::udp::{self, UdpHeader};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The headers of a plain request, and what makes them three words of 16 bytes: the beginning of the
/// memcached frame header, without which there is no request.
#[derive(Debug, Clone, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Headers {
    eth: EthHeader,
    ip: Ipv4Header,
    udp: UdpHeader,
    behind: [u8; 6],
}

/// Bytes of the headers that are compared.
pub(crate) const HEAD_BYTES: usize = size_of::<Headers>();

/// Lengths that a READ request has in its headers.
#[expect(clippy::cast_possible_truncation, reason = "below 100")]
const READ_UDP_BYTES: u16 = (udp::HEADER_BYTES + roce::READ_BYTES) as u16;
#[expect(clippy::cast_possible_truncation, reason = "below 100")]
const READ_TOTAL_BYTES: u16 = ipv4::HEADER_BYTES as u16 + READ_UDP_BYTES;

type Words = [u128; size_of::<Headers>() / size_of::<u128>()];
const _: () = assert!(size_of::<Words>() == size_of::<Headers>());

fn bytes(words: &Words) -> [u8; HEAD_BYTES] {
    let mut bytes = [0; HEAD_BYTES];
    for (to, word) in bytes.as_chunks_mut().0.iter_mut().zip(words) {
        *to = word.to_le_bytes();
    }
    bytes
}

impl Headers {
    #[inline(always)]
    fn words(&self) -> Words {
        let mut words = Words::default();
        for (word, bytes) in words.iter_mut().zip(self.as_bytes().as_chunks::<16>().0) {
            *word = u128::from_le_bytes(*bytes);
        }
        words
    }
}

/// What is ours on a port, and what that makes the headers of a plain request.
#[derive(Debug, Clone)]
pub struct PlainMatcher {
    local: Arc<Local>,
    /// The bits that are compared.
    mask: Words,
    /// What they must be.
    want: Words,
    /// What is other than that in an RDMA packet, where those are answered; else nothing.
    rdma: Words,
    /// The bits that are compared of a READ request, and what they must be, where those are answered.
    read: Option<(Words, Words)>,
}

impl PlainMatcher {
    /// The plain requests of a port. A port without an IPv4 address, or
    /// that does not serve UDP, has none.
    pub fn new(local: Arc<Local>) -> Self {
        let (mut mask, mut want) = (Headers::new_zeroed(), Headers::new_zeroed());
        (mask.eth.dst, want.eth.dst) = ([0xff; 6], local.mac.0);
        // From one station, not a group.
        mask.eth.src = [1, 0, 0, 0, 0, 0];
        (mask.eth.ethertype, want.eth.ethertype) = (u16::MAX.into(), eth::IPV4.into());
        (mask.ip.version_ihl, want.ip.version_ihl) = (u8::MAX, ipv4::VERSION_IHL);
        mask.ip.flags_offset = PART_OF_PACKET.into();
        (mask.ip.protocol, want.ip.protocol) = (u8::MAX, ipv4::UDP);
        (mask.udp.dst_port, want.udp.dst_port) = (u16::MAX.into(), local.service_port.into());
        match local.v4.first() {
            _ if local.any_destination => {}
            Some(own) => {
                (mask.ip.addresses.dst, want.ip.addresses.dst) = ([0xff; 4], own.address.octets());
            }
            None => mask.ip.version_ihl = 0,
        }
        if eth::is_group(local.mac) {
            mask.ip.version_ihl = 0;
        }
        let read = local.rdma.then(|| read_head(mask.clone(), want.clone()));
        if local.service_port == 0 {
            mask.ip.version_ihl = 0;
        }
        let mut rdma = Headers::new_zeroed();
        if local.rdma {
            rdma.udp.dst_port = (local.service_port ^ roce::PORT).into();
        }
        Self { mask: mask.words(), want: want.words(), rdma: rdma.words(), read, local }
    }

    /// The bits that are compared, and what they must be.
    pub fn head(&self) -> ([u8; HEAD_BYTES], [u8; HEAD_BYTES]) {
        (bytes(&self.mask), bytes(&self.want))
    }

    /// The same of a READ request ([`roce::READ_BYTES`]). `None`: those are not answered.
    pub fn read_head(&self) -> Option<([u8; HEAD_BYTES], [u8; HEAD_BYTES])> {
        self.read.map(|(mask, want)| (bytes(&mask), bytes(&want)))
    }

    /// Whether the source has no limits.
    pub fn trusts(&self, src: Ipv4Addr) -> bool {
        !self.local.is_spoofed4(src) && trust4(src, &self.local) == Trust::Trusted
    }

    /// Whether the source has no limits, and the destination is ours.
    pub fn trusts6(&self, src: Ipv6Addr, dst: Ipv6Addr) -> bool {
        self.local.to6(dst) == To::Us
            && !self.local.is_spoofed6(src)
            && trust6(src, &self.local) == Trust::Trusted
    }

    /// What is ours on the port.
    pub fn local(&self) -> &Local {
        &self.local
    }

    /// Whether the headers are those of a plain RDMA packet.
    #[inline]
    fn is_rdma(&self, head: &Headers) -> bool {
        let wanted = self.want.into_iter().zip(self.rdma);
        let mut words = head.words().into_iter().zip(self.mask).zip(wanted);
        self.local.rdma && words.all(|((word, mask), (want, rdma))| (word & mask) ^ want == rdma)
    }

    /// What to do with the frame, if it is a plain request that is served. (Each frame comes through
    /// here: a call of it costs 3 % of a request.)
    #[inline(always)]
    pub fn classify(&self, frame: &[u8]) -> Option<Class> {
        let (head, _) = Headers::ref_from_prefix(frame).ok()?;
        let words = head.words().into_iter().zip(self.mask).zip(self.want);
        let differs = words.fold(0, |all, ((word, mask), want)| all | ((word & mask) ^ want));
        let is_request = differs == 0;
        if !is_request && !self.is_rdma(head) {
            return None;
        }
        let (total_len, udp_len) =
            (usize::from(head.ip.total_len.get()), usize::from(head.udp.len.get()));
        let lengths_nest = eth::HEADER_BYTES + total_len <= frame.len()
            && ipv4::HEADER_BYTES + udp_len == total_len
            && udp_len >= udp::HEADER_BYTES;
        let src = head.ip.addresses.src.into();
        if !lengths_nest
            || !is_from_client(head.udp.src_port.get(), &self.local)
            || self.local.is_spoofed4(src)
        {
            return None;
        }
        let limited = trust4(src, &self.local).limited().ok()?;
        let at = At { l3: PLAIN_L3, l4: PLAIN_L4, ipv6: false, limited };
        Some(if is_request { Class::Kv(at) } else { Class::Rdma(at) })
    }
}

/// Of a READ request, from those of any.
fn read_head(mut mask: Headers, mut want: Headers) -> (Words, Words) {
    (mask.ip.total_len, want.ip.total_len) = (u16::MAX.into(), READ_TOTAL_BYTES.into());
    (mask.udp.len, want.udp.len) = (u16::MAX.into(), READ_UDP_BYTES.into());
    want.udp.dst_port = roce::PORT.into();
    (mask.behind, want.behind) = roce::READ_HEAD;
    (mask.words(), want.words())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::UdpFrame;
    use crate::classify;
    use driver_shim::MacAddr;
    use std::net::IpAddr;

    const MAC: MacAddr = MacAddr([2; 6]);

    fn locals() -> Vec<Local> {
        let own: [(IpAddr, u8); 3] = [
            ("10.0.0.2".parse().unwrap(), 24),
            ("10.0.1.2".parse().unwrap(), 24),
            ("fd00::2".parse().unwrap(), 64),
        ];
        let wire = Local::new(MAC, &own, 11_211).unwrap();
        let socket = Local { any_destination: true, ..wire.clone() };
        let closed = Local { trusted: Default::default(), ..wire.clone() };
        let limited = Local { allow: wire.trusted.clone(), ..closed.clone() };
        let none = Local::new(MAC, &own[2..], 11_211).unwrap();
        let group = Local { mac: MacAddr([3; 6]), ..wire.clone() };
        let rdma = Local { rdma: true, ..wire.clone() };
        let rdma_alone = Local { service_port: 0, ..rdma.clone() };
        vec![wire, socket, closed, limited, none, group, rdma, rdma_alone]
    }

    fn request(src: &str, dst: &str, mac: MacAddr) -> Vec<u8> {
        let (src, dst) = (src.parse().unwrap(), dst.parse().unwrap());
        let payload = b"\0\x01\0\0\0\x01\0\0get abc\r\n";
        let src_mac = MacAddr([4; 6]);
        UdpFrame { src_mac, dst_mac: mac, vlans: &[], src, dst, payload }.to_vec().unwrap()
    }

    /// Every bit of the headers turned, and every length cut: what is said is what the general function says.
    #[test]
    fn says_what_the_general_function_says_or_nothing() {
        let requests = [
            request("10.0.0.1:40000", "10.0.0.2:11211", MAC),
            request("10.0.0.1:40000", "10.0.1.2:11211", MAC),
            request("10.0.0.1:40000", "10.0.0.2:4791", MAC),
            request("10.0.0.1:40000", "10.0.0.2:11211", MacAddr([3; 6])),
            request("10.0.0.1:53", "10.0.0.2:11211", MAC),
            request("10.0.0.255:40000", "10.0.0.2:11211", MAC),
            request("[fd00::1]:40000", "[fd00::2]:11211", MAC),
        ];
        for (n, local) in locals().into_iter().enumerate() {
            let plain = PlainMatcher::new(Arc::new(local));
            let mut said = 0;
            for request in &requests {
                let mut changed: Vec<_> =
                    (0..=request.len()).map(|n| request[..n].to_vec()).collect();
                changed.extend((0..8 * 48).map(|bit| {
                    let mut frame = request.clone();
                    frame[bit / 8] ^= 1 << (bit % 8);
                    frame
                }));
                for frame in changed {
                    if let Some(class) = plain.classify(&frame) {
                        assert_eq!(class, classify(&frame, plain.local()), "{frame:02x?}");
                        said += 1;
                    }
                }
            }
            // The first three cover the source of the request above, the others do not.
            let says = [true, true, false, true, false, false, true, false];
            assert_eq!(said > 0, says[n], "{n}");
        }
    }

    #[test]
    fn knows_the_usual_request() {
        let [wire, ..] = &locals()[..] else { unreachable!() };
        let plain = PlainMatcher::new(Arc::new(wire.clone()));
        let class = plain.classify(&request("10.0.0.1:40000", "10.0.0.2:11211", MAC));
        let at = At { l3: 14, l4: 34, ipv6: false, limited: false };
        assert_eq!(class, Some(Class::Kv(at)));
        let packet = request("10.0.0.1:40000", "10.0.0.2:4791", MAC);
        assert_eq!(plain.classify(&packet), None);
        let plain = PlainMatcher::new(Arc::new(Local { rdma: true, ..wire.clone() }));
        assert_eq!(plain.classify(&packet), Some(Class::Rdma(at)));
    }
}
