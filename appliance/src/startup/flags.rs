//! What was typed: the command line and the `GNOMON_*` environment, syntax checked, nothing more.
//!
//! In: arguments. Out: [`ServeFlags`]. Whether they make sense together, and on this machine, is
//! the business of [`crate::startup::plan`]. Letters that memcached has mean what they mean there.

mod choices;
mod clients;
mod config;
mod environment;
mod extended;
mod observe;
mod offload;
mod policy;
mod process;
mod values;

pub use clients::ClientFlags;
pub use config::ConfigError;
pub use extended::{Extended, ExtendedOptions, KeyFormat, Ssl};
pub use observe::{CaptureFlags, StatsFlags, TopFlags, WhereFlags};
pub use offload::{GpuRepliesFlag, OffloadFlags};
pub use policy::{Limits, PingLimit, PolicyFlags, RateLimit};
pub use process::ProcessFlags;
use values::from_one;
pub use values::{
    ExceptionPathFlag, FileMask, IpFlag, ListenAddr, ListenAddrs, ListenTls, MetricsAddr, Network,
    NodeFlag, PortSpec, ServicePort,
};

use crate::host::cpu_list::CpuList;
use crate::host::pci::PciAddress;
pub use choices::Energy;
use choices::{BATCH_MODE, EVICTION, HUGE, one_of};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use dataplane::stages::batch::BatchMode;
use dataplane::stages::exits::exception_path::RATE_PPS_DEFAULT;
use driver_shim::Pages;
use serde::Serialize;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use store::{Eviction, SlabPages};
use values::{parse_megabytes, parse_size, parse_slab_pages, parse_watts};

/// The version for people: release, commit and compiler.
pub const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("GNOMON_COMMIT"),
    ", ",
    env!("GNOMON_RUSTC"),
    ")"
);

/// What `-i` prints.
const LICENSE: &str = concat!(
    "gnomon ",
    env!("CARGO_PKG_VERSION"),
    "\n\nLicensed under the MIT license below or the Apache License 2.0, as you like.\n\n",
    include_str!("../../../LICENSE-MIT")
);

/// A kernel-bypass, memcached-compatible key-value appliance.
///
/// Flags without a command mean `serve`: `gnomon -p 11211 -m 64` works as with memcached.
#[derive(Debug, Parser)]
#[command(name = "gnomon", version = LONG_VERSION, subcommand_required = true)]
#[command(after_help = "`gnomon serve --help` lists the flags.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the memcached protocol over UDP and TCP until it is stopped.
    Serve(Box<ServeFlags>),
    /// Report whether this machine is fit for `serve` with the same flags, and what mends it. Exit
    /// code 1 when something failed. Changes nothing.
    Check(Box<ServeFlags>),
    /// Take a NIC from the kernel and give it to vfio-pci, for --port. Refuses the one that carries
    /// the default route.
    Bind {
        /// Its PCI address (0000:81:00.0).
        #[arg(value_name = "ADDRESS")]
        nic: PciAddress,
    },
    /// Give a NIC back to the driver that it had before `bind`.
    Unbind {
        /// Its PCI address (0000:81:00.0).
        #[arg(value_name = "ADDRESS")]
        nic: PciAddress,
    },
    /// Print the metrics of a running gnomon, for scripts. Exit code 1 when there is none of that
    /// name.
    Stats(StatsFlags),
    /// Watch a running gnomon: rates, durations, workers, drops.
    Top(TopFlags),
    /// Write frames of a running gnomon as pcapng, for Wireshark, while it serves. Exit code 1 when
    /// it refuses.
    Capture(CaptureFlags),
    /// Write the manual pages into a directory.
    Man {
        /// The directory; it must exist.
        #[arg(value_name = "DIR", required_unless_present = "markdown")]
        dir: Option<PathBuf>,
        /// Print docs/configuration.md instead: every flag of every command, in Markdown.
        #[arg(long, conflicts_with = "dir")]
        markdown: bool,
    },
    /// Print the completions for a shell.
    Completions {
        /// The shell.
        #[arg(value_name = "SHELL")]
        shell: clap_complete::Shell,
    },
}

impl Cli {
    /// Parses the process's arguments. Prints help, the version or what is wrong, and ends the
    /// process, where that is all there is to do.
    ///
    /// # Errors
    /// What is wrong with the file of `--config`.
    pub fn from_args() -> Result<Asked, ConfigError> {
        let root = environment::usable(Self::command());
        let merged = config::merge(&root, with_default_command(std::env::args_os()))?;
        let matches = root.clone().try_get_matches_from(&merged.args);
        let matches =
            matches.unwrap_or_else(|error| environment::named(root.clone(), error).exit());
        if let Some((name, typed)) = matches.subcommand()
            && let Some(command) = root.find_subcommand(name)
            && typed.try_get_one::<bool>("print_config").is_ok_and(|flag| flag == Some(&true))
        {
            return Ok(Asked::Print(config::print(command, typed, &merged)));
        }
        let cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        match cli.command {
            Command::Serve(flags) if flags.process.license => Ok(Asked::Print(LICENSE.to_owned())),
            command => Ok(Asked::Do { command, notes: merged.notes }),
        }
    }
}

/// What the process is asked.
#[derive(Debug)]
pub enum Asked {
    /// To do something.
    Do {
        /// What.
        command: Command,
        /// What the file of flags has that has no effect.
        notes: Vec<String>,
    },
    /// To print this.
    Print(String),
}

/// Puts `serve` in front when the first argument is a flag of its own, or when there is none.
fn with_default_command(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args: Vec<OsString> = args.into_iter().collect();
    let bare = match args.get(1).and_then(|a| a.to_str()) {
        None => args.len() <= 1,
        Some("-h" | "--help" | "-V" | "--version") => false,
        Some(first) => first.starts_with('-'),
    };
    if bare {
        args.insert(1.min(args.len()), "serve".into());
    }
    args
}

/// Flags of `gnomon serve`.
#[derive(Debug, Clone, Parser)]
#[command(version = LONG_VERSION, args_override_self = true)]
pub struct ServeFlags {
    /// TCP port; 0 turns TCP off, -1 takes any free port. Default: that of -U, or 11211.
    #[arg(short = 'p', long, value_name = "NUM", env = "GNOMON_TCP_PORT")]
    #[arg(allow_negative_numbers = true)]
    pub tcp_port: Option<ServicePort>,

    /// UDP port; 0 turns UDP off, -1 takes any free port. Default: that of -p, or 11211; off with
    /// -Y or -Z.
    #[arg(short = 'U', long, value_name = "NUM", env = "GNOMON_UDP_PORT")]
    #[arg(allow_negative_numbers = true)]
    pub udp_port: Option<ServicePort>,

    /// Kernel address to listen on, ADDR or ADDR:PORT (IPv6 in brackets before a port), a name or *
    /// for all; several with , or ; between them; may be repeated. TCP listens there, and UDP too when
    /// there is no --port. Default: 127.0.0.1, and ::1 where the machine has it and neither -p nor -U is -1.
    #[arg(short, long, value_name = "ADDR", env = "GNOMON_LISTEN")]
    pub listen: Vec<ListenAddrs>,

    /// Memory for items, in megabytes; an m behind the number is understood.
    #[arg(short, long = "memory-limit", visible_alias = "memory", value_name = "MB")]
    #[arg(env = "GNOMON_MEMORY", default_value = "64", value_parser = parse_megabytes)]
    pub memory: u64,

    /// Keep items in this file, in a tmpfs or hugetlbfs: after SIGUSR1 the next start with the same
    /// file, -m, -I, -f, -n and --slab-pages finds them there.
    #[arg(short = 'e', long, value_name = "FILE", env = "GNOMON_MEMORY_FILE")]
    pub memory_file: Option<PathBuf>,

    /// TCP threads.
    #[arg(short, long, value_name = "NUM", env = "GNOMON_THREADS")]
    #[arg(default_value_t = Self::THREADS_DEFAULT, value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// Largest item, in bytes; k and m are understood.
    #[arg(short = 'I', long, value_name = "SIZE", env = "GNOMON_MAX_ITEM_SIZE")]
    #[arg(default_value = "1m", value_parser = parse_size)]
    pub max_item_size: u64,

    /// Most TCP connections at a time.
    #[arg(short, long, value_name = "NUM", env = "GNOMON_CONN_LIMIT", default_value = "1024")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub conn_limit: u32,

    /// Most memory for requests that came in part and replies that were not taken, of all TCP
    /// connections, in bytes; k and m are understood. Default: an eighth of -m, at least 16 MB and
    /// 4/3 of -I, and 5 KB for each of -c and 1 MB for each of -t.
    #[arg(long, value_name = "SIZE", env = "GNOMON_CONN_MEMORY", value_parser = parse_size)]
    pub conn_memory: Option<u64>,

    /// When memory is full, answer with an error instead of evicting items.
    #[arg(short = 'M', long)]
    pub disable_evictions: bool,

    /// Size ratio between neighbouring slab classes.
    #[arg(short = 'f', long, value_name = "FACTOR", env = "GNOMON_SLAB_GROWTH_FACTOR")]
    #[arg(default_value = "1.25", default_value_if("profile", "fpga", "2"))]
    pub slab_growth_factor: f64,

    /// Space for key, value and flags that the smallest chunk has at least, in bytes. Default: the
    /// smallest chunk that there can be.
    #[arg(short = 'n', long, value_name = "BYTES", env = "GNOMON_SLAB_MIN_SIZE")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub slab_min_size: Option<u32>,

    /// Slab classes and the pages of 2 MB that each has from the start and keeps, smallest first
    /// (64:2,128:8). SIZE is that of a chunk with the item's header, in bytes, a multiple of 64; k
    /// and m are understood. Takes the place of -f and -n, and no more of -m than these pages.
    #[arg(long, value_name = "SIZE:PAGES,...", env = "GNOMON_SLAB_PAGES")]
    #[arg(value_parser = parse_slab_pages)]
    #[arg(conflicts_with_all = ["slab_growth_factor", "slab_min_size"])]
    pub slab_pages: Option<SlabPages>,

    /// Which item of a slab class makes room when memory is full.
    #[arg(long, value_name = "POLICY", env = "GNOMON_EVICT", default_value = "clock")]
    #[arg(default_value_if("profile", "fpga", "round-robin"), value_parser = one_of(EVICTION))]
    #[arg(conflicts_with = "disable_evictions")]
    pub evict: Eviction,

    /// Serve as the appliance of a paper does. fpga: -B binary, UDP, -f 2, --slab-pages with an
    /// equal part of -m for each size from 64 bytes to -I, --evict round-robin, and --batch 1. -B,
    /// -U, --slab-pages, --evict and --batch win over it; refused beside it are -M, -n, an -f that
    /// is not 2, and a size of --slab-pages that is no power of two.
    #[arg(long, value_name = "NAME", env = "GNOMON_PROFILE")]
    #[arg(conflicts_with_all = ["disable_evictions", "slab_min_size"])]
    pub profile: Option<Profile>,

    /// Say more on standard error: -v what happens, -vv in detail.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Connections.
    #[command(flatten)]
    pub clients: ClientFlags,

    /// The process.
    #[command(flatten)]
    pub process: ProcessFlags,

    /// Serve this port: a NIC by its PCI address (0000:81:00.0), or a DPDK virtual device
    /// (net_tap0,iface=gnomon0). May be repeated. Without it: kernel sockets at --listen.
    #[arg(long, value_name = "SPEC", env = "GNOMON_PORT")]
    #[arg(value_delimiter = ';', help_heading = "Ports")]
    pub port: Vec<PortSpec>,

    /// Address of a --port and its subnet, ADDR/LEN; may be repeated, IPv4 and IPv6. With several
    /// ports say which: INDEX=ADDR/LEN, the first --port being 0.
    #[arg(long, value_name = "[INDEX=]ADDR/LEN", env = "GNOMON_IP")]
    #[arg(value_delimiter = ',', help_heading = "Ports")]
    pub ip: Vec<IpFlag>,

    /// Where frames go that are not for the key-value service: a kernel TAP device, or none. Default: tap with a --port, none without.
    #[arg(long, value_name = "tap[=NAME]|none", env = "GNOMON_SIDE_DOOR", help_heading = "Ports")]
    pub side_door: Option<ExceptionPathFlag>,

    /// Isolated mode: only the service's frames to a --port's addresses come to gnomon, and the kernel
    /// keeps the rest, ARP, ping and ssh among them. By itself for a NIC whose driver in the kernel
    /// shares it (mlx5, mlx4) and whose interface has those addresses; or do not start without; or
    /// never.
    #[arg(long, value_name = "WHEN", env = "GNOMON_ISOLATED")]
    #[arg(default_value = "auto", help_heading = "Ports")]
    pub isolated: Isolated,

    /// Frames per second that may go to the kernel's TAP device, and as many from it.
    #[arg(long, value_name = "PPS", env = "GNOMON_EXCEPTION_RATE")]
    #[arg(default_value_t = RATE_PPS_DEFAULT, value_parser = from_one::<NonZeroU32>(u32::MAX.into()), help_heading = "Ports")]
    pub exception_rate: NonZeroU32,

    /// Who serves TCP on a --port: the workers, or the kernel, behind the TAP device and within
    /// --exception-rate. Default: worker.
    #[arg(long, value_name = "WHO", env = "GNOMON_TCP", help_heading = "Ports")]
    pub tcp: Option<TcpIn>,

    /// Packet slots of 2 KB each. Default: by the number of queues.
    #[arg(long, value_name = "NUM", env = "GNOMON_SLOTS", help_heading = "Ports")]
    pub slots: Option<u32>,

    /// Who is answered over UDP, and how much.
    #[command(flatten)]
    pub policy: PolicyFlags,

    /// CPUs that serve packets, one worker each (2-7,10). Default: every allowed CPU but the
    /// control core; of the NICs' NUMA node, where there are several; at most four without --port.
    #[arg(long, value_name = "LIST", env = "GNOMON_CORES", help_heading = "Machine")]
    pub cores: Option<CpuList>,

    /// CPU of the control plane. Default: the first allowed CPU that serves no packets.
    #[arg(long, value_name = "CPU", env = "GNOMON_CONTROL_CORE", help_heading = "Machine")]
    pub control_core: Option<usize>,

    /// Huge pages for packets and items: where there are any, required, or never.
    #[arg(long, value_name = "WHEN", env = "GNOMON_HUGE")]
    #[arg(default_value = "auto", value_parser = one_of(HUGE), help_heading = "Machine")]
    pub huge: Pages,

    /// NUMA node of memory and, unless --cores says otherwise, workers: the NICs' where they share
    /// one, the one of this number, or off for wherever the kernel likes. split: each node serves its own NICs
    /// out of its own packet memory, and items lie on all of them in turn.
    #[arg(long, value_name = "auto|off|split|NODE", env = "GNOMON_NUMA_NODE")]
    #[arg(default_value = "auto", help_heading = "Machine")]
    pub numa_node: NodeFlag,

    /// What looks requests up: the CPU with a GPU's help where there is one, the CPU alone, a GPU
    /// alone, or the GPU's kernels on the CPU (for tests).
    #[arg(long, value_name = "ENGINE", env = "GNOMON_ENGINE")]
    #[arg(default_value = "auto", help_heading = "Machine")]
    pub engine: Engine,

    /// Most requests per batch.
    #[arg(long, value_name = "NUM", env = "GNOMON_BATCH", default_value = "512")]
    #[arg(default_value_if("profile", "fpga", "1"), help_heading = "Machine")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,

    /// When a batch goes: as soon as the engine is free, or only when full or overdue, or at the end of each
    /// cycle of --index-cycle.
    #[arg(long, visible_alias = "gpu-schedule", value_name = "MODE", env = "GNOMON_BATCH_MODE")]
    #[arg(default_value = "adaptive", value_parser = one_of(BATCH_MODE), help_heading = "Machine")]
    pub batch_mode: BatchMode,

    /// The GPU.
    #[command(flatten)]
    pub offload: OffloadFlags,

    /// Serve metrics at http://ADDR:PORT/metrics, or at /metrics on a Unix socket; * is all addresses.
    /// Keep a TCP address to a network that you trust.
    #[arg(long, value_name = "unix:PATH|ADDR:PORT", env = "GNOMON_METRICS")]
    #[arg(help_heading = "Output")]
    pub metrics: Option<MetricsAddr>,

    /// What is done about the power that the machine takes.
    #[arg(long, value_name = "WHAT", env = "GNOMON_ENERGY")]
    #[arg(default_value = "report", help_heading = "Machine")]
    pub energy: Energy,

    /// Power that no meter shows, in watts: disks, fans, what the power supply loses. It is added to what
    /// processors, memory and GPUs take in the metrics of energy.
    #[arg(long, value_name = "WATTS", env = "GNOMON_BASE_WATTS", help_heading = "Output")]
    #[arg(value_parser = parse_watts)]
    pub base_watts: Option<f64>,

    /// Read flags from this file, one a line; the command line and the environment win.
    #[arg(long, value_name = "FILE", env = "GNOMON_CONFIG", help_heading = "Output")]
    pub config: Option<PathBuf>,

    /// Print every setting that is not the default and where it comes from, as a file for
    /// --config, and end.
    #[arg(long, help_heading = "Output")]
    pub print_config: bool,

    /// Print for programs: the plan as JSON, the ready line and the final report as JSON lines.
    #[arg(long, env = "GNOMON_JSON", help_heading = "Output")]
    #[arg(value_parser = clap::builder::BoolishValueParser::new())]
    pub json: bool,

    /// Check everything, print the plan, touch nothing.
    #[arg(long, help_heading = "Output")]
    pub dry_run: bool,

    /// Arguments for DPDK's environment abstraction layer, after `--`.
    #[arg(last = true, value_name = "EAL", help_heading = None::<&'static str>)]
    pub eal: Vec<String>,
}

impl ServeFlags {
    /// That of `-t`, as in memcached.
    pub const THREADS_DEFAULT: u16 = 4;

    /// Who serves TCP on a `--port`.
    pub fn tcp_in(&self) -> TcpIn {
        self.tcp.unwrap_or(if self.port.is_empty() { TcpIn::Kernel } else { TcpIn::Worker })
    }

    /// The kernel addresses to listen on, where any are given.
    pub fn listening(&self) -> impl Iterator<Item = &ListenAddr> {
        self.listen.iter().flat_map(|ListenAddrs(all)| all)
    }
}

/// `--profile`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Profile {
    /// The FPGA's (Chalamalasetti et al., An FPGA Memcached appliance, FPGA 2013).
    Fpga,
}

/// `--tcp`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TcpIn {
    /// The kernel, through the TAP device.
    Kernel,
    /// The workers, in the data path.
    Worker,
}

/// `--isolated`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolated {
    /// Where the driver takes it.
    Auto,
    /// Or do not start.
    On,
    /// Every frame comes to gnomon.
    Off,
}

/// `--engine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// The CPU, and a GPU beside it where there is one and whenever it is quicker.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, for everything, as long as it works.
    Gpu,
    /// The GPU's kernels, run on the CPU, for everything.
    Simt,
}

impl Engine {
    /// The word that `--engine` takes.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Auto => "auto",
            Self::Gpu => "gpu",
            Self::Simt => "simt",
        }
    }
}

#[cfg(test)]
pub(crate) fn parse(args: &[&str]) -> Result<ServeFlags, clap::Error> {
    let args = std::iter::once("gnomon").chain(args.iter().copied()).map(OsString::from);
    match Cli::try_parse_from(with_default_command(args))?.command {
        Command::Serve(flags) => Ok(*flags),
        other => panic!("{other:?}"),
    }
}

#[cfg(test)]
mod tests;
