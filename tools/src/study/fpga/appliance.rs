//! An instance of the FPGA appliance, cycle by cycle: network input, controller, network output.
//!
//! In: requests, and when they arrive. Out: counters, as the paper's were read (5.2.2). Three state machines run side by
//! side with a FIFO between each two (4.2.2, 4.2.3): the offload engine takes a frame in, the controller works on one
//! request at a time (4.3.3), the offload engine sends a reply. Each machine counts its cycles down; the clock advances by
//! the least that any has left, and by single cycles while a packet may not fit into its FIFO. Nothing fails.

use super::cycles::{self, Request};
use super::fifo::{Fifo, Header};
use super::memory::{self, Lookup, Memory, Stored};
use crate::report::named;
use rand::SeedableRng;
use rand_distr::{Distribution, Exp1};
use rand_xoshiro::Xoshiro256PlusPlus;

named! {
    /// The modules of figures 7 and 8, and the response generator.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Module {
        /// Offload engine and input packet parser.
        NetworkInput = "network_input",
        /// Packet decipher.
        Decipher = "decipher",
        /// Hash decoder.
        Hash = "hash",
        /// Hash read management.
        HashRead = "hash_read",
        /// Hash write management.
        HashWrite = "hash_write",
        /// Slab read management.
        SlabRead = "slab_read",
        /// Slab write management.
        SlabWrite = "slab_write",
        /// Response packet generator.
        Response = "response",
        /// Output packet parser and offload engine.
        NetworkOutput = "network_output",
    }
}

/// When requests arrive.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Load {
    /// Each when the reply to the one before has left.
    OneAtATime,
    /// By Poisson, this many cycles apart on average, and no closer than 1 GbE allows; 0: as close as that.
    Every(f64),
}

/// What a run counted.
#[derive(Debug, Clone, Default)]
pub struct Counters {
    /// Cycles from the first byte in to the last one out.
    pub cycles: u64,
    /// Cycles until the last request was there.
    pub offered_cycles: u64,
    /// Packets that arrived.
    pub offered: u64,
    /// Packets dropped by the input FIFO.
    pub dropped: u64,
    /// GETs that found nothing.
    pub misses: u64,
    /// Cycles from a request's first byte in to its reply's last one out, in the order of the replies.
    pub latencies: Vec<u64>,
    /// Cycles of each module.
    spent: [u64; Module::ALL.len()],
}

impl Counters {
    /// Cycles of a module.
    pub fn spent(&self, module: Module) -> u64 {
        self.spent[module as usize]
    }

    /// Replies.
    pub fn served(&self) -> u64 {
        self.latencies.len() as u64
    }

    /// Replies per second.
    pub fn rate(&self) -> f64 {
        self.served() as f64 / self.cycles.max(1) as f64 * cycles::CLOCK_HZ
    }
}

/// Cycles, rounded.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time, from 0 up")]
fn whole(cycles: f64) -> u64 {
    cycles.round() as u64
}

/// A request under way.
#[derive(Debug, Clone, Copy)]
struct Pending {
    request: Request,
    begun: u64,
    hit: bool,
}

/// What the controller does, and the cycles until it is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Removes what is left of a dropped packet (4.3.1).
    Discard,
    /// Reads a packet from the input FIFO.
    Decipher,
    Hash,
    HashRead,
    SlabRead,
    HashChoose {
        from_slab: bool,
    },
    SlabWrite,
    HashCommit,
    /// A reply waits for room in the output FIFO.
    Blocked,
    Respond,
}

/// The controller at work.
#[derive(Debug, Clone, Copy)]
struct Work {
    pending: Pending,
    state: State,
    left: u64,
    /// Bytes of its packet that are still in the input FIFO.
    packet_left: u64,
}

/// An instance.
#[derive(Debug)]
pub struct Appliance {
    memory: Memory,
    input: Fifo<Pending>,
    output: Fifo<Pending>,
    /// A frame that arrives, and the cycles until it is there.
    receiving: Option<(Pending, u64)>,
    controller: Option<Work>,
    /// A reply that leaves, its bytes in the FIFO, and the cycles until it is gone.
    sending: Option<(Header<Pending>, u64)>,
    clock: u64,
    /// When the wire takes the next frame, in and out.
    wire_free: (u64, u64),
    counters: Counters,
}

impl Appliance {
    /// An idle instance with FIFOs of `fifo_bytes` in and out ("analogous", 4.2.3) over a memory that may hold items.
    pub fn new(memory: Memory, fifo_bytes: u64) -> Self {
        Self {
            memory,
            input: Fifo::new(fifo_bytes),
            output: Fifo::new(fifo_bytes),
            receiving: None,
            controller: None,
            sending: None,
            clock: 0,
            wire_free: (0, 0),
            counters: Counters::default(),
        }
    }

    /// Serves the requests until the last reply has left.
    pub fn run(mut self, requests: &[Request], load: Load, seed: u64) -> Counters {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let mut arrivals = requests.iter().copied().peekable();
        let mut due = 0;
        loop {
            self.start();
            let idle = self.controller.is_none() && self.sending.is_none();
            let may = self.receiving.is_none() && (load != Load::OneAtATime || idle);
            let at = self.wire_free.0.max(due);
            if may
                && at <= self.clock
                && let Some(request) = arrivals.next()
            {
                self.receive(request);
                if let Load::Every(mean) = load {
                    let gap: f64 = Exp1.sample(&mut rng);
                    due += whole(gap * mean);
                }
            }
            let waits = self.receiving.is_none() && may && arrivals.peek().is_some();
            let arrival = waits.then(|| at - self.clock);
            let Some(cycles) = self.horizon().into_iter().chain(arrival).min() else { break };
            self.pass(cycles);
        }
        self.counters
    }

    fn receive(&mut self, request: Request) {
        let pending = Pending { request, begun: self.clock, hit: false };
        self.receiving = Some((pending, cycles::network(request.packet_bytes())));
        self.counters.offered += 1;
    }

    /// Each machine that is idle and has something to do begins.
    fn start(&mut self) {
        if self.controller.is_none() {
            self.controller = self.input.pop().map(|Header { of, bytes, whole }| {
                let state = if whole { State::Decipher } else { State::Discard };
                Work { pending: of, state, left: cycles::parse(bytes), packet_left: bytes }
            });
        }
        if let Some(Work { pending, state: state @ State::Blocked, left, .. }) =
            &mut self.controller
        {
            let bytes = pending.request.reply_bytes(pending.hit);
            if self.output.room() >= bytes {
                self.output.write(bytes);
                (*state, *left) = (State::Respond, cycles::parse(bytes));
            }
        }
        if self.sending.is_none() && self.wire_free.1 <= self.clock {
            self.sending = self.output.pop().map(|reply| (reply, cycles::network(reply.bytes)));
        }
    }

    /// Cycles in which nothing begins or ends, if anything is under way.
    fn horizon(&self) -> Option<u64> {
        let receiving = self.receiving.map(|(pending, left)| {
            let may_overflow = self.input.room() < left.min(pending.request.packet_bytes());
            if may_overflow { 1 } else { left }
        });
        let working = self.controller.filter(|work| work.state != State::Blocked);
        let sending = self.sending.map(|(_, left)| left);
        // The gap behind a reply: the next one may wait for its end.
        let gap = self.wire_free.1.checked_sub(self.clock).filter(|left| *left > 0);
        [receiving, working.map(|work| work.left), sending, gap].into_iter().flatten().min()
    }

    /// Lets this many cycles pass.
    fn pass(&mut self, cycles: u64) {
        self.clock += cycles;
        if let Some((pending, left)) = self.receiving.take() {
            self.count(Module::NetworkInput, cycles);
            // The headers come first, and go elsewhere.
            let packet = pending.request.packet_bytes();
            let still = left - cycles;
            self.input.write(left.min(packet) - still.min(packet));
            if still > 0 {
                self.receiving = Some((pending, still));
            } else {
                self.wire_free.0 = self.clock + cycles::WIRE_GAP_CYCLES;
                self.counters.offered_cycles = self.clock;
                self.counters.dropped += u64::from(!self.input.close(pending));
            }
        }
        if let Some(work) = self.controller.take() {
            self.controller = self.work(work, cycles);
        }
        if let Some((reply, left)) = self.sending.take() {
            self.count(Module::NetworkOutput, cycles);
            if left > cycles {
                self.sending = Some((reply, left - cycles));
            } else {
                // A reply holds its bytes until the last one has left.
                self.output.read(reply.bytes);
                self.wire_free.1 = self.clock + cycles::WIRE_GAP_CYCLES;
                self.counters.latencies.push(self.clock - reply.of.begun);
                self.counters.cycles = self.clock;
            }
        }
    }

    fn count(&mut self, module: Module, cycles: u64) {
        self.counters.spent[module as usize] += cycles;
    }

    /// The controller's part of that; what it does afterwards, or nothing.
    fn work(&mut self, mut work: Work, cycles: u64) -> Option<Work> {
        if matches!(work.state, State::Decipher | State::Discard) {
            let bytes = work.packet_left.min(cycles * cycles::PARSER_BYTES);
            self.input.read(bytes);
            work.packet_left -= bytes;
        }
        let module = match work.state {
            State::Blocked => return Some(work),
            State::Discard | State::Decipher => Module::Decipher,
            State::Hash => Module::Hash,
            State::HashRead => Module::HashRead,
            State::SlabRead => Module::SlabRead,
            State::HashChoose { .. } | State::HashCommit => Module::HashWrite,
            State::SlabWrite => Module::SlabWrite,
            State::Respond => Module::Response,
        };
        self.count(module, cycles);
        work.left -= cycles;
        if work.left > 0 {
            return Some(work);
        }
        let Request { key, set, value_bytes } = work.pending.request;
        (work.state, work.left) = match work.state {
            State::Decipher => (State::Hash, cycles::hash(cycles::KEY_BYTES, cycles::HASH_STEPS)),
            State::Hash if set => {
                let Stored { from_bucket, from_slab } =
                    self.memory.set(key, memory::slab_of(value_bytes), self.clock);
                work.pending.hit = true;
                (State::HashChoose { from_slab }, cycles::hash_choose(from_bucket))
            }
            State::Hash => {
                let Lookup { entries, version } = self.memory.get(key);
                work.pending.hit = version.is_some();
                self.counters.misses += u64::from(version.is_none());
                (State::HashRead, cycles::hash_read(entries))
            }
            State::HashRead if work.pending.hit => {
                (State::SlabRead, cycles::slab_read(value_bytes))
            }
            State::HashChoose { from_slab } => {
                (State::SlabWrite, cycles::slab_write(value_bytes, from_slab))
            }
            State::SlabWrite => (State::HashCommit, cycles::hash_commit()),
            State::HashRead | State::SlabRead | State::HashCommit => (State::Blocked, 0),
            State::Discard | State::Respond | State::Blocked => {
                if work.state == State::Respond {
                    self.output.close(work.pending);
                }
                return None;
            }
        };
        Some(work)
    }
}
