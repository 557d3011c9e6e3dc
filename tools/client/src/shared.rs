//! One item read in the server's memory file, without a request (docs/shared-reads.md).
//!
//! ```text
//! served, this start ─► page as it was, state linked, number, not expired or flushed ─► copy ─► all that again ─► value
//!          └ no                        └ no                                                        └ no ─► ask
//! ```
//!
//! In: a key, and the place that the server gave for it. Out: the value that the key had at some moment during the
//! call, or why the server is to be asked. The server hides an item before it answers what hides it, and writes to its bytes
//! only later, so that bytes of another item are never taken for it. No byte of the file is believed before its
//! place is known to lie in the item's page. Fails: a file that is no memory file of this release.

use crate::mapping::{Memory, WORD_BYTES};
use base::memory_file::{
    HEADER_BYTES, LEAD_BYTES, LEFT_AT, LINKED, LIVE_AT, Live, MAGIC, MARK_OWN_CAS, PAGE_BYTES,
    PAGES_MAX, Place, UNIT_BYTES, VERSION, VERSION_AT,
};
use rustix::time::{ClockId, clock_gettime};
use std::io::{self, ErrorKind};
use std::ops::Range;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

/// How long a server is taken to be there since it was last heard of: its clock moved, or it answered.
const SERVED_MS: u64 = 3_000;

/// Why an item was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// It is not there any more, or was replaced.
    Gone,
    /// It was there, and was hidden while it was copied.
    Changed,
    /// It has expired.
    Expired,
    /// It was flushed, or may have been.
    Flushed,
    /// It is out of date, or another client is fetching it anew.
    Marked,
    /// The server was started again, or has closed the file; or the place is another file's.
    Ended,
    /// The server was not heard of for some seconds.
    Silent,
}

/// A memory file, to be read in.
#[derive(Debug)]
pub struct Shared {
    memory: Memory,
    /// The words of the item that was read last, from its key on.
    words: Vec<[u8; WORD_BYTES]>,
    /// The server's clock when it was last looked at.
    clock: u64,
    /// When the server was last heard of, by this machine's clock.
    heard_ms: u64,
}

/// Milliseconds of this machine's clock, a few late.
pub(crate) fn now_ms() -> u64 {
    let now = clock_gettime(ClockId::MonotonicCoarse);
    let [seconds, nanos] = [now.tv_sec, now.tv_nsec].map(|n| u64::try_from(n).unwrap_or(0));
    seconds * 1_000 + nanos / 1_000_000
}

/// The first four bytes of a header, and the number behind them.
fn parts(word: u64) -> ([u8; 4], u32) {
    let [a, b, c, d, rest @ ..] = word.to_ne_bytes();
    ([a, b, c, d], u32::from_ne_bytes(rest))
}

/// Two numbers of a word, in their order in memory.
fn halves(word: u64) -> (u32, u32) {
    let (first, second) = parts(word);
    (u32::from_ne_bytes(first), second)
}

impl Shared {
    /// Opens the memory file of a server on this machine, which may be another's: its places are then of no use.
    ///
    /// # Errors
    /// The system's: no such file, or not this user's to read; `InvalidData`: no memory file, or another release's.
    pub fn open(path: &Path) -> io::Result<Self> {
        let memory = Memory::open(path)?;
        let wrong = |why| Err(io::Error::new(ErrorKind::InvalidData, why));
        let mut start = [[0; WORD_BYTES]; 2];
        let whole = memory.len() >= LEAD_BYTES && memory.copy(0, &mut start).is_some();
        let (magic, version) = start.as_flattened().split_at(VERSION_AT);
        if !whole || magic != MAGIC {
            return wrong("it is no memory file");
        }
        match version.first_chunk() == Some(&VERSION.to_le_bytes()) {
            true => Ok(Self { memory, words: Vec::new(), clock: 0, heard_ms: 0 }),
            false => wrong("it is a memory file of another release"),
        }
    }

    #[inline]
    fn live(&self, which: Live) -> u64 {
        self.memory.word(LIVE_AT + which as usize * WORD_BYTES).unwrap_or(0)
    }

    /// The server has answered what was sent at this time or later.
    pub(crate) fn heard(&mut self, at_ms: u64) {
        self.heard_ms = at_ms;
        self.clock = self.live(Live::Clock);
    }

    /// Reads the item at `place`: where its value lies in [`Self::bytes`], and its flags.
    ///
    /// # Errors
    /// Why the server is to be asked.
    pub(crate) fn read(
        &mut self,
        key: &[u8],
        place: &Place,
        now_ms: u64,
    ) -> Result<(Range<usize>, u32), Why> {
        self.as_before(place)?;
        let clock = self.live(Live::Clock);
        if now_ms.saturating_sub(self.heard_ms) > SERVED_MS {
            return Err(Why::Silent);
        }
        if clock != self.clock {
            (self.clock, self.heard_ms) = (clock, now_ms);
        }
        let at = usize::try_from(place.offset).map_err(|_| Why::Ended)?;
        let in_pages = at.checked_sub(LEAD_BYTES).ok_or(Why::Ended)?;
        if !at.is_multiple_of(UNIT_BYTES) {
            return Err(Why::Ended);
        }
        let (lens, value_len) = parts(self.linked(at, place)?);
        let [_, _, key_len, marks] = lens;
        if marks & !MARK_OWN_CAS != 0 {
            return Err(Why::Marked);
        }
        let (flags, expiry) = halves(self.memory.word(at + 8).ok_or(Why::Ended)?);
        if expiry != 0 && u64::from(expiry) <= clock {
            return Err(Why::Expired);
        }
        let value = key.len()..key.len() + value_len as usize;
        let room = PAGE_BYTES - in_pages % PAGE_BYTES - HEADER_BYTES;
        if usize::from(key_len) != key.len() || value.end > room {
            return Err(Why::Gone);
        }
        let words = value.end.div_ceil(WORD_BYTES);
        if self.words.len() < words {
            self.words.resize(words, [0; WORD_BYTES]);
        }
        let into = self.words.get_mut(..words).unwrap_or_default();
        self.memory.copy(at + HEADER_BYTES, into).ok_or(Why::Ended)?;
        // What follows is read after the copy, and is no older than any byte of it.
        fence(Ordering::Acquire);
        self.linked(at, place).map_err(|_| Why::Changed)?;
        self.as_before(place)?;
        match self.bytes().get(..key.len()) == Some(key) {
            true => Ok((value, flags)),
            false => Err(Why::Gone),
        }
    }

    /// The first word of the item's header, if it is the item's still.
    #[inline]
    fn linked(&self, at: usize, place: &Place) -> Result<u64, Why> {
        let first = self.memory.word(at).ok_or(Why::Ended)?;
        let number = self.memory.word(at + 16).ok_or(Why::Ended)?;
        match parts(first).0 {
            [LINKED, ..] if number == place.number => Ok(first),
            _ => Err(Why::Gone),
        }
    }

    /// Whether the server, the page and all that was flushed leave the item as it is.
    #[inline]
    fn as_before(&self, place: &Place) -> Result<(), Why> {
        let page = usize::try_from(place.offset).ok().and_then(|at| at.checked_sub(LEAD_BYTES));
        let page = page.map(|at| at / PAGE_BYTES).filter(|page| *page < PAGES_MAX);
        if self.memory.half(LEFT_AT + page.ok_or(Why::Ended)? * 4) != Some(place.left) {
            return Err(Why::Gone);
        }
        if place.number <= self.live(Live::FlushedUpTo).max(self.live(Live::AskUpTo)) {
            return Err(Why::Flushed);
        }
        match self.live(Live::Generation) == place.generation {
            true => Ok(()),
            false => Err(Why::Ended),
        }
    }

    /// What the last read copied: a key, and its value.
    pub(crate) fn bytes(&self) -> &[u8] {
        self.words.as_flattened()
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;
    use std::sync::atomic::AtomicU32;

    /// Where items are in the tests' file, from its first page on.
    const AT: u64 = 2 << 20;

    /// A memory file of one page, as a server would write it, independent of the code above: docs/shared-reads.md.
    pub(crate) struct Served(File, std::path::PathBuf);

    impl Drop for Served {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.1);
        }
    }

    impl Served {
        pub(crate) fn new() -> Self {
            static MADE: AtomicU32 = AtomicU32::new(0);
            let name = (std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
            let path = std::env::temp_dir().join(format!("gnomon-shared-{}-{}", name.0, name.1));
            let mut options = File::options();
            let file =
                options.read(true).write(true).create(true).truncate(true).open(&path).unwrap();
            file.set_len(2 * AT).unwrap();
            let it = Self(file, path);
            it.put(0, b"gnomonMF\x02\0\0\0");
            it.live(0, 7).live(1, 100).live(2, 3);
            it
        }

        pub(crate) fn open(&self) -> Shared {
            Shared::open(&self.1).unwrap()
        }

        pub(crate) fn put(&self, at: u64, bytes: &[u8]) {
            self.0.write_all_at(bytes, at).unwrap();
        }

        pub(crate) fn live(&self, n: u64, number: u64) -> &Self {
            self.put(0x14_0000 + 8 * n, &number.to_ne_bytes());
            self
        }

        /// An item, number 5, that begins so many bytes behind the page's first; and its place.
        pub(crate) fn item(&self, at: u64, key: &[u8], value: &[u8]) -> Place {
            let mut bytes = vec![2, 3, u8::try_from(key.len()).unwrap(), 0];
            bytes.extend(u32::try_from(value.len()).unwrap().to_ne_bytes());
            bytes.extend(9u32.to_ne_bytes());
            bytes.extend(0u32.to_ne_bytes());
            bytes.extend(5u64.to_ne_bytes());
            bytes.extend([0xee; 8]);
            bytes.extend([key, value].concat());
            self.put(AT + at, &bytes);
            Place { generation: 7, offset: AT + at, left: 0, number: 5 }
        }
    }

    fn read(shared: &mut Shared, place: &Place) -> Result<Vec<u8>, Why> {
        let (at, flags) = shared.read(b"sun", place, 1000)?;
        assert_eq!(flags, 9);
        Ok(shared.bytes()[at].to_vec())
    }

    #[test]
    fn what_a_server_wrote_is_read_and_nothing_that_it_hid() {
        let served = Served::new();
        let mut shared = served.open();
        shared.heard(1000);
        for value in [&b""[..], b"shine", &[7; 3000]] {
            let place = served.item(64, b"sun", value);
            assert_eq!(read(&mut shared, &place).unwrap(), value);
        }
        let place = served.item(64, b"sun", b"shine");
        let mut with = |at: u64, bytes: &[u8], why: Why| {
            served.put(at, bytes);
            assert_eq!(read(&mut shared, &place), Err(why), "{at:#x}");
            served.item(64, b"sun", b"shine");
            served.live(0, 7).live(1, 100).live(2, 3).live(3, 0).put(0x18_0000, &[0; 4]);
            assert_eq!(read(&mut shared, &place).unwrap(), b"shine");
        };
        let item = AT + 64;
        for state in [0, 1, 3, 4, 255] {
            with(item, &[state], Why::Gone);
        }
        for mark in [1, 2, 4, 15] {
            with(item + 3, &[mark], Why::Marked);
        }
        with(item + 2, &[4], Why::Gone);
        with(item + 32, b"moo", Why::Gone);
        with(item + 16, &6u64.to_ne_bytes(), Why::Gone);
        with(item + 12, &100u32.to_ne_bytes(), Why::Expired);
        with(item + 12, &1u32.to_ne_bytes(), Why::Expired);
        with(item + 4, &u32::MAX.to_ne_bytes(), Why::Gone);
        with(0x14_0000, &0u64.to_ne_bytes(), Why::Ended);
        with(0x14_0000, &8u64.to_ne_bytes(), Why::Ended);
        with(0x14_0010, &5u64.to_ne_bytes(), Why::Flushed);
        with(0x14_0018, &5u64.to_ne_bytes(), Why::Flushed);
        with(0x18_0000, &1u32.to_ne_bytes(), Why::Gone);
        // With a CAS id of the client's own behind it, and an expiry time to come.
        served.put(item + 3, &[8]);
        served.put(item + 12, &101u32.to_ne_bytes());
        assert_eq!(read(&mut shared, &place).unwrap(), b"shine");
    }

    #[test]
    fn an_item_ends_with_its_page_at_the_latest() {
        let served = Served::new();
        let mut shared = served.open();
        shared.heard(1000);
        let value = vec![1; (2 << 20) - 64 - 32 - 3];
        let place = served.item(64, b"sun", &value);
        assert_eq!(read(&mut shared, &place).unwrap(), value);
        served.put(AT + 64 + 4, &u32::try_from(value.len() + 1).unwrap().to_ne_bytes());
        assert_eq!(read(&mut shared, &place), Err(Why::Gone));
        let last = served.item((2 << 20) - 64, b"sun", &[5; 29]);
        assert_eq!(read(&mut shared, &last).unwrap(), [5; 29]);
        for offset in [0, AT - 64, AT + 65, 2 * AT, u64::MAX - 63, u64::MAX] {
            assert_eq!(read(&mut shared, &Place { offset, ..place }), Err(Why::Ended), "{offset}");
        }
    }

    #[test]
    fn a_silent_server_is_asked() {
        let served = Served::new();
        let mut shared = served.open();
        let place = served.item(0, b"sun", b"shine");
        let read = |shared: &mut Shared, at| shared.read(b"sun", &place, at).map(|_| ());
        assert_eq!(read(&mut shared, 10_000), Err(Why::Silent), "never heard of");
        shared.heard(10_000);
        assert_eq!(read(&mut shared, 13_000), Ok(()));
        assert_eq!(read(&mut shared, 13_001), Err(Why::Silent));
        // Its clock moves, which is seen in time, or too late.
        shared.heard(20_000);
        served.live(1, 101);
        assert_eq!(read(&mut shared, 22_000), Ok(()));
        assert_eq!(read(&mut shared, 25_000), Ok(()));
        served.live(1, 102);
        assert_eq!(read(&mut shared, 25_001), Err(Why::Silent));
        assert_eq!(read(&mut shared, 25_002), Err(Why::Silent));
    }

    #[test]
    fn other_files_are_refused() {
        let served = Served::new();
        served.put(8, &[3]);
        let why = Shared::open(&served.1).unwrap_err();
        assert!(why.to_string().contains("another release"), "{why}");
        served.put(0, b"x");
        assert!(Shared::open(&served.1).unwrap_err().to_string().contains("no memory file"));
        served.put(0, b"gnomonMF\x02");
        served.0.set_len(AT - 1).unwrap();
        assert!(Shared::open(&served.1).unwrap_err().to_string().contains("no memory file"));
    }

    proptest! {
        #[test]
        fn no_bytes_panic(
            header in prop::collection::vec(any::<u8>(), 16),
            unit in 0u64..40_000,
            offset in any::<u64>(),
            near in any::<bool>(),
        ) {
            let served = Served::new();
            let mut shared = served.open();
            shared.heard(1000);
            let place = served.item(unit % 0x8000 * 64, b"sun", b"shine");
            served.put(place.offset, &[&[2][..], &header[1..]].concat());
            let offset = if near { AT + unit * 64 } else { offset };
            let got = shared.read(b"sun", &Place { offset, ..place }, 1000);
            if let Ok((at, _)) = got {
                prop_assert!(offset == place.offset && header[2] == 3 && at.end <= shared.bytes().len());
            }
        }
    }
}
