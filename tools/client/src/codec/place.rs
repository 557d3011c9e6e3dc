//! Places: where an item lies in the memory file, as a word of a reply's says it.
//!
//! In: what stands behind the flag `p`. Out: a [`Place`]. Fails: what no server writes.

use super::Malformed;
use base::memory_file::Place;

/// A hexadecimal number of at most so many digits, without a sign.
fn hex(word: &[u8], digits_max: usize) -> Result<u64, Malformed> {
    let is_hex = word.iter().all(u8::is_ascii_hexdigit) && word.len() <= digits_max;
    let text = std::str::from_utf8(word).ok().filter(|_| is_hex).ok_or(Malformed)?;
    u64::from_str_radix(text, 16).map_err(|_| Malformed)
}

/// Of what stands behind the flag.
pub(super) fn parse(word: &[u8]) -> Result<Place, Malformed> {
    let mut numbers = word.split(|b| *b == b',');
    let mut next = |digits| hex(numbers.next().ok_or(Malformed)?, digits);
    let (generation, offset) = (next(16)?, next(16)?);
    let left = u32::try_from(next(8)?).map_err(|_| Malformed)?;
    let number = next(16)?;
    match numbers.next() {
        None if generation != 0 => Ok(Place { generation, offset, left, number }),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_four_numbers() {
        let place = Place { generation: u64::MAX, offset: 0x20_0040, left: 0, number: 0x1f };
        assert_eq!(parse(b"ffffffffffffffff,200040,0,1f"), Ok(place));
        for bad in [
            &b""[..],
            b"1,2,3",
            b"1,2,3,4,5",
            b"1,2,,4",
            b"0,2,3,4",
            b"1,2,3,+4",
            b"1,2,3,-4",
            b"1,2,100000000,4",
            b"1,2,3,10000000000000000",
            b"1,2,3,g",
        ] {
            assert_eq!(parse(bad), Err(Malformed), "{}", bad.escape_ascii());
        }
    }
}
