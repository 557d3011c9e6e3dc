//! Room on a device for blocks that stay, of all grids together.
//!
//! A grid whose blocks wait for the host must run whole: what does not fit waits for a block to end,
//! and none does. In: blocks, and how many of that kernel one multiprocessor runs. Out: a
//! [`Reserved`] share, given back on drop. A part is kept free, so that kernels that come and go
//! always find a multiprocessor free for a block. Fails when the rest is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Shares of a multiprocessor, so that kernels of any number of blocks add up.
const WHOLE: u64 = 1 << 20;

/// A device's multiprocessors.
#[derive(Debug)]
pub(super) struct Residency {
    capacity: u64,
    used: AtomicU64,
}

/// A share of them.
#[derive(Debug)]
pub(super) struct Reserved {
    residency: Arc<Residency>,
    share: u64,
}

impl Residency {
    /// Seven eighths of so many multiprocessors.
    pub(super) fn new(multiprocessors: u32) -> Arc<Self> {
        let capacity = u64::from(multiprocessors) * WHOLE / 8 * 7;
        Arc::new(Self { capacity, used: AtomicU64::new(0) })
    }

    /// Blocks that still fit, `per_multiprocessor` of which one multiprocessor runs.
    pub(super) fn room(&self, per_multiprocessor: u32) -> u32 {
        let free = self.capacity.saturating_sub(self.used.load(Ordering::Relaxed));
        u32::try_from(free * u64::from(per_multiprocessor) / WHOLE).unwrap_or(u32::MAX)
    }

    /// Room for `blocks` blocks, or what there is.
    ///
    /// # Errors
    /// Blocks that still fit: fewer.
    pub(super) fn reserve(
        self: &Arc<Self>,
        blocks: u32,
        per_multiprocessor: u32,
    ) -> Result<Reserved, u32> {
        if per_multiprocessor == 0 {
            return Err(0);
        }
        let share = (u64::from(blocks) * WHOLE).div_ceil(u64::from(per_multiprocessor));
        let take = |used: u64| Some(used + share).filter(|sum| *sum <= self.capacity);
        match self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Ok(Reserved { residency: Arc::clone(self), share }),
            Err(_) => Err(self.room(per_multiprocessor)),
        }
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.residency.used.fetch_sub(self.share, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids_of_different_kernels_share_one_device() {
        let device = Residency::new(132);
        assert_eq!((device.room(4), device.room(5)), (462, 577));
        let first = device.reserve(300, 4).unwrap();
        assert_eq!(device.reserve(163, 4).unwrap_err(), 162);
        let second = device.reserve(202, 5).unwrap();
        assert_eq!(device.room(4), 0);
        drop(first);
        assert_eq!(device.room(4), 300);
        drop(second);
        assert_eq!((device.room(4), device.reserve(1, 0).unwrap_err()), (462, 0));
    }

    #[test]
    fn the_smallest_device_has_room_for_two_blocks() {
        assert_eq!(Residency::new(1).room(4), 3);
    }
}
