//! A connection from its permit to its end. Nearly always it waits for a request, and what there is
//! of it then is small: what answers one is made on the heap when something comes, and goes.
//!
//! ```text
//!  accepted ──► handshake, over TLS ──► waits ──► works ──► the end
//!                                         ▲         │
//!                                         └─────────┘
//! ```
//!
//! In: an accepted connection and its permit. Out: nothing; the permit is free again. Fails: as its
//! client, the network and memory do, and then it ends.

use super::connection::{Dialogue, converse, finish};
use super::handshake::Failure;
use super::permit::{ConnPermit, ThreadConns};
use super::shared::End;
use super::transport::Stream;
use super::waiting::nap;
use crate::startup::plan::ClientCerts;
use dataplane::observe::conns::Address;
use dataplane::observe::{Conn, ConnState};
use std::future::Future;
use std::io;
use std::mem::replace;
use std::os::fd::RawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::time::Sleep;

/// The task of a connection.
pub(super) struct Served(Phase);

enum Phase {
    /// For a request.
    Waits(Standing),
    /// Until it waits again, or has ended.
    Works(Pin<Box<dyn Future<Output = Option<Standing>>>>),
    Over,
}

/// What a connection is from one request to the next.
struct Standing {
    stream: Stream,
    conn: Conn,
    permit: ConnPermit,
    /// What it has said so far, once it has said something.
    dialogue: Option<Box<Dialogue>>,
    /// Its idle timeout, where it has one.
    limit: Option<Pin<Box<Sleep>>>,
}

impl Served {
    /// Adds it to the list of connections.
    pub(super) fn new(
        (stream, from): (Stream, Address),
        permit: ConnPermit,
        tls: Option<ClientCerts>,
        listener: Arc<str>,
    ) -> Self {
        let shared = &permit.thread.shared;
        let conn = shared.server.conns.enter(stream.fd(), from, Some(listener));
        shared.server.watchers.connected(conn.peer(), conn.fd());
        let standing = Standing { stream, conn, permit, dialogue: None, limit: None };
        Self(match tls {
            Some(clients) => Phase::Works(Box::pin(async move {
                let Standing { stream, conn, permit, .. } = standing;
                let Some(stream) = greet(stream, &permit.thread, clients, conn.fd()).await else {
                    let watchers = &permit.thread.shared.server.watchers;
                    watchers.disconnected(conn.peer(), "error", conn.fd());
                    return None;
                };
                Some(Standing { stream, conn, permit, dialogue: None, limit: None })
            })),
            None => Phase::Waits(standing),
        })
    }
}

impl Future for Served {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            self.0 = match replace(&mut self.0, Phase::Over) {
                Phase::Waits(mut standing) => match standing.poll_come(cx) {
                    Poll::Pending => {
                        self.0 = Phase::Waits(standing);
                        return Poll::Pending;
                    }
                    Poll::Ready(come) => Phase::Works(Box::pin(work(standing, come))),
                },
                Phase::Works(mut working) => match working.as_mut().poll(cx) {
                    Poll::Pending => {
                        self.0 = Phase::Works(working);
                        return Poll::Pending;
                    }
                    Poll::Ready(Some(standing)) => Phase::Waits(standing),
                    Poll::Ready(None) => return Poll::Ready(()),
                },
                Phase::Over => return Poll::Ready(()),
            }
        }
    }
}

impl Standing {
    /// Waits until something has come or the service stops. False when nothing came for too long.
    fn poll_come(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let shared = &self.permit.thread.shared;
        if shared.drain().is_some() {
            return Poll::Ready(Ok(true));
        }
        if let Poll::Ready(come) = self.stream.poll_readable(cx) {
            return Poll::Ready(come.map(|()| true));
        }
        if self.permit.place.is_none() {
            self.permit.place = Some(shared.waiting.enter(cx.waker())?);
        }
        if self.limit.is_none() {
            self.limit = shared.idle_max.map(nap);
        }
        let over = self.limit.as_mut().is_some_and(|limit| limit.as_mut().poll(cx).is_ready());
        if over && self.stream.has_unread(0) {
            // The runtime has not noticed yet, as after a pause of the whole process.
            self.limit = None;
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        if over { Poll::Ready(Ok(false)) } else { Poll::Pending }
    }
}

/// Answers what has come, if something has. The connection as it waits for more, unless it has ended.
async fn work(mut standing: Standing, come: io::Result<bool>) -> Option<Standing> {
    let Standing { stream, conn, permit, dialogue, limit } = &mut standing;
    let shared = &permit.thread.shared;
    *limit = None;
    let result = match come {
        Ok(true) => converse(stream, shared, conn, dialogue).await,
        Ok(false) => Ok(Some(End::Idle)),
        Err(error) => Err(error),
    };
    let Some(result) = result.transpose() else {
        let in_refused = dialogue.as_ref().is_some_and(|dialogue| dialogue.is_in_refused());
        conn.set_state(if in_refused { ConnState::Swallowing } else { ConnState::Reading });
        return Some(standing);
    };
    let end = finish(stream, shared, conn, result).await;
    if let (Stream::Tls(tls), End::Client | End::Idle) = (&mut *stream, &end) {
        // Says that this is the end, and no cut.
        let _ = tls.shutdown();
    }
    match &end {
        End::Service { .. } => permit.thread.ended.count_drained(),
        End::Cut => permit.thread.ended.count_cut(1),
        End::Failed(error)
            if matches!(stream, Stream::Tls(_)) && error.kind() == io::ErrorKind::InvalidData =>
        {
            shared.ops.tls_proto_errors.inc();
            shared.server.watchers.tls_failed(&error.to_string(), conn.fd());
        }
        _ => {}
    }
    shared.server.watchers.disconnected(conn.peer(), end.reason(), conn.fd());
    tracing::debug!(?end, "a connection ended");
    None
}

/// The connection over TLS, unless its handshake fails or the service stops meanwhile.
async fn greet(
    stream: Stream,
    ThreadConns { shared, handshakes, .. }: &ThreadConns,
    clients: ClientCerts,
    fd: RawFd,
) -> Option<Stream> {
    let (Stream::Tcp(socket), Some((handshakes, thread))) = (stream, handshakes) else {
        // A service with such a listener makes handshakes.
        return None;
    };
    let done = tokio::select! {
        done = handshakes.run(socket, clients, thread) => done,
        _ = shared.stopping() => return None,
    };
    match done {
        Ok(tls) => {
            if tls.is_new_session() {
                shared.ops.tls_sessions.inc();
            }
            return Some(Stream::Tls(tls));
        }
        Err(Failure::Refused) => {
            shared.ops.tls_refused.inc();
            shared.server.watchers.tls_failed("too many handshakes of this source", fd);
        }
        Err(Failure::Failed(error)) => {
            tracing::debug!(%error, "a TLS handshake failed");
            shared.ops.tls_handshake_errors.inc();
            shared.server.watchers.tls_failed(&error.to_string(), fd);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    /// tokio rounds a task up to a multiple of 128 bytes, of which some 110 are its own.
    const WAITING_MAX_BYTES: usize = 144;

    #[test]
    fn a_connection_that_waits_is_small() {
        let bytes = size_of::<Served>();
        assert!(bytes <= WAITING_MAX_BYTES, "{bytes} bytes");
    }
}
