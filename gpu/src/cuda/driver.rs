//! The driver's functions, each looked up once, by its name.
//!
//! cudarc's own wrappers panic where a function is missing, and take statuses for a closed list,
//! which a newer driver's are not. Here a missing function is an error when the table is made, and
//! a status is a number. cudarc finds the library and names the types.
#![allow(unsafe_code)]

use super::probe::ProbeError;
use cudarc::driver::sys::{
    self, CUDA_KERNEL_NODE_PARAMS, CUcontext, CUfunction, CUgraph, CUgraphExec, CUgraphNode,
    CUmodule, CUstream,
};
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};

/// What a function answers: 0, or what went wrong.
pub(super) type Status = c_int;

macro_rules! driver {
    ($($function:ident: $symbol:literal ($($argument:ty),*);)*) => {
        /// The functions that a device needs, of the driver's library, which stays loaded. Signatures
        /// as in NVIDIA's driver API reference.
        #[derive(Clone, Copy)]
        pub(super) struct Driver {
            $(pub(super) $function: unsafe extern "C" fn($($argument),*) -> Status,)*
        }

        impl Driver {
            /// # Safety
            /// The library is there.
            unsafe fn look_up() -> Result<Self, ProbeError> {
                // SAFETY: the library is there (the caller's promise), and the types are those of
                // the driver's reference.
                Ok(Self { $($function: unsafe { function($symbol) }?,)* })
            }
        }
    };
}

driver! {
    init: "cuInit" (c_uint);
    driver_version: "cuDriverGetVersion" (*mut c_int);
    error_name: "cuGetErrorName" (Status, *mut *const c_char);
    device_get: "cuDeviceGet" (*mut c_int, c_int);
    device_name: "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_memory: "cuDeviceTotalMem_v2" (*mut usize, c_int);
    device_attribute: "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    context_retain: "cuDevicePrimaryCtxRetain" (*mut CUcontext, c_int);
    context_release: "cuDevicePrimaryCtxRelease_v2" (c_int);
    context_set: "cuCtxSetCurrent" (CUcontext);
    module_load: "cuModuleLoadDataEx"
        (*mut CUmodule, *const c_void, c_uint, *mut c_int, *mut *mut c_void);
    module_unload: "cuModuleUnload" (CUmodule);
    module_function: "cuModuleGetFunction" (*mut CUfunction, CUmodule, *const c_char);
    function_load: "cuFuncLoad" (CUfunction);
    function_set: "cuFuncSetAttribute" (CUfunction, c_int, c_int);
    blocks_at_once: "cuOccupancyMaxActiveBlocksPerMultiprocessor"
        (*mut c_int, CUfunction, c_int, usize);
    memory_take: "cuMemAlloc_v2" (*mut u64, usize);
    memory_free: "cuMemFree_v2" (u64);
    memory_fill: "cuMemsetD8Async" (u64, u8, usize, CUstream);
    memory_copy: "cuMemcpyAsync" (u64, u64, usize, CUstream);
    memory_read: "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, CUstream);
    host_register: "cuMemHostRegister_v2" (*mut c_void, usize, c_uint);
    host_unregister: "cuMemHostUnregister" (*mut c_void);
    host_address: "cuMemHostGetDevicePointer_v2" (*mut u64, *mut c_void, c_uint);
    stream_priorities: "cuCtxGetStreamPriorityRange" (*mut c_int, *mut c_int);
    stream_create: "cuStreamCreateWithPriority" (*mut CUstream, c_uint, c_int);
    stream_destroy: "cuStreamDestroy_v2" (CUstream);
    stream_query: "cuStreamQuery" (CUstream);
    launch: "cuLaunchKernel"
        (CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream,
         *mut *mut c_void, *mut *mut c_void);
    graph_create: "cuGraphCreate" (*mut CUgraph, c_uint);
    graph_add_kernel: "cuGraphAddKernelNode_v2"
        (*mut CUgraphNode, CUgraph, *const CUgraphNode, usize, *const CUDA_KERNEL_NODE_PARAMS);
    graph_instantiate: "cuGraphInstantiateWithFlags" (*mut CUgraphExec, CUgraph, c_ulonglong);
    graph_destroy: "cuGraphDestroy" (CUgraph);
    graph_upload: "cuGraphUpload" (CUgraphExec, CUstream);
    graph_launch: "cuGraphLaunch" (CUgraphExec, CUstream);
    graph_exec_destroy: "cuGraphExecDestroy" (CUgraphExec);
}

/// The function of that name.
///
/// # Safety
/// The library is there, and `F` is the type of a pointer to that function.
unsafe fn function<F: Copy>(name: &'static str) -> Result<F, ProbeError> {
    // SAFETY: the library is there, so this does not panic.
    let library = unsafe { sys::culib() };
    // SAFETY: the caller's promise.
    let found = unsafe { library.get::<F>(name.as_bytes()) };
    found.map(|function| *function).map_err(|_| ProbeError::NotTheDriver(name))
}

impl Driver {
    /// Loads the driver's library, and looks for everything that will be called.
    pub(super) fn load() -> Result<Self, ProbeError> {
        // SAFETY: loads the driver's library, if there is one, whose initialisers require nothing.
        if !unsafe { sys::is_culib_present() } {
            return Err(ProbeError::NoDriver);
        }
        // SAFETY: it is there.
        unsafe { Self::look_up() }
    }

    /// CUDA's name for a status.
    pub(super) fn name(&self, status: Status) -> String {
        let mut name = std::ptr::null();
        // SAFETY: writes one pointer, to a place that outlives the call.
        let known = unsafe { (self.error_name)(status, &raw mut name) } == 0 && !name.is_null();
        if !known {
            return format!("CUDA error {status}");
        }
        // SAFETY: a constant of the driver's, which stays loaded.
        let name = unsafe { CStr::from_ptr(name) };
        name.to_string_lossy().into_owned()
    }
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Driver")
    }
}
