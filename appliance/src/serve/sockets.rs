//! The plan's kernel addresses: TCP and Unix listeners, and a look whether the UDP ports are free.
//!
//! Done before anything else is built, so that a port in use costs one line and nothing more.

mod unix;

pub use unix::SocketFile;

use crate::serve::tcp::Source;
use crate::startup::flags::{FileMask, MetricsAddr};
use crate::startup::plan::{Device, Plan, UnixPlan};
use nix::libc;
use socket2::{Domain, Protocol, Socket, Type};
use std::fmt::Write as _;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};

/// What the kernel takes of replies beyond what it may send at once. Without a limit it takes two
/// megabytes of a client that does not read, which is memory that is not accounted for, and time.
const UNSENT_BYTES: u32 = 256 << 10;

/// An address that cannot be had.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum SocketError {
    #[error(
        "{protocol} {address}: Address already in use: stop what listens there (ss -lntup shows it), or choose another {other}"
    )]
    InUse { protocol: &'static str, address: SocketAddr, other: &'static str },
    #[error(
        "{protocol} {address} needs a right that this process lacks: take a port from 1024 up, or give it CAP_NET_BIND_SERVICE"
    )]
    Forbidden { protocol: &'static str, address: SocketAddr },
    #[error(
        "{protocol} {address}: no interface of this machine has this address; `ip address` lists what there is"
    )]
    NotOurs { protocol: &'static str, address: SocketAddr },
    #[error(
        "the Unix socket {path} is in use: stop what listens there, or choose another path with {flag}"
    )]
    UnixInUse { flag: &'static str, path: PathBuf },
    #[error("{flag}: {path} is no socket: take it away, or choose another path")]
    NotASocket { flag: &'static str, path: PathBuf },
    #[error(
        "cannot listen on the Unix socket {path}: {source}; choose another path with {flag}{}",
        for_root(source)
    )]
    Unix { flag: &'static str, path: PathBuf, source: io::Error },
    #[error("cannot listen on {protocol} {address}: {source}; choose another address with -l")]
    Other { protocol: &'static str, address: SocketAddr, source: io::Error },
}

impl SocketError {
    /// Whether another process has it.
    pub fn is_in_use(&self) -> bool {
        matches!(self, Self::InUse { .. } | Self::UnixInUse { .. })
    }
}

/// Root makes the socket before it becomes another user.
fn for_root(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            ", or let root write there (CAP_DAC_OVERRIDE, CAP_CHOWN), which makes it before -u"
        }
        _ => "",
    }
}

fn refused(protocol: &'static str, address: SocketAddr) -> impl Fn(io::Error) -> SocketError {
    move |source| match source.kind() {
        io::ErrorKind::AddrInUse => {
            let other = match protocol {
                "TCP" => "port with -p or another address with -l",
                "UDP" => "port with -U or another address with -l",
                _ => "with --metrics",
            };
            SocketError::InUse { protocol, address, other }
        }
        io::ErrorKind::PermissionDenied => SocketError::Forbidden { protocol, address },
        io::ErrorKind::AddrNotAvailable => SocketError::NotOurs { protocol, address },
        _ => SocketError::Other { protocol, address, source },
    }
}

/// Where clients connect.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Non-blocking listeners.
    pub sources: Vec<Source>,
    /// The addresses of those on TCP.
    pub tcp: Vec<SocketAddr>,
    /// The file of the one that is a Unix socket.
    pub unix: Option<SocketFile>,
    /// The address that metrics are served on.
    pub metrics: Option<MetricsListener>,
}

/// The address that metrics are served on.
#[derive(Debug)]
pub struct MetricsListener {
    /// The listener.
    pub source: Source,
    /// Its address, with the port that it got.
    pub address: MetricsAddr,
    /// Its file, of a Unix socket.
    pub file: Option<SocketFile>,
}

/// Who may read metrics on a Unix socket: the owner and its group.
const METRICS_MASK: FileMask = FileMask(0o660);
/// Scrapers that may wait to be accepted.
const METRICS_BACKLOG: i32 = 64;

/// Opens every listener of the plan. The kernel queues connections from here on.
///
/// # Errors
/// The first address that cannot be had.
pub fn listen(plan: &Plan) -> Result<Listeners, SocketError> {
    let mut listeners = Listeners::default();
    let backlog = plan.clients.backlog;
    for t in &plan.tcp {
        let refused = refused("TCP", t.address);
        let listener = listen_on(t.address, t.behind_exception_path, backlog).map_err(&refused)?;
        listeners.tcp.push(listener.local_addr().map_err(&refused)?);
        listeners.sources.push(Source::Tcp(listener, t.tls));
    }
    if let Some(plan) = &plan.clients.unix {
        let (listener, file) = unix::listen(plan, "-s", backlog)?;
        listeners.sources.push(Source::Unix(listener));
        listeners.unix = Some(file);
    }
    listeners.metrics = plan.metrics.as_ref().map(metrics).transpose()?;
    Ok(listeners)
}

/// Looks whether [`listen`] would have its addresses, as far as that shows without listening:
/// nothing is made, taken away or served.
///
/// # Errors
/// The first address that cannot be had.
pub fn probe(plan: &Plan) -> Result<(), SocketError> {
    for t in &plan.tcp {
        bind_tcp(t.address, t.behind_exception_path).map_err(refused("TCP", t.address))?;
    }
    if let Some(plan) = &plan.clients.unix {
        unix::probe(&plan.path, "-s")?;
    }
    match &plan.metrics {
        Some(MetricsAddr::Unix(path)) => unix::probe(path, "--metrics")?,
        Some(MetricsAddr::Tcp(address)) => {
            bind_metrics(*address).map_err(refused("metrics", *address))?;
        }
        None => {}
    }
    Ok(())
}

fn metrics(address: &MetricsAddr) -> Result<MetricsListener, SocketError> {
    match address {
        MetricsAddr::Unix(path) => {
            let plan = UnixPlan { path: path.clone(), mask: METRICS_MASK };
            let (listener, file) = unix::listen(&plan, "--metrics", METRICS_BACKLOG)?;
            let (source, address) = (Source::Unix(listener), address.clone());
            Ok(MetricsListener { source, address, file: Some(file) })
        }
        MetricsAddr::Tcp(address) => {
            let refused = refused("metrics", *address);
            let socket = bind_metrics(*address).map_err(&refused)?;
            socket.listen(METRICS_BACKLOG).map_err(&refused)?;
            let listener = TcpListener::from(socket);
            let address = MetricsAddr::Tcp(listener.local_addr().map_err(&refused)?);
            Ok(MetricsListener { source: Source::Tcp(listener, None), address, file: None })
        }
    }
}

/// `[::]` is all addresses of both families here, as scrapers expect it, or those of IPv4 where the kernel has no IPv6.
fn bind_metrics(address: SocketAddr) -> io::Result<Socket> {
    let of_all = matches!(address, SocketAddr::V6(v6) if v6.ip().is_unspecified());
    match bind_tcp_of(address, false, !of_all) {
        Err(error) if of_all && error.raw_os_error() == Some(libc::EAFNOSUPPORT) => {
            bind_tcp((Ipv4Addr::UNSPECIFIED, address.port()).into(), false)
        }
        bound => bound,
    }
}

fn listen_on(address: SocketAddr, before_it_exists: bool, backlog: i32) -> io::Result<TcpListener> {
    let socket = bind_tcp(address, before_it_exists)?;
    socket.listen(backlog)?;
    Ok(socket.into())
}

fn bind_tcp(address: SocketAddr, before_it_exists: bool) -> io::Result<Socket> {
    bind_tcp_of(address, before_it_exists, true)
}

fn bind_tcp_of(address: SocketAddr, before_it_exists: bool, only_v6: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    // Connections have these from their listener: peers that are gone are found out, and each write
    // is sent at once.
    socket.set_keepalive(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_tcp_notsent_lowat(UNSENT_BYTES)?;
    socket.set_nonblocking(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(only_v6)?;
    }
    if before_it_exists {
        // The TAP device gets the address later, when the network is configured.
        match address {
            SocketAddr::V4(_) => socket.set_freebind_v4(true)?,
            SocketAddr::V6(_) => socket.set_freebind_v6(true)?,
        }
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Looks whether the UDP addresses of the plan's kernel sockets are free, and settles on a number
/// where any free port will do.
///
/// # Errors
/// The first address that cannot be had.
pub fn probe_udp(plan: &mut Plan) -> Result<(), SocketError> {
    for port in &mut plan.ports {
        let Device::Sockets(ips) = &port.device else { continue };
        let mut held = Vec::new();
        for &ip in ips {
            let address = SocketAddr::new(ip, port.udp_port);
            let socket = bind_udp(address).map_err(refused("UDP", address))?;
            if let Ok(bound) = socket.local_addr() {
                port.udp_port = bound.port();
            }
            held.push(socket);
        }
    }
    Ok(())
}

fn bind_udp(address: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(address), Type::DGRAM, Some(Protocol::UDP))?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Writes the ports in use to a file, as memcached does for test programs that let it choose:
/// lines of `TCP INET: 11211`. The file appears whole.
///
/// # Errors
/// The OS error.
pub fn write_port_file(path: &Path, tcp: &[SocketAddr], udp: &[SocketAddr]) -> io::Result<()> {
    let mut text = String::new();
    for (protocol, addresses) in [("TCP", tcp), ("UDP", udp)] {
        for a in addresses {
            let family = if a.is_ipv4() { "INET" } else { "INET6" };
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{protocol} {family}: {}", a.port());
        }
    }
    let mut beside = path.as_os_str().to_owned();
    beside.push(".lck");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::startup::plan::tests::planned as plan;
    use std::time::Duration;

    #[test]
    fn any_free_port_becomes_a_number() {
        let mut p = plan("-p -1 -U -1 -l 127.0.0.1,127.0.0.2");
        let listeners = listen(&p).unwrap();
        assert_eq!((listeners.sources.len(), listeners.tcp.len()), (2, 2));
        assert!(listeners.tcp.iter().all(|a| a.port() != 0));
        probe_udp(&mut p).unwrap();
        assert_ne!(p.ports[0].udp_port, 0);
    }

    #[test]
    fn each_refusal_says_what_to_do() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = tcp.local_addr().unwrap().port();
        let said = listen(&plan(&format!("-p {port}"))).unwrap_err().to_string();
        assert!(
            said.starts_with(&format!("TCP 127.0.0.1:{port}: Address already in use: ")),
            "{said}"
        );
        assert!(said.contains("another port with -p"));

        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = udp.local_addr().unwrap().port();
        let said = probe_udp(&mut plan(&format!("-U {port}"))).unwrap_err().to_string();
        assert!(
            said.starts_with(&format!("UDP 127.0.0.1:{port}: Address already in use: ")),
            "{said}"
        );
        assert!(said.contains("another port with -U"));

        // 192.0.2.0/24 is for documentation: no host has it.
        let said = listen(&plan("-p -1 -l 192.0.2.1")).unwrap_err().to_string();
        assert!(said.contains("no interface of this machine has this address"), "{said}");

        let said =
            refused("TCP", "1.2.3.4:80".parse().unwrap())(io::ErrorKind::PermissionDenied.into());
        assert!(said.to_string().contains("CAP_NET_BIND_SERVICE"));
        let said = refused("UDP", "1.2.3.4:80".parse().unwrap())(io::ErrorKind::OutOfMemory.into());
        assert!(said.to_string().starts_with("cannot listen on UDP 1.2.3.4:80: "));
    }

    #[test]
    fn an_address_behind_the_exception_path_need_not_exist_yet() {
        let port = listen(&plan("-p -1")).unwrap().tcp[0].port();
        let args = "--port net_ring0 --ip 192.0.2.1/24 --ip 2001:db8::1/64 --tcp kernel";
        let p = plan(&format!("-p {port} {args}"));
        assert_eq!(listen(&p).unwrap().tcp.len(), 3);
    }

    /// A connection through a listener of ours.
    fn accepted() -> std::net::TcpStream {
        let listeners = listen(&plan("-p -1")).unwrap();
        let _client = std::net::TcpStream::connect(listeners.tcp[0]).unwrap();
        let Source::Tcp(listener, _) = &listeners.sources[0] else { panic!() };
        listener.set_nonblocking(false).unwrap();
        listener.accept().unwrap().0
    }

    #[test]
    fn dead_peers_are_looked_for() {
        assert!(socket2::SockRef::from(&accepted()).keepalive().unwrap());
    }

    #[test]
    fn each_write_is_sent_at_once() {
        assert!(accepted().nodelay().unwrap());
    }

    #[test]
    fn the_kernel_keeps_little_for_who_does_not_read() {
        let unsent = socket2::SockRef::from(&accepted()).tcp_notsent_lowat().unwrap();
        assert_eq!(unsent, UNSENT_BYTES);
    }

    #[test]
    fn the_backlog_bounds_those_who_wait() {
        let waiting = |backlog: i32| {
            let listeners = listen(&plan(&format!("-p -1 -b {backlog}"))).unwrap();
            let connect = || {
                std::net::TcpStream::connect_timeout(&listeners.tcp[0], Duration::from_millis(200))
            };
            let clients: Vec<_> = (0..5).map_while(|_| connect().ok()).collect();
            clients.len()
        };
        // The kernel lets one more in than it was asked.
        assert_eq!((waiting(1), waiting(50)), (2, 5));
    }

    #[test]
    fn the_port_file_has_memcacheds_lines() {
        let path = std::env::temp_dir().join(format!("gnomon-ports-{}", std::process::id()));
        let tcp = ["127.0.0.1:5".parse().unwrap(), "[::1]:6".parse().unwrap()];
        write_port_file(&path, &tcp, &["127.0.0.1:7".parse().unwrap()]).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(text, "TCP INET: 5\nTCP INET6: 6\nUDP INET: 7\n");
    }
}
