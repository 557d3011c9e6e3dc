//! A memory file with anything in it is refused, discarded, or recovered without a wrong value.
//!
//! Each input is recovered by a store that is there already, in memory ([`Store::reopen`]). One in
//! [`FILE_EVERY`] is a real file as well, of which the same must be said, and which takes some hundred
//! times as long; in `cargo test` each one is.

use driver_shim::Pages;
use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};
use store::restart::TakenUp;
use store::verbs::{self, get};
use store::{Location, Session, Store, StoreConfig};

#[path = "../../dataplane/store/tests/temp_file/mod.rs"]
mod temp_file;
pub(crate) use temp_file::TempFile;

/// The layout's numbers, as `dataplane/store/src/restart/format.rs` has them.
pub(crate) const LEAD_BYTES: usize = 2 << 20;
pub(crate) const PAGE_BYTES: usize = 2 << 20;
pub(crate) const ENTRIES: usize = 76;
const ENTRY_BYTES: usize = 8;
const UNIT_BYTES: usize = 64;

/// One input in so many is a file.
const FILE_EVERY: u32 = 1024;

/// One input in so many may have pages that take long to look at.
const FAR_EVERY: u32 = 64;

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
    (b"large", 80, 0),
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
            let stored =
                verbs::store(&mut session, None, &base::Store::set(key, 5, *exptime, &value));
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

/// The class, counted from 0, and the carved chunks that the table has for a page.
fn class_and_carved(bytes: &[u8], page: usize) -> Option<(u32, usize)> {
    let word = number(bytes, ENTRIES + page * ENTRY_BYTES);
    Some(((word >> 24).checked_sub(1)?, (word & 0xff_ffff) as usize))
}

/// Bytes of a page that the table says are carved.
fn carved_bytes(bytes: &[u8], page: usize) -> usize {
    let Some((class, carved)) = class_and_carved(bytes, page) else { return 0 };
    (carved * UNIT_BYTES).checked_shl(class).unwrap_or(0).min(PAGE_BYTES)
}

/// Makes all checksums right again, as far as the table of pages makes sense.
pub(crate) fn reseal(bytes: &mut [u8]) {
    let pages = (number(bytes, 24) as usize).min(PAGES_MAX);
    for page in 0..pages {
        if class_and_carved(bytes, page).is_none() {
            continue;
        }
        let start = LEAD_BYTES + page * PAGE_BYTES;
        let len = carved_bytes(bytes, page);
        let sum = crc32fast::hash(bytes.get(start..start + len).unwrap_or_default());
        put(bytes, ENTRIES + page * ENTRY_BYTES + 4, sum);
    }
    let end = ENTRIES + pages * ENTRY_BYTES;
    let sum = crc32fast::hash(bytes.get(..end).unwrap_or_default());
    put(bytes, end, sum);
}

/// Most pages that [`reseal`] believes in.
const PAGES_MAX: usize = 64;

/// Where nothing is any more that [`reseal`] writes.
const TABLE_END: usize = ENTRIES + PAGES_MAX * ENTRY_BYTES + 4;

/// Longest file, of those whose length three bytes show.
const FILE_MAX_BYTES: usize = 1 << 24;

/// What is written at a time.
const BLOCK_BYTES: usize = 4096;

/// Carved bytes that are looked at in no time.
const NEAR_BYTES: usize = 16 * BLOCK_BYTES;

/// What is to be in the file, and zeros behind it.
struct Image {
    bytes: Vec<u8>,
    /// What was changed in the pages.
    flipped: Vec<usize>,
    len: usize,
}

impl Image {
    fn pristine() -> Self {
        let mut bytes = pristine().to_vec();
        let len = bytes.len();
        bytes.resize(FILE_MAX_BYTES, 0);
        Self { bytes, flipped: Vec::new(), len }
    }

    /// Reads `data` as [`run`] says. Returns whether checksums were made right.
    fn change(&mut self, data: &[u8], may_be_far: bool) -> bool {
        let Some((&how, mut rest)) = data.split_first() else { return false };
        if let (true, Some((len, more))) = (how & 2 != 0, rest.split_at_checked(3)) {
            self.len = usize::from(len[0]) << 16 | usize::from(len[1]) << 8 | usize::from(len[2]);
            rest = more;
        }
        for change in rest.chunks_exact(5) {
            let far =
                usize::from(change[1]) << 16 | usize::from(change[2]) << 8 | usize::from(change[3]);
            let at = match change[0] % 3 {
                0 => far % 96,
                page => LEAD_BYTES + (usize::from(page) - 1) * PAGE_BYTES + far % PAGE_BYTES,
            };
            if at < self.len {
                self.bytes[at] ^= change[4];
                if at >= LEAD_BYTES {
                    self.flipped.push(at);
                }
            }
        }
        if !may_be_far && self.is_far() {
            let words = ENTRIES..ENTRIES + 2 * ENTRY_BYTES;
            self.bytes[words.clone()].copy_from_slice(&pristine()[words]);
        }
        let resealed = how & 1 != 0;
        if resealed {
            reseal(&mut self.bytes[..self.len]);
        }
        resealed
    }

    /// Whether many chunks are carved, or will be: of two pages of a class one becomes whole.
    fn is_far(&self) -> bool {
        let class = |page| class_and_carved(&self.bytes, page).map(|(class, _)| class);
        let far = |page| carved_bytes(&self.bytes, page) > NEAR_BYTES;
        far(0) || far(1) || (class(0).is_some() && class(0) == class(1))
    }

    /// Adds the blocks of the pages, counted from the first page on, that are changed or in use.
    fn add_blocks(&self, blocks: &mut Vec<usize>) {
        blocks.extend(self.flipped.iter().map(|at| (at - LEAD_BYTES) / BLOCK_BYTES));
        if self.is_far() {
            return blocks.extend(0..2 * PAGE_BYTES / BLOCK_BYTES);
        }
        for page in 0..2 {
            let carved = carved_bytes(&self.bytes, page).div_ceil(BLOCK_BYTES);
            let first = page * PAGE_BYTES / BLOCK_BYTES;
            blocks.extend(first..first + carved);
        }
    }

    /// Makes the file this image. Blocks that are so already keep their memory: to find memory
    /// for all of them takes most of the time.
    fn write(&self, file: &File) -> io::Result<()> {
        file.set_len(self.len as u64)?;
        let mut there = [0; 16 * BLOCK_BYTES];
        for (n, part) in self.bytes[..self.len].chunks(there.len()).enumerate() {
            let (at, there) = ((n * there.len()) as u64, &mut there[..part.len()]);
            file.read_exact_at(there, at)?;
            if there != part {
                file.write_all_at(part, at)?;
            }
        }
        Ok(())
    }

    /// Takes all changes back.
    fn restore(&mut self) {
        self.bytes[..TABLE_END].copy_from_slice(&pristine()[..TABLE_END]);
        for at in self.flipped.drain(..) {
            self.bytes[at] = pristine()[at];
        }
        self.len = pristine().len();
    }
}

/// Where inputs are tried.
struct Bench {
    image: Image,
    store: Arc<Store>,
    /// Blocks of the store's memory that are not as in the closed file, or may not be.
    stale: Vec<usize>,
    file: File,
    path: TempFile,
    /// Inputs that were in the file: the fuzzer comes back to one and the same very often.
    seen: HashSet<u32>,
}

impl Bench {
    fn new() -> Self {
        let path = TempFile::new();
        let file = File::options().read(true).write(true).open(&path.0).expect("a file");
        Self {
            image: Image::pristine(),
            store: Store::new(config()).expect("a store"),
            stale: (0..2 * PAGE_BYTES / BLOCK_BYTES).collect(),
            file,
            path,
            seen: HashSet::new(),
        }
    }

    /// Takes the image up in memory. `None`: it is refused.
    fn in_memory(&mut self, resealed: bool, which: u32) -> Option<TakenUp> {
        let Self { image, store, stale, .. } = self;
        let start = &image.bytes[..image.len.min(LEAD_BYTES)];
        let pages = &image.bytes[LEAD_BYTES..];
        let taken = Arc::get_mut(store).expect("nobody else has it").reopen(
            image.len as u64,
            start,
            |memory| {
                image.add_blocks(stale);
                for block in stale.drain(..) {
                    let block = block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
                    memory[block.clone()].copy_from_slice(&pages[block]);
                }
                image.add_blocks(stale);
            },
        );
        let taken = taken?;
        let mut session = store.session().expect("a session");
        check(&mut session, &taken, resealed, which);
        for (key, ..) in ITEMS {
            let there = get(&session.pin(), key).is_some();
            assert_eq!(verbs::delete(&mut session, None, key).is_some(), there);
            assert!(get(&session.pin(), key).is_none());
        }
        Some(taken)
    }

    /// Opens a store over the image in the file, and closes it. `None`: it is refused.
    fn in_the_file(&mut self, resealed: bool, which: u32) -> Option<TakenUp> {
        let Self { image, file, path, .. } = self;
        image.write(file).expect("can be written");
        let (store, taken) = match Store::open(config(), &path.0) {
            Ok(opened) => opened,
            Err(refused) => {
                let there = std::fs::read(&path.0).expect("is readable");
                assert!(there == image.bytes[..image.len], "{refused}: left as it is");
                return None;
            }
        };
        let mut session = store.session().expect("a session");
        check(&mut session, &taken, resealed, which);
        // And it is a store like any other.
        for n in 0..24u32 {
            let key = format!("key-{n}");
            let value = value(key.as_bytes(), 40 * n as usize);
            let stored =
                verbs::store(&mut session, None, &base::Store::set(key.as_bytes(), n, 0, &value));
            assert!(stored.is_ok());
            let guard = session.pin();
            let item = get(&guard, key.as_bytes()).expect("was just stored");
            assert_eq!((item.value().to_vec(), item.flags()), (value, n));
            drop(guard);
            store.housekeep();
        }
        drop(session);
        store.close().expect("closes");
        Some(taken)
    }
}

/// The first byte says whether the checksums are made right after the changes (bit 0), and whether
/// the next three are the file's length (bit 1). Then changes, five bytes each: in the metadata or
/// in a page, how far in, and what is flipped there.
pub(crate) fn run(data: &[u8]) {
    let (file_every, far_every) = if cfg!(fuzzing) { (FILE_EVERY, FAR_EVERY) } else { (1, 1) };
    run_of_many(data, file_every, far_every);
}

/// The same; one input in `file_every` is a file as well, and one in `far_every` may have pages
/// that take long to look at.
pub(crate) fn run_of_many(data: &[u8], file_every: u32, far_every: u32) {
    thread_local! {
        static BENCH: RefCell<Bench> = RefCell::new(Bench::new());
    }
    // Of the whole input, so that inputs made from one another do not all come to the same.
    let which = crc32fast::hash(data);
    let one_in = |n: u32| which.is_multiple_of(n);
    BENCH.with_borrow_mut(|bench| {
        let resealed = bench.image.change(data, one_in(far_every));
        let taken = bench.in_memory(resealed, which);
        if one_in(file_every)
            && bench.seen.insert(which)
            && bench.in_the_file(resealed, which) != taken
        {
            // Unless the clock moved on between the two, and an item expired.
            let taken = bench.in_memory(resealed, which);
            assert_eq!(bench.in_the_file(resealed, which), taken, "in the file, and in memory");
        }
        bench.image.restore();
    });
}

/// Looks what came of the image. `which` distinguishes some places from others.
fn check(session: &mut Session, taken: &TakenUp, resealed: bool, which: u32) {
    let mut there = 0;
    for (key, len, _) in ITEMS {
        if let Some(item) = get(&session.pin(), key) {
            there += 1;
            let same = item.value() == &value(key, *len)[..] && item.flags() == 5;
            // With right checksums it is what it says, whoever wrote that.
            assert!(same || resealed, "{key:?}: {item:?}");
        }
    }
    match *taken {
        TakenUp::Kept(items) if !resealed => {
            assert_eq!((items, there), (ITEMS.len() as u64, ITEMS.len()))
        }
        TakenUp::Kept(items) => assert!(items <= 1 << 16),
        TakenUp::New | TakenUp::Discarded(_) => assert_eq!(there, 0),
    }
    let guard = session.pin();
    for unit in (0..1 << 16).skip(which as usize % 4099).step_by(4099) {
        if let Some(item) = guard.verify(Location(unit), b"k") {
            std::hint::black_box(item.value().to_vec());
        }
    }
}
