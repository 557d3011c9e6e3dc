//! Standard output and standard error, as far as they are taken.
//!
//! In: what is said. Out: it is written, unless it would have to wait for long: a pipe or a terminal whose reader has
//! stopped reading is waited for once, and until it reads again not at all. What cannot be written is lost, and the
//! server goes on. Fails: with what was lost.

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd;
use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

/// How long a reader is waited for, in milliseconds.
const WAIT_MS: u16 = 500;
/// A pipe that is ready takes so many bytes at once (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

/// The last wait ended without room.
static STALLED: AtomicBool = AtomicBool::new(false);

/// Writes to a stream without waiting for long.
#[derive(Debug)]
pub struct Bounded<S>(pub S);

impl<S: AsFd> io::Write for Bounded<S> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stream = self.0.as_fd();
        let most = if STALLED.load(Ordering::Relaxed) { 0 } else { WAIT_MS };
        let mut wanted = [PollFd::new(stream, PollFlags::POLLOUT)];
        let stalled = poll(&mut wanted, PollTimeout::from(most))? == 0;
        STALLED.store(stalled, Ordering::Relaxed);
        if stalled {
            return Err(io::ErrorKind::TimedOut.into());
        }
        Ok(unistd::write(stream, bytes.get(..PIECE_BYTES).unwrap_or(bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};

    #[test]
    fn a_reader_that_stops_is_waited_for_once() {
        let (mut reader, writer) = io::pipe().unwrap();
        let mut bounded = Bounded(&writer);
        let (line, mut taken) = ([b'x'; 10_000], 0);
        let begun = Instant::now();
        while let Ok(n) = bounded.write(&line) {
            taken += n;
        }
        let waited = begun.elapsed();
        assert!(waited >= Duration::from_millis(WAIT_MS.into()), "{waited:?}");
        let begun = Instant::now();
        for _ in 0..1000 {
            assert_eq!(bounded.write_all(&line).unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert!(begun.elapsed() < Duration::from_millis(WAIT_MS.into()), "{:?}", begun.elapsed());
        // Who reads again misses what was lost, and no more.
        reader.read_exact(&mut vec![0; taken]).unwrap();
        bounded.write_all(b"again").unwrap();
        let mut said = [0; 5];
        reader.read_exact(&mut said).unwrap();
        assert_eq!(&said, b"again");
        drop(reader);
        assert_eq!(bounded.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
