//! A device's fault, and what follows for its memory; and calls that must not be made beside a kernel
//! that stays.
//!
//! A kernel that hangs cannot be ended from outside, and may write to its buffers for as
//! long as the process lives. So a fault, once there, is for ever: nothing that was taken or mapped
//! is given back any more, whatever owns it. That is the whole quarantine.
//!
//! The driver may hold calls that map, unmap, take or free memory until every kernel has ended. So
//! here each of them stops the resident grid first, whichever thread calls, and none can be made beside it.
#![allow(unsafe_code)]

use crate::card::{Card, CardError, CardFacts, Kernel, Stream};
use crate::params::DevAddr;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock, Weak};

/// Why a device is not used any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum Fault {
    /// The device, or its driver, says so.
    #[error(transparent)]
    Card(#[from] CardError),
    #[error("a batch of {requests} requests was not done after {waited_us} µs")]
    Late { requests: usize, waited_us: u64 },
    #[error("{changes} changes of the index were not done after {waited_us} µs")]
    UpdateLate { changes: usize, waited_us: u64 },
    /// What the device said of a batch is not what the CPU says.
    #[error("the GPU and the CPU read a request differently")]
    Wrong,
    #[error("a kernel went on running when it was stopped")]
    Unstoppable,
}

/// A kernel that stays on the device.
pub(super) trait Resident: std::fmt::Debug + Send + Sync {
    /// Stops the kernel, which does not run again before the result is dropped.
    ///
    /// # Errors
    /// [`Fault::Unstoppable`], or what the device says; the kernel may still run.
    fn pause(&self) -> Result<Box<dyn Paused + '_>, Fault>;
}

/// Holds a [`Resident`] kernel stopped.
pub(super) trait Paused {}

/// A device, its fault and its resident grid.
#[derive(Debug)]
pub(super) struct Custody {
    card: Arc<dyn Card>,
    fault: OnceLock<Fault>,
    /// The grid's memory belongs to the device, so the device does not own the grid.
    grid: OnceLock<Weak<dyn Resident>>,
}

impl Custody {
    pub(super) fn new(card: Arc<dyn Card>) -> Self {
        Self { card, fault: OnceLock::new(), grid: OnceLock::new() }
    }

    /// From now on this grid is stopped before such calls.
    pub(super) fn guard(&self, grid: &Arc<dyn Resident>) {
        let _ = self.grid.set(Arc::downgrade(grid));
    }

    #[inline]
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }

    /// The first one counts.
    pub(super) fn fail(&self, fault: Fault) {
        let _ = self.fault.set(fault);
    }

    /// Makes a call while no kernel stays.
    fn quiet<T>(&self, call: impl FnOnce() -> T) -> Result<T, CardError> {
        let grid = self.grid.get().and_then(Weak::upgrade);
        let paused = grid.as_ref().map(|grid| grid.pause()).transpose();
        let _paused = paused.map_err(|fault| match fault {
            Fault::Card(error) => error,
            fault => CardError::Refused { call: "memory", why: fault.to_string() },
        })?;
        Ok(call())
    }
}

impl Card for Custody {
    fn facts(&self) -> CardFacts {
        self.card.facts()
    }

    fn resident_max(&self, kernel: Kernel) -> u32 {
        self.card.resident_max(kernel)
    }

    fn per_multiprocessor(&self, kernel: Kernel) -> u32 {
        self.card.per_multiprocessor(kernel)
    }

    fn take(&self, bytes: usize) -> Result<DevAddr, CardError> {
        self.quiet(|| self.card.take(bytes))?
    }

    unsafe fn give_back(&self, at: DevAddr) {
        if self.fault().is_some() {
            return;
        }
        // A grid that does not stop keeps the memory.
        // SAFETY: the caller's promise.
        let _ = self.quiet(|| unsafe { self.card.give_back(at) });
    }

    unsafe fn map(&self, start: NonNull<u8>, bytes: usize) -> Result<DevAddr, CardError> {
        // SAFETY: the caller's promise.
        self.quiet(|| unsafe { self.card.map(start, bytes) })?
    }

    unsafe fn unmap(&self, start: NonNull<u8>) -> bool {
        if self.fault().is_some() {
            return false;
        }
        // SAFETY: the caller's promise.
        self.quiet(|| unsafe { self.card.unmap(start) }).unwrap_or(false)
    }

    unsafe fn read(&self, from: DevAddr, to: &mut [u8]) -> Result<(), CardError> {
        // SAFETY: the caller's promise.
        self.quiet(|| unsafe { self.card.read(from, to) })?
    }

    fn stream(&self) -> Result<Box<dyn Stream>, CardError> {
        self.quiet(|| self.card.stream())?
    }

    fn background(&self) -> Result<Box<dyn Stream>, CardError> {
        self.quiet(|| self.card.background())?
    }
}
