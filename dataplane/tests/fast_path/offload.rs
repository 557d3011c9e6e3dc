//! The same with an offload that reports right locations, wrong ones and none, some time after.

use crate::random::{Random, corpus};
use crate::world::{Sent, Tuning, World, udp_of};
use crate::{CLIENT, datagram, packets, set};
use dataplane::stages::batch::{BatchMode, BatchPolicy};
use dataplane::stages::engine::cpu_engine::{keys, read};
use dataplane::stages::engine::dispatch::{Offloading, is_look_up};
use dataplane::stages::fast_path::FastPathMode;
use driver_shim::TxCaps;
use gpu::{
    Batch, Column, Engine, Entry, EntryFlags, Hint, Outcome, ReqDesc, RowFacts, Verb, Verdict,
    WholeReply,
};
use memcache::Dialects;
use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use store::{Session, Store, StoreConfig};
use wire::DropReason;
use wire::reply::turn_and_seal;

/// Batches in flight.
const PLACES: usize = 3;

/// What is wrong with the descriptors of an engine.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    KeyShort,
    KeyElsewhere,
    TextShort,
    TwoKeys,
    OtherVerb,
}

/// Reads what was sent, and says where keys are; or not, or elsewhere.
struct Reporter {
    sent: Sent,
    store: Arc<Store>,
    fault: Fault,
    /// Of every reader of the same requests the same.
    random: Random,
    /// Polls until the first comes out, and what has come of it.
    has: VecDeque<(usize, Outcome, Box<Batch>)>,
    /// Batches that are not lost, so far. The first of each `in_full` is compared in full, and described rightly.
    told: u32,
    in_full: u32,
    open: bool,
    /// By which it writes whole replies, if it does, and to whom: drawn when batches come back, whenever that is.
    whole: Option<(Session, Random)>,
}

impl Reporter {
    /// The reply to a request, of what the store has now; most of the time.
    fn reply(&mut self, entry: &Entry, desc: &ReqDesc) -> Option<WholeReply> {
        let (session, random) = self.whole.as_mut()?;
        let wanted = random.below(4) > 0;
        if !wanted || (desc.verdict, desc.verb, desc.n_keys) != (Verdict::READY, Verb::GET, 1) {
            return None;
        }
        let frame = &self.sent.lock().unwrap()[&entry.slot];
        let key = keys(desc, frame).next()?;
        let guard = session.pin();
        let item = guard.find(self.store.hash(key), key)?;
        let value = item.value().whole()?;
        let line = format!(" {} {}\r\n", item.flags(), value.len());
        let text = [b"VALUE ", key, line.as_bytes(), value, b"\r\nEND\r\n"].concat();
        let at = usize::from(entry.l4) + 8;
        let mut bytes = frame[..at + 2].to_vec();
        bytes.extend([0, 0, 0, 1, 0, 0]);
        let mut reply = WholeReply {
            facts: RowFacts {
                text_len: u16::try_from(text.len()).ok()?,
                value_len: u8::try_from(value.len()).ok()?,
                key_len: u8::try_from(key.len()).ok()?,
                item_class: u8::try_from(self.store.class_of(&item)).ok()?,
                ..RowFacts::default()
            },
            ..WholeReply::default()
        };
        reply.text.get_mut(..text.len())?.copy_from_slice(&text);
        bytes.extend(text);
        let ipv6 = entry.flags.has(EntryFlags::IPV6);
        turn_and_seal(&mut bytes, entry.l3, entry.l4, ipv6, TxCaps::default(), None);
        reply.facts.sum = !u16::from_be_bytes([bytes[at - 2], bytes[at - 1]]);
        bytes[at - 2..at].fill(0);
        reply.head.get_mut(..at + 8)?.copy_from_slice(&bytes[..at + 8]);
        Some(reply)
    }

    fn describe(&mut self, batch: &Batch, n: usize) -> ReqDesc {
        let entry = &batch.entries[n];
        let sent = self.sent.lock().unwrap();
        let frame = &sent[&entry.slot];
        let mut desc = read(frame, entry);
        let hashes: Vec<_> = keys(&desc, frame).map(|key| self.store.hash(key)).collect();
        for (key, hash) in desc.keys.iter_mut().zip(hashes) {
            let right = self.store.propose(hash).map(|at| at.0);
            (key.hint, key.location) = match (self.random.below(8), right) {
                (_, Some(right)) if self.fault != Fault::None => (Hint::HIT, right),
                (0, _) => (
                    Hint::HIT,
                    u32::from_le_bytes(self.random.next().to_le_bytes()[..4].try_into().unwrap()),
                ),
                // Some other item's, or none's.
                (1, Some(right)) => (Hint::HIT, right ^ (1 << self.random.below(12))),
                (2, _) => (Hint::UNKNOWN, 7),
                (3, _) => (Hint::MISS, 0),
                (_, Some(right)) => (Hint::HIT, right),
                (_, None) => (Hint::MISS, 0),
            };
        }
        let is_compared = self.told.is_multiple_of(self.in_full);
        let leaves = self.fault == Fault::None && self.random.below(30) == 0;
        if leaves && !is_compared && desc.verdict == Verdict::READY {
            // What it could have read.
            let ReqDesc { payload_off, payload_len, .. } = desc;
            desc =
                ReqDesc { payload_off, payload_len, verdict: Verdict::SLOW, ..ReqDesc::default() };
        }
        match self.fault {
            _ if is_compared => {}
            Fault::None => {}
            Fault::KeyShort => desc.keys[0].len = desc.keys[0].len.wrapping_sub(1),
            Fault::KeyElsewhere => desc.keys[0].off += 1,
            Fault::TextShort => desc.payload_len = desc.payload_len.wrapping_sub(1),
            Fault::TwoKeys => desc.n_keys = 2,
            Fault::OtherVerb => desc.verb = Verb::GETS,
        }
        desc
    }
}

impl Engine for Reporter {
    fn name(&self) -> &'static str {
        "reporter"
    }

    fn new_batch(&mut self, id: u32, capacity: usize) -> Box<Batch> {
        let replies = Column::new(if self.whole.is_some() { capacity } else { 0 });
        Box::new(Batch { replies, ..Batch::new(id, capacity) })
    }

    fn submit(&mut self, mut batch: Box<Batch>) -> Result<(), Box<Batch>> {
        if self.has.len() == PLACES || !self.open {
            return Err(batch);
        }
        let lost = self.fault == Fault::None && self.random.below(40) == 0;
        for n in 0..batch.entries.len() {
            let desc = self.describe(&batch, n);
            if !lost {
                batch.descs.push(desc).unwrap();
            }
        }
        self.told += u32::from(!lost);
        let outcome = if lost { Outcome::Lost } else { Outcome::Replica };
        self.has.push_back((self.random.below(4), outcome, batch));
        Ok(())
    }

    fn poll(&mut self) -> Option<(Box<Batch>, Outcome)> {
        let (polls, ..) = self.has.front_mut()?;
        if *polls > 0 {
            *polls -= 1;
            return None;
        }
        let (_, outcome, mut batch) = self.has.pop_front()?;
        if self.whole.is_some() && outcome == Outcome::Replica {
            for n in 0..batch.entries.len() {
                let (entry, desc) = (batch.entries[n], batch.descs[n]);
                batch.replies.push(self.reply(&entry, &desc).unwrap_or_default()).unwrap();
            }
        }
        Some((batch, outcome))
    }

    fn in_flight(&self) -> usize {
        self.has.len()
    }

    fn is_open(&self) -> bool {
        self.open
    }

    fn mark_faulty(&mut self) {
        self.open = false;
    }
}

/// How many requests are a batch, when one is shipped, and whether whole replies come back. Batches of few requests
/// fill in the middle of a burst.
type Batches = (usize, BatchMode, bool);

fn with_offload(
    fast_path: FastPathMode,
    caps: TxCaps,
    seed: u64,
    (size, mode, whole): Batches,
    fault: Fault,
) -> World {
    let batch = BatchPolicy { size, mode, in_flight_max: PLACES, ..BatchPolicy::default() };
    let config = StoreConfig { memory_bytes: 64 << 20, ..StoreConfig::default() };
    let tuning = Tuning { cas_enabled: true, is_odd: fault == Fault::None };
    World::tuned(config, Dialects::Auto, (fast_path, tuning), caps, batch, |store, sent| {
        let (sent, store) = (Arc::clone(sent), Arc::clone(store));
        let has = VecDeque::new();
        let (random, told, open) = (Random::new(seed), 0, true);
        let whole = whole.then(|| (store.session().unwrap(), Random::new(seed)));
        let in_full = if fault == Fault::None { 5 } else { 1000 };
        let engine = Reporter { sent, store, fault, random, has, told, in_full, open, whole };
        let verify_one_in = NonZeroU32::new(in_full).unwrap();
        Some(Offloading { engine: Box::new(engine), forced: true, verify_one_in, filter: None })
    })
}

const MODES: [FastPathMode; 3] = [FastPathMode::Off, FastPathMode::Vector, FastPathMode::Portable];

/// What the offload's work comes to, beside what [`World::counted`] has.
///
/// Plain sets are a batch of their own on the fast path, so batches are not compared.
fn counted(world: &mut World) -> (Vec<String>, [u64; 8]) {
    let c = Arc::clone(&world.counters);
    let (right, wrong) = world.hints();
    let counts = [
        right,
        wrong,
        c.gpu_missed.get(),
        c.gpu_lost.get(),
        c.gpu_checked.get(),
        c.gpu_batched.get(),
        c.batch_sizes.sum(),
        c.replies_accepted.get(),
    ];
    (world.counted(), counts)
}

/// When a fixed batch goes the clock decides, and so which of them are lost: what clients see of it.
fn counted_of_clients(world: &mut World) -> (Vec<String>, [u64; 8]) {
    let mut counted = world.counted();
    counted.retain(|c| !c.starts_with("fast ") && !c.starts_with("slow "));
    (counted, [0; 8])
}

fn compare(seed: u64, caps: TxCaps, batch: Batches) {
    let corpus = corpus();
    let mut random = Random::new(seed);
    let mut worlds = MODES.map(|mode| with_offload(mode, caps, seed, batch, Fault::None));
    let (mut sent, mut bursts) = (0, 0);
    while sent < packets() / 5 {
        let n = 1 + random.below(64);
        let sets = [Some(0), Some(0), Some(5), Some(20), None][random.below(5)];
        let frames: Vec<Vec<u8>> =
            (0..n).map(|id| random.frame(u16::try_from(id).unwrap(), sets, &corpus)).collect();
        for part in parts(frames, batch.1) {
            let [want, fast, portable] = worlds.each_mut().map(|world| world.ask(&part));
            assert!(fast == want && portable == want, "seed {seed:#x}, burst {bursts}");
        }
        sent += n;
        bursts += 1;
        if bursts % 64 == 0 {
            let [want, fast, portable] = worlds.each_mut().map(|world| match batch.1 {
                BatchMode::Adaptive => counted(world),
                BatchMode::Fixed | BatchMode::Periodic => counted_of_clients(world),
            });
            assert_eq!(fast, want, "seed {seed:#x}, burst {bursts}, vector");
            assert_eq!(portable, want, "seed {seed:#x}, burst {bursts}, portable");
        }
    }
    // It was there: plain sets are batches of their own.
    let [general, fast, portable] = worlds.each_ref().map(|world| world.counters.batches.get());
    assert!(fast > general && portable > general, "{fast} and {portable} beside {general}");
    for world in &worlds {
        let c = &world.counters;
        assert!(c.gpu_batched.get() * 3 > c.batch_sizes.sum(), "it has failed");
        let (right, wrong, whole) =
            (c.hints_right.get(), c.hints_wrong.get(), c.replies_accepted.get());
        assert!(right > 1000 && wrong > 1000 && c.gpu_lost.get() > 0, "{right} and {wrong}");
        assert_eq!(whole > 1000, batch.2, "{whole}");
        let ledger = c.ledger();
        assert!(ledger.balances() && ledger.in_flight == 0, "{ledger:?}");
        assert!(*ledger.dropped.of(DropReason::UdpChecksum) > 0);
    }
}

/// What is asked at once. A fixed batch of look-ups waits until it is full, for as long as the clock says; a write of the same
/// burst may go before it or not. So these are asked one after the other.
fn parts(frames: Vec<Vec<u8>>, mode: BatchMode) -> Vec<Vec<Vec<u8>>> {
    match mode {
        BatchMode::Adaptive => vec![frames],
        BatchMode::Fixed | BatchMode::Periodic => {
            let is_look_up = |f: &Vec<u8>| udp_of(f).is_some_and(|(_, l4, _)| is_look_up(f, l4));
            let (look_ups, writes) = frames.into_iter().partition(is_look_up);
            vec![writes, look_ups]
        }
    }
}

#[test]
fn every_reply_and_every_count_is_that_of_the_general_stages() {
    compare(11, TxCaps::default(), (512, BatchMode::Adaptive, false));
    compare(12, TxCaps::default(), (16, BatchMode::Adaptive, false));
    compare(13, TxCaps { ip: true, udp: true }, (7, BatchMode::Adaptive, false));
    compare(14, TxCaps::default(), (16, BatchMode::Fixed, false));
    compare(18, TxCaps::default(), (64, BatchMode::Periodic, false));
}

#[test]
fn whole_replies_are_sent_and_counted_as_by_the_general_stages() {
    compare(15, TxCaps::default(), (512, BatchMode::Adaptive, true));
    compare(16, TxCaps { ip: true, udp: true }, (16, BatchMode::Adaptive, true));
    compare(17, TxCaps::default(), (7, BatchMode::Fixed, true));
}

#[test]
fn a_read_sees_the_write_before_it() {
    let get = || datagram(CLIENT, b"get a\r\n");
    for (size, seed) in (0..40).map(|n| ([2, 3, 5, 64][n % 4], n as u64)) {
        let mut worlds = MODES.map(|m| {
            with_offload(
                m,
                TxCaps::default(),
                seed,
                (size, BatchMode::Adaptive, false),
                Fault::None,
            )
        });
        for world in &mut worlds {
            world.ask(&[set("a", "old", "")]);
            // What is no plain get, and changes something behind a read of it.
            let hidden = datagram(CLIENT, b"get a\r\ndelete a\r\n");
            let replies = world.ask(&[get(), hidden, get(), get()]);
            let hits =
                replies.iter().filter(|r| r[50..].starts_with(b"VALUE a 0 3\r\nold")).count();
            assert_eq!((replies.len(), hits), (4, 2));
            world.ask(&[set("a", "old", "")]);
            let replies = world.ask(&[get(), set("a", "new", ""), get(), get(), get()]);
            let new = replies.iter().filter(|r| r[50..].starts_with(b"VALUE a 0 3\r\nnew")).count();
            assert!(replies.len() == 5 && new >= 3, "{new}");
        }
    }
}

#[test]
fn a_faulty_engine_loses_its_batches() {
    for fault in
        [Fault::KeyShort, Fault::KeyElsewhere, Fault::TextShort, Fault::TwoKeys, Fault::OtherVerb]
    {
        let mut world = with_offload(
            FastPathMode::Vector,
            TxCaps::default(),
            1,
            (64, BatchMode::Adaptive, false),
            fault,
        );
        world.ask(&[set("key", "value", ""), set("ke", "wrong", "")]);
        world.ask(&[datagram(CLIENT, b"get key\r\n")]);
        let gets: Vec<Vec<u8>> = (0..20).map(|_| datagram(CLIENT, b"get key\r\n")).collect();
        let replies = world.ask(&gets);
        let right = |r: &&Vec<u8>| r[50..].starts_with(b"VALUE key 0 5\r\nvalue\r\nEND\r\n");
        assert_eq!(replies.iter().filter(right).count(), 20);
        assert_eq!(
            (world.counters.gpu_lost.get(), world.counters.hints_right.get()),
            (1, 21),
            "{}",
            fault as u8
        );
    }
}
