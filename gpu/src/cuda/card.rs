//! A CUDA device as a [`Card`].
//!
//! In: the number of a device. Out: its memory, host memory mapped to it, and streams. All kernels
//! are compiled, loaded and run once when it is opened, so that no launch waits for that, or for
//! kernels that never end. Fails with what the driver says; nothing here panics.
//!
//! While a kernel that stays is running, [`Card::take`], [`Card::give_back`], [`Card::map`] and
//! [`Card::unmap`] may wait for its end: CUDA says of such calls that they may synchronise.
#![allow(unsafe_code)]

use super::context::Context;
use super::first;
use super::kernels::Kernels;
use super::registered::{register, unregister};
use super::stream::CudaStream;
use crate::card::{Card, CardError, CardFacts, Kernel, Stream};
use crate::params::DevAddr;
use cudarc::driver::sys::{CUdevice_attribute, CUstream};
use std::collections::HashMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Longest wait for a copy or a fill.
const COPY_WAIT_MAX: Duration = Duration::from_secs(30);
/// Host memory that one call registers. Drivers fail above half a terabyte.
const REGISTER_BYTES_MAX: usize = 64 << 30;

/// A CUDA device.
#[derive(Debug)]
pub struct CudaCard {
    // In this order: kernels go before their context.
    kernels: Arc<Kernels>,
    facts: CardFacts,
    /// For fills and reads of this device's own.
    stream: CUstream,
    /// Host memory that is mapped, by its first byte, as the pieces that it was registered in.
    mapped: Mutex<HashMap<usize, Vec<NonNull<u8>>>>,
}

// SAFETY: the handles are only passed to the driver, whose functions may be called from every
// thread; addresses of host memory are not followed.
unsafe impl Send for CudaCard {}
// SAFETY: as above.
unsafe impl Sync for CudaCard {}

impl CudaCard {
    /// Opens the device of that number, as `nvidia-smi -L` and `CUDA_VISIBLE_DEVICES` count. Takes
    /// seconds: the driver compiles the kernels, unless it remembers them from last time.
    ///
    /// # Errors
    /// There is no driver or no such device, the driver is too old for the kernels, or it says
    /// something else.
    pub fn open(ordinal: u32) -> Result<Self, CardError> {
        let context = Arc::new(Context::new(i32::try_from(ordinal).unwrap_or(i32::MAX))?);
        let facts = facts(&context)?;
        context.enter()?;
        let kernels = Arc::new(Kernels::load(context, facts.multiprocessors)?);
        let stream = kernels.context().stream(false)?;
        let card = Self { kernels, facts, stream, mapped: Mutex::default() };
        first::run_all(&card, card.context())?;
        Ok(card)
    }

    pub(super) fn context(&self) -> &Context {
        self.kernels.context()
    }

    /// Waits for what this device's own stream was given.
    fn finish(&self, call: &'static str) -> Result<(), CardError> {
        // SAFETY: the stream is this context's, and there until drop.
        if unsafe { self.context().wait(self.stream, COPY_WAIT_MAX) }? {
            return Ok(());
        }
        self.context().lose();
        let why = format!("not done after {} s", COPY_WAIT_MAX.as_secs());
        Err(CardError::Sticky { call, why })
    }

    fn mapped(&self) -> std::sync::MutexGuard<'_, HashMap<usize, Vec<NonNull<u8>>>> {
        self.mapped.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the device is; refuses one without the addressing that mappings rely on.
fn facts(context: &Context) -> Result<CardFacts, CardError> {
    use CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY as MAPS_HOST,
        CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT as MULTIPROCESSORS,
        CU_DEVICE_ATTRIBUTE_PCI_BUS_ID as BUS, CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID as DEVICE,
        CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID as DOMAIN,
        CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING as UNIFIED,
    };
    let mut name = [0_u8; 256];
    let mut bytes = 0;
    let (driver, device) = (&context.driver, context.device);
    // SAFETY: writes at most that many bytes, with a zero at their end.
    let status = unsafe { (driver.device_name)(name.as_mut_ptr().cast(), 256, device) };
    context.check("cuDeviceGetName", status)?;
    // SAFETY: writes one size.
    let status = unsafe { (driver.device_memory)(&raw mut bytes, device) };
    context.check("cuDeviceTotalMem", status)?;
    if context.attribute(UNIFIED)? == 0 || context.attribute(MAPS_HOST)? == 0 {
        let why = "this device does not see host memory under unified addresses".to_owned();
        return Err(CardError::NotLoaded(why));
    }
    let pci = || -> Result<String, CardError> {
        let [domain, bus, device] = [DOMAIN, BUS, DEVICE].map(|which| context.attribute(which));
        Ok(format!("{:04x}:{:02x}:{:02x}.0", domain?, bus?, device?))
    };
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(CardFacts {
        name: String::from_utf8_lossy(name).into_owned(),
        multiprocessors: u32::try_from(context.attribute(MULTIPROCESSORS)?).unwrap_or(0),
        memory_bytes: bytes as u64,
        pci: pci().ok(),
    })
}

impl Card for CudaCard {
    fn facts(&self) -> CardFacts {
        self.facts.clone()
    }

    fn resident_max(&self, kernel: Kernel) -> u32 {
        let loaded = self.kernels.of(kernel);
        loaded.map_or(0, |loaded| self.kernels.residency.room(loaded.per_multiprocessor))
    }

    fn per_multiprocessor(&self, kernel: Kernel) -> u32 {
        self.kernels.of(kernel).map_or(0, |loaded| loaded.per_multiprocessor)
    }

    fn take(&self, bytes: usize) -> Result<DevAddr, CardError> {
        let context = self.context();
        let driver = &context.driver;
        context.enter()?;
        let mut at = 0;
        // SAFETY: writes one address.
        let status = unsafe { (driver.memory_take)(&raw mut at, bytes.max(1)) };
        context.check_room("cuMemAlloc", status, bytes)?;
        // SAFETY: memory of that size, which no other code has the address of yet.
        let status = unsafe { (driver.memory_fill)(at, 0, bytes.max(1), self.stream) };
        context
            .check("cuMemsetD8Async", status)
            .and_then(|()| self.finish("cuMemsetD8Async"))
            .inspect_err(
                // SAFETY: taken above, and not given out.
                |_| unsafe { self.give_back(DevAddr(at)) },
            )?;
        Ok(DevAddr(at))
    }

    unsafe fn give_back(&self, at: DevAddr) {
        if self.context().is_lost() || self.context().enter().is_err() {
            return;
        }
        // SAFETY: the caller's promise.
        unsafe { (self.context().driver.memory_free)(at.0) };
    }

    /// Registers the memory piece by piece. Under unified addressing the device sees registered
    /// memory at the host's own addresses, so pieces that touch on the host touch there too; that
    /// they do is looked at, not taken for granted.
    unsafe fn map(&self, start: NonNull<u8>, bytes: usize) -> Result<DevAddr, CardError> {
        self.context().enter()?;
        let mut pieces = Vec::new();
        let mut first = None;
        let mut done = 0;
        let failed = loop {
            if done >= bytes {
                break None;
            }
            let piece = (bytes - done).min(REGISTER_BYTES_MAX);
            // SAFETY: inside the caller's memory.
            let at = unsafe { start.add(done) };
            // SAFETY: the caller's promise, for a part of it.
            match unsafe { register(&self.kernels, at, piece) } {
                Ok(address) => {
                    pieces.push(at);
                    let first = *first.get_or_insert(address);
                    if address.wrapping_sub(first) != done as u64 {
                        let why = "its pieces lie apart on the GPU".to_owned();
                        break Some(CardError::NotMapped { bytes, why });
                    }
                }
                Err(sticky @ CardError::Sticky { .. }) => break Some(sticky),
                Err(why) => break Some(CardError::NotMapped { bytes, why: why.to_string() }),
            }
            done += piece;
        };
        if let Some(error) = failed {
            for piece in pieces {
                // SAFETY: registered above, and not given out. What stays registered is refused the next time.
                let _ = unsafe { unregister(piece) };
            }
            return Err(error);
        }
        self.mapped().insert(start.addr().get(), pieces);
        Ok(DevAddr(first.unwrap_or(0)))
    }

    unsafe fn unmap(&self, start: NonNull<u8>) -> bool {
        let pieces = self.mapped().remove(&start.addr().get()).unwrap_or_default();
        if self.context().is_lost() || self.context().enter().is_err() {
            return false;
        }
        pieces.into_iter().fold(true, |all, piece| {
            // SAFETY: registered in `map`; the caller's promise.
            unsafe { unregister(piece) && all }
        })
    }

    unsafe fn read(&self, from: DevAddr, to: &mut [u8]) -> Result<(), CardError> {
        self.context().enter()?;
        let driver = &self.context().driver;
        // Not `to`, which is the caller's again when the wait is given up.
        let mut copy = vec![0; to.len()];
        // SAFETY: the caller's promise of `from`; `copy` has that many bytes, and goes only when the
        // wait below was over: else it stays for ever.
        let status = unsafe {
            (driver.memory_read)(copy.as_mut_ptr().cast(), from.0, copy.len(), self.stream)
        };
        let done = self.context().check("cuMemcpyDtoHAsync", status);
        match done.and_then(|()| self.finish("cuMemcpyDtoHAsync")) {
            Ok(()) => to.copy_from_slice(&copy),
            Err(error) => {
                std::mem::forget(copy);
                return Err(error);
            }
        }
        Ok(())
    }

    fn stream(&self) -> Result<Box<dyn Stream>, CardError> {
        let stream = self.context().stream(false)?;
        Ok(Box::new(CudaStream::new(Arc::clone(&self.kernels), stream)))
    }

    fn background(&self) -> Result<Box<dyn Stream>, CardError> {
        let stream = self.context().stream(true)?;
        Ok(Box::new(CudaStream::new(Arc::clone(&self.kernels), stream)))
    }
}

impl Drop for CudaCard {
    fn drop(&mut self) {
        if self.context().is_lost() || self.context().enter().is_err() {
            return;
        }
        // SAFETY: made in `open`, idle after each use, and destroyed once.
        unsafe { (self.context().driver.stream_destroy)(self.stream) };
    }
}
