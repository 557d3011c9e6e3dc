//! One worker: the stages in their order. The only file that defines it.
//!
//! In: queues of one or more ports, a session of the store, an engine. Out: replies on the same
//! queues, frames for the exception path, and counters that balance. What workers share:
//! docs/architecture.md, "Threads".

mod build;
mod fast;
mod offload;

pub use build::{WorkerConfig, WorkerPort, offload};

use crate::announce::{Announcer, announce};
use crate::capture::Channel;
use crate::counters::WorkerCounters;
use crate::frame_accounting::Accounts;
use crate::policy::{Gate, LocalReply};
use crate::reply::{Meaning, Reply, Sum};
use crate::stages::batch::{Batcher, Pending, entry_of};
use crate::stages::engine::dispatch::{Complete, Dispatch, is_look_up};
use crate::stages::execute::Execute;
use crate::stages::exits::exception_path::ExceptionPath;
use crate::stages::exits::refuse_fragment::TooLong;
use crate::stages::exits::respond::respond;
use crate::stages::fast_path::{self, FastPath};
use crate::stages::rdma::{Reads, Turn, leads};
use crate::stages::rx;
use crate::stages::stream::Streams;
use crate::stages::tx::Tx;
use driver_shim::{BURST_MAX, Burst, Frame, Region, RxQueue};
use gpu::Entry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::DropReason;
use wire::{At, Class, PlainMatcher, Respond, classify};

/// Turns without work after which a worker that may sleep does.
const SPIN_TURNS: u32 = 64;
/// Longest sleep where a frame ends it: the delay that only a stop can suffer. Short sleeps alone cost
/// a core 2 %.
const IDLE_AWAKENED_MAX: Duration = Duration::from_millis(20);
/// Longest time that a worker which drains takes in what lies in its queues.
const QUEUED_MAX: Duration = Duration::from_millis(50);
/// Longest wait for the engine when a worker drains.
const DRAIN_MAX: Duration = Duration::from_secs(1);
/// Batches for the CPU engine alone: one fills while the CPU engine has the other.
const CPU_ONLY_BATCHES: usize = 2;

struct PortEnd {
    rx: Box<dyn RxQueue>,
    tx: Tx,
    /// What is ours on the port, and stage 3 for its plain headers.
    header_matcher: PlainMatcher,
    /// What the port's plain requests look like, for the fast path, and the trusted sources seen so far.
    request_matcher: fast_path::RequestMatcher,
    exception_path: Option<Arc<ExceptionPath>>,
    /// This worker sends the kernel's frames of the port.
    sends_for_kernel: bool,
    /// Orders to announce the port's addresses, if this worker is the one that sends them.
    announcer: Option<Arc<Announcer>>,
}

/// A worker. Runs on one thread, which owns it.
pub struct Worker {
    ports: Vec<PortEnd>,
    gate: Gate,
    too_long: TooLong,
    // Before `region`, which it reads from, and before the batches, which it may be at work on.
    dispatch: Dispatch,
    batcher: Batcher,
    /// With an offload, requests that are no look-ups, for the CPU engine alone.
    cpu_only: Option<Batcher>,
    /// Frames of the batches that are with the engine, by batch id.
    with_engine: Vec<Vec<Frame>>,
    execute: Execute,
    streams: Option<Streams>,
    rdma: Option<Reads>,
    /// The fast path, unless it is switched off.
    fast_path: Option<FastPath>,
    /// Memory of a burst. `None` only while one is worked on.
    burst: Option<Box<Burst>>,
    accounts: Accounts,
    started: Instant,
    busy_poll: bool,
    region: Region,
}

base::opaque!(Worker, |it| ports: it.ports.len());

impl Worker {
    /// This worker's counters, for others to read.
    pub fn counters(&self) -> Arc<WorkerCounters> {
        self.accounts.counters()
    }

    /// Where to order captures.
    pub fn capture_channel(&self) -> Arc<Channel> {
        self.accounts.recorder.channel()
    }

    /// Works until `stop` is set, then answers what it has taken in and returns.
    pub fn run(mut self, stop: &AtomicBool) {
        let mut empty_turns = 0;
        while !stop.load(Ordering::Relaxed) {
            if self.turn() > 0 {
                empty_turns = 0;
                continue;
            }
            empty_turns += 1;
            if !self.busy_poll && empty_turns > SPIN_TURNS && self.nothing_in_flight() {
                self.idle();
            } else {
                std::hint::spin_loop();
            }
        }
        self.drain();
    }

    /// Sleeps until there may be work again.
    fn idle(&mut self) {
        match self.ports.as_mut_slice() {
            [port] if port.rx.wakes() && !port.sends_for_kernel => port.rx.idle(IDLE_AWAKENED_MAX),
            ports => {
                let most = ports.iter().map(|port| port.rx.idle_max()).min().unwrap_or_default();
                let share = u32::try_from(ports.len()).unwrap_or(1).max(1);
                ports.iter_mut().for_each(|port| port.rx.idle(most / share));
            }
        }
    }

    /// Takes nothing more in and finishes what is there, for at most a second. Before that TCP connections
    /// are answered what comes until they are silent, for a second, and are sent what they are owed, for
    /// as long as [`crate::stages::stream::StreamsConfig::drain_max`]; those that are not ended in both
    /// directions by then are reset.
    pub fn drain(&mut self) {
        let begun = Instant::now();
        // What lies in the queues came before the end.
        while self.streams.is_some() && self.turn() > 0 && begun.elapsed() < QUEUED_MAX {}
        let now_ns = self.now_ns();
        if let Some(streams) = &mut self.streams {
            streams.stop(now_ns);
            let most = streams.drain_max();
            while self.streams.as_ref().is_some_and(|s| !s.is_quiet(self.now_ns()))
                && begun.elapsed() < most
            {
                if self.turn() == 0 && !self.busy_poll {
                    self.idle();
                }
            }
        }
        if let Some(streams) = &mut self.streams {
            streams.cut();
            while self.converse(self.now_ns()) > 0 {
                self.flush();
            }
        }
        let begun = Instant::now();
        loop {
            let now_ns = self.now_ns();
            self.ship_and_finish(now_ns, true);
            self.answer_rdma(now_ns);
            self.flush();
            if self.nothing_in_flight() || begun.elapsed() > DRAIN_MAX {
                break;
            }
            std::hint::spin_loop();
        }
    }

    /// One pass through all stages. Says how many frames it took in or finished.
    ///
    /// Never inlined: what a profiler sees of it and below is the cost of the data plane.
    #[inline(never)]
    pub fn turn(&mut self) -> usize {
        self.accounts.recorder.check_orders();
        let now_ns = self.now_ns();
        let mut work = 0;
        for index in 0..self.ports.len() {
            work += self.take_in(index, now_ns);
        }
        work += self.ship_and_finish(now_ns, false);
        if self.streams.is_some() {
            work += self.converse(now_ns);
        }
        if self.rdma.is_some() {
            work += self.answer_rdma(now_ns);
        }
        self.flush();
        self.accounts.turns.inc();
        if work == 0 {
            self.accounts.empty_turns.inc();
        }
        work
    }

    fn now_ns(&self) -> u64 {
        now_ns(self.started)
    }

    fn nothing_in_flight(&self) -> bool {
        self.accounts.in_flight.get() == 0
    }

    /// Stages 1 to 4 for one burst of one port; the kernel's frames and announcements the other way.
    fn take_in(&mut self, index: usize, now_ns: u64) -> usize {
        let Some(port) = self.ports.get_mut(index) else { return 0 };
        let Some(mut burst) = self.burst.take() else { return 0 };
        let mut work = 0;
        if port.sends_for_kernel
            && let Some(path) = &port.exception_path
        {
            path.take_outgoing(&mut burst);
            self.accounts.recorder.unasked(&mut burst);
            work += burst.len();
            for frame in burst.drain(..) {
                port.tx.push(frame, Meaning::Kernel, &self.accounts);
            }
        }
        if port.announcer.as_ref().is_some_and(|announcer| announcer.take()) {
            let without_slot = announce(port.header_matcher.local(), &self.region, &mut burst);
            self.accounts.announcements_lost.add(without_slot as u64);
            self.accounts.recorder.unasked(&mut burst);
            work += burst.len();
            for frame in burst.drain(..) {
                port.tx.push(frame, Meaning::Announcement, &self.accounts);
            }
        }
        // An engine that is behind is waited for in the NIC's queue.
        if self.batcher.takes(BURST_MAX) {
            let received = rx::receive(port.rx.as_mut(), &mut burst, now_ns);
            self.accounts.received.add(received as u64);
            self.accounts.recorder.received(
                &mut burst,
                index,
                port.header_matcher.local().service_port,
                now_ns,
            );
            work += received;
            if self.rdma.is_some() && leads(&burst) {
                self.take_plain_rdma(&mut burst, index);
            }
            let plain_gets = self.answer_fast(&mut burst, index, now_ns);
            if plain_gets != 0 {
                self.divide(&mut burst, plain_gets, index, now_ns);
            }
            // Requests by RDMA may stand behind other frames, too.
            if self.rdma.is_some() && !burst.is_empty() {
                self.take_plain_rdma(&mut burst, index);
            }
            for frame in burst.drain(..) {
                self.classify_and_pass(frame, index, now_ns);
            }
            if self.streams.is_some() {
                self.take_segments(now_ns);
            }
        }
        self.burst = Some(burst);
        work
    }

    /// The fast path, where there is one: what it answers leaves the burst. With an offload it
    /// says which frames are plain gets, for that: bit n for frame n.
    #[inline(always)]
    fn answer_fast(&mut self, burst: &mut Burst, index: usize, now_ns: u64) -> u64 {
        let (Some(fast_path), Some(port)) = (&mut self.fast_path, self.ports.get_mut(index)) else {
            return 0;
        };
        if burst.is_empty() || self.accounts.recorder.is_running() {
            return 0;
        }
        if self.cpu_only.is_some() {
            return self.answer_fast_with_offload(burst, index, now_ns);
        }
        let (counters, region, caps) = (&self.accounts, &self.region, port.tx.caps());
        let mut parts = fast_path::Parts { ctx: self.execute.ctx(), counters, region, caps };
        let answered = fast_path.run(burst, &mut port.request_matcher, &mut parts);
        self.send_fast(burst, index, now_ns, answered, &mut 0);
        0
    }

    /// Classifies one frame (stage 3), and passes it to the stage or the exit of its class.
    #[inline(always)]
    fn classify_and_pass(&mut self, mut frame: Frame, index: usize, now_ns: u64) {
        let Some(port) = self.ports.get_mut(index) else { return };
        // The engine addresses slots by their numbers alone.
        if !self.region.owns(&frame) {
            return self.accounts.drop_frame(frame, index, DropReason::ForeignSlot);
        }
        let local = port.header_matcher.local();
        let usual = port.header_matcher.classify(frame.bytes());
        match usual.unwrap_or_else(|| classify(frame.bytes(), local)) {
            Class::Kv(at) => {
                let entry = entry_of(&frame, at, index);
                if let Err(reason) = self.gate.admit(frame.bytes(), &entry, now_ns) {
                    return self.accounts.drop_frame(frame, index, reason);
                }
                if let Err(frame) = self.batcher_for(&frame, &entry).push(frame, entry) {
                    self.push_after_shipping(frame, entry, index, now_ns);
                }
            }
            Class::TooLong(at) => {
                let entry = entry_of(&frame, at, index);
                let admitted = self.gate.admit(frame.bytes(), &entry, now_ns);
                match admitted.and_then(|()| self.too_long.refuse(&mut frame, &entry)) {
                    Ok(headers) => {
                        let reply = Reply::whole(frame, headers, Sum::Unknown);
                        let bytes = reply.payload_bytes();
                        self.gate.charge(reply.frame.bytes(), &entry, bytes, now_ns);
                        self.accounts.too_long_refused.inc();
                        port.tx.reply(reply, &self.accounts);
                    }
                    Err(reason) => self.accounts.drop_frame(frame, index, reason),
                }
            }
            Class::Segment(at) => self.segment(frame, at, index),
            Class::Rdma(at) => {
                let entry = entry_of(&frame, at, index);
                self.take_rdma(frame, entry, now_ns);
            }
            Class::Respond(what) => {
                let kind = local_reply(what);
                let may = self.gate.may_answer(kind, now_ns);
                match may.and_then(|()| respond(&mut frame, what, local)) {
                    Ok(()) => {
                        self.gate.answered(kind, now_ns);
                        self.accounts.responded.inc();
                        port.tx.push(frame, Meaning::Answer, &self.accounts);
                    }
                    Err(reason) => self.accounts.drop_frame(frame, index, reason),
                }
            }
            Class::Punt => match &port.exception_path {
                Some(path) => match path.offer(frame) {
                    Ok(()) => self.accounts.punted.inc(),
                    Err((frame, reason)) => self.accounts.drop_frame(frame, index, reason),
                },
                None => self.accounts.drop_frame(frame, index, DropReason::NoExceptionPath),
            },
            Class::Drop(reason) => self.accounts.drop_frame(frame, index, reason),
        }
    }

    /// Adds a TCP segment to the others of its burst. Not inlined, so that requests do not pay for its
    /// stack frame.
    #[inline(never)]
    fn segment(&mut self, frame: Frame, at: At, port: usize) {
        let Some(streams) = &mut self.streams else {
            return self.accounts.drop_frame(frame, port, DropReason::TcpNoConnection);
        };
        if let Err((frame, reason)) = streams.enter(frame, at, port) {
            self.accounts.drop_frame(frame, port, reason);
        }
    }

    /// Adds an RDMA request to those that wait.
    #[inline(never)]
    fn take_rdma(&mut self, frame: Frame, entry: Entry, now_ns: u64) {
        let Self { rdma, gate, accounts, .. } = self;
        let port = usize::from(entry.mark);
        let Some(rdma) = rdma else {
            return accounts.drop_frame(frame, port, DropReason::RdmaNoQueuePair);
        };
        if let Err(reason) = gate.admit(frame.bytes(), &entry, now_ns) {
            return accounts.drop_frame(frame, port, reason);
        }
        if let Err((frame, reason)) = rdma.enter(frame, entry) {
            accounts.drop_frame(frame, port, reason);
        }
    }

    /// Adds the plain READ requests of a burst, which leave it, to those that wait.
    #[inline(never)]
    fn take_plain_rdma(&mut self, burst: &mut Burst, index: usize) {
        let Self { rdma, ports, gate, region, .. } = self;
        if let Some(rdma) = rdma
            && let Some(port) = ports.get_mut(index)
            && !gate.counts_trusted()
        {
            rdma.enter_plain(burst, &mut port.request_matcher, region, index);
        }
    }

    /// Answers RDMA requests.
    #[inline(never)]
    fn answer_rdma(&mut self, now_ns: u64) -> usize {
        let Self { rdma: Some(rdma), ports, gate, execute, accounts, region, .. } = self else {
            return 0;
        };
        let turn = Turn { ctx: execute.ctx(), region, gate, accounts, now_ns };
        let done = rdma.turn(turn, |port, frame, meaning| {
            if let Some(port) = ports.get_mut(port) {
                port.tx.push(frame, meaning, accounts);
            }
        });
        for &(came_ns, answered) in rdma.answered() {
            execute.note_rdma_reads(came_ns, answered);
        }
        let in_flight = accounts.in_flight.get() + rdma.waiting() as u64;
        accounts.in_flight.set(in_flight);
        done
    }

    /// The TCP segments of a burst to their connections.
    #[inline(never)]
    fn take_segments(&mut self, now_ns: u64) {
        let Self { streams: Some(streams), accounts, .. } = self else { return };
        streams.take_all(now_ns, |frame, port, taken| match taken {
            Ok(()) => {
                accounts.answered.inc();
                accounts.segments.inc();
            }
            Err(reason) => accounts.drop_frame(frame, port, reason),
        });
    }

    /// Which batcher a request joins: with an offload by what it is, else all join one.
    #[inline(always)]
    fn batcher_for(&mut self, frame: &Frame, entry: &Entry) -> &mut Batcher {
        match &mut self.cpu_only {
            Some(cpu_only) if !is_look_up(frame.bytes(), entry.l4) => cpu_only,
            _ => &mut self.batcher,
        }
    }

    /// Ships a full batch in the middle of a burst, and then adds the request.
    #[cold]
    fn push_after_shipping(&mut self, frame: Frame, entry: Entry, index: usize, now_ns: u64) {
        self.ship_and_finish(now_ns, false);
        if let Err(frame) = self.batcher_for(&frame, &entry).push(frame, entry) {
            self.accounts.drop_frame(frame, index, DropReason::Overload);
        }
    }

    fn queued(&self) -> usize {
        self.batcher.queued() + self.cpu_only.as_ref().map_or(0, Batcher::queued)
    }

    /// Stages 4 to 6: gives the engine what is due and answers what it is done with.
    fn ship_and_finish(&mut self, now_ns: u64, all: bool) -> usize {
        let mut work = 0;
        loop {
            let shipped = self.ship(now_ns, all);
            let finished = self.finish(now_ns);
            work += finished;
            if shipped == 0 && finished == 0 {
                break;
            }
        }
        let in_engine: usize = self.with_engine.iter().map(Vec::len).sum();
        self.accounts.in_flight.set((self.queued() + in_engine) as u64);
        work
    }

    fn ship(&mut self, now_ns: u64, all: bool) -> usize {
        let cpu_only = self.cpu_only.as_mut().and_then(|cpu_only| cpu_only.ready(now_ns, true));
        if let Some(pending) = cpu_only {
            return self.ship_one(pending, now_ns, true);
        }
        match self.batcher.ready(now_ns, all) {
            Some(pending) => self.ship_one(pending, now_ns, false),
            None => 0,
        }
    }

    /// Gives an engine a batch; the CPU engine, if `cpu_only`.
    #[inline(always)]
    fn ship_one(&mut self, pending: Pending, now_ns: u64, cpu_only: bool) -> usize {
        let Pending { frames, meta } = pending;
        let (id, requests) = (meta.id as usize, frames.len());
        let came_ns = frames.first().map_or(now_ns, |oldest| oldest.stamp_ns);
        let submitted =
            if cpu_only { self.dispatch.submit_to_cpu(meta) } else { self.dispatch.submit(meta) };
        match submitted {
            Ok(()) => {
                if let Some(place) = self.with_engine.get_mut(id) {
                    *place = frames;
                }
                self.accounts.batches.inc();
                self.accounts.batched.add(requests as u64);
                self.accounts.batch_sizes.count(requests as u64);
                self.accounts.batch_waits.count(now_ns.saturating_sub(came_ns));
                requests
            }
            Err(meta) => {
                self.batcher_of(meta.id).put_back(Pending { frames, meta });
                0
            }
        }
    }

    /// Whose batch that is.
    fn batcher_of(&mut self, id: u32) -> &mut Batcher {
        let is_cpu_only = self.is_cpu_only(id);
        match &mut self.cpu_only {
            Some(cpu_only) if is_cpu_only => cpu_only,
            _ => &mut self.batcher,
        }
    }

    /// With an offload, whether the batch is one of those for the CPU engine alone. Look-ups have the
    /// first ids.
    #[inline(always)]
    fn is_cpu_only(&self, id: u32) -> bool {
        id as usize >= self.with_engine.len() - CPU_ONLY_BATCHES
    }

    fn finish(&mut self, now_ns: u64) -> usize {
        let Some(mut done) = self.dispatch.poll() else { return 0 };
        let id = done.batch().id;
        let mut frames = match self.with_engine.get_mut(id as usize) {
            Some(place) => std::mem::take(place),
            None => return 0,
        };
        let requests = frames.len();
        if self.cpu_only.is_some() && !self.is_cpu_only(id) {
            self.answer_located(&mut frames, &mut done);
        }
        let Complete { batch, from_replica } = self.dispatch.complete(done);
        let (ports, gate) = (&mut self.ports, &mut self.gate);
        let of = (&*batch, from_replica);
        self.execute.answer(&mut frames, of, &self.accounts, |reply, entry| {
            if let Some(port) = ports.get_mut(usize::from(entry.mark)) {
                let frame = (reply.frame.bytes(), matches!(reply.sum, Sum::Covered(_)));
                gate.charge_any(frame, entry, reply.payload_bytes(), now_ns);
                port.tx.reply(reply, &self.accounts);
            }
        });
        while let Some(debt) = self.execute.take_debt() {
            gate.charge_work(debt, now_ns);
        }
        self.batcher_of(id).recycle(Pending { frames, meta: batch });
        requests
    }

    /// Lets TCP connections go on, and sends their segments.
    #[inline(never)]
    fn converse(&mut self, now_ns: u64) -> usize {
        let Some(streams) = &mut self.streams else { return 0 };
        let served = streams.turn(&mut self.gate, now_ns);
        for (port, frame) in streams.frames() {
            if let Some(port) = self.ports.get_mut(port) {
                port.tx.push(frame, Meaning::Segment, &self.accounts);
            }
        }
        self.accounts.segments_lost.add(streams.answers_lost());
        served
    }

    fn flush(&mut self) {
        for port in &mut self.ports {
            port.tx.flush(&self.accounts);
        }
        let started = self.started;
        self.execute.handed_over(&self.accounts, || now_ns(started));
    }
}

/// The worker's clock, in nanoseconds.
fn now_ns(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

fn local_reply(what: Respond) -> LocalReply {
    match what {
        Respond::Echo4 { .. } | Respond::Echo6 { .. } => LocalReply::Echo,
        Respond::Arp { .. } | Respond::NeighbourSolicit { .. } => LocalReply::Neighbour,
    }
}
