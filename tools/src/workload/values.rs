//! Values that describe themselves.
//!
//! ```text
//!  size >= 8:  | version, 4 bytes LE | stream(index, version, size) ... |
//!  size <  8:  | stream(index, 0, size) ...                             |
//! ```
//!
//! The stream hangs on key, version and size together, so a value of another key, one cut short,
//! and one torn between two versions all fail [`check`]. A value shorter than 8 bytes has no
//! space for its version: every version of it is the same. Bytes take all values, line ends
//! included: a reader that looks for them instead of counting finds out.

use super::mix;
use gnomon_client::codec::Field;

/// Shortest value that records its version.
const VERSIONED_MIN_BYTES: usize = 8;
const VERSION_BYTES: usize = 4;

/// The client flags that key `index` is always stored with: one digit, so that replies to keys
/// of one size have one length.
pub fn flags(index: u64) -> u32 {
    (index % 10) as u32
}

/// The bytes of the stream, eight at a time.
fn stream(index: u64, version: u32, size: usize) -> impl Iterator<Item = [u8; 8]> {
    let start = mix(index ^ mix(u64::from(version) << 32 ^ size as u64));
    (0u64..)
        .map(move |n| mix(start.wrapping_add(n.wrapping_mul(0xd6e8_feb8_6659_fd93))).to_le_bytes())
}

/// Appends `version` of the value of key `index`, `size` bytes long.
pub fn append(index: u64, version: u32, size: usize, out: &mut Vec<u8>) {
    let mut left = size;
    let mut version = version;
    if size >= VERSIONED_MIN_BYTES {
        out.extend_from_slice(&version.to_le_bytes());
        left -= VERSION_BYTES;
    } else {
        version = 0;
    }
    for word in stream(index, version, size) {
        if left <= word.len() {
            out.extend_from_slice(&word[..left]);
            return;
        }
        out.extend_from_slice(&word);
        left -= word.len();
    }
}

/// A value that was not written out yet.
#[derive(Debug, Clone, Copy)]
pub struct Stored {
    /// Its key's.
    pub index: u64,
    /// Which of the key's values.
    pub version: u32,
    /// How long it is.
    pub bytes: usize,
}

impl Field for Stored {
    fn bytes(&self) -> usize {
        self.bytes
    }

    fn append(&self, out: &mut Vec<u8>) {
        append(self.index, self.version, self.bytes, out);
    }
}

/// Whether `value` is one that [`append`] makes for key `index`; gives its version.
pub fn check(index: u64, value: &[u8]) -> Option<u32> {
    let (version, body) = match value.first_chunk::<VERSION_BYTES>() {
        Some(v) if value.len() >= VERSIONED_MIN_BYTES => {
            (u32::from_le_bytes(*v), &value[VERSION_BYTES..])
        }
        _ => (0, value),
    };
    body.chunks(8)
        .zip(stream(index, version, value.len()))
        .all(|(got, want)| got == &want[..got.len()])
        .then_some(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_values_pass_and_strange_ones_fail() {
        for size in [0, 1, 7, 8, 9, 12, 13, 64, 1400] {
            let mut v = Vec::new();
            append(42, 7, size, &mut v);
            assert_eq!(v.len(), size);
            assert_eq!(check(42, &v), Some(if size >= 8 { 7 } else { 0 }));
            if size < 4 {
                continue; // too short to show for sure
            }
            assert_eq!(check(43, &v), None, "another key");
            assert_eq!(check(42, &v[..size - 1]), None, "cut short");
            for i in 0..size {
                v[i] ^= 1;
                assert_eq!(check(42, &v), None, "byte {i} of {size} changed");
                v[i] ^= 1;
            }
        }
    }

    #[test]
    fn a_torn_value_fails() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        append(5, 1, 64, &mut a);
        append(5, 2, 64, &mut b);
        a[32..].copy_from_slice(&b[32..]);
        assert_eq!(check(5, &a), None);
    }
}
