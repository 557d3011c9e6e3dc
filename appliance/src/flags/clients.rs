//! Flags about connections and what clients may do, under memcached's letters.

use super::Extended;
use super::values::{FileMask, parse_delimiter};
use clap::{Args, ValueEnum};
use dataplane::protocol;
use serde::Serialize;
use std::path::PathBuf;

/// How clients connect, and what they may ask for.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Clients")]
pub struct ClientFlags {
    /// Serve the whole protocol on a Unix socket at this path, and nothing on TCP and UDP.
    #[arg(short = 's', long, value_name = "PATH", env = "GNOMON_UNIX_SOCKET")]
    pub unix_socket: Option<PathBuf>,

    /// Access mask of the Unix socket, in octal.
    #[arg(short = 'a', long, value_name = "MASK", env = "GNOMON_UNIX_MASK", default_value = "700")]
    pub unix_mask: FileMask,

    /// Connections that may wait to be accepted.
    #[arg(short = 'b', long, value_name = "NUM", env = "GNOMON_LISTEN_BACKLOG")]
    #[arg(default_value = "1024", value_parser = clap::value_parser!(i32).range(0..))]
    pub listen_backlog: i32,

    /// Most requests of one connection answered before the others get a turn.
    #[arg(short = 'R', long, value_name = "NUM", env = "GNOMON_MAX_REQS_PER_EVENT")]
    #[arg(default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_reqs_per_event: u32,

    /// What connections speak. auto: the first byte of each tells.
    #[arg(short = 'B', long, value_name = "NAME", env = "GNOMON_PROTOCOL")]
    #[arg(default_value = "auto")]
    pub protocol: Dialect,

    /// Serve only clients that authenticate with a line `user:password` of this file. Turns UDP
    /// off. SIGHUP reads the file again.
    #[arg(short = 'Y', long, value_name = "FILE", env = "GNOMON_AUTH_FILE")]
    pub auth_file: Option<PathBuf>,

    /// Give items no CAS numbers.
    #[arg(short = 'C', long)]
    pub disable_cas: bool,

    /// Refuse `flush_all`.
    #[arg(short = 'F', long)]
    pub disable_flush_all: bool,

    /// Allow the command `shutdown`.
    #[arg(short = 'A', long)]
    pub enable_shutdown: bool,

    /// Refuse `lru_crawler metadump` and `stats cachedump`.
    #[arg(short = 'X', long)]
    pub disable_dumping: bool,

    /// Refuse `watch`.
    #[arg(short = 'W', long)]
    pub disable_watch: bool,

    /// What separates prefixes within a key, for `flush_prefix`.
    #[arg(short = 'D', long, value_name = "CHAR", env = "GNOMON_PREFIX_DELIMITER")]
    #[arg(default_value = ":", value_parser = parse_delimiter)]
    pub prefix_delimiter: u8,

    /// Longest time, in seconds, for answering what TCP clients have sent when the service stops.
    #[arg(long, value_name = "NUM", env = "GNOMON_DRAIN_SECONDS", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u32).range(0..=3600))]
    pub drain_seconds: u32,

    /// memcached's extended options, separated by commas; see docs/operations.md.
    #[arg(short = 'o', long, value_name = "OPTIONS", env = "GNOMON_EXTENDED")]
    #[arg(value_delimiter = ',')]
    pub extended: Vec<Extended>,

    /// Accepted: connections go to threads as they come, whatever queue of the NIC they are from.
    #[arg(short = 'N', long, value_name = "NUM", env = "GNOMON_NAPI_IDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub napi_ids: Option<u32>,

    /// Refused: there is no SASL.
    #[arg(short = 'S', long, hide = true)]
    pub enable_sasl: bool,

    /// Refused: there is no TLS.
    #[arg(short = 'Z', long, hide = true)]
    pub enable_ssl: bool,
}

/// What connections speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Dialect {
    /// The first byte tells.
    Auto,
    /// The text protocol.
    Ascii,
    /// The binary protocol.
    Binary,
}

impl From<Dialect> for protocol::Dialects {
    fn from(typed: Dialect) -> Self {
        match typed {
            Dialect::Auto => Self::Auto,
            Dialect::Ascii => Self::Only(protocol::Dialect::Ascii),
            Dialect::Binary => Self::Only(protocol::Dialect::Binary),
        }
    }
}
