//! CRC-32 of a message in pieces, each of which counts in several messages and is gone over once, while it is
//! copied.
//!
//! In: pieces. Out: what each adds to a CRC, whatever comes before it; put together they are the CRC. It works because
//! a CRC is linear: the register behind a piece is the one before it times x^(bits of the piece), plus what the piece
//! makes of a register of zeros. Nothing fails.

use super::Pclmul;
use crc32fast::Hasher;

/// The polynomial, turned round.
const POLYNOMIAL: u32 = 0xedb8_8320;
/// x^8, x^16, x^32, ...: what registers are multiplied by, for each bit of a length in bytes.
const BYTES: [u32; 32] = {
    let mut powers = [power(8); 32];
    let mut n = 1;
    while n < powers.len() {
        #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler alone")]
        (powers[n] = product(powers[n - 1], powers[n - 1]));
        n += 1;
    }
    powers
};

/// x to the power of `n` modulo the polynomial, turned round.
pub(super) const fn power(n: u32) -> u32 {
    let mut power = 1 << 31;
    let mut i = 0;
    while i < n {
        power = times_x(power);
        i += 1;
    }
    power
}

const fn times_x(a: u32) -> u32 {
    a >> 1 ^ if a & 1 == 1 { POLYNOMIAL } else { 0 }
}

/// The product of two remainders.
const fn product(a: u32, b: u32) -> u32 {
    let (mut a, mut b, mut product) = (a, b, 0);
    while a != 0 {
        if a >> 31 == 1 {
            product ^= b;
        }
        (a, b) = (a << 1, times_x(b));
    }
    product
}

/// `register` times x^(8 `len`).
#[inline]
fn moved(register: u32, len: usize) -> u32 {
    #[cfg(target_arch = "x86_64")]
    if let Some(here) = Pclmul::detect() {
        return moved_by(register, len, |a, b| here.product(a, b));
    }
    moved_by(register, len, product)
}

#[inline(always)]
fn moved_by(register: u32, len: usize, product: impl Fn(u32, u32) -> u32) -> u32 {
    let (mut register, mut len) = (register, len);
    while len > 0 {
        let power = BYTES.get(len.trailing_zeros() as usize).copied().unwrap_or_default();
        register = product(register, power);
        len &= len - 1;
    }
    register
}

/// A message of which more may come.
#[derive(Debug, Clone, Copy)]
pub struct Message(u32);

impl Message {
    /// Nothing yet.
    pub const NEW: Self = Self(!0);

    /// One that has this CRC so far.
    pub fn of(crc: u32) -> Self {
        Self(!crc)
    }

    /// With a piece behind it.
    #[inline]
    #[must_use]
    pub fn then(self, piece: Piece) -> Self {
        Self(moved(self.0, piece.len) ^ piece.register)
    }

    /// Its CRC.
    pub fn crc(self) -> u32 {
        !self.0
    }
}

/// What a piece adds.
#[derive(Debug, Clone, Copy, Default)]
pub struct Piece {
    /// What it makes of a register of zeros.
    register: u32,
    len: usize,
}

impl Piece {
    /// Bytes.
    #[inline]
    pub fn of(bytes: &[u8]) -> Self {
        #[cfg(target_arch = "x86_64")]
        if let Some(here) = super::avx512::Avx512::detect() {
            return Self { register: here.register(bytes), len: bytes.len() };
        }
        Self::of_portable(bytes)
    }

    /// Bytes, as far as there is room in `to`, where they are copied.
    #[inline]
    pub fn copied(from: &[u8], to: &mut [u8]) -> Self {
        let len = from.len().min(to.len());
        let (from, to) =
            (from.get(..len).unwrap_or_default(), to.get_mut(..len).unwrap_or_default());
        #[cfg(target_arch = "x86_64")]
        if let Some(here) = super::avx512::Avx512::detect() {
            return Self { register: here.copy(from, to), len };
        }
        to.copy_from_slice(from);
        Self::of_portable(from)
    }

    /// Zeros.
    pub fn zeros(len: usize) -> Self {
        Self { register: 0, len }
    }

    /// This piece and one behind it.
    #[inline]
    #[must_use]
    pub fn then(self, piece: Self) -> Self {
        let register = moved(self.register, piece.len) ^ piece.register;
        Self { register, len: self.len + piece.len }
    }

    /// Bytes of it.
    pub fn len(self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.len == 0
    }

    fn of_portable(bytes: &[u8]) -> Self {
        // The register is the complement of what is called the CRC.
        let mut hasher = Hasher::new_with_initial(!0);
        hasher.update(bytes);
        Self { register: !hasher.finalize(), len: bytes.len() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crc32::Pclmul;

    #[test]
    fn pieces_of_any_length_put_together_have_the_crc_of_the_whole() {
        let bytes: Vec<u8> = (0..3000_u32).map(|n| (n * n % 251).to_le_bytes()[0]).collect();
        for len in (0..600).chain([1023, 1024, 1025, 2900]) {
            for at in [0, 1, 63] {
                let piece = &bytes[at..at + len];
                let right = crc32fast::hash(&bytes[..at + len]);
                let before = Message::of(crc32fast::hash(&bytes[..at]));
                let mut to = vec![0xaa; len];
                for piece in
                    [Piece::of(piece), Piece::of_portable(piece), Piece::copied(piece, &mut to)]
                {
                    assert_eq!(before.then(piece).crc(), right, "{at} {len}");
                    let first = Message::NEW.then(Piece::of(&bytes[..at]).then(piece));
                    assert_eq!(first.crc(), right, "{at} {len}");
                }
                assert_eq!(to, piece);
                let zeros = Message::NEW.then(Piece::of(piece)).then(Piece::zeros(len));
                assert_eq!(zeros.crc(), crc32fast::hash(&[piece, &vec![0; len]].concat()));
            }
        }
    }

    /// The copy stays within its slice, as the bytes around it show.
    #[test]
    fn a_copy_touches_nothing_else() {
        let from = [7; 700];
        for len in 0..600 {
            let mut to = [1; 800];
            let piece = Piece::copied(&from[..len], &mut to[100..]);
            assert_eq!(piece.len(), len);
            assert!(to[..100].iter().chain(&to[100 + len..]).all(|b| *b == 1), "{len}");
            assert!(to[100..100 + len].iter().all(|b| *b == 7), "{len}");
            assert_eq!(Piece::copied(&from, &mut to[..len]).len(), len);
        }
    }

    #[test]
    fn products_are_the_same_by_either_way() {
        let here = Pclmul::detect();
        let mut a = 1_u32;
        for _ in 0..10_000 {
            let b = a.rotate_left(7) ^ 0x1234_5678;
            if let Some(here) = here {
                assert_eq!(here.product(a, b), product(a, b), "{a:x} {b:x}");
            }
            a = a.wrapping_mul(0x9e37_79b1) ^ b >> 3;
        }
        for (n, power) in BYTES.iter().take(12).enumerate() {
            assert_eq!(*power, super::power(8 << n));
        }
    }
}
