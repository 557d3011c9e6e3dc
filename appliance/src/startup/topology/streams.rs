//! What workers serve TCP with, where they do: over TLS, too, and then with a thread beside each.
//!
//! In: the plan, the store, who may authenticate, certificates. Out: the stream stage's configuration, and
//! the thread that makes a worker's TLS handshakes.

use super::Waiting;
use crate::host::affinity;
use crate::serve::credentials::Credentials;
use crate::serve::tls::{Certificates, Clients};
use crate::startup::flags::TcpIn;
use crate::startup::plan::Plan;
use dataplane::commands::admission::Users;
use dataplane::stages::stream::{StreamsConfig, TlsConfig, TlsHandshakes};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;
use store::{Store, StoreError};

/// What a worker serves TCP with, where it does.
pub(super) fn streams(
    plan: &Plan,
    store: &Arc<Store>,
    credentials: Option<&Arc<Credentials>>,
    certificates: Option<&Arc<Certificates>>,
) -> Result<Option<StreamsConfig>, StoreError> {
    if plan.tcp_in != TcpIn::Worker {
        return Ok(None);
    }
    let idle_max_s = plan.clients.idle_timeout_seconds;
    let connections = plan.conn_limit.div_ceil(plan.worker_cpus.len().max(1));
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
    }))
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
