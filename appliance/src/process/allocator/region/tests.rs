use super::*;
use proptest::prelude::*;
use std::sync::Barrier;

type Few = Zone<4096, 3>;

/// What a live allocation holds, to be found again.
struct Held {
    memory: *mut u8,
    layout: Layout,
    mark: u8,
}

impl Held {
    fn new<const B: usize, const C: usize>(
        zone: &Zone<B, C>,
        layout: Layout,
        mark: u8,
    ) -> Option<Self> {
        let memory = zone.alloc(layout);
        if memory.is_null() {
            return None;
        }
        assert_eq!(memory.addr() % layout.align(), 0);
        // SAFETY: just allocated, and so long.
        unsafe { memory.write_bytes(mark, layout.size()) };
        Some(Self { memory, layout, mark })
    }

    fn free<const B: usize, const C: usize>(self, zone: &Zone<B, C>) {
        // SAFETY: live, and so long.
        let bytes = unsafe { std::slice::from_raw_parts(self.memory, self.layout.size()) };
        assert!(bytes.iter().all(|&byte| byte == self.mark), "another owner wrote to it");
        // SAFETY: allocated there with this layout, and used no more.
        unsafe { zone.dealloc(self.memory, self.layout) };
    }

    fn range(&self) -> std::ops::Range<usize> {
        self.memory.addr()..self.memory.addr() + self.layout.size()
    }
}

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

proptest! {
    /// Against a list of what is live: no overlap, aligned, within the blocks, contents kept; and
    /// all of it is there again when nothing is live.
    #[test]
    fn what_is_live_is_apart(
        steps in prop::collection::vec((any::<bool>(), 1usize..3000, 0u32..13, any::<prop::sample::Index>()), 1..300)
    ) {
        let zone = Box::new(Few::new());
        let all = zone.memory.get().addr()..zone.memory.get().addr() + 3 * 4096;
        let mut live: Vec<Held> = Vec::new();
        for (n, (free, size, shift, which)) in steps.into_iter().enumerate() {
            if free && !live.is_empty() {
                live.swap_remove(which.index(live.len())).free(&zone);
            } else if let Some(held) = Held::new(&zone, layout(size, 1 << shift), (n % 251).try_into().unwrap()) {
                let range = held.range();
                prop_assert!(all.start <= range.start && range.end <= all.end);
                for other in live.iter().map(Held::range) {
                    prop_assert!(range.end <= other.start || other.end <= range.start);
                }
                live.push(held);
            } else {
                prop_assert!(!live.is_empty(), "nothing is live, and it does not fit");
            }
        }
        live.into_iter().for_each(|held| held.free(&zone));
        prop_assert!(zone.blocks.iter().all(|block| block.load(Ordering::Relaxed) == 0));
    }
}

#[test]
fn threads_never_get_the_same_bytes() {
    const THREADS: u8 = 4;
    const EACH: usize = 10_000;
    let zone = Box::new(Few::new());
    let begin = Barrier::new(THREADS.into());
    let (zone, begin) = (&*zone, &begin);
    let served: usize = std::thread::scope(|scope| {
        let threads: Vec<_> = (1..=THREADS)
            .map(|mark| {
                scope.spawn(move || {
                    let (mut held, mut served, mut chance) = (Vec::new(), 0, u64::from(mark));
                    begin.wait();
                    // A thread that loses its CPU holds its blocks meanwhile: the others wait for it.
                    for _ in 0..1000 * EACH {
                        if served == EACH {
                            break;
                        }
                        chance = chance.wrapping_mul(6364136223846793005).wrapping_add(1);
                        let size = 1 + (chance >> 33) as usize % 700;
                        if let Some(one) = Held::new(zone, layout(size, 1 << (chance >> 60)), mark)
                        {
                            served += 1;
                            held.push(one);
                        } else {
                            std::thread::yield_now();
                        }
                        let keep = (chance >> 40) as usize % 4;
                        while held.len() > keep {
                            held.swap_remove((chance >> 50) as usize % held.len()).free(zone);
                        }
                    }
                    held.into_iter().for_each(|one| one.free(zone));
                    served
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(served, EACH * usize::from(THREADS));
    assert!(zone.blocks.iter().all(|block| block.load(Ordering::Relaxed) == 0));
}

#[test]
fn one_that_stays_holds_up_its_own_block_alone() {
    let zone = Box::new(Few::new());
    let stays = Held::new(&zone, layout(100, 8), 1).unwrap();
    for _ in 0..10_000 {
        let (one, other) =
            (Held::new(&zone, layout(2000, 8), 2), Held::new(&zone, layout(3000, 8), 3));
        one.unwrap().free(&zone);
        other.unwrap().free(&zone);
    }
    assert!(zone.is_free(2));
    let second = Held::new(&zone, layout(4096, 4096), 4).unwrap();
    assert!(!zone.is_free(2));
    stays.free(&zone);
    second.free(&zone);
}

#[test]
fn what_does_not_fit_is_refused() {
    static REGION: Region = Region::new();
    let region = &REGION;
    assert!(region.alloc(layout((1 << 20) + 1, 8)).is_null());
    assert!(region.alloc(layout(8, 8192)).is_null());
    assert!(!region.contains(std::ptr::from_ref(&0).cast()));
    let sizes = [1, SMALL_MAX, SMALL_MAX + 1, 1 << 20];
    let all: Vec<_> = sizes.iter().map(|&n| (region.alloc(layout(n, 64)), layout(n, 64))).collect();
    assert!(all.iter().all(|(memory, _)| !memory.is_null() && region.contains(*memory)));
    // SAFETY: allocated above with these layouts.
    all.into_iter().for_each(|(memory, layout)| unsafe { region.dealloc(memory, layout) });
    let large: Vec<_> = (0..4).map(|_| region.alloc(layout(1 << 20, 1))).collect();
    assert!(large.iter().all(|memory| !memory.is_null()), "all of it is free again");
    assert!(region.alloc(layout(1 << 20, 1)).is_null());
    assert!(!region.is_free(2));
}
