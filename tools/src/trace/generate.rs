//! A workload as frames, and as a capture file.
//!
//! In: a [`Trace`]. Out: frames with their times, one by one ([`Frames`]), or through a
//! [`Writer`] ([`generate`]), and a [`Summary`] of what they were. Memory is bounded whatever the
//! length.

use super::timing::{Clock, Timing};
use super::{Envelope, Format, Writer};
use crate::workload::csv::{CsvError, FileRows};
use crate::workload::recorded::{Moment, Recorded};
use crate::workload::{Op, Request, Requests, Workload, WorkloadError};
use gnomon_client::codec::asked::SPOILT_MARK;
use gnomon_client::codec::{Protocol, udp};
use memcache::command::KEY_MAX_BYTES;
use std::io::{self, Write};
use std::path::PathBuf;
use wire::corrupt::Corruption;

/// Room for the longest frame: an Ethernet MTU, its header and a tag.
const FRAME_MAX_BYTES: usize = 1536;
/// How often progress is reported.
const PROGRESS_PACKETS: u64 = 1 << 16;

/// All that defines a capture file.
#[derive(Debug, Clone, PartialEq)]
pub struct Trace {
    /// The workload.
    pub workload: Workload,
    /// What requests are written in.
    pub protocol: Protocol,
    /// Headers around them.
    pub envelope: Envelope,
    /// First a set for every key.
    pub preload: bool,
    /// Well-formed requests after that.
    pub requests: u64,
    /// Share of the frames after the preload that are spoilt: at least 0, less than 1.
    pub corrupt: f64,
    /// Packets per second, as the time stamps show.
    pub rate: f64,
    /// How they follow each other.
    pub timing: Timing,
    /// A CSV trace that says what is asked, instead of draws from the workload's mix.
    pub recorded: Option<PathBuf>,
}

/// Why a trace cannot be written.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum GenerateError {
    /// The workload cannot be.
    #[error(transparent)]
    Workload(#[from] WorkloadError),
    /// The CSV trace cannot be read.
    #[error(transparent)]
    Csv(#[from] CsvError),
    #[error("--src and --dst must both be IPv4 or both be IPv6")]
    Families,
    #[error(
        "the longest request takes {need} bytes of UDP payload and a packet holds {room}: \
         use smaller keys or values, or fewer keys per get"
    )]
    TooLong { need: usize, room: usize },
    #[error("the share of corrupt packets must be at least 0 and less than 1, not {0}")]
    Corrupt(f64),
    #[error("the rate must be a number of packets per second above 0")]
    Rate,
    #[error("--timing trace takes the times of a CSV trace: give one with --trace")]
    NoTrace,
    #[error("--preload stores the keys of a workload; those of a CSV trace are not known before")]
    Preload,
    #[error("cannot write the capture: {0}")]
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
    /// Keys that they request.
    pub keys_asked: u64,
    /// Sets after the preload.
    pub sets: u64,
    /// Deletes.
    pub deletes: u64,
    /// Rows of the CSV trace that made no sense.
    pub rows_skipped: u64,
    /// Sets of the CSV trace whose value was longer than a packet holds.
    pub values_cut: u64,
    /// When the last frame leaves, nanoseconds from the start.
    pub last_ns: u64,
    /// Spoilt frames of each kind that fits the IP version; empty when none were requested.
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
    Frames::new(trace)?.write(format, out, progress)
}

impl Trace {
    /// Whether the trace can be: [`Frames::new`] checks this too, before anything is written.
    ///
    /// # Errors
    /// [`GenerateError`] says what is out of range.
    pub fn check(&self) -> Result<(), GenerateError> {
        let Self { workload, envelope, corrupt, rate, .. } = self;
        workload.check()?;
        if workload.clients.first.is_ipv6() != envelope.server.is_ipv6() {
            return Err(GenerateError::Families);
        }
        let (need, room) = (self.longest_bytes(), envelope.payload_max_bytes());
        if need > room {
            return Err(GenerateError::TooLong { need, room });
        }
        if !(0.0..1.0).contains(corrupt) {
            return Err(GenerateError::Corrupt(*corrupt));
        }
        if !(*rate > 0.0 && rate.is_finite()) {
            return Err(GenerateError::Rate);
        }
        match (&self.recorded, self.timing) {
            (None, Timing::Trace) => Err(GenerateError::NoTrace),
            (Some(_), _) if self.preload => Err(GenerateError::Preload),
            _ => Ok(()),
        }
    }

    /// The same, with scans and with the tails of published value sizes cut to what one packet
    /// holds.
    #[must_use]
    pub fn fitted(mut self) -> Self {
        let room = self.envelope.payload_max_bytes();
        let mix = &mut self.workload.mix;
        let key = mix.key_size.max();
        let for_value = room.saturating_sub(self.protocol.set_bytes(key, room) - room);
        let limit = u32::try_from(for_value).unwrap_or(u32::MAX);
        mix.value_size = mix.value_size.clone().cut_at(limit);
        if mix.scans {
            let fits = |n: &u32| self.protocol.get_bytes(*n as usize, key) <= room;
            mix.multi_get = (1..=mix.multi_get).rev().find(fits).unwrap_or(1);
        }
        self
    }

    /// Longest request of the workload, as a UDP payload.
    fn longest_bytes(&self) -> usize {
        let mix = &self.workload.mix;
        let (key, value) = (mix.key_size.max(), mix.value_size.max());
        if self.recorded.is_some() {
            return self.protocol.get_bytes(1, KEY_MAX_BYTES);
        }
        let get = self.protocol.get_bytes(mix.multi_get as usize, key);
        let sets = self.preload || mix.get_ratio < 1.0;
        if sets { get.max(self.protocol.set_bytes(key, value)) } else { get }
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

/// A get for a key that shows what is wrong with its frame, in place of a request.
fn spoilt_payload(id: u16, kind: Corruption, out: &mut Vec<u8>) {
    out.clear();
    out.extend_from_slice(&udp::header(id));
    let key = format!("{}{}", char::from(SPOILT_MARK), kind.name());
    Protocol::Ascii.get([key].iter(), out);
}

/// The frames of a trace, one by one.
#[derive(Debug)]
pub struct Frames {
    trace: Trace,
    requests: Requests,
    recorded: Option<Recorded>,
    clock: Clock,
    summary: Summary,
    /// Keys of the preload so far, and requests after it.
    preloaded: u64,
    asked: u64,
    /// Spoilt frames so far.
    spoilt: usize,
    payload: Vec<u8>,
    /// Room for the longest frame, and the length of the one at hand.
    frame: Vec<u8>,
    len: usize,
}

impl Frames {
    /// # Errors
    /// [`GenerateError`]: an impossible trace, or a CSV trace that cannot be opened.
    pub fn new(trace: &Trace) -> Result<Self, GenerateError> {
        trace.check()?;
        let clients = trace.workload.clients.count;
        let overhead = trace.protocol.set_bytes(KEY_MAX_BYTES, 9_999) - 9_999;
        let value_max = trace.envelope.payload_max_bytes().saturating_sub(overhead);
        let open =
            |path| Ok::<_, CsvError>(Recorded::new(FileRows::open(path)?, clients, value_max));
        let corrupt = if trace.corrupt > 0.0 { trace.corruptions() } else { Vec::new() };
        Ok(Self {
            requests: Requests::new(trace.workload.clone())?,
            recorded: trace.recorded.as_deref().map(open).transpose()?,
            clock: Clock::new(trace.timing, trace.rate, trace.workload.seed),
            summary: Summary { corrupt, ..Summary::default() },
            preloaded: 0,
            asked: 0,
            spoilt: 0,
            payload: Vec::with_capacity(FRAME_MAX_BYTES),
            frame: vec![0; FRAME_MAX_BYTES],
            len: 0,
            trace: trace.clone(),
        })
    }

    /// Writes all frames to `out`; see [`generate`].
    ///
    /// # Errors
    /// A CSV trace that cannot be read any further, or what the file says.
    pub fn write<W: Write>(
        mut self,
        format: Format,
        out: W,
        mut progress: impl FnMut(u64),
    ) -> Result<Summary, GenerateError> {
        let mut writer = Writer::new(out, format)?;
        while let Some((ns, frame)) = self.next_frame()? {
            writer.frame(ns, frame)?;
            if self.summary.packets.is_multiple_of(PROGRESS_PACKETS) {
                progress(self.summary.packets);
            }
        }
        writer.finish()?;
        progress(self.summary.packets);
        Ok(self.summary)
    }

    /// The next frame and its time, valid until the next call; `None` at the end.
    ///
    /// # Errors
    /// [`GenerateError::Csv`] where the CSV trace cannot be read any further.
    pub fn next_frame(&mut self) -> Result<Option<(u64, &[u8])>, GenerateError> {
        let mut recorded_ns = None;
        self.payload.clear();
        if self.trace.preload && self.preloaded < self.trace.workload.keys {
            let request = self.requests.preload(self.preloaded);
            self.preloaded += 1;
            self.summary.preload_sets += 1;
            request.append(self.trace.protocol, &mut self.payload);
            self.build(request.client)?;
        } else if self.asked >= self.trace.requests {
            return Ok(None);
        } else if self.requests.chance(self.trace.corrupt) {
            self.build_spoilt()?;
        } else {
            let request = match &mut self.recorded {
                None => self.requests.next_request(),
                Some(recorded) => {
                    let moment = recorded.next_request()?;
                    let Some(Moment { client, op, at_ns }) = moment else {
                        self.asked = self.trace.requests;
                        self.note_rows();
                        return Ok(None);
                    };
                    recorded_ns = Some(at_ns);
                    Request { client, id: self.requests.id_of(client), op }
                }
            };
            self.asked += 1;
            self.summary.count(request.op);
            request.append(self.trace.protocol, &mut self.payload);
            let client = request.client;
            self.build(client)?;
            self.note_rows();
        }
        let ns = self.clock.next(recorded_ns);
        self.summary.packets += 1;
        self.summary.bytes += self.len as u64;
        self.summary.last_ns = ns;
        Ok(Some((ns, self.frame.get(..self.len).unwrap_or_default())))
    }

    /// What has been made so far.
    pub fn summary(&self) -> &Summary {
        &self.summary
    }

    fn note_rows(&mut self) {
        if let Some(recorded) = &self.recorded {
            self.summary.rows_skipped = recorded.skipped();
            self.summary.values_cut = recorded.values_cut();
        }
    }

    /// Builds the next spoilt frame, each kind in turn.
    fn build_spoilt(&mut self) -> Result<(), GenerateError> {
        let (client, id) = self.requests.envelope();
        let kinds = self.summary.corrupt.len().max(1);
        let kind = self.summary.corrupt.get_mut(self.spoilt % kinds).map(|(kind, count)| {
            *count += 1;
            *kind
        });
        self.spoilt += 1;
        let Some(kind) = kind else { return Ok(()) };
        spoilt_payload(id, kind, &mut self.payload);
        self.build(client)?;
        // Damage may change the length: it is done to a copy.
        self.payload.clear();
        self.payload.extend_from_slice(&self.frame[..self.len]);
        kind.apply(&mut self.payload);
        self.len = self.payload.len().min(FRAME_MAX_BYTES);
        self.frame[..self.len].copy_from_slice(&self.payload[..self.len]);
        Ok(())
    }

    /// Builds the frame around the payload.
    fn build(&mut self, client: u32) -> Result<(), GenerateError> {
        let client = self.trace.workload.clients.get(client);
        self.len = self
            .trace
            .envelope
            .frame(client, &self.payload)
            .write_to(&mut self.frame)
            .ok_or(GenerateError::Families)?;
        Ok(())
    }
}

impl Summary {
    fn count(&mut self, op: Op<'_>) {
        match op {
            Op::Get(keys) => {
                self.gets += 1;
                self.keys_asked += keys.len() as u64;
            }
            Op::Set { .. } => self.sets += 1,
            Op::Delete(_) => self.deletes += 1,
        }
    }
}
