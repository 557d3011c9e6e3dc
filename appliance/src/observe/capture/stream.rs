//! A capture to the client that requested it, until it is over or the client has gone.
//!
//! In: a connection whose request was read. Out: the head of an answer, and the file behind it. The
//! client ends it by closing its side; half of it is enough, and then it gets the end of the file.
//! Every wait is bounded: for workers by [`HEED_MAX`], for the client by [`STALL_MAX`].

use super::request::Request;
use super::session::{Captures, NotBegun, Session};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::{sleep, timeout};

/// Longest wait for workers to do as ordered. An idle one looks every 20 ms.
const HEED_MAX: Duration = Duration::from_secs(1);
/// Longest time without the client taking anything of what there is for it.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Pause between two looks at the rings: a quarter of what they hold at a million frames a second.
const TICK: Duration = Duration::from_millis(1);

const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: application/x-pcapng\r\n\
    Cache-Control: no-store\r\nConnection: close\r\n\r\n";

/// Why there is no capture, for the client.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: &'static str,
    pub(crate) why: String,
}

impl From<NotBegun> for Refused {
    fn from(error: NotBegun) -> Self {
        let status = match error {
            NotBegun::Busy => "409 Conflict",
            _ => "503 Service Unavailable",
        };
        Self { status, why: error.to_string() }
    }
}

/// Serves a capture. Ends soon after `stop` is set.
///
/// # Errors
/// It did not begin, and nothing was written.
pub(crate) async fn serve<S>(
    stream: &mut S,
    captures: &Captures,
    request: &Request,
    stop: &AtomicBool,
) -> Result<(), Refused>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // The last one may have ended a moment ago.
    until(|| !captures.is_held(), stop).await;
    let session = captures.begin(request)?;
    if !until(|| session.is_acknowledged(), stop).await {
        return Err(NotBegun::NotHeeded.into());
    }
    // A client that has gone misses nothing.
    if let Err(error) = pump(stream, session, request, stop).await {
        tracing::debug!(%error, "a capture ended early");
    }
    Ok(())
}

async fn pump<S>(
    stream: &mut S,
    mut session: Session<'_>,
    request: &Request,
    stop: &AtomicBool,
) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let seconds = request.seconds.map(|s| Duration::from_secs(s.get().into()));
    let began = Instant::now();
    put(stream, HEAD).await?;
    loop {
        let (bytes, more) = session.round().map_err(io::Error::other)?;
        put(stream, &bytes).await?;
        let over = seconds.is_some_and(|seconds| began.elapsed() >= seconds);
        if session.is_done() || over || stop.load(Ordering::Relaxed) {
            break;
        }
        let pause = async { if more { yield_now().await } else { sleep(TICK).await } };
        let mut ignored = [0; 64];
        tokio::select! {
            biased;
            read = stream.read(&mut ignored) => if read? == 0 { break },
            () = pause => {}
        }
    }
    session.order_end();
    until(|| session.is_acknowledged(), stop).await;
    loop {
        let (bytes, more) = session.round().map_err(io::Error::other)?;
        put(stream, &bytes).await?;
        if !more {
            break;
        }
    }
    let end = session.close().map_err(io::Error::other)?;
    put(stream, &end).await?;
    stream.shutdown().await
}

/// Writes all, as long as the client takes some of it now and then.
async fn put(stream: &mut (impl AsyncWrite + Unpin), mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = timeout(STALL_MAX, stream.write(bytes)).await??;
        if written == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        bytes = bytes.get(written..).unwrap_or_default();
    }
    Ok(())
}

/// Waits until the workers are so far, and says whether they are. Not when everything ends, because
/// then they may never be.
async fn until(are_so_far: impl Fn() -> bool, stop: &AtomicBool) -> bool {
    let deadline = Instant::now() + HEED_MAX;
    while !are_so_far() {
        if Instant::now() > deadline || stop.load(Ordering::Relaxed) {
            return false;
        }
        sleep(TICK).await;
    }
    true
}
