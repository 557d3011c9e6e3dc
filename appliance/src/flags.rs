//! What was typed: the command line and the `GNOMON_*` environment, syntax checked, nothing more.
//!
//! In: arguments. Out: [`ServeFlags`]. Whether they make sense together, and on this machine, is
//! the business of [`crate::plan`]. Letters that memcached has mean what they mean there.

mod policy;
mod values;

pub use policy::{PingLimit, PolicyFlags, RateLimit};
pub use values::{CpuList, IpFlag, ListenAddr, Network, PortSpec, ServicePort, SideDoorFlag};

use clap::{Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
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
}

impl Cli {
    /// Parses the process's arguments. Prints help, the version or what is wrong, and ends the
    /// process, where that is all there is to do.
    pub fn from_args() -> Self {
        Self::parse_from(with_default_command(std::env::args_os()))
    }
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
#[command(version = LONG_VERSION)]
pub struct ServeFlags {
    /// TCP port; 0 turns TCP off, -1 takes any free port.
    #[arg(short = 'p', long, value_name = "NUM", env = "GNOMON_TCP_PORT", default_value = "11211")]
    #[arg(allow_negative_numbers = true)]
    pub tcp_port: ServicePort,

    /// UDP port; 0 turns UDP off, -1 takes any free port.
    #[arg(short = 'U', long, value_name = "NUM", env = "GNOMON_UDP_PORT", default_value = "11211")]
    #[arg(allow_negative_numbers = true)]
    pub udp_port: ServicePort,

    /// Kernel address to listen on, ADDR or ADDR:PORT (IPv6 in brackets before a port); may be
    /// repeated. TCP listens there, and UDP too when there is no --port.
    #[arg(short, long, value_name = "ADDR", env = "GNOMON_LISTEN", value_delimiter = ',')]
    #[arg(default_value = "127.0.0.1")]
    pub listen: Vec<ListenAddr>,

    /// Memory for items, in megabytes.
    #[arg(short, long, value_name = "MB", env = "GNOMON_MEMORY", default_value = "64")]
    pub memory: u64,

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

    /// Say more on standard error: -v what happens, -vv in detail.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub verbose: u8,

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

    /// What looks requests up: the CPU, a GPU, or the GPU's kernels on the CPU (for tests).
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
    /// What suits the machine; in this release the CPU always.
    Auto,
    /// The CPU.
    Cpu,
    /// A GPU; not in this release.
    Gpu,
    /// The GPU's kernels, run on the CPU.
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
    let Command::Serve(flags) = Cli::try_parse_from(with_default_command(args))?.command;
    Ok(*flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn clap_finds_no_contradiction() {
        Cli::command().debug_assert();
    }

    #[test]
    fn flags_alone_mean_serve() {
        for args in [&["-p", "1", "-m", "8"][..], &["serve", "-p", "1", "-m", "8"]] {
            let f = parse(args).unwrap();
            assert_eq!((f.tcp_port, f.memory), (ServicePort::Fixed(1), 8));
        }
        assert!(parse(&[]).is_ok());
        let version = parse(&["-V"]).unwrap_err().to_string();
        assert!(version.starts_with(concat!("gnomon ", env!("CARGO_PKG_VERSION"))), "{version}");
    }

    #[test]
    fn memcached_letters_and_their_defaults() {
        let f = parse(&[]).unwrap();
        assert_eq!(f.tcp_port, ServicePort::Fixed(11211));
        assert_eq!(f.udp_port, ServicePort::Fixed(11211));
        assert_eq!(f.listen, ["127.0.0.1".parse().unwrap()]);
        assert_eq!((f.memory, f.threads, f.conn_limit), (64, 4, 1024));
        assert_eq!(f.max_item_size, 1 << 20);
        let f = parse(&["-U", "0", "-p", "-1", "-l", "::1,10.0.0.1:99", "-c", "5", "-I", "512k"]);
        let f = f.unwrap();
        assert_eq!((f.udp_port, f.tcp_port), (ServicePort::Off, ServicePort::Any));
        assert_eq!(f.listen, ["::1".parse().unwrap(), "10.0.0.1:99".parse().unwrap()]);
        assert_eq!((f.conn_limit, f.max_item_size), (5, 512 << 10));
        let f = parse(&["-Mvvt", "2", "-f", "2"]).unwrap();
        assert_eq!((f.disable_evictions, f.verbose, f.threads), (true, 2, 2));
        assert!((f.slab_growth_factor - 2.0).abs() < f64::EPSILON);
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
            (&["bind"], "unrecognized subcommand 'bind'"),
        ] {
            let said = parse(args).expect_err(&format!("{args:?}")).to_string();
            assert!(said.contains(reason), "{args:?}: {said}");
        }
    }
}
