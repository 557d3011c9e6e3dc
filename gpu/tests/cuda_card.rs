//! A CUDA device as a device, over a driver made for the test: the SIMT executor behind the
//! functions of libcuda (`gpu/simt/driver.cc`). What a real driver is asked there, it is asked here.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests")]

mod driver;

use driver::{Device, driver};
use gpu::card::{Card, CardError, CardMemory, Kernel, Stream};
use gpu::cuda::CudaCard;
use gpu::host::{Column, HostMemory};
use gpu::params::{
    DigestParams, HashKey, MicroEmptyParams, MicroPingParams, MicroReadParams, UpdateParams,
};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn card() -> Arc<dyn Card> {
    Arc::new(CudaCard::open(0).unwrap())
}

fn wait(stream: &mut dyn Stream) {
    let begun = Instant::now();
    while !stream.is_idle().unwrap() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        thread::yield_now();
    }
}

#[test]
fn kernels_run_by_launch_and_by_graph_on_whatever_thread() {
    let (_turn, fake) = driver();
    let before = fake.held();
    let card = card();
    assert_eq!(card.facts().name, "SIMT executor as a driver");
    assert_eq!(card.facts().multiprocessors, 4);
    {
        let bytes = Column::<u8>::mapped(&card, 256).unwrap();
        let lengths = Column::<u32>::mapped(&card, 1).unwrap();
        let mut hashes = Column::<u64>::mapped(&card, 1).unwrap();
        let sums = Column::<u32>::mapped(&card, 1).unwrap();
        hashes.push(0).unwrap();
        let params = DigestParams {
            key: HashKey { k0: 0x0706_0504_0302_0100, k1: 0x0f0e_0d0c_0b0a_0908 },
            bytes: bytes.at(),
            lengths: lengths.at(),
            hashes: hashes.at(),
            sums: sums.at(),
            n: 1,
            stride: 256,
        };
        // SipHash-1-3 of nothing, under the key 0, 1, … 15.
        let want = 0xabac_0158_050f_c4dc;
        let mut stream = card.stream().unwrap();
        // SAFETY: the columns outlive the stream's work, which ends below.
        unsafe { stream.launch(Kernel::Digest, 1, (&raw const params).cast()) }.unwrap();
        wait(&mut *stream);
        assert_eq!(std::mem::take(&mut hashes[0]), want);
        let on_another = || {
            // SAFETY: as above.
            let recorded = unsafe { stream.record(Kernel::Digest, 1, (&raw const params).cast()) };
            stream.replay(recorded.unwrap()).unwrap();
            wait(&mut *stream);
        };
        thread::scope(|scope| scope.spawn(on_another).join()).unwrap();
        assert_eq!(hashes[0], want);
    }
    drop(card);
    assert_eq!(fake.held(), before);
}

#[test]
fn memory_is_zeroed_copied_and_given_back() {
    let (_turn, fake) = driver();
    let before = fake.held();
    let card = card();
    let taken = CardMemory::new(&card, 10_000).unwrap();
    let mut seen = vec![1; 10_000];
    taken.read(&mut seen).unwrap();
    assert!(seen.iter().all(|byte| *byte == 0));
    let mut host = Column::<u8>::mapped(&card, 100).unwrap();
    for i in 0..100 {
        host.push(i).unwrap();
    }
    let mut stream = card.stream().unwrap();
    // SAFETY: both are there until the stream is idle.
    unsafe { stream.copy(taken.at().plus(5), host.at(), 100) }.unwrap();
    wait(&mut *stream);
    taken.read(&mut seen).unwrap();
    assert_eq!(seen[5..105], host[..]);
    assert!(matches!(CardMemory::new(&card, 1 << 40), Err(CardError::OutOfMemory { .. })));
    drop((taken, host, stream, card));
    assert_eq!(fake.held(), before);
}

#[test]
fn kernels_that_measure_do_what_they_say() {
    let (_turn, _fake) = driver();
    let card = card();
    let mut stream = card.stream().unwrap();
    // 64 items of 128 bytes, 96 of which are read, by eight lanes: each of them once.
    let mut items = Column::<u32>::mapped(&card, 64 * 32).unwrap();
    let mut copies = Column::<u32>::mapped(&card, 64 * 24).unwrap();
    for i in 0..64 * 32 {
        items.push(0x9e37_79b9_u32.wrapping_mul(i)).unwrap();
    }
    copies.set_len(64 * 24);
    let sum = CardMemory::new(&card, 4).unwrap();
    let params = MicroReadParams {
        from: items.at(),
        to: copies.at(),
        sum: sum.at(),
        items: 64,
        item_bytes: 96,
        stride: 128,
        to_stride: 96,
        lanes: 8,
        groups: 16,
        rounds: 4,
        ..MicroReadParams::default()
    };
    // SAFETY: the memory outlives the stream's work, which ends below.
    unsafe { stream.launch(Kernel::MicroRead, 1, (&raw const params).cast()) }.unwrap();
    wait(&mut *stream);
    let want: Vec<u32> = items.chunks(32).flat_map(|item| item[..24].to_vec()).collect();
    assert_eq!(copies[..], want);
    let words = want.chunks(4).map(|w| w[0] ^ w[1] ^ w[2] ^ w[3]);
    let want = words.fold(0, u32::wrapping_add);
    let seen = || {
        let mut seen = [0; 4];
        sum.read(&mut seen).unwrap();
        u32::from_le_bytes(seen)
    };
    assert_eq!(seen(), want);

    let empty = MicroEmptyParams { runs: sum.at() };
    for _ in 0..3 {
        // SAFETY: as above.
        unsafe { stream.launch(Kernel::MicroEmpty, 2, (&raw const empty).cast()) }.unwrap();
    }
    wait(&mut *stream);
    assert_eq!(seen(), want.wrapping_add(3));
}

#[test]
fn a_kernel_that_stays_talks_with_the_host() {
    let (_turn, _fake) = driver();
    let card = card();
    let mut stream = card.stream().unwrap();
    let words = HostMemory::mapped(&card, 128).unwrap();
    let params = MicroPingParams {
        bell: words.at(),
        answer: words.at().plus(64),
        answers: 100,
        patience: 20_000,
        ..MicroPingParams::default()
    };
    // SAFETY: the memory outlives the stream's work, which ends below.
    unsafe { stream.launch(Kernel::MicroPing, 1, (&raw const params).cast()) }.unwrap();
    // SAFETY: a word of zeroed memory that only atomics touch.
    let bell = unsafe { words.start().cast::<AtomicU32>().as_ref() };
    // SAFETY: inside the memory.
    let answer = unsafe { words.start().add(64) }.cast::<AtomicU32>();
    // SAFETY: as for the bell.
    let answer = unsafe { answer.as_ref() };
    let begun = Instant::now();
    for n in 1..=100 {
        assert!(!stream.is_idle().unwrap());
        bell.store(n, Ordering::Release);
        while answer.load(Ordering::Acquire) != n {
            assert!(begun.elapsed() < Duration::from_secs(60));
            thread::yield_now();
        }
    }
    wait(&mut *stream);
    // SAFETY: refused before it runs.
    let refused = unsafe { stream.launch(Kernel::MicroPing, 17, (&raw const params).cast()) };
    assert!(refused.unwrap_err().to_string().contains("needs 17 blocks at once"));
}

#[test]
fn what_the_driver_refuses_is_told_and_nothing_is_kept() {
    let (_turn, fake) = driver();
    let before = fake.held();
    let with = |call: &str, status, after, doing: &mut dyn FnMut() -> Option<CardError>| {
        fake.plan(call, status, after);
        let why = doing();
        fake.plan(call, 0, 0);
        let why = why.unwrap();
        assert!(!matches!(why, CardError::Sticky { .. }), "{why}");
        why.to_string()
    };
    let old = with("old", 1, 0, &mut || CudaCard::open(0).err());
    assert!(old.contains("need a driver for CUDA 12.8, and this one is for 12.4"), "{old}");
    assert!(CudaCard::open(2).unwrap_err().to_string().contains("cuDeviceGet: CUDA error 101"));
    let ptx = with("cuModuleLoadDataEx", 218, 2, &mut || CudaCard::open(0).err());
    assert!(ptx.contains("CUDA_ERROR_INVALID_PTX ptxas says no"), "{ptx}");
    for call in [
        "cuModuleGetFunction",
        "cuFuncLoad",
        "cuCtxGetStreamPriorityRange",
        "cuStreamCreateWithPriority",
    ] {
        let why = with(call, 500, 0, &mut || CudaCard::open(0).err());
        assert!(why.contains(call), "{why}");
    }
    // Requests go first; what may wait has a stream of the lowest priority.
    let opened = card();
    with("background", 500, 0, &mut || {
        drop(opened.stream().unwrap());
        opened.background().err()
    });
    with("cuStreamCreateWithPriority", 500, 0, &mut || {
        drop(opened.background().unwrap());
        opened.stream().err()
    });
    drop(opened);
    // Every kernel has run once, doing nothing, before anything that stays can hold it up.
    let all = i32::try_from(Kernel::ALL.len()).unwrap();
    let why = with("cuLaunchKernel", 1, all - 1, &mut || CudaCard::open(0).err());
    assert!(why.contains("cuLaunchKernel"), "{why}");
    fake.plan("cuLaunchKernel", 1, all);
    drop(CudaCard::open(0).unwrap());
    fake.plan("cuLaunchKernel", 0, 0);
    let card = card();
    for call in ["cuMemHostRegister", "cuMemHostGetDevicePointer"] {
        let why = with(call, 1, 0, &mut || HostMemory::mapped(&card, 4096).err());
        assert!(why.starts_with("4096 bytes of host memory cannot be mapped to the GPU"), "{why}");
    }
    with("cuMemsetD8Async", 1, 0, &mut || card.take(100).err());
    let params = MicroEmptyParams::default();
    for call in ["cuGraphCreate", "cuGraphAddKernelNode", "cuGraphInstantiate", "cuGraphUpload"] {
        let mut stream = card.stream().unwrap();
        with(call, 1, 0, &mut || {
            // SAFETY: never launched.
            unsafe { stream.record(Kernel::MicroEmpty, 1, (&raw const params).cast()) }.err()
        });
    }
    drop(card);
    assert_eq!(fake.held(), before);
}

/// A driver registers memory once in a process, for all devices.
#[test]
fn two_devices_share_the_memory_of_packets() {
    let (_turn, fake) = driver();
    let before = fake.held();
    let cards = [0, 1].map(|n| CudaCard::open(n).unwrap());
    let facts = cards.each_ref().map(|card| card.facts().pci.unwrap());
    assert_eq!(facts, ["0000:67:00.0", "0000:68:00.0"]);
    let layout = Layout::from_size_align(1 << 16, 4096).unwrap();
    // SAFETY: not of no bytes.
    let start = NonNull::new(unsafe { alloc_zeroed(layout) }).unwrap();
    let held = fake.held();
    // SAFETY: memory that stays until both have unmapped it.
    let [at, same] = cards.each_ref().map(|card| unsafe { card.map(start, 1 << 16) }.unwrap());
    assert_eq!((at, fake.held()), (same, held + 1));
    let [first, second] = cards;
    // SAFETY: mapped above, once by each; no kernel runs.
    assert!(unsafe { first.unmap(start) });
    drop(first);
    assert_eq!(fake.held(), held + 1, "the other still has it");
    // SAFETY: as above.
    assert!(unsafe { second.unmap(start) });
    drop(second);
    assert_eq!(fake.held(), before);
    // SAFETY: taken above with this layout, and mapped to no device any more.
    unsafe { dealloc(start.as_ptr(), layout) };
}

/// The driver made for the test is of compute capability 9.0.
#[test]
fn kernels_are_loaded_as_they_are_unless_the_driver_refuses_that() {
    let (_turn, fake) = driver();
    let before = fake.cubins();
    drop(card());
    assert_eq!(fake.cubins(), before + Kernel::ALL.len());
    // CUDA_ERROR_NO_BINARY_FOR_GPU, from the third on: the rest is compiled.
    fake.plan("cubin", 209, 2);
    let opened = CudaCard::open(0);
    fake.plan("cubin", 0, 0);
    drop(opened.unwrap());
    assert_eq!(fake.cubins(), before + Kernel::ALL.len() + 2);
}

#[test]
fn a_broken_context_ends_the_use_of_the_card_and_frees_nothing() {
    let (_turn, fake) = driver();
    for (status, name) in [(700, "CUDA_ERROR_ILLEGAL_ADDRESS"), (719, "CUDA_ERROR_LAUNCH_FAILED")] {
        let card = card();
        let before = fake.held();
        let taken = CardMemory::new(&card, 64).unwrap();
        let host = HostMemory::mapped(&card, 64).unwrap();
        let mut stream = card.stream().unwrap();
        fake.plan("cuStreamQuery", status, 0);
        let why = stream.is_idle().unwrap_err();
        assert!(matches!(&why, CardError::Sticky { why, .. } if why == name), "{why}");
        drop((stream, taken, host, card));
        fake.plan("cuStreamQuery", 0, 0);
        assert_eq!(fake.held(), before + 2);
    }
}

/// A kernel that stays for `patience_ms` after it was last rung, and its words. It answers three
/// times.
struct Ping {
    stream: Box<dyn Stream>,
    words: HostMemory,
}

impl Ping {
    fn new(card: &Arc<dyn Card>) -> Self {
        Self { stream: card.stream().unwrap(), words: HostMemory::mapped(card, 128).unwrap() }
    }

    fn start(&mut self, blocks: u32, patience_ms: u32) {
        self.try_start(blocks, patience_ms).unwrap();
    }

    fn try_start(&mut self, blocks: u32, patience_ms: u32) -> Result<(), CardError> {
        let params = MicroPingParams {
            bell: self.words.at(),
            answer: self.words.at().plus(64),
            answers: 3,
            patience: patience_ms,
            ..MicroPingParams::default()
        };
        // SAFETY: the memory goes after the stream, which waits for its work.
        unsafe { self.stream.launch(Kernel::MicroPing, blocks, (&raw const params).cast()) }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: inside the memory.
        let at = unsafe { self.words.start().add(offset) }.cast::<AtomicU32>();
        // SAFETY: a word of zeroed memory that only atomics touch.
        unsafe { at.as_ref() }
    }

    fn ring(&self, number: u32) {
        self.word(0).store(number, Ordering::Release);
    }

    fn answers(&self, number: u32, within: Duration) -> bool {
        let begun = Instant::now();
        while self.word(64).load(Ordering::Acquire) != number {
            if begun.elapsed() > within {
                return false;
            }
            thread::yield_now();
        }
        true
    }

    /// Rings until each block has answered often enough.
    fn end(&mut self) {
        let begun = Instant::now();
        for number in 8.. {
            if self.stream.is_idle().unwrap() {
                break;
            }
            assert!(begun.elapsed() < LONG);
            self.ring(number);
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// More than anything takes on a busy machine, and less than anybody wants to wait for nothing.
const LONG: Duration = Duration::from_secs(15);
const SHORT: Duration = Duration::from_millis(150);
/// Patience of kernels that are ended by their tests.
const PATIENT_MS: u32 = 60_000;

#[test]
fn memory_waits_for_kernels_that_run() {
    let (_turn, fake) = driver();
    let before = fake.held();
    {
        let card = card();
        let mut ping = Ping::new(&card);
        ping.start(1, 300);
        let begun = Instant::now();
        let memory = HostMemory::mapped(&card, 4096).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(300));
        wait(&mut *ping.stream);
        ping.start(1, 300);
        let begun = Instant::now();
        drop(memory);
        assert!(begun.elapsed() >= Duration::from_millis(300));
    }
    assert_eq!(fake.held(), before);
    // A kernel that does not end is an error, and not a test that hangs.
    fake.device(Device { wait_max: SHORT, ..Device::default() });
    let card = card();
    let mut ping = Ping::new(&card);
    ping.start(1, PATIENT_MS);
    let why = CardMemory::new(&card, 64).unwrap_err();
    assert!(matches!(&why, CardError::Sticky { why, .. } if why.contains("702")), "{why}");
}

/// A launch that needs more local memory than there is waits for kernels that run; each kernel ran
/// once when the device was opened, and so has what it needs.
#[test]
fn no_launch_waits_for_local_memory() {
    let (_turn, _fake) = driver();
    let card = card();
    let (mut ping, mut other) = (Ping::new(&card), card.stream().unwrap());
    let params = UpdateParams::default();
    ping.start(1, PATIENT_MS);
    let begun = Instant::now();
    // SAFETY: no changes: nothing is touched.
    unsafe { other.launch(Kernel::UpdateCuckoo, 1, (&raw const params).cast()) }.unwrap();
    wait(&mut *other);
    assert!(begun.elapsed() < LONG && !ping.stream.is_idle().unwrap());
    ping.end();
}

#[test]
fn streams_wait_for_each_other_in_the_same_queue() {
    let (_turn, fake) = driver();
    for (queues, n) in [(0, 9), (2, 3)] {
        fake.device(Device { queues, ..Device::default() });
        let card = card();
        let mut pings: Vec<Ping> = (0..n).map(|_| Ping::new(&card)).collect();
        for ping in &mut pings {
            ping.start(1, PATIENT_MS);
            ping.ring(1);
        }
        let (last, others) = pings.split_last_mut().unwrap();
        assert!(others.iter().all(|ping| ping.answers(1, LONG)));
        assert!(!last.answers(1, SHORT), "it is behind the first one");
        others[0].end();
        assert!(last.answers(1, LONG));
        pings[1..].iter_mut().for_each(Ping::end);
    }
}

/// Blocks that stay are launched only where all of them run at once, and never take every place.
#[test]
fn kernels_that_stay_share_the_places_for_blocks() {
    let (_turn, fake) = driver();
    fake.device(Device { multiprocessors: 1, ..Device::default() });
    let card = card();
    let (mut one, mut two, mut three) = (Ping::new(&card), Ping::new(&card), Ping::new(&card));
    let sum = CardMemory::new(&card, 4).unwrap();
    assert_eq!(card.resident_max(Kernel::MicroPing), 3);
    one.start(2, PATIENT_MS);
    assert_eq!(card.resident_max(Kernel::MicroPing), 1);
    let refused = two.try_start(2, PATIENT_MS).unwrap_err().to_string();
    assert!(refused.contains("needs 2 blocks at once, and there is room for 1"), "{refused}");
    two.start(1, PATIENT_MS);
    assert_eq!(card.resident_max(Kernel::MicroPing), 0);
    let empty = MicroEmptyParams { runs: sum.at() };
    // SAFETY: the memory outlives the stream's work, which ends below.
    unsafe { three.stream.launch(Kernel::MicroEmpty, 1, (&raw const empty).cast()) }.unwrap();
    wait(&mut *three.stream);
    one.end();
    assert_eq!(card.resident_max(Kernel::MicroPing), 2);
    two.end();
}

#[test]
fn a_device_that_stops_stops_blocks_launches_and_copies() {
    let (_turn, fake) = driver();
    let card = card();
    let (mut ping, mut other) = (Ping::new(&card), card.stream().unwrap());
    let taken = CardMemory::new(&card, 64).unwrap();
    let host = Column::<u8>::mapped(&card, 64).unwrap();
    ping.start(1, PATIENT_MS);
    ping.ring(1);
    assert!(ping.answers(1, LONG));
    for pause in [2, 15, 32].map(Duration::from_millis) {
        let begun = Instant::now();
        fake.stall(pause);
        // SAFETY: both are there until the stream is idle.
        unsafe { other.copy(taken.at(), host.at(), 64) }.unwrap();
        wait(&mut *other);
        assert!(begun.elapsed() >= pause);
    }
    fake.stall(Duration::MAX);
    let empty = MicroEmptyParams { runs: taken.at() };
    // SAFETY: the memory outlives the stream's work, which ends below.
    unsafe { other.launch(Kernel::MicroEmpty, 1, (&raw const empty).cast()) }.unwrap();
    ping.ring(2);
    assert!(!ping.answers(2, SHORT) && !other.is_idle().unwrap());
    fake.stall(Duration::ZERO);
    assert!(ping.answers(2, LONG));
    wait(&mut *other);
    ping.end();
}
