//! Flags about the process: how it runs, as whom, and what it may lock and leave behind.

use clap::Args;
use std::path::PathBuf;

/// How the process runs.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Process")]
pub struct ProcessFlags {
    /// Run in the background. Returns when it serves, or with the reason why it does not.
    #[arg(short, long)]
    pub daemon: bool,

    /// Write the process id to this file; removed at the end.
    #[arg(short = 'P', long, value_name = "FILE", env = "GNOMON_PIDFILE")]
    pub pidfile: Option<PathBuf>,

    /// Become this user once everything that needs root is open. Only root can.
    #[arg(short, long, value_name = "USER", env = "GNOMON_USER")]
    pub user: Option<String>,

    /// Allow core dumps, as large as may be.
    #[arg(short = 'r', long)]
    pub enable_coredumps: bool,

    /// Lock all memory, so that none of it is swapped out.
    #[arg(short = 'k', long)]
    pub lock_memory: bool,

    /// Keep files, addresses and system calls within reach that serving does not need.
    #[arg(long, env = "GNOMON_NO_SANDBOX")]
    #[arg(value_parser = clap::builder::BoolishValueParser::new())]
    pub no_sandbox: bool,

    /// Accepted: huge pages are taken where there are any. --huge decides.
    #[arg(short = 'L', long)]
    pub enable_largepages: bool,

    /// Print the license and end.
    #[arg(short = 'i', long)]
    pub license: bool,
}
