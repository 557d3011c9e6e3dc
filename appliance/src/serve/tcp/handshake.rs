//! TLS handshakes: each in bounded time, their work on a thread of its own, so many of a source.
//!
//! In: a fresh connection, and what is asked of its client. Out: the same over TLS, or the
//! reason why not. The work, which takes up to milliseconds, is done by one [`HandshakeThread`] for each
//! TCP thread, so that no reply to others waits for it; none is done for a
//! handshake that has ended meanwhile. Fails: a client that says what is no handshake, or takes too
//! long, or whose source has half of all connections (`-c`) in handshakes already.

use super::handshake_thread::HandshakeThread;
use super::tls::Tls;
use crate::serve::tls::Certificates;
use crate::startup::plan::ClientCerts;
use dataplane::stages::stream::{Places, TlsStep};
use parking_lot::Mutex;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Longest handshake.
const HANDSHAKE_MAX: Duration = Duration::from_secs(10);
/// How long a client may take to receive the alert that ends its handshake.
const ALERT_MAX: Duration = Duration::from_secs(1);

/// Handshakes of all threads.
#[derive(Debug)]
pub(super) struct Handshakes {
    certificates: Arc<Certificates>,
    places: Mutex<Places>,
}

/// Why there is no connection.
#[derive(Debug)]
pub(super) enum Failure {
    /// Too many of its source are under way.
    Refused,
    /// The client, or the network.
    Failed(io::Error),
}

impl Handshakes {
    /// For so many connections in all.
    pub(super) fn new(certificates: Arc<Certificates>, connections: usize) -> Self {
        Self { certificates, places: Mutex::new(Places::new(connections)) }
    }

    /// Makes it a connection over TLS.
    pub(super) async fn run(
        &self,
        socket: TcpStream,
        clients: ClientCerts,
        thread: &HandshakeThread,
    ) -> Result<Box<Tls>, Failure> {
        let source = socket.peer_addr().map_err(Failure::Failed)?.ip();
        let _place = self.place(source).ok_or(Failure::Refused)?;
        // Plans with such a listener have certificates to check clients by.
        let config = self.certificates.config(clients);
        let config = config.ok_or_else(|| Failure::Failed(io::ErrorKind::Unsupported.into()))?;
        let tls = Tls::new(socket, config).map_err(|e| Failure::Failed(io::Error::other(e)))?;
        match timeout(HANDSHAKE_MAX, handshake(Box::new(tls), thread)).await {
            Ok(done) => done.map_err(Failure::Failed),
            Err(_) => Err(Failure::Failed(io::ErrorKind::TimedOut.into())),
        }
    }

    fn place(&self, source: IpAddr) -> Option<Place<'_>> {
        self.places.lock().enter(source).then(|| Place { all: self, source })
    }
}

/// A handshake under way.
struct Place<'h> {
    all: &'h Handshakes,
    source: IpAddr,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.all.places.lock().leave(self.source);
    }
}

async fn handshake(mut tls: Box<Tls>, thread: &HandshakeThread) -> io::Result<Box<Tls>> {
    loop {
        if !poll_fn(|cx| tls.poll_receive(cx)).await? {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let (back, step) = thread.advance(tls).await?;
        tls = back;
        match step {
            Ok(TlsStep::Blocked) => tls.flush().await?,
            // Whose client has ended already may have asked for something before.
            Ok(TlsStep::Open | TlsStep::Ended) => {
                tls.flush().await?;
                return Ok(tls);
            }
            Err(error) => {
                let _ = timeout(ALERT_MAX, part(&mut tls)).await;
                return Err(error);
            }
        }
    }
}

/// Sends the alert, and reads on until the client has gone: closing with bytes unread would take
/// the alert from it.
async fn part(tls: &mut Tls) -> io::Result<()> {
    tls.flush().await?;
    tls.shutdown()?;
    while poll_fn(|cx| tls.poll_receive(cx)).await? {
        tls.forget();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serve::tls::tests::certificates;
    use std::pin::pin;
    use std::sync::mpsc::channel;
    use std::task::{Context, Waker};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use tokio::runtime::Builder;

    #[test]
    fn a_source_has_half_of_the_places_and_gives_them_back() {
        let handshakes = Handshakes::new(Arc::new(certificates("places")), 4);
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let held = [handshakes.place(here).unwrap(), handshakes.place(here).unwrap()];
        assert!(handshakes.place(here).is_none());
        assert!(handshakes.place("127.0.0.2".parse().unwrap()).is_some());
        drop(held);
        assert!(handshakes.place(here).is_some());
        assert!(handshakes.places.lock().of.is_empty());
        let of = |text: &str| handshakes.place(text.parse().unwrap());
        let held = [of("fd00::1"), of("fd00::2")];
        assert!(held.iter().all(Option::is_some));
        assert!(of("fd00::3").is_none(), "a subnet is a source");
        assert!(of("fd00:0:0:1::1").is_some());
    }

    #[test]
    fn a_handshake_that_has_ended_leaves_the_queue_with_its_connection() {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build().unwrap();
        // The thread has other work.
        let (go, wait) = channel::<()>();
        let thread = HandshakeThread::start(0, move || assert!(wait.recv().is_err())).unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut client = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
            client.write_all(&[0x16, 3, 1]).await.unwrap();
            let (server, _) = listener.accept().await.unwrap();
            server.readable().await.unwrap();
            let config = certificates("given-up").config(ClientCerts::Ignored).unwrap();
            let tls = Box::new(Tls::new(server, config).unwrap());
            {
                let mut handshake = pin!(handshake(tls, &thread));
                let mut cx = Context::from_waker(Waker::noop());
                assert!(handshake.as_mut().poll(&mut cx).is_pending());
            }
            let closed = timeout(Duration::from_secs(10), client.read(&mut [0])).await;
            assert_eq!(closed.expect("it is held").unwrap(), 0);
            drop(go);
        });
    }
}
