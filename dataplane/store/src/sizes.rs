//! Chunk sizes: what a slab page is cut into.
//!
//! In: the growth factor, the space in the smallest chunk and the item limit. Out: the size classes, smallest first,
//! and the arithmetic from a place in a page to a chunk's number, without a division. Fails: `None` for a
//! growth factor that makes too many classes.

use super::layout::{CLASSES_MAX, HEADER_BYTES, PAGE_UNITS, UNIT_BYTES};
use super::slab_pages::SlabPages;

/// One chunk size.
#[derive(Debug, Clone, Copy)]
pub(super) struct SizeClass {
    pub(super) units: u32,
    pub(super) per_page: u32,
    /// 2^32 / units, rounded up: divides exactly whatever lies in a page.
    inverse: u64,
}

impl SizeClass {
    /// Chunks of so many units, of which a page has one at least.
    fn of(units: u32) -> Self {
        let inverse = (1u64 << 32).div_ceil(u64::from(units));
        Self { units, per_page: PAGE_UNITS / units, inverse }
    }

    pub(super) fn bytes(self) -> usize {
        self.units as usize * UNIT_BYTES
    }

    /// Which chunk of its page starts at `unit`, if one does.
    #[inline]
    pub(super) fn chunk_at(self, unit: u32) -> Option<u32> {
        let n = u32::try_from((u64::from(unit) * self.inverse) >> 32).ok()?;
        (n.wrapping_mul(self.units) == unit).then_some(n)
    }
}

/// The chunk sizes: from one with `space_min` bytes beside the header up to `item_max` bytes by
/// `growth` at most, or a unit, each stretched as far as it goes without losing a chunk a page.
/// `None` when there would be too many.
pub(super) fn size_classes(
    growth: f64,
    space_min: usize,
    item_max: usize,
) -> Option<Box<[SizeClass]>> {
    let top = item_max.div_ceil(UNIT_BYTES).clamp(1, PAGE_UNITS as usize);
    let mut classes = Vec::new();
    let mut wanted = HEADER_BYTES.saturating_add(space_min).div_ceil(UNIT_BYTES).min(top);
    loop {
        let per_page = PAGE_UNITS / u32::try_from(wanted).ok()?;
        let units = PAGE_UNITS / per_page;
        classes.push(SizeClass::of(units));
        let units = units as usize;
        if units >= top {
            return Some(classes.into());
        }
        if classes.len() == CLASSES_MAX {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "at most 2^15 units times a growth factor, and a float cast saturates"
        )]
        let grown = (units as f64 * growth) as usize;
        wanted = grown.max(units + 1).min(top);
    }
}

/// The chunk sizes that were asked for, as they are.
pub(super) fn given_classes(slab_pages: &SlabPages) -> Box<[SizeClass]> {
    let units = slab_pages.classes().map(|(bytes, _)| bytes / UNIT_BYTES);
    units.map(|units| SizeClass::of(u32::try_from(units).unwrap_or(PAGE_UNITS))).collect()
}

/// The number of the smallest class whose chunks have as many units, up to the largest.
pub(super) fn class_by_units(sizes: &[SizeClass]) -> Vec<u8> {
    let mut classes = Vec::new();
    for (n, size) in (0..=u8::MAX).zip(sizes) {
        classes.resize(size.units as usize + 1, n);
    }
    classes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_grow_fit_and_waste_little() {
        for growth in [1.05, 1.25, 2.0, 10.0] {
            let sizes = size_classes(growth, 0, 1 << 20).unwrap();
            assert_eq!((sizes[0].bytes(), sizes[sizes.len() - 1].bytes()), (64, 1 << 20));
            for s in &sizes {
                assert!(s.per_page * s.units <= PAGE_UNITS);
                assert!((s.per_page + 1) * s.units > PAGE_UNITS, "no room for one more");
                for unit in 0..PAGE_UNITS {
                    let exact = unit.is_multiple_of(s.units).then_some(unit / s.units);
                    assert_eq!(s.chunk_at(unit), exact);
                }
            }
            assert!(sizes.windows(2).all(|w| w[0].units < w[1].units));
        }
        let powers = size_classes(2.0, 0, 1 << 20).unwrap();
        assert!(powers.iter().enumerate().all(|(i, s)| s.units == 1 << i));
        for (space, smallest) in [(32, 64), (33, 128), (480, 512), (usize::MAX, 1 << 20)] {
            assert_eq!(size_classes(1.25, space, 1 << 20).unwrap()[0].bytes(), smallest);
        }
        assert!(size_classes(1.0001, 0, 2 << 20).is_none());
    }
}
