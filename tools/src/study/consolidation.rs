//! GETs beside another user of the GPU (MemcachedGPU 5.4): the step of [`crate::gpu_check`] by itself.
//!
//! In: a GPU, or the SIMT executor in its place, and a rate. Out: figures 6 and 7. On the executor, where
//! nothing has a priority and blocks have the processor's time, it shows that all of it works. Fails as the GPU
//! does.

use super::frame::{Common, Frame};
use super::tco::positive;
use crate::gpu_check::Extent;
use crate::gpu_check::consolidation::{self, GETS_PER_S};
use crate::gpu_check::lab::Lab;
use crate::gpu_check::plan::Kind;
use clap::Parser;
use std::error::Error;
use std::time::{Duration, Instant};

/// Items that are asked for.
const ITEMS: u64 = 1_000_000;
/// Longest time for everything.
const LONGEST: Duration = Duration::from_secs(300);

/// What is measured.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// What runs the kernels.
    #[arg(long, value_enum, default_value = "cuda")]
    card: Kind,
    /// Which device, as nvidia-smi -L counts them.
    #[arg(long, default_value_t = 0)]
    device: u32,
    /// GETs a second. Default: the paper's 4 million, or what the executor can do.
    #[arg(long, value_name = "NUM", value_parser = positive)]
    rate: Option<f64>,
}

impl Cli {
    /// Measures, prints and writes.
    ///
    /// # Errors
    /// What the GPU says.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("consolidation", &self.common)?;
        // On the executor, times mean nothing, and sizes are the smallest.
        let tiny = self.common.quick || self.card == Kind::Simt;
        let extent = Extent { tiny, until: Instant::now() + LONGEST };
        let card = self.card.open(self.device)?;
        let mut lab = Lab::new(&card, extent.pick(ITEMS, 1000), extent)?;
        let rate = self.rate.unwrap_or_else(|| extent.pick(GETS_PER_S, 1e4));
        consolidation::run(&mut lab, rate, extent, &mut frame.report)?;
        Ok(frame.end(consolidation::TABLES)?)
    }
}
