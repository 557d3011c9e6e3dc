//! What a GPU and the way to it can do, each by itself: the roofs of everything else.
//!
//! In: a GPU. Out: rates of reads of its memory and of the host's, of copies, of doorbells and of
//! launches. Timed by the host's clock around work that is long enough for that. Every wait has a
//! bound. Fails as the GPU does.
#![allow(unsafe_code)]

use super::{Extent, median, percentile};
use crate::output::tell;
use crate::report::Report;
use driver_shim::{Mapping, MemoryKind, Pages};
use gpu::card::{Card, CardError, CardMemory, Kernel, Recorded, Stream};
use gpu::host::HostMemory;
use gpu::params::{DevAddr, MicroEmptyParams, MicroPingParams, MicroReadParams};
use serde_json::json;
use std::error::Error;
use std::mem::ManuallyDrop;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for one piece of work.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// Threads that one multiprocessor holds.
const THREADS_PER_SM: u32 = 2048;
/// Rounds of a kernel are so many or a multiple.
const ROUNDS: u32 = 4;
/// Where the host's packets lie: as slots of the region do.
const SLOT_BYTES: u32 = 2048;

/// Memory that kernels read or write.
#[derive(Debug, Clone, Copy)]
struct Span {
    at: DevAddr,
    bytes: usize,
}

impl From<&CardMemory> for Span {
    fn from(memory: &CardMemory) -> Self {
        Self { at: memory.at(), bytes: memory.bytes() }
    }
}

impl From<&HostMemory> for Span {
    fn from(memory: &HostMemory) -> Self {
        Self { at: memory.at(), bytes: memory.bytes() }
    }
}

/// Host memory in huge pages, where the machine has them, and mapped to a GPU: one in small pages
/// would measure how both sides translate addresses.
#[derive(Debug)]
struct HugeMemory {
    card: Arc<dyn Card>,
    memory: ManuallyDrop<Mapping>,
    at: DevAddr,
}

impl HugeMemory {
    fn new(card: &Arc<dyn Card>, bytes: usize) -> Result<Self, Box<dyn Error>> {
        let memory = Mapping::for_devices(bytes, Pages::Prefer, &[])?;
        // SAFETY: mapped memory of that size, until drop, which unmaps it from the GPU first.
        let at = unsafe { card.map(memory.base(), memory.len()) }?;
        Ok(Self { card: Arc::clone(card), memory: ManuallyDrop::new(memory), at })
    }

    fn kind(&self) -> MemoryKind {
        self.memory.kind()
    }
}

impl Drop for HugeMemory {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, once; work over it has been waited for ([`wait`]).
        if unsafe { self.card.unmap(self.memory.base()) } {
            // SAFETY: dropped here and nowhere else; no GPU sees it any more.
            unsafe { ManuallyDrop::drop(&mut self.memory) }
        }
    }
}

impl From<&HugeMemory> for Span {
    fn from(memory: &HugeMemory) -> Self {
        Self { at: memory.at, bytes: memory.memory.len() }
    }
}

/// What is read.
#[derive(Debug, Clone, Copy)]
struct Shape {
    item_bytes: u32,
    stride: u32,
    random: bool,
    /// Bytes from one written item to the next; 0: nothing is written.
    to_stride: u32,
}

/// A GPU, and what every measurement needs. Memory outlives the work on it: a caller that starts work
/// waits for its end, and if it does not come, ends the process.
#[derive(Debug)]
pub struct Micro {
    card: Arc<dyn Card>,
    sum: CardMemory,
    extent: Extent,
}

type Done = Result<(), Box<dyn Error>>;

impl Micro {
    /// For a GPU.
    ///
    /// # Errors
    /// As the GPU says.
    pub fn new(card: &Arc<dyn Card>, extent: Extent) -> Result<Self, CardError> {
        Ok(Self { card: Arc::clone(card), sum: CardMemory::new(card, 64)?, extent })
    }

    /// What bounds everything else: a doorbell, reads and writes of the host's memory, and random
    /// reads of the GPU's.
    ///
    /// # Errors
    /// As the GPU says, or the report cannot be written.
    pub fn roofs(&self, report: &mut Report) -> Done {
        self.doorbell(report)?;
        self.host_reads(report)?;
        self.host_writes(report)?;
        self.card_reads(report)
    }

    /// What calls of the driver cost, and copies.
    ///
    /// # Errors
    /// As [`Self::roofs`].
    pub fn driver(&self, report: &mut Report) -> Done {
        self.beside_a_kernel_that_stays(report)?;
        self.launches(report)?;
        self.copies(report)
    }

    /// Random reads of the GPU's memory: how many places a second, and how much memory its
    /// address translation covers.
    fn card_reads(&self, report: &mut Report) -> Done {
        let mut stream = self.card.stream()?;
        for gigabytes in [2_usize, 8, 32, 96] {
            let bytes = self.extent.pick(gigabytes << 30, gigabytes << 12);
            if bytes as u64 > self.card.facts().memory_bytes / 10 * 9 || !self.extent.goes_on() {
                break;
            }
            let memory = match CardMemory::new(&self.card, bytes) {
                Err(CardError::OutOfMemory { .. }) => break,
                memory => memory?,
            };
            for item_bytes in [8, 32, 64, 128] {
                let stride = item_bytes.max(32);
                let shape = Shape { item_bytes, stride, random: true, to_stride: 0 };
                let rate = self.read_rate(&mut *stream, (&memory).into(), None, shape)?;
                report.row(
                    "card_reads",
                    json!({ "memory_gb": bytes as f64 / f64::from(1 << 30), "item_bytes": item_bytes,
                            "reads_per_s": rate, "gb_per_s": rate * f64::from(item_bytes) / 1e9 }),
                )?;
            }
        }
        Ok(())
    }

    /// Reads of the host's memory by the GPU, a packet each, alone and with replies written back.
    fn host_reads(&self, report: &mut Report) -> Done {
        let slots = self.extent.pick(1 << 18, 1 << 6);
        let from = HugeMemory::new(&self.card, slots * SLOT_BYTES as usize)?;
        let to = HugeMemory::new(&self.card, slots * 256)?;
        report.fact("host_pages", json!(from.kind().name()))?;
        let mut stream = self.card.stream()?;
        for (item_bytes, stride, random) in [
            (96, SLOT_BYTES, true),
            (128, SLOT_BYTES, true),
            (64, SLOT_BYTES, true),
            (32, SLOT_BYTES, true),
            (96, 96, false),
            (128, 128, false),
        ] {
            for to_stride in [0, 128] {
                if !self.extent.goes_on() {
                    return Ok(());
                }
                let shape = Shape { item_bytes, stride, random, to_stride };
                let to = (to_stride > 0).then(|| (&to).into());
                let rate = self.read_rate(&mut *stream, (&from).into(), to, shape)?;
                report.row(
                    "host_reads",
                    json!({ "item_bytes": item_bytes, "random": random, "writes": to_stride > 0,
                            "reads_per_s": rate, "gb_per_s": rate * f64::from(item_bytes) / 1e9 }),
                )?;
            }
        }
        Ok(())
    }

    /// Writes to the host's memory by the GPU, of descriptors or replies one behind the other; what
    /// is written comes from the GPU's own memory.
    fn host_writes(&self, report: &mut Report) -> Done {
        let to = HugeMemory::new(&self.card, self.extent.pick(1 << 26, 1 << 14))?;
        let from = CardMemory::new(&self.card, self.extent.pick(1 << 24, 1 << 14))?;
        let mut stream = self.card.stream()?;
        for item_bytes in [32, 64, 96, 128] {
            if !self.extent.goes_on() {
                return Ok(());
            }
            let shape = Shape { item_bytes, stride: 128, random: false, to_stride: item_bytes };
            let to = Some((&to).into());
            let rate = self.read_rate(&mut *stream, (&from).into(), to, shape)?;
            report.row(
                "host_writes",
                json!({ "item_bytes": item_bytes, "writes_per_s": rate,
                        "gb_per_s": rate * f64::from(item_bytes) / 1e9 }),
            )?;
        }
        Ok(())
    }

    /// Items read a second.
    fn read_rate(
        &self,
        stream: &mut dyn Stream,
        from: Span,
        to: Option<Span>,
        shape: Shape,
    ) -> Result<f64, CardError> {
        let lanes = shape.item_bytes.div_ceil(16).next_power_of_two();
        let sm = self.card.facts().multiprocessors.max(1);
        let threads = self.extent.pick(sm.saturating_mul(THREADS_PER_SM), 512);
        let count = |span: Span, stride: u32| {
            u32::try_from(span.bytes / stride.max(1) as usize).unwrap_or(u32::MAX).max(1)
        };
        let mut items = count(from, shape.stride);
        if let Some(to) = to {
            items = items.min(count(to, shape.to_stride));
        }
        if shape.stride < shape.item_bytes
            || from.bytes < shape.item_bytes as usize
            || !shape.stride.is_multiple_of(16)
            || !shape.to_stride.is_multiple_of(16)
            || to.is_some_and(|to| to.bytes < 128 || shape.to_stride < shape.item_bytes)
        {
            return Err(CardError::Refused { call: "read", why: "a wrong shape".to_owned() });
        }
        let mut params = MicroReadParams {
            from: from.at,
            to: to.map_or(DevAddr(0), |to| to.at),
            sum: self.sum.at(),
            items,
            item_bytes: shape.item_bytes,
            stride: shape.stride,
            to_stride: shape.to_stride,
            lanes,
            groups: threads / lanes,
            rounds: ROUNDS,
            seed: 1,
            random: u32::from(shape.random),
            reserved: 0,
        };
        let blocks = threads.div_ceil(Kernel::MicroRead.facts().threads);
        let mut once = |params: &MicroReadParams| {
            let begun = Instant::now();
            // SAFETY: the kernel's own structure; `items` items of `item_bytes` lie in both spans,
            // which are multiples of 16 apart; both outlive the work, which ends here.
            unsafe { stream.launch(Kernel::MicroRead, blocks, std::ptr::from_ref(params).cast()) }?;
            wait(stream)?;
            Ok::<_, CardError>(begun.elapsed())
        };
        let (at_least, most) = (self.extent.at_least(), 1 << 20);
        while once(&params)? < at_least && params.rounds < most {
            params.rounds *= 2;
        }
        let mut rates = Vec::new();
        for seed in 0..self.extent.runs() {
            params.seed = u32::try_from(seed).unwrap_or(0).wrapping_mul(0x9e37_79b9);
            let reads = f64::from(params.groups) * f64::from(params.rounds);
            rates.push(reads / once(&params)?.as_secs_f64());
        }
        Ok(median(&mut rates))
    }

    /// Copies between host and GPU by the copy engines, one way and both ways at once.
    fn copies(&self, report: &mut Report) -> Done {
        // Work that one stream takes in before the host waits: below any driver's queue.
        let depth = self.extent.pick(256, 16);
        for kilobytes in [64_usize, 256, 1024, 16384] {
            let bytes = self.extent.pick(kilobytes << 10, kilobytes << 4);
            let (up, down) =
                (HostMemory::mapped(&self.card, bytes)?, HostMemory::mapped(&self.card, bytes)?);
            let (mine, yours) =
                (CardMemory::new(&self.card, bytes)?, CardMemory::new(&self.card, bytes)?);
            let to_card = (mine.at(), up.at());
            let to_host = (down.at(), yours.at());
            for (way, pairs) in [
                ("to the GPU", vec![to_card]),
                ("to the host", vec![to_host]),
                ("both", vec![to_card, to_host]),
            ] {
                if !self.extent.goes_on() {
                    return Ok(());
                }
                let mut streams = Vec::new();
                for _ in &pairs {
                    streams.push(self.card.stream()?);
                }
                let mut once = || {
                    let (begun, mut copies) = (Instant::now(), 0_u32);
                    while copies == 0 || begun.elapsed() < self.extent.at_least() {
                        for _ in 0..depth {
                            for (stream, (to, from)) in streams.iter_mut().zip(&pairs) {
                                // SAFETY: so many bytes of mapped host memory and of the GPU's
                                // own; they outlive the copies, which end below.
                                unsafe { stream.copy(*to, *from, bytes) }?;
                            }
                        }
                        copies += depth;
                        for stream in &mut streams {
                            wait(&mut **stream)?;
                        }
                    }
                    Ok::<_, CardError>(
                        f64::from(copies) * bytes as f64 / begun.elapsed().as_secs_f64(),
                    )
                };
                let mut rates = Vec::new();
                for _ in 0..self.extent.runs() {
                    rates.push(once()?);
                }
                report.row(
                    "copies",
                    json!({ "kilobytes": bytes >> 10, "way": way,
                            "gb_per_s_each_way": median(&mut rates) / 1e9 }),
                )?;
            }
        }
        Ok(())
    }

    /// From the host to a kernel that stays, and back: a word in host memory each way.
    fn doorbell(&self, report: &mut Report) -> Done {
        let rounds = self.extent.pick(20_000, 200);
        for pause_ns in [0, 100] {
            let words = HostMemory::mapped(&self.card, 128)?;
            let params = MicroPingParams {
                bell: words.at(),
                answer: words.at().plus(64),
                answers: rounds,
                patience: 5_000,
                pause_ns,
                reserved: 0,
            };
            let mut stream = self.card.stream()?;
            // SAFETY: the kernel's own structure; the words outlive the work, which ends below, at
            // the latest when its time limit does.
            unsafe { stream.launch(Kernel::MicroPing, 1, (&raw const params).cast()) }?;
            // SAFETY: a word of zeroed memory that only atomics touch.
            let bell = unsafe { words.start().cast::<AtomicU32>().as_ref() };
            // SAFETY: inside the memory.
            let answer = unsafe { words.start().add(64) }.cast::<AtomicU32>();
            // SAFETY: as for the bell.
            let answer = unsafe { answer.as_ref() };
            let mut times = Vec::new();
            let mut answered = true;
            for n in 1..=rounds {
                let begun = Instant::now();
                bell.store(n, Ordering::Release);
                while answer.load(Ordering::Acquire) != n && answered {
                    std::hint::spin_loop();
                    answered = begun.elapsed() < WAIT_MAX;
                }
                times.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            wait(&mut *stream)?;
            if !answered {
                return Err("the kernel does not answer its doorbell".into());
            }
            times.sort_by(f64::total_cmp);
            report.row(
                "doorbell",
                json!({ "pause_ns": pause_ns, "rounds": rounds, "us_p50": percentile(&times, 0.5),
                        "us_p99": percentile(&times, 0.99) }),
            )?;
        }
        Ok(())
    }

    /// Whether calls of the driver wait for a kernel that runs: what must not be called beside a
    /// kernel that stays takes as long here as that kernel.
    fn beside_a_kernel_that_stays(&self, report: &mut Report) -> Done {
        let patience = self.extent.pick(500, 50);
        let words = HostMemory::mapped(&self.card, 128)?;
        let params = MicroPingParams {
            bell: words.at(),
            answer: words.at().plus(64),
            answers: 1,
            patience,
            pause_ns: 100,
            reserved: 0,
        };
        type Call<'a> = &'a dyn Fn() -> Result<Option<CardMemory>, CardError>;
        let calls: [(&str, Call<'_>); 4] = [
            ("take the GPU's memory", &|| CardMemory::new(&self.card, 1 << 20).map(Some)),
            ("take and give back", &|| CardMemory::new(&self.card, 1 << 20).map(|_| None)),
            ("map and unmap", &|| HostMemory::mapped(&self.card, 1 << 20).map(|_| None)),
            ("make and end a stream", &|| self.card.stream().map(|_| None)),
        ];
        for (what, call) in calls {
            let mut stream = self.card.stream()?;
            // SAFETY: the kernel's own structure; the words outlive the work, which ends below.
            unsafe { stream.launch(Kernel::MicroPing, 1, (&raw const params).cast()) }?;
            let begun = Instant::now();
            let taken = call()?;
            let took = begun.elapsed();
            wait(&mut *stream)?;
            drop(taken);
            report.row(
                "beside_a_kernel",
                json!({ "call": what, "kernel_ms": patience, "took_ms": took.as_secs_f64() * 1e3,
                        "waits": took >= Duration::from_millis(u64::from(patience)) * 9 / 10 }),
            )?;
        }
        Ok(())
    }

    /// What it costs to start an empty kernel: the processor's time, and until its end is seen.
    fn launches(&self, report: &mut Report) -> Done {
        for graph in [false, true] {
            let mut starter = self.starter(graph)?;
            let (mut enqueue, mut whole) = (Vec::new(), Vec::new());
            // Few enough to fit in any queue.
            let (series, few) = (self.extent.pick(200, 4), 32_u32);
            for _ in 0..series {
                let begun = Instant::now();
                for _ in 0..few {
                    starter.start()?;
                }
                enqueue.push(begun.elapsed().as_secs_f64() * 1e6 / f64::from(few));
                wait(&mut *starter.stream)?;
                let begun = Instant::now();
                starter.start()?;
                wait(&mut *starter.stream)?;
                whole.push(begun.elapsed().as_secs_f64() * 1e6);
            }
            whole.sort_by(f64::total_cmp);
            report.row(
                "launches",
                json!({ "how": if graph { "graph" } else { "launch" },
                        "enqueue_us": median(&mut enqueue), "launch_and_poll_us": percentile(&whole, 0.5),
                        "launch_and_poll_us_p99": percentile(&whole, 0.99) }),
            )?;
            for threads in [1_usize, 2, 4, 8] {
                let rate = self.launch_rate(graph, threads)?;
                report.row(
                    "launch_rates",
                    json!({ "how": if graph { "graph" } else { "launch" }, "threads": threads,
                            "launches_per_s": rate }),
                )?;
            }
        }
        Ok(())
    }

    /// Empty kernels a second that so many threads start, each on a stream of its own.
    fn launch_rate(&self, graph: bool, threads: usize) -> Result<f64, CardError> {
        let starters = (0..threads).map(|_| self.starter(graph)).collect::<Result<Vec<_>, _>>()?;
        let (at_least, begun) = (self.extent.at_least(), Instant::now());
        let started = thread::scope(|scope| {
            let works: Vec<_> = starters
                .into_iter()
                .map(|mut starter| {
                    scope.spawn(move || {
                        let mut started = 0_u32;
                        while started == 0 || begun.elapsed() < at_least {
                            for _ in 0..32 {
                                starter.start()?;
                            }
                            started += 32;
                            wait(&mut *starter.stream)?;
                        }
                        Ok::<_, CardError>(started)
                    })
                })
                .collect();
            let mut all = 0.0;
            for work in works {
                let died =
                    |_| CardError::Refused { call: "launch", why: "a thread died".to_owned() };
                all += f64::from(work.join().map_err(died)??);
            }
            Ok::<_, CardError>(all)
        })?;
        Ok(started / begun.elapsed().as_secs_f64())
    }

    fn starter(&self, graph: bool) -> Result<Starter, CardError> {
        let mut stream = self.card.stream()?;
        let runs = Arc::new(CardMemory::new(&self.card, 4)?);
        let params = MicroEmptyParams { runs: runs.at() };
        let recorded = if graph {
            // SAFETY: the kernel's own structure, over memory that goes after the stream.
            Some(unsafe { stream.record(Kernel::MicroEmpty, 1, (&raw const params).cast()) }?)
        } else {
            None
        };
        Ok(Starter { stream, recorded, params, _runs: runs })
    }
}

/// Starts empty kernels.
struct Starter {
    // Before the memory that its kernels use: it waits for them.
    stream: Box<dyn Stream>,
    recorded: Option<Recorded>,
    params: MicroEmptyParams,
    _runs: Arc<CardMemory>,
}

impl Starter {
    fn start(&mut self) -> Result<(), CardError> {
        match self.recorded {
            Some(recorded) => self.stream.replay(recorded),
            None => {
                let params = (&raw const self.params).cast();
                // SAFETY: as for `record`.
                unsafe { self.stream.launch(Kernel::MicroEmpty, 1, params) }
            }
        }
    }
}

/// Waits for a stream's work. Work that does not end would go on with memory that is given back, so
/// the process ends in its place.
fn wait(stream: &mut dyn Stream) -> Result<(), CardError> {
    let begun = Instant::now();
    while !stream.is_idle()? {
        if begun.elapsed() > WAIT_MAX {
            tell(format_args!("a kernel has not ended after {} s", WAIT_MAX.as_secs()));
            std::process::abort();
        }
        std::hint::spin_loop();
    }
    Ok(())
}
