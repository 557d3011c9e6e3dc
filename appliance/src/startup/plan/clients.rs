//! Connections, and what clients may do.

use super::{PlanError, absolute};
use crate::startup::flags::{Extended, FileMask, ServeFlags, ServicePort, TcpIn};
use memcache::{Dialect, Dialects};
use serde::{Serialize, Serializer};
use std::os::unix::net::SocketAddr;
use std::path::{Path, PathBuf};

/// memcached's port.
const SERVICE_PORT: u16 = 11211;

/// How clients connect, and what they may ask for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ClientsPlan {
    /// The Unix socket, which takes the place of TCP and UDP.
    pub unix: Option<UnixPlan>,
    /// Connections that may wait to be accepted.
    pub backlog: i32,
    /// Most requests of one connection before the others get a turn.
    pub requests_per_turn: usize,
    /// What connections speak.
    #[serde(serialize_with = "dialect_word")]
    pub dialect: Dialects,
    /// Users who may authenticate; without it clients need not.
    pub auth_file: Option<PathBuf>,
    /// Those users may authenticate in the binary protocol, by SASL.
    pub sasl: bool,
    /// An idle connection is closed after so many seconds; 0: never.
    pub idle_timeout_seconds: u32,
    /// Longest time for answering what clients have sent when the service stops.
    pub drain_seconds: u32,
    /// A connection over the limit is refused at once; otherwise it waits.
    pub refuse_over_limit: bool,
    /// Dead items are swept from the start.
    pub sweeper: bool,
    /// `flush_all` is carried out.
    pub flush_allowed: bool,
    /// `shutdown` is carried out.
    pub shutdown_allowed: bool,
    /// `lru_crawler metadump` and `stats cachedump` are carried out.
    pub dump_allowed: bool,
    /// `watch` is carried out.
    pub watch_allowed: bool,
    /// Items have CAS numbers.
    pub cas_enabled: bool,
    /// RDMA READs are answered.
    pub rdma: bool,
    /// Clients read items in the memory file.
    pub shared_reads: bool,
    /// What separates prefixes within a key.
    pub prefix_delimiter: u8,
}

/// A Unix socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnixPlan {
    /// Where it is.
    pub path: PathBuf,
    /// Who may connect.
    pub mask: FileMask,
}

pub(super) fn clients(flags: &ServeFlags) -> Result<ClientsPlan, PlanError> {
    let clients = &flags.clients;
    let dialect = dialect(flags)?;
    check_unused(flags)?;
    if clients.auth_file.is_some() {
        if !flags.port.is_empty() && flags.tcp_in() != TcpIn::Worker {
            return Err(PlanError::AuthWithPort);
        }
        if !matches!(flags.udp_port, None | Some(ServicePort::Off)) {
            return Err(PlanError::AuthWithUdp);
        }
        if !clients.enable_sasl && dialect == Dialects::Only(Dialect::Binary) {
            return Err(PlanError::AuthWithBinary);
        }
    } else if clients.enable_sasl {
        return Err(PlanError::SaslWithoutUsers);
    }
    if clients.enable_sasl && dialect == Dialects::Only(Dialect::Ascii) {
        return Err(PlanError::SaslWithAscii);
    }
    if clients.unix_socket.is_some() && !flags.port.is_empty() {
        return Err(PlanError::UnixWithPort);
    }
    if clients.rdma && flags.port.is_empty() {
        return Err(PlanError::RdmaWithoutPort);
    }
    if clients.rdma && clients.enable_ssl {
        return Err(PlanError::RdmaWithTls);
    }
    if clients.shared_reads && flags.memory_file.is_none() {
        return Err(PlanError::SharedReadsWithoutFile);
    }
    let mut plan = ClientsPlan {
        unix: match &clients.unix_socket {
            Some(path) => {
                Some(UnixPlan { path: socket_path("-s", path)?, mask: clients.unix_mask })
            }
            None => None,
        },
        backlog: clients.listen_backlog,
        requests_per_turn: clients.max_reqs_per_event as usize,
        dialect: match clients.auth_file {
            Some(_) if !clients.enable_sasl => Dialects::Only(Dialect::Ascii),
            _ => dialect,
        },
        auth_file: clients.auth_file.as_deref().map(absolute),
        sasl: clients.enable_sasl,
        idle_timeout_seconds: 0,
        drain_seconds: clients.drain_seconds,
        refuse_over_limit: true,
        sweeper: true,
        flush_allowed: !clients.disable_flush_all,
        shutdown_allowed: clients.enable_shutdown,
        dump_allowed: !clients.disable_dumping,
        watch_allowed: !clients.disable_watch,
        cas_enabled: !clients.disable_cas,
        rdma: clients.rdma,
        shared_reads: clients.shared_reads,
        prefix_delimiter: clients.prefix_delimiter,
    };
    for option in clients.options() {
        match option {
            Extended::MaxconnsFast(fast) => plan.refuse_over_limit = *fast,
            Extended::LruCrawler(on) => plan.sweeper = *on,
            Extended::NoModern => (plan.refuse_over_limit, plan.sweeper) = (false, false),
            Extended::IdleTimeout(seconds) => plan.idle_timeout_seconds = *seconds,
            Extended::Unused(_) | Extended::Ssl(_) => {}
        }
    }
    Ok(plan)
}

/// What connections speak: as `-l proto[…]` says, and otherwise `-B`.
fn dialect(flags: &ServeFlags) -> Result<Dialects, PlanError> {
    let mut spoken = flags.listening().map(|l| l.dialect.unwrap_or(flags.clients.protocol));
    let first = spoken.next().unwrap_or(flags.clients.protocol);
    spoken.all(|d| d == first).then_some(first).ok_or(PlanError::ListenDialects)
}

impl ClientsPlan {
    /// The word of `-B`.
    pub(super) fn protocol(&self) -> &'static str {
        word(self.dialect)
    }
}

fn word(dialect: Dialects) -> &'static str {
    match dialect {
        Dialects::Auto => "auto",
        Dialects::Only(Dialect::Ascii) => "ascii",
        Dialects::Only(Dialect::Binary) => "binary",
    }
}

fn dialect_word<S: Serializer>(dialect: &Dialects, s: S) -> Result<S::Ok, S::Error> {
    s.serialize_str(word(*dialect))
}

/// What memcached refuses of options that have no effect here.
fn check_unused(flags: &ServeFlags) -> Result<(), PlanError> {
    let number = |name: &str| {
        let mut typed = flags.clients.options().filter_map(|o| match o {
            Extended::Unused(typed) => typed.strip_prefix(name)?.strip_prefix('=')?.parse().ok(),
            _ => None,
        });
        typed.next_back()
    };
    let shares = number("hot_lru_pct").unwrap_or(20) + number("warm_lru_pct").unwrap_or(40);
    if shares > 80 {
        return Err(PlanError::LruShares(shares));
    }
    if let Some(power) = number("hashpower").filter(|power| *power <= lock_power(flags.threads)) {
        return Err(PlanError::HashPower { power, threads: flags.threads });
    }
    match number("slab_chunk_max") {
        Some(chunk) if !flags.max_item_size.is_multiple_of(chunk.max(1)) => {
            Err(PlanError::SlabChunkMax { chunk, item_max: flags.max_item_size })
        }
        _ => Ok(()),
    }
}

/// The power of two that memcached's locks are of, with so many threads: its table is larger.
fn lock_power(threads: u16) -> u64 {
    match threads {
        ..3 => 10,
        3 => 11,
        4 => 12,
        5..=10 => 13,
        11..=20 => 14,
        21.. => 15,
    }
}

/// The TCP port: as it was given, and otherwise UDP's, as in memcached.
pub(super) fn tcp_port(flags: &ServeFlags) -> ServicePort {
    match (flags.tcp_port, flags.udp_port) {
        (Some(port), _) | (None, Some(port @ ServicePort::Fixed(_))) => port,
        // Clients of a NIC must know the port.
        (None, Some(ServicePort::Any)) if flags.port.is_empty() => ServicePort::Any,
        (None, _) => ServicePort::Fixed(SERVICE_PORT),
    }
}

/// The UDP port: as it was given, and otherwise TCP's, or off where clients must authenticate or TLS is
/// spoken.
pub(super) fn udp_port(flags: &ServeFlags) -> ServicePort {
    match (flags.udp_port, flags.tcp_port) {
        (Some(port), _) => port,
        (None, _) if flags.clients.auth_file.is_some() || flags.clients.enable_ssl => {
            ServicePort::Off
        }
        (None, Some(port @ ServicePort::Fixed(_))) => port,
        // Clients of a NIC must know the port.
        (None, Some(ServicePort::Any)) if flags.port.is_empty() => ServicePort::Any,
        (None, _) => ServicePort::Fixed(SERVICE_PORT),
    }
}

/// The path of a Unix socket, if it can be one's.
pub(super) fn socket_path(flag: &'static str, path: &Path) -> Result<PathBuf, PlanError> {
    let path = absolute(path);
    if SocketAddr::from_pathname(&path).is_err() {
        return Err(PlanError::SocketPath { flag, path });
    }
    Ok(path)
}
