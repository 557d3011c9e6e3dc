//! What keys are read by, as far as a client knows.
//!
//! In: what came with replies. Out: what is known of a key. Bounded: with one key too many all are forgotten, and
//! a get brings each again. Nothing fails.

use std::collections::HashMap;

/// What is known of keys.
#[derive(Debug)]
pub struct Names<N> {
    table: HashMap<Box<[u8]>, N>,
    max: usize,
}

impl<N: Copy> Names<N> {
    /// Of at most so many keys, one at least.
    pub fn new(max: usize) -> Self {
        Self { table: HashMap::new(), max: max.max(1) }
    }

    /// A key's.
    pub fn of(&self, key: &[u8]) -> Option<N> {
        self.table.get(key).copied()
    }

    /// Keeps what came with a reply: `None`, if that has none.
    pub fn keep(&mut self, key: &[u8], name: Option<N>) {
        match (name, self.table.get_mut(key)) {
            (Some(name), Some(old)) => *old = name,
            (Some(name), None) => {
                if self.table.len() >= self.max {
                    self.table.clear();
                }
                self.table.insert(key.into(), name);
            }
            (None, _) => {
                self.table.remove(key);
            }
        }
    }

    /// Forgets all: the server was started again, or may have been.
    pub fn clear(&mut self) {
        self.table.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_are_kept_than_may_be() {
        let mut names = Names::new(2);
        for key in [b"a", b"b", b"a"] {
            names.keep(key, Some(7));
        }
        assert_eq!([b"a", b"b"].map(|key| names.of(key)), [Some(7); 2]);
        names.keep(b"c", Some(7));
        assert_eq!([b"a", b"b", b"c"].map(|key| names.of(key)), [None, None, Some(7)]);
        names.keep(b"c", None);
        assert_eq!(names.of(b"c"), None);
    }
}
