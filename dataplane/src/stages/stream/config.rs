//! What the stream stage is made with: limits of its connections, and facts of its ports.
//!
//! In: the process' plan. Out: values for [`super::Streams::new`]. Cannot fail.

use super::filter::ConnFilter;
use super::handshakes::TlsConfig;
use crate::commands::login::Users;
use std::sync::Arc;
use std::time::Duration;
use store::Session;

/// What the stage is made of.
#[derive(Debug)]
pub struct StreamsConfig {
    /// Most connections at a time.
    pub connections: usize,
    /// A session of its own.
    pub session: Session,
    /// Who may authenticate, where clients must.
    pub users: Option<Arc<dyn Users>>,
    /// Largest item, in bytes.
    pub item_max_bytes: usize,
    /// Most requests of a connection before it is another's turn.
    pub requests_per_turn: usize,
    /// How long a connection may send nothing, or take nothing of what it is owed.
    pub idle_max: Option<Duration>,
    /// How long clients that do not take what they are owed may hold up the end of the service.
    pub drain_max: Duration,
    /// What TLS is spoken with, where it is.
    pub tls: Option<TlsConfig>,
    /// The connections of all workers, where a port may bring a worker the segments of another's.
    pub filter: Option<Arc<ConnFilter>>,
}

impl StreamsConfig {
    /// One without users, TLS, a filter and limits on idle connections; 20 requests to a turn, a second to end.
    pub fn new(connections: usize, session: Session, item_max_bytes: usize) -> Self {
        Self {
            connections,
            session,
            users: None,
            item_max_bytes,
            requests_per_turn: 20,
            idle_max: None,
            drain_max: Duration::from_secs(1),
            tls: None,
            filter: None,
        }
    }
}

/// One port as the stage sees it.
#[derive(Debug, Clone, Copy)]
pub struct StreamPort {
    /// Longest IP packet.
    pub mtu: u16,
    /// TCP port of the service.
    pub tcp_port: u16,
}
