//! How a device is used: what start-up decides, and the bounds that the rest relies on.

use crate::index::IndexConfig;
use crate::params::HashKey;
use std::time::Duration;

/// How batches get to the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// A kernel launch for each.
    Launch,
    /// A launch that was recorded once for each slot of the ring, repeated.
    Graph,
    /// A kernel that stays, and a doorbell.
    Persistent,
}

impl Mode {
    /// The word for people and flags.
    pub fn name(self) -> &'static str {
        match self {
            Self::Launch => "launch",
            Self::Graph => "graph",
            Self::Persistent => "persistent",
        }
    }
}

/// How to use a device.
#[derive(Debug, Clone, Copy)]
pub struct OffloadConfig {
    /// How batches get there.
    pub mode: Mode,
    /// The index on it.
    pub index: IndexConfig,
    /// What keys are hashed with: the store's.
    pub hash_key: HashKey,
    /// Most engines at a time, 1 to [`crate::params::RINGS_MAX`].
    pub engines: usize,
    /// Most requests of a batch, 1 to [`crate::params::BATCH_MAX`].
    pub batch_max: usize,
    /// Most batches of one engine in flight, 1 to 16.
    pub in_flight_max: usize,
    /// Longest time for a batch. One that takes longer is given up, and the device rests.
    pub deadline: Duration,
    /// Longest time for the first batch of all, for which the driver may load things.
    pub start_deadline: Duration,
    /// Have reply headers made.
    pub heads: bool,
    /// Of a kernel that stays: no more blocks than so many multiprocessors run at once, which leaves the rest to
    /// other users of the device. At least two stay.
    pub multiprocessors: u32,
}

/// Most batches of one engine in flight.
pub(super) const IN_FLIGHT_MAX: usize = 16;

impl OffloadConfig {
    /// Slots of a ring: for batches in flight, and for late ones that the device still has.
    pub(super) fn ring_slots(&self) -> usize {
        (2 * self.in_flight_max).next_power_of_two()
    }
}
