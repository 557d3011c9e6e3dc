//! What a client knows of keys: their stags, and what follows from the bytes that a READ got.
//!
//! ```text
//! one version, this key ──► a value              several versions, another key's,
//! there is none         ──► a miss                 longer for a second time        ──► ask over TCP
//! longer                ──► READ once more, as long as it says
//! ```
//!
//! In: a key and bytes. Out: what to do. The policy of every client here; docs/rdma.md says why. A stag's length follows
//! the item's: up when it has grown, down when it needs less than half. Nothing fails.

use crate::codec::Stag;
use crate::image::{self, Found, HEAD_BYTES, Item, TAIL_BYTES, Unfit};
use crate::names::Names;

/// What to do with what a READ got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next<'a> {
    /// It is the item.
    Hit(Item<'a>),
    /// There is none.
    Miss,
    /// It has grown: read again by this.
    Again(Stag),
    /// Ask over TCP.
    Ask(Why),
}

/// Why a READ does not answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Bytes of several versions.
    Torn,
    /// It has grown once more, or beyond what is read at once.
    Longer,
    /// Another key's, or bytes of no server's.
    Bad,
}

/// Stags of keys.
#[derive(Debug)]
pub struct Stags(Names<Stag>);

impl Stags {
    /// Of at most so many keys, one at least. One more, and all are forgotten: a get brings each again.
    pub fn new(max: usize) -> Self {
        Self(Names::new(max))
    }

    /// A key's.
    pub fn of(&self, key: &[u8]) -> Option<Stag> {
        self.0.of(key)
    }

    /// Keeps what came with a reply: `None`, if that has none.
    pub fn keep(&mut self, key: &[u8], stag: Option<Stag>) {
        self.0.keep(key, stag);
    }

    /// Forgets all: the server was started again, or may have been.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// What follows from the bytes that a READ by this stag got. `is_second`: it followed [`Next::Again`].
    pub fn judge<'a>(
        &mut self,
        key: &[u8],
        stag: Stag,
        is_second: bool,
        bytes: &'a [u8],
    ) -> Next<'a> {
        let mut sized = |len: usize| {
            let stag = Stag { len: u32::try_from(len).unwrap_or(u32::MAX), ..stag };
            self.keep(key, Some(stag));
            stag
        };
        match image::open(bytes, key) {
            Ok(Found::Item(item)) => {
                let exact = HEAD_BYTES + key.len() + item.value.len() + TAIL_BYTES;
                if exact < bytes.len() / 2 {
                    sized(exact);
                }
                Next::Hit(item)
            }
            Ok(Found::Miss) => Next::Miss,
            Ok(Found::Longer(len)) => match (sized(len), is_second) {
                (stag, false) => Next::Again(stag),
                (_, true) => Next::Ask(Why::Longer),
            },
            Ok(Found::TooLong) => {
                self.keep(key, None);
                Next::Ask(Why::Longer)
            }
            Err(Unfit::Key | Unfit::Malformed) => {
                self.keep(key, None);
                Next::Ask(Why::Bad)
            }
            Err(Unfit::Torn | Unfit::Mixed) => Next::Ask(Why::Torn),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image::tests::{Sent, sent};

    const STAG: Stag = Stag { id: 77, len: 1000 };

    #[test]
    fn a_length_follows_the_items() {
        let mut stags = Stags::new(9);
        stags.keep(b"sun", Some(STAG));
        let mut after = |bytes: &[u8], is_second| {
            let stag = stags.of(b"sun").unwrap();
            let next = match stags.judge(b"sun", stag, is_second, bytes) {
                Next::Hit(item) => Ok(item.value.len()),
                other => Err(format!("{other:?}")),
            };
            (next, stags.of(b"sun").map(|stag| stag.len))
        };
        // Half as long is long enough to leave it at that.
        assert_eq!(after(&sent(vec![1; 457], 1).bytes(1000), false), (Ok(457), Some(1000)));
        assert_eq!(after(&sent(vec![1; 456], 1).bytes(1000), false), (Ok(456), Some(499)));
        let longer = |len| Sent { status: 2, ..sent(vec![1; len], 5) };
        let (next, len) = after(&longer(1957).bytes(499), false);
        assert_eq!((next.unwrap_err().starts_with("Again"), len), (true, Some(2000)));
        let (next, len) = after(&longer(2957).bytes(2000), true);
        assert_eq!((next.unwrap_err(), len), ("Ask(Longer)".to_owned(), Some(3000)));
        let stranger = Sent { key: b"moo".to_vec(), ..sent(vec![1; 5], 4) };
        assert_eq!(after(&stranger.bytes(3000), false), (Err("Ask(Bad)".to_owned()), None));
    }
}
