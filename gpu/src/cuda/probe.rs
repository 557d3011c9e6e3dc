//! Which GPUs there are.
//!
//! In: the machine. Out: [`Device`]s, or a [`ProbeError`] that says what to do. Makes no context
//! and takes no GPU memory; the driver's library stays loaded.
//!
//! cudarc panics when the library, or a function in it, is missing. So both are looked for before
//! anything is called.
#![allow(unsafe_code)]

use cudarc::driver::result::{self, DriverError, device};
use cudarc::driver::sys::{self, CUdevice_attribute};
use std::fmt;

/// Every function of the driver that [`probe`] calls, under the name that cudarc loads.
const FUNCTIONS: [&str; 7] = [
    "cuInit",
    "cuDriverGetVersion",
    "cuDeviceGetCount",
    "cuDeviceGet",
    "cuDeviceGetName",
    "cuDeviceTotalMem_v2",
    "cuDeviceGetAttribute",
];

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Device {
    /// The driver's name for it.
    pub name: String,
    /// Its memory, in bytes.
    pub memory_bytes: u64,
    /// What its hardware can do.
    pub compute_capability: Version,
    /// The newest CUDA that its driver can serve.
    pub cuda: Version,
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, memory_bytes, compute_capability, cuda } = self;
        let mb = memory_bytes >> 20;
        write!(f, "{name}, {mb} MB, compute capability {compute_capability}, CUDA {cuda}")
    }
}

/// A version as CUDA counts them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Before the point.
    pub major: i32,
    /// After the point.
    pub minor: i32,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// Why no GPU can be used. Each message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// The library is not found.
    #[error(
        "no NVIDIA driver on this machine (libcuda.so.1 is not found): install it, or pass it into the container"
    )]
    NoDriver,
    /// A library of that name that is another's, or broken.
    #[error(
        "libcuda has no function {0}, so it is not the NVIDIA driver's: take it out of the library path, or install the driver anew"
    )]
    NotTheDriver(&'static str),
    /// The library is there, and says no.
    #[error(
        "the NVIDIA driver refuses {call} ({code}): see what nvidia-smi and the kernel's log say"
    )]
    Refused {
        /// The function.
        call: &'static str,
        /// Its answer, by CUDA's name.
        code: String,
    },
    /// The driver works, with nothing to drive.
    #[error(
        "the NVIDIA driver finds no GPU: see nvidia-smi -L, CUDA_VISIBLE_DEVICES and who may open /dev/nvidia*"
    )]
    NoDevice,
}

/// Reads from the driver what there is. May take seconds: an idle GPU is woken up.
///
/// # Errors
/// No driver, a driver that does not work, or no GPU.
pub fn probe() -> Result<Vec<Device>, ProbeError> {
    look_first()?;
    result::init().map_err(refused("cuInit"))?;
    let cuda = driver_version()?;
    match device::get_count().map_err(refused("cuDeviceGetCount"))? {
        0 => Err(ProbeError::NoDevice),
        n => (0..n).map(|ordinal| describe(ordinal, cuda)).collect(),
    }
}

/// The library is there, and has what will be called.
fn look_first() -> Result<(), ProbeError> {
    // SAFETY: loads the driver's library, if there is one, whose initialisers require nothing.
    if !unsafe { sys::is_culib_present() } {
        return Err(ProbeError::NoDriver);
    }
    // SAFETY: as above; it is there, so this does not panic.
    let library = unsafe { sys::culib() };
    let lacks = |name: &&str| {
        // SAFETY: the symbol is looked up and dropped, never called or read.
        unsafe { library.get::<*const ()>(name.as_bytes()) }.is_err()
    };
    FUNCTIONS.into_iter().find(lacks).map_or(Ok(()), |name| Err(ProbeError::NotTheDriver(name)))
}

fn driver_version() -> Result<Version, ProbeError> {
    let mut version = 0;
    // SAFETY: writes one int, to a place that outlives the call.
    let status = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    status.result().map_err(refused("cuDriverGetVersion"))?;
    // 1000 × major + 10 × minor.
    Ok(Version { major: version / 1000, minor: version % 1000 / 10 })
}

fn describe(ordinal: i32, cuda: Version) -> Result<Device, ProbeError> {
    use CUdevice_attribute::{
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR as MAJOR,
        CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR as MINOR,
    };
    let handle = device::get(ordinal).map_err(refused("cuDeviceGet"))?;
    let name = device::get_name(handle).map_err(refused("cuDeviceGetName"))?;
    // SAFETY: the handle comes from cuDeviceGet.
    let bytes = unsafe { device::total_mem(handle) }.map_err(refused("cuDeviceTotalMem"))?;
    let attribute = |which| {
        // SAFETY: as above.
        unsafe { device::get_attribute(handle, which) }.map_err(refused("cuDeviceGetAttribute"))
    };
    let compute_capability = Version { major: attribute(MAJOR)?, minor: attribute(MINOR)? };
    Ok(Device { name, memory_bytes: bytes as u64, compute_capability, cuda })
}

/// The driver's answer to `call`. Without a GPU already cuInit refuses.
fn refused(call: &'static str) -> impl Fn(DriverError) -> ProbeError {
    move |DriverError(code)| match code {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => ProbeError::NoDevice,
        code => ProbeError::Refused { call, code: format!("{code:?}") },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    /// What the dynamic linker finds, without CUDA.
    fn has_driver() -> bool {
        let known = Command::new("/sbin/ldconfig").arg("-p").output().unwrap();
        String::from_utf8_lossy(&known.stdout).contains("libcuda.so")
    }

    #[test]
    fn no_driver_is_an_error_and_a_driver_is_not_overlooked() {
        let found = probe();
        assert_eq!(found == Err(ProbeError::NoDriver), !has_driver(), "{found:?}");
        assert!(!matches!(found, Err(ProbeError::NotTheDriver(_))), "{found:?}");
    }

    #[test]
    fn a_device_reads_so() {
        let device = Device {
            name: "NVIDIA X".to_owned(),
            memory_bytes: 8 << 30,
            compute_capability: Version { major: 9, minor: 0 },
            cuda: Version { major: 12, minor: 8 },
        };
        assert_eq!(device.to_string(), "NVIDIA X, 8192 MB, compute capability 9.0, CUDA 12.8");
    }
}
