//! Refusals of requests that did not come in one packet.
//!
//! In: the frame that stage 3 called `TooLong`, by reference: the first fragment of a datagram, with
//! the memcached frame header and the beginning of the request. Out: where the headers of the
//! refusal stand, which is in the same frame, or the reason to drop it; then the frame's bytes mean
//! nothing. Fragments are not put together: that would need memory for fragments of unknown clients and a time
//! to keep them. The client is referred to TCP, with no more bytes than its source may have.
#![deny(clippy::indexing_slicing)]

use crate::policy::allowance;
use crate::reply::{Headers, in_place};
use driver_shim::Frame;
use gpu::{Entry, EntryFlags};
use memcache::binary::HEADER_BYTES as BINARY_HEADER_BYTES;
use memcache::{Dialects, Refusal};
use std::num::NonZeroU32;
use wire::DropReason;
use wire::ipv4::UDP;
use wire::ipv6::{self, Ipv6Header};
use wire::udp::HEADER_BYTES as UDP_HEADER_BYTES;
use wire::udp_frame::{self, HEADER_BYTES};
use wire::verify::verify_ip4_header;
use wire::with;

/// A buffer for the refusal in either dialect.
const TEXT_MAX_BYTES: usize = 128;

/// Who refuses.
#[derive(Debug)]
pub struct TooLong {
    dialects: Dialects,
    /// Most reply bytes per request byte, for sources that are not trusted.
    amp_factor: NonZeroU32,
}

impl TooLong {
    /// Refuses in the dialect that the request begins in.
    pub fn new(dialects: Dialects, amp_factor: NonZeroU32) -> Self {
        Self { dialects, amp_factor }
    }

    /// Turns the beginning of a request into its refusal.
    ///
    /// # Errors
    /// Why it gets none: [`DropReason::Ipv4Checksum`]; [`DropReason::KvFrameShort`] also for a
    /// binary request whose own header is not all there; [`DropReason::KvMultipart`];
    /// [`DropReason::Amplification`]; [`DropReason::NoFrame`] if the refusal does not fit the slot.
    #[cold]
    pub fn refuse(&self, frame: &mut Frame, entry: &Entry) -> Result<Headers, DropReason> {
        let ipv6 = entry.flags.has(EntryFlags::IPV6);
        let good = ipv6 || entry.flags.has(EntryFlags::IP_GOOD);
        if !good && !verify_ip4_header(frame.bytes(), entry.l3) {
            return Err(DropReason::Ipv4Checksum);
        }
        let payload = usize::from(entry.l4) + UDP_HEADER_BYTES;
        let payload = frame.bytes().get(payload..).unwrap_or_default();
        let (_, text) = udp_frame::split(payload)?;
        let most = allowance(entry, u16::try_from(text.len()).unwrap_or(u16::MAX), self.amp_factor);
        // The refusal is written over it.
        let mut begin = [0; BINARY_HEADER_BYTES];
        let len = text.len().min(begin.len());
        let (begin, _) = begin.split_at_mut(len);
        begin.copy_from_slice(text.get(..len).unwrap_or_default());
        let dialect = self.dialects.of(begin.first().copied().unwrap_or_default());
        let headers = if ipv6 {
            without_fragment_header(frame, entry).ok_or(DropReason::Ipv6Fragment)?
        } else {
            Headers { l3: entry.l3, l4: entry.l4, ipv6 }
        };
        let written = in_place(frame, headers, TEXT_MAX_BYTES, |out| {
            dialect.refuse(begin, Refusal::RequestTooLarge, out);
        });
        if !written {
            return Err(DropReason::NoFrame);
        }
        match frame.len() - headers.kv() {
            HEADER_BYTES => Err(DropReason::KvFrameShort),
            bytes if bytes > most => Err(DropReason::Amplification),
            _ => Ok(headers),
        }
    }
}

/// Moves the UDP and memcached headers to where they stand in a packet that is no fragment.
fn without_fragment_header(frame: &mut Frame, entry: &Entry) -> Option<Headers> {
    let l4 = entry.l4.checked_sub(ipv6::FRAGMENT_STEP)?;
    let headers = Headers { l3: entry.l3, l4, ipv6: true };
    let bytes = frame.bytes_mut();
    let (from, to) = (usize::from(entry.l4), usize::from(l4));
    let moved = bytes.get(from..from + UDP_HEADER_BYTES + HEADER_BYTES)?;
    let moved: [u8; UDP_HEADER_BYTES + HEADER_BYTES] = moved.try_into().ok()?;
    bytes.get_mut(to..to + moved.len())?.copy_from_slice(&moved);
    with(bytes.get_mut(usize::from(entry.l3)..)?, |ip: &mut Ipv6Header| ip.next_header = UDP);
    Some(headers)
}
