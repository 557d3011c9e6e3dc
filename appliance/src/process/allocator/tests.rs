use super::*;
use std::cell::Cell;
use std::sync::atomic::AtomicUsize;

thread_local! {
    /// Memory has run out for this thread, whatever there is.
    pub(crate) static IS_SHORT: Cell<bool> = const { Cell::new(false) };
}

/// The system's, as long as it works.
#[derive(Debug)]
struct Fails {
    now: AtomicBool,
    live: AtomicUsize,
}

impl Fails {
    fn or(&self, allocate: impl Fn() -> *mut u8) -> *mut u8 {
        match self.now.load(Ordering::Relaxed) {
            true => null_mut(),
            false => allocate(),
        }
    }
}

// SAFETY: every call is the system's, or fails and changes nothing.
unsafe impl GlobalAlloc for Fails {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        let memory = self.or(|| unsafe { System.alloc(layout) });
        self.live.fetch_add(usize::from(!memory.is_null()), Ordering::Relaxed);
        memory
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: as for `alloc`.
        self.or(|| unsafe { System.realloc(old, layout, bytes) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.live.fetch_sub(1, Ordering::Relaxed);
        // SAFETY: as for `alloc`.
        unsafe { System.dealloc(memory, layout) };
    }
}

/// Not on a stack: its region is large.
const fn guarded(fails: bool) -> Guarded<Fails> {
    Guarded::new(Fails { now: AtomicBool::new(fails), live: AtomicUsize::new(0) })
}

fn layout(size: usize) -> Layout {
    Layout::from_size_align(size, 8).unwrap()
}

/// One allocation.
struct Memory {
    from: &'static Guarded<Fails>,
    at: *mut u8,
    len: usize,
}

impl Memory {
    fn new(from: &'static Guarded<Fails>, len: usize) -> Self {
        // SAFETY: no test asks for nothing.
        let at = unsafe { from.alloc(layout(len)) };
        Self { from, at, len }
    }

    fn zeroed(from: &'static Guarded<Fails>, len: usize) -> Self {
        // SAFETY: as for `new`.
        let at = unsafe { from.alloc_zeroed(layout(len)) };
        Self { from, at, len }
    }

    /// False, and all is as it was, when there is no room.
    fn resize(&mut self, len: usize) -> bool {
        // SAFETY: it is live, and this is its layout.
        let at = unsafe { self.from.realloc(self.at, layout(self.len), len) };
        if !at.is_null() {
            (self.at, self.len) = (at, len);
        }
        !at.is_null()
    }

    fn is_of_region(&self) -> bool {
        self.from.region.contains(self.at)
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: live, so long, and written, by `number` or with zeros.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }

    /// Gives each byte its own number.
    fn number(&mut self) {
        // SAFETY: live, and so long.
        unsafe { self.at.write_bytes(0, self.len) };
        self.bytes().iter_mut().zip((0..=250).cycle()).for_each(|(byte, n)| *byte = n);
    }

    /// Whether the first bytes have their numbers.
    fn is_numbered(&mut self, len: usize) -> bool {
        // SAFETY: live, at least so long, and `number` wrote these.
        let bytes = unsafe { std::slice::from_raw_parts(self.at, len) };
        bytes.iter().zip((0..=250).cycle()).all(|(&byte, n)| byte == n)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if !self.at.is_null() {
            // SAFETY: allocated there with this layout, and used no more.
            unsafe { self.from.dealloc(self.at, layout(self.len)) };
        }
    }
}

fn live(guarded: &Guarded<Fails>) -> usize {
    guarded.system.live.load(Ordering::Relaxed)
}

#[test]
fn the_region_serves_when_the_system_fails_and_until_it_recovers() {
    static GUARDED: Guarded<Fails> = guarded(false);
    let guarded = &GUARDED;
    let before = Memory::new(guarded, 100);
    assert!(!before.at.is_null() && !before.is_of_region() && !guarded.is_short());
    guarded.system.now.store(true, Ordering::Relaxed);
    assert!(Memory::new(guarded, SERVED_MAX + 1).at.is_null());
    assert!(!guarded.is_short(), "a large one can be refused");
    let mut within = Memory::new(guarded, 100);
    assert!(within.is_of_region() && guarded.is_short());
    assert!(!guarded.recover() && guarded.is_short(), "the system has nothing");
    within.number();
    let at = within.at;
    drop(within);
    let mut zeroed = Memory::zeroed(guarded, 100);
    assert_eq!((zeroed.at, &zeroed.bytes()[..]), (at, &[0; 100][..]));
    guarded.system.now.store(false, Ordering::Relaxed);
    assert!(guarded.recover() && !guarded.is_short());
    drop((before, zeroed));
    assert_eq!(live(guarded), 0, "the probe leaves nothing");
}

#[test]
fn it_does_not_recover_while_much_of_the_region_is_in_use() {
    static GUARDED: Guarded<Fails> = guarded(true);
    let mut large: Vec<_> = (0..3).map(|_| Memory::new(&GUARDED, SERVED_MAX)).collect();
    assert!(large.iter().all(Memory::is_of_region));
    GUARDED.system.now.store(false, Ordering::Relaxed);
    assert!(!GUARDED.recover() && GUARDED.is_short());
    large.pop();
    assert!(GUARDED.recover() && !GUARDED.is_short());
}

#[test]
fn contents_are_kept_wherever_an_allocation_moves() {
    static GUARDED: Guarded<Fails> = guarded(false);
    let mut memory = Memory::new(&GUARDED, 5000);
    memory.number();
    GUARDED.system.now.store(true, Ordering::Relaxed);
    assert!(memory.resize(20_000) && memory.is_of_region() && memory.is_numbered(5000));
    assert_eq!(live(&GUARDED), 0);
    assert!(memory.resize(3000) && memory.is_of_region() && memory.is_numbered(3000));
    assert!(!memory.resize(SERVED_MAX + 1));
    assert!(memory.is_numbered(3000), "one that failed has changed nothing");
    GUARDED.system.now.store(false, Ordering::Relaxed);
    assert!(memory.resize(4000) && !memory.is_of_region() && memory.is_numbered(3000));
    drop(memory);
    assert!(GUARDED.region.is_free(4));
    assert_eq!(live(&GUARDED), 0);
}

#[test]
fn threads_keep_what_they_have_while_the_system_fails_now_and_then() {
    static GUARDED: Guarded<Fails> = guarded(false);
    std::thread::scope(|scope| {
        for seed in 1..=4usize {
            scope.spawn(move || {
                for turn in 0..3000 {
                    GUARDED.system.now.store((turn * seed) % 3 == 0, Ordering::Relaxed);
                    let grown = 1 + turn * seed % 9000;
                    let mut memory = Memory::new(&GUARDED, 1 + turn % 900);
                    assert!(!memory.at.is_null());
                    for wanted in [grown, 1 + grown / 3, grown + 700] {
                        memory.number();
                        let kept = memory.len.min(wanted);
                        assert!(memory.resize(wanted) && memory.is_numbered(kept));
                    }
                }
            });
        }
    });
    assert!(GUARDED.region.is_free(4));
    assert_eq!(live(&GUARDED), 0);
}
