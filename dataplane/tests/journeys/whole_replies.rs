//! A GPU that writes whole replies: clients see the very bytes that the CPU engine alone would have sent, and no
//! reply is older than what a client may know already.

use crate::offload::{Draw, MODES, binary_get, compare, small};
use crate::offload_faults::Bent;
use crate::world::{Beside, World, Wrap, open, request};
use dataplane::WorkerCounters;
use dataplane::policy::{Policy, Rate};
use gpu::index::{IndexKind, Updater};
use gpu::offload::Mode;
use gpu::simt::SimtCard;
use std::num::NonZeroU64;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use store::verbs;
use wire::DropReason;

fn rows(mode: Mode) -> Beside {
    Beside::new(mode, IndexKind::Rows)
}

fn set(world: &World, key: &str, value: &str) {
    let mut session = world.store.session().unwrap();
    let what = memcache::Store::set(key.as_bytes(), 7, 0, value.as_bytes());
    verbs::store(&mut session, None, &what).unwrap();
}

/// What answers a get of this key.
fn get(world: &mut World, key: &str) -> String {
    String::from_utf8(world.ask(format!("get {key}\r\n").as_bytes())).unwrap()
}

#[test]
fn replies_are_the_cpu_engines_in_every_mode() {
    for mode in MODES {
        let mut draw = Draw(98);
        // A million packets are some 10,000 bursts.
        let bursts = std::env::var("WHOLE_REPLY_BURSTS").ok().and_then(|n| n.parse().ok());
        let world = compare(&rows(mode), bursts.unwrap_or(80), 6, |world, _| {
            if draw.below(3) > 0 {
                world.refresh();
            }
        });
        let c = Arc::clone(&world.counters[0]);
        assert!(world.offload().fault().is_none());
        world.end();
        assert!(c.gpu_checked.get() > 3 && c.gpu_lost.get() == 0);
        assert!(c.replies_accepted.get() > 300, "{} replies", c.replies_accepted.get());
        assert!(c.replies_changed.get() > 30, "{} changed", c.replies_changed.get());
        assert!(c.replies_sampled.get() > 5);
    }
}

/// Those of the CPU come first, and ask for the rows; then come the GPU's.
#[test]
fn each_kind_of_get_has_whole_replies() {
    let mut w = World::beside(small(), &rows(Mode::Launch));
    let counters = Arc::clone(&w.counters[0]);
    // Texts of odd and of even lengths.
    let keys =
        [("k", "one"), ("ke", "two"), ("key", ""), ("keys", "fourth"), ("a", "b"), ("c", "d")];
    keys.iter().for_each(|(key, value)| set(&w, key, value));
    let longest = "x".repeat(100);
    ["long-1", "long-2", "long-3", "long-4", "long-5"]
        .iter()
        .for_each(|key| set(&w, key, &longest));
    let lines = [
        "get k",
        "gets k",
        "get k ke",
        "get ke k ",
        "gets k ke key",
        "get k ke key keys a c",
        "gets c a keys key ke k",
        "get k k",
        "get long-1 long-2 long-3",
        "mg k",
        "mg ke v",
        "mg key v",
        "mg a v f",
        "mg a f v",
        "mg c s t c k q v f",
        "mg keys k",
        "mg long-1 v",
    ];
    let lines = lines.into_iter().map(|line| format!("{line}\r\n").into_bytes());
    let packets =
        [0, 9, 12, 13].into_iter().flat_map(|op| ["k", "ke", "key"].map(|k| binary_get(op, k)));
    let bare =
        [&b"get keys\n"[..], b"gets keys c\n", b"mg k v c\n", b"mg ke\n"].map(<[u8]>::to_vec);
    for text in lines.chain(packets).chain(bare) {
        for wrap in Wrap::ALL {
            let want = w.ask_by(wrap, &text);
            w.refresh();
            // One in 32 is left to the CPU.
            let right = || counters.replies_accepted.get() + counters.replies_sampled.get();
            let before = right();
            for _ in 0..3 {
                assert_eq!(w.ask_by(wrap, &text), want);
            }
            assert_eq!(right() - before, 3, "{}", String::from_utf8_lossy(&text));
        }
    }
    // A change of any of several keys is seen.
    let text = b"get k ke keys\r\n";
    let (before, changed) = (w.ask(text), counters.replies_changed.get());
    set(&w, "ke", "three");
    let after = w.ask(text);
    assert_ne!(after, before);
    assert_eq!(counters.replies_changed.get(), changed + 1);
    w.refresh();
    assert_eq!(w.ask(text), after);
    // Near the most that a row holds: once a row is written, it is found.
    for (key_len, value_len) in (15..19).flat_map(|key| (184..200).map(move |value| (key, value))) {
        let key = "n".repeat(key_len);
        set(&w, &key, &"v".repeat(value_len));
        w.refresh();
        let text = binary_get(0, &key);
        let (want, filled) = (w.ask(&text), w.rows());
        w.refresh();
        let (has_row, before) = (w.rows() > filled, counters.replies_accepted.get());
        (0..3).for_each(|_| assert_eq!(w.ask(&text), want));
        let accepted = counters.replies_accepted.get() - before;
        assert_eq!(has_row, accepted >= 2, "{key_len} {value_len}");
        verbs::delete(&mut w.store.session().unwrap(), None, key.as_bytes());
        w.refresh();
    }
    // What has no whole replies: misses, other verbs, more text than there is room for.
    let accepted = counters.replies_accepted.get();
    let others = ["get k none", "gets none", "get long-1 long-2 long-3 long-4 long-5", "mg none v"];
    let flags = ["v h", "v O1", "v v", " v", "v ", "v\t", "v\r", "vv", "v b", "v T0", "E1 v"];
    let others = others.map(str::to_owned).into_iter();
    for text in others.chain(flags.map(|flags| format!("mg k {flags}"))) {
        for _ in 0..3 {
            w.ask(format!("{text}\r\n").as_bytes());
            w.refresh();
        }
    }
    assert_eq!((counters.replies_accepted.get(), counters.gpu_lost.get()), (accepted, 0));
    assert!(w.offload().fault().is_none());
    w.end();
}

/// Kernels touch nothing but their own memory; what they store reaches the host late.
#[test]
fn replies_are_the_cpu_engines_on_gpus_that_watch_and_that_are_late() {
    for card in [SimtCard::watching as fn(u64) -> SimtCard, SimtCard::late] {
        for mode in [Mode::Launch, Mode::Persistent] {
            let card = Arc::new(card(3));
            let beside = Beside { card, ..rows(mode) };
            let world = compare(&beside, 24, 7, |world, _| world.refresh());
            let c = Arc::clone(&world.counters[0]);
            assert!(world.offload().fault().is_none());
            world.end();
            assert!(c.replies_accepted.get() > 50, "{} replies", c.replies_accepted.get());
        }
    }
}

#[test]
fn a_reply_is_rejected_from_a_change_on_until_the_gpu_has_it() {
    let mut w = World::beside(small(), &rows(Mode::Launch));
    let counters = Arc::clone(&w.counters[0]);
    let accepted = || counters.replies_accepted.get();
    set(&w, "k", "one");
    // It is asked for, and so the GPU gets it.
    assert_eq!(get(&mut w, "k"), "VALUE k 7 3\r\none\r\nEND\r\n");
    w.refresh();
    assert_eq!((get(&mut w, "k"), accepted()), ("VALUE k 7 3\r\none\r\nEND\r\n".to_owned(), 1));
    set(&w, "k", "two");
    assert_eq!((get(&mut w, "k"), accepted()), ("VALUE k 7 3\r\ntwo\r\nEND\r\n".to_owned(), 1));
    assert_eq!(counters.replies_changed.get(), 1);
    w.refresh();
    assert_eq!((get(&mut w, "k"), accepted()), ("VALUE k 7 3\r\ntwo\r\nEND\r\n".to_owned(), 2));
    w.store.flush(0);
    assert_eq!((get(&mut w, "k"), counters.replies_cleared.get()), ("END\r\n".to_owned(), 1));
    w.refresh();
    assert_eq!((get(&mut w, "k"), accepted()), ("END\r\n".to_owned(), 2));
    // An item that expires is the GPU's until the second in which it does.
    let expiring = memcache::Store::set(b"k", 7, 10, b"three");
    verbs::store(&mut w.store.session().unwrap(), None, &expiring).unwrap();
    for _ in 0..2 {
        assert_eq!(get(&mut w, "k"), "VALUE k 7 5\r\nthree\r\nEND\r\n");
        w.refresh();
    }
    assert_eq!(accepted(), 3);
    w.store.clock().skip_ahead(10);
    assert_eq!((get(&mut w, "k"), counters.replies_expired.get()), ("END\r\n".to_owned(), 1));
    w.end();
}

/// Of all that workers share the queue to the updater alone is written to by a get, where the GPU has no row.
#[test]
fn a_key_with_a_row_is_not_asked_for_again() {
    let mut w = World::beside(small(), &rows(Mode::Launch));
    let counters = Arc::clone(&w.counters[0]);
    set(&w, "k", "one");
    get(&mut w, "k");
    w.refresh();
    assert_eq!(counters.gpu_missed.get(), 1);
    // By chance some are the CPU's; and all, until the GPU has the next value.
    for _ in 0..300 {
        assert_eq!(get(&mut w, "k"), "VALUE k 7 3\r\none\r\nEND\r\n");
    }
    assert!(counters.replies_sampled.get() > 0);
    set(&w, "k", "two");
    for _ in 0..3 {
        assert_eq!(get(&mut w, "k"), "VALUE k 7 3\r\ntwo\r\nEND\r\n");
    }
    assert_eq!((counters.replies_changed.get(), counters.gpu_missed.get()), (3, 1));
    w.refresh();
    let accepted = counters.replies_accepted.get();
    for _ in 0..300 {
        assert_eq!(get(&mut w, "k"), "VALUE k 7 3\r\ntwo\r\nEND\r\n");
    }
    assert!(counters.replies_accepted.get() > accepted + 200);
    assert_eq!(counters.gpu_missed.get(), 1);
    w.end();
}

/// A search may find anything in a row that is being written. What it finds means nothing then, and shows a fault of the GPU
/// only while the row is nobody's to write.
#[test]
fn a_reply_to_another_mg_is_a_fault_unless_its_key_has_changed() {
    fn bend(batch: &mut gpu::Batch, _: u64) {
        if let [right, other] = &mut batch.replies[..] {
            assert!(right.facts.text_len > 0);
            *other = *right;
        }
    }
    for changed in [true, false] {
        let wrap = |engine| Box::new(Bent { engine, bend, batches: 0 }) as _;
        let mut w = World::beside(small(), &Beside { wrap, ..rows(Mode::Launch) });
        set(&w, "k", "one");
        w.ask(b"mg k v\r\n");
        w.refresh();
        if changed {
            set(&w, "k", "two");
        }
        w.send(&request(Wrap::V4, 1, b"mg k v\r\n"));
        w.send(&request(Wrap::V4, 2, b"mg k h\r\n"));
        w.settle();
        let replies: Vec<_> = w.received(0).iter().map(|f| open(Wrap::V4, f.bytes())).collect();
        let value = if changed { "two" } else { "one" };
        assert_eq!(replies[0].text, format!("VA 3\r\n{value}\r\n").as_bytes());
        assert_eq!(replies[1].text, b"HD h1\r\n");
        assert_eq!(w.offload().fault().is_some(), !changed);
        w.end();
    }
}

/// The updater is not troubled by gets of what it would find to be too large for a row.
#[test]
fn what_is_too_large_for_a_row_is_not_asked_for() {
    let mut w = World::beside(small(), &rows(Mode::Launch));
    set(&w, "small", &"v".repeat(100));
    set(&w, "large", &"v".repeat(300));
    w.refresh();
    for key in ["small", "large"] {
        let lines = ["get", "gets", "mg"].map(|verb| format!("{verb} {key}\r\n").into_bytes());
        for text in lines.into_iter().chain([binary_get(0, key)]) {
            w.ask(&text);
            assert_eq!(
                w.updaters[0].turn() > 0,
                key == "small",
                "{}",
                String::from_utf8_lossy(&text)
            );
        }
    }
    w.end();
}

#[test]
fn behind_a_change_in_its_batch_no_reply_is_taken() {
    let changes = [
        ("mg k t T-1\r\n", "END\r\n"),
        ("get x\r\nset k 7 0 3\r\nnew\r\n", "VALUE k 7 3\r\nnew\r\nEND\r\n"),
    ];
    for (change, after) in changes {
        let mut w = World::beside(small(), &rows(Mode::Launch));
        let counters = Arc::clone(&w.counters[0]);
        set(&w, "k", "old");
        for _ in 0..2 {
            assert_eq!(get(&mut w, "k"), "VALUE k 7 3\r\nold\r\nEND\r\n");
            w.refresh();
        }
        assert_eq!(counters.replies_accepted.get(), 1);
        for (id, text) in [(1, "get k\r\n"), (2, change), (3, "get k\r\n")] {
            w.send(&request(Wrap::V4, id, text.as_bytes()));
        }
        w.settle();
        let replies: Vec<_> = w.received(0).iter().map(|f| open(Wrap::V4, f.bytes())).collect();
        let text = |id| &replies.iter().find(|reply| reply.id == id).unwrap().text[..];
        assert_eq!(text(1), b"VALUE k 7 3\r\nold\r\nEND\r\n");
        assert_eq!(text(3), after.as_bytes(), "{change}");
        assert_eq!((counters.replies_accepted.get(), counters.replies_changed.get()), (2, 1));
        w.end();
    }
}

/// What an `mg` says beside what it is asked for is the CPU's to say, from the moment on that it is so.
#[test]
fn marks_of_an_item_take_its_replies_to_mg_back() {
    let mut w = World::beside(small(), &rows(Mode::Launch));
    let counters = Arc::clone(&w.counters[0]);
    // One in 32 is left to the CPU.
    let right = || counters.replies_accepted.get() + counters.replies_sampled.get();
    let mut ask = |text: &str, want: &str, by_gpu: bool| {
        let before = right();
        let got = w.ask(format!("{text}\r\n").as_bytes());
        assert_eq!(String::from_utf8_lossy(&got), want, "{text}");
        assert_eq!(right() - before, u64::from(by_gpu), "{text}");
        w.refresh();
    };
    ask("ms k 3 T1000\r\nold", "HD\r\n", false);
    let plain = "VA 3\r\nold\r\n";
    ask("mg k v", plain, false);
    ask("mg k v", plain, true);
    ask("mg k t v", "VA 3 t1000\r\nold\r\n", false);
    ask("mg k t v", "VA 3 t1000\r\nold\r\n", false);
    // Won, which changes nothing else of it.
    ask("mg k v", plain, true);
    ask("mg k v R2000", "VA 3 W\r\nold\r\n", false);
    ask("mg k v", "VA 3 Z\r\nold\r\n", false);
    ask("mg k v", "VA 3 Z\r\nold\r\n", false);
    // A `get` says nothing of that.
    ask("get k", "VALUE k 0 3\r\nold\r\nEND\r\n", false);
    ask("get k", "VALUE k 0 3\r\nold\r\nEND\r\n", true);
    ask("ms k 3\r\nnew", "HD\r\n", false);
    ask("mg k t v", "VA 3 t-1\r\nnew\r\n", false);
    ask("mg k t v", "VA 3 t-1\r\nnew\r\n", true);
    ask("md k I", "HD\r\n", false);
    ask("mg k t v", "VA 3 t-1 X W\r\nnew\r\n", false);
    ask("mg k t v", "VA 3 t-1 Z X\r\nnew\r\n", false);
    ask("ms a2V5 1 b\r\nx", "HD\r\n", false);
    ask("mg key v k", "VA 1 ka2V5 b\r\nx\r\n", false);
    ask("mg key v k", "VA 1 ka2V5 b\r\nx\r\n", false);
    assert!(w.offload().fault().is_none());
    w.end();
}

#[test]
fn bytes_of_whole_replies_are_paid_for_by_their_client() {
    // Two replies are worth more than there is to begin with, and more seconds than the test takes.
    let trusted_source = Rate { requests: None, reply_bytes: NonZeroU64::new(1) };
    let policy = Policy { trusted_source, ..Policy::default() };
    let mut w = World::policed_beside(small(), &rows(Mode::Launch), policy);
    let counters = Arc::clone(&w.counters[0]);
    set(&w, "k", "v");
    // The first that asks is in debt then; the GPU has the item all the same.
    w.send(&request(Wrap::V4, 1, b"get k\r\n"));
    w.settle();
    w.refresh();
    w.send(&request(Wrap::V6, 2, b"get k\r\n"));
    w.settle();
    assert_eq!((w.received(0).len(), counters.replies_accepted.get()), (2, 1));
    for _ in 0..3 {
        w.send(&request(Wrap::V6, 3, b"get k\r\n"));
        w.settle();
    }
    assert_eq!(w.dropped(DropReason::RateSourceBytes), 3);
    w.end();
}

/// Writers, an updater and a worker at once: what a get says was there while it was under way.
#[test]
fn no_reply_is_older_than_its_request_or_newer_than_its_arrival() {
    const KEYS: usize = 4;
    // Each with a worker of its own.
    for (mode, gpus) in [(Mode::Launch, 2), (Mode::Persistent, 1)] {
        let beside: Vec<Beside> = (0..gpus).map(|_| rows(mode)).collect();
        let mut w = World::beside_all(small(), &beside);
        let key = |n: usize| format!("key-{n}");
        (0..KEYS).for_each(|n| set(&w, &key(n), "0"));
        let numbers = || -> Arc<[AtomicU64; KEYS]> { Arc::default() };
        let (begun, done, stop) = (numbers(), numbers(), Arc::new(AtomicBool::new(false)));
        let update = |updater: Updater| {
            let stopped = Arc::clone(&stop);
            thread::spawn(move || updater.run(&stopped))
        };
        let updates: Vec<_> = w.updaters.drain(..).map(update).collect();
        let (begins, ends, stopped) = (Arc::clone(&begun), Arc::clone(&done), Arc::clone(&stop));
        let mut session = w.store.session().unwrap();
        let writer = thread::spawn(move || {
            let mut number = 0;
            while !stopped.load(Ordering::Relaxed) {
                number += 1;
                // Some keys change often, others seldom.
                let n = [0, 0, 0, 1, 1, 2, 0, 3][number % 8];
                let value = begins[n].fetch_add(1, Ordering::SeqCst) + 1;
                let (key, value_text) = (format!("key-{n}"), value.to_string());
                let what = memcache::Store::set(key.as_bytes(), 7, 0, value_text.as_bytes());
                verbs::store(&mut session, None, &what).unwrap();
                ends[n].store(value, Ordering::SeqCst);
                if number % 64 == 0 {
                    thread::sleep(std::time::Duration::from_millis(2));
                }
            }
        });
        let mut draw = Draw(12);
        let began = std::time::Instant::now();
        let counters = w.counters.clone();
        let few = |c: &Arc<WorkerCounters>| {
            c.replies_accepted.get() < 200 || c.replies_changed.get() < 200
        };
        for worker in (0..gpus).cycle().take_while(|_| counters.iter().any(few)) {
            assert!(began.elapsed().as_secs() < 60, "too few replies of both kinds");
            let low: Vec<u64> = done.iter().map(|n| n.load(Ordering::SeqCst)).collect();
            for _ in 0..40 {
                let n = draw.below(KEYS);
                let id = u16::try_from(n).unwrap();
                let text = format!("get {}\r\n", key(n));
                w.send_to(worker, &request(Wrap::ALL[0], id, text.as_bytes()));
            }
            w.settle();
            let replies: Vec<_> =
                w.received(worker).iter().map(|frame| open(Wrap::ALL[0], frame.bytes())).collect();
            assert_eq!(replies.len(), 40);
            for reply in replies {
                let n = usize::from(reply.id);
                let text = String::from_utf8(reply.text).unwrap();
                let value: u64 = text.lines().nth(1).unwrap().parse().unwrap();
                let high = begun[n].load(Ordering::SeqCst);
                assert!(low[n] <= value && value <= high, "{} <= {value} <= {high}", low[n]);
            }
        }
        stop.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        updates.into_iter().for_each(|updates| drop(updates.join().unwrap()));
        assert!(w.offloads.iter().all(|offload| offload.fault().is_none()));
        w.end();
    }
}

/// The rows of the keys that change in one turn are more than a launch has room for: none is forgotten.
#[test]
fn all_rows_of_all_changed_keys_are_written() {
    const KEYS: usize = 1_400;
    let mut w = World::beside(
        small(),
        &Beside { index_bytes: 8 << 20, feed: 1 << 13, ..rows(Mode::Launch) },
    );
    let counters = Arc::clone(&w.counters[0]);
    let verbs: [fn(usize) -> Vec<u8>; 6] = [
        |n| format!("get key-{n}\r\n").into_bytes(),
        |n| format!("gets key-{n}\r\n").into_bytes(),
        |n| binary_get(0, &format!("key-{n}")),
        |n| binary_get(12, &format!("key-{n}")),
        |n| format!("mg key-{n} v\r\n").into_bytes(),
        |n| format!("mg key-{n} t v\r\n").into_bytes(),
    ];
    // Right replies have the value of this round.
    let ask_all = |w: &mut World, value: &str| {
        for verb in verbs {
            for first in (0..KEYS).step_by(100) {
                for n in first..first + 100 {
                    w.send(&request(Wrap::V4, 1, &verb(n)));
                }
                w.settle();
                let replies = w.received(0);
                assert_eq!(replies.len(), 100);
                for reply in replies {
                    let text = open(Wrap::V4, reply.bytes()).text;
                    assert!(text.windows(value.len()).any(|part| part == value.as_bytes()));
                }
                w.refresh();
            }
        }
    };
    for value in ["first", "second", "third"] {
        (0..KEYS).for_each(|n| set(&w, &format!("key-{n}"), value));
        w.refresh();
        ask_all(&mut w, value);
    }
    // All but those that are left to the CPU by chance, in the second round and in the third.
    let asked = u64::try_from(KEYS * verbs.len() * 2).unwrap();
    let accepted = counters.replies_accepted.get();
    assert!(accepted > asked * 9 / 10, "{accepted} of {asked}");
    assert_eq!((counters.replies_cleared.get(), counters.gpu_lost.get()), (0, 0));
    w.end();
}

/// More changes than the updater can write rows for: it takes them out, and no reply is older than its change.
#[test]
fn an_updater_that_is_behind_takes_rows_out() {
    let mut w = World::beside(small(), &Beside { feed: 1 << 13, ..rows(Mode::Launch) });
    let counters = Arc::clone(&w.counters[0]);
    let accepted = || counters.replies_accepted.get();
    set(&w, "k", "one");
    get(&mut w, "k");
    w.refresh();
    assert_eq!((get(&mut w, "k"), accepted()), ("VALUE k 7 3\r\none\r\nEND\r\n".to_owned(), 1));
    set(&w, "k", "two");
    (0..7_000).for_each(|_| set(&w, "other", "x"));
    w.refresh();
    assert_eq!((get(&mut w, "k"), accepted()), ("VALUE k 7 3\r\ntwo\r\nEND\r\n".to_owned(), 1));
    w.refresh();
    assert_eq!((get(&mut w, "k"), accepted()), ("VALUE k 7 3\r\ntwo\r\nEND\r\n".to_owned(), 2));
    assert_eq!(counters.replies_cleared.get(), 0);
    w.end();
}
