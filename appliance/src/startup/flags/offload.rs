//! Flags about the GPU beside the CPU: how batches get there, and the index on it.

use super::choices::{GPU_INDEX, GPU_MODE, one_of};
use super::values::from_one;
use clap::{Args, ValueEnum};
use gpu::index::IndexKind;
use gpu::offload::Mode;
use std::num::NonZeroU32;

/// How a GPU is used.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "GPU")]
pub struct OffloadFlags {
    /// How batches get to the GPU: a kernel launch each, a recorded launch repeated, or a kernel
    /// that stays and a doorbell.
    #[arg(long, value_name = "MODE", env = "GNOMON_GPU_MODE", default_value = "launch")]
    #[arg(value_parser = one_of(GPU_MODE))]
    pub gpu_mode: Mode,

    /// Which GPUs, as nvidia-smi -L and CUDA_VISIBLE_DEVICES count, with commas between: each has the whole index, and a
    /// worker uses the nearest.
    #[arg(long, value_name = "NUM", env = "GNOMON_GPU_DEVICE", default_value = "0")]
    #[arg(value_delimiter = ',')]
    pub gpu_device: Vec<u32>,

    /// The index on the GPU: sets of sixteen ways with keys in them, or buckets of eight cells of
    /// signatures.
    #[arg(long, visible_alias = "index", value_name = "KIND", env = "GNOMON_GPU_INDEX")]
    #[arg(default_value = "setassoc", value_parser = one_of(GPU_INDEX))]
    pub gpu_index: IndexKind,

    /// GPU memory for the index, in megabytes. Default: a quarter of the memory for items.
    #[arg(long, value_name = "MB", env = "GNOMON_INDEX_MEMORY")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub index_memory: Option<u32>,

    /// Length of a cycle of the index's updates, and of batches with --batch-mode periodic, in microseconds.
    #[arg(long, visible_alias = "gpu-cycle", value_name = "US", env = "GNOMON_INDEX_CYCLE")]
    #[arg(default_value = "200", value_parser = clap::value_parser!(u32).range(10..=1_000_000))]
    pub index_cycle: u32,

    /// Cycles from one batch of updates to the next.
    #[arg(long, value_name = "NUM", env = "GNOMON_INDEX_EVERY", default_value = "2")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub index_every: u32,

    /// GPU memory for whole replies, in megabytes, with --gpu-replies complete. Default: a quarter of the
    /// memory for items.
    #[arg(long, value_name = "MB", env = "GNOMON_GPU_VALUES")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub gpu_values: Option<u32>,

    /// What the GPU prepares of replies.
    #[arg(long, value_name = "WHAT", env = "GNOMON_GPU_REPLIES", default_value = "none")]
    pub gpu_replies: GpuRepliesFlag,

    /// With --gpu-mode persistent: as many blocks stay on the GPU as so many of its multiprocessors run at once, spread over
    /// all of them. Default: as many as batches may need, and no more than seven eighths.
    #[arg(long, value_name = "NUM", env = "GNOMON_GPU_SMS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub gpu_sms: Option<u32>,

    /// Longest time for a batch, in milliseconds; one that takes longer is the CPU's, and the GPU
    /// rests for a moment. Default: 5, or 10000 with --engine simt.
    #[arg(long, value_name = "MS", env = "GNOMON_GPU_DEADLINE")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=60_000))]
    pub gpu_deadline: Option<u32>,

    /// The CPU reads one of so many of the GPU's batches again, and compares.
    #[arg(long, value_name = "NUM", env = "GNOMON_GPU_VERIFY_RATIO", default_value = "1024")]
    #[arg(value_parser = from_one::<NonZeroU32>(u32::MAX.into()))]
    pub gpu_verify_ratio: NonZeroU32,
}

/// `--gpu-replies`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum GpuRepliesFlag {
    /// Nothing: it looks keys up, and the CPU writes replies.
    None,
    /// Their headers up to the value, where the index knows lengths and flags (MemcachedGPU).
    Headers,
    /// All of them, for gets of small values: the GPU has rows instead of an index.
    Complete,
}
