//! Nothing that workers share is written by a GET of an item that was asked for before: not a bucket,
//! not an item, not a book of the store. Two workers answer many of them; all memory that the store
//! mapped, and the store itself, is the same to the bit before and after.
//!
//! A binary of its own with one test, because it recognises the store's memory by what the process maps
//! meanwhile. It reads that memory through `/proc/self/mem`. What each worker does write lies apart:
//! its counters, and its slot among the epochs, whose size `dataplane/store/src/epoch.rs` tests.
#![allow(clippy::unwrap_used, reason = "tests")]

use dataplane::observe::Server;
use dataplane::worker::{Worker, WorkerConfig, WorkerPort};
use driver_shim::ports::memory::{LoopingConfig, MAC, looping};
use driver_shim::{Pages, PortInfo, QueuePair, Region, RxChecksum, TxCaps};
use etherparse::PacketBuilder;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::thread;
use store::{Store, StoreConfig, verbs};
use wire::Local;

const ITEMS: usize = 500;
/// GETs of each worker, several of each item.
const GETS: u64 = 50_000;

/// What the process may write to.
fn mapped() -> Vec<Range<u64>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let range = |line: &str| {
        let mut words = line.split_whitespace();
        let (from, to) = words.next()?.split_once('-')?;
        let number = |hex| u64::from_str_radix(hex, 16).ok();
        words.next()?.starts_with("rw").then_some(number(from)?..number(to)?)
    };
    maps.lines().filter_map(range).collect()
}

/// What is in `now` and was not in `before`.
fn new_ones(now: &[Range<u64>], before: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut left = now.to_vec();
    for known in before {
        left = left
            .into_iter()
            .flat_map(|r| [r.start..r.end.min(known.start), r.start.max(known.end)..r.end])
            .filter(|r| r.start < r.end)
            .collect();
    }
    left
}

fn read(ranges: &[Range<u64>]) -> Vec<Vec<u8>> {
    let memory = File::open("/proc/self/mem").unwrap();
    let one = |range: &Range<u64>| {
        let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap()];
        memory.read_exact_at(&mut bytes, range.start).unwrap();
        bytes
    };
    ranges.iter().map(one).collect()
}

fn get(i: usize) -> Vec<u8> {
    let mut frame = Vec::new();
    let payload = [&[0, 1, 0, 0, 0, 1, 0, 0], format!("get key{i}\r\n").as_bytes()].concat();
    PacketBuilder::ethernet2([2, 0, 0, 0, 0, 1], MAC.0)
        .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
        .udp(40_000, 11_211)
        .write(&mut frame, &payload)
        .unwrap();
    frame
}

fn worker(
    (store, server): (&Arc<Store>, &Arc<Server>),
    region: &Region,
    info: &PortInfo,
    queues: QueuePair,
) -> Worker {
    let local = Local::new(MAC, &[([10, 0, 0, 2].into(), 24)], 11_211).unwrap();
    let ports = vec![WorkerPort::new(queues, info.clone(), Arc::new(local))];
    let session = store.session().unwrap();
    Worker::new(WorkerConfig::new(ports, region.clone(), session, Arc::clone(server)))
}

fn config() -> LoopingConfig {
    LoopingConfig {
        templates: (0..ITEMS).map(get).collect(),
        queues: 2,
        frames_per_queue: 512,
        rx: RxChecksum::default(),
        tx_caps: TxCaps::default(),
        inspect: None,
    }
}

#[test]
fn a_get_writes_nothing_that_workers_share() {
    let before = mapped();
    let memory_bytes = 8 << 20;
    let store =
        Store::new(StoreConfig { memory_bytes, pages: Pages::Small, ..StoreConfig::default() })
            .unwrap();
    let mut shared = new_ones(&mapped(), &before);
    let bytes: u64 = shared.iter().map(|r| r.end - r.start).sum();
    assert!(bytes >= memory_bytes as u64, "the store maps {bytes} bytes");
    // The store's own books; what they point to is mapped, or changes with them. What else grew with
    // the heap that they lie in is anybody's.
    let own = Arc::as_ptr(&store) as u64;
    shared.retain(|range| !range.contains(&own));
    shared.push(own..own + size_of::<Store>() as u64);

    let mut session = store.session().unwrap();
    for i in 0..ITEMS {
        let key = format!("key{i}");
        verbs::store(&mut session, None, &memcache::Store::set(key.as_bytes(), 0, 0, b"value"))
            .unwrap();
    }
    let server = Arc::new(Server::new(Arc::clone(&store), "test".to_owned()));
    let region = Region::new(2048, Pages::Small).unwrap();
    let mut port = looping(&region, &config()).unwrap();
    let info = port.info.clone();
    let mut workers: Vec<Worker> = std::iter::from_fn(|| port.queues.pop())
        .map(|queues| worker((&store, &server), &region, &info, queues))
        .collect();
    let counters: Vec<_> = workers.iter().map(Worker::counters).collect();
    // The first of each item marks it as asked for.
    let all = |worker: &mut Worker, gets: u64| {
        let counters = worker.counters();
        let from = counters.hints_right.get();
        while counters.hints_right.get() - from < gets {
            worker.turn();
        }
    };
    workers.iter_mut().for_each(|worker| all(worker, 2 * ITEMS as u64));

    let image = read(&shared);
    let from: Vec<u64> = counters.iter().map(|c| c.hints_right.get()).collect();
    thread::scope(|scope| {
        for worker in &mut workers {
            scope.spawn(|| all(worker, GETS));
        }
    });
    let changed = |image: &[Vec<u8>]| -> Vec<usize> {
        let now = read(&shared);
        let differ = |(a, b): (&Vec<u8>, &Vec<u8>)| a.iter().zip(b).filter(|(x, y)| x != y).count();
        image.iter().zip(&now).map(differ).collect()
    };
    let n = changed(&image);
    assert!(n.iter().all(|n| *n == 0), "bytes changed: {n:?} in {shared:x?}");
    for (counters, from) in counters.iter().zip(from) {
        // Each worker counted its own, and found all.
        assert!(counters.hints_right.get() - from >= GETS);
        assert_eq!(counters.hints_wrong.get(), 0);
        assert!(counters.ledger().balances());
        assert_eq!(align_of_val(&**counters), 128, "counters share no pair of lines");
    }
    // The test would see it.
    verbs::store(&mut session, None, &memcache::Store::set(b"key1", 0, 0, b"other")).unwrap();
    let n = changed(&image);
    assert!(n.iter().sum::<usize>() > 0);
}
