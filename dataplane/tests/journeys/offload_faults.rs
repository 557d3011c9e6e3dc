//! A GPU that fails, in every way that there is: the service goes on, no reply changes, and no slot
//! is lost.

use crate::offload::{KINDS, MODES, compare, small};
use crate::world::{Beside, World, Wrap, request};
use gpu::faulty::{FaultyCard, Switches};
use gpu::index::IndexKind;
use gpu::layout::HEAD_BYTES_MAX;
use gpu::offload::{Fault, Mode};
use gpu::simt::SimtCard;
use gpu::{Batch, Engine, Hint, Outcome, Verdict};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Compares while `turn` is carried out after a few bursts. Says what became of the GPU.
fn fail_with(mode: Mode, deadline: Duration, turn: impl Fn(&Switches)) -> Fault {
    let (card, switches) = FaultyCard::new(Arc::new(SimtCard::default()));
    let beside =
        Beside { card: Arc::new(card), deadline, ..Beside::new(mode, IndexKind::SetAssoc) };
    let world = compare(&beside, 12, 77, |world, burst| match burst {
        2 => turn(&switches),
        _ => world.refresh(),
    });
    let fault = world.offload().fault().cloned();
    let c = Arc::clone(&world.counters[0]);
    world.end();
    assert!(c.gpu_batched.get() < c.batched.get(), "the CPU has taken over");
    fault.expect("a fault")
}

#[test]
fn launches_that_get_lost() {
    for mode in [Mode::Launch, Mode::Graph] {
        let lose = |s: &Switches| s.lose_launches.store(true, Ordering::Relaxed);
        let fault = fail_with(mode, Duration::from_millis(100), lose);
        assert!(matches!(fault, Fault::Late { .. } | Fault::UpdateLate { .. }), "{fault}");
    }
}

#[test]
fn launches_that_are_refused() {
    for mode in [Mode::Launch, Mode::Graph] {
        let refuse = |s: &Switches| s.refuse_launches.store(true, Ordering::Relaxed);
        let fault = fail_with(mode, Duration::from_secs(60), refuse);
        assert!(matches!(fault, Fault::Card(_)), "{fault}");
    }
}

#[test]
fn a_sticky_error() {
    for mode in MODES {
        let stick = |s: &Switches| s.sticky.store(true, Ordering::Relaxed);
        let fault = fail_with(mode, Duration::from_secs(60), stick);
        assert!(matches!(fault, Fault::Card(_)), "{fault}");
    }
}

/// Each worker has a GPU of its own. One that fails leaves its worker to the CPU, and the other GPU is used as before;
/// what is stored, and what is flushed, is seen beside each.
#[test]
fn one_of_two() {
    for kind in [IndexKind::SetAssoc, IndexKind::Rows] {
        let (card, switches) = FaultyCard::new(Arc::new(SimtCard::default()));
        let first = Beside { card: Arc::new(card), ..Beside::new(Mode::Launch, kind) };
        let mut w = World::beside_all(small(), &[first, Beside::new(Mode::Launch, kind)]);
        let counters = w.counters.clone();
        let by_gpu = || counters.iter().map(|c| c.gpu_batches.get() - c.gpu_lost.get()).collect();
        let ask = |w: &mut World, text: &str| -> [String; 2] {
            [0, 1].map(|worker| {
                w.send_to(worker, &request(Wrap::V4, 1, text.as_bytes()));
                w.settle();
                let replies = w.received(worker);
                String::from_utf8_lossy(&replies[0].bytes()[50..]).into_owned()
            })
        };
        for (value, gpus) in [("one", [1, 1]), ("two", [0, 1])] {
            w.send(&request(Wrap::V4, 1, format!("set k 0 0 3\r\n{value}\r\n").as_bytes()));
            w.settle();
            drop(w.received(0));
            for _ in 0..3 {
                w.refresh();
                let before: Vec<u64> = by_gpu();
                let item = format!("VALUE k 0 3\r\n{value}\r\nEND\r\n");
                assert_eq!(ask(&mut w, "get k\r\n"), [item.as_str(); 2], "{kind:?}");
                let after: Vec<u64> = by_gpu();
                let more: Vec<u64> = after.iter().zip(&before).map(|(a, b)| a - b).collect();
                assert_eq!(more, gpus, "{kind:?} {value}");
            }
            switches.sticky.store(true, Ordering::Relaxed);
            // It is found by the next to use it.
            ask(&mut w, "get nothing\r\n");
            assert!(w.offloads[0].fault().is_some() && w.offloads[1].fault().is_none());
        }
        w.store.flush(0);
        assert_eq!(ask(&mut w, "get k\r\n"), ["END\r\n"; 2], "{kind:?}");
        w.end();
    }
}

/// Whether the clock judges: on a quiet machine.
fn strict() -> bool {
    std::env::var_os("DRILLS_STRICT_TIME").is_some_and(|strict| strict == "1")
}

/// The GPU stops for a while under load, again and again, as a tenant's kernels or a paused machine
/// make it: nothing is wrong or lost, every reply comes, and the GPU is in use again within a second by
/// the clock (`DRILLS_STRICT_TIME=1`).
#[test]
fn stalls_cost_some_milliseconds_and_nothing_else() {
    for mode in MODES {
        let card = Arc::new(SimtCard::default());
        let deadline = Duration::from_millis(5);
        let shared = Arc::clone(&card) as _;
        let beside = Beside { card: shared, deadline, ..Beside::new(mode, IndexKind::Cuckoo) };
        let mut w = World::beside(small(), &beside);
        for n in 0..50 {
            w.send(&request(Wrap::V4, 1, format!("set k{n} 0 0 2\r\n{n:02}\r\n").as_bytes()));
        }
        w.settle();
        assert_eq!(w.received(0).len(), 50);
        w.refresh();
        let answered = |w: &World| w.counters[0].gpu_batches.get() - w.counters[0].gpu_lost.get();
        let ask_all = |w: &mut World| {
            for n in 0..50u16 {
                w.send(&request(Wrap::V4, n, format!("get k{n}\r\n").as_bytes()));
            }
            w.settle();
            let replies = w.received(0);
            assert_eq!(replies.len(), 50);
            for reply in replies {
                let text = String::from_utf8_lossy(&reply.bytes()[42..]).into_owned();
                let n = u16::from_be_bytes([reply.bytes()[42], reply.bytes()[43]]);
                assert!(text.ends_with(&format!("VALUE k{n} 0 2\r\n{n:02}\r\nEND\r\n")), "{text}");
            }
        };
        for ms in [2, 15, 32, 15, 2] {
            let (began, pause) = (Instant::now(), Duration::from_millis(ms));
            card.stall(pause);
            while began.elapsed() < pause {
                ask_all(&mut w);
            }
            let (before, over) = (answered(&w), Instant::now());
            // A busy machine may need more for a probe in time.
            let most = Duration::from_secs(if strict() { 1 } else { 30 });
            while answered(&w) == before {
                ask_all(&mut w);
                assert!(over.elapsed() < most, "{mode:?}: not used again");
            }
        }
        let fault = w.offload().fault().cloned();
        assert!(fault.is_none(), "{mode:?}: {fault:?}");
        // For ever: the CPU alone, from the second on at the latest.
        card.stall(Duration::MAX);
        let began = Instant::now();
        while w.offload().fault().is_none() {
            ask_all(&mut w);
            assert!(began.elapsed() < Duration::from_secs(30), "{mode:?}: no fault");
        }
        ask_all(&mut w);
        w.end();
        card.stall(Duration::ZERO);
    }
}

/// A worker beside a GPU whose launches all get lost: each is waited for until the deadline.
fn losing_launches(deadline: Duration) -> World {
    let (card, switches) = FaultyCard::new(Arc::new(SimtCard::default()));
    let beside = Beside::new(Mode::Launch, IndexKind::SetAssoc);
    let w = World::beside(small(), &Beside { card: Arc::new(card), deadline, ..beside });
    switches.lose_launches.store(true, Ordering::Relaxed);
    w
}

/// From a kernel that is late to the CPU's reply, 10 ms: the deadline, and what comes after. That is
/// counted in turns of the worker, which a busy machine does not make more of, only longer; with
/// `DRILLS_STRICT_TIME=1` by the clock, too.
#[test]
fn the_cpu_takes_over_when_the_deadline_has_passed() {
    const MOST: Duration = Duration::from_millis(10);
    const TURNS_MAX: u32 = 2;
    let deadline = Duration::from_millis(5);
    let mut w = losing_launches(deadline);
    let begun = Instant::now();
    w.send(&request(Wrap::V4, 1, b"get key\r\n"));
    // When the GPU had the batch for certain, and the turns that began a deadline later.
    let (mut shipped, mut turns) = (None, 0);
    let reply = loop {
        turns += u32::from(shipped.is_some_and(|at: Instant| at.elapsed() >= deadline));
        w.workers[0].turn();
        if w.counters[0].gpu_batches.get() > 0 {
            shipped.get_or_insert_with(Instant::now);
        }
        if let Some(reply) = w.received(0).pop() {
            break reply;
        }
        assert!(turns < TURNS_MAX, "no reply {turns} turns after the deadline");
    };
    let took = begun.elapsed();
    assert!(reply.bytes().ends_with(b"END\r\n"));
    drop(reply);
    assert!(took >= deadline, "{took:?}");
    if strict() {
        assert!(took <= MOST, "{took:?}");
    }
    assert_eq!(w.counters[0].gpu_lost.get(), 1);
    w.end();
}

/// What a GPU that is behind has no place for stays in the port's queue, and is answered when it
/// has: nothing is dropped while the queue has room.
#[test]
fn a_card_that_is_behind_is_waited_for() {
    const REQUESTS: u64 = 1500;
    let mut w = losing_launches(Duration::from_millis(200));
    for n in 0..REQUESTS {
        w.send(&request(Wrap::V4, u16::try_from(n).unwrap(), b"get key\r\n"));
    }
    let (mut most, mut answered) = (0, 0);
    let begun = Instant::now();
    while answered < REQUESTS && begun.elapsed() < Duration::from_secs(60) {
        w.workers[0].turn();
        most = most.max(w.counters[0].in_flight.get());
        answered += w.received(0).len() as u64;
    }
    assert_eq!((answered, w.counters[0].received.get()), (REQUESTS, REQUESTS));
    // Three bursts with the GPU, and a batch that was being filled.
    assert!((400..REQUESTS).contains(&most), "{most}");
    w.end();
}

/// An engine whose answers something happens to.
pub(crate) struct Bent {
    pub(crate) engine: Box<dyn Engine>,
    pub(crate) bend: fn(&mut Batch, u64),
    pub(crate) batches: u64,
}

impl Engine for Bent {
    fn name(&self) -> &'static str {
        "bent"
    }

    fn new_batch(&mut self, id: u32, capacity: usize) -> Box<Batch> {
        self.engine.new_batch(id, capacity)
    }

    fn submit(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>> {
        self.engine.submit(batch)
    }

    fn poll(&mut self) -> Option<(Box<Batch>, Outcome)> {
        let (mut batch, outcome) = self.engine.poll()?;
        self.batches += 1;
        // What is lost has no descriptors.
        if outcome != Outcome::Lost {
            (self.bend)(&mut batch, self.batches);
        }
        Some((batch, outcome))
    }

    fn in_flight(&self) -> usize {
        self.engine.in_flight()
    }

    fn is_open(&self) -> bool {
        self.engine.is_open()
    }

    fn mark_faulty(&mut self) {
        self.engine.mark_faulty();
    }
}

/// Compares with an engine that is bent; whether it was found out.
fn compare_bent(kind: IndexKind, wrap: fn(Box<dyn Engine>) -> Box<dyn Engine>) -> bool {
    let beside = Beside { wrap, ..Beside::new(Mode::Launch, kind) };
    let world = compare(&beside, 20, 31, |world, _| world.refresh());
    let fault = world.offload().fault().cloned();
    world.end();
    assert!(matches!(fault, None | Some(Fault::Wrong)), "{fault:?}");
    fault.is_some()
}

#[test]
fn hints_that_are_all_wrong() {
    fn bend(batch: &mut Batch, n: u64) {
        for desc in batch.descs.iter_mut() {
            desc.hash = n.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            for key in &mut desc.keys {
                key.hint = Hint(u8::try_from(n % 4).unwrap());
                key.location = key.location.wrapping_mul(u32::try_from(n).unwrap()) ^ 0x55;
            }
        }
    }
    for kind in KINDS {
        let found_out = compare_bent(kind, |engine| Box::new(Bent { engine, bend, batches: 0 }));
        assert!(!found_out, "hints may be wrong");
    }
}

#[test]
fn descriptors_that_are_wrong() {
    const BENDS: [fn(&mut Batch, u64); 5] = [
        |batch, n| {
            if n > 3 {
                batch.descs.set_len(batch.entries.len() - 1)
            }
        },
        |batch, n| {
            if n > 3 {
                batch.descs[0].verdict = Verdict(200)
            }
        },
        |batch, n| {
            if n > 3 {
                batch.descs[0].payload_off ^= 1
            }
        },
        |batch, n| {
            if n > 3 {
                batch.descs.iter_mut().for_each(|d| d.payload_len = 9999)
            }
        },
        |batch, n| {
            let ready = |d: &&mut gpu::ReqDesc| d.verdict == Verdict::READY;
            if n > 3
                && let Some(desc) = batch.descs.iter_mut().find(ready)
            {
                desc.keys[0].len += 1;
            }
        },
    ];
    fn bent<const N: usize>(engine: Box<dyn Engine>) -> Box<dyn Engine> {
        Box::new(Bent { engine, bend: BENDS[N], batches: 0 })
    }
    for wrap in [bent::<0>, bent::<1>, bent::<2>, bent::<3>, bent::<4>] {
        assert!(compare_bent(IndexKind::SetAssoc, wrap), "found out");
    }
}

/// Heads of other requests, of other items, or of no sense: used by nobody.
#[test]
fn heads_that_are_wrong() {
    fn bend(batch: &mut Batch, n: u64) {
        let heads = batch.heads.len();
        match n % 4 {
            0 => batch.heads.rotate_left(1.min(heads)),
            1 => batch.heads.iter_mut().for_each(|head| head.flags ^= 1),
            2 => batch.heads.iter_mut().for_each(|head| head.value_len += 1),
            _ => {
                for (i, head) in batch.heads.iter_mut().enumerate() {
                    head.len = u8::try_from((i * 7) % (HEAD_BYTES_MAX + 100)).unwrap();
                }
            }
        }
    }
    compare_bent(IndexKind::SetAssoc, |engine| Box::new(Bent { engine, bend, batches: 0 }));
}
