//! Zeroed, 2 MB-aligned memory, on huge pages where the machine has them.
//!
//! One type serves the packet region here and the slabs and the index in the store. What was
//! really obtained is kept beside the memory ([`Mapping::kind`]) so that start-up can report it.
#![allow(unsafe_code)]

use std::io;
use std::ptr::NonNull;

/// Alignment and granularity of every mapping: one x86-64 huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Which pages to ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pages {
    /// Reserved huge pages; transparent ones where none are free.
    #[default]
    Prefer,
    /// Reserved huge pages or an error.
    Require,
    /// Ordinary pages only.
    Small,
}

/// Where memory lives and who maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Ordinary 4 KB pages.
    Small,
    /// Aligned for, and advised to become, transparent huge pages.
    Transparent,
    /// Reserved 2 MB pages (hugetlb).
    Huge,
    /// Host memory pinned and mapped by the CUDA driver.
    Pinned,
    /// GPU memory that the NIC reaches by peer DMA.
    Device,
}

impl MemoryKind {
    /// The name used in the plan and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Small => "4 KB pages",
            Self::Transparent => "transparent huge pages",
            Self::Huge => "2 MB huge pages",
            Self::Pinned => "pinned (CUDA)",
            Self::Device => "GPU memory",
        }
    }
}

/// An anonymous, zeroed, 2 MB-aligned mapping. Unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    kind: MemoryKind,
}

// SAFETY: a mapping is plain memory with one owner; what is done with the bytes behind `base`
// is the business (and the unsafe code) of whoever asks for the pointer.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives out only the address, the length and the kind.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `bytes` (rounded up to 2 MB).
    ///
    /// # Errors
    /// The kernel's refusal: out of memory, or no huge pages under [`Pages::Require`].
    pub fn new(bytes: usize, pages: Pages) -> io::Result<Self> {
        let len = bytes
            .max(1)
            .checked_next_multiple_of(HUGE_PAGE_BYTES)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        if pages != Pages::Small {
            // By its size: a machine may be set to have larger ones by default, which could not be
            // unmapped in steps of 2 MB.
            match map(len, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | libc::MAP_POPULATE) {
                Ok(base) => return Ok(Self { base, len, kind: MemoryKind::Huge }),
                Err(e) if pages == Pages::Require => return Err(e),
                Err(_) => {}
            }
        }
        // One huge page more than asked for, then the ends are given back, so that the base is
        // aligned: the kernel makes transparent huge pages only of aligned 2 MB runs.
        let padded = len
            .checked_add(HUGE_PAGE_BYTES)
            .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        let raw = map(padded, libc::MAP_NORESERVE)?;
        let skip = raw.as_ptr().align_offset(HUGE_PAGE_BYTES);
        // SAFETY: `skip < HUGE_PAGE_BYTES`, so base..base+len lies within the padded mapping.
        let base = unsafe { raw.add(skip) };
        if skip > 0 {
            // SAFETY: the first `skip` bytes belong to the mapping just made and nobody uses them.
            unsafe { libc::munmap(raw.as_ptr().cast(), skip) };
        }
        // SAFETY: `skip` is less than the padding, so the mapping goes on behind base+len.
        let end = unsafe { base.add(len) };
        // SAFETY: the rest of the padding: inside the mapping just made, and unused.
        unsafe { libc::munmap(end.as_ptr().cast(), HUGE_PAGE_BYTES - skip) };
        let mut kind = MemoryKind::Small;
        if pages != Pages::Small {
            // SAFETY: base..base+len is a live mapping of ours; advice does not change contents.
            let rc = unsafe { libc::madvise(base.as_ptr().cast(), len, libc::MADV_HUGEPAGE) };
            if rc == 0 {
                kind = MemoryKind::Transparent;
            }
        }
        Ok(Self { base, len, kind })
    }

    /// First byte. Valid for `len()` bytes as long as the mapping lives.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Bytes mapped: a multiple of 2 MB.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true; here because `len` is.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What was really obtained.
    pub fn kind(&self) -> MemoryKind {
        self.kind
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours, whole and mapped; the owner is going away.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn map(len: usize, extra: libc::c_int) -> io::Result<NonNull<u8>> {
    // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
    // existing memory.
    let p = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            len,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | extra,
            -1,
            0,
        )
    };
    if p == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(p.cast()).ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn is_aligned_rounded_and_zeroed() {
        for pages in [Pages::Small, Pages::Prefer] {
            let m = Mapping::new(5, pages).unwrap();
            assert_eq!(m.len(), HUGE_PAGE_BYTES);
            assert_eq!(m.base().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
            // SAFETY: the last byte of the mapping.
            let last = unsafe { m.base().add(m.len() - 1) };
            // SAFETY: mapped, and initialised by the kernel.
            assert_eq!(unsafe { last.read() }, 0);
        }
    }

    #[test]
    fn absurd_size_is_an_error() {
        assert!(Mapping::new(usize::MAX, Pages::Small).is_err());
        assert!(Mapping::new(1 << 60, Pages::Prefer).is_err());
    }
}
