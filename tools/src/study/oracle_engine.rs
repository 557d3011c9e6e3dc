//! An oracle engine, which has every answer beforehand: what is left to a worker beside a GPU.
//!
//! In: request frames in the order in which a port gives them out, and the store that they ask. Out:
//! an engine that gives each batch back some time after it came, as a GPU does, or at once, with
//! descriptors, hints and, if wanted, heads of replies or whole ones, and says what CPU time copying them took, which is no
//! part of a worker's work. Nothing fails: a request out of turn gets another's
//! hints, which the worker finds out and counts.

use super::bench::Bench;
use super::thread_cpu;
use crate::report::named;
use dataplane::stages::engine::cpu_engine::{keys, read};
use dataplane::stages::engine::dispatch::is_look_up;
use gpu::{
    Batch, Column, Engine, Entry, EntryFlags, Hint, Outcome, ReplyHead, ReqDesc, WholeReply,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// From giving a batch away to its end: about what a GPU takes for a small one.
pub const AS_A_CARD: Duration = Duration::from_micros(20);
/// Batches in flight.
const PLACES: usize = 4;

named! {
    /// What is reported.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
    pub enum Hints {
        /// Where items are.
        Hints = "hints",
        /// And how replies begin.
        WithHeads = "hints and heads",
        /// The replies themselves, of up to 240 bytes.
        WholeReplies = "whole replies",
    }
}

/// What is known of every request, in their order.
pub struct Foretold {
    descs: Vec<ReqDesc>,
    /// Empty where none are made.
    heads: Vec<ReplyHead>,
    /// Likewise.
    replies: Vec<WholeReply>,
}

base::opaque!(Foretold, |it| requests: it.descs.len());

impl Foretold {
    /// Reads the requests and looks their keys up. Of those that are no look-ups there is nothing to
    /// show: workers send none of them.
    pub fn new(bench: &Bench, requests: &[Vec<u8>], hints: Hints) -> Self {
        let flags = EntryFlags::IP_GOOD.with(EntryFlags::UDP_GOOD);
        let entry = Entry { l3: 14, l4: 34, flags, ..Entry::default() };
        let (store, shape) = (bench.store(), bench.config().shape);
        let (mut descs, mut heads, mut replies) = (Vec::new(), Vec::new(), Vec::new());
        for frame in requests.iter().filter(|frame| is_look_up(frame, entry.l4)) {
            let mut desc = read(frame, &entry);
            let found: Vec<_> =
                keys(&desc, frame).map(|key| store.propose(store.hash(key))).collect();
            for (key, found) in desc.keys.iter_mut().zip(&found) {
                (key.hint, key.location) = match found {
                    Some(location) => (Hint::HIT, location.0),
                    None => (Hint::MISS, 0),
                };
            }
            let hit = found.first().is_some_and(Option::is_some) && found.len() == 1;
            let key = keys(&desc, frame).next().filter(|_| hit);
            match hints {
                Hints::Hints => {}
                Hints::WithHeads => {
                    heads.push(key.and_then(|key| shape.head(key)).unwrap_or_default());
                }
                Hints::WholeReplies => {
                    replies.push(key.and_then(|key| shape.whole(key)).unwrap_or_default());
                }
            }
            descs.push(desc);
        }
        Self { descs, heads, replies }
    }

    /// Whether there is anything to show.
    pub fn has_look_ups(&self) -> bool {
        !self.descs.is_empty()
    }

    /// An engine for queue `queue` of `queues`, which begins as the looping port does. A batch `takes`
    /// so long. And nanoseconds of CPU time that it has taken of its thread's.
    pub fn engine(
        self: &Arc<Self>,
        queue: usize,
        queues: usize,
        takes: Duration,
    ) -> (Box<dyn Engine>, Arc<AtomicU64>) {
        let next = queue * self.descs.len() / queues.max(1);
        let spent_ns = Arc::<AtomicU64>::default();
        let engine = Foreteller {
            of: Arc::clone(self),
            next,
            takes,
            in_flight: VecDeque::with_capacity(PLACES),
            spent_ns: Arc::clone(&spent_ns),
            clock: clock_time(),
        };
        (Box::new(engine), spent_ns)
    }
}

struct Foreteller {
    of: Arc<Foretold>,
    /// The next request's place in `of`.
    next: usize,
    takes: Duration,
    in_flight: VecDeque<(Instant, Box<Batch>)>,
    spent_ns: Arc<AtomicU64>,
    /// What reading the clock takes.
    clock: Duration,
}

impl Engine for Foreteller {
    fn name(&self) -> &'static str {
        "foretold"
    }

    fn new_batch(&mut self, id: u32, capacity: usize) -> Box<Batch> {
        let heads = Column::new(if self.of.heads.is_empty() { 0 } else { capacity });
        let replies = Column::new(if self.of.replies.is_empty() { 0 } else { capacity });
        Box::new(Batch { heads, replies, ..Batch::new(id, capacity) })
    }

    fn submit(&mut self, mut batch: Box<Batch>) -> Result<(), Box<Batch>> {
        if self.in_flight.len() >= PLACES {
            return Err(batch);
        }
        let begun = thread_cpu();
        for _ in 0..batch.entries.len() {
            // The capacity is that of the entries.
            let _ = batch.descs.push(self.of.descs.get(self.next).copied().unwrap_or_default());
            if let Some(head) = self.of.heads.get(self.next) {
                let _ = batch.heads.push(*head);
            }
            if let Some(reply) = self.of.replies.get(self.next) {
                let n = batch.replies.len();
                batch.replies.set_len(n + 1);
                if let Some(to) = batch.replies.get_mut(n) {
                    write(to, reply);
                }
            }
            self.next = if self.next + 1 < self.of.descs.len() { self.next + 1 } else { 0 };
        }
        // Of the two readings one half each is not between them.
        let spent = thread_cpu().saturating_sub(begun) + self.clock;
        self.spent_ns.fetch_add(u64::try_from(spent.as_nanos()).unwrap_or(0), Ordering::Relaxed);
        self.in_flight.push_back((Instant::now(), batch));
        Ok(())
    }

    fn poll(&mut self) -> Option<(Box<Batch>, Outcome)> {
        self.in_flight.front().filter(|(came, _)| came.elapsed() >= self.takes)?;
        self.in_flight.pop_front().map(|(_, batch)| (batch, Outcome::Replica))
    }

    fn in_flight(&self) -> usize {
        self.in_flight.len()
    }
}

/// What reading a thread's clock takes: about as much as copying some requests.
fn clock_time() -> Duration {
    const READINGS: u32 = 1000;
    let begun = thread_cpu();
    (1..READINGS).for_each(|_| {
        thread_cpu();
    });
    (thread_cpu() - begun) / READINGS
}

/// No more of a reply than a kernel writes (`store_replies` in `gpu/kernels/whole.h`): what a GPU leaves alone takes
/// no space in a worker's cache either.
fn write(to: &mut WholeReply, reply: &WholeReply) {
    to.facts = reply.facts;
    let len = usize::from(reply.facts.text_len).next_multiple_of(16);
    if let (Some(to_text), Some(text), true) =
        (to.text.get_mut(..len), reply.text.get(..len), len > 0)
    {
        to.head = reply.head;
        to_text.copy_from_slice(text);
    }
}
