//! Writing an item into its chunk, or its chunks.
//!
//! In: chunks that are the caller's alone, and what the item is made of. Out: the item, whole,
//! all but its state. Never fails: the caller has made sure that it fits.
#![allow(unsafe_code)]

use super::{Chunk, Header, Location, State, Value};
use crate::item_flags::Marks;
use crate::layout::{
    HEADER_BYTES, OWN_CAS_BYTES, PLACE_BYTES, SUM_KEPT_MAX_BYTES, SUM_KEPT_MIN_BYTES, TRAILER_BYTES,
};
use crate::new_item::{NewItem, PlainItem};
use base::{checksum, small_bytes};
use std::mem;
use std::sync::atomic::{AtomicU8, AtomicU32};

impl Chunk<'_> {
    /// Writes an item into the chunk, all but its state.
    ///
    /// # Safety
    /// The chunk is `writing` and the caller's alone; `new.len_bytes()` bytes fit, the key has at
    /// most 250 and the value at most [`WHOLE_MAX_BYTES`](crate::layout::WHOLE_MAX_BYTES).
    #[inline(always)]
    pub(crate) unsafe fn write(self, new: &NewItem<'_>, sequence: u64, now: u32) {
        // SAFETY: the caller's promise.
        unsafe { self.write_header(new, sequence, now) };
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
        let value_len = new.value_len();
        if (SUM_KEPT_MIN_BYTES..=SUM_KEPT_MAX_BYTES).contains(&value_len) {
            // SAFETY: just written, and still the caller's alone.
            let sum = unsafe { self.settled() }.value().whole().map_or(0, |bytes| new.sum(bytes));
            pen.put(&sum.to_ne_bytes());
        } else if value_len >= SUM_KEPT_MIN_BYTES || new.own_cas.is_some() {
            pen.put(&[0; TRAILER_BYTES]);
        }
        if let Some(cas) = new.own_cas {
            pen.put(&cas.to_ne_bytes());
        }
    }

    /// [`Self::write`] of a plain item: one that is nowhere but in registers stays there.
    ///
    /// # Safety
    /// As for [`Self::write`].
    #[inline(always)]
    pub(crate) unsafe fn write_plain(self, new: PlainItem<'_>, sequence: u64, now: u32) {
        let PlainItem { key, value, sum, flags, expiry } = new;
        let fields = Fields { key_len: key.len(), value_len: value.len(), flags, expiry, marks: 0 };
        // SAFETY: the caller's promise.
        unsafe { self.write_fields(fields, sequence, now) };
        // SAFETY: the chunk's bytes behind the header, as many as are needed.
        let mut pen = unsafe { Pen::new(self, new.len_bytes() - HEADER_BYTES) };
        pen.put(key);
        pen.put(value);
        if value.len() > SUM_KEPT_MAX_BYTES {
            pen.put(&[0; TRAILER_BYTES]);
        } else if value.len() >= SUM_KEPT_MIN_BYTES {
            pen.put(&sum.unwrap_or_else(|| checksum::sum(value)).to_ne_bytes());
        }
    }

    /// Writes a large item into the chunk and `parts`, all but the chunk's state.
    ///
    /// # Safety
    /// The chunk, at `place`, and the parts are `writing` and the caller's alone; each has
    /// `chunk_bytes`, there are [`NewItem::n_parts`] of them, and the key has at most 250 bytes.
    pub(crate) unsafe fn write_large(
        self,
        new: &NewItem<'_>,
        (sequence, now): (u64, u32),
        place: Location,
        chunk_bytes: usize,
        parts: &[(Location, Chunk<'_>)],
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.write_header(new, sequence, now) };
        // SAFETY: the chunk's bytes behind the header.
        let mut pen = unsafe { Pen::new(self, chunk_bytes - HEADER_BYTES) };
        pen.put(new.key);
        let beside = (2 + parts.len()) * PLACE_BYTES + OWN_CAS_BYTES;
        let here = (pen.room() - beside).min(new.value_len());
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
            let (flags, own_cas) = (place.0, None);
            let header = NewItem { key: &[], flags, expiry: 0, value, sums, marks, own_cas };
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
        let mut behind = pen.split_off(here);
        if let Some(cas) = new.own_cas {
            behind.put(&cas.to_ne_bytes());
        }
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
    unsafe fn write_header(self, new: &NewItem<'_>, sequence: u64, now: u32) {
        let own_cas = if new.own_cas.is_some() { Marks::OWN_CAS } else { Marks::default() };
        let fields = Fields {
            key_len: new.key.len(),
            value_len: new.value_len(),
            flags: new.flags,
            expiry: new.expiry,
            marks: new.marks.and(own_cas).0,
        };
        // SAFETY: the caller's promise.
        unsafe { self.write_fields(fields, sequence, now) };
    }

    /// [`Self::write_header`] of these.
    ///
    /// # Safety
    /// As for [`Self::write_header`].
    #[inline(always)]
    unsafe fn write_fields(self, new: Fields, sequence: u64, now: u32) {
        let fields = Header {
            state: AtomicU8::new(State::Writing as u8),
            recency: AtomicU8::new(0),
            key_len: u8::try_from(new.key_len).unwrap_or(0),
            marks: AtomicU8::new(new.marks),
            value_len: to_u32(new.value_len),
            flags: new.flags,
            exptime: AtomicU32::new(new.expiry),
            sequence,
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

/// What a header says that depends on what is stored.
struct Fields {
    key_len: usize,
    value_len: usize,
    flags: u32,
    expiry: u32,
    marks: u8,
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
        // SAFETY: in the arena, which is initialised (zeroed mapping), and no other thread's (the
        // caller's promise): readers with old hints look at a header's atomics, not behind it.
        Self(unsafe { std::slice::from_raw_parts_mut(at.as_ptr(), room) })
    }

    fn room(&self) -> usize {
        self.0.len()
    }

    /// Keeps the next `len` bytes, and gives a pen for those behind them.
    fn split_off(&mut self, len: usize) -> Self {
        let (here, behind) = mem::take(&mut self.0).split_at_mut(len);
        self.0 = here;
        Self(behind)
    }

    /// Writes `bytes`, for which there is room.
    #[inline(always)]
    fn put(&mut self, bytes: &[u8]) {
        let here = mem::take(&mut self.0).split_at_mut_checked(bytes.len());
        debug_assert!(here.is_some(), "more than there is room for");
        if let Some((here, rest)) = here {
            small_bytes::copy(here, bytes);
            self.0 = rest;
        }
    }
}
