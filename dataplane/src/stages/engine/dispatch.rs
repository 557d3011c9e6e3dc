//! Which engine a batch goes to. `docs/gpu.md` follows one to a GPU and back.
//!
//! In: batches as the batcher has them. Out: the same with descriptors, from the CPU engine or from
//! the offload, another engine that works at the same time, a GPU's mostly. Work-conserving (D7): few
//! requests, and the GPU idle, or what would spare the CPU less than handing it over costs: the CPU has them at once.
//! Otherwise a free place of the GPU takes all that is queued. Otherwise they gather, and the CPU takes them when the batch is full or the wait is long.
//! What is few is found out while it runs (`cost.rs`). The offload is never trusted with more than speed:
//! its descriptors are validated, now and then in full ([`CpuEngine::confirms`]), and the batches that it
//! loses are done by the CPU engine at once. The CPU engine also completes what it did: keys that its index
//! does not have are looked up in the host's, and memory is prefetched (`Dispatch::complete`).
//! Requests that are no look-ups never go there: batches are of one kind or the other.
//! Batches come out in order of finishing. Nothing here fails, waits or allocates.

mod cost;

use super::accept::Acceptance;
use crate::counters::WorkerCounters;
use crate::stages::engine::cpu_engine::CpuEngine;
use cost::{LinearFit, Rate};
use gpu::index::Filter;
use gpu::{Batch, Engine, Outcome};
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};
use wire::udp_frame::TEXT_AFTER_UDP;

/// The offload, and how to use it.
pub struct Offloading {
    /// The engine.
    pub engine: Box<dyn Engine>,
    /// It gets all look-ups, as long as it works.
    pub forced: bool,
    /// One of so many of its batches is read again by the CPU, and compared.
    pub verify_one_in: NonZeroU32,
    /// What says whether its whole replies are right, if it writes them.
    pub filter: Option<Arc<Filter>>,
}

base::opaque!(Offloading, |it| engine: it.engine.name());

/// Longest wait for a place of the GPU before the CPU takes a batch: a fifth of what a reply may
/// take under load.
const WAIT_MAX: Duration = Duration::from_micros(50);
/// The GPU's costs are measured anew when nothing has gone there for so long.
const PROBE_AFTER: Duration = Duration::from_millis(10);
/// Fewest requests that show something of the GPU.
const PROBE_LEAST: usize = 16;
/// Longest queue of start times: more than there are places.
const STARTED_MAX: usize = 64;

/// The CPU engine and the offload, as one.
pub struct Dispatch {
    cpu: CpuEngine,
    offload: Option<OffloadState>,
    /// Most requests in a batch.
    batch_max: usize,
    counters: Arc<WorkerCounters>,
}

/// A batch that an engine is done with: the fast path may answer what it can of it. The rest goes on through
/// [`Dispatch::complete`], and no other way.
#[derive(Debug)]
pub(crate) struct Done {
    batch: Box<Batch>,
    /// Where it is the offload's, what validating it took.
    validated: Option<Validated>,
}

impl Done {
    /// Its entries, with a descriptor each, to take from what is answered.
    #[inline(always)]
    pub(crate) fn batch(&mut self) -> &mut Batch {
        &mut self.batch
    }
}

/// A batch with a descriptor per entry, of which nothing is left to find out by hints: stage 6 can answer it.
#[derive(Debug)]
pub(crate) struct Complete {
    /// The batch.
    pub(crate) batch: Box<Batch>,
    /// Its locations come from an index that follows the host's.
    pub(crate) from_replica: bool,
}

/// What validating a batch took.
#[derive(Debug)]
struct Validated {
    /// The time, unless the batch was compared in full.
    took: Option<Duration>,
    /// Requests in the batch.
    requests: usize,
}

base::opaque!(Dispatch, |it| batch_max: it.batch_max);

/// The offload, and what is known of it and of the CPU.
struct OffloadState {
    engine: Box<dyn Engine>,
    /// As in [`Offloading`].
    forced: bool,
    /// As in [`Offloading`].
    verify_one_in: u32,
    /// Batches until the next one that is compared.
    verify_in: u32,
    /// When the batches in flight began, and whether the engine was idle then.
    started: VecDeque<(Instant, bool)>,
    /// When the last batch was submitted.
    last_sent: Instant,
    /// Since when a batch waits for a place.
    waits_since: Option<Instant>,
    /// Nanoseconds from giving a batch to an idle engine to its end.
    offloaded: LinearFit,
    /// Nanoseconds of the CPU for submitting a batch.
    handing: Rate,
    /// Nanoseconds of the CPU for a request in a batch that came back.
    taking: Rate,
    /// Nanoseconds of the CPU engine for a request.
    on_cpu: Rate,
    /// The last batch that found the engine idle went there.
    busy: bool,
    /// What becomes of its whole replies.
    acceptance: Option<Acceptance>,
}

/// Where a batch goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Choice {
    Cpu,
    Offload,
    /// Nowhere yet.
    Wait,
}

impl OffloadState {
    fn new(offloading: Offloading) -> Self {
        let verify_one_in = offloading.verify_one_in.get();
        Self {
            engine: offloading.engine,
            forced: offloading.forced,
            verify_one_in,
            // The first is compared.
            verify_in: 1,
            started: VecDeque::with_capacity(STARTED_MAX),
            last_sent: Instant::now(),
            waits_since: None,
            offloaded: LinearFit::default(),
            handing: Rate::default(),
            taking: Rate::default(),
            on_cpu: Rate::default(),
            busy: false,
            acceptance: offloading.filter.map(Acceptance::new),
        }
    }

    /// Requests from which on a batch is done sooner by the offload; infinite, where it never is.
    fn threshold(&self) -> f64 {
        let (start, each) = self.offloaded.fit();
        let gained = self.on_cpu.get() - each;
        if gained <= 0.0 { f64::INFINITY } else { start / gained }
    }

    /// D7, for a batch of `n` requests.
    fn choose(&self, n: usize, batch_max: usize, now: Instant) -> Choice {
        if !self.engine.is_open() {
            return Choice::Cpu;
        }
        if self.forced {
            return Choice::Offload;
        }
        let threshold = self.threshold();
        if self.engine.in_flight() == 0 {
            // Hysteresis, so that batches of about this size do not go to and fro.
            let from = threshold * if self.busy { 0.5 } else { 1.5 };
            let probe = n >= PROBE_LEAST && now.duration_since(self.last_sent) > PROBE_AFTER;
            return if n as f64 >= from || probe { Choice::Offload } else { Choice::Cpu };
        }
        let spared = n as f64 * (self.on_cpu.get() - self.taking.get());
        let worthwhile = spared > self.handing.get();
        if threshold <= batch_max as f64 && worthwhile { Choice::Offload } else { Choice::Cpu }
    }

    /// What becomes of a batch that found no place.
    fn without_place(&mut self, n: usize, batch_max: usize, now: Instant) -> Choice {
        if self.engine.in_flight() == 0 {
            // No batch is in flight whose return would free a slot.
            return Choice::Cpu;
        }
        if self.forced && self.engine.is_open() {
            return Choice::Wait;
        }
        let since = *self.waits_since.get_or_insert(now);
        if n >= batch_max || now.duration_since(since) >= WAIT_MAX {
            Choice::Cpu
        } else {
            Choice::Wait
        }
    }

    fn submit(&mut self, batch: Box<Batch>, now: Instant) -> Result<(), Box<Batch>> {
        let idle = self.engine.in_flight() == 0;
        self.engine.submit(batch)?;
        if self.started.len() < STARTED_MAX {
            self.started.push_back((now, idle));
        }
        self.last_sent = now;
        self.waits_since = None;
        self.busy = true;
        self.handing.add(nanos(now.elapsed()));
        Ok(())
    }

    fn poll(&mut self) -> Option<(Box<Batch>, Outcome)> {
        let (batch, outcome) = self.engine.poll()?;
        if let Some((began, alone)) = self.started.pop_front()
            && alone
            && outcome != Outcome::Lost
        {
            self.offloaded.add(batch.entries.len() as f64, nanos(began.elapsed()));
        }
        Some((batch, outcome))
    }

    /// Whether this batch is one to be compared.
    fn is_to_verify(&mut self) -> bool {
        self.verify_in -= 1;
        if self.verify_in > 0 {
            return false;
        }
        self.verify_in = self.verify_one_in;
        true
    }
}

/// Whether the offload can do anything for the request in this frame, whose UDP header
/// begins at `l4`: it looks keys up, and so what begins like a `get`, `gets` or `mg`, or is a binary
/// get of one of the four kinds (protocol_binary.txt, section 4.2). A guess, by the first bytes: all
/// engines read every request, and one in the wrong batch only takes longer.
#[inline]
pub fn is_look_up(frame: &[u8], l4: u8) -> bool {
    let at = usize::from(l4) + TEXT_AFTER_UDP;
    match frame.get(at..).and_then(<[u8]>::first_chunk) {
        // What nearly all are.
        Some(b"get ") => true,
        Some(b"gets" | [b'm', b'g', b' ', _]) => true,
        Some([0x80, opcode, ..]) => matches!(opcode, 0x00 | 0x09 | 0x0c | 0x0d),
        _ => false,
    }
}

fn nanos(time: Duration) -> f64 {
    time.as_nanos() as f64
}

impl Dispatch {
    /// The CPU engine, and the offload if there is one, for batches of up to `batch_max` requests. Counts where they go.
    pub fn new(
        cpu: CpuEngine,
        offload: Option<Offloading>,
        batch_max: usize,
        counters: Arc<WorkerCounters>,
    ) -> Self {
        let offload = offload.map(OffloadState::new);
        Self { cpu, offload, batch_max, counters }
    }

    /// Whether there is an offload.
    pub(crate) fn has_offload(&self) -> bool {
        self.offload.is_some()
    }

    /// Has the CPU engine do a batch that is none for the offload.
    ///
    /// # Errors
    /// The batch, when the CPU engine has one that was not polled.
    pub(crate) fn submit_to_cpu(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>> {
        self.cpu.submit(batch)
    }

    /// Completes a batch, or what is left of it: where it is the offload's, the CPU engine looks up what the replica did
    /// not have, and prefetches.
    #[inline(always)]
    pub(crate) fn complete(&mut self, Done { mut batch, validated }: Done) -> Complete {
        let from_replica = validated.is_some();
        if let Some(validated) = validated {
            self.complete_offloaded(&mut batch, validated);
        }
        Complete { batch, from_replica }
    }

    #[inline(never)]
    fn complete_offloaded(&mut self, batch: &mut Batch, Validated { took, requests }: Validated) {
        let began = Instant::now();
        if !batch.entries.is_empty() {
            self.counters.gpu_missed.add(self.cpu.complete(batch) as u64);
        }
        if let (Some(took), Some(offload)) = (took, &mut self.offload) {
            offload.taking.add(nanos(took + began.elapsed()) / requests.max(1) as f64);
        }
    }

    fn by_cpu(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>> {
        let Some(offload) = &mut self.offload else { return self.cpu.submit(batch) };
        let (began, n) = (Instant::now(), batch.entries.len());
        self.cpu.submit(batch)?;
        offload.waits_since = None;
        if offload.engine.in_flight() == 0 {
            offload.busy = false;
        }
        offload.on_cpu.add(nanos(began.elapsed()) / n.max(1) as f64);
        Ok(())
    }

    /// A batch of the offload's, validated, or redone by the CPU engine.
    fn poll_offload(&mut self) -> Option<Done> {
        let offload = self.offload.as_mut()?;
        let (mut batch, outcome) = offload.poll()?;
        if outcome != Outcome::Lost {
            let in_full = offload.is_to_verify();
            if in_full {
                self.counters.gpu_checked.inc();
            }
            let began = Instant::now();
            let acceptance = offload.acceptance.as_mut();
            if self.cpu.confirms(&batch, in_full)
                && acceptance.is_none_or(|acceptance| {
                    acceptance.accept(&mut batch, &self.cpu, &self.counters)
                })
            {
                // What comparing takes is not the rule.
                let took = (!in_full).then(|| began.elapsed());
                let requests = batch.entries.len();
                return Some(Done { batch, validated: Some(Validated { took, requests }) });
            }
            offload.engine.mark_faulty();
        }
        self.counters.gpu_lost.inc();
        batch.heads.clear();
        batch.replies.clear();
        // The CPU engine is idle: `poll` emptied it first.
        let taken = self.cpu.submit(batch);
        debug_assert!(taken.is_ok());
        self.poll_cpu()
    }

    fn poll_cpu(&mut self) -> Option<Done> {
        self.cpu.poll().map(|(batch, _)| Done { batch, validated: None })
    }

    /// Makes a batch of the kind that the offload likes best, or the CPU engine, where there is none. Start-up only.
    pub(crate) fn new_batch(&mut self, id: u32, capacity: usize) -> Box<Batch> {
        match &mut self.offload {
            Some(offload) => offload.engine.new_batch(id, capacity),
            None => self.cpu.new_batch(id, capacity),
        }
    }

    /// Gives a batch to the engine that it is for.
    ///
    /// # Errors
    /// The batch, when it is to be offered again.
    pub(crate) fn submit(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>> {
        let Some(offload) = &mut self.offload else { return self.cpu.submit(batch) };
        let (n, now) = (batch.entries.len(), Instant::now());
        if offload.choose(n, self.batch_max, now) == Choice::Cpu {
            return self.by_cpu(batch);
        }
        match offload.submit(batch, now) {
            Ok(()) => {
                self.counters.gpu_batches.inc();
                self.counters.gpu_batched.add(n as u64);
                Ok(())
            }
            Err(batch) => match offload.without_place(n, self.batch_max, now) {
                Choice::Cpu => self.by_cpu(batch),
                Choice::Offload | Choice::Wait => Err(batch),
            },
        }
    }

    /// The next batch that an engine is done with.
    pub(crate) fn poll(&mut self) -> Option<Done> {
        if let Some(done) = self.poll_cpu() {
            return Some(done);
        }
        let done = self.poll_offload()?;
        if let Some(offload) = &self.offload {
            // More than a batch is never.
            let threshold = offload.threshold().clamp(0.0, 1.0 + self.batch_max as f64).ceil();
            // In range by the clamp.
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
            self.counters.gpu_from.set(threshold as u64);
        }
        Some(done)
    }
}

#[cfg(test)]
#[allow(unsafe_code)]
mod tests;
