//! Values of flags: what each accepts, and what it says of anything else.

use crate::host::pci::PciAddress;
use clap::builder::TypedValueParser;
use memcache::{Dialect, Dialects};
use serde::Serialize;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::num::NonZeroU64;
use std::path::PathBuf;
use std::str::FromStr;
use store::SlabPages;

/// A TCP or UDP port as memcached takes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServicePort {
    /// 0: not served.
    Off,
    /// -1: whichever is free.
    Any,
    /// This one.
    Fixed(u16),
}

impl FromStr for ServicePort {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s.parse::<i32>() {
            Ok(-1) => Ok(Self::Any),
            Ok(0) => Ok(Self::Off),
            Ok(n) => u16::try_from(n).map(Self::Fixed).map_err(|_| "not in -1 to 65535".to_owned()),
            Err(_) => Err("not a number from -1 to 65535".to_owned()),
        }
    }
}

/// Addresses to listen on, with or without a port of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ListenAddr {
    /// The address, or those of a name.
    pub ips: Vec<IpAddr>,
    /// The port, when it was given here.
    pub port: Option<u16>,
    /// What is spoken there, when it was given here.
    pub dialect: Option<Dialects>,
    /// The tag, which only memcached's proxy would look at.
    pub tag: Option<String>,
    /// Whether TLS is spoken there, when it was said here.
    pub tls: Option<ListenTls>,
}

/// What a listener of its own speaks beneath the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListenTls {
    /// `notls:`.
    Off,
    /// `btls:`: TLS, and nothing asked of clients.
    Basic,
    /// `mtls:`: TLS, and a certificate asked of clients.
    Mutual,
}

impl FromStr for ListenAddr {
    type Err = String;

    /// Names are looked up.
    fn from_str(s: &str) -> Result<Self, String> {
        let (mut dialect, mut tag, mut tls, mut rest) = (None, None, None, s);
        loop {
            rest = if let Some((name, rest)) = in_brackets(rest, "proto") {
                dialect = Some(proto(name)?);
                rest
            } else if let Some((name, rest)) = in_brackets(rest, "tag") {
                tag = Some(name.to_owned());
                rest
            } else if let Some((name, rest)) = between_underscores(rest) {
                tag = Some(name.to_owned());
                rest
            } else if let Some((one, rest)) = listen_tls(rest) {
                tls = Some(one);
                rest
            } else {
                break;
            };
        }
        let (ips, port) = addresses(rest)?;
        Ok(Self { ips, port, dialect, tag, tls })
    }
}

/// What stands in one value of `-l`: several addresses, with `,` or `;` between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListenAddrs(pub Vec<ListenAddr>);

impl FromStr for ListenAddrs {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        // As memcached: nothing between two of them is no mistake.
        let all = s.split([',', ';']).filter(|one| !one.is_empty()).map(str::parse);
        let all = all.collect::<Result<Vec<_>, String>>()?;
        if all.is_empty() { Err("no address".to_owned()) } else { Ok(Self(all)) }
    }
}

/// What `notls:`, `btls:` and `mtls:` say, and what follows.
fn listen_tls(s: &str) -> Option<(ListenTls, &str)> {
    let (name, rest) = s.split_once(':')?;
    let tls = match name {
        "notls" => ListenTls::Off,
        "btls" => ListenTls::Basic,
        "mtls" => ListenTls::Mutual,
        _ => return None,
    };
    Some((tls, rest))
}

/// What stands between the brackets of `NAME[...]:`, and what follows.
fn in_brackets<'a>(s: &'a str, name: &str) -> Option<(&'a str, &'a str)> {
    s.strip_prefix(name)?.strip_prefix('[')?.split_once("]:")
}

/// The name in `tag_NAME_:`, which no shell takes for a pattern, and what follows.
fn between_underscores(s: &str) -> Option<(&str, &str)> {
    let (name, rest) = s.strip_prefix("tag_")?.split_once("_:")?;
    (!name.contains(':')).then_some((name, rest))
}

fn proto(name: &str) -> Result<Dialects, String> {
    match name {
        "ascii" => Ok(Dialects::Only(Dialect::Ascii)),
        "binary" => Ok(Dialects::Only(Dialect::Binary)),
        "negotiating" => Ok(Dialects::Auto),
        _ => Err("proto[…] is ascii, binary or negotiating".to_owned()),
    }
}

fn addresses(s: &str) -> Result<(Vec<IpAddr>, Option<u16>), String> {
    let with_port = |port| match port {
        0 => Err("port 0 cannot be listened on".to_owned()),
        port => Ok(Some(port)),
    };
    if s.contains('%') {
        let why = "an address with a scope (%) is not listened on; give * or one of a wider scope";
        return Err(why.to_owned());
    }
    if let Ok(a) = s.parse::<SocketAddr>() {
        return Ok((vec![a.ip()], with_port(a.port())?));
    }
    let bare = s.strip_prefix('[').and_then(|s| s.strip_suffix(']')).unwrap_or(s);
    if let Ok(ip) = bare.parse() {
        return Ok((vec![ip], None));
    }
    let (name, port) = match s.split_once(':') {
        Some((name, port)) => {
            let port = port.parse().map_err(|_| format!("'{port}' is not a port"))?;
            (name, with_port(port)?)
        }
        None => (s, None),
    };
    let mut ips = match name {
        "*" => vec![Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        _ => look_up(name)?,
    };
    // A name may stand for addresses of an IP version that this machine does not have.
    let [v4, v6] = [true, false].map(|v4| ips.iter().any(|ip| ip.is_ipv4() == v4 && is_ours(ip)));
    if v4 || v6 {
        ips.retain(|ip| if ip.is_ipv4() { v4 } else { v6 });
    }
    Ok((ips, port))
}

fn look_up(name: &str) -> Result<Vec<IpAddr>, String> {
    let wrong =
        |why: &dyn fmt::Display| format!("neither an address nor a name that is found: {why}");
    if name.is_empty() || name.contains(['/', '[', ']', ' ']) {
        return Err(wrong(&"no name"));
    }
    let mut ips = Vec::new();
    // The scope of a link's own address is lost here: it cannot be listened on.
    let of_link = |ip: IpAddr| matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
    for address in (name, 0).to_socket_addrs().map_err(|e| wrong(&e))? {
        if !ips.contains(&address.ip()) && !of_link(address.ip()) {
            ips.push(address.ip());
        }
    }
    if ips.is_empty() { Err(wrong(&"it has none but a link's own")) } else { Ok(ips) }
}

fn is_ours(ip: &IpAddr) -> bool {
    UdpSocket::bind((*ip, 0)).is_ok()
}

/// A power in watts.
pub(super) fn parse_watts(s: &str) -> Result<f64, String> {
    let watts: f64 = s.parse().map_err(|_| "a number of watts".to_owned())?;
    match watts {
        0.0..=1e6 => Ok(watts),
        _ => Err("from 0 to a million watts".to_owned()),
    }
}

/// `-m`: megabytes, with an m behind them or not.
pub(super) fn parse_megabytes(s: &str) -> Result<u64, String> {
    let lower = s.trim().to_ascii_lowercase();
    let digits = lower.strip_suffix("mb").or_else(|| lower.strip_suffix('m')).unwrap_or(&lower);
    digits.parse().map_err(|_| "not a number of megabytes (64, 64m)".to_owned())
}

/// A port served through DPDK.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum PortSpec {
    /// A device on the PCI bus, in full (`0000:81:00.0`), and its device arguments.
    Pci {
        /// Domain, bus, device and function.
        address: String,
        /// What followed the first comma, if anything did.
        args: Option<String>,
    },
    /// A virtual device with its arguments, as DPDK's `--vdev` takes it.
    Vdev(String),
}

impl PortSpec {
    /// The interface that the kernel and a packet socket of DPDK's share.
    pub fn packet_socket(&self) -> Option<&str> {
        let Self::Vdev(spec) = self else { return None };
        let args =
            spec.strip_prefix("net_af_packet").or_else(|| spec.strip_prefix("eth_af_packet"))?;
        args.split(',').find_map(|arg| arg.strip_prefix("iface="))
    }

    /// Name and arguments, as DPDK takes them.
    pub fn spec(&self) -> String {
        match self {
            Self::Pci { address, args: Some(args) } => format!("{address},{args}"),
            Self::Pci { address: spec, args: None } | Self::Vdev(spec) => spec.clone(),
        }
    }

    /// The device's name in DPDK.
    pub fn device(&self) -> &str {
        match self {
            Self::Pci { address, .. } => address,
            Self::Vdev(spec) => spec.split(',').next().unwrap_or(spec),
        }
    }
}

impl FromStr for PortSpec {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let (device, args) = match s.split_once(',') {
            Some((d, a)) => (d, Some(a.to_owned())),
            None => (s, None),
        };
        if let Ok(PciAddress(address)) = device.parse() {
            return Ok(Self::Pci { address, args });
        }
        let is_vdev = ["net_", "eth_"].iter().any(|p| device.starts_with(p))
            || device.starts_with("virtio_user");
        if is_vdev && device.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b)) {
            return Ok(Self::Vdev(s.to_owned()));
        }
        if s.bytes().all(|b| b.is_ascii_digit()) {
            return Err("a number, and no device: the TCP port is --tcp-port (-p)".to_owned());
        }
        Err("neither a PCI address (0000:81:00.0) nor a DPDK virtual device (net_tap0,iface=…)"
            .to_owned())
    }
}

/// An address and the length of its subnet's prefix. The host bits are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Network {
    /// The address.
    pub ip: IpAddr,
    /// Bits of the prefix.
    pub prefix_len: u8,
}

impl Network {
    /// Whether the address is the network's first or last, which no host has: the network itself, or its broadcast.
    /// Networks of one or two hosts have none (RFC 3021), nor have those of IPv6.
    pub fn is_first_or_last(&self) -> bool {
        let IpAddr::V4(ip) = self.ip else { return false };
        let host_bits = u32::MAX.checked_shr(self.prefix_len.into()).unwrap_or(0);
        host_bits > 1 && [0, host_bits].contains(&(ip.to_bits() & host_bits))
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.ip, self.prefix_len)
    }
}

impl Serialize for Network {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let wrong = || "not ADDR/LEN (10.0.0.1/24, fd00::1/64)".to_owned();
        let (ip, len) = s.split_once('/').ok_or_else(wrong)?;
        let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
        let prefix_len: u8 = len.parse().map_err(|_| wrong())?;
        let max = if ip.is_ipv4() { 32 } else { 128 };
        if prefix_len > max {
            return Err(format!("the prefix is longer than {max} bits"));
        }
        Ok(Self { ip, prefix_len })
    }
}

/// `--ip`: an address for one of the ports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IpFlag {
    /// Which port, when it was said.
    pub port_index: Option<usize>,
    /// The address and its subnet.
    pub network: Network,
}

impl FromStr for IpFlag {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let (port_index, network) = match s.split_once('=') {
            Some((i, n)) => {
                let i = i.parse().map_err(|_| format!("'{i}' is not the number of a port"))?;
                (Some(i), n)
            }
            None => (None, s),
        };
        Ok(Self { port_index, network: network.parse()? })
    }
}

/// `--side-door`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ExceptionPathFlag {
    /// A TAP device, of this name if one was given.
    Tap(Option<String>),
    /// None.
    None,
}

impl FromStr for ExceptionPathFlag {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s.split_once('=') {
            None if s == "none" => Ok(Self::None),
            None if s == "tap" => Ok(Self::Tap(None)),
            // IFNAMSIZ is 16 with the closing zero.
            Some(("tap", name))
                if (1..=15).contains(&name.len())
                    && name.bytes().all(|b| b.is_ascii_graphic() && !b"/:%".contains(&b))
                    && name != "."
                    && name != ".." =>
            {
                Ok(Self::Tap(Some(name.to_owned())))
            }
            Some(("tap", _)) => {
                Err("a device name is 1 to 15 printable characters without / : %".to_owned())
            }
            _ => Err("neither tap, tap=NAME nor none".to_owned()),
        }
    }
}

/// `--numa-node`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeFlag {
    /// The NICs', where they share one.
    Auto,
    /// None in particular.
    Off,
    /// A part of the appliance on each that has a port.
    Split,
    /// This one.
    Node(u32),
}

impl FromStr for NodeFlag {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "split" => Ok(Self::Split),
            _ => s
                .parse()
                .map(Self::Node)
                .map_err(|_| "neither auto, off, split nor a number".to_owned()),
        }
    }
}

/// Where metrics are served: `unix:PATH`, or `ADDR:PORT`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetricsAddr {
    /// A Unix socket.
    Unix(PathBuf),
    /// A TCP address.
    Tcp(SocketAddr),
}

impl FromStr for MetricsAddr {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s.strip_prefix("unix:") {
            Some("") => Err("unix: and no path".to_owned()),
            Some(path) => Ok(Self::Unix(path.into())),
            None => {
                let all = s.strip_prefix('*').map(|port| format!("[::]{port}"));
                all.as_deref().unwrap_or(s).parse().map(Self::Tcp).map_err(|_| {
                    "neither unix:PATH nor ADDR:PORT (unix:/run/gnomon/metrics.sock, 127.0.0.1:9150, *:9150 for all)"
                        .to_owned()
                })
            }
        }
    }
}

impl fmt::Display for MetricsAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => address.fmt(f),
        }
    }
}

impl Serialize for MetricsAddr {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}

/// Bytes, with k or m for KiB and MiB.
pub(super) fn parse_size(s: &str) -> Result<u64, String> {
    let wrong = || "not a size in bytes (1048576, 512k, 1m)".to_owned();
    let (digits, unit) = match s.char_indices().last() {
        Some((i, 'k' | 'K')) => (s.get(..i), 1u64 << 10),
        Some((i, 'm' | 'M')) => (s.get(..i), 1 << 20),
        _ => (Some(s), 1),
    };
    let n: u64 = digits.and_then(|d| d.parse().ok()).ok_or_else(wrong)?;
    n.checked_mul(unit).ok_or_else(wrong)
}

/// Chunk sizes and the pages of each.
pub(super) fn parse_slab_pages(s: &str) -> Result<SlabPages, String> {
    let class = |one: &str| {
        let (size, pages) = one.split_once(':')?;
        let size = usize::try_from(parse_size(size).ok()?).ok()?;
        Some((size, pages.parse().ok()?))
    };
    let classes: Option<Vec<(usize, u32)>> = s.split(',').map(class).collect();
    let classes = classes.ok_or("not SIZE:PAGES with commas between (64:2,128:8)")?;
    SlabPages::new(classes).map_err(|why| why.to_string())
}

/// The one character that `-D` takes.
pub(super) fn parse_delimiter(s: &str) -> Result<u8, String> {
    match *s.as_bytes() {
        [byte] if byte.is_ascii_graphic() => Ok(byte),
        _ => Err("not one printable ASCII character".to_owned()),
    }
}

/// A number from 1 to `max`; what is not is refused with that range.
pub(super) fn from_one<N>(max: u64) -> impl TypedValueParser<Value = N>
where
    N: TryFrom<NonZeroU64, Error: std::error::Error + Send + Sync> + Clone + Send + Sync + 'static,
{
    let range = clap::value_parser!(u64).range(1..=max);
    range.try_map(NonZeroU64::try_from).try_map(N::try_from)
}

/// Who may do what with a file, as three octal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileMask(pub u32);

impl FileMask {
    /// That of `-a`, as in memcached.
    pub const DEFAULT: Self = Self(0o700);
}

impl FromStr for FileMask {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let mask = u32::from_str_radix(s, 8).ok().filter(|m| *m <= 0o777);
        mask.map(Self).ok_or_else(|| "not an octal mask (0 to 777)".to_owned())
    }
}

impl fmt::Display for FileMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:o}", self.0)
    }
}

impl Serialize for FileMask {
    fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_str(self)
    }
}
