//! What the driver takes from the environment, which it reads once, when it is initialised.
//!
//! `CUDA_DEVICE_MAX_CONNECTIONS`: how many streams of a process run side by side. The driver gives a process 8 queues
//! to a device by itself, and streams that share a queue wait for each other, behind a kernel that stays for ever; each
//! worker has such a kernel. `CUDA_DEVICE_ORDER`: how devices are counted. The driver counts the fastest first by itself;
//! `nvidia-smi -L`, and so `--gpu-device`, by their places on the bus.
#![allow(unsafe_code)]

/// What is set, unless it is set already.
const SETTINGS: [(&str, &str); 2] =
    [("CUDA_DEVICE_MAX_CONNECTIONS", "32"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")];

/// Sets all of it that the environment does not say otherwise. For the first line of `main`: a process that has other
/// threads is left as it is. Says whether all is set now.
pub fn set_environment() -> bool {
    let missing = || SETTINGS.iter().filter(|(name, _)| std::env::var_os(name).is_none());
    let threads = std::fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads == 1 {
        for (name, value) in missing() {
            // SAFETY: this is the only thread, so that no other reads or writes the environment meanwhile.
            unsafe { std::env::set_var(name, value) };
        }
    }
    missing().next().is_none()
}
