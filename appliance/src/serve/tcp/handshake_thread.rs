//! The thread beside a TCP thread that makes its TLS handshakes, first come, first served.
//!
//! In: sessions that something has come for. Out: the same, advanced. Made at the start: a thread that cannot be
//! made while clients are served would end the process. Ends with its TCP thread.

use super::tls::Tls;
use dataplane::stages::stream::TlsStep;
use parking_lot::Mutex;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use tokio::sync::oneshot;

/// The thread, and the way to it.
pub(super) struct HandshakeThread {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

struct Job {
    tls: Arc<Mutex<Option<Box<Tls>>>>,
    done: oneshot::Sender<(Box<Tls>, io::Result<TlsStep>)>,
}

impl HandshakeThread {
    /// The thread beside TCP thread `n`, which first does this.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub(super) fn start(n: usize, first: impl FnOnce() + Send + 'static) -> io::Result<Self> {
        let (jobs, queue) = channel::<Job>();
        let thread = Builder::new().name(format!("tls-{n}")).spawn(move || {
            first();
            for Job { tls, done } in queue {
                let lent = tls.lock().take();
                if let Some(mut tls) = lent {
                    let step = tls.advance();
                    // The handshake may have ended meanwhile.
                    let _ = done.send((tls, step));
                }
            }
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Has the work done, if it is waited for until then.
    pub(super) async fn advance(
        &self,
        tls: Box<Tls>,
    ) -> io::Result<(Box<Tls>, io::Result<TlsStep>)> {
        let lent = Lent(Arc::new(Mutex::new(Some(tls))));
        let (done, advanced) = oneshot::channel();
        let ended = || io::Error::from(io::ErrorKind::BrokenPipe);
        let jobs = self.jobs.as_ref().ok_or_else(ended)?;
        jobs.send(Job { tls: Arc::clone(&lent.0), done }).map_err(|_| ended())?;
        advanced.await.map_err(|_| ended())
    }
}

impl Drop for HandshakeThread {
    fn drop(&mut self) {
        drop(self.jobs.take());
        if let Some(thread) = self.thread.take() {
            // Its panic has been reported.
            let _ = thread.join();
        }
    }
}

/// A connection whose work waits for the thread. It goes with who waits for it.
struct Lent(Arc<Mutex<Option<Box<Tls>>>>);

impl Drop for Lent {
    fn drop(&mut self) {
        let given_up = self.0.lock().take();
        drop(given_up);
    }
}
