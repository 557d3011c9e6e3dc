//! What workers serve TCP with, where they do: over TLS, too, and then with a thread beside each.
//!
//! In: the plan, the store, who may authenticate, certificates. Out: the stream stage's configuration, and
//! the thread that makes a worker's TLS handshakes.

use super::Waiting;
use crate::host::affinity;
use crate::serve::credentials::Credentials;
use crate::serve::ports::OpenPort;
use crate::serve::tls::{Certificates, Clients};
use crate::startup::flags::TcpIn;
use crate::startup::plan::Plan;
use dataplane::commands::login::Users;
use dataplane::stages::stream::{ConnFilter, StreamsConfig, TlsConfig, TlsHandshakes};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use store::{Store, StoreError};

/// Connections that a worker has slots for at least, or `-c` where that is fewer: NICs spread them by a hash.
const CONNECTIONS_LEAST: usize = 256;

/// What each of so many workers serves TCP with, where they do.
pub(super) fn streams(
    plan: &Plan,
    workers: NonZeroU32,
    store: &Arc<Store>,
    credentials: Option<&Arc<Credentials>>,
    certificates: Option<&Arc<Certificates>>,
    filter: Option<&Arc<ConnFilter>>,
) -> Result<Option<StreamsConfig>, StoreError> {
    if plan.tcp_in != TcpIn::Worker {
        return Ok(None);
    }
    let idle_max_s = plan.clients.idle_timeout_seconds;
    let connections = connections(plan.conn_limit, workers);
    let tls = certificates.zip(plan.tls.as_ref()).map(|(certificates, tls)| TlsConfig {
        sessions: Arc::new(Clients { certificates: Arc::clone(certificates), asked: tls.clients }),
        handshakes: Arc::new(TlsHandshakes::new(connections)),
    });
    Ok(Some(StreamsConfig {
        connections,
        session: store.session()?,
        users: credentials.cloned().map(|c| -> Arc<dyn Users> { c }),
        item_max_bytes: store.config().item_max_bytes,
        requests_per_turn: plan.clients.requests_per_turn,
        idle_max: (idle_max_s > 0).then(|| Duration::from_secs(idle_max_s.into())),
        drain_max: Duration::from_secs(plan.clients.drain_seconds.into()),
        tls,
        filter: filter.cloned(),
    }))
}

/// The connections of so many workers, where one of the ports may bring a worker the segments of another's.
pub(super) fn filter(
    plan: &Plan,
    workers: NonZeroU32,
    ports: &[OpenPort],
) -> Option<Arc<ConnFilter>> {
    let stray = ports.iter().any(|port| port.info.flows_stray) && plan.tcp_in == TcpIn::Worker;
    let all = || connections(plan.conn_limit, workers) * workers.get() as usize;
    stray.then(|| Arc::new(ConnFilter::new(all())))
}

/// Slots of a worker's among so many.
fn connections(limit: usize, workers: NonZeroU32) -> usize {
    limit.div_ceil(workers.get() as usize).max(CONNECTIONS_LEAST.min(limit))
}

/// The thread of worker `n` that makes its TLS handshakes, where it serves TLS.
pub(super) fn handshakes(
    n: usize,
    streams: Option<&StreamsConfig>,
    plan: &Plan,
    stop: &Arc<AtomicBool>,
) -> Option<Waiting> {
    let made = Arc::clone(&streams?.tls.as_ref()?.handshakes);
    let (cpus, stop) = (plan.tcp_cpus.clone(), Arc::clone(stop));
    Some(Waiting::new(format!("tls-{n}"), move || {
        affinity::keep_on(&cpus);
        made.run(&stop);
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_share_connections_and_have_room_for_those_that_are_not_spread_evenly() {
        for (limit, workers, each) in
            [(1024, 1, 1024), (1024, 2, 512), (1024, 63, 256), (100_000, 8, 12_500), (10, 4, 10)]
        {
            assert_eq!(connections(limit, NonZeroU32::new(workers).unwrap()), each);
        }
    }
}
