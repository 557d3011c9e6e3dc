//! NVIDIA GPUs, through the CUDA driver. The driver's library is loaded at run time: nothing of
//! CUDA is needed to build, and a machine without it gets an error, not a crash.

mod card;
mod environment;
mod context;
mod driver;
mod first;
mod kernels;
mod nvml;
mod probe;
mod ptx;
mod registered;
mod residency;
mod stream;

pub use card::CudaCard;
pub use environment::set_environment;
pub use nvml::Management;
pub use probe::{Device, ProbeError, Version, probe};
