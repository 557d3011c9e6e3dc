//! What a server says on standard output and standard error, without waiting long for a reader.
//!
//! In: lines. Out: from [`begin`] on a thread for each of both streams writes them, so that a reader that is slow, or has
//! stopped, holds up nothing else; what a queue has no space for is lost, and the next line says how much. Both are there
//! from the start, because at the end there may be no memory for one. Before, who writes waits.

use crate::host::affinity;
use std::io::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

/// Lines that may wait to be written.
const LINES_MAX: usize = 1024;
/// How long is waited for a reader where nothing else can be done.
const WAIT_MAX: Duration = Duration::from_millis(500);
/// Pause between two looks at a reader, or at the queue.
const PAUSE: Duration = Duration::from_millis(5);

static LOG: OnceLock<Queue> = OnceLock::new();
static OUTPUT: OnceLock<Queue> = OnceLock::new();

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

/// From now on threads on these CPUs write to standard error and standard output.
///
/// # Errors
/// There is no thread to be had.
pub fn begin(cpus: &[usize]) -> io::Result<()> {
    let _ = LOG.set(Queue::to("stderr", io::stderr(), cpus)?);
    let _ = OUTPUT.set(Queue::to("stdout", io::stdout(), cpus)?);
    Ok(())
}

/// Waits until all lines so far are written, but not for long.
pub fn settle() {
    if let Some(queue) = LOG.get() {
        queue.settle();
    }
}

/// Writes a line to standard output, and waits until it is written, but not for long.
pub fn say(line: &str) {
    if let Some(queue) = OUTPUT.get() {
        queue.add(line.as_bytes());
        queue.settle();
    }
}

/// Lines on their way to a stream.
#[derive(Debug)]
struct Queue {
    pieces: SyncSender<Piece>,
    /// Lines for which there was no space since the last one that said so.
    lost: Arc<AtomicU64>,
}

#[derive(Debug)]
enum Piece {
    Line {
        text: Box<[u8]>,
        /// Lines before it that are lost.
        lost: u64,
    },
    /// All before it is written: says so.
    Settled(SyncSender<()>),
}

impl Queue {
    fn to(name: &str, stream: impl Write + Send + 'static, cpus: &[usize]) -> io::Result<Self> {
        let (queue, pieces) = sync_channel(LINES_MAX);
        let lost = Arc::<AtomicU64>::default();
        let (counted, cpus) = (Arc::clone(&lost), cpus.to_vec());
        thread::Builder::new().name(name.to_owned()).spawn(move || {
            affinity::keep_on(&cpus);
            write(pieces, &counted, stream);
        })?;
        Ok(Self { pieces: queue, lost })
    }

    fn add(&self, line: &[u8]) {
        let lost = self.lost.swap(0, Ordering::Relaxed);
        if self.pieces.try_send(Piece::Line { text: line.into(), lost }).is_err() {
            self.lost.fetch_add(lost + 1, Ordering::Relaxed);
        }
    }

    fn settle(&self) {
        let until = Instant::now() + WAIT_MAX;
        let (done, waits) = sync_channel(1);
        let mut last = Piece::Settled(done);
        while let Err(TrySendError::Full(piece)) = self.pieces.try_send(last) {
            if Instant::now() > until {
                return;
            }
            last = piece;
            thread::sleep(PAUSE);
        }
        let _ = waits.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

/// Writes what comes. What cannot be written is lost, and nothing else.
fn write(pieces: Receiver<Piece>, lost: &AtomicU64, stream: impl Write) {
    let mut stream = Patient(stream);
    let tell = |stream: &mut Patient<_>, lost: u64| match lost {
        0 => Ok(()),
        lost => writeln!(stream, "gnomon: {lost} lines of this log are lost: its reader is slow"),
    };
    for piece in pieces {
        let _ = match piece {
            Piece::Line { text, lost } => {
                tell(&mut stream, lost).and_then(|()| stream.write_all(&text))
            }
            Piece::Settled(done) => {
                let told = tell(&mut stream, lost.swap(0, Ordering::Relaxed));
                let flushed = told.and_then(|()| stream.flush());
                let _ = done.send(());
                flushed
            }
        };
    }
}

/// A stream that may be one that does not wait, and is waited for.
struct Patient<W>(W);

impl<W: Write> Patient<W> {
    fn until_it_takes<T>(&mut self, mut act: impl FnMut(&mut W) -> io::Result<T>) -> io::Result<T> {
        loop {
            match act(&mut self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => thread::sleep(PAUSE),
                done => return done,
            }
        }
    }
}

impl<W: Write> Write for Patient<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.until_it_takes(|stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.until_it_takes(W::flush)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    use std::io::Read;

    #[test]
    fn a_reader_that_stops_holds_up_nothing() {
        let (mut reader, writer) = io::pipe().unwrap();
        let queue = Queue::to("test", writer, &[]).unwrap();
        let line = [b'x'; 1000];
        let begun = Instant::now();
        for _ in 0..10 * LINES_MAX {
            queue.add(&line);
        }
        // Who waits here waits for ever: that it takes its time on a busy machine is no matter.
        assert!(begun.elapsed() < 20 * WAIT_MAX, "{:?}", begun.elapsed());
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
            && queue.pieces.try_send(Piece::Line { text: (*b"end").into(), lost: 0 }).is_err()
        {
            thread::yield_now();
        }
        queue.settle();
        drop(queue);
        let all = String::from_utf8(all.join().unwrap()).unwrap();
        let come = all.matches('x').count();
        let told = all.split("gnomon: ").skip(1).filter_map(|said| said.split(' ').next());
        let lost: usize = told.map(|number| number.parse::<usize>().unwrap()).sum();
        assert_eq!((come % line.len(), come / line.len() + lost), (0, 10 * LINES_MAX));
        assert_eq!(all.matches("end").count(), 1);
        assert!(lost > 0);
    }

    #[test]
    fn a_stream_that_does_not_wait_is_waited_for() {
        let (mut reader, writer) = io::pipe().unwrap();
        fcntl(&writer, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).unwrap();
        let queue = Queue::to("test", writer, &[]).unwrap();
        // More than a pipe holds.
        for _ in 0..LINES_MAX / 2 {
            queue.add(&[b'x'; 1000]);
        }
        thread::sleep(4 * PAUSE);
        drop(queue);
        let mut all = Vec::new();
        reader.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), LINES_MAX / 2 * 1000);
    }
}
