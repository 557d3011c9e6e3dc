//! What this machine has: CPUs, memory, devices, limits.
//!
//! Reads `/proc` and `/sys`; changes nothing but this process's own limit on open files.
//!
//! Out: [`Machine`], plain facts for [`crate::startup::plan`], so that a plan can be made in tests for a
//! machine that does not exist. A fact that cannot be read is `None`, and whatever depends on it is
//! left for the part that needs it to find out.

mod memory_file;
mod nodes;

pub use memory_file::{FileFault, FileRoom, FileSystem};
use nix::fcntl::{FcntlArg, fcntl};
use nix::ifaddrs::getifaddrs;
use nix::sched::{CpuSet, sched_getaffinity};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::socket::SockaddrStorage;
use nix::unistd::{Pid, close};
pub use nodes::{Node, node_of, nodes};
use serde::Serialize;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

/// Facts about the machine and this build of the program.
#[derive(Debug, Clone)]
pub struct Machine {
    /// CPUs that this process may run on, ascending.
    pub cpus: Vec<usize>,
    /// Memory that can still be had, in bytes: the machine's, or the control group's when less.
    pub memory_available_bytes: Option<u64>,
    /// Reserved 2 MB pages that are still free, in bytes.
    pub huge_free_bytes: u64,
    /// Most files that the process may open.
    pub open_files_max: Option<u64>,
    /// Where sysfs is mounted.
    pub sysfs: PathBuf,
    /// Interfaces and their addresses.
    pub addresses: Vec<(String, IpAddr)>,
    /// This build can drive ports through DPDK.
    pub has_dpdk: bool,
    /// Looks for a GPU, which may take seconds. `None`: this build cannot, for lack of the feature
    /// `cuda`.
    pub find_gpu: Option<fn() -> Gpu>,
    /// This build has the SIMT executor.
    pub has_simt: bool,
    /// Looks at a place for a memory file.
    pub look_at_file: fn(&Path) -> Result<FileRoom, FileFault>,
}

/// What became of the search for a GPU.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Gpu {
    /// There are some; each in words.
    Found(Vec<String>),
    /// There is none that could be used; why, and what to do.
    Absent(String),
}

impl Machine {
    /// Looks around.
    pub fn observe() -> Self {
        let available = [available_memory(Path::new("/proc")), group_room(Path::new("/"))];
        Self {
            cpus: allowed_cpus(),
            memory_available_bytes: available.into_iter().flatten().min(),
            huge_free_bytes: huge_free_of(Path::new("/sys/kernel/mm")),
            open_files_max: getrlimit(Resource::RLIMIT_NOFILE).ok().map(|(_, hard)| hard),
            sysfs: PathBuf::from("/sys"),
            addresses: addresses(),
            has_dpdk: cfg!(feature = "dpdk"),
            #[cfg(feature = "cuda")]
            find_gpu: Some(find_gpu),
            #[cfg(not(feature = "cuda"))]
            find_gpu: None,
            has_simt: cfg!(feature = "simt"),
            look_at_file: memory_file::look,
        }
    }

    /// Whether a device of this PCI address exists.
    pub fn has_pci_device(&self, address: &str) -> bool {
        self.sysfs.join("bus/pci/devices").join(address).exists()
    }

    /// The kernel driver that holds the device, if one does.
    pub fn pci_driver(&self, address: &str) -> Option<String> {
        let link = self.sysfs.join("bus/pci/devices").join(address).join("driver");
        Some(fs::read_link(link).ok()?.file_name()?.to_string_lossy().into_owned())
    }

    /// Whether the interfaces of the device have all of these addresses.
    pub fn interface_has(&self, address: &str, ips: impl IntoIterator<Item = IpAddr>) -> bool {
        let of_device = self.sysfs.join("bus/pci/devices").join(address).join("net");
        let has = |ip: IpAddr| {
            self.addresses.iter().any(|(name, own)| *own == ip && of_device.join(name).exists())
        };
        ips.into_iter().all(has)
    }
}

/// Lets this process open so many files, where its limit is lower, and grows the kernel's table of them to
/// that size. It never shrinks; growing it while threads share it waits for an RCU grace period, some 20 ms in
/// which the thread that accepts a connection serves no other.
///
/// # Errors
/// The OS error: above the hard limit, which the plan has checked, or no memory.
pub fn allow_open_files(n: u64) -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < n {
        setrlimit(Resource::RLIMIT_NOFILE, n, hard)?;
    }
    let last = RawFd::try_from(n.saturating_sub(1)).map_err(io::Error::other)?;
    let (any, _) = io::pipe()?;
    Ok(close(fcntl(any, FcntlArg::F_DUPFD_CLOEXEC(last))?)?)
}

/// None where they cannot be read.
fn addresses() -> Vec<(String, IpAddr)> {
    let ip = |address: SockaddrStorage| {
        let v4 = address.as_sockaddr_in().map(|a| a.ip().into());
        v4.or_else(|| address.as_sockaddr_in6().map(|a| a.ip().into()))
    };
    let all = getifaddrs().into_iter().flatten();
    all.filter_map(|one| Some((one.interface_name, ip(one.address?)?))).collect()
}

#[cfg(feature = "cuda")]
fn find_gpu() -> Gpu {
    match gpu::cuda::probe() {
        Ok(devices) => Gpu::Found(devices.iter().map(ToString::to_string).collect()),
        Err(error) => Gpu::Absent(error.to_string()),
    }
}

fn allowed_cpus() -> Vec<usize> {
    match sched_getaffinity(Pid::from_raw(0)) {
        Ok(set) => (0..CpuSet::count()).filter(|&c| set.is_set(c).unwrap_or(false)).collect(),
        Err(_) => Vec::new(),
    }
}

fn available_memory(proc: &Path) -> Option<u64> {
    let text = fs::read_to_string(proc.join("meminfo")).ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

/// Reserved pages of 2 MB that are free, in bytes: of the machine or a node, as its directory says.
fn huge_free_of(dir: &Path) -> u64 {
    number(&dir.join("hugepages/hugepages-2048kB/free_hugepages")).unwrap_or(0) * (2 << 20)
}

/// How a version of control groups says what memory a group may have and has.
struct GroupFiles {
    mount: &'static str,
    limit: &'static str,
    used: &'static str,
    /// In `memory.stat`: file pages that the kernel drops first.
    cached: &'static str,
}

const GROUPS_V2: GroupFiles = GroupFiles {
    mount: "sys/fs/cgroup",
    limit: "memory.max",
    used: "memory.current",
    cached: "inactive_file ",
};
const GROUPS_V1: GroupFiles = GroupFiles {
    mount: "sys/fs/cgroup/memory",
    limit: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file ",
};

/// What the tightest limit among this process's control group and its ancestors leaves. Cached file pages count
/// as free: the kernel drops them first.
fn group_room(root: &Path) -> Option<u64> {
    let text = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    // A line is HIERARCHY:CONTROLLERS:PATH; version 2 has the hierarchy 0 and no controllers.
    let lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(":/"));
    let groups = lines.filter_map(|(controllers, path)| match controllers {
        "" => Some((GROUPS_V2, path)),
        all => all.split(',').any(|one| one == "memory").then_some((GROUPS_V1, path)),
    });
    let room = |(files, path): (GroupFiles, &str)| {
        let mount = root.join(files.mount);
        let own = mount.join(path);
        let dirs = own.ancestors().take_while(|dir| dir.starts_with(&mount));
        dirs.filter_map(|dir| files.room_below(dir)).min()
    };
    groups.filter_map(room).min()
}

impl GroupFiles {
    fn room_below(&self, dir: &Path) -> Option<u64> {
        // "max" is no number: no limit.
        let max = number(&dir.join(self.limit))?;
        let used = number(&dir.join(self.used))?;
        let stat = fs::read_to_string(dir.join("memory.stat")).unwrap_or_default();
        let cached = stat.lines().find_map(|l| l.strip_prefix(self.cached)?.parse().ok());
        Some(max.saturating_sub(used.saturating_sub(cached.unwrap_or(0))))
    }
}

fn number(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
impl Machine {
    /// Eight CPUs, 8 GB, no huge pages, no devices, in a build without CUDA.
    pub(crate) fn pretend() -> Self {
        Self {
            cpus: (0..8).collect(),
            memory_available_bytes: Some(8 << 30),
            huge_free_bytes: 0,
            open_files_max: Some(65_536),
            sysfs: PathBuf::from("/nowhere"),
            addresses: Vec::new(),
            has_dpdk: true,
            find_gpu: None,
            has_simt: false,
            look_at_file: |_| {
                let system = FileSystem::Tmpfs;
                Ok(FileRoom { system, taken_bytes: 0, free_bytes: Some(4 << 30) })
            },
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A directory of its own that goes away with it.
    pub(crate) struct Tree(pub(crate) PathBuf);

    impl Tree {
        pub(crate) fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let root = std::env::temp_dir().join(format!("gnomon-{name}-{}", std::process::id()));
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn this_machine_has_cpus_and_memory() {
        let m = Machine::observe();
        assert!(!m.cpus.is_empty());
        assert!(m.cpus.is_sorted());
        assert!(m.memory_available_bytes.unwrap() > 1 << 20);
    }

    /// `FDSize` is what the table has places for.
    #[test]
    fn the_table_of_open_files_has_its_size_from_the_start() {
        let places = || {
            let status = fs::read_to_string("/proc/self/status").unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("FDSize:"));
            line.unwrap().trim().parse::<u64>().unwrap()
        };
        let n = places() * 2;
        allow_open_files(n).unwrap();
        assert!(places() >= n);
        allow_open_files(10).unwrap();
    }

    #[test]
    fn memory_and_huge_pages_are_read_from_their_files() {
        let t = Tree::new(
            "machine",
            &[
                ("proc/meminfo", "MemTotal: 9 kB\nMemAvailable:    2048 kB\n"),
                ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3\n"),
            ],
        );
        assert_eq!(available_memory(&t.0.join("proc")), Some(2 << 20));
        assert_eq!(huge_free_of(&t.0.join("sys/kernel/mm")), 6 << 20);
        assert_eq!(available_memory(&t.0), None);
        assert_eq!(huge_free_of(&t.0), 0);
    }

    #[test]
    fn the_tightest_control_group_counts() {
        let t = Tree::new(
            "groups",
            &[
                ("proc/self/cgroup", "1:name=x:/y\n0::/a/b\n"),
                ("sys/fs/cgroup/a/b/memory.max", "max\n"),
                ("sys/fs/cgroup/a/b/memory.current", "10\n"),
                ("sys/fs/cgroup/a/memory.max", "1000\n"),
                ("sys/fs/cgroup/a/memory.current", "300\n"),
                ("sys/fs/cgroup/a/memory.stat", "anon 1\ninactive_file 100\n"),
            ],
        );
        assert_eq!(group_room(&t.0), Some(800));
    }

    #[test]
    fn so_is_one_of_version_1() {
        let t = Tree::new(
            "groups-v1",
            &[
                ("proc/self/cgroup", "9:cpu,cpuacct:/x\n5:memory:/a/b\n1:name=systemd:/c\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
                ("sys/fs/cgroup/memory/memory.usage_in_bytes", "5000\n"),
                ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "1000\n"),
                ("sys/fs/cgroup/memory/a/memory.usage_in_bytes", "300\n"),
                (
                    "sys/fs/cgroup/memory/a/memory.stat",
                    "inactive_file 7\ntotal_inactive_file 100\n",
                ),
                ("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "2000\n"),
                ("sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "300\n"),
            ],
        );
        assert_eq!(group_room(&t.0), Some(800));
    }
}
