//! Pages given to size classes at the start, once and for all: how a hardware appliance lays out its memory.
//!
//! In: chunk sizes, and how many pages each has. Out: the same, checked. Fails: [`BadSlabPages`].

use super::layout::{CLASSES_MAX, PAGE_BYTES, UNIT_BYTES};
use std::fmt;

/// Size classes with their pages, smallest first. There is at least one, and each has a page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlabPages(Box<[(usize, u32)]>);

/// Why there can be no such classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadSlabPages {
    /// No chunk has this size.
    #[error("{0}: a chunk has a multiple of {UNIT_BYTES} bytes, up to {PAGE_BYTES}")]
    Size(usize),
    /// Not in order, or one twice.
    #[error("{1} behind {0}: sizes rise, and each stands once")]
    Order(usize, usize),
    /// A class without a page.
    #[error("{0}: a class has one page at least")]
    NoPage(usize),
    /// None, or too many.
    #[error("{0} classes: there are 1 to {CLASSES_MAX}")]
    Classes(usize),
}

impl SlabPages {
    /// Classes of these chunk sizes, in bytes, each with so many pages.
    ///
    /// # Errors
    /// [`BadSlabPages`].
    pub fn new(classes: impl IntoIterator<Item = (usize, u32)>) -> Result<Self, BadSlabPages> {
        let classes: Box<[(usize, u32)]> = classes.into_iter().collect();
        if !(1..=CLASSES_MAX).contains(&classes.len()) {
            return Err(BadSlabPages::Classes(classes.len()));
        }
        for &(size, pages) in &classes {
            if !(UNIT_BYTES..=PAGE_BYTES).contains(&size) || !size.is_multiple_of(UNIT_BYTES) {
                return Err(BadSlabPages::Size(size));
            }
            if pages == 0 {
                return Err(BadSlabPages::NoPage(size));
            }
        }
        match classes.windows(2).find(|two| two[0].0 >= two[1].0) {
            Some(two) => Err(BadSlabPages::Order(two[0].0, two[1].0)),
            None => Ok(Self(classes)),
        }
    }

    /// Chunk sizes and their pages, smallest first.
    pub fn classes(&self) -> impl Iterator<Item = (usize, u32)> {
        self.0.iter().copied()
    }

    /// Pages of all classes.
    pub fn pages(&self) -> u64 {
        self.classes().map(|(_, pages)| u64::from(pages)).sum()
    }
}

/// As the flag has it: `64:2,128:8`.
impl fmt::Display for SlabPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, (size, pages)) in self.classes().enumerate() {
            write!(f, "{}{size}:{pages}", if n == 0 { "" } else { "," })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_is_refused() {
        let new = |classes: &[(usize, u32)]| SlabPages::new(classes.iter().copied());
        let good = new(&[(64, 2), (128, 8), (PAGE_BYTES, 1)]).unwrap();
        assert_eq!((good.to_string(), good.pages()), ("64:2,128:8,2097152:1".to_owned(), 11));
        for (classes, why) in [
            (&[][..], BadSlabPages::Classes(0)),
            (&[(0, 1)], BadSlabPages::Size(0)),
            (&[(32, 1)], BadSlabPages::Size(32)),
            (&[(100, 1)], BadSlabPages::Size(100)),
            (&[(PAGE_BYTES + 64, 1)], BadSlabPages::Size(PAGE_BYTES + 64)),
            (&[(64, 0)], BadSlabPages::NoPage(64)),
            (&[(128, 1), (64, 1)], BadSlabPages::Order(128, 64)),
            (&[(64, 1), (64, 1)], BadSlabPages::Order(64, 64)),
        ] {
            assert_eq!(new(classes), Err(why));
        }
        let many: Vec<_> = (1..=CLASSES_MAX + 1).map(|n| (n * 64, 1)).collect();
        assert_eq!(new(&many), Err(BadSlabPages::Classes(CLASSES_MAX + 1)));
        assert!(new(&many[1..]).is_ok());
    }
}
