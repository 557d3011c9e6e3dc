//! Flags about connections and what clients may do, under memcached's letters.

use super::choices::{PROTOCOL, one_of};
use super::values::{FileMask, parse_delimiter};
use super::{Extended, ExtendedOptions};
use clap::Args;
use memcache::Dialects;
use std::path::PathBuf;

/// How clients connect, and what they may ask for.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Clients")]
pub struct ClientFlags {
    /// Serve the whole protocol on a Unix socket at this path, and nothing on TCP and UDP.
    #[arg(short = 's', long, value_name = "PATH", env = "GNOMON_UNIX_SOCKET")]
    pub unix_socket: Option<PathBuf>,

    /// Access mask of the Unix socket, in octal.
    #[arg(short = 'a', long, value_name = "MASK", env = "GNOMON_UNIX_MASK")]
    #[arg(default_value_t = FileMask::DEFAULT)]
    pub unix_mask: FileMask,

    /// Connections that may wait to be accepted.
    #[arg(short = 'b', long, value_name = "NUM", env = "GNOMON_LISTEN_BACKLOG")]
    #[arg(default_value = "1024", value_parser = clap::value_parser!(i32).range(0..))]
    pub listen_backlog: i32,

    /// Most requests of one connection answered before the others get a turn.
    #[arg(short = 'R', long, value_name = "NUM", env = "GNOMON_MAX_REQS_PER_EVENT")]
    #[arg(default_value = "20", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_reqs_per_event: u32,

    /// What connections speak. auto: by the first byte of each.
    #[arg(short = 'B', long, value_name = "NAME", env = "GNOMON_PROTOCOL")]
    #[arg(default_value = "auto", default_value_if("profile", "fpga", "binary"))]
    #[arg(value_parser = one_of(PROTOCOL))]
    pub protocol: Dialects,

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

    /// Refuse what shows keys: `lru_crawler metadump` and `mgdump`, `stats cachedump`, `detail` and
    /// `hotkeys`.
    #[arg(short = 'X', long)]
    pub disable_dumping: bool,

    /// Refuse `watch`.
    #[arg(short = 'W', long)]
    pub disable_watch: bool,

    /// Answer RDMA READs (RoCEv2, UDP port 4791) of clients that have connected a queue pair over
    /// TCP; docs/rdma.md. With --port alone, and not with -Z.
    #[arg(long, env = "GNOMON_RDMA")]
    #[arg(value_parser = clap::builder::BoolishValueParser::new())]
    pub rdma: bool,

    /// Let clients on this machine read items in the file of -e themselves, without a request;
    /// docs/shared-reads.md. Who may open that file can read every key and value in it.
    #[arg(long, env = "GNOMON_SHARED_READS")]
    #[arg(value_parser = clap::builder::BoolishValueParser::new())]
    pub shared_reads: bool,

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
    pub extended: Vec<ExtendedOptions>,

    /// Accepted: connections go to threads as they come, whatever queue of the NIC they are from.
    #[arg(short = 'N', long, value_name = "NUM", env = "GNOMON_NAPI_IDS")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub napi_ids: Option<u32>,

    /// Let clients of the binary protocol authenticate, too: by SASL (PLAIN), as the users of -Y,
    /// which it needs.
    #[arg(short = 'S', long)]
    pub enable_sasl: bool,

    /// Speak TLS on TCP, with the certificate of `-o ssl_chain_cert=FILE` and the key of `-o
    /// ssl_key=FILE`. Turns UDP off, unless `-U` asks for it. SIGHUP reads the files again.
    #[arg(short = 'Z', long)]
    pub enable_ssl: bool,
}

impl ClientFlags {
    /// The options of every `-o`, in order.
    pub fn options(&self) -> impl DoubleEndedIterator<Item = &Extended> {
        self.extended.iter().flat_map(|of_one| &of_one.0)
    }
}
