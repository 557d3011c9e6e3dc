//! 2 MB-aligned memory, on huge pages where the machine has them: zeroed, or a file's.
//!
//! One type serves the packet region here and the slabs and the index in the store. What was
//! really obtained is kept beside the memory ([`Mapping::kind`]) so that start-up can report it.
//!
//! `nodes` are the NUMA nodes that memory is to come from: one as long as it has any, several in turn, page
//! by page; none, as the thread that touches a page first has it. Where the kernel does not allow that, it is logged
//! and not fatal: containers often may not.
//!
//! A file's memory outlives the process. Its space must be set aside first ([`reserve`]): a touch
//! of a page that the file system cannot give, or that was cut off by a truncation, ends the process
//! (SIGBUS).
#![allow(unsafe_code)]

use crate::nodes::NodePolicy;
use nix::errno::Errno;
use nix::fcntl::{FallocateFlags, fallocate};
use nix::sys::statfs::{HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::ptr::NonNull;

/// Alignment and granularity of every mapping: one x86-64 huge page.
pub const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Where memory for devices goes if it can. A device behind an IOMMU is given virtual addresses, and
/// not every IOMMU takes 47 bits of them: those of desktop processors, and QEMU's, take 39. DPDK has
/// its own memory from 4 GB up for the same reason.
const DEVICE_BASE: usize = 1 << 38;
const DEVICE_END: usize = 1 << 39;

/// Which pages to request.
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

impl Pages {
    /// The word for people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Prefer => "prefer",
            Self::Require => "require",
            Self::Small => "never",
        }
    }
}

/// Where memory lives and who maps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Ordinary 4 KB pages.
    Small,
    /// Aligned for, and advised to become, transparent huge pages.
    Transparent,
    /// Reserved 2 MB pages (hugetlb, hugetlbfs).
    Huge,
    /// A file in memory (tmpfs), in pages as its mount's option `huge=` says.
    Tmpfs,
    /// A file on a disk, by way of the kernel's page cache.
    Disk,
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
            Self::Tmpfs => "a tmpfs file",
            Self::Disk => "a file on disk",
            Self::Pinned => "pinned (CUDA)",
            Self::Device => "GPU memory",
        }
    }
}

/// A 2 MB-aligned mapping: anonymous and zeroed, or of a file. Unmapped on drop.
#[derive(Debug)]
pub struct Mapping {
    base: NonNull<u8>,
    len: usize,
    kind: MemoryKind,
}

// SAFETY: a mapping is plain memory with one owner; what is done with the bytes behind `base`
// is the business (and the unsafe code) of the code that takes the pointer.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives out only the address, the length and the kind.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps at least `bytes` (rounded up to 2 MB).
    ///
    /// # Errors
    /// The OS error: out of memory, or no huge pages under [`Pages::Require`].
    pub fn new(bytes: usize, pages: Pages, nodes: &[u32]) -> io::Result<Self> {
        Self::near(0, bytes, pages, nodes)
    }

    /// As [`Mapping::new`], at addresses of at most 39 bits where some are free, so that any IOMMU
    /// can give them to a device.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub fn for_devices(bytes: usize, pages: Pages, nodes: &[u32]) -> io::Result<Self> {
        // Ordinary memory takes one more, to be aligned.
        let room = rounded(bytes)?.saturating_add(HUGE_PAGE_BYTES);
        let mut places = (DEVICE_BASE..DEVICE_END.saturating_sub(room)).step_by(room);
        let free = places.find(|at| is_free(*at, room));
        Self::near(free.unwrap_or(DEVICE_BASE), bytes, pages, nodes)
    }

    /// At that address, or where the kernel likes.
    fn near(at: usize, bytes: usize, pages: Pages, nodes: &[u32]) -> io::Result<Self> {
        let len = rounded(bytes)?;
        if pages != Pages::Small {
            // None comes before it is known from where.
            let at_once = if nodes.is_empty() { libc::MAP_POPULATE } else { 0 };
            // By its size: a machine may be set to have larger ones by default, which could not be
            // unmapped in steps of 2 MB.
            let huge = map(at, len, libc::MAP_HUGETLB | libc::MAP_HUGE_2MB | at_once)
                .map(|base| Self { base, len, kind: MemoryKind::Huge })
                .and_then(|mut mapping| {
                    mapping.take_from(nodes);
                    mapping.populate().map(|()| mapping)
                });
            match huge {
                Ok(mapping) => return Ok(mapping),
                Err(e) if pages == Pages::Require => return Err(e),
                Err(_) => {}
            }
        }
        let mut mapping = Self { base: map_aligned(at, len)?, len, kind: MemoryKind::Small };
        mapping.take_from(nodes);
        if pages != Pages::Small && mapping.advise_huge() {
            mapping.kind = MemoryKind::Transparent;
        }
        Ok(mapping)
    }

    /// Has the kernel give all of its pages now. A control group's limit shows here, and else as a signal at the first
    /// write, for mmap does not fail of it.
    fn populate(&mut self) -> io::Result<()> {
        // SAFETY: the mapping is ours, whole, and its bytes stay what they are.
        let rc = unsafe {
            libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_POPULATE_WRITE)
        };
        if rc == 0 {
            return Ok(());
        }
        match io::Error::last_os_error() {
            // Before Linux 5.14: by a write to each page.
            error if error.raw_os_error() == Some(libc::EINVAL) => {
                let pages = self.bytes_mut().chunks_mut(HUGE_PAGE_BYTES);
                pages.filter_map(<[u8]>::first_mut).for_each(|first| *first = 0);
                Ok(())
            }
            _ => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }

    /// Has pages that are still to come be of these nodes.
    fn take_from(&self, nodes: &[u32]) {
        if nodes.is_empty() {
            return;
        }
        if let Err(error) = NodePolicy::of(nodes).and_then(|policy| self.bind(&policy)) {
            tracing::warn!(?nodes, %error, "cannot take memory from these NUMA nodes");
        }
    }

    fn bind(&self, policy: &NodePolicy) -> Result<(), Errno> {
        let (mode, mask, bits) = policy.arguments();
        // SAFETY: the range is ours, whole and mapped, and no byte of it changes; the kernel reads as many bits
        // as it is given, less one, and the mask has as many.
        let rc = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                self.base.as_ptr(),
                self.len,
                mode,
                mask.as_ptr(),
                bits,
                0_u32,
            )
        };
        Errno::result(rc).map(drop)
    }

    /// Maps at least `bytes` (rounded up to 2 MB) of a file, from `offset` on, which must be a
    /// multiple of 2 MB. What is written there is the file's at once. Of a file in memory the nodes are those
    /// of pages that it gets from now on, by any mapping; a file on a disk has none.
    ///
    /// # Errors
    /// A file that ends earlier, no huge pages under [`Pages::Require`], or the OS error.
    pub fn of_file(
        file: &File,
        offset: u64,
        bytes: usize,
        pages: Pages,
        nodes: &[u32],
    ) -> io::Result<Self> {
        let len = rounded(bytes)?;
        let wrong = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if file.metadata()?.len() < offset.saturating_add(len as u64) {
            return wrong("the file ends before the memory does");
        }
        let Ok(from) = libc::off_t::try_from(offset) else {
            return wrong("an offset beyond what files have");
        };
        let system = fstatfs(file)?.filesystem_type();
        let kind = match system {
            HUGETLBFS_MAGIC => MemoryKind::Huge,
            TMPFS_MAGIC => MemoryKind::Tmpfs,
            _ => MemoryKind::Disk,
        };
        if pages == Pages::Require && kind != MemoryKind::Huge {
            return wrong("not in a hugetlbfs, so not on huge pages");
        }
        let mapping = Self { base: map_aligned(0, len)?, len, kind };
        // SAFETY: takes the place of a mapping that is ours, whole, and not used yet. The
        // module's head says that the file must keep its length.
        let p = unsafe {
            libc::mmap(
                mapping.base.as_ptr().cast(),
                len,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                from,
            )
        };
        if p == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        mapping.take_from(nodes);
        if pages != Pages::Small && kind == MemoryKind::Tmpfs {
            // What comes of it is the mount's affair, and not reported.
            let _ = mapping.advise_huge();
        }
        Ok(mapping)
    }

    /// Requests transparent huge pages. False when the kernel has none.
    fn advise_huge(&self) -> bool {
        // SAFETY: a live mapping of ours; advice does not change contents.
        unsafe { libc::madvise(self.base.as_ptr().cast(), self.len, libc::MADV_HUGEPAGE) == 0 }
    }

    /// First byte. Valid for `len()` bytes as long as the mapping lives.
    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// All of it, while no other code uses it: a caller that has handed out addresses behind [`Self::base`]
    /// does not call this.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: mapped for `len` bytes, initialised by the kernel, and borrowed alone.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
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

/// Gives the file this length, and each of its bytes a place in memory, of these nodes, or on the disk.
///
/// # Errors
/// The OS error: no space left, or it cannot set space aside.
pub fn reserve(file: &File, len: u64, nodes: &[u32]) -> io::Result<()> {
    file.set_len(len)?;
    // A file in memory keeps the policy of a mapping. What cannot be mapped cannot be set aside, which says why.
    let bound = usize::try_from(len).ok().filter(|_| !nodes.is_empty());
    drop(bound.map(|len| Mapping::of_file(file, 0, len, Pages::Small, nodes)));
    let most = libc::off_t::try_from(len).map_err(|_| io::ErrorKind::InvalidInput)?;
    loop {
        // A signal that comes meanwhile is for a handler that sets a flag and returns.
        match fallocate(file, FallocateFlags::empty(), 0, most) {
            Err(Errno::EINTR) => {}
            done => return done.map_err(io::Error::from),
        }
    }
}

/// Writes the first bytes of the file, and returns when the file is as safe as its file system
/// makes it. By way of a mapping where there is no other: hugetlbfs takes no writes.
///
/// # Errors
/// As [`Mapping::of_file`]; or the file could not be synced.
pub fn write_start(file: &File, bytes: &[u8]) -> io::Result<()> {
    if file.write_all_at(bytes, 0).is_ok() {
        return file.sync_all();
    }
    let window = Mapping::of_file(file, 0, bytes.len(), Pages::Small, &[])?;
    // SAFETY: the window is as long as `bytes` or longer, was mapped just now, and no other code
    // has its address.
    unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), window.base.as_ptr(), bytes.len()) };
    drop(window);
    file.sync_all()
}

/// Whether so much address space could be had now, to be written to.
pub fn has_address_space(bytes: usize) -> bool {
    let Ok(base) = map(0, bytes, 0) else { return false };
    // SAFETY: just mapped, ours, whole, and not used.
    unsafe { libc::munmap(base.as_ptr().cast(), bytes) };
    true
}

/// So many bytes in whole huge pages, one at least.
fn rounded(bytes: usize) -> io::Result<usize> {
    let len = bytes.max(1).checked_next_multiple_of(HUGE_PAGE_BYTES);
    len.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))
}

/// Ordinary memory at an aligned address: the kernel makes huge pages only of aligned 2 MB runs.
fn map_aligned(at: usize, len: usize) -> io::Result<NonNull<u8>> {
    // One huge page more than requested, then the ends are given back.
    let padded = len
        .checked_add(HUGE_PAGE_BYTES)
        .ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
    let raw = map(at, padded, libc::MAP_NORESERVE)?;
    let skip = raw.as_ptr().align_offset(HUGE_PAGE_BYTES);
    // SAFETY: `skip < HUGE_PAGE_BYTES`, so base..base+len lies within the padded mapping.
    let base = unsafe { raw.add(skip) };
    if skip > 0 {
        // SAFETY: the first `skip` bytes belong to the mapping just made and no thread uses them.
        unsafe { libc::munmap(raw.as_ptr().cast(), skip) };
    }
    // SAFETY: `skip` is less than the padding, so the mapping goes on behind base+len.
    let end = unsafe { base.add(len) };
    // SAFETY: the rest of the padding: inside the mapping just made, and unused.
    unsafe { libc::munmap(end.as_ptr().cast(), HUGE_PAGE_BYTES - skip) };
    Ok(base)
}

/// Whether nothing lies there. By the time that it is used there may be something.
fn is_free(at: usize, len: usize) -> bool {
    // Without access it counts towards no limit of the machine's.
    let Ok(base) = map_as(libc::PROT_NONE, at, len, libc::MAP_FIXED_NOREPLACE) else {
        return false;
    };
    // SAFETY: just mapped, ours, whole, and not used.
    unsafe { libc::munmap(base.as_ptr().cast(), len) };
    // Kernels before 4.17 choose another place.
    base.as_ptr().addr() == at
}

fn map(at: usize, len: usize, extra: libc::c_int) -> io::Result<NonNull<u8>> {
    map_as(libc::PROT_READ | libc::PROT_WRITE, at, len, extra)
}

fn map_as(
    access: libc::c_int,
    at: usize,
    len: usize,
    extra: libc::c_int,
) -> io::Result<NonNull<u8>> {
    // SAFETY: an anonymous private mapping touches no existing memory: the address is a wish, and
    // the kernel chooses another where there is something.
    let p = unsafe {
        libc::mmap(
            std::ptr::without_provenance_mut(at),
            len,
            access,
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
            let m = Mapping::new(5, pages, &[]).unwrap();
            assert_eq!(m.len(), HUGE_PAGE_BYTES);
            assert_eq!(m.base().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
            // SAFETY: the last byte of the mapping.
            let last = unsafe { m.base().add(m.len() - 1) };
            // SAFETY: mapped, and initialised by the kernel.
            assert_eq!(unsafe { last.read() }, 0);
        }
    }

    #[test]
    fn devices_reach_all_of_it() {
        for pages in [Pages::Small, Pages::Prefer] {
            let m = Mapping::for_devices(3 * HUGE_PAGE_BYTES, pages, &[]).unwrap();
            // What is taken already is left alone.
            let other = Mapping::for_devices(HUGE_PAGE_BYTES, pages, &[]).unwrap();
            for m in [&m, &other] {
                assert!(m.base().as_ptr().addr() + m.len() <= 1 << 39, "{:?}", m.base());
            }
            let (a, b) = (m.base().as_ptr().addr(), other.base().as_ptr().addr());
            assert!(b >= a + m.len() || b + other.len() <= a);
        }
    }

    #[test]
    fn a_file_keeps_what_is_written() {
        let path = std::env::temp_dir().join(format!("gnomon-mapping-{}", std::process::id()));
        let mut open = File::options();
        let file = open.read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let two = 2 * HUGE_PAGE_BYTES;
        assert!(Mapping::of_file(&file, 0, 1, Pages::Small, &[]).is_err(), "empty");
        reserve(&file, two as u64, &[]).unwrap();
        write_start(&file, b"head").unwrap();
        let m = Mapping::of_file(&file, HUGE_PAGE_BYTES as u64, 7, Pages::Prefer, &[]).unwrap();
        assert_eq!(m.len(), HUGE_PAGE_BYTES);
        assert_eq!(m.base().as_ptr().align_offset(HUGE_PAGE_BYTES), 0);
        assert!(matches!(m.kind(), MemoryKind::Tmpfs | MemoryKind::Disk), "{:?}", m.kind());
        // SAFETY: mapped, and zero or what was written.
        unsafe { m.base().write(7) };
        drop(m);
        let bytes = |at, len| {
            use std::os::unix::fs::FileExt;
            let mut bytes = vec![0; len];
            file.read_exact_at(&mut bytes, at).unwrap();
            bytes
        };
        assert_eq!(bytes(0, 5), b"head\0");
        assert_eq!(bytes(HUGE_PAGE_BYTES as u64, 2), [7, 0]);
        assert!(Mapping::of_file(&file, 0, two + 1, Pages::Small, &[]).is_err(), "it ends earlier");
        assert!(Mapping::of_file(&file, 5, 1, Pages::Small, &[]).is_err(), "not aligned");
        assert!(Mapping::of_file(&file, 0, two, Pages::Require, &[]).is_err(), "no hugetlbfs");
    }

    /// The first node stands for one, and, twice, for several: no machine of tests has two for sure.
    #[test]
    fn memory_comes_from_the_nodes_that_it_was_told() {
        let nodes = std::fs::read_to_string("/sys/devices/system/node/online").unwrap_or_default();
        let Ok(node) = nodes.chars().take_while(char::is_ascii_digit).collect::<String>().parse()
        else {
            return;
        };
        let path = std::env::temp_dir().join(format!("gnomon-nodes-{}", std::process::id()));
        let mut open = File::options();
        let file = open.read(true).write(true).create(true).truncate(false).open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        for (nodes, policy) in [
            (vec![node], format!(" prefer:{node} ")),
            (vec![node, node], format!(" interleave:{node} ")),
        ] {
            reserve(&file, HUGE_PAGE_BYTES as u64, &nodes).unwrap();
            for mut m in [
                Mapping::new(1, Pages::Prefer, &nodes).unwrap(),
                Mapping::for_devices(1, Pages::Small, &nodes).unwrap(),
                Mapping::of_file(&file, 0, 1, Pages::Small, &nodes).unwrap(),
            ] {
                match m.bind(&NodePolicy::of(&nodes).unwrap()) {
                    // Many containers forbid it, and some kernels have no nodes.
                    Err(Errno::EPERM | Errno::ENOSYS) => return,
                    done => done.unwrap(),
                }
                m.bytes_mut().fill(1);
                let at = format!("{:x} ", m.base().as_ptr().addr());
                let maps = std::fs::read_to_string("/proc/self/numa_maps").unwrap();
                let line = maps.lines().find(|line| line.starts_with(&at)).unwrap();
                let right = line.contains(&policy) && line.contains(&format!(" N{node}="));
                assert!(right || m.kind() == MemoryKind::Disk, "{nodes:?}: {line}");
            }
        }
        // A node that there is not: as without.
        assert!(Mapping::new(1, Pages::Small, &[u32::MAX]).is_ok());
    }

    #[test]
    fn absurd_size_is_an_error() {
        assert!(Mapping::new(usize::MAX, Pages::Small, &[]).is_err());
        assert!(Mapping::new(1 << 60, Pages::Prefer, &[]).is_err());
    }
}
