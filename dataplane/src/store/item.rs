//! Items: how a chunk of slab memory is laid out, and who may look at which byte when.
//!
//! ```text
//! 0  state     u8   atomic     16 cas    u64
//! 1  recency   u8   atomic     24 link   u32 atomic  its ticket; in limbo or free: the next chunk
//! 2  key_len   u8              28 access u32 atomic  when last asked for
//! 3  marks     u8   atomic     32 key, then value, then of a long one its sum (u16, for checksums)
//! 4  value_len u32
//! 8  flags     u32
//! 12 exptime   u32  atomic
//!
//! free ──allocate──► writing ──link──► linked ──unlink──► unlinked ──epoch passed──► free
//!                       └────────────────give back───────────────────────────────────▲
//! ```
//!
//! A value that is too long for one chunk (a large one) lies in several of the same class:
//!
//! ```text
//! the item's chunk    32 key, number of parts u32, bytes here u32, parts' places i32 each, bytes
//! each further part   0 state  4 value_len: bytes here  8 flags: the item's place  32 bytes
//! ```
//!
//! An item is written while nobody else can reach it (`writing`) and does not change while it is
//! `linked`, but for the atomics. It stays as it is after `unlinked` until every participant has
//! moved past the epoch of that moment. So whoever has seen `linked` while pinned may read on.
//! Fails: never; a wrong location is found out before it gets here (`slab.rs`).
#![allow(unsafe_code)]

mod live;

use super::marks::Marks;
use super::sizes::PAGE_BYTES;
use super::value::{NewItem, Value, len_bytes};
use crate::short;
use crate::wire::checksum;
use driver_shim::prefetch_read;
use driver_shim::{Mapping, MemoryKind, Pages};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Where an item is: its chunk's distance from the start of slab memory, in units of 64 bytes.
/// Any number is safe to ask about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Location(pub u32);

/// What a [`Location`] counts in: a cache line, and the smallest chunk.
pub(super) const UNIT_BYTES: usize = 64;

/// Bytes before the key.
pub(super) const HEADER_BYTES: usize = size_of::<Header>();

/// Bytes behind the header that every chunk has.
pub(crate) const KEY_BLOCK_BYTES: usize = UNIT_BYTES - HEADER_BYTES;

/// Bytes behind the value: its sum, if that is kept.
pub(super) const TRAILER_BYTES: usize = size_of::<u16>();

/// Sums of shorter values are not kept: they are as soon made as read and put together with those of
/// the pieces around.
pub(crate) const SUM_KEPT_MIN_BYTES: usize = 192;

/// Longest value that lies in one chunk, whatever its key. A longer one is large.
pub(super) const WHOLE_MAX_BYTES: usize =
    PAGE_BYTES - HEADER_BYTES - crate::protocol::KEY_MAX_BYTES - TRAILER_BYTES;

/// Bytes of a number in a large item's list of parts.
pub(super) const PLACE_BYTES: usize = size_of::<u32>();

/// Where a chunk is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    Free = 0,
    Writing = 1,
    Linked = 2,
    Unlinked = 3,
    /// A further part of a large value, reached by way of its item only.
    Part = 4,
}

#[derive(Debug)]
#[repr(C)]
struct Header {
    state: AtomicU8,
    recency: AtomicU8,
    key_len: u8,
    marks: AtomicU8,
    value_len: u32,
    flags: u32,
    exptime: AtomicU32,
    cas: u64,
    link: AtomicU32,
    access: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == 32 && align_of::<Header>() <= UNIT_BYTES);

/// The memory that chunks are cut from.
#[derive(Debug)]
pub(super) struct Arena(Mapping);

impl Arena {
    pub(super) fn new(bytes: usize, pages: Pages) -> io::Result<Self> {
        Mapping::new(bytes, pages).map(Self)
    }

    /// Memory that is a file's, from `offset` on.
    pub(super) fn of_file(
        file: &File,
        offset: u64,
        bytes: usize,
        pages: Pages,
    ) -> io::Result<Self> {
        Mapping::of_file(file, offset, bytes, pages).map(Self)
    }

    pub(super) fn kind(&self) -> MemoryKind {
        self.0.kind()
    }

    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    /// Where the item is.
    #[inline]
    pub(super) fn location(&self, item: &ItemRef<'_>) -> Location {
        let offset = item.start.addr().get().wrapping_sub(self.0.base().addr().get());
        Location(u32::try_from(offset / UNIT_BYTES).unwrap_or(u32::MAX))
    }

    /// Asks for so many lines of the chunk: header, key and value. Harmless for any number.
    #[inline]
    pub(super) fn prefetch(&self, loc: Location, units: u32) {
        let first = self.0.base().as_ptr().wrapping_add(loc.0 as usize * UNIT_BYTES);
        let line = |n: u32| prefetch_read(first.wrapping_add(n as usize * UNIT_BYTES));
        // Most are short.
        line(0);
        line(1);
        (2..units).for_each(line);
    }

    /// The chunk at `loc`, to be looked at for as long as `'a`.
    ///
    /// # Safety
    /// - `loc` is the first unit of a carved chunk of the class that its page belongs to; the
    ///   chunk, of `UNIT_BYTES` or more, lies in the arena.
    /// - During all of `'a` the page keeps its class, and if the chunk is seen `linked` in that
    ///   time, its header and bytes are not written to (atomics aside) until `'a` ends.
    #[inline]
    pub(super) unsafe fn chunk<'a>(&self, loc: Location) -> Chunk<'a> {
        // SAFETY: the chunk lies in the arena (the caller's promise), so the offset does.
        let start = unsafe { self.0.base().add(loc.0 as usize * UNIT_BYTES) };
        Chunk { header: start.cast(), life: PhantomData }
    }
}

/// A chunk of which only the atomics may be touched, until its state says more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Chunk<'a> {
    header: NonNull<Header>,
    life: PhantomData<&'a Header>,
}

impl<'a> Chunk<'a> {
    #[inline]
    fn state_cell(self) -> &'a AtomicU8 {
        // SAFETY: the header lies in the arena (Arena::chunk), so the projection does.
        let cell = unsafe { &raw const (*self.header.as_ptr()).state };
        // SAFETY: aligned, initialised (zeroed mapping), and only ever accessed as an atomic
        // while the page keeps its class, which it does during 'a (Arena::chunk).
        unsafe { &*cell }
    }

    #[inline]
    fn link_cell(self) -> &'a AtomicU32 {
        // SAFETY: as in `state_cell`.
        let cell = unsafe { &raw const (*self.header.as_ptr()).link };
        // SAFETY: as in `state_cell`.
        unsafe { &*cell }
    }

    #[inline]
    pub(super) fn set_state(self, state: State) {
        self.state_cell().store(state as u8, Ordering::Release);
    }

    /// The next chunk of the list that this one is in.
    #[inline]
    pub(super) fn next(self) -> u32 {
        self.link_cell().load(Ordering::Relaxed)
    }

    #[inline]
    pub(super) fn set_next(self, next: u32) {
        self.link_cell().store(next, Ordering::Relaxed);
    }

    /// The item, when the chunk holds a linked one.
    #[inline]
    pub(super) fn item(self) -> Option<ItemRef<'a>> {
        if self.state_cell().load(Ordering::Acquire) != State::Linked as u8 {
            return None;
        }
        // SAFETY: seen linked, so it was written before (acquire) and stays as it is during 'a
        // (Arena::chunk).
        Some(unsafe { self.settled() })
    }

    /// The item in a chunk that was linked once, or is about to be.
    ///
    /// # Safety
    /// The item was written, the caller has seen that happen, and nobody rewrites it during `'a`.
    #[inline]
    pub(super) unsafe fn settled(self) -> ItemRef<'a> {
        // SAFETY: aligned and initialised; no field but the atomics changes during 'a (the
        // caller's promise).
        ItemRef { header: unsafe { self.header.as_ref() }, start: self.header.cast() }
    }

    /// Whose part this is.
    pub(super) fn owner(self) -> Option<Location> {
        self.part().map(|part| Location(part.flags()))
    }

    /// The chunk as a part: its flags are the item's place, its value's length that of the bytes
    /// here.
    pub(super) fn part(self) -> Option<ItemRef<'a>> {
        if self.state_cell().load(Ordering::Acquire) != State::Part as u8 {
            return None;
        }
        // SAFETY: seen as a part, so it was written before (acquire), and stays one while the
        // class is locked, or the store not shared yet, as it is where callers come from.
        Some(unsafe { self.settled() })
    }

    /// Writes an item into the chunk, all but its state.
    ///
    /// # Safety
    /// The chunk is `writing` and the caller's alone; `new.len_bytes()` bytes fit, the key has at
    /// most 250 and the value at most [`WHOLE_MAX_BYTES`].
    #[inline(always)]
    pub(super) unsafe fn write(self, new: &NewItem<'_>, cas: u64, now: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.write_header(new, cas, now) };
        // SAFETY: the chunk's bytes behind the header, as many as are needed.
        let mut pen = unsafe { Pen::new(self, new.len_bytes() - HEADER_BYTES) };
        pen.put(new.key);
        for value in &new.value {
            match value.whole() {
                Some(&[]) => {}
                Some(bytes) => pen.put(bytes),
                None => value.pieces().for_each(|piece| pen.put(piece)),
            }
        }
        if new.value_len() >= SUM_KEPT_MIN_BYTES {
            // SAFETY: just written, and still the caller's alone.
            let sum = unsafe { self.settled() }.value().whole().map_or(0, |bytes| new.sum(bytes));
            pen.put(&sum.to_ne_bytes());
        }
    }

    /// Writes a large item into the chunk and `parts`, all but the chunk's state.
    ///
    /// # Safety
    /// The chunk, at `place`, and the parts are `writing` and the caller's alone; each has
    /// `chunk_bytes`, there are [`NewItem::n_parts`] of them, and the key has at most 250 bytes.
    pub(super) unsafe fn write_large(
        self,
        new: &NewItem<'_>,
        (cas, now): (u64, u32),
        place: Location,
        chunk_bytes: usize,
        parts: &[(Location, Chunk<'_>)],
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.write_header(new, cas, now) };
        // SAFETY: the chunk's bytes behind the header.
        let mut pen = unsafe { Pen::new(self, chunk_bytes - HEADER_BYTES) };
        pen.put(new.key);
        let here = (pen.room() - (2 + parts.len()) * PLACE_BYTES).min(new.value_len());
        pen.put(&to_u32(parts.len()).to_ne_bytes());
        pen.put(&to_u32(here).to_ne_bytes());
        for (part, _) in parts {
            pen.put(&part.0.wrapping_sub(place.0).to_ne_bytes());
        }
        let mut left = new.value_len() - here;
        let mut further = parts.iter().map(|(_, chunk)| {
            let len = left.min(chunk_bytes - HEADER_BYTES);
            left -= len;
            let (value, marks) = ([Value::Whole(&[]); 2], Marks::default());
            let sums = [None; 2];
            let header = NewItem { key: &[], flags: place.0, expiry: 0, value, sums, marks };
            // SAFETY: the caller's promise.
            unsafe { chunk.write_header(&header, 0, 0) };
            // SAFETY: in the chunk.
            let value_len = unsafe { &raw mut (*chunk.header.as_ptr()).value_len };
            // SAFETY: aligned, and the chunk is the caller's alone.
            unsafe { value_len.write(to_u32(len)) };
            chunk.set_state(State::Part);
            // SAFETY: the chunk's bytes behind its header.
            unsafe { Pen::new(*chunk, len) }
        });
        for mut piece in new.value.iter().flat_map(Value::pieces) {
            while !piece.is_empty() {
                if pen.room() == 0 {
                    let Some(next) = further.next() else { return };
                    pen = next;
                }
                let (now, later) = piece.split_at(pen.room().min(piece.len()));
                pen.put(now);
                piece = later;
            }
        }
    }

    /// Writes all of the header but the state.
    ///
    /// # Safety
    /// The chunk is `writing` and the caller's alone.
    #[inline(always)]
    unsafe fn write_header(self, new: &NewItem<'_>, cas: u64, now: u32) {
        let fields = Header {
            state: AtomicU8::new(State::Writing as u8),
            recency: AtomicU8::new(0),
            key_len: u8::try_from(new.key.len()).unwrap_or(0),
            marks: AtomicU8::new(new.marks.0),
            value_len: to_u32(new.value_len()),
            flags: new.flags,
            exptime: AtomicU32::new(new.expiry),
            cas,
            link: AtomicU32::new(self.next()),
            access: AtomicU32::new(now),
        };
        let start = self.header.cast::<u8>();
        // The state comes first and is an atomic that readers with old hints may load right
        // now: everything behind it is written as plain bytes, the state itself never.
        // SAFETY: `fields` is a live Header; its byte 1 lies in it.
        let from = unsafe { (&raw const fields).cast::<u8>().add(1) };
        // SAFETY: as above for the chunk.
        let to = unsafe { start.add(1) };
        // SAFETY: both are valid for the 31 bytes behind the state, the chunk is the caller's
        // alone, a local and the arena do not overlap, and all 31 bytes are initialised: the
        // header has no padding.
        unsafe { std::ptr::copy_nonoverlapping(from, to.as_ptr(), HEADER_BYTES - 1) };
    }
}

/// A length that fits, because no item is longer than a gigabyte.
fn to_u32(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(0)
}

/// Writes bytes into a chunk, one behind the other.
struct Pen<'a>(&'a mut [u8]);

impl<'a> Pen<'a> {
    /// Begins behind the header.
    ///
    /// # Safety
    /// The chunk has `room` bytes behind its header, and they are the caller's alone during `'a`.
    unsafe fn new(chunk: Chunk<'a>, room: usize) -> Self {
        // SAFETY: a chunk has room for its header at least.
        let at = unsafe { chunk.header.cast::<u8>().add(HEADER_BYTES) };
        // SAFETY: in the arena, which is initialised (zeroed mapping), and nobody else's (the
        // caller's promise): readers with old hints look at a header's atomics, not behind it.
        Self(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), room) })
    }

    fn room(&self) -> usize {
        self.0.len()
    }

    /// Writes `bytes`, for which there is room.
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        let here = mem::take(&mut self.0).split_at_mut_checked(bytes.len());
        debug_assert!(here.is_some(), "more than there is room for");
        if let Some((here, rest)) = here {
            short::copy(here, bytes);
            self.0 = rest;
        }
    }
}

/// An item, to be read for as long as its guard is held.
#[derive(Clone, Copy)]
pub struct ItemRef<'a> {
    header: &'a Header,
    /// The chunk's first byte, with leave to read beyond the header.
    start: NonNull<u8>,
}

impl std::fmt::Debug for ItemRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ItemRef")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("value_len", &self.header.value_len)
            .field("flags", &self.header.flags)
            .field("cas", &self.header.cas)
            .finish()
    }
}

impl<'a> ItemRef<'a> {
    /// `len` bytes from `from` on, counted from the first byte behind the header.
    #[inline]
    fn bytes(&self, from: usize, len: usize) -> &'a [u8] {
        // SAFETY: key and value lie in the chunk (Chunk::write), so both ends do.
        let first = unsafe { self.start.add(HEADER_BYTES + from) };
        // SAFETY: written before the item was linked, and not written to again during 'a
        // (Chunk::settled).
        unsafe { std::slice::from_raw_parts(first.as_ptr(), len) }
    }

    /// The key.
    #[inline]
    pub fn key(&self) -> &'a [u8] {
        self.bytes(0, usize::from(self.header.key_len))
    }

    /// The key and what stands behind it.
    #[inline(always)]
    pub(crate) fn key_block(&self) -> &'a [u8; KEY_BLOCK_BYTES] {
        // SAFETY: a chunk has room for its header at least.
        let first = unsafe { self.start.add(HEADER_BYTES) };
        // SAFETY: the smallest chunk has so many bytes behind its header; they are initialised (a
        // zeroed mapping), of an alignment of 1, and nobody writes to them during 'a: the item is
        // linked, and they are its chunk's.
        unsafe { first.cast().as_ref() }
    }

    /// The value, as the client sent it, without a line end.
    #[inline]
    pub fn value(&self) -> Value<'a> {
        if self.is_large() {
            return Value::Parts(*self);
        }
        Value::Whole(self.bytes(usize::from(self.header.key_len), self.value_len()))
    }

    #[inline]
    pub(super) fn value_len(&self) -> usize {
        self.header.value_len as usize
    }

    /// Whether the value has a list of parts before it; there may be none in the list.
    #[inline]
    pub(super) fn is_large(&self) -> bool {
        self.value_len() > WHOLE_MAX_BYTES
    }

    /// A number of a large item's list.
    fn list(&self, n: usize) -> u32 {
        let at = usize::from(self.header.key_len) + n * PLACE_BYTES;
        self.bytes(at, PLACE_BYTES).try_into().map_or(0, u32::from_ne_bytes)
    }

    /// Parts of a large value beside the first. 0 for other values.
    pub(super) fn n_parts(&self) -> usize {
        if self.is_large() { self.list(0) as usize } else { 0 }
    }

    pub(super) fn first_part(&self) -> &'a [u8] {
        let behind = usize::from(self.header.key_len) + (2 + self.n_parts()) * PLACE_BYTES;
        self.bytes(behind, self.list(1) as usize)
    }

    /// How far from the item part `n` lies, in units, modulo 2^32.
    pub(super) fn part_place(&self, n: usize) -> u32 {
        self.list(2 + n)
    }

    pub(super) fn part(&self, n: usize) -> &'a [u8] {
        let units = self.part_place(n).cast_signed() as isize;
        // SAFETY: a part of this item, so in the arena with it (Chunk::write_large).
        let start = unsafe { self.start.offset(units * UNIT_BYTES.cast_signed()) };
        // SAFETY: written before the item was linked, and let go of only after it was unlinked:
        // valid and unchanged during 'a, as the item is.
        let header = unsafe { start.cast::<Header>().as_ref() };
        ItemRef { header, start }.bytes(0, header.value_len as usize)
    }

    /// The client's own 32 bits.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.header.flags
    }

    /// The item's CAS id: never 0, and never given twice.
    #[inline]
    pub fn cas(&self) -> u64 {
        self.header.cas
    }

    /// The ones-complement sum of the value as big-endian 16-bit words, padded with a zero byte
    /// (RFC 1071), not inverted. Large values have none: it is 0.
    #[inline]
    pub fn value_sum(&self) -> u16 {
        if self.is_large() {
            return 0;
        }
        if self.value_len() < SUM_KEPT_MIN_BYTES {
            return self.value().whole().map_or(0, checksum::sum);
        }
        let at = usize::from(self.header.key_len) + self.header.value_len as usize;
        self.bytes(at, TRAILER_BYTES).try_into().map_or(0, u16::from_ne_bytes)
    }

    /// [`Self::value_sum`], if it is kept.
    pub(super) fn kept_sum(&self) -> Option<u16> {
        let kept = SUM_KEPT_MIN_BYTES..=WHOLE_MAX_BYTES;
        kept.contains(&self.value_len()).then(|| self.value_sum())
    }

    /// Whether the item can be what its header says, in a chunk of so many bytes; of a large one,
    /// whether its list of parts and the first of them can be. For items from a file; nothing else
    /// of the item may be looked at before.
    pub(super) fn fits(&self, chunk_bytes: usize) -> bool {
        let key_len = usize::from(self.header.key_len);
        if !(1..=crate::protocol::KEY_MAX_BYTES).contains(&key_len) {
            return false;
        }
        if !self.is_large() {
            return self.len_bytes() <= chunk_bytes;
        }
        let before = HEADER_BYTES + key_len + 2 * PLACE_BYTES;
        before <= chunk_bytes
            && before + self.n_parts() * PLACE_BYTES + self.list(1) as usize <= chunk_bytes
    }

    /// Bytes of slab memory used: header, key, value and its sum.
    pub fn len_bytes(&self) -> usize {
        len_bytes(self.header.key_len.into(), self.header.value_len as usize)
    }
}

#[cfg(test)]
mod tests;
