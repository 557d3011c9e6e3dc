//! Answers, and notes how long each request was inside.
//!
//! In: a filled store, one pair of queues. Out: replies; how long requests were inside, from the
//! receive burst that took them in to the transmit burst that took their replies, and what the server's thread
//! had of a processor, on demand. Works as a thread ([`beside`]) or as a process ([`Process`], which runs [`Cli`]).
//! Like a worker on a NIC it never sleeps, but in mode `sleeping`. Fails when a port cannot be had.

use super::SLOTS;
use super::asked::KeyMix;
use super::mode::Mode;
use super::rounds::Answering;
use crate::study::bench::{Bench, Manner};
use crate::study::paced::histogram;
use clap::Parser;
use dataplane::stages::batch::BatchPolicy;
use driver_shim::port::NIC_IDLE_MAX;
use driver_shim::ports::memory::linked;
use driver_shim::{Burst, Pages, PortInfo, QueuePair, Region, RxQueue, TxQueue};
use hdrhistogram::Histogram;
use nix::sys::prctl::set_timerslack;
use nix::unistd::gettid;
use serde_json::{Value, json};
use std::error::Error;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// Requests whose memory accesses overlap in the CPU engine.
const GROUP: usize = 32;
/// Frames that wait in each direction between two threads.
const RING_DEPTH: usize = 1024;
/// Most requests in a batch.
const BATCH: usize = 512;

/// What is known of the requests inside.
#[derive(Debug)]
struct State {
    came_ns: Vec<u64>,
    begun: Instant,
    inside: Histogram<u64>,
    /// Where the kernel says for how long the server's thread has had a processor.
    times: Option<PathBuf>,
    /// When that was looked at last, in nanoseconds since `begun`, and what it said.
    looked: (u64, u64),
}

/// How long requests were inside.
#[derive(Debug, Clone)]
pub struct Inside(Arc<Mutex<State>>);

impl Inside {
    /// For frames of a region.
    ///
    /// # Errors
    /// No memory for the histogram.
    pub fn new(region: &Region) -> Result<Self, Box<dyn Error>> {
        let came_ns = vec![0; region.capacity()];
        let (times, looked) = (None, (0, 0));
        let state = State { came_ns, begun: Instant::now(), inside: histogram()?, times, looked };
        Ok(Self(Arc::new(Mutex::new(state))))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same queues, watched.
    fn watch(&self, QueuePair { rx, tx }: QueuePair) -> QueuePair {
        QueuePair {
            rx: Box::new(WatchedRx { rx, inside: self.clone() }),
            tx: Box::new(WatchedTx { tx, inside: self.clone() }),
        }
    }

    /// What came out since this was asked last.
    fn take(&self) -> Value {
        let mut state = self.state();
        let us = |q| state.inside.value_at_quantile(q) as f64 / 1e3;
        let mut value = json!({ "requests": state.inside.len(), "p50_us": us(0.5), "p95_us": us(0.95),
            "p99_us": us(0.99), "max_us": us(1.0) });
        state.inside.reset();
        if let (Some(share), Some(fields)) = (state.cpu_share(), value.as_object_mut()) {
            fields.insert("cpu_percent".to_owned(), json!(100.0 * share));
        }
        value
    }
}

impl Answering for Inside {
    fn inside(&mut self) -> Result<Value, Box<dyn Error>> {
        Ok(self.take())
    }
}

impl State {
    fn now_ns(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// The part of the time since this was asked last for which the server's thread had a processor.
    fn cpu_share(&mut self) -> Option<f64> {
        let times = std::fs::read_to_string(self.times.as_ref()?).ok()?;
        let now = (self.now_ns(), times.split_whitespace().next()?.parse().ok()?);
        let before = std::mem::replace(&mut self.looked, now);
        Some((now.1 - before.1) as f64 / (now.0 - before.0) as f64)
    }
}

struct WatchedRx {
    rx: Box<dyn RxQueue>,
    inside: Inside,
}

impl RxQueue for WatchedRx {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let before = into.len();
        let n = self.rx.burst(into);
        if n > 0 {
            let mut state = self.inside.state();
            let now = state.now_ns();
            for frame in into.get(before..).unwrap_or_default() {
                if let Some(came) = state.came_ns.get_mut(frame.slot() as usize) {
                    *came = now;
                }
            }
        }
        n
    }

    fn idle(&mut self, at_most: Duration) {
        self.rx.idle(at_most);
    }

    fn idle_max(&self) -> Duration {
        NIC_IDLE_MAX
    }

    fn wakes(&self) -> bool {
        self.rx.wakes()
    }
}

struct WatchedTx {
    tx: Box<dyn TxQueue>,
    inside: Inside,
}

impl TxQueue for WatchedTx {
    fn burst(&mut self, from: &mut Burst) -> usize {
        let slots: Vec<u32> = from.iter().map(driver_shim::Frame::slot).collect();
        let n = self.tx.burst(from);
        let mut guard = self.inside.state();
        let state = &mut *guard;
        let now = state.now_ns();
        for slot in slots.iter().take(n) {
            let came = state.came_ns.get(*slot as usize).copied().unwrap_or(now);
            state.inside.saturating_record(now.saturating_sub(came));
        }
        n
    }
}

/// Answers until stopped.
fn serve(
    bench: &Bench,
    info: &PortInfo,
    queues: QueuePair,
    region: &Region,
    mode: Mode,
    inside: &Inside,
    stop: &AtomicBool,
) -> Result<(), String> {
    if mode == Mode::Sleeping {
        // As gnomon has it.
        set_timerslack(1).map_err(|e| e.to_string())?;
    }
    inside.state().times = Some(format!("/proc/self/task/{}/schedstat", gettid()).into());
    let info = PortInfo { busy_poll: mode != Mode::Sleeping, ..info.clone() };
    let batch = BatchPolicy { size: BATCH, mode: mode.batches(), ..BatchPolicy::default() };
    let manner = Manner { group: GROUP, batch, offload: None };
    let worker = bench.worker(&info, queues, region, manner).map_err(|e| e.to_string())?;
    let counters = worker.counters();
    worker.run(stop);
    if counters.ledger().balances() { Ok(()) } else { Err("frames are unaccounted for".to_owned()) }
}

/// Answers in a thread, at one end of a pair of rings, while `ask` works with the other.
///
/// # Errors
/// Not enough memory, or `ask`'s.
pub fn beside<'r>(
    bench: &Bench,
    mode: Mode,
    ask: impl FnOnce(QueuePair, &Region, &mut Inside) -> Result<(), Box<dyn Error>> + 'r,
) -> Result<(), Box<dyn Error>> {
    let region = Region::new(SLOTS, Pages::Prefer)?;
    let (mut here, mut there) = linked(1, RING_DEPTH);
    let mut inside = Inside::new(&region)?;
    let queues = inside.watch(here.queues.pop().ok_or("no queue")?);
    let watched = inside.clone();
    let client = there.queues.pop().ok_or("no queue")?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let worker =
            scope.spawn(|| serve(bench, &here.info, queues, &region, mode, &watched, &stop));
        let asked = ask(client, &region, &mut inside);
        stop.store(true, Ordering::Relaxed);
        let served = worker.join().unwrap_or_else(|_| Err("the server died".to_owned()));
        asked?;
        Ok(served?)
    })
}

/// The server as a process: says `ready`, then how long requests were inside for each line that it
/// reads, until there are no more.
#[derive(Debug, Parser)]
pub struct Cli {
    /// The memif's socket.
    #[arg(long)]
    socket: std::path::PathBuf,
    /// Items in the store, of each length.
    #[arg(long)]
    items: u64,
    /// Lengths of keys.
    #[arg(long)]
    key_mix: KeyMix,
    /// How batches are made.
    #[arg(long, value_enum)]
    mode: Mode,
}

#[cfg(not(feature = "dpdk"))]
impl Cli {
    /// Cannot be done.
    ///
    /// # Errors
    /// Always.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        Err("built without DPDK".into())
    }
}

#[cfg(feature = "dpdk")]
pub use process::Process;

#[cfg(feature = "dpdk")]
mod process {
    use super::super::{SHAPE, memif};
    use super::{Answering, Cli, Inside, KeyMix, Mode, serve};
    use crate::output::say;
    use crate::study::bench::{Bench, Config};
    use crate::study::frame::Common;
    use clap::ValueEnum;
    use serde_json::Value;
    use std::error::Error;
    use std::io::{BufRead, BufReader, Write};
    use std::path::{Path, PathBuf};
    use std::process::{Child, ChildStdin, Command, Stdio};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, channel};
    use std::thread;
    use std::time::Duration;

    /// Longest wait for a word of the server: it fills a store first.
    const WORD_MAX: Duration = Duration::from_secs(300);

    impl Cli {
        /// Serves.
        ///
        /// # Errors
        /// The port cannot be had.
        pub fn run(&self) -> Result<(), Box<dyn Error>> {
            let config = Config { items: self.items, shape: SHAPE, seed: 0 };
            let bench = Bench::with_shapes(config, &self.key_mix.shapes())?;
            let dpdk = memif::Dpdk::start()?;
            let mut port = dpdk.server(&self.socket)?;
            let inside = Inside::new(dpdk.region())?;
            let queues = inside.watch(port.queues.pop().ok_or("the port has no queue")?);
            let stop = AtomicBool::new(false);
            say("ready")?;
            thread::scope(|scope| {
                let (info, region) = (&port.info, dpdk.region());
                let worker =
                    scope.spawn(|| serve(&bench, info, queues, region, self.mode, &inside, &stop));
                for line in std::io::stdin().lock().lines() {
                    if line.is_err() || worker.is_finished() || say(inside.take()).is_err() {
                        break;
                    }
                }
                stop.store(true, Ordering::Relaxed);
                worker.join().unwrap_or_else(|_| Err("the server died".to_owned()))
            })?;
            Ok(())
        }
    }

    /// A server as another process. Ended when dropped.
    #[derive(Debug)]
    pub struct Process {
        child: Child,
        to: Option<ChildStdin>,
        said: Receiver<String>,
        socket: PathBuf,
    }

    impl Process {
        /// Starts this program again, as the server.
        ///
        /// # Errors
        /// It does not come up.
        pub fn start(
            common: &Common,
            items: u64,
            mix: &KeyMix,
            mode: Mode,
        ) -> Result<Self, Box<dyn Error>> {
            let name = mode.to_possible_value().ok_or("a mode without a name")?;
            let name = name.get_name();
            let socket =
                std::env::temp_dir().join(format!("gnomon-study-{}-{name}", std::process::id()));
            let _ = std::fs::remove_file(&socket);
            let mut child = Command::new(std::env::current_exe()?)
                .args(["latency-server", "--items", &items.to_string(), "--mode", name])
                .args(["--key-mix", &mix.to_string()])
                .arg("--socket")
                .arg(&socket)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(if common.quick { Stdio::null() } else { Stdio::inherit() })
                .spawn()?;
            let to = child.stdin.take();
            let from = child.stdout.take().ok_or("no pipe")?;
            let (say, said) = channel();
            thread::spawn(move || {
                for line in BufReader::new(from).lines().map_while(Result::ok) {
                    if say.send(line).is_err() {
                        break;
                    }
                }
            });
            let mut server = Self { child, to, said, socket };
            // DPDK may say something first.
            while server.word()? != "ready" {}
            Ok(server)
        }

        /// The memif's socket.
        pub fn socket(&self) -> &Path {
            &self.socket
        }

        fn word(&mut self) -> Result<String, Box<dyn Error>> {
            self.said.recv_timeout(WORD_MAX).map_err(|_| "the server says nothing".into())
        }
    }

    impl Answering for Process {
        fn inside(&mut self) -> Result<Value, Box<dyn Error>> {
            let to = self.to.as_mut().ok_or("no pipe")?;
            to.write_all(b"\n")?;
            to.flush()?;
            Ok(serde_json::from_str(&self.word()?)?)
        }
    }

    impl Drop for Process {
        fn drop(&mut self) {
            // Without input it ends by itself.
            self.to = None;
            for _ in 0..200 {
                if !matches!(self.child.try_wait(), Ok(None)) {
                    break;
                }
                thread::sleep(Duration::from_millis(10));
            }
            let _ = self.child.kill();
            let _ = self.child.wait();
            let _ = std::fs::remove_file(&self.socket);
        }
    }
}
