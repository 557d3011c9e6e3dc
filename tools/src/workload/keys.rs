//! Key names. Key `index` of a given size is its number in base 64, filled up on the left:
//! `kkkkk0000000002Z`. The name leads back to the index, so a replayer needs no table of keys.

use memcache::command::KEY_MAX_BYTES;

/// Digits of the number; 11 of 6 bits hold any `u64`.
const DIGITS: &[u8; 64] = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_";
/// Digits after which only filler stands.
const DIGITS_MAX: usize = 11;
const FILLER: u8 = b'k';

/// Value of each digit; 64 for bytes that are none.
const VALUES: [u8; 256] = {
    let mut t = [64; 256];
    let mut i = 0;
    while i < 64 {
        #[expect(clippy::cast_possible_truncation, reason = "i < 64")]
        {
            t[DIGITS[i] as usize] = i as u8;
        }
        i += 1;
    }
    t
};

/// How many keys of `size` bytes there are.
pub fn capacity(size: usize) -> u64 {
    if size >= DIGITS_MAX { u64::MAX } else { 1 << (6 * size) }
}

/// Writes the name of key `index` over the whole of `out`. Two indexes share a name only when
/// the greater is at least [`capacity`]`(out.len())`.
pub fn write(index: u64, out: &mut [u8]) {
    let mut rest = index;
    for (place, b) in out.iter_mut().rev().enumerate() {
        *b = if place < DIGITS_MAX { DIGITS[(rest & 63) as usize] } else { FILLER };
        rest >>= 6;
    }
}

/// The index of a key made by [`write()`], or `None` for any other byte string.
pub fn index(key: &[u8]) -> Option<u64> {
    if key.is_empty() || key.len() > KEY_MAX_BYTES {
        return None;
    }
    let (filler, digits) = key.split_at(key.len().saturating_sub(DIGITS_MAX));
    if filler.iter().any(|b| *b != FILLER) {
        return None;
    }
    let mut index = 0u64;
    for d in digits {
        let v = VALUES[usize::from(*d)];
        if v >= 64 || index >> 58 != 0 {
            return None;
        }
        index = index << 6 | u64::from(v);
    }
    Some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_leads_back_to_its_index() {
        for size in 1..=KEY_MAX_BYTES {
            let mut key = vec![0; size];
            for i in [0, 1, 63, 64, 4095, 1 << 40, u64::MAX] {
                if size < DIGITS_MAX && i >= capacity(size) {
                    continue;
                }
                write(i, &mut key);
                assert_eq!(index(&key), Some(i), "size {size}");
                assert!(key.iter().all(u8::is_ascii_graphic));
            }
        }
    }

    #[test]
    fn names_of_one_size_differ() {
        let names: std::collections::HashSet<_> = (0..capacity(2))
            .map(|i| {
                let mut k = [0; 2];
                write(i, &mut k);
                k
            })
            .collect();
        assert_eq!(names.len(), 4096);
    }

    #[test]
    fn strange_keys_have_no_index() {
        for k in [&b""[..], b"a b", b"x00000000000", b"k\r0000000000", b"zzzzzzzzzzz", &[b'k'; 251]]
        {
            assert_eq!(index(k), None, "{k:?}");
        }
    }
}
