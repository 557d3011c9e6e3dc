//! The twin of the steps that any processor takes.
//!
//! In and out: as `Vector` has it. Nothing fails.

use super::{HEAD, IP_HEAD, KEY_BLOCK, LONG_BLOCK, PROTOCOL, ROW, UDP_LEN, Vector};
use crate::plain::sum::fold32;
use base::checksum;
use base::crc32::{self, MASK_BYTES};
use base::small_bytes;
use store::Store;
use wire::ipv4::VERSION_IHL;

/// Any processor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portable;

impl Vector for Portable {
    #[inline(always)]
    fn fits(self, head: &[u8; HEAD], mask: &[u8; HEAD], want: &[u8; HEAD]) -> bool {
        let word = |bytes: &[u8; 16]| u128::from_le_bytes(*bytes);
        let words = |bytes: &[u8; HEAD]| {
            bytes.as_chunks().0.first_chunk::<3>().map(|w| w.map(|w| word(&w)))
        };
        match (words(head), words(mask), words(want)) {
            (Some([a, b, c]), Some([k, l, m]), Some([x, y, z])) => {
                ((a & k) ^ x) | ((b & l) ^ y) | ((c & m) ^ z) == 0
            }
            _ => false,
        }
    }

    #[inline(always)]
    fn is_word(self, block: &[u8; KEY_BLOCK], len: usize) -> bool {
        block.get(..len).is_some_and(|word| small_bytes::word_len(word) == len)
    }

    #[inline(always)]
    fn word_len(self, block: &[u8; KEY_BLOCK]) -> usize {
        small_bytes::word_len(block)
    }

    #[inline(always)]
    fn blanks_and_digits(self, block: &[u8; KEY_BLOCK]) -> (u32, u32) {
        let bits = |is: fn(u8) -> bool| {
            block.iter().rev().fold(0, |bits, byte| bits << 1 | u32::from(is(*byte)))
        };
        (bits(|byte| byte == b' '), bits(|byte| byte.is_ascii_digit()))
    }

    #[inline(always)]
    fn sum(self, bytes: &[u8], len: usize) -> u32 {
        let whole = bytes.get(..(len / 32 + 1) * 32).and_then(|bytes| bytes.get(..len));
        whole.map_or(0, checksum::sum).swap_bytes().into()
    }

    #[inline(always)]
    fn sum_block<const N: usize>(self, block: &[u8; N], len: usize) -> u32 {
        block.get(..len).map_or(0, checksum::sum).swap_bytes().into()
    }

    #[inline(always)]
    fn same(self, a: &[u8; KEY_BLOCK], b: &[u8; KEY_BLOCK], len: usize) -> bool {
        match (a.get(..len), b.get(..len)) {
            (Some(a), Some(b)) => small_bytes::equal(a, b),
            _ => false,
        }
    }

    #[inline(always)]
    fn sums_hold<const N: usize>(self, header: &[u8; 32], block: &[u8; N], len: usize) -> bool {
        let sum = |bytes: &[u8]| u32::from(checksum::sum(bytes).swap_bytes());
        let udp_len = block.get(UDP_LEN..).and_then(<[u8]>::first_chunk);
        let pseudo = udp_len.map_or(0, |len| u32::from(u16::from_le_bytes(*len))) + PROTOCOL;
        header.get(..IP_HEAD).map_or(0, sum) == 0xffff
            && fold32(block.get(..len).map_or(0, sum) + pseudo) == 0xffff
    }

    #[inline(always)]
    fn masked_crc(self, bytes: &[u8], mask: &[u8; MASK_BYTES]) -> u32 {
        crc32::masked(bytes, mask)
    }

    #[inline(always)]
    fn crc_behind(self, first: [u8; 8], bytes: &[u8]) -> u32 {
        crc32::behind(first, bytes)
    }

    #[inline(always)]
    fn hash(self, store: &Store, keys: &[[u8; KEY_BLOCK]; ROW], lens: [u8; ROW]) -> [u64; ROW] {
        let [a, b, c, d] = keys;
        hashes(store, [a, b, c, d], lens)
    }

    #[inline(always)]
    fn hash_long(
        self,
        store: &Store,
        keys: [&[u8; LONG_BLOCK]; ROW],
        lens: [u8; ROW],
    ) -> [u64; ROW] {
        hashes(store, keys, lens)
    }

    #[inline(always)]
    fn copy_and_sum(self, to: &mut [u8], from: &[u8]) -> u32 {
        small_bytes::copy(to, from);
        checksum::sum(from).swap_bytes().into()
    }

    #[inline(always)]
    fn turn_ethernet(self, head: &mut [u8; 16]) {
        let word = u128::from_le_bytes(*head);
        // Six bytes each.
        let address = |from: u32| word >> from & 0xffff_ffff_ffff;
        let kind = word >> 96 & 0xffff;
        let ip = u128::from(VERSION_IHL);
        *head = (address(48) | address(0) << 48 | kind << 96 | ip << 112).to_le_bytes();
    }

    #[inline(always)]
    fn turn_parties(self, parties: &mut [u8; 16], behind: u32) {
        let word = u128::from_le_bytes(*parties);
        let (a, b) = (word & 0xffff_ffff, word >> 32 & 0xffff_ffff);
        let (c, d) = (word >> 64 & 0xffff, word >> 80 & 0xffff);
        *parties = (b | a << 32 | d << 64 | c << 80 | u128::from(behind) << 96).to_le_bytes();
    }
}

#[inline(always)]
fn hashes<const N: usize>(store: &Store, keys: [&[u8; N]; ROW], lens: [u8; ROW]) -> [u64; ROW] {
    let mut hashes = [0; ROW];
    for ((hash, key), len) in hashes.iter_mut().zip(keys).zip(lens) {
        *hash = key.get(..len.into()).map_or(0, |key| store.hash(key).0);
    }
    hashes
}
