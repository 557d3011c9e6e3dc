//! Ethernet II with up to two VLAN tags (IEEE 802.3, 802.1Q, 802.1ad).

use crate::drop_reason::DropReason;
use driver_shim::MacAddr;
use zerocopy::byteorder::network_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Every station's address.
pub const BROADCAST: MacAddr = MacAddr([0xff; 6]);

/// EtherType of IPv4.
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP.
pub const ARP: u16 = 0x0806;
/// EtherType of IPv6.
pub const IPV6: u16 = 0x86dd;
/// Tag protocol of 802.1Q: one tag, or the inner of two.
pub const VLAN: u16 = 0x8100;
/// Tag protocol of 802.1ad: the outer of two.
pub const QINQ: u16 = 0x88a8;
/// The outer tag protocol of older switches.
const QINQ_OLD: u16 = 0x9100;
/// Most tags that a frame may carry.
pub const TAGS_MAX: usize = 2;

/// Bytes of the header without tags.
pub const HEADER_BYTES: usize = size_of::<EthHeader>();
/// Bytes of one tag.
pub const TAG_BYTES: usize = size_of::<VlanTag>();
/// Where the network header begins when there are no tags.
const L3_UNTAGGED: u8 = 14;
const TAG_STEP: u8 = 4;
const _: () = assert!(HEADER_BYTES == L3_UNTAGGED as usize && TAG_BYTES == TAG_STEP as usize);

/// Field map of the header.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the fields of IEEE 802.3")]
pub struct EthHeader {
    pub dst: [u8; 6],
    pub src: [u8; 6],
    pub ethertype: U16,
}

/// Field map of what follows a tag's EtherType.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub(crate) struct VlanTag {
    pub(crate) control: U16,
    pub(crate) ethertype: U16,
}

/// A frame whose Ethernet header and tags are complete.
#[derive(Debug, Clone, Copy)]
pub struct Eth<'a> {
    head: &'a EthHeader,
    l3: u8,
    ethertype: u16,
    payload: &'a [u8],
}

impl<'a> Eth<'a> {
    /// Checks `frame` and reads past its tags.
    ///
    /// # Errors
    /// [`DropReason::EthTruncated`], or [`DropReason::VlanDepth`] for a third tag.
    #[inline]
    pub fn checked(frame: &'a [u8]) -> Result<Self, DropReason> {
        let (head, mut payload) =
            EthHeader::ref_from_prefix(frame).map_err(|_| DropReason::EthTruncated)?;
        let mut ethertype = head.ethertype.get();
        let mut l3 = L3_UNTAGGED;
        let mut tags = 0;
        while matches!(ethertype, VLAN | QINQ | QINQ_OLD) {
            if tags == TAGS_MAX {
                return Err(DropReason::VlanDepth);
            }
            let (tag, behind) =
                VlanTag::ref_from_prefix(payload).map_err(|_| DropReason::EthTruncated)?;
            ethertype = tag.ethertype.get();
            payload = behind;
            l3 += TAG_STEP;
            tags += 1;
        }
        Ok(Self { head, l3, ethertype, payload })
    }

    /// The station it is for.
    pub fn dst(&self) -> MacAddr {
        MacAddr(self.head.dst)
    }

    /// The station it is from.
    pub fn src(&self) -> MacAddr {
        MacAddr(self.head.src)
    }

    /// The EtherType behind the tags.
    pub fn ethertype(&self) -> u16 {
        self.ethertype
    }

    /// Where the network header begins: 14, 18 or 22.
    pub fn l3(&self) -> u8 {
        self.l3
    }

    /// Everything behind the tags, padding included.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }
}

/// Whether `mac` names a group of stations: broadcast or multicast.
pub fn is_group(mac: MacAddr) -> bool {
    let [first, ..] = mac.0;
    first & 1 == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: [u8; 16] = [1, 2, 3, 4, 5, 6, 10, 11, 12, 13, 14, 15, 0x08, 0x00, 0x45, 0];

    #[test]
    fn deconstructs() {
        let e = Eth::checked(&PLAIN).unwrap();
        assert_eq!(e.dst(), MacAddr([1, 2, 3, 4, 5, 6]));
        assert_eq!(e.src(), MacAddr([10, 11, 12, 13, 14, 15]));
        assert_eq!((e.ethertype(), e.l3(), e.payload()), (IPV4, 14, &[0x45, 0][..]));
        assert!(is_group(e.dst()) && !is_group(e.src()));
    }

    #[test]
    fn reads_past_two_tags_and_no_more() {
        for (tpids, l3) in [(&[VLAN][..], 18), (&[QINQ, VLAN], 22), (&[QINQ_OLD, VLAN], 22)] {
            let mut f = PLAIN[..12].to_vec();
            for t in tpids {
                f.extend_from_slice(&t.to_be_bytes());
                f.extend_from_slice(&[0x60, 5]);
            }
            f.extend_from_slice(&IPV6.to_be_bytes());
            f.push(0x60);
            let e = Eth::checked(&f).unwrap();
            assert_eq!((e.ethertype(), e.l3(), e.payload()), (IPV6, l3, &[0x60][..]));
        }
        let mut f = PLAIN[..12].to_vec();
        f.extend_from_slice(&[0x81, 0, 0, 1, 0x81, 0, 0, 2, 0x81, 0, 0, 3, 8, 0]);
        assert_eq!(Eth::checked(&f).unwrap_err(), DropReason::VlanDepth);
    }

    #[test]
    fn impossible_lengths() {
        for n in 0..14 {
            assert_eq!(Eth::checked(&PLAIN[..n]).unwrap_err(), DropReason::EthTruncated);
        }
        let mut f = PLAIN[..12].to_vec();
        f.extend_from_slice(&[0x81, 0, 0, 1, 8]);
        assert_eq!(Eth::checked(&f).unwrap_err(), DropReason::EthTruncated);
    }
}
