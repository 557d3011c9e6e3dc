//! Warm restart: items in a file that outlives the process, recovered by the next one.
//!
//! ```text
//! open:  lock ─► read metadata ─► checksum of each page ─► mark in use ─► adopt pages, fill index
//!                     └────────────── unusable: mark in use, begin empty ◄──────┘
//! close: no session left ─► checksum of each page ─► sync ─► write metadata, clean
//! ```
//!
//! In: a configuration and a path; at the end, a store that no other thread holds. Out: a store
//! with all items of the one before it, or with none, and which of the two. The file is locked as
//! long as the store is there, and its space is set aside, so that no page can be missing later.
//! The index is not kept, nor the hash key: each start hashes the keys anew, with a key of its own.
//!
//! Nothing in the file is believed: neither a number before its checksum, nor an item before its
//! bounds were compared with its chunk's; and a file that others can write to is not opened
//! ([`Shared`]), because nothing is compared while it is mapped. Fails: with a [`MemoryFileError`] where the file cannot
//! be used at all. A file of ours whose items cannot be recovered is no failure ([`Unusable`]).

#[cfg(any(test, feature = "testing"))]
mod again;
mod file;
mod format;

pub(super) use file::MemoryFile;
pub use file::{MemoryFileError, Shared};
pub use format::Unusable;

use super::clock::{Clock, unix_seconds};
use super::config::{Shape, StoreConfig, StoreError};
use super::flush::Flushed;
use super::index::{Expect, UpdateError};
use super::item::{Arena, ItemRef, Location};
use super::item_flags::Inherits;
use super::layout::PAGE_BYTES;
use super::slab::adopt::{Broken, carved_bytes};
use super::store::Store;
use driver_shim::Pages;
use driver_shim::mapping::has_address_space;
use file::Refusal;
use format::{Entry, LEAD_BYTES, Saved, Settings, State};
use nix::unistd::geteuid;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Latest reading that a clock is started with: half of what it can count.
const CLOCK_MAX_SECONDS: u64 = 1 << 31;

/// Last CAS id that a store is started with. None has given as many, and none will come to the end.
const CAS_MAX: u64 = 1 << 62;

/// What is wrong with a file that no store wrote, for all its checksums.
const AN_ITEM: &str = "an item that cannot be";

/// Pages that are looked at in less time than it takes to start a thread for them.
const PAGES_PER_THREAD: usize = 8;
/// Address space that a thread is not started without.
const THREAD_BYTES: usize = 4 << 20;
/// Bytes of a page that are summed up at a time.
const PIECE_BYTES: usize = 64 << 10;

/// What became of the items that the file held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TakenUp {
    /// The file is new.
    New,
    /// All of them are there, but for those that have died meanwhile: so many.
    Kept(u64),
    /// None is.
    Discarded(Unusable),
}

/// Why a store was not closed. Its items are lost.
#[derive(Debug, thiserror::Error)]
pub enum CloseError {
    /// A thread has not ended.
    #[error("a session or reader still uses the store")]
    InUse,
    /// The file.
    #[error(transparent)]
    File(#[from] MemoryFileError),
}

/// What was found in it.
enum Found {
    Nothing,
    /// Not a file of ours.
    Foreign,
    /// What a store knew, and what its clock reads now.
    Saved(Saved, u32),
    Unusable(Unusable),
}

/// What a file holds that has `len` bytes and begins with `start`. `sums` gives the CRC-32 of the
/// first so many bytes of each of these pages.
fn judge<E>(
    (settings, shape): (&Settings, &Shape),
    len: u64,
    start: &[u8],
    sums: impl FnOnce(&[(u32, usize)]) -> Result<Vec<u32>, E>,
) -> Result<Found, E> {
    if len == 0 {
        return Ok(Found::Nothing);
    }
    if !format::is_ours(start) {
        return Ok(Found::Foreign);
    }
    let saved = match Saved::parse(start) {
        Ok(saved) => saved,
        Err(why) => return Ok(Found::Unusable(why)),
    };
    if saved.settings != *settings {
        let (was, now) = (saved.settings.to_string(), settings.to_string());
        return Ok(Found::Unusable(Unusable::Settings { was, now }));
    }
    let (cas, flushed) = (saved.state.cas.get(), saved.state.flushed.get());
    if cas > CAS_MAX || flushed > cas {
        return Ok(Found::Unusable(damaged("its CAS ids")));
    }
    let should = shape.file_bytes();
    if len != should {
        return Ok(Found::Unusable(Unusable::Length { is: len, should }));
    }
    let Ok(sizes) = saved.sizes_of_pages(shape) else {
        return Ok(Found::Unusable(damaged("its table of pages")));
    };
    let expected = saved.used_pages().map(|(_, entry)| entry.sum.get());
    if !sums(&sizes)?.into_iter().eq(expected) {
        return Ok(Found::Unusable(damaged("the checksum of a page of items")));
    }
    Ok(match saved.clock_now() {
        Some(now) => Found::Saved(saved, now),
        None => Found::Unusable(Unusable::Clock),
    })
}

impl MemoryFile {
    /// What the file holds, its pages compared with their checksums.
    fn look(&mut self, settings: &Settings, shape: &Shape) -> Result<Found, MemoryFileError> {
        let len = self.len()?;
        let mut start = vec![0; usize::try_from(len).unwrap_or(LEAD_BYTES).min(LEAD_BYTES)];
        let read = self.file.read_exact_at(&mut start, 0);
        read.map_err(|e| self.refused(Refusal::Read(e)))?;
        self.generation = format::generation(&start);
        judge((settings, shape), len, &start, |pages| self.sums(pages))
    }

    /// CRC-32 of the first so many bytes of each of these pages. Through the file and not through
    /// its mapping, so that whatever else writes there is no matter of memory safety.
    fn sums(&self, pages: &[(u32, usize)]) -> Result<Vec<u32>, MemoryFileError> {
        let sums = on_all_cpus(pages, |pages| {
            // In pieces: there may be little memory.
            let mut buffer = vec![0; PIECE_BYTES];
            let mut sum = |page: u32, len: usize| {
                let mut sum = crc32fast::Hasher::new();
                let start = LEAD_BYTES as u64 + u64::from(page) * PAGE_BYTES as u64;
                for at in (0..len).step_by(PIECE_BYTES) {
                    let piece = buffer.get_mut(..PIECE_BYTES.min(len - at)).unwrap_or_default();
                    self.file.read_exact_at(piece, start + at as u64)?;
                    sum.update(piece);
                }
                Ok(sum.finalize())
            };
            pages.iter().map(|(page, len)| sum(*page, *len)).collect()
        });
        sums.map_err(|e| self.refused(Refusal::Read(e)))
    }

    /// From here on the file has no items, whatever happens, until it is closed.
    fn mark_in_use(&mut self) -> Result<(), MemoryFileError> {
        self.generation = self.generation.wrapping_add(1);
        self.write(&format::in_use(self.generation))
    }

    /// The pages.
    pub(super) fn map(&self, bytes: usize, pages: Pages, nodes: &[u32]) -> io::Result<Arena> {
        Arena::of_file(&self.file, LEAD_BYTES as u64, bytes, pages, nodes)
    }
}

/// Bytes of the file of a store with so much item memory.
pub fn file_bytes(memory_bytes: u64) -> u64 {
    let page = PAGE_BYTES as u64;
    (memory_bytes / page * page).saturating_add(LEAD_BYTES as u64)
}

fn damaged(what: &str) -> Unusable {
    Unusable::Damaged(what.to_owned())
}

impl Shape {
    fn file_bytes(&self) -> u64 {
        file_bytes((self.n_pages * PAGE_BYTES) as u64)
    }
}

impl Saved {
    fn used_pages(&self) -> impl Iterator<Item = (u32, &Entry)> {
        (0..).zip(&self.pages).filter(|(_, entry)| entry.word != 0)
    }

    fn sizes_of_pages(&self, shape: &Shape) -> Result<Vec<(u32, usize)>, Broken> {
        let size = |(page, entry): (u32, &Entry)| {
            Ok((page, carved_bytes(entry.word.get(), &shape.sizes)?))
        };
        self.used_pages().map(size).collect()
    }

    /// What the store's clock reads now: time went on while the process was down.
    fn clock_now(&self) -> Option<u32> {
        // A system clock that was set back meanwhile counts as no time.
        let down = unix_seconds().saturating_sub(self.state.unix_seconds.get());
        let reading = down.checked_add(u64::from(self.state.clock.get()))?;
        u32::try_from(reading).ok().filter(|_| reading < CLOCK_MAX_SECONDS)
    }
}

impl Store {
    /// A store whose items lie in the file at `path`, and are those that [`Self::close`] left
    /// there, if there are any and `config` is what it was: memory, item limit, growth factor, pages of classes.
    ///
    /// # Errors
    /// [`StoreError`], which says what to change.
    pub fn open(config: StoreConfig, path: &Path) -> Result<(Arc<Self>, TakenUp), StoreError> {
        Self::open_of(config, path, geteuid().as_raw())
    }

    /// The same where the file may belong to the user `uid`, whom the process will become.
    ///
    /// # Errors
    /// As of [`Self::open`].
    pub fn open_of(
        config: StoreConfig,
        path: &Path,
        uid: u32,
    ) -> Result<(Arc<Self>, TakenUp), StoreError> {
        let shape = Shape::new(&config)?;
        let settings = Settings::new(&config, &shape);
        let mut file = MemoryFile::open(path, uid)?;
        let found = file.look(&settings, &shape)?;
        // Clients that read here still, after a process that was killed, stop before anything changes.
        if !matches!(found, Found::Foreign) && file.len()? >= LEAD_BYTES as u64 {
            drop(file.published()?);
        }
        let taken = match found {
            Found::Foreign => return Err(file.refused(Refusal::Foreign).into()),
            Found::Nothing => {
                // So that it is known for ours as soon as it is larger than this.
                file.reserve(LEAD_BYTES as u64, &[])?;
                file.mark_in_use()?;
                TakenUp::New
            }
            Found::Unusable(why) => TakenUp::Discarded(why),
            Found::Saved(saved, now) => {
                // Of a copy the space may have to be set aside again.
                file.reserve(shape.file_bytes(), &config.nodes)?;
                let mut store = Self::build(config.clone(), shape.clone(), Some(file))?;
                if let Some(file) = &mut store.file {
                    file.mark_in_use()?;
                }
                if let Ok(items) = store.take_up(&saved, now) {
                    store.assign_pages();
                    store.publish();
                    return Ok((Arc::new(store), TakenUp::Kept(items)));
                }
                let discarded = TakenUp::Discarded(damaged(AN_ITEM));
                let file = store.file.take();
                // Before the next one: of its mapping, and of what it says to clients.
                drop(store);
                return Ok((Self::begin(config, shape, file)?, discarded));
            }
        };
        Ok((Self::begin(config, shape, Some(file))?, taken))
    }

    /// An empty store over the file.
    fn begin(
        config: StoreConfig,
        shape: Shape,
        mut file: Option<MemoryFile>,
    ) -> Result<Arc<Self>, StoreError> {
        if let Some(file) = &mut file {
            file.reserve(shape.file_bytes(), &config.nodes)?;
            file.mark_in_use()?;
        }
        let store = Self::build(config, shape, file)?;
        store.assign_pages();
        store.publish();
        Ok(Arc::new(store))
    }

    /// From here on clients read items in the file, if they may.
    fn publish(&self) {
        if let Some(published) = &self.published {
            published.begin(self.now(), self.flushed.parts().0);
        }
    }

    /// Goes on where `saved` ended, with what lies in the pages; says with how many items.
    fn take_up(&mut self, saved: &Saved, now: u32) -> Result<u64, Broken> {
        // The file was looked at a while ago.
        self.clock = Clock::starting_at(saved.clock_now().unwrap_or(now));
        self.cas = AtomicU64::new(saved.state.cas.get());
        self.flushed = Flushed::new(saved.state.flushed.get(), saved.state.flush_due.get());
        self.flush_when_due();
        self.take_up_pages(saved)?;
        Ok(self.stats().curr_items)
    }

    /// Gives the pages to their classes, and the items that are still good to the index.
    fn take_up_pages(&self, saved: &Saved) -> Result<(), Broken> {
        let pages: Vec<(u32, u32)> =
            saved.used_pages().map(|(page, entry)| (page, entry.word.get())).collect();
        pages.iter().try_for_each(|(page, word)| self.slabs.adopt(*page, *word))?;
        let mut parts = on_all_cpus(&pages, |pages| {
            let mut parts = Vec::new();
            for (page, _) in pages {
                let keep = |loc, item: ItemRef<'_>| self.take_up_item(loc, &item);
                self.slabs.pick_items(*page, keep, &mut parts)?;
            }
            Ok(parts)
        })?;
        parts.sort_unstable();
        if parts.windows(2).any(|two| two[0] == two[1]) {
            return Err(Broken);
        }
        on_all_cpus(&pages, |pages| {
            pages.iter().for_each(|(page, _)| self.slabs.settle(*page, &parts));
            Ok::<Vec<()>, Broken>(Vec::new())
        })?;
        self.slabs.fill_pool();
        Ok(())
    }

    /// True when the item is in the index now; false when it is not worth it.
    fn take_up_item(&self, loc: Location, item: &ItemRef<'_>) -> Result<bool, Broken> {
        if item.sequence() == 0 || item.sequence() > self.cas.load(Ordering::Relaxed) {
            return Err(Broken);
        }
        if !self.is_live(item) {
            return Ok(false);
        }
        self.note_expiry(item.expiry());
        let key = item.key();
        match self.swap(
            self.hash(key),
            key,
            Some((loc, Inherits::default())),
            Expect::Exactly(None),
        ) {
            Ok(_) => Ok(true),
            Err(UpdateError::Full) => Ok(false),
            // Two items with one key.
            Err(UpdateError::Mismatch(_)) => Err(Broken),
        }
    }

    /// Ends the store. If its items lie in a file, the next [`Self::open`] finds them there; says
    /// how many, those included that are dead and not swept yet.
    ///
    /// # Errors
    /// [`CloseError`]: the items are lost then. Every [`super::Session`] must be gone.
    pub fn close(self: Arc<Self>) -> Result<Option<u64>, CloseError> {
        let store = Arc::into_inner(self).ok_or(CloseError::InUse)?;
        let Some(file) = &store.file else { return Ok(None) };
        if let Some(published) = &store.published {
            published.end();
        }
        store.clock.tick();
        // Hashes of prefixes mean nothing to the next store: what they show is done now. Two rounds
        // of the sweeper at most.
        store.set_sweeper(true);
        store.sweep_anyway();
        while store.prefixes.in_use() {
            store.sweep();
        }
        // That took a while.
        store.clock.tick();
        let (flushed, flush_due) = store.flushed.parts();
        let shape =
            Shape { n_pages: store.slabs.n_pages() as usize, sizes: store.slabs.sizes().into() };
        let word = |page| Entry { word: store.slabs.page_word(page).into(), sum: 0.into() };
        let mut saved = Saved {
            generation: file.generation,
            settings: Settings::new(&store.config, &shape),
            state: State {
                clock: store.now().into(),
                unix_seconds: unix_seconds().into(),
                cas: store.cas.load(Ordering::Relaxed).into(),
                flushed: flushed.into(),
                flush_due: flush_due.into(),
            },
            pages: (0..store.slabs.n_pages()).map(word).collect(),
        };
        let sizes = saved.sizes_of_pages(&shape).unwrap_or_default();
        let sums = file.sums(&sizes)?;
        for ((page, _), sum) in sizes.iter().zip(sums) {
            if let Some(entry) = saved.pages.get_mut(*page as usize) {
                entry.sum = sum.into();
            }
        }
        // The items first, so that the metadata never describe what is not there.
        file.file.sync_all().map_err(|e| file.refused(Refusal::Write(e)))?;
        file.write(&saved.to_bytes())?;
        file.is_named()?;
        Ok(Some(store.stats().curr_items))
    }
}

/// Hands each CPU that this thread may use a run of `items`, if there are enough, and strings the
/// results together in the order of the runs.
fn on_all_cpus<T: Sync, R: Send, E: Send>(
    items: &[T],
    work: impl Fn(&[T]) -> Result<Vec<R>, E> + Sync,
) -> Result<Vec<R>, E> {
    if items.len() <= PAGES_PER_THREAD {
        return work(items);
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let run = items.len().div_ceil(cpus).max(PAGES_PER_THREAD);
    let work = &work;
    std::thread::scope(|scope| {
        let started = |part| {
            // The standard library ends the process where a thread that was started has no memory for its signals' stack.
            let room = has_address_space(THREAD_BYTES).then_some(());
            let thread = std::thread::Builder::new().name("restart".to_owned());
            (part, room.and_then(|()| thread.spawn_scoped(scope, move || work(part)).ok()))
        };
        let started: Vec<_> = items.chunks(run).map(started).collect();
        let mut results = Vec::with_capacity(items.len());
        for (part, thread) in started {
            results.extend(match thread {
                Some(thread) => match thread.join() {
                    Ok(done) => done?,
                    Err(panic) => std::panic::resume_unwind(panic),
                },
                // No thread to be had: this one does it.
                None => work(part)?,
            });
        }
        Ok(results)
    })
}
