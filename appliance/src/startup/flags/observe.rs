//! Flags of the commands that look at a running gnomon.

use super::MetricsAddr;
use super::values::from_one;
use clap::Args;
use dataplane::capture::{KeyPattern, PatternError};
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use wire::Cidr;
use wire::DropReason;

/// Where to look.
#[derive(Debug, Clone, Args)]
pub struct WhereFlags {
    /// What its `--metrics` says: unix:PATH or ADDR:PORT.
    #[arg(long, value_name = "ADDRESS", env = "GNOMON_METRICS")]
    #[arg(default_value = "unix:/run/gnomon/metrics.sock")]
    pub server: MetricsAddr,

    /// The same, as the path of a Unix socket; takes the place of --server.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl WhereFlags {
    /// The address that follows.
    pub fn address(&self) -> MetricsAddr {
        self.socket.clone().map_or_else(|| self.server.clone(), MetricsAddr::Unix)
    }
}

/// `gnomon stats`.
#[derive(Debug, Clone, Args)]
pub struct StatsFlags {
    /// Where to look.
    #[command(flatten)]
    pub at: WhereFlags,

    /// Only the samples of this metric: all of them, or, of one without labels, the value alone.
    pub name: Option<String>,

    /// Print what metrics there are, in Markdown. Needs no server.
    #[arg(long)]
    pub list: bool,
}

/// `gnomon top`.
#[derive(Debug, Clone, Args)]
pub struct TopFlags {
    /// Where to look.
    #[command(flatten)]
    pub at: WhereFlags,

    /// Seconds between two looks.
    #[arg(long, value_name = "SECONDS", default_value = "2")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=3600))]
    pub interval: u16,

    /// Print one screen and end.
    #[arg(long)]
    pub once: bool,
}

/// `gnomon capture`.
#[derive(Debug, Clone, Args)]
pub struct CaptureFlags {
    /// Where to look. Only over a Unix socket.
    #[command(flatten)]
    pub at: WhereFlags,

    /// Write to this file. Default, and with -: to standard output.
    #[arg(short, long, value_name = "FILE")]
    pub write: Option<PathBuf>,

    /// Only frames of clients in this network, and what is sent because of them.
    #[arg(long, value_name = "CIDR")]
    pub source: Option<Cidr>,

    /// Only requests that name a key that looks so, and what is sent because of them: * stands for
    /// any bytes or none, ? for any one.
    #[arg(long, value_name = "PATTERN", value_parser = key_pattern)]
    pub key: Option<KeyPattern>,

    /// Only frames that are dropped, each with the reason as its comment; or only those that are
    /// dropped for this reason.
    #[arg(long, value_name = "REASON", value_parser = drop_reason, num_args = 0..=1)]
    #[arg(conflicts_with = "replies")]
    pub drops: Option<Option<DropReason>>,

    /// Only what is sent.
    #[arg(long)]
    pub replies: bool,

    /// End after so many frames.
    #[arg(long, value_name = "NUM", value_parser = from_one::<NonZeroU64>(u64::MAX.into()))]
    pub count: Option<NonZeroU64>,

    /// End after so many seconds.
    #[arg(long, value_name = "SECONDS", value_parser = from_one::<NonZeroU32>(u32::MAX.into()))]
    pub seconds: Option<NonZeroU32>,

    /// Most bytes of each frame.
    #[arg(long, value_name = "BYTES", default_value = "2048")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=2048))]
    pub snaplen: u16,
}

fn key_pattern(text: &str) -> Result<KeyPattern, PatternError> {
    KeyPattern::new(text.as_bytes())
}

fn drop_reason(text: &str) -> Result<DropReason, String> {
    DropReason::named(text).ok_or_else(|| {
        let names: Vec<&str> = DropReason::ALL.into_iter().map(DropReason::name).collect();
        format!("no such reason; there are {}", names.join(", "))
    })
}
