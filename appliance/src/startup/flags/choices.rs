//! Flags that choose one of a few words. Each word stands for the very value that the layer below
//! takes, so that no enum is written twice.

use clap::ValueEnum;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use dataplane::stages::batch::BatchMode;
use driver_shim::Pages;
use gpu::index::IndexKind;
use gpu::offload::Mode;
use memcache::{Dialect, Dialects};
use serde::Serialize;
use store::Eviction;

/// The word, its help, and what it stands for.
type Choice<T> = (&'static str, &'static str, T);

/// `--huge`.
pub(super) const HUGE: &[Choice<Pages>] = &[
    ("auto", "Where there are any", Pages::Prefer),
    ("on", "Or do not start", Pages::Require),
    ("off", "Ordinary pages", Pages::Small),
];

/// `--batch-mode`.
pub(super) const BATCH_MODE: &[Choice<BatchMode>] = &[
    (
        "adaptive",
        "Never wait for a batch to fill when there is nothing better to do",
        BatchMode::Adaptive,
    ),
    ("fixed", "Wait until it is full, or a deadline passes", BatchMode::Fixed),
    ("periodic", "Wait until it is full, or its cycle ends (Mega-KV)", BatchMode::Periodic),
];

/// `--energy`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub enum Energy {
    /// Read no meter.
    Off,
    /// Show in metrics what the machine takes.
    Report,
    /// The same, and workers on a NIC sleep for 40 microseconds when nothing has come, instead of looking on.
    Manage,
}

/// `-B`.
pub(super) const PROTOCOL: &[Choice<Dialects>] = &[
    ("auto", "The first byte selects", Dialects::Auto),
    ("ascii", "The text protocol", Dialects::Only(Dialect::Ascii)),
    ("binary", "The binary protocol", Dialects::Only(Dialect::Binary)),
];

/// `--gpu-mode`.
pub(super) const GPU_MODE: &[Choice<Mode>] = &[
    ("launch", "A kernel launch for each batch", Mode::Launch),
    ("graph", "A recorded launch, repeated", Mode::Graph),
    ("persistent", "A kernel that stays, and a doorbell", Mode::Persistent),
];

/// `--gpu-index`.
pub(super) const GPU_INDEX: &[Choice<IndexKind>] = &[
    ("setassoc", "Sixteen ways a set, 8-bit tags, keys inline (MemcachedGPU)", IndexKind::SetAssoc),
    ("cuckoo", "Eight cells a bucket, 32-bit signatures (Mega-KV)", IndexKind::Cuckoo),
];

/// `--evict`.
pub(super) const EVICTION: &[Choice<Eviction>] = &[
    ("clock", "One that was not read lately", Eviction::Clock),
    ("round-robin", "The next one in the class, read or not", Eviction::RoundRobin),
];

/// Accepts the words of `choices`.
pub(super) fn one_of<T: Copy + Send + Sync + 'static>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let words = choices.iter().map(|(word, help, _)| PossibleValue::new(*word).help(*help));
    PossibleValuesParser::new(words).try_map(move |typed| {
        let chosen = choices.iter().find(|(word, ..)| *word == typed);
        chosen.map(|(.., value)| *value).ok_or("not one of the words")
    })
}
