//! How many streams of a process run side by side.
//!
//! The driver gives a process 8 queues to a device unless `CUDA_DEVICE_MAX_CONNECTIONS` says
//! otherwise, and reads that once, when it is initialised. Streams that share a queue wait for each
//! other, behind a kernel that stays for ever; each worker has such a kernel.
#![allow(unsafe_code)]

use std::ffi::OsStr;

/// What the driver reads.
const NAME: &str = "CUDA_DEVICE_MAX_CONNECTIONS";
/// The most that it takes.
const MOST: &str = "32";

/// Has the driver make as many queues as it can, unless the environment says how many. For the
/// first line of `main`: a process that has other threads is left as it is. Says whether the
/// number is set now.
pub fn use_all_connections() -> bool {
    if std::env::var_os(NAME).is_some() {
        return true;
    }
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return false;
    }
    // SAFETY: this is the only thread, so that no other reads or writes the environment meanwhile.
    unsafe { std::env::set_var(NAME, MOST) };
    std::env::var_os(NAME).as_deref() == Some(OsStr::new(MOST))
}
