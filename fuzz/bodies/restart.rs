//! A memory file with anything in it is refused, discarded, or taken up without a wrong value.

use dataplane::protocol;
use dataplane::store::restart::TakenUp;
use dataplane::store::verbs::{get, store as set};
use dataplane::store::{Location, Store, StoreConfig};
use driver_shim::Pages;
use std::sync::OnceLock;

#[path = "../../dataplane/tests/temp_file/mod.rs"]
mod temp_file;
pub(crate) use temp_file::TempFile;

/// The layout's numbers, as `dataplane/src/store/restart/format.rs` has them.
pub(crate) const LEAD_BYTES: usize = 2 << 20;
pub(crate) const PAGE_BYTES: usize = 2 << 20;
pub(crate) const ENTRIES: usize = 76;
const ENTRY_BYTES: usize = 8;
const UNIT_BYTES: usize = 64;

/// Two pages, and chunks of powers of two, so that [`reseal`] knows their sizes.
pub(crate) fn config() -> StoreConfig {
    StoreConfig {
        memory_bytes: 2 * PAGE_BYTES,
        growth_factor: 2.0,
        pages: Pages::Small,
        ..StoreConfig::default()
    }
}

const ITEMS: &[(&[u8], usize, i64)] = &[
    (b"a", 0, 0),
    (b"another", 3, 1_000_000),
    (b"k", 20, 0),
    (b"large", 3_000, 0),
    (b"expires", 17, 2_000_000),
    (b"tail", 26, 0),
];

fn value(key: &[u8], len: usize) -> Vec<u8> {
    key.iter().copied().cycle().take(len).collect()
}

/// A closed file, whole.
pub(crate) fn pristine() -> &'static [u8] {
    static IMAGE: OnceLock<Vec<u8>> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let file = TempFile::new();
        let (store, taken) = Store::open(config(), &file.0).expect("a new file");
        assert_eq!(taken, TakenUp::New);
        let mut session = store.session().expect("a session");
        for (key, len, exptime) in ITEMS {
            let value = value(key, *len);
            let stored = set(&mut session, &protocol::Store::set(key, 5, *exptime, &value));
            assert!(stored.is_ok());
        }
        drop(session);
        assert_eq!(store.close().expect("closes"), Some(ITEMS.len() as u64));
        std::fs::read(&file.0).expect("is readable")
    })
}

fn number(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn put(bytes: &mut [u8], at: usize, number: u32) {
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&number.to_le_bytes());
    }
}

/// Makes all checksums right again, as far as the table of pages makes sense.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let pages = (number(bytes, 24) as usize).min(64);
    for page in 0..pages {
        let entry = ENTRIES + page * ENTRY_BYTES;
        let word = number(bytes, entry);
        let Some(class) = (word >> 24).checked_sub(1) else { continue };
        let carved = (word & 0xff_ffff) as usize;
        let len = (carved * UNIT_BYTES).checked_shl(class).unwrap_or(0).min(PAGE_BYTES);
        let start = LEAD_BYTES + page * PAGE_BYTES;
        let sum = crc32fast::hash(bytes.get(start..start + len).unwrap_or_default());
        put(bytes, entry + 4, sum);
    }
    let end = ENTRIES + pages * ENTRY_BYTES;
    let sum = crc32fast::hash(bytes.get(..end).unwrap_or_default());
    put(bytes, end, sum);
}

/// The first byte says whether the checksums are made right after the changes (bit 0), and whether
/// the next three are the file's length (bit 1). Then changes, five bytes each: in the metadata or
/// in a page, how far in, and what is flipped there.
pub(crate) fn run(data: &[u8]) {
    let Some((&how, mut rest)) = data.split_first() else { return };
    let mut image = pristine().to_vec();
    let resealed = how & 1 != 0;
    if let (true, Some((len, more))) = (how & 2 != 0, rest.split_at_checked(3)) {
        image.resize(usize::from(len[0]) << 16 | usize::from(len[1]) << 8 | usize::from(len[2]), 0);
        rest = more;
    }
    for change in rest.chunks_exact(5) {
        let far =
            usize::from(change[1]) << 16 | usize::from(change[2]) << 8 | usize::from(change[3]);
        let at = match change[0] % 3 {
            0 => far % 96,
            page => LEAD_BYTES + (usize::from(page) - 1) * PAGE_BYTES + far % PAGE_BYTES,
        };
        if let Some(byte) = image.get_mut(at) {
            *byte ^= change[4];
        }
    }
    if resealed {
        reseal(&mut image);
    }
    let file = TempFile::new();
    std::fs::write(&file.0, &image).expect("a file can be written");
    let (store, taken) = match Store::open(config(), &file.0) {
        Ok(opened) => opened,
        Err(refused) => {
            assert_eq!(std::fs::read(&file.0).ok(), Some(image), "{refused}: left as it is");
            return;
        }
    };
    let mut session = store.session().expect("a session");
    let mut there = 0;
    for (key, len, _) in ITEMS {
        if let Some(item) = get(&session.pin(), key) {
            there += 1;
            let same = item.value().to_vec() == value(key, *len) && item.flags() == 5;
            // With right checksums it is what it says, whoever wrote that.
            assert!(same || resealed, "{key:?}: {item:?}");
        }
    }
    match taken {
        TakenUp::Kept(items) if !resealed => {
            assert_eq!((items, there), (ITEMS.len() as u64, there))
        }
        TakenUp::Kept(items) => assert!(items <= 1 << 16),
        TakenUp::New | TakenUp::Discarded(_) => assert_eq!(there, 0),
    }
    for unit in (0..1 << 16).step_by(7) {
        if let Some(item) = session.pin().verify(Location(unit), b"k") {
            std::hint::black_box(item.value().to_vec());
        }
    }
    // And it is a store like any other.
    for n in 0..24u32 {
        let key = format!("key-{n}");
        let value = value(key.as_bytes(), 40 * n as usize);
        let stored = set(&mut session, &protocol::Store::set(key.as_bytes(), n, 0, &value));
        assert!(stored.is_ok());
        let guard = session.pin();
        let item = get(&guard, key.as_bytes()).expect("was just stored");
        assert_eq!((item.value().to_vec(), item.flags()), (value, n));
        drop(guard);
        store.housekeep();
    }
    drop(session);
    store.close().expect("closes");
}
