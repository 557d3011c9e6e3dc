//! Everything between a worker and a device, the same for every device.
//!
//! ```text
//!  worker ── GpuEngine ── Ring ──► Grid: one kernel for all ──► the index on the device
//!  worker ── GpuEngine ── Ring ──►  (or a launch a batch)               ▲
//!                                      ▲ packets                     Updater ◄── feed
//! ```
//!
//! In: a device, the memory that packets lie in, and how to use them. Out: one [`Offload`], which
//! every engine and the index's updater share: the region mapped to the device, the index on it, and
//! the [`Fault`] that ends its use. Engines own what they submit; nothing here is locked while
//! packets are served. Fails: at start-up with a [`CardError`]; later by a fault, once and for all.

mod config;
mod custody;
mod engine;
mod grid;
mod recovery;
mod region;
mod ring;

pub use config::{Mode, OffloadConfig};
pub use custody::Fault;
pub use engine::GpuEngine;

use crate::card::{Card, CardError};
use crate::index::{FILTER_WORDS, Filter, IndexKind, Mirror};
use crate::memory::PacketMemory;
use crate::params::{BATCH_MAX, RINGS_MAX};
use config::IN_FLIGHT_MAX;
use custody::Custody;
use grid::Grid;
use recovery::Recovery;
use region::MappedRegion;
use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A device in use: what its engines and its updater share.
pub struct Offload {
    // In this order: kernels end, then what they use, then the device.
    /// In [`Mode::Persistent`].
    grid: Option<Arc<Grid>>,
    /// By which whole replies are accepted, where the device writes them.
    filter: Option<Arc<Filter>>,
    index: Mirror,
    region: MappedRegion,
    recovery: Recovery,
    custody: Arc<Custody>,
    card: Arc<dyn Card>,
    config: OffloadConfig,
    /// The store's clock, in seconds, as of the last turn of the updater.
    now: AtomicU32,
}

impl fmt::Debug for Offload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (mode, fault) = (self.config.mode, self.fault());
        f.debug_struct("Offload")
            .field("mode", &mode)
            .field("fault", &fault)
            .finish_non_exhaustive()
    }
}

impl Offload {
    /// Maps the packets to the device and makes an empty index on it. `keep` holds the packets'
    /// memory: it is released when no kernel can look there any more, or never.
    ///
    /// # Errors
    /// [`CardError`]: no memory, or no mapping.
    pub fn new(
        card: Arc<dyn Card>,
        packets: PacketMemory,
        keep: Box<dyn Any + Send + Sync>,
        config: OffloadConfig,
    ) -> Result<Arc<Self>, CardError> {
        let custody = Arc::new(Custody::new(card));
        let card: Arc<dyn Card> = Arc::clone(&custody) as _;
        let region = MappedRegion::new(&card, packets, keep)?;
        let index = Mirror::new(&card, config.index, config.hash_key)?;
        let config = OffloadConfig {
            engines: config.engines.clamp(1, RINGS_MAX),
            batch_max: config.batch_max.clamp(1, BATCH_MAX),
            in_flight_max: config.in_flight_max.clamp(1, IN_FLIGHT_MAX),
            ..config
        };
        let grid = match config.mode {
            Mode::Persistent => {
                let grid = Grid::new(&custody, &config, region.region(), index.params())?;
                let grid = Arc::new(grid);
                custody.guard(&(Arc::clone(&grid) as _));
                Some(grid)
            }
            Mode::Launch | Mode::Graph => None,
        };
        let (recovery, now) = (Recovery::new(config.deadline), AtomicU32::new(0));
        let filter = config.index.kind == IndexKind::Rows;
        let filter = filter.then(|| Arc::new(Filter::new(FILTER_WORDS)));
        Ok(Arc::new(Self { grid, filter, index, region, recovery, custody, card, config, now }))
    }

    /// How the device is used.
    pub fn config(&self) -> &OffloadConfig {
        &self.config
    }

    /// What ended the device's use, if anything has.
    pub fn fault(&self) -> Option<&Fault> {
        self.custody.fault()
    }

    /// Whether batches are sent to the device: it has not failed, and does not rest for having been
    /// late.
    pub fn is_open(&self) -> bool {
        self.fault().is_none() && self.recovery.is_open()
    }

    /// Times that the device rested for having been late.
    pub fn rests(&self) -> u64 {
        self.recovery.rests()
    }

    /// Ends the device's use, for every engine: the first fault counts. Batches in flight come back
    /// as lost.
    pub fn fail(&self, fault: Fault) {
        self.custody.fail(fault);
    }

    /// The index on the device.
    pub fn index(&self) -> &Mirror {
        &self.index
    }

    /// What says whether whole replies are still right, where the device writes them. A writer of a
    /// key raises it ([`crate::index::Feed::filtered`]).
    pub fn filter(&self) -> Option<&Arc<Filter>> {
        self.filter.as_ref()
    }

    /// What the device is called.
    pub fn card_name(&self) -> String {
        self.card.facts().name
    }

    /// Through which memory is taken beside its kernels.
    pub fn card(&self) -> &Arc<dyn Card> {
        &self.card
    }

    pub(crate) fn set_now(&self, seconds: u32) {
        self.now.store(seconds, Ordering::Relaxed);
    }

    fn now(&self) -> u32 {
        self.now.load(Ordering::Relaxed)
    }
}
