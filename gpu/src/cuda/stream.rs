//! Work in order on a CUDA device.
//!
//! In: launches. Out: nothing; kernels say through memory when they are done, and
//! [`Stream::is_idle`] when all have ended. A recorded launch is a graph of one node, which costs
//! the processor less to start than a launch does.
#![allow(unsafe_code)]

use super::kernels::{DROP_WAIT_MAX, Kernels, Loaded};
use super::residency::Reserved;
use crate::card::{CardError, Kernel, Recorded, Stream};
use crate::params::DevAddr;
use cudarc::driver::sys::{CUDA_KERNEL_NODE_PARAMS, CUgraph, CUgraphExec, CUstream};
use std::ffi::c_void;
use std::sync::Arc;

/// A stream of a CUDA device.
#[derive(Debug)]
pub(super) struct CudaStream {
    kernels: Arc<Kernels>,
    stream: CUstream,
    recorded: Vec<CUgraphExec>,
    /// Of kernels that stay, until the stream is idle.
    reserved: Vec<Reserved>,
}

// SAFETY: one owner; the handles are only passed to the driver, whose functions may be called
// from every thread.
unsafe impl Send for CudaStream {}

impl CudaStream {
    pub(super) fn new(kernels: Arc<Kernels>, stream: CUstream) -> Self {
        Self { kernels, stream, recorded: Vec::new(), reserved: Vec::new() }
    }

    /// The kernel, if it is loaded.
    fn loaded(&self, kernel: Kernel) -> Result<Loaded, CardError> {
        let why = || format!("{} is not loaded", kernel.name());
        self.kernels.of(kernel).ok_or_else(|| CardError::Refused { call: "launch", why: why() })
    }

    /// Room for a kernel whose blocks must all run at once.
    fn reserve(&self, kernel: Kernel, blocks: u32) -> Result<Reserved, CardError> {
        let per_multiprocessor = self.loaded(kernel)?.per_multiprocessor;
        self.kernels.residency.reserve(blocks, per_multiprocessor).map_err(|room| {
            let name = kernel.name();
            let why = format!("{name} needs {blocks} blocks at once, and there is room for {room}");
            CardError::Refused { call: "launch", why }
        })
    }

    /// A graph with one launch in it, made ready to run.
    ///
    /// # Safety
    /// As [`Stream::record`].
    unsafe fn instantiate(
        &self,
        graph: CUgraph,
        node: &CUDA_KERNEL_NODE_PARAMS,
    ) -> Result<CUgraphExec, CardError> {
        let (context, driver) = (self.kernels.context(), &self.kernels.context().driver);
        let mut added = std::ptr::null_mut();
        // SAFETY: writes one handle; no dependencies; the node's parameters are copied.
        let status =
            unsafe { (driver.graph_add_kernel)(&raw mut added, graph, std::ptr::null(), 0, node) };
        context.check("cuGraphAddKernelNode", status)?;
        let mut ready = std::ptr::null_mut();
        // SAFETY: writes one handle.
        let status = unsafe { (driver.graph_instantiate)(&raw mut ready, graph, 0) };
        context.check("cuGraphInstantiate", status)?;
        // SAFETY: the graph just made, and this stream.
        let status = unsafe { (driver.graph_upload)(ready, self.stream) };
        context.check("cuGraphUpload", status).inspect_err(|_| {
            // SAFETY: made above, and not launched.
            unsafe { (driver.graph_exec_destroy)(ready) };
        })?;
        Ok(ready)
    }
}

impl Stream for CudaStream {
    unsafe fn launch(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<(), CardError> {
        let Loaded { function, .. } = self.loaded(kernel)?;
        let facts = kernel.facts();
        let reserved = facts.resident.then(|| self.reserve(kernel, blocks)).transpose()?;
        let context = self.kernels.context();
        context.enter()?;
        let mut arguments = [params.cast_mut().cast::<c_void>()];
        // SAFETY: a loaded function of one argument, which is copied before the call returns; what
        // it points to is the caller's promise.
        let status = unsafe {
            (context.driver.launch)(
                function,
                blocks,
                1,
                1,
                facts.threads,
                1,
                1,
                facts.shared_bytes,
                self.stream,
                arguments.as_mut_ptr(),
                std::ptr::null_mut(),
            )
        };
        context.check("cuLaunchKernel", status)?;
        self.reserved.extend(reserved);
        Ok(())
    }

    unsafe fn record(
        &mut self,
        kernel: Kernel,
        blocks: u32,
        params: *const u8,
    ) -> Result<Recorded, CardError> {
        let Loaded { function, .. } = self.loaded(kernel)?;
        let (context, facts) = (self.kernels.context(), kernel.facts());
        context.enter()?;
        let mut arguments = [params.cast_mut().cast::<c_void>()];
        let node = CUDA_KERNEL_NODE_PARAMS {
            func: function,
            gridDimX: blocks,
            gridDimY: 1,
            gridDimZ: 1,
            blockDimX: facts.threads,
            blockDimY: 1,
            blockDimZ: 1,
            sharedMemBytes: facts.shared_bytes,
            kernelParams: arguments.as_mut_ptr(),
            extra: std::ptr::null_mut(),
            kern: std::ptr::null_mut(),
            ctx: std::ptr::null_mut(),
        };
        let mut graph = std::ptr::null_mut();
        // SAFETY: writes one handle; the flags must be 0, and are.
        let status = unsafe { (context.driver.graph_create)(&raw mut graph, 0) };
        context.check("cuGraphCreate", status)?;
        // SAFETY: the caller's promise; the arguments outlive the call.
        let ready = unsafe { self.instantiate(graph, &node) };
        // SAFETY: made above; what was made of it stays.
        let status = unsafe { (context.driver.graph_destroy)(graph) };
        let ready = ready?;
        self.recorded.push(ready);
        context.check("cuGraphDestroy", status)?;
        Ok(Recorded(self.recorded.len() - 1))
    }

    fn replay(&mut self, what: Recorded) -> Result<(), CardError> {
        let Some(ready) = self.recorded.get(what.0) else {
            return Err(CardError::Refused { call: "replay", why: "no such record".to_owned() });
        };
        let context = self.kernels.context();
        context.enter()?;
        // SAFETY: made in `record`, and there until drop; its kernel's memory is that caller's
        // promise.
        let status = unsafe { (context.driver.graph_launch)(*ready, self.stream) };
        context.check("cuGraphLaunch", status)
    }

    unsafe fn copy(&mut self, to: DevAddr, from: DevAddr, bytes: usize) -> Result<(), CardError> {
        let context = self.kernels.context();
        context.enter()?;
        // SAFETY: the caller's promise.
        let status = unsafe { (context.driver.memory_copy)(to.0, from.0, bytes, self.stream) };
        context.check("cuMemcpyAsync", status)
    }

    fn is_idle(&mut self) -> Result<bool, CardError> {
        // SAFETY: the stream is this context's, and there until drop.
        let idle = unsafe { self.kernels.context().is_idle(self.stream) }?;
        if idle {
            self.reserved.clear();
        }
        Ok(idle)
    }
}

impl Drop for CudaStream {
    fn drop(&mut self) {
        let context = self.kernels.context();
        // SAFETY: the stream is this context's, and still there.
        let idle = unsafe { context.wait(self.stream, DROP_WAIT_MAX) };
        if idle != Ok(true) {
            // Left alone, and so is all that its kernels may use.
            context.lose();
            return;
        }
        for ready in self.recorded.drain(..) {
            // SAFETY: made in `record`, idle, destroyed once.
            unsafe { (context.driver.graph_exec_destroy)(ready) };
        }
        // SAFETY: made for this object, idle, destroyed once.
        unsafe { (context.driver.stream_destroy)(self.stream) };
    }
}
