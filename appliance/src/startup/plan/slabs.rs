//! Size classes that have their pages from the start.
//!
//! In: `--slab-pages`, or `--profile` and memory to be divided. Out: the classes, or none where pages go to
//! classes as these need them. Fails: [`PlanError`].

use super::PlanError;
use crate::startup::flags::{Profile, ServeFlags};
use driver_shim::mapping::HUGE_PAGE_BYTES;
use store::SlabPages;

/// A slab page, and the largest chunk.
const PAGE_BYTES: usize = store::PAGE_BYTES;
const _: () = assert!(PAGE_BYTES == HUGE_PAGE_BYTES);

/// The smallest chunk.
const CHUNK_LEAST_BYTES: usize = 64;

/// Bytes of the pages of all classes.
pub(super) fn bytes(slab_pages: &SlabPages) -> u64 {
    slab_pages.pages().saturating_mul(PAGE_BYTES as u64)
}

pub(super) fn slab_pages(flags: &ServeFlags) -> Result<Option<SlabPages>, PlanError> {
    let pages = flags.memory.saturating_mul(1 << 20) / PAGE_BYTES as u64;
    let given = flags.slab_pages.as_ref();
    if let Some(given) = given.filter(|given| given.pages() > pages) {
        return Err(PlanError::SlabPages { need: given.pages(), memory_mb: flags.memory });
    }
    let Some(Profile::Fpga) = flags.profile else { return Ok(given.cloned()) };
    if given.is_none() && flags.slab_growth_factor.to_bits() != 2f64.to_bits() {
        return Err(PlanError::ProfileGrowth(flags.slab_growth_factor));
    }
    match given {
        None => by_powers_of_two(flags, pages).map(Some),
        Some(given) => match given.classes().find(|(size, _)| !size.is_power_of_two()) {
            None => Ok(Some(given.clone())),
            Some((size, _)) => Err(PlanError::ProfileSize(size)),
        },
    }
}

/// Equal parts for each power of two up to the largest item; what is left over goes to the smallest.
fn by_powers_of_two(flags: &ServeFlags, pages: u64) -> Result<SlabPages, PlanError> {
    let largest = usize::try_from(flags.max_item_size).unwrap_or(PAGE_BYTES).min(PAGE_BYTES);
    let sizes = std::iter::successors(Some(CHUNK_LEAST_BYTES), |size| {
        (*size < largest).then_some(2 * size)
    });
    let classes = sizes.clone().count() as u64;
    let share = |n: u64| pages / classes + u64::from(n < pages % classes);
    let all = sizes.zip(0..).map(|(size, n)| (size, u32::try_from(share(n)).unwrap_or(u32::MAX)));
    SlabPages::new(all).map_err(|_| PlanError::ProfileMemory {
        memory_mb: flags.memory,
        classes,
        least_mb: (classes * PAGE_BYTES as u64) >> 20,
    })
}
