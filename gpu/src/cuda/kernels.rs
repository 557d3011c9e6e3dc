//! The kernels of a CUDA device, loaded.
//!
//! In: a context. Out: a handle for each kernel, and how many of its blocks run at once. Owns the
//! modules until the last stream is gone. Fails with what the driver says of a module.
#![allow(unsafe_code)]

use super::context::Context;
use super::ptx;
use super::residency::Residency;
use crate::card::{CardError, Kernel};
use cudarc::driver::sys::{CUdevice_attribute, CUfunction, CUmodule};
use std::ffi::{CString, c_void};
use std::sync::Arc;
use std::time::Duration;

/// Longest time for a stream's work to end when the stream is dropped.
pub(super) const DROP_WAIT_MAX: Duration = Duration::from_secs(1);
/// Shared memory that every kernel may have unasked.
const SHARED_BYTES_FREE: u32 = 48 << 10;
/// `CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES`.
const SHARED_BYTES_OF_FUNCTION: i32 = 8;
/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const JIT_ERROR_LOG: [i32; 2] = [5, 6];
/// Room for what the driver says of PTX that it refuses.
const JIT_LOG_BYTES: usize = 4096;

/// A loaded kernel.
#[derive(Debug, Clone, Copy)]
pub(super) struct Loaded {
    kernel: Kernel,
    pub(super) function: CUfunction,
    /// Blocks that one multiprocessor runs at once, with nothing else on it.
    pub(super) per_multiprocessor: u32,
}

/// All kernels, ready for launches, and their context.
#[derive(Debug)]
pub(super) struct Kernels {
    modules: Vec<CUmodule>,
    loaded: Vec<Loaded>,
    /// Room for those that stay.
    pub(super) residency: Arc<Residency>,
    context: Arc<Context>,
}

// SAFETY: the handles are only passed to the driver, whose functions may be called from every
// thread.
unsafe impl Send for Kernels {}
// SAFETY: as above.
unsafe impl Sync for Kernels {}

impl Kernels {
    pub(super) fn load(context: Arc<Context>, multiprocessors: u32) -> Result<Self, CardError> {
        use CUdevice_attribute::{
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
            CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
        };
        let residency = Residency::new(multiprocessors);
        let mut new = Self { modules: Vec::new(), loaded: Vec::new(), residency, context };
        let (major, minor) = (new.context.attribute(MAJOR)?, new.context.attribute(MINOR)?);
        let takes_cubins = (major, minor) == ptx::CUBIN_FOR;
        for kernel in Kernel::ALL {
            let loaded = new.load_one(kernel, takes_cubins)?;
            new.loaded.push(loaded);
        }
        Ok(new)
    }

    /// Loads a module; says what the driver says of one that it refuses.
    ///
    /// # Safety
    /// `image` is PTX that ends in a zero, or a whole cubin.
    unsafe fn load_module(&self, name: &str, image: *const c_void) -> Result<CUmodule, CardError> {
        let driver = &self.context.driver;
        let mut module = std::ptr::null_mut();
        let mut log = [0_u8; JIT_LOG_BYTES];
        let mut options = JIT_ERROR_LOG;
        let mut values: [*mut c_void; 2] =
            [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
        // SAFETY: the caller's promise; two options with their values (an address of that many
        // bytes, and the number of them, which goes by value), all of which outlive the call.
        let status = unsafe {
            (driver.module_load)(
                &raw mut module,
                image,
                2,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if status == 0 {
            return Ok(module);
        }
        let said = log.split(|byte| *byte == 0).next().unwrap_or_default();
        let (status, said) = (driver.name(status), String::from_utf8_lossy(said));
        Err(CardError::NotLoaded(format!("{name}: {status} {}", said.trim())))
    }

    fn load_one(&mut self, kernel: Kernel, takes_cubins: bool) -> Result<Loaded, CardError> {
        let (driver, facts) = (self.context.driver, kernel.facts());
        let code = ptx::of(kernel);
        let cubin = takes_cubins.then(|| {
            // SAFETY: a whole cubin, as its header says how long it is.
            unsafe { self.load_module(kernel.name(), code.cubin.as_ptr().cast()) }
        });
        // What refuses a cubin may take PTX still.
        let module = match cubin {
            Some(Ok(module)) => module,
            // SAFETY: a text that ends in a zero.
            _ => unsafe { self.load_module(kernel.name(), code.ptx.as_ptr().cast()) }?,
        };
        self.modules.push(module);
        let context = &self.context;
        let name = CString::new(kernel.name()).unwrap_or_default();
        let mut function = std::ptr::null_mut();
        // SAFETY: writes one handle, of a module that stays loaded; the name ends in a zero.
        let status = unsafe { (driver.module_function)(&raw mut function, module, name.as_ptr()) };
        context.check("cuModuleGetFunction", status)?;
        // By default the driver loads a kernel at its first launch, which waits for kernels that
        // run, and so for ever behind one that stays.
        // SAFETY: a function of a loaded module.
        context.check("cuFuncLoad", unsafe { (driver.function_load)(function) })?;
        let shared = facts.shared_bytes;
        if shared > SHARED_BYTES_FREE {
            let bytes = i32::try_from(shared).unwrap_or(i32::MAX);
            // SAFETY: as above.
            let status =
                unsafe { (driver.function_set)(function, SHARED_BYTES_OF_FUNCTION, bytes) };
            context.check("cuFuncSetAttribute", status)?;
        }
        let threads = i32::try_from(facts.threads).unwrap_or(i32::MAX);
        let mut blocks = 0;
        // SAFETY: writes one int; a loaded function.
        let status =
            unsafe { (driver.blocks_at_once)(&raw mut blocks, function, threads, shared as usize) };
        context.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", status)?;
        let per_multiprocessor = u32::try_from(blocks).unwrap_or(0);
        Ok(Loaded { kernel, function, per_multiprocessor })
    }

    /// Where they are loaded.
    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    /// A kernel's handle.
    pub(super) fn of(&self, kernel: Kernel) -> Option<Loaded> {
        self.loaded.iter().copied().find(|loaded| loaded.kernel == kernel)
    }
}

impl Drop for Kernels {
    fn drop(&mut self) {
        if self.context.is_lost() || self.context.enter().is_err() {
            return;
        }
        for module in &self.modules {
            // SAFETY: loaded above, unloaded once. Streams, whose kernels may run, are idle, or
            // have said that the context is lost.
            unsafe { (self.context.driver.module_unload)(*module) };
        }
    }
}
