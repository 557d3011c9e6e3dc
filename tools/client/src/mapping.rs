//! A memory file, mapped to be read while its server writes to it.
//!
//! In: a path, and offsets. Out: numbers and bytes, each read by an atomic load, as they are at some moment: what belongs
//! together is for the caller to find out. An offset is compared with the file's length before it is touched.
//! Owned: unmapped on drop. Fails: no such file, or no right to read it. A file that is cut while it is
//! mapped ends the process (SIGBUS): only its user can do that, and the server does when it
//! starts with less memory, after it has ended all reads in the file.
#![allow(unsafe_code, reason = "memory that another process writes to")]

use rustix::fs::{Mode, OFlags, fstat, open};
use rustix::mm::{MapFlags, ProtFlags, mmap, munmap};
use std::io::{self, ErrorKind};
use std::path::Path;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Bytes of a word.
pub(crate) const WORD_BYTES: usize = size_of::<u64>();

/// The file's bytes.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    /// Of the file when it was opened.
    len: usize,
}

// SAFETY: a mapping is bound to no thread, and only its owner unmaps it.
unsafe impl Send for Memory {}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: mapped by `open` with this length, not unmapped before, and no reference into it is left: each
        // load's ends with the load.
        let _ = unsafe { munmap(self.base.as_ptr().cast(), self.len) };
    }
}

impl Memory {
    /// Maps all of the file.
    ///
    /// # Errors
    /// The system's, and `InvalidData` for an empty file.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let file = open(path, OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY, Mode::empty())?;
        let len = usize::try_from(fstat(&file)?.st_size).unwrap_or(0);
        if len == 0 {
            return Err(io::Error::new(ErrorKind::InvalidData, "the file is empty"));
        }
        // SAFETY: the kernel chooses the address, so that no memory in use is replaced.
        let base = unsafe { mmap(null_mut(), len, ProtFlags::READ, MapFlags::SHARED, &file, 0) }?;
        let base = NonNull::new(base.cast()).ok_or(ErrorKind::OutOfMemory)?;
        Ok(Self { base, len })
    }

    /// Bytes of the file when it was opened.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The address of `bytes` bytes at a multiple of `align`, if the file has them.
    #[inline]
    fn at(&self, at: usize, bytes: usize, align: usize) -> Option<NonNull<u8>> {
        let fits = at.is_multiple_of(align) && bytes <= self.len && at <= self.len - bytes;
        // SAFETY: it lies in the mapping, as was just seen.
        fits.then(|| unsafe { self.base.add(at) })
    }

    /// The word at `at`, a multiple of its length. What is read behind it is no older than it.
    #[inline]
    pub(crate) fn word(&self, at: usize) -> Option<u64> {
        let word = self.at(at, WORD_BYTES, WORD_BYTES)?.cast::<AtomicU64>();
        // SAFETY: mapped as long as `self`, aligned (the mapping is to a page), any bytes are a number; this process only
        // loads, atomically, and a load needs no right to write.
        Some(unsafe { word.as_ref() }.load(Ordering::Acquire))
    }

    /// The same of half a word.
    #[inline]
    pub(crate) fn half(&self, at: usize) -> Option<u32> {
        let half = self.at(at, WORD_BYTES / 2, WORD_BYTES / 2)?.cast::<AtomicU32>();
        // SAFETY: as in `word`.
        Some(unsafe { half.as_ref() }.load(Ordering::Acquire))
    }

    /// Copies as many words as `into` has from `at` on, a multiple of their length, in no particular order.
    #[inline]
    pub(crate) fn copy(&self, at: usize, into: &mut [[u8; WORD_BYTES]]) -> Option<()> {
        let first = self.at(at, size_of_val(into), WORD_BYTES)?.cast::<AtomicU64>();
        for (n, to) in into.iter_mut().enumerate() {
            // SAFETY: word `n` of those that `at` has found in the mapping.
            let word = unsafe { first.add(n) };
            // SAFETY: as in `word`.
            *to = unsafe { word.as_ref() }.load(Ordering::Relaxed).to_ne_bytes();
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn nothing_is_read_beyond_the_end() {
        let path =
            std::env::temp_dir().join(format!("gnomon-client-mapping-{}", std::process::id()));
        fs::write(&path, b"").unwrap();
        assert_eq!(Memory::open(&path).unwrap_err().kind(), ErrorKind::InvalidData);
        let bytes: Vec<u8> = (0..20).collect();
        fs::write(&path, &bytes).unwrap();
        let memory = Memory::open(&path).unwrap();
        fs::remove_file(&path).unwrap();
        assert_eq!(memory.len(), 20);
        assert_eq!(memory.word(8), Some(u64::from_ne_bytes(*b"\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f")));
        assert_eq!(memory.half(16), Some(u32::from_ne_bytes(*b"\x10\x11\x12\x13")));
        assert_eq!([16, 4, 24, usize::MAX - 7].map(|at| memory.word(at)), [None; 4]);
        assert_eq!([20, 2, usize::MAX - 3].map(|at| memory.half(at)), [None; 3]);
        let mut two = [[0; 8]; 2];
        assert_eq!(memory.copy(0, &mut two), Some(()));
        assert_eq!(two.as_flattened(), &bytes[..16]);
        assert_eq!([8, 3, usize::MAX - 7].map(|at| memory.copy(at, &mut two)), [None; 3]);
        assert!(Memory::open(&path).is_err());
    }
}
