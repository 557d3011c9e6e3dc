//! What the reply in a row replies to.
//!
//! In: a verb, or what stands behind the key of an `mg`. Out: a number for it. None for an `mg` whose reply says more than
//! its item and its flags' letters do, or is a refusal. Never fails.

use crate::layout::Verb;

/// Bits of the number for the verb, and for each letter behind it.
const BITS: u32 = 4;
const MASK: u32 = (1 << BITS) - 1;
/// Letters by their numbers, from 1 on: of what a look-up of an item that does not change says each time. (`t` does of
/// one that does not expire.)
const LETTERS: &[u8; (u32::BITS / BITS - 1) as usize] = b"vfsckqt";

/// A verb, and of an `mg` the letters of its flags, in order. Each has rows of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Form(u32);

impl Form {
    /// A `get`.
    pub const GET: Self = Self(Verb::GET.0 as u32);

    /// A request of this kind, if that says all.
    #[inline]
    pub const fn of(verb: Verb) -> Option<Self> {
        if verb.0 < Verb::META_GET.0 { Some(Self(verb.0 as u32)) } else { None }
    }

    /// An `mg`, by what stands behind its key, without the line's end: a blank and a letter for each flag.
    pub fn of_meta(flags: &[u8]) -> Option<Self> {
        let (pairs, []) = flags.as_chunks() else { return None };
        let mut form = u32::from(Verb::META_GET.0);
        let mut shift = BITS;
        let mut seen = 0;
        for [blank, letter] in pairs {
            let number = 1 + LETTERS.iter().position(|it| it == letter)?;
            // No letter comes twice, so that there is room for all.
            let bit = 1_u8 << number;
            if *blank != b' ' || seen & bit != 0 {
                return None;
            }
            seen |= bit;
            form |= u32::try_from(number).ok()? << shift;
            shift += BITS;
        }
        Some(Self(form))
    }

    /// As facts of a row have it.
    pub(super) fn verb(self) -> Verb {
        let [verb, ..] = (self.0 & MASK).to_le_bytes();
        Verb(self.flags().fold(verb, |verb, _| verb + (1 << BITS)))
    }

    /// The letters of its flags.
    pub(super) fn flags(self) -> impl Iterator<Item = u8> {
        let number = move |n| (self.0 >> (BITS * n) & MASK) as usize;
        let letter = move |n| LETTERS.get(number(n).checked_sub(1)?).copied();
        (1..u32::BITS / BITS).map_while(letter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags(text: &[u8]) -> Option<Vec<u8>> {
        Form::of_meta(text).map(|form| form.flags().collect())
    }

    #[test]
    fn forms_of_meta_gets_are_their_letters() {
        let all = [
            (&b""[..], &b""[..]),
            (b" v", b"v"),
            (b" t v", b"tv"),
            (b" v t", b"vt"),
            (b" v f s c k q t", b"vfsckqt"),
            (b" t q k c s f v", b"tqkcsfv"),
        ];
        let mut forms: Vec<_> = all.iter().map(|(text, _)| Form::of_meta(text)).collect();
        for (text, letters) in all {
            assert_eq!(flags(text).as_deref(), Some(letters));
        }
        forms.extend([Verb::GET, Verb::GETS, Verb::BINARY_GET, Verb::BINARY_GETK].map(Form::of));
        assert!(forms.iter().all(Option::is_some));
        forms.sort_unstable();
        forms.dedup();
        assert_eq!(forms.len(), all.len() + 4);
        assert_eq!(Form::of_meta(b" s v").map(Form::verb), Some(Verb(2 << 4 | 4)));
        assert_eq!(Form::of(Verb::GETS).map(Form::verb), Some(Verb::GETS));
        assert_eq!((Form::of(Verb::GET), Form::of(Verb::META_GET)), (Some(Form::GET), None));
    }

    #[test]
    fn what_says_more_or_is_refused_has_none() {
        let others: [&[u8]; 12] = [
            b" ", b"v", b" v ", b"  v", b"\tv", b" v v", b" O1", b" h", b" T30", b" b", b" v\n",
            b" q\r",
        ];
        for text in others {
            assert_eq!(flags(text), None, "{}", String::from_utf8_lossy(text));
        }
    }
}
