//! The vector form and the portable one give the same, and what the plain functions of the crates give.

use super::*;
use crate::plain::sum::fold32;
use base::checksum;
use driver_shim::Pages;
use store::{Store, StoreConfig};

fn noise(n: usize, mut x: u64) -> Vec<u8> {
    std::iter::repeat_with(|| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x.to_be_bytes()[0]
    })
    .take(n)
    .collect()
}

fn check_sums<const N: usize>(vector: impl Vector, bytes: &[u8]) {
    let block: &[u8; N] = bytes.first_chunk().unwrap();
    for len in UDP_LEN + 2..=N {
        let (mut header, mut block): ([u8; 32], [u8; N]) =
            (*bytes[200..].first_chunk().unwrap(), *block);
        // A word that makes each sum right.
        let fill = |bytes: &mut [u8], at: usize, pseudo: &[u8]| {
            bytes[at..at + 2].fill(0);
            let sum = checksum::sum(&[pseudo, bytes].concat());
            bytes[at..at + 2].copy_from_slice(&(!sum).to_be_bytes());
        };
        fill(&mut header[..IP_HEAD], 10, &[]);
        let pseudo = [0, 17, block[UDP_LEN], block[UDP_LEN + 1]];
        fill(&mut block[..len], 4, &pseudo);
        assert!(vector.sums_hold(&header, &block, len), "{len}");
        for (at, counts) in [(0, true), (IP_HEAD - 1, true), (IP_HEAD, false)] {
            let mut header = header;
            header[at] ^= 0x10;
            assert_eq!(vector.sums_hold(&header, &block, len), !counts, "{at}");
        }
        for at in 0..N {
            let mut block = block;
            block[at] ^= 1;
            assert_eq!(vector.sums_hold(&header, &block, len), at >= len, "{len} {at}");
        }
    }
}

fn check(vector: impl Vector) {
    let config =
        StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    for round in 0..300u64 {
        let bytes = noise(600, round);
        check_sums::<SUM_BLOCK>(vector, &bytes);
        if round < 30 {
            check_sums::<128>(vector, &bytes);
        }
        let mut word = [b'a'; KEY_BLOCK];
        let mut other = word;
        for at in 0..KEY_BLOCK {
            word[at] = bytes[at] % 0x22;
            other[at] ^= 1;
            for len in 1..=KEY_BLOCK {
                assert_eq!(vector.word_len(&word), if word[at] > b' ' { KEY_BLOCK } else { at });
                assert_eq!(vector.is_word(&word, len), at >= len || word[at] > b' ', "{at} {len}");
                assert_eq!(vector.same(&[b'a'; KEY_BLOCK], &other, len), at >= len, "{at} {len}");
            }
            (word[at], other[at]) = (b'a', b'a');
        }
        let line: [u8; KEY_BLOCK] = std::array::from_fn(|n| b' ' - 1 + bytes[n] % 0x1c);
        for block in [line, *bytes.first_chunk().unwrap()] {
            let bit = |n: usize, is: bool| u32::from(is) << n;
            let (blanks, digits) = (0..KEY_BLOCK).fold((0, 0), |(blanks, digits), n| {
                let byte = block[n];
                (blanks | bit(n, byte == b' '), digits | bit(n, byte.is_ascii_digit()))
            });
            assert_eq!(vector.blanks_and_digits(&block), (blanks, digits), "{block:?}");
        }
        let keys: [[u8; KEY_BLOCK]; ROW] =
            std::array::from_fn(|n| *bytes[40 * n..].first_chunk().unwrap());
        let lens: [u8; ROW] = std::array::from_fn(|n| 1 + bytes[n] % 32);
        let want: [u64; ROW] =
            std::array::from_fn(|n| store.hash(&keys[n][..usize::from(lens[n])]).0);
        assert_eq!(vector.hash(&store, &keys, lens), want, "{lens:?}");
        let long: [&[u8; LONG_BLOCK]; ROW] =
            std::array::from_fn(|n| bytes[7 * n..].first_chunk().unwrap());
        let any: [u8; ROW] = std::array::from_fn(|n| bytes[n] % 251);
        let [first, ..] = any;
        for lens in [any, lens, [first; ROW], [first, first, 0, 250], [250; ROW]] {
            let want = std::array::from_fn(|n| store.hash(&long[n][..usize::from(lens[n])]).0);
            assert_eq!(vector.hash_long(&store, long, lens), want, "{lens:?}");
        }
        for len in (0..200).chain([599]) {
            let mut to = vec![7; len];
            let sum = vector.copy_and_sum(&mut to, &bytes[1..][..len]);
            assert_eq!(fold32(sum).swap_bytes(), checksum::sum(&bytes[1..][..len]), "{len}");
            assert_eq!(to, bytes[1..][..len]);
            let behind = [&to[..], &bytes[..128]].concat();
            assert_eq!(fold32(vector.sum(&behind, len)), fold32(sum), "{len}");
            let block = behind.first_chunk::<SUM_BLOCK>().unwrap();
            if len <= SUM_BLOCK {
                assert_eq!(fold32(vector.sum_block(block, len)), fold32(sum), "{len}");
            }
            let block = behind.first_chunk::<128>().unwrap();
            if len <= 128 {
                assert_eq!(fold32(vector.sum_block(block, len)), fold32(sum), "{len}");
            }
            assert_eq!(vector.sum(&behind[..len / 32 * 32 + 31], len), 0, "{len}");
        }
        let head: &[u8; HEAD] = bytes.first_chunk().unwrap();
        let mask: &[u8; HEAD] = bytes[100..].first_chunk().unwrap();
        let want: [u8; HEAD] = std::array::from_fn(|n| head[n] & mask[n]);
        assert!(vector.fits(head, mask, &want));
        for bit in 0..8 * HEAD {
            let mut head = *head;
            head[bit / 8] ^= 1 << (bit % 8);
            let counts = mask[bit / 8] >> (bit % 8) & 1 == 1;
            assert_eq!(vector.fits(&head, mask, &want), !counts);
        }
    }
    for len in [0, 1, 31, 32, 33, 64, 100, 191] {
        let ones = vec![0xff; len];
        let sum = fold32(vector.copy_and_sum(&mut vec![0; len], &ones));
        assert_eq!(sum.swap_bytes(), checksum::sum(&ones));
    }
    let mut head: [u8; 16] = std::array::from_fn(|n| n.to_le_bytes()[0]);
    let mut parties = head;
    vector.turn_ethernet(&mut head);
    assert_eq!(head, [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13, 0x45, 0]);
    vector.turn_parties(&mut parties, u32::from_le_bytes([100, 101, 102, 103]));
    assert_eq!(parties, [4, 5, 6, 7, 0, 1, 2, 3, 10, 11, 8, 9, 100, 101, 102, 103]);
}

#[test]
fn the_portable_twin() {
    check(Portable);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_vector_twin() {
    if let Some(vector) = Avx2::detect() {
        check(vector);
    }
}
