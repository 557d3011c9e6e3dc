//! How a GPU is used, as planned.

use super::PlanError;
use crate::startup::flags::{Engine, GpuRepliesFlag, OffloadFlags};
use gpu::index::IndexKind;
use gpu::offload::Mode;
use serde::Serialize;
use std::collections::HashSet;
use std::num::NonZeroU32;

/// Share of the memory for items that an index on the GPU gets: enough for items of 200 bytes with
/// keys of 32 in sets, and for smaller ones in buckets.
const INDEX_SHARE: u64 = 4;
/// Least memory for an index.
const INDEX_LEAST_BYTES: u64 = 1 << 20;
/// Longest time for a batch: far above what any takes, and half of what clients may notice.
const DEADLINE_MS: u32 = 5;
/// The same where kernels are threads among others.
const DEADLINE_SIMT_MS: u32 = 10_000;

/// How a GPU is used.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct OffloadPlan {
    /// How batches get there.
    #[serde(serialize_with = "super::gpu_mode")]
    pub mode: Mode,
    /// Which GPUs.
    pub devices: Vec<u32>,
    /// The index on it.
    #[serde(serialize_with = "super::gpu_index")]
    pub index: IndexKind,
    /// Memory of each for that, in bytes.
    pub index_bytes: u64,
    /// Length of a cycle of its updates, in microseconds.
    pub cycle_us: u32,
    /// Cycles from one batch of updates to the next.
    pub every: u32,
    /// It prepares the headers of replies.
    pub headers: bool,
    /// Longest time for a batch, in milliseconds.
    pub deadline_ms: u32,
    /// Multiprocessors that a kernel that stays may fill: all, unless said.
    pub multiprocessors: Option<u32>,
    /// One of so many batches is read again by the CPU.
    pub verify_one_in: NonZeroU32,
}

impl OffloadPlan {
    /// For this engine, if it is one that uses a GPU.
    pub(super) fn new(
        flags: &OffloadFlags,
        engine: Engine,
        memory_bytes: u64,
    ) -> Result<Option<Self>, PlanError> {
        let mut seen = HashSet::new();
        if let Some(twice) = flags.gpu_device.iter().find(|device| !seen.insert(**device)) {
            return Err(PlanError::GpuTwice(*twice));
        }
        if flags.gpu_device.len() > 1 && flags.gpu_mode == Mode::Persistent {
            return Err(PlanError::PersistentOnSeveral);
        }
        if flags.gpu_sms.is_some() && flags.gpu_mode != Mode::Persistent {
            return Err(PlanError::MultiprocessorsOfLaunches);
        }
        let complete = flags.gpu_replies == GpuRepliesFlag::Complete;
        if complete && flags.index_memory.is_some() {
            return Err(PlanError::IndexBesideReplies);
        }
        if !complete && flags.gpu_values.is_some() {
            return Err(PlanError::ValuesWithoutReplies);
        }
        let deadline_ms = match engine {
            Engine::Cpu => return Ok(None),
            Engine::Auto | Engine::Gpu => DEADLINE_MS,
            Engine::Simt => DEADLINE_SIMT_MS,
        };
        let index = if complete { IndexKind::Rows } else { flags.gpu_index };
        let memory_mb = if complete { flags.gpu_values } else { flags.index_memory };
        let index_bytes = match memory_mb {
            Some(mb) => u64::from(mb) << 20,
            None => (memory_bytes / INDEX_SHARE).max(INDEX_LEAST_BYTES),
        };
        Ok(Some(Self {
            mode: flags.gpu_mode,
            devices: flags.gpu_device.clone(),
            index,
            index_bytes,
            cycle_us: flags.index_cycle,
            every: flags.index_every,
            headers: flags.gpu_replies == GpuRepliesFlag::Headers,
            deadline_ms: flags.gpu_deadline.unwrap_or(deadline_ms),
            multiprocessors: flags.gpu_sms,
            verify_one_in: flags.gpu_verify_ratio,
        }))
    }
}
