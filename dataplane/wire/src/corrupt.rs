//! Ways to spoil a request, each with the reason that the data plane must drop it for. For tests
//! and tools: `pcapgen --corrupt` writes these, and tests balance the counters against them.

use super::build::sum_again;
use super::eth::{self, Eth, EthHeader, TAGS_MAX};
use super::ipv4::{self, FLAG_MF, Ipv4, Ipv4Header};
use super::ipv6::{Ipv6, Ipv6Header};
use super::udp::{self, Udp, UdpHeader};
use super::with;
use crate::drop_reason::DropReason;
use crate::udp_frame;
use zerocopy::byteorder::network_endian::U16;

macro_rules! corruptions {
    ($($variant:ident $name:literal $reason:ident $doc:literal)*) => {
        /// A way to spoil a request.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Corruption { $(#[doc = $doc] $variant,)* }

        impl Corruption {
            /// Every way.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$variant),*];

            /// The name on the command line and in tables.
            pub fn name(self) -> &'static str {
                match self { $(Self::$variant => $name,)* }
            }

            /// What the data plane must drop the frame for.
            pub fn reason(self) -> DropReason {
                match self { $(Self::$variant => DropReason::$reason,)* }
            }
        }
    };
}

corruptions! {
    EthTruncated "eth-truncated" EthTruncated "Ends within the Ethernet header."
    EthNotOurs "eth-not-ours" EthNotOurs "To another station."
    EthSource "eth-source" EthSource "From a group address."
    VlanDepth "vlan-depth" VlanDepth "Three VLAN tags."
    Ipv4Truncated "ipv4-truncated" Ipv4Truncated "Ends within the IPv4 header."
    Ipv4Version "ipv4-version" Ipv4Version "Version 5 in an IPv4 header."
    Ipv4HeaderLen "ipv4-header-len" Ipv4HeaderLen "IPv4 header length 16."
    Ipv4TotalLong "ipv4-total-long" Ipv4TotalLen "IPv4 total length one more than the frame holds."
    Ipv4TotalShort "ipv4-total-short" Ipv4TotalLen "IPv4 total length one less than its header."
    Ipv4Options "ipv4-options" Ipv4Options "Four bytes of IPv4 options that do nothing."
    Ipv4FirstFragment "ipv4-first-fragment" Ipv4Fragment "More IPv4 fragments follow."
    Ipv4LaterFragment "ipv4-later-fragment" Ipv4Fragment "A later IPv4 fragment."
    Ipv4Checksum "ipv4-checksum" Ipv4Checksum "Wrong IPv4 header checksum."
    Ipv6Truncated "ipv6-truncated" Ipv6Truncated "Ends within the IPv6 header."
    Ipv6Version "ipv6-version" Ipv6Version "Version 5 in an IPv6 header."
    Ipv6PayloadLong "ipv6-payload-long" Ipv6PayloadLen "IPv6 payload length one more than the frame holds."
    Ipv6Fragment "ipv6-fragment" Ipv6Fragment "An IPv6 fragment header, though of a whole packet."
    Ipv6Extension "ipv6-extension" Ipv6Extension "An IPv6 destination options header that does nothing."
    ToGroup "to-group" RequestToGroup "To the broadcast station, with our IP address."
    SourceSpoofed "source-spoofed" SourceSpoofed "From a multicast IP address."
    SourceReserved "source-reserved" SourceSpoofed "From a reserved IPv4 address, or an IPv4 address inside an IPv6 one."
    SourceBroadcast "source-broadcast" SourceSpoofed "From the IPv4 broadcast address."
    SourceLoopback "source-loopback" SourceSpoofed "From the loopback address, on a wire."
    SourceOwn "source-own" SourceSpoofed "From the address that it is sent to."
    SourcePortZero "source-port-zero" SourcePort "From UDP port 0."
    SourcePortService "source-port-service" SourcePort "From the service's own UDP port."
    SourcePortReflector "source-port-reflector" SourcePort "From UDP port 53, as if a name server had been made to send it."
    SourceNotAllowed "source-not-allowed" SourceNotAllowed "From a documentation network (RFC 5737, RFC 3849), which no configuration allows."
    UdpTruncated "udp-truncated" UdpTruncated "An IP packet with half a UDP header."
    UdpLong "udp-long" UdpLength "UDP length one more than the IP packet holds."
    UdpShort "udp-short" UdpLength "UDP length one less than the IP packet holds."
    UdpChecksum "udp-checksum" UdpChecksum "Wrong UDP checksum."
    UdpChecksumMissing "udp-checksum-missing" UdpChecksum "No UDP checksum, over IPv6."
    KvFrameShort "kv-frame-short" KvFrameShort "Half a memcached frame header."
    KvFrameEmpty "kv-frame-empty" KvFrameShort "A memcached frame header and nothing behind it."
    KvMultipart "kv-multipart" KvMultipart "The first of two datagrams."
}

impl Corruption {
    /// Spoils `frame`, a whole request without padding. Checksums are set again unless they are
    /// the fault. `false`: not such a frame, or of the other IP version; it is untouched.
    pub fn apply(self, frame: &mut Vec<u8>) -> bool {
        let Some(Layout { l3, l4, ipv6 }) = Layout::of(frame) else { return false };
        let data = l4 + udp::HEADER_BYTES;
        match self {
            Self::EthTruncated => frame.truncate(10),
            Self::EthNotOurs => {
                with(frame, |e: &mut EthHeader| e.dst = [0x02, 0xde, 0xad, 0xbe, 0xef, 0x00]);
            }
            Self::EthSource => with(frame, |e: &mut EthHeader| {
                let [first, ..] = &mut e.src;
                *first |= 1;
            }),
            Self::VlanDepth => {
                let tags = (l3 - eth::HEADER_BYTES) / eth::TAG_BYTES;
                let [hi, lo] = eth::VLAN.to_be_bytes();
                for _ in tags..=TAGS_MAX {
                    frame.splice(12..12, [hi, lo, 0, 1]);
                }
            }
            Self::ToGroup => with(frame, |e: &mut EthHeader| e.dst = [0xff; 6]),
            Self::Ipv4Truncated
            | Self::Ipv4Version
            | Self::Ipv4HeaderLen
            | Self::Ipv4TotalLong
            | Self::Ipv4TotalShort
            | Self::Ipv4Options
            | Self::Ipv4FirstFragment
            | Self::Ipv4LaterFragment
            | Self::Ipv4Checksum
            | Self::SourceBroadcast => return !ipv6 && self.spoil_ipv4(frame, l3, l4),
            Self::Ipv6Truncated
            | Self::Ipv6Version
            | Self::Ipv6PayloadLong
            | Self::Ipv6Fragment
            | Self::Ipv6Extension
            | Self::UdpChecksumMissing => return ipv6 && self.spoil_ipv6(frame, l3, l4),
            Self::SourceSpoofed => {
                set_source(frame, l3, l4, ipv6, [224, 0, 0, 1], 0xff02 << 112 | 1)
            }
            Self::SourceReserved => {
                set_source(frame, l3, l4, ipv6, [240, 0, 0, 1], 0xffff_0a00_0001)
            }
            Self::SourceLoopback => set_source(frame, l3, l4, ipv6, [127, 0, 0, 1], 1),
            Self::SourceOwn => {
                let Some(network) = frame.get_mut(l3..) else { return false };
                if ipv6 {
                    with(network, |ip: &mut Ipv6Header| ip.addresses.src = ip.addresses.dst);
                } else {
                    with(network, |ip: &mut Ipv4Header| ip.addresses.src = ip.addresses.dst);
                }
                sum_again(frame, l3, l4, ipv6);
            }
            Self::SourceNotAllowed => {
                let documentation = 0x2001_0db8 << 96 | 0x77;
                set_source(frame, l3, l4, ipv6, [198, 51, 100, 77], documentation);
            }
            Self::SourcePortZero => self.spoil_udp(frame, l3, l4, ipv6, |u| u.src_port = 0.into()),
            Self::SourcePortService => {
                self.spoil_udp(frame, l3, l4, ipv6, |u| u.src_port = u.dst_port);
            }
            Self::SourcePortReflector => {
                self.spoil_udp(frame, l3, l4, ipv6, |u| u.src_port = 53.into());
            }
            Self::UdpLong => self.spoil_udp(frame, l3, l4, ipv6, |u| step(&mut u.len, 1)),
            Self::UdpShort => self.spoil_udp(frame, l3, l4, ipv6, |u| step(&mut u.len, -1)),
            Self::UdpChecksum => self.spoil_udp(frame, l3, l4, ipv6, |u| {
                // Not to 0, nor from one form of zero to the other.
                u.checksum = if u.checksum.get() == 0x1234 { 0x4321 } else { 0x1234 }.into();
            }),
            Self::UdpTruncated => cut(frame, l3, l4, ipv6, l4 + udp::HEADER_BYTES / 2),
            Self::KvFrameShort => cut(frame, l3, l4, ipv6, data + udp_frame::HEADER_BYTES / 2),
            Self::KvFrameEmpty => cut(frame, l3, l4, ipv6, data + udp_frame::HEADER_BYTES),
            Self::KvMultipart => {
                if let Some(total) = frame.get_mut(data + udp_frame::TOTAL_OFFSET..) {
                    with(total, |total: &mut U16| *total = 2.into());
                }
                sum_again(frame, l3, l4, ipv6);
            }
        }
        true
    }

    fn spoil_udp(
        self,
        frame: &mut [u8],
        l3: usize,
        l4: usize,
        ipv6: bool,
        change: impl FnOnce(&mut UdpHeader),
    ) {
        if let Some(datagram) = frame.get_mut(l4..) {
            with(datagram, change);
        }
        if self != Self::UdpChecksum {
            sum_again(frame, l3, l4, ipv6);
        }
    }

    fn spoil_ipv4(self, frame: &mut Vec<u8>, l3: usize, l4: usize) -> bool {
        if self == Self::Ipv4Truncated {
            frame.truncate(l3 + ipv4::HEADER_BYTES / 2);
            return true;
        }
        if self == Self::Ipv4Options {
            const NOTHING: [u8; 4] = [1; 4];
            frame.splice(l4..l4, NOTHING);
        }
        let Some(network) = frame.get_mut(l3..) else { return false };
        let mut end = l4;
        with(network, |ip: &mut Ipv4Header| match self {
            Self::Ipv4Version => ip.version_ihl = 0x55,
            Self::Ipv4HeaderLen => ip.version_ihl = 0x44,
            Self::Ipv4TotalLong => step(&mut ip.total_len, 1),
            Self::Ipv4TotalShort => ip.total_len = 19.into(),
            Self::Ipv4Options => {
                ip.version_ihl += 1;
                step(&mut ip.total_len, 4);
                end += 4;
            }
            Self::Ipv4FirstFragment => ip.flags_offset = FLAG_MF.into(),
            Self::Ipv4LaterFragment => ip.flags_offset = 1.into(),
            Self::SourceBroadcast => ip.addresses.src = [255; 4],
            _ => {}
        });
        sum_again(frame, l3, end, false);
        if self == Self::Ipv4Checksum
            && let Some(network) = frame.get_mut(l3..)
        {
            with(network, |ip: &mut Ipv4Header| ip.checksum = (ip.checksum.get() ^ 0x5a5a).into());
        }
        true
    }

    fn spoil_ipv6(self, frame: &mut Vec<u8>, l3: usize, l4: usize) -> bool {
        let extension = match self {
            Self::Ipv6Fragment => Some((44, [ipv4::UDP, 0, 0, 0, 0, 0, 0, 1])),
            // One padding option fills it.
            Self::Ipv6Extension => Some((60, [ipv4::UDP, 0, 1, 4, 0, 0, 0, 0])),
            _ => None,
        };
        if let Some((_, bytes)) = extension {
            frame.splice(l4..l4, bytes);
        }
        let Some(network) = frame.get_mut(l3..) else { return false };
        with(network, |ip: &mut Ipv6Header| match self {
            Self::Ipv6Version => ip.version_class_flow = 0x5000_0000.into(),
            Self::Ipv6PayloadLong => step(&mut ip.payload_len, 1),
            Self::Ipv6Fragment | Self::Ipv6Extension => {
                step(&mut ip.payload_len, 8);
                ip.next_header = extension.map_or(ipv4::UDP, |(number, _)| number);
            }
            _ => {}
        });
        if self == Self::Ipv6Truncated {
            frame.truncate(l3 + 20);
        }
        if self == Self::UdpChecksumMissing
            && let Some(datagram) = frame.get_mut(l4..)
        {
            with(datagram, |u: &mut UdpHeader| u.checksum = 0.into());
        }
        true
    }
}

/// Where the headers of a good request are.
struct Layout {
    l3: usize,
    l4: usize,
    ipv6: bool,
}

impl Layout {
    fn of(frame: &[u8]) -> Option<Self> {
        let eth = Eth::checked(frame).ok()?;
        let (l4, ipv6, udp) = if eth.ethertype() == eth::IPV6 {
            let ip = Ipv6::checked(&eth).ok()?;
            (ip.l4(), true, Udp::over_ipv6(&ip)?)
        } else {
            let ip = Ipv4::checked(&eth).ok()?;
            if ip.has_options() || ip.is_fragment() {
                return None;
            }
            (ip.l4(), false, Udp::over_ipv4(&ip)?)
        };
        let (l3, l4) = (usize::from(eth.l3()), usize::from(l4));
        let whole = udp.length_is_exact()
            && udp.data().len() > udp_frame::HEADER_BYTES
            && frame.len() == l4 + usize::from(udp.claimed_len());
        whole.then_some(Self { l3, l4, ipv6 })
    }
}

fn step(field: &mut U16, by: i16) {
    *field = field.get().wrapping_add_signed(by).into();
}

fn set_source(frame: &mut [u8], l3: usize, l4: usize, ipv6: bool, four: [u8; 4], six: u128) {
    if let Some(network) = frame.get_mut(l3..) {
        if ipv6 {
            with(network, |ip: &mut Ipv6Header| ip.addresses.src = six.to_be_bytes());
        } else {
            with(network, |ip: &mut Ipv4Header| ip.addresses.src = four);
        }
    }
    sum_again(frame, l3, l4, ipv6);
}

/// Ends the packet at `end`, its lengths saying so.
fn cut(frame: &mut Vec<u8>, l3: usize, l4: usize, ipv6: bool, end: usize) {
    let by = i16::try_from(frame.len() - end.min(frame.len())).unwrap_or(0);
    frame.truncate(end);
    if let Some(datagram) = frame.get_mut(l4..) {
        with(datagram, |u: &mut UdpHeader| step(&mut u.len, -by));
    }
    if let Some(network) = frame.get_mut(l3..) {
        if ipv6 {
            with(network, |ip: &mut Ipv6Header| step(&mut ip.payload_len, -by));
        } else {
            with(network, |ip: &mut Ipv4Header| step(&mut ip.total_len, -by));
        }
    }
    sum_again(frame, l3, l4, ipv6);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::UdpFrame;
    use driver_shim::MacAddr;

    fn good(ipv6: bool) -> Vec<u8> {
        let (src, dst) = if ipv6 {
            ("[fd00::1]:40000", "[fd00::2]:11211")
        } else {
            ("10.0.0.1:40000", "10.0.0.2:11211")
        };
        UdpFrame {
            src_mac: MacAddr([2; 6]),
            dst_mac: MacAddr([4; 6]),
            vlans: &[],
            src: src.parse().unwrap(),
            dst: dst.parse().unwrap(),
            payload: b"\0\x01\0\0\0\x01\0\0get a\r\n",
        }
        .to_vec()
        .unwrap()
    }

    #[test]
    fn names_are_unique_and_each_way_fits_a_version_and_changes_the_frame() {
        let mut names = std::collections::BTreeSet::new();
        for c in Corruption::ALL {
            assert!(names.insert(c.name()));
            let mut fits = 0;
            for ipv6 in [false, true] {
                let mut f = good(ipv6);
                if c.apply(&mut f) {
                    fits += 1;
                    assert_ne!(f, good(ipv6), "{}", c.name());
                } else {
                    assert_eq!(f, good(ipv6), "{}", c.name());
                }
            }
            assert!(fits > 0, "{}", c.name());
        }
    }

    #[test]
    fn frames_that_are_no_requests_stay_as_they_are() {
        for ipv6 in [false, true] {
            let whole = good(ipv6);
            let mut padded = whole.clone();
            padded.push(0);
            let cuts = (0..whole.len()).map(|n| whole[..n].to_vec());
            for f in cuts.chain([padded]) {
                for c in Corruption::ALL {
                    let mut g = f.clone();
                    assert!(!c.apply(&mut g));
                    assert_eq!(g, f);
                }
            }
        }
    }
}
