//! Worker threads, made known to DPDK.
#![allow(unsafe_code)]

use super::eal::{Eal, EalShared};
use super::error::{DpdkError, check};
use dpdk_ffi as ffi;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// Keeps the thread registered that made it. Drop it on that thread, after its queues.
pub struct RegisteredThread {
    // The thread that called rte_eal_init has its caches already.
    ours: bool,
    _eal: Arc<EalShared>,
    _not_send: PhantomData<*const ()>,
}

impl fmt::Debug for RegisteredThread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegisteredThread").finish_non_exhaustive()
    }
}

/// Gives the calling thread caches of free slots, so that it seldom touches the shared ring.
/// Any thread may use a region and queues without; it is only slower.
///
/// # Errors
/// [`DpdkError::Thread`]: more threads than DPDK supports.
pub fn register_thread(eal: &Eal) -> Result<RegisteredThread, DpdkError> {
    // SAFETY: the environment is up as long as `eal` is.
    let ours = match check(unsafe { ffi::gn_thread_register() }) {
        Ok(_) => true,
        Err(e) if e.raw_os_error() == Some(libc::EEXIST) => false,
        Err(source) => return Err(DpdkError::Thread { source }),
    };
    Ok(RegisteredThread { ours, _eal: Arc::clone(&eal.shared), _not_send: PhantomData })
}

impl Drop for RegisteredThread {
    fn drop(&mut self) {
        if self.ours {
            // SAFETY: this thread registered (the type is not Send) and only here unregisters.
            unsafe { ffi::gn_thread_unregister() };
        }
    }
}
