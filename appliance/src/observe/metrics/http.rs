//! `/metrics` over HTTP/1.x, on a thread of its own, apart from everything that serves clients.
//!
//! In: a listener and [`Sources`]. Out: a page to each `GET /metrics`, and over a Unix socket a capture
//! to `GET /capture` ([`crate::observe::capture`]), one at a time. A client can hold up
//! neither the service nor this thread: at most [`CONNECTIONS_MAX`] at a time, one request of at most
//! [`REQUEST_MAX_BYTES`] each, [`EXCHANGE_MAX`] for all of it, and a page is made at most once in
//! [`PAGE_AGE_MAX`], because making one locks each size class for a moment.

use super::own;
use super::power::Power;
use super::sources::Sources;
use crate::host::affinity;
use crate::observe::capture::{self, Captures, Refused, Request};
use crate::observe::health::Sparing;
use crate::process::allocator;
use crate::serve::tcp::Source;
use crate::startup::flags::Energy;
use std::cell::RefCell;
use std::collections::VecDeque;
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
use tokio::task::{AbortHandle, LocalSet};
use tokio::time::{sleep, timeout};

/// Connections served at a time; for the next one the oldest makes way.
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
/// Longest time that a capture has for its end when all ends.
const LAST_MAX: Duration = Duration::from_secs(1);

/// Why there are no metrics.
#[derive(Debug, thiserror::Error)]
pub enum MetricsError {
    /// No runtime or thread.
    #[error(
        "cannot start the thread of --metrics: {0}; raise the limits on open files and threads"
    )]
    Start(#[from] io::Error),
}

/// Serves until `stop` is set, on these CPUs.
///
/// # Errors
/// [`MetricsError`].
pub fn serve(
    listener: Source,
    sources: Sources,
    cpus: Vec<usize>,
    stop: Arc<AtomicBool>,
) -> Result<JoinHandle<()>, MetricsError> {
    let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
    let thread = std::thread::Builder::new().name("metrics".to_owned());
    Ok(thread.spawn(move || {
        affinity::keep_on(&cpus);
        allocator::prepare_thread();
        if let Err(error) = run(&runtime, listener, sources, stop) {
            tracing::error!(%error, "there are no metrics any more");
        }
    })?)
}

fn run(
    runtime: &Runtime,
    listener: Source,
    sources: Sources,
    stop: Arc<AtomicBool>,
) -> io::Result<()> {
    let local = matches!(listener, Source::Unix(_));
    let captures = Captures::new(sources.capture_channels.clone());
    let pages = RefCell::new(Pages::new(sources));
    let shared = Rc::new(Shared { pages, captures, exchanges: RefCell::default(), local, stop });
    let accepting = async {
        match listener {
            Source::Tcp(l, _) => {
                let l = TcpListener::from_std(l)?;
                accept(shared.clone(), async || l.accept().await.map(|(stream, _)| stream)).await
            }
            Source::Unix(l) => {
                let l = UnixListener::from_std(l)?;
                accept(shared.clone(), async || l.accept().await.map(|(stream, _)| stream)).await
            }
        }
    };
    let until_stopped = async {
        while !shared.stop.load(Ordering::Relaxed) {
            shared.pages.borrow_mut().look();
            shared.captures.tidy();
            sleep(TICK).await;
        }
        let last = Instant::now() + LAST_MAX;
        while shared.captures.is_running() && Instant::now() < last {
            sleep(TICK / 10).await;
        }
    };
    LocalSet::new().block_on(runtime, async {
        tokio::select! {
            ended = accepting => ended,
            () = until_stopped => Ok(()),
        }
    })
}

/// Takes connections one after the other. Where all seats are taken, the connection that has had one for longest
/// is closed: an honest exchange takes no longer than it takes others to come.
async fn accept<S>(
    shared: Rc<Shared>,
    mut next: impl AsyncFnMut() -> io::Result<S>,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
{
    let seats = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut lines = Sparing::default();
    for number in 0u64.. {
        match next().await {
            Ok(mut stream) => {
                let seat = match Arc::clone(&seats).try_acquire_owned() {
                    Ok(seat) => seat,
                    Err(_) => {
                        let oldest = shared.exchanges.borrow_mut().pop_front();
                        oldest.iter().for_each(|(_, exchange)| exchange.abort());
                        // The semaphore is never closed.
                        let Ok(seat) = Arc::clone(&seats).acquire_owned().await else { break };
                        seat
                    }
                };
                let all = Rc::clone(&shared);
                let task = tokio::task::spawn_local(async move {
                    let shared = all;
                    // A client that is too slow, or has gone, gets nothing.
                    let asked = timeout(EXCHANGE_MAX, exchange(&mut stream, &shared)).await;
                    shared.exchanges.borrow_mut().retain(|(n, _)| *n != number);
                    if let Ok(Ok(Some(request))) = asked {
                        capture(&mut stream, &shared, &request).await;
                    }
                    drop(seat);
                });
                shared.exchanges.borrow_mut().push_back((number, task.abort_handle()));
            }
            Err(error) => {
                if let Some(more) = lines.allows(Instant::now()) {
                    tracing::warn!(more, %error, "cannot accept a connection for metrics");
                }
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    Ok(())
}

/// What all connections share.
struct Shared {
    pages: RefCell<Pages>,
    captures: Captures,
    /// Those under way, the oldest first.
    exchanges: RefCell<VecDeque<(u64, AbortHandle)>>,
    /// On a Unix socket, whose permissions say who may connect.
    local: bool,
    stop: Arc<AtomicBool>,
}

async fn capture<S>(stream: &mut S, shared: &Shared, request: &Request)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    if let Err(Refused { status, why }) =
        capture::serve(stream, &shared.captures, request, &shared.stop).await
    {
        let refused = async {
            stream.write_all(&response(status, &format!("{why}\n"))).await?;
            stream.shutdown().await
        };
        // As above.
        let _ = timeout(EXCHANGE_MAX, refused).await;
    }
}

/// One request and its answer, or the capture that it requests.
async fn exchange<S>(stream: &mut S, shared: &Shared) -> io::Result<Option<Request>>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut request = Vec::new();
    let answer = loop {
        if has_ended(&request) {
            match answer(&request, shared.local, || shared.pages.borrow_mut().page()) {
                Answer::Whole(answer) => break answer,
                Answer::Capture(request) => return Ok(Some(request)),
            }
        }
        if request.len() >= REQUEST_MAX_BYTES {
            break refusal("431 Request Header Fields Too Large");
        }
        let room = REQUEST_MAX_BYTES - request.len();
        if (&mut *stream).take(room as u64).read_buf(&mut request).await? == 0 {
            return Ok(None);
        }
    };
    stream.write_all(&answer).await?;
    stream.shutdown().await?;
    Ok(None)
}

enum Answer {
    Whole(Vec<u8>),
    Capture(Request),
}

/// Whether the request's head is there: lines, then an empty one. A lone LF ends a line, too (RFC 9112, section 2.2).
fn has_ended(request: &[u8]) -> bool {
    let ends = |n, end: &[u8]| request.windows(n).any(|bytes| bytes == end);
    ends(3, b"\n\r\n") || ends(2, b"\n\n")
}

/// What a request with these bytes gets.
fn answer(request: &[u8], local: bool, page: impl FnOnce() -> Arc<str>) -> Answer {
    let line = request.split(|&b| b == b'\n').next().unwrap_or_default();
    let line = line.strip_suffix(b"\r").unwrap_or(line);
    let mut words = line.split(|&b| b == b' ');
    let (method, target, version, rest) = (words.next(), words.next(), words.next(), words.next());
    let (Some(method), Some(target), Some(version), None) = (method, target, version, rest) else {
        return Answer::Whole(refusal("400 Bad Request"));
    };
    if !version.starts_with(b"HTTP/1.") {
        return Answer::Whole(refusal("505 HTTP Version Not Supported"));
    }
    let mut parts = target.splitn(2, |&b| b == b'?');
    Answer::Whole(match (parts.next(), method) {
        (Some(b"/metrics"), b"GET") => response("200 OK", &page()),
        (Some(b"/metrics"), b"HEAD") => head("200 OK", page().len()).into_bytes(),
        (Some(b"/capture"), b"GET") if !local => {
            response("403 Forbidden", "frames are captured only over a Unix socket\n")
        }
        (Some(b"/capture"), b"GET") => {
            let query = String::from_utf8_lossy(parts.next().unwrap_or_default());
            match Request::from_query(&query) {
                Ok(request) => return Answer::Capture(request),
                Err(error) => response("400 Bad Request", &format!("{error}\n")),
            }
        }
        (Some(b"/metrics" | b"/capture"), _) => refusal("405 Method Not Allowed"),
        _ => refusal("404 Not Found"),
    })
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
struct Pages {
    sources: Sources,
    power: Power,
    made: Option<(Instant, Arc<str>)>,
}

impl Pages {
    fn new(sources: Sources) -> Self {
        let power = match sources.energy {
            Energy::Off => Power::default(),
            Energy::Report | Energy::Manage => Power::of_machine(sources.base_watts),
        };
        Self { sources, power, made: None }
    }

    fn look(&mut self) {
        if self.sources.energy == Energy::Off {
            return;
        }
        let gpus = self.sources.gpus.joules();
        self.power.look(Instant::now(), gpus, || own::requests(&self.sources));
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
        let answer = answer(request.as_bytes(), false, || "page\n".into());
        let Answer::Whole(answer) = answer else { panic!("a capture over TCP") };
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
    fn captures_over_a_unix_socket() {
        let ask = |target: &str| {
            let request = format!("GET {target} HTTP/1.1\r\n\r\n");
            answer(request.as_bytes(), true, || panic!("no page"))
        };
        for (target, wanted) in
            [("/capture", ""), ("/capture?count=5&what=drops", "count=5&what=drops")]
        {
            let Answer::Capture(request) = ask(target) else { panic!("{target}") };
            assert_eq!(Ok(request), Request::from_query(wanted));
        }
        let Answer::Whole(refused) = ask("/capture?what=all") else { panic!("taken") };
        let refused = String::from_utf8(refused).unwrap();
        assert!(refused.starts_with("HTTP/1.1 400 ") && refused.ends_with("no value of what\n"));
    }

    #[test]
    fn requests_and_what_they_get() {
        for (request, wanted) in [
            ("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n", "200 OK"),
            ("GET /metrics?x=y HTTP/1.0\r\n\r\n", "200 OK"),
            ("GET /metrics HTTP/1.1\nHost: x\n\n", "200 OK"),
            ("HEAD /metrics HTTP/1.1\r\n\r\n", "200 OK"),
            ("GET / HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", "404 Not Found"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("POST /capture HTTP/1.1\r\n\r\n", "405 Method Not Allowed"),
            ("GET /capture HTTP/1.1\r\n\r\n", "403 Forbidden"),
            ("GET /capture?what=all HTTP/1.1\r\n\r\n", "403 Forbidden"),
            ("GET /metrics HTTP/2\r\n\r\n", "505 HTTP Version Not Supported"),
            ("get a\r\n\r\n", "400 Bad Request"),
            ("\r\n\r\n", "400 Bad Request"),
            ("GET /metrics HTTP/1.1 x\r\n\r\n", "400 Bad Request"),
        ] {
            assert!(
                has_ended(request.as_bytes())
                    && !has_ended(&request.as_bytes()[..request.len() - 1])
            );
            assert_eq!(status(request), wanted, "{request:?}");
        }
    }
}
