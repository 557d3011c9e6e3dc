//! A driver made for the test, in this process: the SIMT executor behind the functions of libcuda
//! (`gpu/simt/driver.cc`), and what a test may ask of it.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

/// What the test may ask of its driver.
#[derive(Clone, Copy)]
pub(crate) struct Fake {
    plan: Plan,
    held: Held,
    hostile: Hostile,
    stall: Stall,
    cubins: Cubins,
}

type Plan = unsafe extern "C" fn(*const c_char, c_int, c_int);
type Held = unsafe extern "C" fn() -> usize;
type Hostile = unsafe extern "C" fn(c_int, u32, u32, u64);
type Stall = unsafe extern "C" fn(u64);
type Cubins = unsafe extern "C" fn() -> c_int;

/// How the driver makes its users wait.
#[derive(Clone, Copy)]
pub(crate) struct Device {
    /// 0: as many as `CUDA_DEVICE_MAX_CONNECTIONS` says, or 8.
    pub(crate) queues: u32,
    /// Four blocks run on each.
    pub(crate) multiprocessors: u32,
    /// Longest wait for kernels to end, before the call fails.
    pub(crate) wait_max: Duration,
}

impl Default for Device {
    fn default() -> Self {
        Self { queues: 0, multiprocessors: 4, wait_max: Duration::from_secs(20) }
    }
}

impl Fake {
    /// `call` answers `status` from its `after`-th time on; 0 ends that.
    pub(crate) fn plan(self, call: &str, status: c_int, after: c_int) {
        let call = CString::new(call).unwrap();
        // SAFETY: a string with a zero at its end, and two numbers.
        unsafe { (self.plan)(call.as_ptr(), status, after) }
    }

    /// Pieces of memory taken or registered.
    pub(crate) fn held(self) -> usize {
        // SAFETY: no arguments.
        unsafe { (self.held)() }
    }

    /// Kernels loaded as they are, not compiled.
    pub(crate) fn cubins(self) -> usize {
        // SAFETY: no arguments.
        usize::try_from(unsafe { (self.cubins)() }).unwrap()
    }

    /// From the next device that is opened on.
    pub(crate) fn device(self, how: Device) {
        let ms = u64::try_from(how.wait_max.as_millis()).unwrap();
        // SAFETY: plain numbers.
        unsafe { (self.hostile)(1, how.queues, how.multiprocessors, ms) }
    }

    /// Stops the device for so long from now on; [`Duration::MAX`] is for ever.
    pub(crate) fn stall(self, pause: Duration) {
        let ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX);
        // SAFETY: a plain number.
        unsafe { (self.stall)(ms) }
    }
}

/// The driver, for one test at a time: its state is the process's.
pub(crate) fn driver() -> (MutexGuard<'static, ()>, Fake) {
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
        let hostile = unsafe { dlsym(library, c"gnomon_driver_hostile".as_ptr()) };
        // SAFETY: as above.
        let stall = unsafe { dlsym(library, c"gnomon_driver_stall".as_ptr()) };
        // SAFETY: as above.
        let cubins = unsafe { dlsym(library, c"gnomon_driver_cubins".as_ptr()) };
        assert!(![plan, held, hostile, stall, cubins].contains(&std::ptr::null_mut()));
        Fake {
            // SAFETY: a function of that type in driver.cc.
            plan: unsafe { std::mem::transmute::<*mut c_void, Plan>(plan) },
            // SAFETY: as above.
            held: unsafe { std::mem::transmute::<*mut c_void, Held>(held) },
            // SAFETY: as above.
            hostile: unsafe { std::mem::transmute::<*mut c_void, Hostile>(hostile) },
            // SAFETY: as above.
            stall: unsafe { std::mem::transmute::<*mut c_void, Stall>(stall) },
            // SAFETY: as above.
            cubins: unsafe { std::mem::transmute::<*mut c_void, Cubins>(cubins) },
        }
    });
    // Of the test before.
    fake.device(Device::default());
    fake.stall(Duration::ZERO);
    (turn, *fake)
}
