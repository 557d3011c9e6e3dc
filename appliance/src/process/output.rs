//! What a server says on standard output and standard error, without waiting long for a reader.
//!
//! In: lines. Out: from [`begin`] on a thread writes those of standard error, so that a reader that is slow, or has
//! stopped, holds up nothing else; what its queue has no space for is lost. Before, and with [`within`] for the few
//! lines on standard output, who writes waits. Fails: with what the stream says, or because it took too long.

use crate::host::affinity;
use std::io::{self, Write};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that may wait to be written.
const LINES_MAX: usize = 1024;
/// How long is waited for a reader where nothing else can be done.
const WAIT_MAX: Duration = Duration::from_millis(500);

static LOG: OnceLock<Queue> = OnceLock::new();

/// Standard error: the writer of each line.
#[derive(Debug, Clone, Copy)]
pub struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match LOG.get() {
            Some(queue) => queue.add(bytes),
            None => return io::stderr().write(bytes),
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// From now on a thread on these CPUs writes to standard error.
///
/// # Errors
/// There is no thread to be had.
pub fn begin(cpus: Vec<usize>) -> io::Result<()> {
    let _ = LOG.set(Queue::to(io::stderr(), cpus)?);
    Ok(())
}

/// Waits until all lines so far are written, but not for long.
pub fn settle() {
    if let Some(queue) = LOG.get() {
        queue.settle();
    }
}

/// Writes to standard output, but not for long.
///
/// # Errors
/// That of standard output, or it took too long: it may be written later.
pub fn within(text: String) -> io::Result<()> {
    let (done, waits) = sync_channel(1);
    thread::Builder::new().name("stdout".to_owned()).spawn(move || {
        let mut out = io::stdout().lock();
        let _ = done.send(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
    })?;
    waits.recv_timeout(WAIT_MAX).unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

/// Lines on their way to a stream.
#[derive(Debug)]
struct Queue(SyncSender<Piece>);

#[derive(Debug)]
enum Piece {
    Line(Box<[u8]>),
    /// All before it is written: says so.
    Settled(SyncSender<()>),
}

impl Queue {
    fn to(stream: impl Write + Send + 'static, cpus: Vec<usize>) -> io::Result<Self> {
        let (queue, pieces) = sync_channel(LINES_MAX);
        thread::Builder::new().name("stderr".to_owned()).spawn(move || {
            affinity::keep_on(&cpus);
            write(pieces, stream);
        })?;
        Ok(Self(queue))
    }

    fn add(&self, line: &[u8]) {
        let _ = self.0.try_send(Piece::Line(line.into()));
    }

    fn settle(&self) {
        let until = Instant::now() + WAIT_MAX;
        let (done, waits) = sync_channel(1);
        let mut last = Piece::Settled(done);
        while let Err(TrySendError::Full(piece)) = self.0.try_send(last) {
            if Instant::now() > until {
                return;
            }
            last = piece;
            thread::sleep(Duration::from_millis(5));
        }
        let _ = waits.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// Writes what comes. What cannot be written is lost, and nothing else.
fn write(pieces: Receiver<Piece>, mut stream: impl Write) {
    for piece in pieces {
        let _ = match piece {
            Piece::Line(line) => stream.write_all(&line),
            Piece::Settled(done) => done.send(()).map_err(io::Error::other),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn a_reader_that_stops_holds_up_nothing() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Queue::to(writer, Vec::new()).unwrap();
        let line = [b'x'; 1000];
        let begun = Instant::now();
        for _ in 0..10 * LINES_MAX {
            queue.add(&line);
        }
        assert!(begun.elapsed() < WAIT_MAX, "{:?}", begun.elapsed());
        let begun = Instant::now();
        queue.settle();
        let waited = begun.elapsed();
        assert!(waited >= WAIT_MAX && waited < 4 * WAIT_MAX, "{waited:?}");
        // Who reads again gets what waited, whole, and what comes then.
        let all = thread::spawn(move || {
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            all
        });
        while begun.elapsed() < 20 * WAIT_MAX
            && queue.0.try_send(Piece::Line((*b"end").into())).is_err()
        {
            thread::yield_now();
        }
        queue.settle();
        drop(queue);
        let all = all.join().unwrap();
        assert!(all.ends_with(b"xend") && all.len() > LINES_MAX * line.len(), "{}", all.len());
        assert!(all.len() < 2 * LINES_MAX * line.len(), "{}", all.len());
        assert_eq!((all.len() - 3) % line.len(), 0);
    }
}
