//! Flags of the commands that look at a running gnomon.

use super::MetricsAddr;
use clap::Args;
use std::path::PathBuf;

/// Where to look.
#[derive(Debug, Clone, Args)]
pub struct WhereFlags {
    /// What its `--metrics` says: unix:PATH or ADDR:PORT.
    #[arg(long, value_name = "ADDRESS", env = "GNOMON_METRICS")]
    #[arg(default_value = "unix:/run/gnomon/metrics.sock")]
    pub server: MetricsAddr,

    /// The same, as the path of a Unix socket.
    #[arg(long, value_name = "PATH", conflicts_with = "server")]
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

    /// Print what metrics there are, in Markdown. Asks nobody.
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
