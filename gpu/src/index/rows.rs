//! What the device has in its rows, as the host decides it: which key has which way.
//!
//! In: hashes. Out: the way that each has, or may have. The updater alone has it, so nothing is locked here
//! or on the device: a way is named at most once in a turn, whose changes are one launch. Ways of a set
//! are given out in turns. Never fails; a set all of whose ways were named in this turn has none to give.

use super::filter::{Filter, signature};
use super::source::Found;
use crate::layout::{ROW_TEXT_MAX, RowFacts};
use crate::params::WAYS;
use crate::tables::Row;
use std::io::Write;
use std::sync::Arc;

/// No key.
const EMPTY: u64 = 0;
/// Turns for which a way stays its key's, however many others want it: most of a second under load. Else keys
/// of a set that is too small for them would drive each other out, turn by turn, and be rejected meanwhile.
const TURNS_KEPT: u16 = 1 << 11;

/// What an updater of rows has beside what others have.
pub(super) struct Rows {
    pub(super) filter: Arc<Filter>,
    pub(super) ways: Ways,
    /// Hashes that were queued before the present epoch and have not been taken.
    pub(super) left: usize,
    /// The epoch before the present one, until it is applied.
    pub(super) applying: Option<u64>,
}

impl Rows {
    pub(super) fn new(filter: &Arc<Filter>, n_sets: u32) -> Self {
        let (filter, ways) = (Arc::clone(filter), Ways::new(n_sets));
        Self { filter, ways, left: 0, applying: None }
    }
}

/// Which key has which way.
#[derive(Debug)]
pub(super) struct Ways {
    n_sets: u32,
    /// Of each way the hash of its key, or [`EMPTY`].
    hashes: Box<[u64]>,
    turns: Box<[Turns]>,
    /// The number of the present one. It wraps around, which costs a way a turn, or keeps it for a few.
    turn: u16,
}

/// Turns of a way.
#[derive(Debug, Clone, Copy, Default)]
struct Turns {
    /// In which it was named last.
    named: u16,
    /// In which it became its key's.
    given: u16,
}

/// A way that a key gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Placed {
    pub(super) way: u32,
    /// It was the key's already.
    pub(super) own: bool,
    /// The hash of the key that loses it.
    pub(super) evicted: Option<u64>,
}

impl Ways {
    pub(super) fn new(n_sets: u32) -> Self {
        let ways = n_sets as usize * WAYS;
        let turns = vec![Turns::default(); ways].into();
        Self { n_sets, hashes: vec![EMPTY; ways].into(), turns, turn: 0 }
    }

    /// Ways in all.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.hashes.len()).unwrap_or(0)
    }

    /// A turn begins: all ways may be named again.
    pub(super) fn begin_turn(&mut self) {
        self.turn = self.turn.wrapping_add(1);
    }

    fn first(&self, hash: u64) -> usize {
        // The product of two numbers of 32 bits, without the low half, is less than the second.
        let set = ((hash >> 32) * u64::from(self.n_sets)) >> 32;
        usize::try_from(set).unwrap_or(0) * WAYS
    }

    fn ways(&self, hash: u64) -> std::ops::Range<usize> {
        let first = self.first(hash);
        first..first + WAYS
    }

    fn at(&self, hash: u64) -> Option<usize> {
        let held = |way: &usize| self.hashes.get(*way) == Some(&hash);
        self.ways(hash).find(held).filter(|_| hash != EMPTY)
    }

    /// Has the memory that says where the keys of these hashes are on its way to the cache.
    pub(super) fn fetch(&self, hashes: &[u64]) {
        // Loads that do not depend on each other, so that they wait together.
        let first = |hash: &u64| self.hashes.get(self.first(*hash)).copied().unwrap_or(EMPTY);
        let last =
            |hash: &u64| self.hashes.get(self.first(*hash) + WAYS - 1).copied().unwrap_or(EMPTY);
        let all = hashes.iter().fold(0, |all, hash| all ^ first(hash) ^ last(hash));
        std::hint::black_box(all);
    }

    /// Whether the key of this hash has a way.
    pub(super) fn has(&self, hash: u64) -> bool {
        self.at(hash).is_some()
    }

    /// A way of its set for a key that has none: an empty one, or the one that has been its key's for longest.
    fn vacant(&self, hash: u64) -> Option<usize> {
        let turns = |way: &usize| self.turns.get(*way).copied().unwrap_or_default();
        let age = |way: &usize| self.turn.wrapping_sub(turns(way).given);
        let empty = |way: &usize| self.hashes.get(*way) == Some(&EMPTY);
        let mut open = self.ways(hash).filter(|way| turns(way).named != self.turn);
        let found = open.clone().find(empty);
        found.or_else(|| open.by_ref().max_by_key(age).filter(|way| age(way) >= TURNS_KEPT))
    }

    /// Whether a key that has no way would get one.
    pub(super) fn has_room(&self, hash: u64) -> bool {
        hash != EMPTY && self.vacant(hash).is_some()
    }

    /// The way of the key of this hash: its own, or one that is vacant. Names it.
    pub(super) fn place(&mut self, hash: u64) -> Option<Placed> {
        if hash == EMPTY {
            return None;
        }
        let way = self.at(hash).or_else(|| self.vacant(hash))?;
        let (held, turns) = (self.hashes.get_mut(way)?, self.turns.get_mut(way)?);
        let before = std::mem::replace(held, hash);
        turns.named = self.turn;
        if before != hash {
            turns.given = self.turn;
        }
        let evicted = (before != EMPTY && before != hash).then_some(before);
        Some(Placed { way: u32::try_from(way).ok()?, own: before == hash, evicted })
    }

    /// Takes the key of this hash out. Names its way.
    pub(super) fn remove(&mut self, hash: u64) -> Option<u32> {
        let way = self.at(hash)?;
        let (held, turns) = (self.hashes.get_mut(way)?, self.turns.get_mut(way)?);
        (*held, turns.named) = (EMPTY, self.turn);
        u32::try_from(way).ok()
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.hashes.fill(EMPTY);
    }
}

/// The row of an item: what a `get` of its key replies. `None`: it does not fit one.
pub(super) fn row_of(hash: u64, found: &Found<'_>) -> Option<Row> {
    let mut text = [0; ROW_TEXT_MAX];
    // A value in several pieces is none here.
    if usize::try_from(found.value_len).ok()? != found.value.len() {
        return None;
    }
    let mut rest = &mut text[..];
    for piece in [b"VALUE ", found.key] {
        rest.write_all(piece).ok()?;
    }
    write!(rest, " {} {}\r\n", found.flags, found.value_len).ok()?;
    for piece in [found.value, b"\r\nEND\r\n"] {
        rest.write_all(piece).ok()?;
    }
    let len = ROW_TEXT_MAX - rest.len();
    let facts = RowFacts {
        text_len: u16::try_from(len).ok()?,
        value_len: u16::try_from(found.value.len()).ok()?,
        key_len: u8::try_from(found.key.len()).ok()?,
        item_class: found.class,
        sum: sum_of(&text),
        expiry: found.expiry,
        signature: signature(hash),
    };
    Some(Row { facts, text })
}

/// The ones-complement sum of the text, folded. The zeros behind it add nothing.
fn sum_of(text: &[u8; ROW_TEXT_MAX]) -> u16 {
    let (pairs, _) = text.as_chunks::<2>();
    let sum: u32 = pairs.iter().map(|pair| u32::from(u16::from_be_bytes(*pair))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap_or(u16::MAX)
}

/// Bytes of the row that its text fills, in whole pieces of 16.
pub(super) fn row_bytes(row: &Row) -> usize {
    (size_of::<RowFacts>() + usize::from(row.facts.text_len)).next_multiple_of(16)
}

/// The row's bytes, as kernels read them.
pub(super) fn bytes_of(row: &Row) -> [u8; size_of::<Row>()] {
    let RowFacts { text_len, value_len, key_len, item_class, sum, expiry, signature } = row.facts;
    let mut bytes = [0; size_of::<Row>()];
    let mut rest = &mut bytes[..];
    let mut put = |piece: &[u8]| {
        // The pieces are the row's fields, so that they fill it.
        let _ = rest.write_all(piece);
    };
    for half in [text_len, value_len, u16::from_le_bytes([key_len, item_class]), sum] {
        put(&half.to_le_bytes());
    }
    put(&expiry.to_le_bytes());
    put(&signature.to_le_bytes());
    put(&row.text);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A hash of this set of two, and of this number.
    fn hash(set: u64, n: u64) -> u64 {
        set << 63 | n
    }

    #[test]
    fn a_key_keeps_its_way_and_others_take_the_oldest() {
        let mut ways = Ways::new(2);
        for n in 1..=16 {
            ways.begin_turn();
            let placed = ways.place(hash(1, n)).unwrap();
            assert_eq!(
                placed,
                Placed { way: 15 + u32::try_from(n).unwrap(), own: false, evicted: None }
            );
        }
        ways.begin_turn();
        assert_eq!(ways.place(hash(1, 3)), Some(Placed { way: 18, own: true, evicted: None }));
        assert_eq!(
            (ways.has_room(hash(1, 99)), ways.place(hash(1, 99))),
            (false, None),
            "all young"
        );
        (0..TURNS_KEPT).for_each(|_| ways.begin_turn());
        // What changes now is as old as before.
        assert_eq!(ways.place(hash(1, 1)), Some(Placed { way: 16, own: true, evicted: None }));
        ways.begin_turn();
        assert!(ways.has_room(hash(1, 99)));
        let evicted = Some(hash(1, 1));
        assert_eq!(ways.place(hash(1, 99)), Some(Placed { way: 16, own: false, evicted }));
        assert!(!ways.has(hash(1, 1)) && ways.has(hash(1, 99)) && !ways.has(hash(0, 3)));
        assert_eq!(ways.remove(hash(1, 2)), Some(17));
        assert_eq!(ways.remove(hash(1, 2)), None);
        ways.begin_turn();
        assert_eq!(ways.place(hash(1, 100)), Some(Placed { way: 17, own: false, evicted: None }));
        ways.clear();
        assert!(!ways.has(hash(1, 100)));
    }

    #[test]
    fn a_way_is_named_once_in_a_turn() {
        let mut ways = Ways::new(1);
        ways.begin_turn();
        for n in 1..=16 {
            assert!(ways.place(n).is_some());
        }
        assert_eq!(ways.remove(5), Some(4));
        assert_eq!(ways.place(17), None);
        ways.begin_turn();
        assert_eq!(ways.place(17), Some(Placed { way: 4, own: false, evicted: None }));
        assert_eq!(ways.place(0), None, "that would be no key");
    }

    #[test]
    fn a_row_is_the_reply_to_a_get() {
        let found =
            Found { flags: 70_000, value_len: 5, key: b"key", value: b"value", ..Found::default() };
        let row = row_of(1 << 32, &found).unwrap();
        let text = b"VALUE key 70000 5\r\nvalue\r\nEND\r\n";
        assert_eq!(&row.text[..text.len()], text);
        assert_eq!(usize::from(row.facts.text_len), text.len());
        assert_eq!(row.facts.signature, 1);
        assert_eq!(row_bytes(&row), 48);
        let bytes = bytes_of(&row);
        assert_eq!(bytes.len(), size_of::<Row>());
        assert_eq!((bytes[0], bytes[2], bytes[4]), (31, 5, 3));
        let sum =
            text.chunks(2).map(|p| u32::from(p[0]) << 8 | p.get(1).map_or(0, |b| u32::from(*b)));
        assert_eq!(u32::from(row.facts.sum), sum.sum::<u32>() % 0xffff);
    }

    #[test]
    fn what_does_not_fit_has_no_row() {
        let value = [b'v'; ROW_TEXT_MAX];
        let around = "VALUE key 0 210\r\n".len() + "\r\nEND\r\n".len();
        let of = |n: usize, told: usize| {
            let value_len = u32::try_from(told).unwrap();
            row_of(1, &Found { value_len, key: b"key", value: &value[..n], ..Found::default() })
        };
        assert!(of(ROW_TEXT_MAX - around, ROW_TEXT_MAX - around).is_some());
        assert!(of(ROW_TEXT_MAX - around + 1, ROW_TEXT_MAX - around + 1).is_none());
        assert!(of(0, 5000).is_none(), "a value in pieces");
    }
}
