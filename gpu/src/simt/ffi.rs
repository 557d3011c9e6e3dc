//! What `gpu/simt/machine.h` declares: a machine and its streams, as owned handles.
#![allow(unsafe_code)]

use crate::card::{Kernel, kernels};
use crate::params::DevAddr;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::NonNull;
use std::time::Duration;

type KernelFunction = unsafe extern "C" fn(params: *const c_void);

#[repr(C)]
struct Launch {
    kernel: KernelFunction,
    name: *const c_char,
    name_bytes: usize,
    params: *const c_void,
    params_bytes: u32,
    blocks: u32,
    threads: u32,
    shared_bytes: u32,
    resident: u32,
    seed: u64,
    regions: *const Region,
    n_regions: usize,
    counts: *mut WatchCounts,
    /// The executor's own.
    late: *const c_void,
    events: *const c_void,
}

/// Memory that a watched launch may touch.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub(super) struct Region {
    pub(super) start: u64,
    pub(super) bytes: u64,
    /// Not 0: it is the host's, behind PCIe.
    pub(super) is_host: u64,
    /// Not 0: this is a copy of the host's memory, which is there.
    pub(super) behind: u64,
    /// Where it lies in the memory that [`Event::at`] names.
    pub(super) laid: u64,
}

/// What one thread of a watched kernel did: it entered a basic block, or it touched memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Event {
    /// The place in the program: the same for every thread, and another in another process.
    pub place: u64,
    /// The first byte that was touched. All memory that is taken or mapped lies one behind the other
    /// here, page by page in that order, so that this is the same in every process.
    pub at: u64,
    /// The block.
    pub block: u32,
    /// The thread, of its block.
    pub thread: u32,
    /// Bytes that were touched. 0: a basic block was entered.
    pub bytes: u32,
    /// Of an access: one of [`Event::READ`] and what follows.
    pub access: u32,
}

impl Event {
    /// A plain load.
    pub const READ: u32 = 0;
    /// A plain store, or one that releases.
    pub const WRITE: u32 = 1;
    /// A load that acquires, or waits for another's word.
    pub const POLL: u32 = 2;
    /// An atomic operation.
    pub const ATOMIC: u32 = 3;
}

/// What watched kernels did, as if those lanes of a warp that come to the same place for the same
/// time did so at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct WatchCounts {
    /// Basic blocks that warps entered.
    pub steps: u64,
    /// Lanes that entered them; 32 to a step would be all.
    pub lanes: u64,
    /// Loads and stores of warps in the device's memory and what is mapped to it.
    pub accesses: u64,
    /// Sectors of 32 bytes that these touched.
    pub sectors: u64,
    /// Requests to read host memory: one for each 128-byte line that a warp's load touches there, as
    /// if nothing was cached from one load to the next.
    pub host_reads: u64,
    /// Bytes of these, in whole sectors.
    pub host_read_bytes: u64,
    /// Requests to write host memory, counted as reads are. An atomic operation is one.
    pub host_writes: u64,
    /// Bytes of these, in whole sectors.
    pub host_write_bytes: u64,
    /// Loads of host memory by acquire, which wait for the host: not among the reads.
    pub host_polls: u64,
    /// Blocks that touched host memory at all.
    pub host_blocks: u64,
    /// Fences of warps for the whole system.
    pub system_fences: u64,
    /// Stores that release for the whole system.
    pub system_releases: u64,
}

#[repr(C)]
struct RawMachine(c_void);
#[repr(C)]
struct RawStream(c_void);

unsafe extern "C" {
    fn simt_machine_new(queues: u32, places: u32) -> *mut RawMachine;
    fn simt_machine_free(machine: *mut RawMachine);
    fn simt_machine_stall(machine: *mut RawMachine, ms: u64);
    fn simt_machine_hold(machine: *mut RawMachine, block: u32);
    fn simt_machine_wait(machine: *mut RawMachine, limit_ms: u64, who: *const c_char) -> c_int;
    fn simt_machine_is_idle(machine: *mut RawMachine) -> c_int;
    fn simt_machine_counts(machine: *mut RawMachine, counts: *mut WatchCounts);
    fn simt_machine_record(machine: *mut RawMachine, on: c_int);
    fn simt_machine_events(machine: *mut RawMachine, to: *mut Event, most: usize) -> usize;
    fn simt_stream_new(machine: *mut RawMachine) -> *mut RawStream;
    fn simt_stream_free(stream: *mut RawStream);
    fn simt_stream_launch(stream: *mut RawStream, launch: *const Launch);
    fn simt_stream_copy(stream: *mut RawStream, to: u64, from: u64, bytes: usize);
    fn simt_stream_query(stream: *mut RawStream, error: *mut c_char, error_bytes: usize) -> c_int;
    #[cfg(test)]
    static gnomon_layouts: [u32; 0];
    #[cfg(test)]
    static gnomon_layouts_len: u32;
}

macro_rules! function {
    ($($(#[$doc:meta])* $variant:ident $name:literal)*) => {
        fn function(kernel: Kernel, is_watched: bool) -> KernelFunction {
            match kernel {
                $(Kernel::$variant => {
                    unsafe extern "C" {
                        #[link_name = concat!("gnomon_simt_", $name)]
                        fn plain(params: *const c_void);
                        #[link_name = concat!("gnomon_simt_watched_", $name)]
                        fn watched(params: *const c_void);
                    }
                    if is_watched { watched } else { plain }
                })*
            }
        }
    };
}
kernels!(function);

/// What runs launches, and when: `gpu/simt/machine.h`.
#[derive(Debug)]
pub(super) struct Machine(NonNull<RawMachine>);

// SAFETY: an owned handle; the functions behind it may be called from every thread.
unsafe impl Send for Machine {}
// SAFETY: as above, and at the same time.
unsafe impl Sync for Machine {}

impl Machine {
    /// 0 queues: one for each stream. 0 places: as many as blocks need.
    pub(super) fn new(queues: u32, places: u32) -> Self {
        // SAFETY: plain numbers.
        let raw = unsafe { simt_machine_new(queues, places) };
        // It comes from C++'s `new`, which ends the process rather than to return nothing.
        Self(NonNull::new(raw).unwrap_or(NonNull::dangling()))
    }

    pub(super) fn stall(&self, pause: Duration) {
        let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: an owned handle.
        unsafe { simt_machine_stall(self.0.as_ptr(), ms) }
    }

    pub(super) fn hold(&self, block: u32) {
        // SAFETY: an owned handle.
        unsafe { simt_machine_hold(self.0.as_ptr(), block) }
    }

    /// Whether all kernels that were launched by now have ended within `most`. If not they are
    /// ended, as by an error. Blocks.
    pub(super) fn wait_for_kernels(&self, most: Duration, who: &CStr) -> bool {
        let ms = u64::try_from(most.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: an owned handle, and a string with a zero at its end.
        unsafe { simt_machine_wait(self.0.as_ptr(), ms, who.as_ptr()) == 0 }
    }

    /// Whether every kernel that was launched has ended.
    pub(super) fn is_idle(&self) -> bool {
        // SAFETY: an owned handle.
        unsafe { simt_machine_is_idle(self.0.as_ptr()) != 0 }
    }

    /// What watched kernels that have ended did.
    pub(super) fn counts(&self) -> WatchCounts {
        let mut counts = WatchCounts::default();
        // SAFETY: an owned handle, and a structure of the same layout to write to.
        unsafe { simt_machine_counts(self.0.as_ptr(), &raw mut counts) };
        counts
    }

    /// Forgets what was recorded; records from now on, or not.
    pub(super) fn record(&self, on: bool) {
        // SAFETY: an owned handle.
        unsafe { simt_machine_record(self.0.as_ptr(), c_int::from(on)) }
    }

    /// What watched kernels that have ended did while this recorded. None may be running.
    pub(super) fn events(&self) -> Vec<Event> {
        // SAFETY: an owned handle; nothing is written to.
        let n = unsafe { simt_machine_events(self.0.as_ptr(), std::ptr::null_mut(), 0) };
        let mut events = vec![Event::default(); n];
        // SAFETY: an owned handle, and room for as many of the same layout as are asked for.
        unsafe { simt_machine_events(self.0.as_ptr(), events.as_mut_ptr(), n) };
        events
    }

    /// `None`: the system has no thread for it.
    pub(super) fn stream(&self) -> Option<Stream> {
        // SAFETY: an owned handle.
        NonNull::new(unsafe { simt_stream_new(self.0.as_ptr()) }).map(Stream)
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: made in `new`, freed once; streams keep what they need of it.
        unsafe { simt_machine_free(self.0.as_ptr()) }
    }
}

/// Work in order on a machine. What it was given goes on when it is dropped.
#[derive(Debug)]
pub(super) struct Stream(NonNull<RawStream>);

// SAFETY: an owned handle; the functions behind it may be called from every thread.
unsafe impl Send for Stream {}

impl Stream {
    /// Adds a launch. With `regions`, in order of addresses, of the watched build.
    ///
    /// # Safety
    /// As [`crate::card::Stream::launch`], for `params`.
    pub(super) unsafe fn launch(
        &self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
        seed: u64,
        regions: Option<&[Region]>,
    ) {
        let (name, facts) = (kernel.name(), kernel.facts());
        // Only shows that there are counts; the machine has its own.
        let mut counts = WatchCounts::default();
        let counted = regions.is_some_and(|all| all.iter().all(|region| region.behind == 0));
        let launch = Launch {
            kernel: function(kernel, regions.is_some()),
            name: name.as_ptr().cast(),
            name_bytes: name.len(),
            params: params.cast(),
            params_bytes: u32::try_from(facts.params_bytes).unwrap_or(0),
            blocks,
            threads: facts.threads,
            shared_bytes: facts.shared_bytes,
            resident: u32::from(facts.resident),
            seed,
            regions: regions.map_or(std::ptr::null(), <[Region]>::as_ptr),
            n_regions: regions.map_or(0, <[Region]>::len),
            counts: if counted { &raw mut counts } else { std::ptr::null_mut() },
            late: std::ptr::null(),
            events: std::ptr::null(),
        };
        // SAFETY: an owned handle; parameters and regions are there, and copied before the call
        // returns. What the parameters point to is the caller's promise.
        unsafe { simt_stream_launch(self.0.as_ptr(), &raw const launch) }
    }

    /// Adds a copy.
    ///
    /// # Safety
    /// As [`crate::card::Stream::copy`].
    pub(super) unsafe fn copy(&self, to: DevAddr, from: DevAddr, bytes: usize) {
        // SAFETY: an owned handle; the ranges are the caller's promise.
        unsafe { simt_stream_copy(self.0.as_ptr(), to.0, from.0, bytes) }
    }

    /// Whether all work has ended.
    ///
    /// # Errors
    /// What the executor found wrong with a kernel, of whatever stream.
    pub(super) fn is_idle(&self) -> Result<bool, String> {
        let mut error = [0_u8; 256];
        // SAFETY: an owned handle, and a buffer of so many bytes for text.
        let status =
            unsafe { simt_stream_query(self.0.as_ptr(), error.as_mut_ptr().cast(), error.len()) };
        if status <= 1 {
            return Ok(status == 0);
        }
        let text = CStr::from_bytes_until_nul(&error).unwrap_or_default();
        Err(text.to_string_lossy().into_owned())
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: made by `Machine::stream`, freed once.
        unsafe { simt_stream_free(self.0.as_ptr()) }
    }
}

/// The table in `gpu/simt/layouts.cc`.
#[cfg(test)]
pub(super) fn layouts() -> &'static [u32] {
    // SAFETY: a constant of the C++ side.
    let len = unsafe { gnomon_layouts_len } as usize;
    // SAFETY: a constant array of that many numbers.
    unsafe { std::slice::from_raw_parts((&raw const gnomon_layouts).cast(), len) }
}
