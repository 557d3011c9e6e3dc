//! `incr`, `decr`: count in a decimal number.

use crate::change::{Change, NewValue, Replacement};
use crate::item_flags::Marks;
use crate::write::Refused;
use crate::{KeyHash, Session};
use base::Arith;

/// Longest value that is taken for a number, trailing blanks included, in bytes.
const NUMBER_MAX_BYTES: usize = 128;

/// A number that was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counted {
    /// The new number.
    pub number: u64,
    /// The CAS id of its item.
    pub cas: u64,
    /// When the item would have expired before, on the store's clock; 0 for never, and for one that
    /// was not there.
    pub expiry: u32,
    /// There was no item: this is the initial number.
    pub created: bool,
    /// The size class, from 0, of the item that was there.
    pub class: Option<usize>,
}

/// Why nothing was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArithFailure {
    /// No such item, and no initial number.
    NotFound,
    /// The item has another CAS id.
    Exists,
    /// The value is no number of 64 bits.
    NonNumeric,
    /// The number does not fit the item limit.
    TooLarge,
    /// No memory for the new number.
    OutOfMemory,
}

impl From<Refused> for ArithFailure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::TooLarge => Self::TooLarge,
            Refused::OutOfMemory => Self::OutOfMemory,
            Refused::Mismatch => Self::Exists,
        }
    }
}

/// Adds or subtracts. A number that has become shorter is filled up with blanks to the length of
/// the value before, as in memcached.
///
/// # Errors
/// [`ArithFailure`].
pub fn arith(
    session: &mut Session,
    hash: Option<KeyHash>,
    what: &Arith<'_>,
) -> Result<Counted, ArithFailure> {
    let clock = session.store().clock();
    let exptime = what.exptime.map(|e| clock.expiry(e));
    let initial = what.initial.map(|(number, e)| (number, clock.expiry(e)));
    let hash = session.store().hash_of(what.key, hash);
    let done = session.modify(hash, what.key, &[], |store, item| {
        let Some(item) = item else {
            let Some((number, expiry)) = initial else {
                return Change::None(Err(ArithFailure::NotFound));
            };
            let value = NewValue::Number { number, width: 0 };
            let new = Replacement {
                value,
                flags: 0,
                expiry: Some(expiry),
                marks: Marks::default(),
                keeps: Marks::default(),
                own_cas: what.own_cas,
                in_place: false,
            };
            return Change::Replace(new, Ok((number, None)));
        };
        // In memcached's order: what can be no number at all has no CAS id that counts.
        let can_be = item.value().whole().is_some_and(|value| !value.is_empty());
        if can_be && what.cas.is_some_and(|cas| cas != item.cas()) {
            return Change::None(Err(ArithFailure::Exists));
        }
        let Some(number) = item.value().whole().and_then(parse) else {
            return Change::None(Err(ArithFailure::NonNumeric));
        };
        let number = match what.decrement {
            true => number.saturating_sub(what.delta),
            false => number.wrapping_add(what.delta),
        };
        let value = NewValue::Number { number, width: item.value().len() };
        let new = Replacement {
            value,
            flags: item.flags(),
            expiry: exptime,
            marks: Marks::default(),
            keeps: Marks::ALL,
            own_cas: what.own_cas,
            in_place: true,
        };
        Change::Replace(new, Ok((number, Some((item.expiry(), store.class_of(&item))))))
    });
    let (result, cas) = done?;
    let (number, before) = result?;
    let (expiry, class) = before.unzip();
    Ok(Counted {
        number,
        cas: cas.unwrap_or(0),
        expiry: expiry.unwrap_or(0),
        created: before.is_none(),
        class,
    })
}

/// The number at the start of a value, as `strtoull` and memcached read it: blanks before it, and
/// anything behind a blank or a NUL after it.
fn parse(value: &[u8]) -> Option<u64> {
    if value.len() > NUMBER_MAX_BYTES {
        return None;
    }
    // As C's `isspace` has it.
    let is_blank = |byte: &u8| byte.is_ascii_whitespace() || *byte == b'\x0b';
    let start = value.iter().position(|byte| !is_blank(byte))?;
    let text = value.get(start..)?;
    let end = text.iter().position(|byte| is_blank(byte) || *byte == 0).unwrap_or(text.len());
    std::str::from_utf8(text.get(..end)?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_as_memcached_reads_them() {
        for (value, number) in [
            (&b"0"[..], Some(0)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"  7", Some(7)),
            (b"+7", Some(7)),
            (b"12 abc", Some(12)),
            (b"5   ", Some(5)),
            (b"5\0", Some(5)),
            (b"5\0 x", Some(5)),
            (b"\x0b5\x0b", Some(5)),
            (b"\0 5", None),
            (b" ", None),
            (b"", None),
            (b"-1", None),
            (b"12abc", None),
            (b"0x10", None),
        ] {
            assert_eq!(parse(value), number, "{:?}", String::from_utf8_lossy(value));
        }
    }
}
