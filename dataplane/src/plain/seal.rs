//! A reply's headers: the request's turned round, with lengths and checksums.
//!
//! In: a window with a reply's text, and sums of what is known. Out: a frame that is fit to send.

use super::sum::{fold32, fold64, less};
use super::vector::{PROTOCOL, Vector};
use super::window::{ADDRESSES, IP_LEN, IP_SUM, UDP_LEN, WINDOW, part, put};
use wire::ipv4::{FLAG_DF, UDP, VERSION_IHL};
use wire::reply::TTL;

/// What follows the length in a reply's IPv4 header.
const BEHIND_LENGTH: [u16; 2] = [FLAG_DF.swap_bytes(), u16::from_le_bytes([TTL, UDP])];
/// What of a reply's IPv4 header is always the same, summed.
pub(crate) const FIXED: u32 =
    VERSION_IHL as u32 + BEHIND_LENGTH[0] as u32 + BEHIND_LENGTH[1] as u32;
/// Adding it takes [`FIXED`] away, and 2^16 - 1 as often.
pub(crate) const LESS_FIXED: u32 = less(fold32(FIXED));

/// Turns the headers round and sets lengths and checksums. `sum` is that of all that UDP's covers,
/// `ip_sum` that of IPv4's header but for its length.
#[inline(always)]
pub(crate) fn turn<const CSUM_OFFLOAD: bool>(
    window: &mut [u8; WINDOW],
    udp_len: u16,
    ip_sum: u16,
    sum: u64,
    vector: impl Vector,
) {
    let (total_len, udp_len) = ((udp_len + 20).swap_bytes(), udp_len.swap_bytes());
    let udp_sum = udp_sum::<CSUM_OFFLOAD>(udp_len, ip_sum, sum);
    let ip_checksum =
        if CSUM_OFFLOAD { 0 } else { !fold32(u32::from(ip_sum) + u32::from(total_len)) };
    let [flags, ttl] = BEHIND_LENGTH;
    let word = u64::from(total_len) | u64::from(flags) << 32 | u64::from(ttl) << 48;
    if let Some(head) = window.first_chunk_mut() {
        vector.turn_ethernet(head);
    }
    put(window, IP_LEN, word.to_le_bytes());
    put(window, IP_SUM, ip_checksum.to_le_bytes());
    if let Some(parties) = window.get_mut(ADDRESSES..).and_then(<[u8]>::first_chunk_mut) {
        vector.turn_parties(parties, u32::from(udp_len) | u32::from(udp_sum) << 16);
    }
}

/// UDP's checksum. `udp_len` is as it stands in the header; the others are those of [`turn`].
#[inline(always)]
pub(crate) fn udp_sum<const CSUM_OFFLOAD: bool>(udp_len: u16, ip_sum: u16, sum: u64) -> u16 {
    if CSUM_OFFLOAD {
        return fold32(u32::from(ip_sum) + LESS_FIXED + u32::from(udp_len) + PROTOCOL);
    }
    let sum = fold64(sum);
    if sum == 0xffff { sum } else { !sum }
}

/// Turns the headers of an RDMA request round. Ports stay, and there is no UDP checksum (annex A17 of the
/// InfiniBand specification).
#[inline(always)]
pub(crate) fn turn_read(window: &mut [u8; WINDOW], udp_len: u16, ip_sum: u16, vector: impl Vector) {
    let (total_len, udp_len) = ((udp_len + 20).swap_bytes(), udp_len.swap_bytes());
    let sum = !fold32(u32::from(ip_sum) + u32::from(total_len));
    let [flags, ttl] = BEHIND_LENGTH;
    let word = u64::from(total_len) | u64::from(flags) << 32 | u64::from(ttl) << 48;
    if let Some(head) = window.first_chunk_mut() {
        vector.turn_ethernet(head);
    }
    let addresses = u64::from_le_bytes(*part(window, ADDRESSES));
    put(window, IP_LEN, word.to_le_bytes());
    put(window, IP_SUM, sum.to_le_bytes());
    put(window, ADDRESSES, addresses.rotate_left(32).to_le_bytes());
    put(window, UDP_LEN, u32::from(udp_len).to_le_bytes());
}
