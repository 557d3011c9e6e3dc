//! A workload as a capture file.
//!
//! Enters: a [`Trace`]. Leaves: frames, one by one, through a [`Writer`], and a [`Summary`] of
//! what was written. Memory is bounded whatever the length.

use super::{Envelope, Format, Writer};
use crate::workload::{Op, Requests, Workload, WorkloadError};
use dataplane::wire::corrupt::Corruption;
use std::io::{self, Write};

/// First byte of the keys in spoilt frames; no key of a workload begins with it.
pub const SPOILT_MARK: u8 = b'!';
/// Room for the longest frame: an Ethernet MTU, its header and a tag.
const FRAME_MAX_BYTES: usize = 1536;
/// How often progress is told.
const PROGRESS_PACKETS: u64 = 1 << 16;

/// All that defines a capture file.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// Who asks for what.
    pub workload: Workload,
    /// Headers around it.
    pub envelope: Envelope,
    /// First a set for every key.
    pub preload: bool,
    /// Well-formed requests after that.
    pub requests: u64,
    /// Share of the frames after the preload that are spoilt: at least 0, less than 1.
    pub corrupt: f64,
    /// Packets per second, as the time stamps tell.
    pub rate: f64,
}

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum GenerateError {
    /// The workload cannot be.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// Client and server addresses of different families.
    #[error("--src and --dst must both be IPv4 or both be IPv6")]
    Families,
    /// A request would not fit one packet.
    #[error(
        "the longest request takes {need} bytes of UDP payload and a packet holds {room}: \
         use smaller keys or values, or fewer keys per get"
    )]
    TooLong {
        /// Payload bytes needed.
        need: usize,
        /// Payload bytes there are.
        room: usize,
    },
    /// The share is none.
    #[error("the share of corrupt packets must be at least 0 and less than 1, not {0}")]
    Corrupt(f64),
    /// The rate is no rate.
    #[error("the rate must be a number of packets per second above 0")]
    Rate,
    /// The file cannot be written.
    #[error("cannot write the capture: {0}; check free space")]
    Io(#[from] io::Error),
}

/// What a trace holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Frames in all.
    pub packets: u64,
    /// Bytes of frames, without the file's own headers.
    pub bytes: u64,
    /// Sets of the preload.
    pub preload_sets: u64,
    /// Gets.
    pub gets: u64,
    /// Keys asked for by them.
    pub keys_asked: u64,
    /// Sets after the preload.
    pub sets: u64,
    /// Spoilt frames of each kind that fits the IP version; empty when none were asked for.
    pub corrupt: Vec<(Corruption, u64)>,
}

impl Summary {
    /// Spoilt frames of all kinds.
    pub fn corrupt_total(&self) -> u64 {
        self.corrupt.iter().map(|(_, n)| n).sum()
    }
}

/// Writes `trace` to `out`; `progress` hears the number of frames so far now and then.
///
/// # Errors
/// [`GenerateError`]: an impossible trace, or what the file says.
pub fn generate<W: Write>(
    trace: &Trace,
    format: Format,
    out: W,
    progress: impl FnMut(u64),
) -> Result<Summary, GenerateError> {
    trace.check()?;
    let mut requests = Requests::new(trace.workload.clone())?;
    let mut summary = Summary::default();
    if trace.corrupt > 0.0 {
        summary.corrupt = trace.corruptions();
    }
    let mut press = Press {
        trace,
        writer: Writer::new(out, format)?,
        summary,
        payload: Vec::with_capacity(FRAME_MAX_BYTES),
        frame: Vec::with_capacity(FRAME_MAX_BYTES),
        progress,
    };
    let preload = if trace.preload { trace.workload.keys } else { 0 };
    for index in 0..preload {
        let envelope = requests.envelope();
        press.request(envelope, Op::Set { index, version: 0 })?;
    }
    press.summary.preload_sets = std::mem::take(&mut press.summary.sets);
    let mut spoilt = 0;
    for _ in 0..trace.requests {
        while requests.chance(trace.corrupt) {
            press.spoilt(requests.envelope(), spoilt)?;
            spoilt += 1;
        }
        let envelope = requests.envelope();
        press.request(envelope, requests.next_op())?;
    }
    press.writer.finish()?;
    (press.progress)(press.summary.packets);
    Ok(press.summary)
}

impl Trace {
    /// Whether the trace can be: [`generate`] asks too, before it writes anything.
    ///
    /// # Errors
    /// [`GenerateError`] says what is out of range.
    pub fn check(&self) -> Result<(), GenerateError> {
        let Self { workload, envelope, corrupt, rate, .. } = self;
        workload.check()?;
        if workload.clients.first.is_ipv6() != envelope.server.is_ipv6() {
            return Err(GenerateError::Families);
        }
        let sets = self.preload || workload.get_ratio < 1.0;
        let (need, room) = (workload.longest_bytes(sets), envelope.payload_max_bytes());
        if need > room {
            return Err(GenerateError::TooLong { need, room });
        }
        if !(0.0..1.0).contains(corrupt) {
            return Err(GenerateError::Corrupt(*corrupt));
        }
        if !(*rate > 0.0 && rate.is_finite()) {
            return Err(GenerateError::Rate);
        }
        Ok(())
    }

    /// The kinds of damage that fit these frames, none counted yet.
    fn corruptions(&self) -> Vec<(Corruption, u64)> {
        let client = self.workload.clients.get(0);
        let mut payload = Vec::new();
        let fits = |kind: &Corruption| {
            spoilt_payload(0, *kind, &mut payload);
            let frame = self.envelope.frame(client, &payload).to_vec();
            frame.is_some_and(|mut f| kind.apply(&mut f))
        };
        Corruption::ALL.into_iter().filter(fits).map(|kind| (kind, 0)).collect()
    }
}

/// A get for a key that tells what is wrong with its frame, in place of a request.
fn spoilt_payload(id: u16, kind: Corruption, out: &mut Vec<u8>) {
    let [hi, lo] = id.to_be_bytes();
    out.clear();
    out.extend_from_slice(&[hi, lo, 0, 0, 0, 1, 0, 0]);
    out.extend_from_slice(b"get ");
    out.push(SPOILT_MARK);
    out.extend_from_slice(kind.name().as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// Puts frames into the file and counts them.
struct Press<'a, W: Write, P> {
    trace: &'a Trace,
    writer: Writer<W>,
    summary: Summary,
    payload: Vec<u8>,
    frame: Vec<u8>,
    progress: P,
}

impl<W: Write, P: FnMut(u64)> Press<'_, W, P> {
    fn request(&mut self, (client, id): (u32, u16), op: Op<'_>) -> Result<(), GenerateError> {
        match op {
            Op::Get(keys) => {
                self.summary.gets += 1;
                self.summary.keys_asked += keys.len() as u64;
            }
            Op::Set { .. } => self.summary.sets += 1,
        }
        self.payload.clear();
        self.trace.workload.append_payload(id, op, &mut self.payload);
        let len = self.build(client)?;
        self.put(len)
    }

    /// Writes the `n`th spoilt frame.
    fn spoilt(&mut self, (client, id): (u32, u16), n: usize) -> Result<(), GenerateError> {
        let kinds = self.summary.corrupt.len().max(1);
        let Some((kind, count)) = self.summary.corrupt.get_mut(n % kinds) else { return Ok(()) };
        *count += 1;
        let kind = *kind;
        spoilt_payload(id, kind, &mut self.payload);
        let len = self.build(client)?;
        self.frame.truncate(len);
        kind.apply(&mut self.frame);
        self.put(self.frame.len())
    }

    /// Builds the frame around the payload, and says how long it is.
    fn build(&mut self, client: u32) -> Result<usize, GenerateError> {
        let Trace { envelope, workload, .. } = self.trace;
        self.frame.resize(FRAME_MAX_BYTES, 0);
        envelope
            .frame(workload.clients.get(client), &self.payload)
            .write_to(&mut self.frame)
            .ok_or(GenerateError::Families)
    }

    fn put(&mut self, len: usize) -> Result<(), GenerateError> {
        let frame = &self.frame[..len];
        self.writer.frame(stamp_ns(self.summary.packets, self.trace.rate), frame)?;
        self.summary.packets += 1;
        self.summary.bytes += len as u64;
        if self.summary.packets.is_multiple_of(PROGRESS_PACKETS) {
            (self.progress)(self.summary.packets);
        }
        Ok(())
    }
}

/// When packet `n` is sent at `rate` per second.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "exact up to 2^53; positive; saturates"
)]
fn stamp_ns(n: u64, rate: f64) -> u64 {
    (n as f64 * 1e9 / rate) as u64
}
