//! `/metrics` over HTTP/1.x, on a thread of its own, apart from everything that serves clients.
//!
//! In: a listener and [`Sources`]. Out: a page to each `GET /metrics`. Whoever connects can hold
//! neither the service nor this thread: at most [`CONNECTIONS_MAX`] at a time, one request of at most
//! [`REQUEST_MAX_BYTES`] each, [`EXCHANGE_MAX`] for all of it, and a page is made at most once in
//! [`PAGE_AGE_MAX`], because making one locks each size class for a moment.

use super::own;
use super::power::Power;
use super::sources::Sources;
use crate::affinity;
use crate::tcp::Source;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, UnixListener};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::task::LocalSet;
use tokio::time::{sleep, timeout};

/// Connections served at a time; the next one waits.
const CONNECTIONS_MAX: usize = 8;
/// Longest request, headers and all.
const REQUEST_MAX_BYTES: usize = 8 << 10;
/// Longest time from accepting to closing.
const EXCHANGE_MAX: Duration = Duration::from_secs(5);
/// A page that is no older is good enough.
const PAGE_AGE_MAX: Duration = Duration::from_millis(100);
/// Pause between two looks at power, and whether to end.
const TICK: Duration = Duration::from_millis(100);
/// Pause after a failed accept, which more tries do not mend.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// No runtime or thread.
    #[error(
        "cannot start the thread of --metrics: {0}; raise the limits on open files and threads"
    )]
    Start(#[from] io::Error),
}

/// Serves until `stop` is set, on `cpu`.
///
/// # Errors
/// [`MetricsError`].
pub fn serve(
    listener: Source,
    sources: Sources,
    cpu: usize,
    stop: Arc<AtomicBool>,
) -> Result<JoinHandle<()>, MetricsError> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    Ok(thread.spawn(move || {
        affinity::keep_on(&[cpu]);
        if let Err(error) = run(&runtime, listener, sources, &stop) {
            tracing::error!(%error, "there are no metrics any more");
        }
    })?)
}

fn run(runtime: &Runtime, listener: Source, sources: Sources, stop: &AtomicBool) -> io::Result<()> {
    let desk = Rc::new(RefCell::new(Desk::new(sources)));
    let accepting = async {
        match listener {
            Source::Tcp(l) => {
                let l = TcpListener::from_std(l)?;
                accept(desk.clone(), async || l.accept().await.map(|(stream, _)| stream)).await
            }
            Source::Unix(l) => {
                let l = UnixListener::from_std(l)?;
                accept(desk.clone(), async || l.accept().await.map(|(stream, _)| stream)).await
            }
        }
    };
    let until_stopped = async {
        while !stop.load(Ordering::Relaxed) {
            desk.borrow_mut().look();
            sleep(TICK).await;
        }
    };
    LocalSet::new().block_on(runtime, async {
        tokio::select! {
            ended = accepting => ended,
            () = until_stopped => Ok(()),
        }
    })
}

/// Takes connections one after the other, as long as there is a seat for them.
async fn accept<S>(
    desk: Rc<RefCell<Desk>>,
    mut next: impl AsyncFnMut() -> io::Result<S>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    // Nobody closes it.
    while let Ok(seat) = Arc::clone(&seats).acquire_owned().await {
        match next().await {
            Ok(mut stream) => {
                let desk = Rc::clone(&desk);
                tokio::task::spawn_local(async move {
                    // Whoever is too slow, or has gone, gets nothing.
                    let _ = timeout(EXCHANGE_MAX, exchange(&mut stream, &desk)).await;
                    drop(seat);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection for metrics");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    Ok(())
}

/// One request and its answer.
async fn exchange<S>(stream: &mut S, desk: &RefCell<Desk>) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = Vec::new();
    let answer = loop {
        if request.windows(4).any(|w| w == b"\r\n\r\n") {
            break answer(&request, || desk.borrow_mut().page());
        }
        if request.len() >= REQUEST_MAX_BYTES {
            break refusal("431 Request Header Fields Too Large");
        }
        let room = REQUEST_MAX_BYTES - request.len();
        if (&mut *stream).take(room as u64).read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    };
    stream.write_all(&answer).await?;
    stream.shutdown().await
}

/// What a request with these bytes gets.
fn answer(request: &[u8], page: impl FnOnce() -> Arc<str>) -> Vec<u8> {
    let line = request.split(|&b| b == b'\r').next().unwrap_or_default();
    let mut words = line.split(|&b| b == b' ');
    let (method, target, version, rest) = (words.next(), words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, rest) else {
        return refusal("400 Bad Request");
    };
    if !version.starts_with(b"HTTP/1.") {
        return refusal("505 HTTP Version Not Supported");
    }
    if target.split(|&b| b == b'?').next() != Some(b"/metrics") {
        return refusal("404 Not Found");
    }
    match method {
        b"GET" => response("200 OK", &page()),
        b"HEAD" => {
            let page = page();
            head("200 OK", page.len()).into_bytes()
        }
        _ => refusal("405 Method Not Allowed"),
    }
}

fn refusal(status: &str) -> Vec<u8> {
    response(status, &format!("{status}: GET /metrics\n"))
}

fn response(status: &str, body: &str) -> Vec<u8> {
    let mut bytes = head(status, body.len()).into_bytes();
    bytes.extend_from_slice(body.as_bytes());
    bytes
}

fn head(status: &str, length: usize) -> String {
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {length}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
}

/// Makes pages, and keeps the last one for a moment.
struct Desk {
    sources: Sources,
    power: Power,
    made: Option<(Instant, Arc<str>)>,
}

impl Desk {
    fn new(sources: Sources) -> Self {
        Self { sources, power: Power::of_machine(), made: None }
    }

    fn look(&mut self) {
        self.power.look(Instant::now(), || own::requests(&self.sources));
    }

    fn page(&mut self) -> Arc<str> {
        let now = Instant::now();
        if let Some((made, page)) = &self.made
            && now.saturating_duration_since(*made) < PAGE_AGE_MAX
        {
            return Arc::clone(page);
        }
        self.look();
        let page: Arc<str> = super::page(&self.sources, &mut self.power).into();
        self.made = Some((now, Arc::clone(&page)));
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(request: &str) -> String {
        let answer = answer(request.as_bytes(), || "page\n".into());
        let text = String::from_utf8(answer).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).unwrap();
        if request.starts_with("HEAD") {
            assert_eq!((length, body), ("5", ""));
        } else {
            assert_eq!(length, body.len().to_string());
        }
        head.lines().next().unwrap().trim_start_matches("HTTP/1.1 ").to_owned()
    }

    #[test]
    fn requests_and_what_they_get() {
        for (request, wanted) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
            ("GET /metrics?x=y HTTP/1.0\r\n\r\n", "200 OK"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /metrics HTTP/2\r\n\r\n", "505 HTTP Version Not Supported"),
            ("get a\r\n\r\n", "400 Bad Request"),
            ("\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/1.1 x\r\n\r\n", "400 Bad Request"),
        ] {
            assert_eq!(status(request), wanted, "{request:?}");
        }
    }
}
