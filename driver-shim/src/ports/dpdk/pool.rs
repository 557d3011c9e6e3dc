//! The region whose free slots wait in a DPDK mempool, because drivers take buffers by themselves.
//!
//! In: a started [`Eal`]. Out: a [`Region`] like any other. The mempool's buffers are the
//! region's slots, in order; free ones wait in its ring and in small caches of registered
//! threads. Can fail: no memory, for the slots or for DPDK's headers of them.
#![allow(unsafe_code)]

use super::eal::{Eal, EalShared, PoolPtr, memory_mb_for};
use super::error::{DpdkError, check};
use crate::mapping::{HUGE_PAGE_BYTES, Mapping, MemoryKind, Pages};
use crate::region::Region;
use crate::slots::{SLOT_BYTES, SlotPool};
use dpdk_ffi as ffi;
use std::ptr::NonNull;
use std::sync::Arc;

const _: () = assert!(SLOT_BYTES == ffi::SLOT_BYTES);

/// Free slots that a registered thread keeps at most; DPDK lets it grow to half as many again.
/// Four bursts: one trip to the shared ring moves many.
const CACHE_SLOTS: u32 = 256;
/// A small region must not vanish into caches: at most one part in this many for each thread.
const CACHE_SHARE: u32 = 32;

/// Page size given to DPDK for memory that is not on reserved huge pages.
const SMALL_PAGE_BYTES: u64 = 4096;

/// Makes a region of `slots` slots that DPDK ports can use, on the NUMA node if one is named.
///
/// # Errors
/// [`DpdkError::Region`], [`DpdkError::Pool`].
pub fn region(eal: &Eal, slots: u32, pages: Pages, node: Option<u32>) -> Result<Region, DpdkError> {
    Region::with_driver(slots, pages, node, |memory, slots| {
        Ok(Box::new(MempoolHome::new(&eal.shared, memory, slots, node)?) as Box<dyn SlotPool>)
    })
}

/// The pool of a region made by [`region`]. Lives as long as any handle on the region.
pub(super) fn pool_of(eal: &EalShared, region: &Region) -> Option<PoolPtr> {
    let base = region.base().as_ptr().addr();
    eal.open.lock().pools.iter().find(|(b, _)| *b == base).map(|&(_, pool)| pool)
}

struct MempoolHome {
    pool: PoolPtr,
    eal: Arc<EalShared>,
}

impl MempoolHome {
    fn new(
        eal: &Arc<EalShared>,
        memory: &Mapping,
        slots: u32,
        node: Option<u32>,
    ) -> Result<Self, DpdkError> {
        let page = match memory.kind() {
            MemoryKind::Huge => HUGE_PAGE_BYTES as u64,
            _ => SMALL_PAGE_BYTES,
        };
        let cache = (slots / CACHE_SHARE).min(CACHE_SLOTS);
        let mut open = eal.open.lock();
        let mut pool = std::ptr::null_mut();
        // SAFETY:
        // - the environment is up: `eal` says so;
        // - the mapping is 2 MB-aligned, the caller's alone, and outlives the pool (see
        //   `Region::with_driver`), which frees the pool when it drops.
        let rc = unsafe {
            ffi::gn_pool_create(
                memory.base().as_ptr(),
                memory.len() as u64,
                page,
                slots,
                cache,
                // In range: nodes are few.
                node.filter(|node| eal.nodes.contains(node))
                    .and_then(|node| i32::try_from(node).ok())
                    .unwrap_or(ffi::GN_ANY_NODE),
                &raw mut pool,
            )
        };
        let failed = |source| DpdkError::Pool { slots, source, need_mb: memory_mb_for(slots) };
        check(rc).map_err(failed)?;
        let pool = NonNull::new(pool)
            .map(PoolPtr)
            .ok_or_else(|| failed(std::io::Error::from_raw_os_error(libc::EFAULT)))?;
        open.pools.push((memory.base().as_ptr().addr(), pool));
        Ok(Self { pool, eal: Arc::clone(eal) })
    }
}

// SAFETY:
// - the pool's buffers are the region's slots, one each (gn_pool_create), and a mempool gives a
//   buffer to one taker at a time;
// - `is_whole` counts only buffers that no thread can be at work on;
// - dropping it frees the pool, and with that takes the memory from devices and DPDK.
unsafe impl SlotPool for MempoolHome {
    fn take(&self) -> Option<u32> {
        // SAFETY: the pool lives until `self` drops.
        let slot = unsafe { ffi::gn_pool_take(self.pool.0.as_ptr()) };
        (slot != ffi::NO_SLOT).then_some(slot)
    }

    unsafe fn give(&self, slot: u32) {
        // SAFETY: the pool lives; the slot is one of its and the caller's, who gives it up.
        unsafe { ffi::gn_pool_give(self.pool.0.as_ptr(), slot) };
    }

    fn available(&self) -> usize {
        // SAFETY: the pool lives until `self` drops.
        unsafe { ffi::gn_pool_available(self.pool.0.as_ptr()) as usize }
    }

    fn is_whole(&self) -> bool {
        // SAFETY: the pool lives until `self` drops.
        unsafe { ffi::gn_pool_is_whole(self.pool.0.as_ptr()) == 1 }
    }
}

impl Drop for MempoolHome {
    fn drop(&mut self) {
        let mut open = self.eal.open.lock();
        open.pools.retain(|(_, pool)| pool.0 != self.pool.0);
        // SAFETY: a region drops its pool only when every slot is back in it; ports hold a handle
        // on their region, so none uses the pool.
        unsafe { ffi::gn_pool_free(self.pool.0.as_ptr()) };
    }
}
