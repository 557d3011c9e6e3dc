//! A device's primary context: made current on whichever thread calls, and what its answers mean.
//!
//! Out: the context, which is released with its last user. Fails: as the driver says, sorted into
//! what may be tried again and what ends the device's use ([`CardError::Sticky`]).
#![allow(unsafe_code)]

use super::driver::{Driver, Status};
use super::ptx::CUDA_MIN;
use crate::card::CardError;
use cudarc::driver::sys::{self, CUcontext, CUdevice_attribute, CUstream};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// `CUDA_ERROR_OUT_OF_MEMORY`.
const OUT_OF_MEMORY: Status = 2;
/// `CUDA_ERROR_NOT_READY`: work has not ended.
const NOT_READY: Status = 600;
/// How often a wait looks.
const LOOK: Duration = Duration::from_micros(50);

/// Contexts so far: what distinguishes one from another, where the driver may give a handle twice.
static CONTEXTS: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Number of the context that is current on this thread, as far as this module knows; 0: none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// A device and its primary context.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) driver: Driver,
    pub(super) device: i32,
    handle: CUcontext,
    number: u64,
    /// Work may still run that cannot be stopped, or the context is broken.
    lost: AtomicBool,
}

// SAFETY: the driver's functions may be called from every thread; the handle is only passed to
// them.
unsafe impl Send for Context {}
// SAFETY: as above.
unsafe impl Sync for Context {}

impl Context {
    /// Retains the primary context of a device.
    pub(super) fn new(ordinal: i32) -> Result<Self, CardError> {
        let driver = Driver::load()
            .map_err(|why| CardError::Refused { call: "the driver", why: why.to_string() })?;
        let number = CONTEXTS.fetch_add(1, Ordering::Relaxed) + 1;
        let (handle, lost) = (std::ptr::null_mut(), AtomicBool::new(false));
        let mut new = Self { driver, device: 0, handle, number, lost };
        // SAFETY: the flags must be 0, and are.
        new.check("cuInit", unsafe { (driver.init)(0) })?;
        let mut version = 0;
        // SAFETY: writes one int.
        let status = unsafe { (driver.driver_version)(&raw mut version) };
        new.check("cuDriverGetVersion", status)?;
        if version < CUDA_MIN {
            let cuda = |v: i32| format!("{}.{}", v / 1000, v % 1000 / 10);
            let why = format!(
                "they need a driver for CUDA {}, and this one is for {}: install a newer driver",
                cuda(CUDA_MIN),
                cuda(version)
            );
            return Err(CardError::NotLoaded(why));
        }
        // SAFETY: writes one int.
        let status = unsafe { (driver.device_get)(&raw mut new.device, ordinal) };
        new.check("cuDeviceGet", status)?;
        // SAFETY: writes one handle.
        let status = unsafe { (driver.context_retain)(&raw mut new.handle, new.device) };
        new.check("cuDevicePrimaryCtxRetain", status)?;
        Ok(new)
    }

    /// Makes the context current on this thread, for the calls that follow. Threads come and go,
    /// so every function that calls the driver begins with this.
    #[inline]
    pub(super) fn enter(&self) -> Result<(), CardError> {
        if CURRENT.get() == self.number {
            return Ok(());
        }
        // SAFETY: the handle is a retained context.
        self.check("cuCtxSetCurrent", unsafe { (self.driver.context_set)(self.handle) })?;
        CURRENT.set(self.number);
        Ok(())
    }

    /// What a status means.
    #[inline]
    pub(super) fn check(&self, call: &'static str, status: Status) -> Result<(), CardError> {
        if status == 0 {
            return Ok(());
        }
        Err(self.error(call, status))
    }

    #[cold]
    fn error(&self, call: &'static str, status: Status) -> CardError {
        let why = self.driver.name(status);
        if is_sticky(status) {
            self.lose();
            return CardError::Sticky { call, why };
        }
        CardError::Refused { call, why }
    }

    /// As [`Self::check`], of a call that takes memory.
    pub(super) fn check_room(
        &self,
        call: &'static str,
        status: Status,
        bytes: usize,
    ) -> Result<(), CardError> {
        match status {
            OUT_OF_MEMORY => Err(CardError::OutOfMemory { bytes }),
            status => self.check(call, status),
        }
    }

    /// Nothing of the device's is freed any more: the process keeps it until it ends.
    pub(super) fn lose(&self) {
        self.lost.store(true, Ordering::Relaxed);
    }

    /// Whether that has happened.
    pub(super) fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed)
    }

    /// A number that the device has.
    pub(super) fn attribute(&self, which: CUdevice_attribute) -> Result<i32, CardError> {
        let mut value = 0;
        // SAFETY: writes one int; the device is one that cuDeviceGet gave.
        let status =
            unsafe { (self.driver.device_attribute)(&raw mut value, which as i32, self.device) };
        self.check("cuDeviceGetAttribute", status)?;
        Ok(value)
    }

    /// A new stream, which waits for no other: not for the legacy default stream either, behind
    /// which a kernel that stays would hold up everything. `background`: of the lowest priority that the
    /// device has, else of the highest.
    pub(super) fn stream(&self, background: bool) -> Result<CUstream, CardError> {
        self.enter()?;
        let (mut lowest, mut highest) = (0, 0);
        // SAFETY: writes two ints.
        let status = unsafe { (self.driver.stream_priorities)(&raw mut lowest, &raw mut highest) };
        self.check("cuCtxGetStreamPriorityRange", status)?;
        let priority = if background { lowest } else { highest };
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        let mut stream = std::ptr::null_mut();
        // SAFETY: writes one handle; the priority is one that the context has.
        let status = unsafe { (self.driver.stream_create)(&raw mut stream, flags, priority) };
        self.check("cuStreamCreateWithPriority", status)?;
        Ok(stream)
    }

    /// Whether all work of a stream has ended.
    ///
    /// # Safety
    /// The stream is this context's, and not destroyed.
    #[inline]
    pub(super) unsafe fn is_idle(&self, stream: CUstream) -> Result<bool, CardError> {
        self.enter()?;
        // SAFETY: the caller's promise.
        match unsafe { (self.driver.stream_query)(stream) } {
            NOT_READY => Ok(false),
            status => self.check("cuStreamQuery", status).map(|()| true),
        }
    }

    /// Waits until a stream is idle; false when it is not after `most`.
    ///
    /// # Safety
    /// As [`Self::is_idle`].
    pub(super) unsafe fn wait(&self, stream: CUstream, most: Duration) -> Result<bool, CardError> {
        let begun = Instant::now();
        loop {
            // SAFETY: the caller's promise.
            if unsafe { self.is_idle(stream) }? {
                return Ok(true);
            }
            if begun.elapsed() >= most {
                return Ok(false);
            }
            thread::sleep(LOOK);
        }
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        if self.handle.is_null() || self.is_lost() {
            return;
        }
        // SAFETY: retained in `new`, released once, and not used after.
        unsafe { (self.driver.context_release)(self.device) };
    }
}

/// Whether a status means that no call will work in this process again: the context is broken, or
/// the device is gone. By NVIDIA's reference, "the process must be terminated and relaunched".
fn is_sticky(status: Status) -> bool {
    matches!(
        status,
        4            // the driver is shutting down
        | 46         // the device is unavailable
        | 214 | 220  // uncorrectable ECC or NVLink error
        | 226        // an error that was contained, at this process's cost
        | 700        // illegal address
        | 702        // a kernel took too long
        | 709        // the context is destroyed
        | 710        // an assertion in a kernel
        | 714
            ..=719  // stack, instruction, alignment, address space, program counter, launch
        | 721        // tensor memory leak
        | 999 // unknown
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_breaks_the_context_is_sticky() {
        for status in [4, 46, 214, 220, 226, 700, 702, 709, 710, 714, 716, 719, 721, 999] {
            assert!(is_sticky(status), "{status}");
        }
        // No memory, no image, too many resources, already registered, cooperative launch too
        // large, not supported, one of tomorrow's.
        for status in [1, 2, 200, 222, 600, 701, 712, 720, 801, 919] {
            assert!(!is_sticky(status), "{status}");
        }
    }
}
