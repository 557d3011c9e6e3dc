//! The stages of a worker, one after the other, with a clock between them.
//!
//! In: a batch's worth of requests from a port in memory. Out: replies on the same port, and the time
//! that each stage took. The order is `dataplane/src/worker.rs`'s; what differs is that each stage is
//! done with all of a batch before the next begins, bursts included, so that the clock is read a few
//! times for a batch. Each stage is a function that is never inlined, for profilers to find. An engine
//! that is sent everything may stand before the CPU's, as `dataplane/src/stages/engine/dispatch.rs` has it: then
//! what the CPU engine adds is timed. Fails when a request is not answered, or otherwise than reported.
#![allow(unsafe_code)]

use crate::study::bench::Bench;
use crate::study::load::{SERVER, SERVER6};
use crate::study::oracle_engine::Foretold;
use dataplane::frame_accounting::Accounts;
use dataplane::policy::{Gate, Policy};
use dataplane::reply::Reply;
use dataplane::stages::batch::{BatchMode, BatchPolicy, Batcher, Pending, entry_of};
use dataplane::stages::engine::cpu_engine::CpuEngine;
use dataplane::stages::execute::Execute;
use dataplane::stages::rx;
use dataplane::stages::tx::Tx;
use driver_shim::ports::memory::MAC;
use driver_shim::{
    BURST_MAX, Burst, Port, QueuePair, Region, RxQueue, SLOT_BYTES, TxCaps, TxQueue,
};
use gpu::{Batch, Engine, PacketMemory};
use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::DropReason;
use wire::{Class, Local, classify};

/// What is timed, in the order of a packet.
pub const STAGES: [&str; 7] = ["port", "rx", "classify", "batcher", "engine", "execute", "tx"];

/// A queue whose bursts are timed.
struct Timed<Q> {
    queue: Q,
    spent_ns: Arc<AtomicU64>,
}

impl<Q> Timed<Q> {
    fn time(&mut self, work: impl FnOnce(&mut Q) -> usize) -> usize {
        let begun = Instant::now();
        let n = work(&mut self.queue);
        self.spent_ns.fetch_add(ns_since(begun), Ordering::Relaxed);
        n
    }
}

impl RxQueue for Timed<Box<dyn RxQueue>> {
    fn burst(&mut self, into: &mut Burst) -> usize {
        self.time(|queue| queue.burst(into))
    }
}

impl TxQueue for Timed<Box<dyn TxQueue>> {
    fn burst(&mut self, from: &mut Burst) -> usize {
        self.time(|queue| queue.burst(from))
    }
}

fn ns_since(begun: Instant) -> u64 {
    u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The stages, with their state.
pub struct Stages {
    rx: Box<dyn RxQueue>,
    tx: Tx,
    local: Local,
    classes: Vec<Class>,
    gate: Gate,
    batcher: Batcher,
    // Before `_region`, which it reads from.
    engine: CpuEngine,
    /// Reads and looks up, if it is there.
    told: Option<Box<dyn Engine>>,
    execute: Execute,
    replies: Vec<Reply>,
    accounts: Accounts,
    /// Time spent in the port.
    port_ns: Arc<AtomicU64>,
    begun: Instant,
    /// Keeps the slots mapped.
    _region: Region,
    batch: usize,
}

base::opaque!(Stages, |it| batch: it.batch);

impl Stages {
    /// The stages on the first queues of `port`, which is over `region` and has at least `batch` frames,
    /// for batches of `batch` requests. With `told`, which is all that the port will ask, that engine
    /// reads and looks up.
    ///
    /// # Errors
    /// No queue, or no place for a session.
    pub fn new(
        bench: &Bench,
        mut port: Port,
        region: &Region,
        batch: usize,
        group: usize,
        told: Option<&Arc<Foretold>>,
    ) -> Result<Self, Box<dyn Error>> {
        let QueuePair { rx, tx } = port.queues.pop().ok_or("no queue")?;
        let port_ns = Arc::new(AtomicU64::new(0));
        let tx = Timed { queue: tx, spent_ns: Arc::clone(&port_ns) };
        // SAFETY: the region outlives the engine: it is dropped after it, below.
        let packets = unsafe { PacketMemory::new(region.base(), SLOT_BYTES, region.capacity()) };
        let store = Arc::clone(bench.store());
        // SAFETY: `walk` keeps the frames of a batch, untouched, until it has polled it; all are of
        // this region, which the port is over.
        let mut engine = unsafe { CpuEngine::new(store, packets, group) };
        let mut told = told.map(|told| told.engine(0, 1, Duration::ZERO).0);
        let mode = BatchMode::Adaptive;
        let policy = BatchPolicy { size: batch, mode, in_flight_max: 1, ..BatchPolicy::default() };
        let (server, session) = (Arc::clone(bench.server()), bench.store().session()?);
        Ok(Self {
            rx: Box::new(Timed { queue: rx, spent_ns: Arc::clone(&port_ns) }),
            tx: Tx::new(Box::new(tx), TxCaps::default(), 0),
            local: Local::new(MAC, &[(SERVER.0.into(), 24), (SERVER6.0.into(), 64)], SERVER.1)?,
            classes: Vec::with_capacity(BURST_MAX),
            gate: Gate::new(&Policy::default()),
            batcher: Batcher::new(policy, |id, capacity| match &mut told {
                Some(told) => told.new_batch(id, capacity),
                None => engine.new_batch(id, capacity),
            }),
            engine,
            told,
            execute: {
                let amp_factor = Policy::default().amp_factor;
                Execute::new(session, server, region.clone(), None, amp_factor, batch, None)
            },
            replies: Vec::with_capacity(2 * batch),
            accounts: Accounts::new(Arc::default(), Instant::now(), vec![port.info.name.clone()]),
            port_ns,
            begun: Instant::now(),
            _region: region.clone(),
            batch,
        })
    }

    /// Takes a batch through all stages, and adds the nanoseconds of each to `spent`.
    ///
    /// # Errors
    /// A request that was not answered.
    pub fn walk(&mut self, spent: &mut [u64; STAGES.len()]) -> Result<(), Box<dyn Error>> {
        let port_before = self.port_ns.load(Ordering::Relaxed);
        let [port, rx, classify, batcher, engine, execute, tx] = spent;
        let answered = self.accounts.answered.get();
        let mut burst = Burst::new();
        let mut taken = 0;
        while taken < self.batch {
            let now_ns = ns_since(self.begun);
            let begun = Instant::now();
            let n = stage_rx(self.rx.as_mut(), &mut burst, now_ns);
            *rx += ns_since(begun);
            let begun = Instant::now();
            stage_classify(&burst, &self.local, &mut self.classes);
            *classify += ns_since(begun);
            let begun = Instant::now();
            stage_batcher(&mut self.batcher, &mut self.gate, &mut burst, &self.classes, now_ns)
                .map_err(|reason| format!("a request was dropped: {reason:?}"))?;
            *batcher += ns_since(begun);
            taken += n;
            if n == 0 {
                return Err("the port has too few frames".into());
            }
        }
        let port_in = self.port_ns.load(Ordering::Relaxed) - port_before;
        let begun = Instant::now();
        let Some(Pending { mut frames, meta }) = self.batcher.ready(ns_since(self.begun), true)
        else {
            return Err("there is no batch".into());
        };
        *batcher += ns_since(begun);
        let (batch, from_replica) = match &mut self.told {
            None => {
                let begun = Instant::now();
                let batch = stage_engine(&mut self.engine, meta).ok_or("the engine took none")?;
                *engine += ns_since(begun);
                (batch, false)
            }
            Some(told) => {
                told.submit(meta).map_err(|_| "the engine took none")?;
                let (mut batch, _) = told.poll().ok_or("the engine gave none back")?;
                let begun = Instant::now();
                stage_complete(&mut self.engine, &mut batch)?;
                *engine += ns_since(begun);
                (batch, true)
            }
        };
        let begun = Instant::now();
        let of = (&*batch, from_replica);
        stage_execute(&mut self.execute, &mut frames, of, &self.accounts, &mut self.replies);
        *execute += ns_since(begun);
        let begun = Instant::now();
        self.batcher.recycle(Pending { frames, meta: batch });
        *batcher += ns_since(begun);
        let begun = Instant::now();
        stage_tx(&mut self.tx, &mut self.replies, &self.accounts);
        *tx += ns_since(begun);
        self.execute.handed_over(&self.accounts, || ns_since(self.begun));
        let in_port = self.port_ns.load(Ordering::Relaxed) - port_before;
        *port += in_port;
        *rx = rx.saturating_sub(port_in);
        *tx = tx.saturating_sub(in_port - port_in);
        if self.accounts.answered.get() - answered < taken as u64 {
            return Err("a request was not answered".into());
        }
        // Some hints are of other keys with the same tag.
        let otherwise = self.accounts.hints_wrong.get() + self.accounts.heads_unused.get();
        if self.told.is_some() && otherwise > self.accounts.answered.get() / 100 {
            return Err("a request was answered otherwise than told".into());
        }
        Ok(())
    }
}

#[inline(never)]
fn stage_rx(queue: &mut dyn RxQueue, into: &mut Burst, now_ns: u64) -> usize {
    rx::receive(queue, into, now_ns)
}

#[inline(never)]
fn stage_classify(burst: &Burst, local: &Local, classes: &mut Vec<Class>) {
    classes.clear();
    classes.extend(burst.iter().map(|frame| classify(frame.bytes(), local)));
}

#[inline(never)]
fn stage_batcher(
    batcher: &mut Batcher,
    gate: &mut Gate,
    burst: &mut Burst,
    classes: &[Class],
    now_ns: u64,
) -> Result<(), DropReason> {
    for (frame, class) in burst.drain(..).zip(classes) {
        let Class::Kv(at) = class else { return Err(DropReason::Unread) };
        let entry = entry_of(&frame, *at, 0);
        gate.admit(frame.bytes(), &entry, now_ns)?;
        batcher.push(frame, entry).map_err(|_| DropReason::Overload)?;
    }
    Ok(())
}

#[inline(never)]
fn stage_engine(engine: &mut CpuEngine, batch: Box<Batch>) -> Option<Box<Batch>> {
    engine.submit(batch).ok()?;
    engine.poll().map(|(batch, _)| batch)
}

#[inline(never)]
fn stage_complete(engine: &mut CpuEngine, batch: &mut Batch) -> Result<(), &'static str> {
    if !engine.confirms(batch, false) || engine.complete(batch) > 0 {
        return Err("what was told is not what is asked");
    }
    Ok(())
}

#[inline(never)]
fn stage_execute(
    execute: &mut Execute,
    frames: &mut Vec<driver_shim::Frame>,
    of: (&Batch, bool),
    accounts: &Accounts,
    replies: &mut Vec<Reply>,
) {
    execute.answer(frames, of, accounts, |reply, _| replies.push(reply));
}

#[inline(never)]
fn stage_tx(tx: &mut Tx, replies: &mut Vec<Reply>, accounts: &Accounts) {
    for reply in replies.drain(..) {
        tx.reply(reply, accounts);
    }
    tx.flush(accounts);
}
