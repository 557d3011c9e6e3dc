use super::live::ACCESS_GRAIN_SECONDS;
use super::*;
use crate::item_flags::Marks;
use crate::new_item::NewItem;

#[test]
fn what_is_written_is_read() {
    let arena = Arena::new(1 << 21, Pages::Small, &[]).unwrap();
    let value = [Value::Whole(b"hello "), Value::Whole(b"world")];
    let new = NewItem {
        key: b"k1",
        flags: 9,
        expiry: 77,
        value,
        sums: [None; 2],
        marks: Marks::default(),
        own_cas: None,
    };
    // SAFETY: unit 3 of an arena that no other code uses, and the item is small.
    let chunk = unsafe { arena.chunk(Location(3)) };
    // SAFETY: as above.
    unsafe { chunk.write(&new, 5, 42) };
    assert!(chunk.item().is_none(), "not linked yet");
    chunk.set_state(State::Linked);
    let item = chunk.item().unwrap();
    assert_eq!(item.key(), b"k1");
    assert_eq!(item.value().whole(), Some(&b"hello world"[..]));
    assert_eq!((item.flags(), item.cas(), item.expiry()), (9, 5, 77));
    assert_eq!(item.value_sum(), checksum::sum(b"hello world"));
    assert_eq!(item.len_bytes(), 32 + 2 + 11 + 2);
    assert!(!item.is_visited() && !item.was_fetched());
    assert_eq!(item.accessed(), 42);
    item.mark_visited(43);
    assert!(item.is_visited() && item.accessed() == 42, "a minute is the grain");
    item.mark_visited(42 + ACCESS_GRAIN_SECONDS);
    assert_eq!(item.accessed(), 42 + ACCESS_GRAIN_SECONDS);
    item.clear_visited();
    assert!(!item.is_visited() && item.was_fetched());
    assert!(!item.is_won());
    item.mark_won();
    assert!(item.is_won() && !item.is_stale() && !item.has_base64_key());
}
