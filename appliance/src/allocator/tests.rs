use super::*;
use std::sync::atomic::AtomicUsize;

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

/// The first bytes of an allocation, each its own number.
fn number(memory: *mut u8, len: usize) {
    // SAFETY: the tests below allocated that much.
    let bytes = unsafe { std::slice::from_raw_parts_mut(memory, len) };
    bytes.iter_mut().enumerate().for_each(|(n, byte)| *byte = n as u8);
}

fn is_numbered(memory: *mut u8, len: usize) -> bool {
    // SAFETY: the tests below allocated and wrote that much.
    let bytes = unsafe { std::slice::from_raw_parts(memory, len) };
    bytes.iter().enumerate().all(|(n, &byte)| byte == n as u8)
}

#[test]
fn the_region_serves_when_the_system_fails_and_until_it_recovers() {
    static GUARDED: Guarded<Fails> = guarded(false);
    let guarded = &GUARDED;
    // SAFETY: sizes are not 0, and each is freed once with its layout.
    unsafe {
        let before = guarded.alloc(layout(100));
        assert!(!before.is_null() && !guarded.region.contains(before) && !guarded.is_short());
        guarded.system.now.store(true, Ordering::Relaxed);
        assert!(guarded.alloc(layout(SERVED_MAX + 1)).is_null());
        assert!(!guarded.is_short(), "a large one can be refused");
        let within = guarded.alloc(layout(100));
        assert!(guarded.region.contains(within) && guarded.is_short());
        assert!(!guarded.recover() && guarded.is_short(), "the system has nothing");
        number(within, 100);
        guarded.dealloc(within, layout(100));
        let zeroed = guarded.alloc_zeroed(layout(100));
        assert_eq!((zeroed, std::slice::from_raw_parts(zeroed, 100)), (within, &[0; 100][..]));
        guarded.dealloc(zeroed, layout(100));
        guarded.system.now.store(false, Ordering::Relaxed);
        assert!(guarded.recover() && !guarded.is_short());
        guarded.dealloc(before, layout(100));
    }
    assert_eq!(guarded.system.live.load(Ordering::Relaxed), 0, "the probe leaves nothing");
}

#[test]
fn it_does_not_recover_while_much_of_the_region_is_in_use() {
    static GUARDED: Guarded<Fails> = guarded(true);
    let guarded = &GUARDED;
    // SAFETY: sizes are not 0, and each is freed once with its layout.
    unsafe {
        let large: Vec<_> = (0..3).map(|_| guarded.alloc(layout(SERVED_MAX))).collect();
        guarded.system.now.store(false, Ordering::Relaxed);
        assert!(!guarded.recover() && guarded.is_short());
        guarded.dealloc(large[0], layout(SERVED_MAX));
        assert!(guarded.recover() && !guarded.is_short());
    }
}

#[test]
fn contents_are_kept_wherever_an_allocation_moves() {
    static GUARDED: Guarded<Fails> = guarded(false);
    let guarded = &GUARDED;
    // SAFETY: sizes are not 0, and each has its layout.
    unsafe {
        let first = guarded.alloc(layout(5000));
        number(first, 5000);
        guarded.system.now.store(true, Ordering::Relaxed);
        let second = guarded.realloc(first, layout(5000), 20_000);
        assert!(guarded.region.contains(second) && is_numbered(second, 5000));
        assert_eq!(guarded.system.live.load(Ordering::Relaxed), 0);
        let third = guarded.realloc(second, layout(20_000), 3000);
        assert!(guarded.region.contains(third) && third != second && is_numbered(third, 3000));
        assert!(guarded.realloc(third, layout(3000), SERVED_MAX + 1).is_null());
        assert!(is_numbered(third, 3000), "one that failed has changed nothing");
        guarded.system.now.store(false, Ordering::Relaxed);
        let fourth = guarded.realloc(third, layout(3000), 4000);
        assert!(!guarded.region.contains(fourth) && is_numbered(fourth, 3000));
        guarded.dealloc(fourth, layout(4000));
    }
    assert!(guarded.region.is_free(2));
    assert_eq!(guarded.system.live.load(Ordering::Relaxed), 0);
}

#[test]
fn threads_keep_what_they_have_while_the_system_fails_now_and_then() {
    static GUARDED: Guarded<Fails> = guarded(false);
    let guarded = &GUARDED;
    std::thread::scope(|scope| {
        for seed in 1..=4usize {
            scope.spawn(move || {
                for turn in 0..3000 {
                    guarded.system.now.store((turn * seed) % 3 == 0, Ordering::Relaxed);
                    let (mut len, grown) = (1 + turn % 900, 1 + turn * seed % 9000);
                    // SAFETY: sizes are not 0, and each has its layout.
                    unsafe {
                        let mut memory = guarded.alloc(layout(len));
                        assert!(!memory.is_null());
                        number(memory, len);
                        for wanted in [grown, 1 + grown / 3, grown + 700] {
                            memory = guarded.realloc(memory, layout(len), wanted);
                            assert!(!memory.is_null() && is_numbered(memory, len.min(wanted)));
                            len = wanted;
                            number(memory, len);
                        }
                        guarded.dealloc(memory, layout(len));
                    }
                }
            });
        }
    });
    assert_eq!(guarded.system.live.load(Ordering::Relaxed), 0);
}
