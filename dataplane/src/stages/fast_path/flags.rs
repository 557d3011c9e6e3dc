//! The flags of an `mg`, as far as they are answered here.
//!
//! In: a window with a request. Out: its flags, in their order, if all are usual ones. Nothing fails.

use crate::plain::window::{WINDOW, part};

/// Most flags: each of the usual ones once.
const MAX: usize = 7;
/// Those that are answered here.
const USUAL: u32 =
    bit(b'c') | bit(b'f') | bit(b'k') | bit(b'q') | bit(b's') | bit(b't') | bit(b'v');
const _: () = assert!(USUAL.count_ones() as usize == MAX);

/// Where letters are.
const LETTERS: u128 = u128::from_le_bytes(*b"\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\xff\0\0\0");

/// 1 in each pair of bytes.
const PAIRS: u128 = u128::MAX / 0xffff;

/// A bit for a small letter; for any other byte that of some letter.
#[inline(always)]
const fn bit(letter: u8) -> u32 {
    1 << (letter & 0x1f)
}

/// The text between the key of an `mg` and its line end: ` v k f`.
#[derive(Debug, Clone, Copy)]
pub(super) struct Flags {
    /// A blank and a letter to each.
    text: u128,
    count: usize,
}

impl Flags {
    /// Those that stand between `at` and `end`. `None`: there are more.
    #[inline(always)]
    pub(super) fn between(window: &[u8; WINDOW], at: usize, end: usize) -> Option<Self> {
        let len = end.checked_sub(at)?;
        let text = u128::from_le_bytes(*part(window, at));
        (len.is_multiple_of(2) && len <= 2 * MAX).then_some(Self { text, count: len / 2 })
    }

    /// Whether they are usual ones, none twice, with a blank before each.
    #[inline(always)]
    pub(super) fn are_usual(self) -> bool {
        let (mut text, mut seen) = (self.text, 0);
        for _ in 0..self.count {
            let [blank, letter, ..] = text.to_le_bytes();
            let bit = bit(letter) & USUAL & !seen;
            if blank != b' ' || !letter.is_ascii_lowercase() || bit == 0 {
                return false;
            }
            seen |= bit;
            text >>= 16;
        }
        true
    }

    /// Their letters, one in each second byte, the first one in the lowest; zeros behind the last.
    #[inline(always)]
    pub(super) fn letters(self) -> u128 {
        self.text >> 8 & LETTERS & !(u128::MAX << (16 * self.count % 128))
    }

    /// Whether this letter is among usual ones.
    #[inline(always)]
    pub(super) fn has(self, letter: u8) -> bool {
        // A pair of bytes that is 0 borrows from its top bit, which none other has.
        let differ = self.letters() ^ (PAIRS * u128::from(letter));
        differ.wrapping_sub(PAIRS) & PAIRS << 15 != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usual_flags_are_read() {
        let read = |text: &str| {
            let mut window = [b'v'; WINDOW];
            window[60..60 + text.len()].copy_from_slice(text.as_bytes());
            Flags::between(&window, 60, 60 + text.len()).filter(|flags| flags.are_usual())
        };
        for text in ["", " v", " k v", " c f k q s t v", " t s"] {
            let flags = read(text).unwrap();
            for letter in b'a'..=b'z' {
                assert_eq!(flags.has(letter), text.contains(char::from(letter)), "{text}");
            }
            let letters = flags.letters().to_le_bytes();
            let letters: Vec<u8> = letters.into_iter().filter(|l| *l != 0).collect();
            assert_eq!(String::from_utf8(letters).unwrap(), text.replace(' ', ""));
        }
        for text in [
            " ",
            "v",
            " v ",
            "  v",
            " v v",
            " h",
            " V",
            " 6",
            " \u{16}",
            " Oa",
            " v k f t c s q v",
            "\tv",
            " v\r",
            " v  k",
            " v kf",
        ] {
            assert!(read(text).is_none(), "{text:?}");
        }
    }
}
