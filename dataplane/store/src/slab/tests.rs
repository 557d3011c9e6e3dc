use super::*;
use crate::layout::PAGE_BYTES;
use crate::sizes::size_classes;
use driver_shim::Pages;

fn slabs(n_pages: usize) -> Slabs {
    let arena = Arena::new(n_pages * PAGE_BYTES, Pages::Small, &[]).unwrap();
    let sizes = size_classes(1.25, 0, 1 << 20).unwrap();
    Slabs::new(arena, n_pages, sizes, false, false)
}

#[test]
fn the_smallest_class_that_holds_it() {
    let s = slabs(2);
    for bytes in [1, 64, 65, 128, 129, 1000, 4096, 500_000, 1 << 20] {
        let id = s.class_for(bytes).unwrap();
        assert!(s.size(id).bytes() >= bytes);
        assert!(id.0 == 0 || s.size(ClassId(id.0 - 1)).bytes() < bytes);
    }
    assert_eq!(s.class_for((1 << 20) + 1), None);
}

#[test]
fn chunks_are_found_once_carved_and_not_before() {
    let (s, e) = (slabs(2), Epochs::new(1));
    let mut c = s.lock(ClassId(2));
    assert_eq!(s.class_of(Location(0)), None);
    assert!(s.grow(&mut c, &e, 0));
    let all: Vec<Location> = std::iter::from_fn(|| s.pop(&mut c, 1)).collect();
    assert_eq!(all.len(), PAGE_UNITS as usize / 3);
    assert_eq!((s.spare(&c), c.used), (0, c.chunks()));
    let mut units: Vec<u32> = all.iter().map(|l| l.0).collect();
    units.sort_unstable();
    assert!(units.iter().enumerate().all(|(i, u)| *u as usize == 3 * i), "each once");
    for n in 0..PAGE_UNITS {
        let there = n.is_multiple_of(3) && n < c.chunks() * 3;
        assert_eq!(s.class_of(Location(n)), there.then_some(ClassId(2)));
    }
    assert_eq!(s.class_of(Location(PAGE_UNITS)), None, "the page after");
}

/// A reader that read the page word before may look at the page a moment later.
#[test]
fn a_drained_page_waits_for_its_epoch() {
    let (s, e) = (slabs(1), Epochs::new(1));
    let mut a = s.lock(ClassId(0));
    assert!(s.grow(&mut a, &e, 0));
    let loc = s.pop(&mut a, 64).unwrap();
    let page = s.start_drain(&mut a).unwrap();
    assert_eq!(s.pop(&mut a, 64), None, "a draining page gives nothing");
    assert!(!s.finish_drain(&mut a, page, &e), "one chunk is out");
    drop(a);
    // SAFETY: popped above, and not used again.
    unsafe { s.give_back(loc, 64) };
    let reader = e.join().unwrap();
    e.pin(&reader);
    let (mut a, mut b) = (s.lock(ClassId(0)), s.lock(ClassId(9)));
    assert!(s.finish_drain(&mut a, page, &e));
    assert_eq!((a.pages, a.used, s.spare(&a)), (0, 0, 0));
    assert_eq!(s.class_of(loc), None);
    assert!(!s.grow(&mut b, &e, 0));
    e.unpin(&reader);
    assert!(s.grow(&mut b, &e, 0));
    assert_eq!(s.pop(&mut b, 64).map(|l| l.0), Some(0));
}
