//! `gnomon capture`: requests a capture from a running gnomon, and writes it to a file.
//!
//! In: flags, and the stream. Out: the file as it comes, and two numbers for people. Ends with the
//! stream, when its reader has gone, or at the first SIGINT or SIGTERM, which lets the server
//! finish the file; a second one ends at once. Fails when there is no server, when it
//! refuses, and when the file cannot be written.

use super::request::Request;
use crate::observe::metrics::{FetchError, connect};
use crate::process::signals;
use crate::startup::flags::{CaptureFlags, MetricsAddr};
use dataplane::capture::{Filter, What};
use pcap_file::pcapng::blocks::interface_statistics::InterfaceStatisticsOption;
use pcap_file::pcapng::{Block, PcapNgReader};
use socket2::Socket;
use std::cell::Cell;
use std::error::Error;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for the answer's head, and for the end of the file once it was requested.
const ANSWER_MAX: Duration = Duration::from_secs(10);
/// Longest head or refusal that is looked at.
const TEXT_MAX_BYTES: usize = 16 << 10;
/// Pause between two looks at whether a signal came.
const LOOK: Duration = Duration::from_millis(100);

/// Captures, until it is over.
///
/// # Errors
/// [`FetchError`], the server's refusal, or what the system says about the file.
pub fn capture(flags: &CaptureFlags) -> Result<bool, Box<dyn Error>> {
    let address = flags.at.address();
    let stop = signals::install()?.stop;
    let out = output(flags.write.as_deref())?;
    let io = |source| FetchError::Io { address: address.clone(), source };
    let mut socket = connect(&address).map_err(io)?;
    let request = request(flags).query();
    let head = format!("GET /capture?{request} HTTP/1.0\r\nHost: gnomon\r\n\r\n");
    socket.write_all(head.as_bytes()).map_err(io)?;
    socket.set_read_timeout(Some(ANSWER_MAX)).map_err(io)?;
    accepted(&mut socket, &address)?;
    let out = out.begin().map_err(|e| format!("cannot write the capture: {e}"))?;
    complain(format_args!("gnomon: capturing; an interrupt ends it\n"));
    socket.set_read_timeout(Some(LOOK)).map_err(io)?;
    let failed = Cell::new(None);
    let copy = Copying { socket, out, stop, until: None, failed: &failed };
    let (frames, lost, whole) = follow(copy);
    match failed.take() {
        // The reader has closed the pipe: the end.
        Some(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(true),
        Some(e) => return Err(format!("cannot write the capture: {e}").into()),
        None => {}
    }
    complain(format_args!(
        "gnomon: {frames} frames captured, {lost} lost because the buffer was full\n"
    ));
    if !whole {
        return Err("the capture broke off: its end is missing".into());
    }
    Ok(true)
}

/// What the flags request.
fn request(flags: &CaptureFlags) -> Request {
    let what = match (flags.replies, flags.drops) {
        (true, _) => What::Replies,
        (false, Some(reason)) => What::Drops(reason),
        (false, None) => What::Traffic,
    };
    let (source, key) = (flags.source, flags.key.clone());
    Request {
        filter: Filter { what, source, key, snap_bytes: flags.snaplen.into() },
        count: flags.count,
        seconds: flags.seconds,
    }
}

fn output(path: Option<&Path>) -> Result<Output, Box<dyn Error>> {
    match path {
        // As it is, until the server has said that there will be a capture.
        Some(path) if path != Path::new("-") => {
            match File::options().write(true).create(true).truncate(false).open(path) {
                Ok(file) => Ok(Output::File(file)),
                Err(e) => Err(format!("cannot write {}: {e}", path.display()).into()),
            }
        }
        _ if io::stdout().is_terminal() => Err("standard output is a terminal, which shows no \
             capture: --write FILE, or a pipe to `wireshark -k -i -` or `tshark -i -`"
            .into()),
        _ => Ok(Output::Standard),
    }
}

/// Where a capture goes.
enum Output {
    File(File),
    Standard,
}

impl Output {
    /// For a capture, which begins.
    fn begin(self) -> io::Result<Box<dyn Write>> {
        match self {
            // A pipe, or a device, has no length.
            Self::File(file) if file.metadata()?.is_file() => {
                file.set_len(0)?;
                Ok(Box::new(file))
            }
            Self::File(file) => Ok(Box::new(file)),
            Self::Standard => Ok(Box::new(io::stdout())),
        }
    }
}

/// Reads the answer's head, and of a refusal what it says.
fn accepted(socket: &mut Socket, address: &MetricsAddr) -> Result<(), Box<dyn Error>> {
    let strange = || FetchError::Strange(address.clone());
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= TEXT_MAX_BYTES || socket.read(&mut byte).map_err(|_| strange())? == 0 {
            return Err(strange().into());
        }
        head.extend_from_slice(&byte);
    }
    if head.starts_with(b"HTTP/1.1 200 ") {
        return Ok(());
    }
    if !head.starts_with(b"HTTP/1.1 ") {
        return Err(strange().into());
    }
    let mut text = Vec::new();
    // What came counts.
    let _ = socket.take(TEXT_MAX_BYTES as u64).read_to_end(&mut text);
    let text: String = String::from_utf8_lossy(&text).chars().filter(|c| !c.is_control()).collect();
    Err(format!("{address} refuses: {text}").into())
}

/// Follows the stream block by block: frames in it, frames that were lost, and whether it came to
/// its end.
fn follow(copy: Copying<'_>) -> (u64, u64, bool) {
    let (mut frames, mut lost, mut closed) = (0, 0, false);
    let Ok(mut reader) = PcapNgReader::new(copy) else { return (0, 0, false) };
    while let Some(block) = reader.next_block() {
        match block {
            Ok(Block::EnhancedPacket(_)) => frames += 1,
            Ok(Block::InterfaceStatistics(statistics)) => {
                closed = true;
                for option in statistics.options {
                    if let InterfaceStatisticsOption::IsbIfDrop(n) = option {
                        lost += n;
                    }
                }
            }
            Ok(_) => {}
            Err(_) => return (frames, lost, false),
        }
    }
    (frames, lost, closed)
}

/// The stream, each byte of which is written down before it is looked at.
struct Copying<'a> {
    socket: Socket,
    out: Box<dyn Write>,
    stop: Arc<AtomicBool>,
    /// The end was requested, and is waited for until then.
    until: Option<Instant>,
    failed: &'a Cell<Option<io::Error>>,
}

impl Read for Copying<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if self.until.is_none() && self.stop.load(Ordering::Relaxed) {
                self.until = Some(Instant::now() + ANSWER_MAX);
                // If the server has gone, the next read fails.
                let _ = self.socket.shutdown(Shutdown::Write);
            }
            if self.until.is_some_and(|until| Instant::now() > until) {
                return Ok(0);
            }
            match self.socket.read(into) {
                Ok(n) => {
                    let bytes = into.get(..n).unwrap_or_default();
                    if let Err(e) = self.out.write_all(bytes).and_then(|()| self.out.flush()) {
                        self.failed.set(Some(e));
                        return Ok(0);
                    }
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// To standard error. A closed standard error is no reason to end.
fn complain(text: std::fmt::Arguments<'_>) {
    let _ = io::stderr().write_fmt(text);
}
