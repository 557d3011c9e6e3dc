//! Both twins say the same, and what the plain functions of the house say.

use super::*;
use crate::fast_path::sum::fold32;
use crate::store::{Store, StoreConfig};
use driver_shim::Pages;

fn noise(n: usize, mut x: u64) -> Vec<u8> {
    std::iter::repeat_with(|| {
        x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        x.to_be_bytes()[0]
    })
    .take(n)
    .collect()
}

fn check(vector: impl Vector) {
    let config =
        StoreConfig { memory_bytes: 4 << 20, pages: Pages::Small, ..StoreConfig::default() };
    let store = Store::new(config).unwrap();
    for round in 0..300u64 {
        let bytes = noise(600, round);
        let block: &[u8; SUM_BLOCK] = bytes.first_chunk().unwrap();
        for len in 0..=SUM_BLOCK {
            let header = bytes[200..].first_chunk().unwrap();
            let sums = vector.sums(header, block, len).map(|sum| fold32(sum).swap_bytes());
            let want = [checksum::sum(&header[..IP_HEAD]), checksum::sum(&block[..len])];
            assert_eq!(sums, want, "{len}");
        }
        let mut word = [b'a'; KEY_BLOCK];
        let mut other = word;
        for at in 0..KEY_BLOCK {
            word[at] = bytes[at] % 0x22;
            other[at] ^= 1;
            for len in 1..=KEY_BLOCK {
                assert_eq!(vector.is_word(&word, len), at >= len || word[at] > b' ', "{at} {len}");
                assert_eq!(vector.same(&[b'a'; KEY_BLOCK], &other, len), at >= len, "{at} {len}");
            }
            (word[at], other[at]) = (b'a', b'a');
        }
        let keys: [[u8; KEY_BLOCK]; ROW] =
            std::array::from_fn(|n| *bytes[40 * n..].first_chunk().unwrap());
        let lens: [u8; ROW] = std::array::from_fn(|n| 1 + bytes[n] % 32);
        let want: [u64; ROW] =
            std::array::from_fn(|n| store.hash(&keys[n][..usize::from(lens[n])]).0);
        assert_eq!(vector.hash(&store, &keys, lens), want, "{lens:?}");
        for len in (0..200).chain([599]) {
            let mut to = vec![7; len];
            let sum = vector.copy_and_sum(&mut to, &bytes[1..][..len]);
            assert_eq!(sum.swap_bytes(), checksum::sum(&bytes[1..][..len]), "{len}");
            assert_eq!(to, bytes[1..][..len]);
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
        assert_eq!(
            vector.copy_and_sum(&mut vec![0; len], &ones).swap_bytes(),
            checksum::sum(&ones)
        );
    }
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
