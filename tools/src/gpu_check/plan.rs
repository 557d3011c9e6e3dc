//! What is to be done: which steps, for how long, on what.

use crate::report::named;
use clap::ValueEnum;
use gpu::card::{Card, CardError};
use gpu::cuda::CudaCard;
use gpu::simt::SimtCard;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

named! {
    /// What runs the kernels.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
    pub enum Kind {
        /// The kernels on the processor.
        Simt = "simt",
        /// An NVIDIA GPU.
        Cuda = "cuda",
    }
}

impl Kind {
    /// The device of that number, as nvidia-smi -L counts.
    ///
    /// # Errors
    /// There is none, or what it says.
    pub fn open(self, device: u32) -> Result<Arc<dyn Card>, CardError> {
        Ok(match self {
            Self::Simt => Arc::new(SimtCard::default()),
            Self::Cuda => Arc::new(CudaCard::open(device)?),
        })
    }
}

named! {
    /// A step.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
    pub enum Step {
        /// Opens the device, and every kernel does a little of its work.
        Sanity = "sanity",
        /// What the device and the way to it can do.
        Roofs = "roofs",
        /// Index look-ups from and to the device's memory.
        Lookup = "lookup",
        /// The GPU stage from and to the host's memory, without work of the host for a request.
        Stage = "stage",
        /// How long batches take, alone and under load.
        Latency = "latency",
        /// The whole pipeline, with values and checked replies.
        EndToEnd = "end-to-end",
        /// The same with replies that the GPU writes whole, and items that change beside.
        Whole = "whole",
        /// Changes of the index beside GETs.
        Sets = "sets",
        /// GETs beside another user of the device.
        Consolidation = "consolidation",
        /// The kernels' tests.
        Parity = "parity",
        /// What calls of the driver cost.
        Driver = "driver",
        /// What the processor can do.
        Cpu = "cpu",
        /// A small case under NVIDIA's compute-sanitizer.
        Sanitizer = "sanitizer",
        /// The whole pipeline, by workers, batches and load.
        Study = "study",
    }
}

impl Step {
    /// Seconds of the [`MINUTES`] that are its.
    fn seconds(self) -> u64 {
        match self {
            Self::Sanity => 20,
            Self::Roofs => 50,
            Self::Lookup => 60,
            Self::Stage => 50,
            Self::Latency => 50,
            Self::EndToEnd => 40,
            Self::Whole => 40,
            Self::Sets => 20,
            Self::Consolidation => 20,
            Self::Parity => 45,
            Self::Driver => 15,
            Self::Cpu => 15,
            Self::Sanitizer => 30,
            Self::Study => 25,
        }
    }
}

/// Minutes for all steps, unless the flags say otherwise.
pub const MINUTES: f64 = 8.0;

/// What to do.
#[derive(Debug, Clone)]
pub struct Plan {
    /// What runs the kernels.
    pub card: Kind,
    /// Which device, as nvidia-smi -L counts them.
    pub device: u32,
    /// In this order.
    pub steps: Vec<Step>,
    /// Minutes for [`Step::ALL`]; what it is of [`MINUTES`], a step's time is of its own.
    pub minutes: f64,
    /// Time for these steps.
    pub left: Duration,
    /// The kernels' tests, as a program.
    pub parity: Option<PathBuf>,
    /// Items in the store.
    pub items: u64,
    /// Items in the index that look-ups are measured with.
    pub index_items: u64,
    /// Smallest sizes.
    pub tiny: bool,
    /// Where to write.
    pub out: PathBuf,
    /// End this process in that step, to see what comes of it.
    pub crash: Option<Step>,
}

impl Plan {
    /// A step's time.
    pub fn limit(&self, step: Step) -> Duration {
        Duration::from_secs(step.seconds()).mul_f64((self.minutes / MINUTES).clamp(0.01, 1000.0))
    }
}
