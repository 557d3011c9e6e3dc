//! Gets the page of a running gnomon, for `gnomon stats` and `gnomon top`.
//!
//! In: where it serves metrics. Out: the page. Bounded in time and size, whatever server answers there.

use crate::startup::flags::MetricsAddr;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

/// Longest wait for all of it.
const FETCH_MAX: Duration = Duration::from_secs(10);
/// Largest page: some thousand times what one is.
const PAGE_MAX_BYTES: usize = 64 << 20;

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// No server answers.
    #[error("{address}: {source}; is gnomon running there with --metrics?")]
    Io {
        /// Where it was looked for.
        address: MetricsAddr,
        /// The kernel's words.
        source: io::Error,
    },
    /// Another server does.
    #[error("{0}: what answers there is not gnomon's /metrics")]
    Strange(MetricsAddr),
}

/// The page at `address`.
///
/// # Errors
/// [`FetchError`].
pub fn fetch(address: &MetricsAddr) -> Result<String, FetchError> {
    let bytes = ask(address);
    let bytes = bytes.map_err(|source| FetchError::Io { address: address.clone(), source })?;
    let strange = || FetchError::Strange(address.clone());
    let text = String::from_utf8(bytes).map_err(|_| strange())?;
    match text.split_once("\r\n\r\n") {
        Some((head, page)) if head.starts_with("HTTP/1.1 200 ") => Ok(page.to_owned()),
        _ => Err(strange()),
    }
}

/// A connection to the server of metrics there.
pub(crate) fn connect(address: &MetricsAddr) -> io::Result<Socket> {
    match address {
        MetricsAddr::Unix(path) => connect_to(Domain::UNIX, &SockAddr::unix(path)?),
        // All addresses of both families: this machine's, of one that it has.
        MetricsAddr::Tcp(SocketAddr::V6(all)) if all.ip().is_unspecified() => {
            let to = |ip: IpAddr| connect_tcp((ip, all.port()).into());
            to(Ipv6Addr::LOCALHOST.into()).or_else(|_| to(Ipv4Addr::LOCALHOST.into()))
        }
        MetricsAddr::Tcp(address) => connect_tcp(*address),
    }
}

fn connect_tcp(address: SocketAddr) -> io::Result<Socket> {
    connect_to(Domain::for_address(address), &address.into())
}

fn connect_to(domain: Domain, address: &SockAddr) -> io::Result<Socket> {
    let socket = Socket::new(domain, Type::STREAM, None)?;
    socket.connect_timeout(address, FETCH_MAX)?;
    Ok(socket)
}

/// Sends the request, and reads to the end.
fn ask(address: &MetricsAddr) -> io::Result<Vec<u8>> {
    let deadline = Instant::now() + FETCH_MAX;
    let mut socket = connect(address)?;
    // Into an empty buffer of the kernel's.
    socket.write_all(b"GET /metrics HTTP/1.0\r\nHost: gnomon\r\n\r\n")?;
    let (mut all, mut part) = (Vec::new(), [0; 16 << 10]);
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() || all.len() > PAGE_MAX_BYTES {
            return Err(io::ErrorKind::TimedOut.into());
        }
        socket.set_read_timeout(Some(left))?;
        match socket.read(&mut part) {
            Ok(0) => return Ok(all),
            Ok(n) => all.extend_from_slice(part.get(..n).unwrap_or_default()),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                return Err(io::ErrorKind::TimedOut.into());
            }
            Err(e) => return Err(e),
        }
    }
}
