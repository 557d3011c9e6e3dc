//! Items: how a chunk of slab memory is laid out, and who may look at which byte when.
//!
//! ```text
//! 0  state     u8   atomic     16 sequence u64   numbers of items in the order they were made
//! 1  recency   u8   atomic     24 link     u32 atomic  its ticket; in limbo or free: the next chunk
//! 2  key_len   u8              28 access   u32 atomic  when last read
//! 3  marks     u8   atomic     32 key, then value, then two bytes: of 192 to 1,472 its sum (u16, for
//! 4  value_len u32                checksums), then the client's own CAS id (u64), if a mark says that
//! 8  flags     u32                there is one
//! 12 exptime   u32  atomic
//!
//! free ──allocate──► writing ──link──► linked ──unlink──► unlinked ──epoch passed──► free
//!                       └────────────────give back───────────────────────────────────▲
//! ```
//!
//! A value that is too long for one chunk (a large one) lies in several of the same class:
//!
//! ```text
//! the item's chunk    32 key, number of parts u32, bytes here u32, parts' places i32 each, bytes,
//!                     then the client's own CAS id, if there is one
//! each further part   0 state  4 value_len: bytes here  8 flags: the item's place  32 bytes
//! ```
//!
//! An item is written while no other thread can reach it (`writing`) and does not change while it is
//! `linked`, but for the atomics. It stays as it is after `unlinked` until every participant has
//! moved past the epoch of that moment. So a reader that has seen `linked` while pinned may read on.
//! Fails: never; a wrong location is found out before it gets here (`slab.rs`).
#![allow(unsafe_code)]

mod fill;
mod live;

use super::layout::{
    HEADER_BYTES, KEY_BLOCK_BYTES, OWN_CAS_BYTES, PLACE_BYTES, SUM_KEPT_MAX_BYTES,
    SUM_KEPT_MIN_BYTES, TRAILER_BYTES, UNIT_BYTES, WHOLE_MAX_BYTES, len_bytes,
};
use base::{checksum, memory_file};
use driver_shim::prefetch_read;
use driver_shim::{Mapping, MemoryKind, Pages};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::mem::offset_of;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Where an item is: its chunk's distance from the start of slab memory, in units of 64 bytes.
/// Any number is safe to ask about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Location(pub u32);

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
    sequence: u64,
    link: AtomicU32,
    access: AtomicU32,
}

const _: () = assert!(size_of::<Header>() == HEADER_BYTES && align_of::<Header>() <= UNIT_BYTES);
// What clients with a mapping of the memory file go by.
const _: () = assert!(memory_file::HEADER_BYTES == HEADER_BYTES);
const _: () = assert!(memory_file::LINKED == State::Linked as u8);
const _: () = assert!(offset_of!(Header, key_len) == 2 && offset_of!(Header, marks) == 3);
const _: () = assert!(offset_of!(Header, value_len) == 4 && offset_of!(Header, flags) == 8);
const _: () = assert!(offset_of!(Header, exptime) == 12 && offset_of!(Header, sequence) == 16);

/// The memory that chunks are cut from.
#[derive(Debug)]
pub(super) struct Arena(Mapping);

impl Arena {
    pub(super) fn new(bytes: usize, pages: Pages, nodes: &[u32]) -> io::Result<Self> {
        Mapping::new(bytes, pages, nodes).map(Self)
    }

    /// Memory that is a file's, from `offset` on.
    pub(super) fn of_file(
        file: &File,
        offset: u64,
        bytes: usize,
        pages: Pages,
        nodes: &[u32],
    ) -> io::Result<Self> {
        Mapping::of_file(file, offset, bytes, pages, nodes).map(Self)
    }

    pub(super) fn kind(&self) -> MemoryKind {
        self.0.kind()
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn bytes_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }

    /// Where the item is.
    #[inline]
    pub(super) fn location(&self, item: &ItemRef<'_>) -> Location {
        let offset = item.start.addr().get().wrapping_sub(self.0.base().addr().get());
        Location(u32::try_from(offset / UNIT_BYTES).unwrap_or(u32::MAX))
    }

    /// Prefetches so many lines of the chunk: header, key and value. Harmless for any number.
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
    /// The item was written, the caller has seen that happen, and no thread rewrites it during `'a`.
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
            .field("sequence", &self.header.sequence)
            .finish()
    }
}

impl<'a> ItemRef<'a> {
    /// `len` bytes from `from` on, counted from the first byte behind the header.
    #[inline]
    fn bytes(&self, from: usize, len: usize) -> &'a [u8] {
        // SAFETY: key, value and what stands behind it lie in the chunk (Chunk::write), so both ends
        // do.
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

    /// The key's length in bytes.
    #[inline(always)]
    pub fn key_len(&self) -> u8 {
        self.header.key_len
    }

    /// The key and what stands behind it.
    #[inline(always)]
    pub fn key_block(&self) -> &'a [u8; KEY_BLOCK_BYTES] {
        // SAFETY: a chunk has room for its header at least.
        let first = unsafe { self.start.add(HEADER_BYTES) };
        // SAFETY: the smallest chunk has so many bytes behind its header; they are initialised (a
        // zeroed mapping), of an alignment of 1, and no thread writes to them during 'a: they are
        // an item's that was linked, and its chunk is used for no other before 'a ends.
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

    /// The key and the value behind it, if that is in one piece.
    #[inline]
    pub fn key_and_value(&self) -> Option<&'a [u8]> {
        let len = usize::from(self.header.key_len) + self.value_len();
        (!self.is_large()).then(|| self.bytes(0, len))
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
        self.bytes(self.behind_list(), self.list(1) as usize)
    }

    /// Where the first bytes of a large value are, counted from the key.
    fn behind_list(&self) -> usize {
        usize::from(self.header.key_len) + (2 + self.n_parts()) * PLACE_BYTES
    }

    /// How far from the item part `n` lies, in units, modulo 2^32.
    pub(super) fn part_place(&self, n: usize) -> u32 {
        self.list(2 + n)
    }

    pub(super) fn part(&self, n: usize) -> &'a [u8] {
        let units = self.part_place(n).cast_signed() as isize;
        // SAFETY: a part of this item, so in the arena with it (Chunk::write_large).
        let start = unsafe { self.start.offset(units * UNIT_BYTES.cast_signed()) };
        // SAFETY: written before the item was linked, and released only after it was unlinked:
        // valid and unchanged during 'a, as the item is.
        let header = unsafe { start.cast::<Header>().as_ref() };
        ItemRef { header, start }.bytes(0, header.value_len as usize)
    }

    /// The client's own 32 bits.
    #[inline]
    pub fn flags(&self) -> u32 {
        self.header.flags
    }

    /// The item's number, and its CAS id if no client has given it one: never 0, and never given twice.
    /// An item made later has a higher one.
    #[inline]
    pub fn sequence(&self) -> u64 {
        self.header.sequence
    }

    /// The CAS id, as clients know it: what a client set it to, or [`Self::sequence`].
    #[inline]
    pub fn cas(&self) -> u64 {
        if self.has_own_cas() { self.read_own_cas() } else { self.header.sequence }
    }

    /// The CAS id that a client set.
    pub(super) fn own_cas(&self) -> Option<u64> {
        self.has_own_cas().then(|| self.read_own_cas())
    }

    #[cold]
    fn read_own_cas(&self) -> u64 {
        let at = match self.is_large() {
            true => self.behind_list() + self.list(1) as usize,
            false => usize::from(self.header.key_len) + self.value_len() + TRAILER_BYTES,
        };
        self.bytes(at, OWN_CAS_BYTES).try_into().map_or(0, u64::from_ne_bytes)
    }

    /// Bytes of [`Self::own_cas`].
    #[inline]
    fn own_cas_bytes(&self) -> usize {
        if self.has_own_cas() { OWN_CAS_BYTES } else { 0 }
    }

    /// The ones-complement sum of the value as big-endian 16-bit words, padded with a zero byte
    /// (RFC 1071), not inverted. Large values have none: it is 0.
    #[inline]
    pub fn value_sum(&self) -> u16 {
        if self.is_large() {
            return 0;
        }
        if !(SUM_KEPT_MIN_BYTES..=SUM_KEPT_MAX_BYTES).contains(&self.value_len()) {
            return self.value().whole().map_or(0, checksum::sum);
        }
        let at = usize::from(self.header.key_len) + self.header.value_len as usize;
        self.bytes(at, TRAILER_BYTES).try_into().map_or(0, u16::from_ne_bytes)
    }

    /// [`Self::value_sum`], if it is kept.
    pub(super) fn kept_sum(&self) -> Option<u16> {
        let kept = SUM_KEPT_MIN_BYTES..=SUM_KEPT_MAX_BYTES;
        kept.contains(&self.value_len()).then(|| self.value_sum())
    }

    /// Whether the item can be what its header says, in a chunk of so many bytes; of a large one,
    /// whether its list of parts and the first of them can be. For items from a file; nothing else
    /// of the item may be looked at before.
    pub(super) fn fits(&self, chunk_bytes: usize) -> bool {
        let key_len = usize::from(self.header.key_len);
        if !(1..=base::KEY_MAX_BYTES).contains(&key_len) {
            return false;
        }
        if !self.is_large() {
            return self.len_bytes() <= chunk_bytes;
        }
        let before = HEADER_BYTES + key_len + 2 * PLACE_BYTES + self.own_cas_bytes();
        before <= chunk_bytes
            && before + self.n_parts() * PLACE_BYTES + self.list(1) as usize <= chunk_bytes
    }

    /// Bytes of slab memory used: header, key, value, its sum and an own CAS id.
    pub fn len_bytes(&self) -> usize {
        len_bytes(self.header.key_len.into(), self.header.value_len as usize) + self.own_cas_bytes()
    }
}

/// The bytes of a value.
#[derive(Debug, Clone, Copy)]
pub enum Value<'a> {
    /// In one piece.
    Whole(&'a [u8]),
    /// A large one, in the parts of its item.
    Parts(ItemRef<'a>),
}

impl<'a> Value<'a> {
    /// Its length in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match self {
            Self::Whole(bytes) => bytes.len(),
            Self::Parts(item) => item.value_len(),
        }
    }

    /// Whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are in one piece.
    pub fn whole(&self) -> Option<&'a [u8]> {
        match self {
            Self::Whole(bytes) => Some(bytes),
            Self::Parts(_) => None,
        }
    }

    /// The pieces, in order.
    #[inline]
    pub fn pieces(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let (first, item) = match *self {
            Self::Whole(bytes) => (bytes, None),
            Self::Parts(item) => (item.first_part(), Some(item)),
        };
        let further = item.into_iter().flat_map(|i| (0..i.n_parts()).map(move |n| i.part(n)));
        std::iter::once(first).chain(further)
    }

    /// A copy of all of it.
    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces().collect::<Vec<_>>().concat()
    }
}

impl<'a> From<&'a [u8]> for Value<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Whole(bytes)
    }
}

impl PartialEq<&[u8]> for Value<'_> {
    fn eq(&self, other: &&[u8]) -> bool {
        let mut rest = *other;
        self.len() == rest.len()
            && self.pieces().all(|piece| {
                let (head, tail) = rest.split_at(piece.len().min(rest.len()));
                rest = tail;
                head == piece
            })
    }
}

#[cfg(test)]
mod tests;
