//! A device that fails when it is ordered to, around one that works: for tests of what comes after.
//!
//! In: a device whose addresses are the host's, as the SIMT executor's are. Out: the same, with
//! [`Switches`] that any thread may turn at any time. Owns nothing.
#![allow(unsafe_code)]

use crate::card::{Card, CardError, CardFacts, Kernel, Recorded, Stream};
use crate::params::{DevAddr, Doorbells, ServeParams};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// What is wrong with the device.
#[derive(Debug, Default)]
pub struct Switches {
    /// It has no memory left.
    pub no_memory: AtomicBool,
    /// It maps no more host memory.
    pub no_mapping: AtomicBool,
    /// It refuses the kernels.
    pub no_kernels: AtomicBool,
    /// It refuses launches.
    pub refuse_launches: AtomicBool,
    /// It takes launches and never carries them out.
    pub lose_launches: AtomicBool,
    /// Every call fails.
    pub sticky: AtomicBool,
    /// Doorbells of kernels that stay.
    serving: Mutex<Vec<u64>>,
    /// Those have been ended.
    killed: AtomicBool,
}

fn on(switch: &AtomicBool) -> bool {
    switch.load(Ordering::Relaxed)
}

impl Switches {
    /// Ends every kernel that stays, without a word to the thread that launched it.
    ///
    /// # Safety
    /// Those who launched them are still there, and the device's addresses are the host's.
    pub unsafe fn kill_serving(&self) {
        self.killed.store(true, Ordering::Relaxed);
        for doorbells in self.serving.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let at =
                usize::try_from(doorbells).unwrap_or(0) + std::mem::offset_of!(Doorbells, stop);
            let stop = std::ptr::with_exposed_provenance_mut::<u8>(at);
            // SAFETY: the doorbells of a launcher that is still there (the caller's promise), and its
            // bytes are atomics.
            unsafe { AtomicU8::from_ptr(stop) }.store(1, Ordering::Release);
        }
    }

    fn call(&self, call: &'static str) -> Result<(), CardError> {
        let why = "switched off".to_owned();
        if on(&self.sticky) { Err(CardError::Sticky { call, why }) } else { Ok(()) }
    }
}

/// The device.
#[derive(Debug)]
pub struct FaultyCard {
    card: Arc<dyn Card>,
    switches: Arc<Switches>,
}

impl FaultyCard {
    /// A device that works as `card` does until a switch is turned.
    pub fn new(card: Arc<dyn Card>) -> (Self, Arc<Switches>) {
        let switches = Arc::<Switches>::default();
        (Self { card, switches: Arc::clone(&switches) }, switches)
    }
}

impl Card for FaultyCard {
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
        self.switches.call("take")?;
        if on(&self.switches.no_memory) {
            return Err(CardError::OutOfMemory { bytes });
        }
        self.card.take(bytes)
    }

    unsafe fn give_back(&self, at: DevAddr) {
        // SAFETY: the caller's promise.
        unsafe { self.card.give_back(at) }
    }

    unsafe fn map(&self, start: NonNull<u8>, bytes: usize) -> Result<DevAddr, CardError> {
        self.switches.call("map")?;
        if on(&self.switches.no_mapping) {
            return Err(CardError::NotMapped { bytes, why: "switched off".to_owned() });
        }
        // SAFETY: the caller's promise.
        unsafe { self.card.map(start, bytes) }
    }

    unsafe fn unmap(&self, start: NonNull<u8>) -> bool {
        // SAFETY: the caller's promise.
        unsafe { self.card.unmap(start) }
    }

    unsafe fn read(&self, from: DevAddr, to: &mut [u8]) -> Result<(), CardError> {
        self.switches.call("read")?;
        // SAFETY: the caller's promise.
        unsafe { self.card.read(from, to) }
    }

    fn stream(&self) -> Result<Box<dyn Stream>, CardError> {
        self.switches.call("stream")?;
        if on(&self.switches.no_kernels) {
            return Err(CardError::NotLoaded("switched off".to_owned()));
        }
        let (stream, switches) = (self.card.stream()?, Arc::clone(&self.switches));
        Ok(Box::new(FaultyStream { stream, switches, lost: false }))
    }
}

#[derive(Debug)]
struct FaultyStream {
    stream: Box<dyn Stream>,
    switches: Arc<Switches>,
    /// It was given something that it never does.
    lost: bool,
}

impl FaultyStream {
    /// Whether the launch is to be carried out.
    fn may_launch(&mut self) -> Result<bool, CardError> {
        self.switches.call("launch")?;
        if on(&self.switches.refuse_launches) {
            let why = "switched off".to_owned();
            return Err(CardError::Refused { call: "launch", why });
        }
        self.lost |= on(&self.switches.lose_launches);
        Ok(!self.lost)
    }
}

impl Stream for FaultyStream {
    unsafe fn launch(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<(), CardError> {
        if !self.may_launch()? {
            return Ok(());
        }
        if kernel.facts().resident {
            // SAFETY: the structure of such a kernel (the caller's promise).
            let params = unsafe { params.cast::<ServeParams>().read_unaligned() };
            let serving = self.switches.serving.lock();
            serving.unwrap_or_else(PoisonError::into_inner).push(params.doorbells.0);
        }
        // SAFETY: the caller's promise.
        unsafe { self.stream.launch(kernel, blocks, params) }
    }

    unsafe fn copy(&mut self, to: DevAddr, from: DevAddr, bytes: usize) -> Result<(), CardError> {
        if !self.may_launch()? {
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.stream.copy(to, from, bytes) }
    }

    unsafe fn record(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<Recorded, CardError> {
        self.switches.call("record")?;
        // SAFETY: the caller's promise.
        unsafe { self.stream.record(kernel, blocks, params) }
    }

    fn replay(&mut self, what: Recorded) -> Result<(), CardError> {
        if self.may_launch()? { self.stream.replay(what) } else { Ok(()) }
    }

    fn is_idle(&mut self) -> Result<bool, CardError> {
        self.switches.call("is_idle")?;
        let idle = self.stream.is_idle()?;
        Ok(idle && !self.lost && !on(&self.switches.killed))
    }
}
