//! A CUDA device as a card, over a driver made for the test: the SIMT executor behind the
//! functions of libcuda (`gpu/simt/driver.cc`). What a real driver is asked there, it is asked here.
#![cfg(feature = "cuda")]
#![allow(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "tests")]

use gpu::card::{Card, CardError, CardMemory, Kernel, Stream};
use gpu::cuda::CudaCard;
use gpu::host::{Column, HostMemory};
use gpu::params::{DigestParams, HashKey, MicroEmptyParams, MicroPingParams, MicroReadParams};
use std::ffi::{CString, c_char, c_int, c_void};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// What the test may ask of its driver.
#[derive(Clone, Copy)]
struct Fake {
    plan: Plan,
    held: Held,
    cubins: Cubins,
}

type Plan = unsafe extern "C" fn(*const c_char, c_int, c_int);
type Held = unsafe extern "C" fn() -> usize;
type Cubins = unsafe extern "C" fn() -> c_int;

impl Fake {
    /// `call` answers `status` from its `after`-th time on; 0 ends that.
    fn plan(self, call: &str, status: c_int, after: c_int) {
        let call = CString::new(call).unwrap();
        // SAFETY: a string with a zero at its end, and two numbers.
        unsafe { (self.plan)(call.as_ptr(), status, after) }
    }

    /// Pieces of memory taken or registered.
    fn held(self) -> usize {
        // SAFETY: no arguments.
        unsafe { (self.held)() }
    }

    /// Kernels loaded as they are, not compiled.
    fn cubins(self) -> usize {
        // SAFETY: no arguments.
        usize::try_from(unsafe { (self.cubins)() }).unwrap()
    }
}

/// The driver, for one test at a time: its state is the process's.
fn driver() -> (MutexGuard<'static, ()>, Fake) {
    static FAKE: OnceLock<Fake> = OnceLock::new();
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let fake = FAKE.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("gnomon-driver-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/simt/make_driver.sh");
        assert!(Command::new(script).arg(&dir).status().unwrap().success());
        let path = CString::new(dir.join("libcuda.so").to_str().unwrap()).unwrap();
        // By its path, now and for all (RTLD_NOW | RTLD_GLOBAL): whoever asks for a library of its
        // name from then on gets it.
        // SAFETY: a path with a zero at its end; the library's initialisers only make its maps.
        let library = unsafe { dlopen(path.as_ptr(), 2 | 0x100) };
        assert!(!library.is_null());
        std::fs::remove_dir_all(&dir).unwrap();
        // SAFETY: a loaded library, and a name with a zero at its end.
        let plan = unsafe { dlsym(library, c"gnomon_driver_plan".as_ptr()) };
        // SAFETY: as above.
        let held = unsafe { dlsym(library, c"gnomon_driver_held".as_ptr()) };
        // SAFETY: as above.
        let cubins = unsafe { dlsym(library, c"gnomon_driver_cubins".as_ptr()) };
        assert!(!plan.is_null() && !held.is_null() && !cubins.is_null());
        Fake {
            // SAFETY: a function of that type in driver.cc.
            plan: unsafe { std::mem::transmute::<*mut c_void, Plan>(plan) },
            // SAFETY: as above.
            held: unsafe { std::mem::transmute::<*mut c_void, Held>(held) },
            // SAFETY: as above.
            cubins: unsafe { std::mem::transmute::<*mut c_void, Cubins>(cubins) },
        }
    });
    (turn, *fake)
}

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
    assert!(CudaCard::open(1).unwrap_err().to_string().contains("cuDeviceGet: CUDA error 101"));
    let ptx = with("cuModuleLoadDataEx", 218, 2, &mut || CudaCard::open(0).err());
    assert!(ptx.contains("CUDA_ERROR_INVALID_PTX ptxas says no"), "{ptx}");
    for call in ["cuModuleGetFunction", "cuFuncLoad", "cuStreamCreate"] {
        let why = with(call, 500, 0, &mut || CudaCard::open(0).err());
        assert!(why.contains(call), "{why}");
    }
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
        assert!(why.starts_with("4096 bytes of host memory cannot be mapped to the card"), "{why}");
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
    assert!(card.may_free());
    drop(card);
    assert_eq!(fake.held(), before);
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
        assert!(!card.may_free());
        drop((stream, taken, host, card));
        fake.plan("cuStreamQuery", 0, 0);
        assert_eq!(fake.held(), before + 2);
    }
}
