//! What was typed: the command line and the `GNOMON_*` environment, syntax checked, nothing more.
//!
//! In: arguments. Out: [`ServeFlags`]. Whether they make sense together, and on this machine, is
//! the business of [`crate::plan`]. Letters that memcached has mean what they mean there.

mod clients;
mod config;
mod extended;
mod observe;
mod offload;
mod policy;
mod process;
mod values;

pub use clients::{ClientFlags, Dialect};
pub use config::ConfigError;
pub use extended::Extended;
pub use observe::{CaptureFlags, StatsFlags, TopFlags, WhereFlags};
pub use offload::{GpuIndexFlag, GpuModeFlag, OffloadFlags};
pub use policy::{PingLimit, PolicyFlags, RateLimit};
pub use process::ProcessFlags;
pub use values::{
    CpuList, FileMask, IpFlag, ListenAddr, MetricsAddr, Network, PortSpec, ServicePort,
    SideDoorFlag,
};

use crate::check::PciAddress;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use values::parse_size;

/// The version for people: release, commit and compiler.
pub const LONG_VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("GNOMON_COMMIT"),
    ", ",
    env!("GNOMON_RUSTC"),
    ")"
);

/// A kernel-bypass, memcached-compatible key-value appliance.
///
/// Flags without a command mean `serve`: `gnomon -p 11211 -m 64` works as with memcached.
#[derive(Debug, Parser)]
#[command(name = "gnomon", version = LONG_VERSION, subcommand_required = true)]
#[command(after_help = "`gnomon serve --help` tells the flags.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the memcached protocol over UDP and TCP until told to stop.
    Serve(Box<ServeFlags>),
    /// Tell whether this machine is fit for `serve` with the same flags, and what mends it. Exit
    /// code 1 when something failed. Changes nothing.
    Check(Box<ServeFlags>),
    /// Take a NIC from the kernel and give it to vfio-pci, for --port. Refuses the one that carries
    /// the default route.
    Bind {
        /// Its PCI address (0000:81:00.0).
        #[arg(value_name = "ADDRESS", value_parser = values::pci)]
        nic: PciAddress,
    },
    /// Give a NIC back to the driver that it had before `bind`.
    Unbind {
        /// Its PCI address (0000:81:00.0).
        #[arg(value_name = "ADDRESS", value_parser = values::pci)]
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
        #[arg(value_name = "DIR")]
        dir: PathBuf,
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
        let root = Self::command();
        let merged = config::merge(&root, with_default_command(std::env::args_os()))?;
        let matches = root.clone().get_matches_from(&merged.args);
        if let Some((name, typed)) = matches.subcommand()
            && let Some(command) = root.find_subcommand(name)
            && typed.try_get_one::<bool>("print_config").is_ok_and(|flag| flag == Some(&true))
        {
            return Ok(Asked::PrintConfig(config::print(command, typed, &merged)));
        }
        let cli = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
        Ok(Asked::Do(cli.command))
    }
}

/// What the process is asked.
#[derive(Debug)]
pub enum Asked {
    /// To do something.
    Do(Command),
    /// To print these settings.
    PrintConfig(String),
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
    /// -Y.
    #[arg(short = 'U', long, value_name = "NUM", env = "GNOMON_UDP_PORT")]
    #[arg(allow_negative_numbers = true)]
    pub udp_port: Option<ServicePort>,

    /// Kernel address to listen on, ADDR or ADDR:PORT (IPv6 in brackets before a port); may be
    /// repeated. TCP listens there, and UDP too when there is no --port.
    #[arg(short, long, value_name = "ADDR", env = "GNOMON_LISTEN", value_delimiter = ',')]
    #[arg(default_value = "127.0.0.1")]
    pub listen: Vec<ListenAddr>,

    /// Memory for items, in megabytes.
    #[arg(short, long = "memory-limit", visible_alias = "memory", value_name = "MB")]
    #[arg(env = "GNOMON_MEMORY", default_value = "64")]
    pub memory: u64,

    /// Keep items in this file, in a tmpfs or hugetlbfs: after SIGUSR1 the next start with the same
    /// file, -m, -I, -f and -n finds them there.
    #[arg(short = 'e', long, value_name = "FILE", env = "GNOMON_MEMORY_FILE")]
    pub memory_file: Option<PathBuf>,

    /// TCP threads.
    #[arg(short, long, value_name = "NUM", env = "GNOMON_THREADS", default_value = "4")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// Largest item, in bytes; k and m are understood.
    #[arg(short = 'I', long, value_name = "SIZE", env = "GNOMON_MAX_ITEM_SIZE")]
    #[arg(default_value = "1m", value_parser = parse_size)]
    pub max_item_size: u64,

    /// Most TCP connections at a time.
    #[arg(short, long, value_name = "NUM", env = "GNOMON_CONN_LIMIT", default_value = "1024")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    pub conn_limit: u32,

    /// When memory is full, answer with an error instead of evicting items.
    #[arg(short = 'M', long)]
    pub disable_evictions: bool,

    /// Size ratio between neighbouring slab classes.
    #[arg(short = 'f', long, value_name = "FACTOR", env = "GNOMON_SLAB_GROWTH_FACTOR")]
    #[arg(default_value = "1.25")]
    pub slab_growth_factor: f64,

    /// Space for key, value and flags that the smallest chunk has at least, in bytes. Default: the
    /// smallest chunk that there can be.
    #[arg(short = 'n', long, value_name = "BYTES", env = "GNOMON_SLAB_MIN_SIZE")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub slab_min_size: Option<u32>,

    /// Say more on standard error: -v what happens, -vv in detail.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

    /// Connections.
    #[command(flatten)]
    pub clients: ClientFlags,

    /// The process.
    #[command(flatten)]
    pub process: ProcessFlags,

    /// Serve UDP from this port: a NIC by its PCI address (0000:81:00.0), or a DPDK virtual device
    /// (net_tap0,iface=gnomon0). May be repeated. Without it: kernel sockets at --listen.
    #[arg(
        long,
        value_name = "SPEC",
        env = "GNOMON_PORT",
        value_delimiter = ';',
        help_heading = "Ports"
    )]
    pub port: Vec<PortSpec>,

    /// Address of a --port and its subnet, ADDR/LEN; may be repeated, IPv4 and IPv6. With several
    /// ports say which: INDEX=ADDR/LEN, the first --port being 0.
    #[arg(
        long,
        value_name = "[INDEX=]ADDR/LEN",
        env = "GNOMON_IP",
        value_delimiter = ',',
        help_heading = "Ports"
    )]
    pub ip: Vec<IpFlag>,

    /// Where frames go that are not for the key-value service, TCP among them: a kernel TAP device,
    /// or none. Default: tap with a --port, none without.
    #[arg(long, value_name = "tap[=NAME]|none", env = "GNOMON_SIDE_DOOR", help_heading = "Ports")]
    pub side_door: Option<SideDoorFlag>,

    /// Packet slots of 2 KB each. Default: by the number of queues.
    #[arg(long, value_name = "NUM", env = "GNOMON_SLOTS", help_heading = "Ports")]
    pub slots: Option<u32>,

    /// Who is answered over UDP, and how much.
    #[command(flatten)]
    pub policy: PolicyFlags,

    /// CPUs that serve packets, one worker each (2-7,10). Default: every allowed CPU but the
    /// control core; at most four without --port.
    #[arg(long, value_name = "LIST", env = "GNOMON_CORES", help_heading = "Machine")]
    pub cores: Option<CpuList>,

    /// CPU of the control plane. Default: the first allowed CPU that serves no packets.
    #[arg(long, value_name = "CPU", env = "GNOMON_CONTROL_CORE", help_heading = "Machine")]
    pub control_core: Option<usize>,

    /// Huge pages for packets and items: where there are any, required, or never.
    #[arg(
        long,
        value_name = "WHEN",
        env = "GNOMON_HUGE",
        default_value = "auto",
        help_heading = "Machine"
    )]
    pub huge: HugeFlag,

    /// What looks requests up: the CPU with a GPU's help where there is one, the CPU alone, a GPU
    /// alone, or the GPU's kernels on the CPU (for tests).
    #[arg(
        long,
        value_name = "ENGINE",
        env = "GNOMON_ENGINE",
        default_value = "auto",
        help_heading = "Machine"
    )]
    pub engine: EngineFlag,

    /// Most requests per batch.
    #[arg(
        long,
        value_name = "NUM",
        env = "GNOMON_BATCH",
        default_value = "512",
        help_heading = "Machine"
    )]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=65_536))]
    pub batch: u32,

    /// When a batch goes: as soon as the engine is free, or only when full or overdue.
    #[arg(
        long,
        value_name = "MODE",
        env = "GNOMON_BATCH_MODE",
        default_value = "adaptive",
        help_heading = "Machine"
    )]
    pub batch_mode: BatchModeFlag,

    /// The GPU.
    #[command(flatten)]
    pub offload: OffloadFlags,

    /// Serve metrics at http://ADDR:PORT/metrics, or at /metrics on a Unix socket. Keep a TCP
    /// address to a network that you trust.
    #[arg(
        long,
        value_name = "unix:PATH|ADDR:PORT",
        env = "GNOMON_METRICS",
        help_heading = "Output"
    )]
    pub metrics: Option<MetricsAddr>,

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
    #[arg(last = true, value_name = "EAL")]
    pub eal: Vec<String>,
}

/// `--huge`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum HugeFlag {
    /// Where there are any.
    Auto,
    /// Or do not start.
    On,
    /// Ordinary pages.
    Off,
}

/// `--engine`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum EngineFlag {
    /// The CPU, and a GPU beside it where there is one and whenever it is quicker.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU, for everything, as long as it works.
    Gpu,
    /// The GPU's kernels, run on the CPU, for everything.
    Simt,
}

/// `--batch-mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BatchModeFlag {
    /// Never wait for a batch to fill when there is nothing better to do.
    Adaptive,
    /// Wait until it is full, or a deadline passes.
    Fixed,
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
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn clap_finds_no_contradiction() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_alone_mean_serve() {
        for args in [&["-p", "1", "-m", "8"][..], &["serve", "-p", "1", "-m", "8"]] {
            let f = parse(args).unwrap();
            assert_eq!((f.tcp_port, f.memory), (Some(ServicePort::Fixed(1)), 8));
        }
        assert!(parse(&[]).is_ok());
        let version = parse(&["-V"]).unwrap_err().to_string();
        assert!(version.starts_with(concat!("gnomon ", env!("CARGO_PKG_VERSION"))), "{version}");
    }

    #[test]
    fn memcached_letters_and_their_defaults() {
        let f = parse(&[]).unwrap();
        assert_eq!((f.tcp_port, f.udp_port), (None, None));
        assert_eq!(f.listen, ["127.0.0.1".parse().unwrap()]);
        assert_eq!((f.memory, f.threads, f.conn_limit), (64, 4, 1024));
        assert_eq!(f.max_item_size, 1 << 20);
        let f = parse(&["-U", "0", "-p", "-1", "-l", "::1,10.0.0.1:99", "-c", "5", "-I", "512k"]);
        let f = f.unwrap();
        assert_eq!((f.udp_port, f.tcp_port), (Some(ServicePort::Off), Some(ServicePort::Any)));
        assert_eq!(f.listen, ["::1".parse().unwrap(), "10.0.0.1:99".parse().unwrap()]);
        assert_eq!((f.conn_limit, f.max_item_size), (5, 512 << 10));
        let f = parse(&["-Mvvt", "2", "-f", "2"]).unwrap();
        assert_eq!((f.disable_evictions, f.verbose, f.threads), (true, 2, 2));
        assert!((f.slab_growth_factor - 2.0).abs() < f64::EPSILON);
    }

    #[test]
    fn letters_about_clients_and_the_process() {
        let f = parse(&[]).unwrap();
        let c = &f.clients;
        assert_eq!((c.listen_backlog, c.max_reqs_per_event, c.protocol), (1024, 20, Dialect::Auto));
        assert_eq!(c.unix_mask, FileMask(0o700));
        assert!(!(c.disable_cas || c.disable_flush_all || c.enable_shutdown || f.process.daemon));
        let f = parse(&[
            "-s",
            "/x",
            "-a",
            "0770",
            "-b",
            "5",
            "-R",
            "1",
            "-B",
            "ascii",
            "-Y",
            "auth",
            "-CFAXW",
            "-D",
            "|",
            "-o",
            "modern,idle_timeout=9",
            "-o",
            "track_sizes",
            "-n",
            "100",
            "-dkrL",
            "-P",
            "/pid",
            "-u",
            "nobody",
        ])
        .unwrap();
        let (c, p) = (&f.clients, &f.process);
        assert_eq!(
            (c.unix_socket.as_deref(), c.unix_mask),
            (Some(Path::new("/x")), FileMask(0o770))
        );
        assert_eq!((c.listen_backlog, c.max_reqs_per_event, c.protocol), (5, 1, Dialect::Ascii));
        assert_eq!(c.auth_file.as_deref(), Some(Path::new("auth")));
        assert!(c.disable_cas && c.disable_flush_all && c.enable_shutdown);
        assert!(c.disable_dumping && c.disable_watch && c.prefix_delimiter == b'|');
        assert_eq!((c.extended.len(), &c.extended[1]), (3, &Extended::IdleTimeout(9)));
        assert!(p.daemon && p.lock_memory && p.enable_coredumps && p.enable_largepages);
        assert_eq!(
            (p.pidfile.as_deref(), p.user.as_deref()),
            (Some(Path::new("/pid")), Some("nobody"))
        );
        assert_eq!(f.slab_min_size, Some(100));
    }

    #[test]
    fn long_names_are_memcacheds() {
        let f = parse(&[
            "--udp-port=1",
            "--unix-socket=/s",
            "--unix-mask=700",
            "--enable-shutdown",
            "--listen=::1",
            "--daemon",
            "--enable-coredumps",
            "--user=u",
            "--memory-limit=8",
            "--disable-evictions",
            "--conn-limit=2",
            "--lock-memory",
            "--verbose",
            "--pidfile=p",
            "--slab-growth-factor=2",
            "--slab-min-size=9",
            "--enable-largepages",
            "--threads=1",
            "--max-reqs-per-event=3",
            "--disable-cas",
            "--listen-backlog=4",
            "--protocol=ascii",
            "--max-item-size=2m",
            "--disable-flush-all",
            "--disable-dumping",
            "--disable-watch",
            "--auth-file=f",
            "--extended=modern",
            "--enable-sasl",
            "--enable-ssl",
        ]);
        assert_eq!(f.unwrap().memory, 8);
        assert_eq!(parse(&["--tcp-port=1", "--memory=9"]).unwrap().memory, 9);
    }

    #[test]
    fn the_last_of_several_counts_except_for_lists() {
        let f = parse(&["-m", "8", "-l", "::1", "-m", "9", "-M", "-l", "::2", "-M"]).unwrap();
        assert_eq!((f.memory, f.listen.len(), f.disable_evictions), (9, 2, true));
    }

    #[test]
    fn values_are_understood() {
        let f = parse(&[
            "--port",
            "81:00.1,mprq_en=1",
            "--port",
            "net_tap0,iface=x",
            "--ip",
            "0=10.0.0.1/24",
            "--ip",
            "1=fd00::1/64",
            "--cores",
            "2-4,7,3",
            "--side-door",
            "tap=kv0",
            "--",
            "--no-telemetry",
        ])
        .unwrap();
        let pci = PortSpec::Pci {
            address: "0000:81:00.1".to_owned(),
            args: Some("mprq_en=1".to_owned()),
        };
        assert_eq!(f.port, [pci, PortSpec::Vdev("net_tap0,iface=x".to_owned())]);
        assert_eq!(f.port[1].device(), "net_tap0");
        assert_eq!(f.ip[1].port_index, Some(1));
        assert_eq!(f.ip[0].network.to_string(), "10.0.0.1/24");
        assert_eq!(f.cores, Some(CpuList(vec![2, 3, 4, 7])));
        assert_eq!(f.side_door, Some(SideDoorFlag::Tap(Some("kv0".to_owned()))));
        assert_eq!(f.eal, ["--no-telemetry"]);
    }

    #[test]
    fn each_wrong_value_is_named_with_its_reason() {
        for (args, reason) in [
            (&["-p", "65536"][..], "not in -1 to 65535"),
            (&["-p", "-2"], "not in -1 to 65535"),
            (&["-U", "x"], "not a number from -1 to 65535"),
            (&["-l", "localhost"], "not an IP address, nor ADDR:PORT"),
            (&["-l", "1.2.3.4:0"], "port 0 cannot be listened on"),
            (&["-I", "1g"], "not a size in bytes"),
            (&["-I", "99999999999999999m"], "not a size in bytes"),
            (&["-t", "0"], "0 is not in 1..=256"),
            (&["-c", "0"], "0 is not in 1..=1000000"),
            (&["-R", "0"], "0 is not in 1.."),
            (&["-b", "x"], "invalid digit"),
            (&["-n", "0"], "0 is not in 1.."),
            (&["-B", "x"], "possible values: auto, ascii, binary"),
            (&["-a", "789"], "not an octal mask"),
            (&["-a", "7777"], "not an octal mask"),
            (&["-D", "ab"], "not one printable ASCII character"),
            (&["-D", ""], "not one printable ASCII character"),
            (&["-o", "modern,foo"], "'foo' is none of memcached's options"),
            (&["-q"], "unexpected argument '-q'"),
            (&["-m", "-1"], "unexpected argument '-1'"),
            (&["-f", "x"], "invalid float literal"),
            (&["--port", "eth0"], "neither a PCI address"),
            (&["--port", "0000:81:00.8"], "neither a PCI address"),
            (&["--port", "net_tap0/../x"], "neither a PCI address"),
            (&["--ip", "10.0.0.1"], "not ADDR/LEN"),
            (&["--ip", "10.0.0.1/33"], "longer than 32 bits"),
            (&["--ip", "::1/129"], "longer than 128 bits"),
            (&["--ip", "x=10.0.0.1/8"], "'x' is not the number of a port"),
            (&["--allow", "10.0.0.0/33"], "'33' is not a prefix of 10.0.0.0"),
            (&["--allow", "10.1.2.3/8"], "write 10.0.0.0/8 for all of it"),
            (&["--side-door", "vhost"], "neither tap, tap=NAME nor none"),
            (&["--side-door", "tap=a/b"], "1 to 15 printable characters"),
            (&["--side-door", "tap=0123456789abcdef"], "1 to 15 printable characters"),
            (&["--cores", "3-1"], "'3-1' is neither a CPU nor a range"),
            (&["--cores", "0-99999999"], "neither a CPU nor a range"),
            (&["--batch", "0"], "0 is not in 1..=65536"),
            (&["--engine", "fpga"], "possible values: auto, cpu, gpu, simt"),
            (&["--huge", "maybe"], "possible values: auto, on, off"),
            (&["--batch-mode", "x"], "possible values: adaptive, fixed"),
            (&["bind"], "required arguments were not provided"),
            (&["unbind", "eth0"], "not a PCI address"),
            (&["fly"], "unrecognized subcommand 'fly'"),
        ] {
            let said = parse(args).expect_err(&format!("{args:?}")).to_string();
            assert!(said.contains(reason), "{args:?}: {said}");
        }
    }
}
