//! A memory file with anything in it is refused, discarded, or taken up without a wrong value.

use dataplane::protocol;
use dataplane::store::restart::TakenUp;
use dataplane::store::verbs::{get, store as set};
use dataplane::store::{Location, Store, StoreConfig};
use driver_shim::Pages;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
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

/// Longest file, of those whose length three bytes tell.
const FILE_MAX_BYTES: usize = 1 << 24;

/// What is written of a file at a time; what is all zeros is left out, because most of it is.
const BLOCK_BYTES: usize = 4096;

/// What is to be in the file, and zeros behind it.
struct Image {
    bytes: Vec<u8>,
    /// The blocks that are not all zeros, or may not be.
    blocks: BTreeSet<usize>,
    len: usize,
}

impl Image {
    fn pristine() -> Self {
        let mut bytes = pristine().to_vec();
        let len = bytes.len();
        let used = |(_, block): &(usize, &[u8])| block.iter().any(|&b| b != 0);
        let blocks = bytes.chunks(BLOCK_BYTES).enumerate().filter(used).map(|(n, _)| n).collect();
        bytes.resize(FILE_MAX_BYTES, 0);
        Self { bytes, blocks, len }
    }

    fn flip(&mut self, at: usize, bits: u8) {
        if at < self.len {
            self.bytes[at] ^= bits;
            self.blocks.insert(at / BLOCK_BYTES);
        }
    }

    fn reseal(&mut self) {
        reseal(&mut self.bytes[..self.len]);
        // The sums lie in the first block, and if there are very many of them in the next.
        self.blocks.extend([0, 1]);
    }

    /// The blocks, as far as the file goes, and where they are.
    fn parts(&self) -> impl Iterator<Item = (u64, &[u8])> {
        self.blocks.iter().filter_map(|n| {
            let start = n * BLOCK_BYTES;
            let part = self.bytes.get(start..self.len.min(start + BLOCK_BYTES))?;
            Some((start as u64, part))
        })
    }

    fn write(&self, path: &Path) -> io::Result<()> {
        let file = File::create(path)?;
        file.set_len(self.len as u64)?;
        self.parts().try_for_each(|(at, part)| file.write_all_at(part, at))
    }

    fn is_in(&self, path: &Path) -> io::Result<bool> {
        let file = File::open(path)?;
        let mut same = file.metadata()?.len() == self.len as u64;
        let mut there = [0; BLOCK_BYTES];
        for (at, part) in self.parts() {
            let there = &mut there[..part.len()];
            file.read_exact_at(there, at)?;
            same &= there == part;
        }
        Ok(same)
    }

    /// Takes all changes back.
    fn restore(&mut self) {
        let pristine = pristine();
        for n in &self.blocks {
            let start = n * BLOCK_BYTES;
            let was = pristine.get(start..start + BLOCK_BYTES);
            match was {
                Some(was) => self.bytes[start..start + BLOCK_BYTES].copy_from_slice(was),
                None => self.bytes[start..start + BLOCK_BYTES].fill(0),
            }
        }
        self.len = pristine.len();
    }
}

/// The first byte says whether the checksums are made right after the changes (bit 0), and whether
/// the next three are the file's length (bit 1). Then changes, five bytes each: in the metadata or
/// in a page, how far in, and what is flipped there.
pub(crate) fn run(data: &[u8]) {
    thread_local! {
        static IMAGE: RefCell<Image> = RefCell::new(Image::pristine());
    }
    let Some((&how, mut rest)) = data.split_first() else { return };
    IMAGE.with_borrow_mut(|image| {
        if let (true, Some((len, more))) = (how & 2 != 0, rest.split_at_checked(3)) {
            image.len = usize::from(len[0]) << 16 | usize::from(len[1]) << 8 | usize::from(len[2]);
            rest = more;
        }
        for change in rest.chunks_exact(5) {
            let far =
                usize::from(change[1]) << 16 | usize::from(change[2]) << 8 | usize::from(change[3]);
            let at = match change[0] % 3 {
                0 => far % 96,
                page => LEAD_BYTES + (usize::from(page) - 1) * PAGE_BYTES + far % PAGE_BYTES,
            };
            image.flip(at, change[4]);
        }
        let resealed = how & 1 != 0;
        if resealed {
            image.reseal();
        }
        open(image, resealed, data.iter().copied().map(usize::from).sum());
        image.restore();
    });
}

/// Opens a store over the image, and looks what came of it. `which` tells some places from others.
fn open(image: &Image, resealed: bool, which: usize) {
    let file = TempFile::new();
    image.write(&file.0).expect("a file can be written");
    let (store, taken) = match Store::open(config(), &file.0) {
        Ok(opened) => opened,
        Err(refused) => {
            assert!(image.is_in(&file.0).expect("is readable"), "{refused}: left as it is");
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
    for unit in (0..1 << 16).skip(which % 61).step_by(61) {
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
