//! The environment abstraction layer (EAL): DPDK's memory and threads.
//!
//! In: [`EalConfig`]. Out: the one [`Eal`] of the process, which regions, ports and
//! registered threads hold on to; when the last of them has gone DPDK is cleaned up, and it
//! cannot be started again. Can fail: [`DpdkError`], before any port exists.
#![allow(unsafe_code)]

use super::error::{DpdkError, check};
use super::signals::PacketSignals;
use crate::mapping::Pages;
use crate::ports::bundled;
use dpdk_ffi as ffi;
use parking_lot::Mutex;
use std::ffi::{CStr, CString, OsStr, c_char, c_int};
use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What to start DPDK with.
#[derive(Debug, Clone)]
pub struct EalConfig {
    /// Pages for DPDK's own memory (rings, buffer headers; packets lie in the region).
    pub huge: Pages,
    /// Memory for DPDK itself, in MB, of each of `nodes` if there are any. [`memory_mb_for`] says how much a
    /// region needs.
    pub memory_mb: u32,
    /// Name of the directory for DPDK's sockets; `gnomon-<pid>` by default. Two processes need
    /// two names.
    pub file_prefix: Option<String>,
    /// PCI devices to use, with their arguments: `0000:81:00.0,mprq_en=1`. None: the PCI bus is
    /// not looked at, and only virtual devices can be ports.
    pub pci_allow: Vec<String>,
    /// CPUs for DPDK's own threads (interrupts, telemetry). None: those this thread may use.
    pub cpus: Vec<usize>,
    /// The NUMA nodes that DPDK's own memory comes from, where all have enough huge pages; ordinary
    /// ones come from where the process has its memory. None: the node of `cpus`.
    pub nodes: Vec<NumaNode>,
    /// A directory of drivers besides the one that DPDK was built with. [`Default`]: those that
    /// travel with the program.
    pub drivers: Option<PathBuf>,
    /// Further arguments for `rte_eal_init`, as typed after `--`.
    pub extra: Vec<String>,
}

/// A NUMA node.
#[derive(Debug, Clone)]
pub struct NumaNode {
    /// The kernel's number.
    pub id: u32,
    /// CPUs of it: DPDK takes memory for which no node is named from that of its first thread, and
    /// ends the process where there is none. With no CPUs, the node is left out.
    pub cpus: Vec<usize>,
}

impl NumaNode {
    /// Those of `cpus` that are on the node. If none is, all of the node's: DPDK's own threads stay on
    /// `cpus` then, while with others among them they would be on those, too.
    fn nearest(&self, cpus: &[usize]) -> Vec<usize> {
        let here: Vec<_> = cpus.iter().copied().filter(|cpu| self.cpus.contains(cpu)).collect();
        if here.is_empty() { self.cpus.clone() } else { here }
    }
}

impl Default for EalConfig {
    fn default() -> Self {
        Self {
            huge: Pages::Prefer,
            memory_mb: 128,
            file_prefix: None,
            pci_allow: Vec::new(),
            cpus: Vec::new(),
            nodes: Vec::new(),
            drivers: bundled::drivers(),
            extra: Vec::new(),
        }
    }
}

impl EalConfig {
    /// Memory for DPDK itself, in MB, of all nodes together.
    fn all_mb(&self) -> u32 {
        self.memory_mb.saturating_mul(u32::try_from(self.nodes.len()).unwrap_or(u32::MAX).max(1))
    }
}

/// Memory that DPDK itself needs for a region of this many slots: buffer headers, the ring of
/// free ones, and memory for the rings of ports.
pub fn memory_mb_for(slots: u32) -> u32 {
    // Measured on 22.11: 350 bytes per slot and 8 MB besides. The rest is for ports' own rings.
    48u32.saturating_add(slots / 2048)
}

/// DPDK, started. One per process, never cloned.
pub struct Eal {
    pub(super) shared: Arc<EalShared>,
}

/// What regions and ports keep of the environment, so that it outlives them.
pub(super) struct EalShared {
    /// DPDK's control plane is not made for concurrent callers. Holds what is open.
    pub(super) open: Mutex<Open>,
    huge: bool,
    /// The NUMA nodes of DPDK's own memory.
    pub(super) nodes: Vec<u32>,
    /// Removed at the end: DPDK leaves it behind.
    own_dir: Option<PathBuf>,
}

/// Pools and ports in use.
#[derive(Default)]
pub(super) struct Open {
    /// Base address of the region, and its pool.
    pub(super) pools: Vec<(usize, PoolPtr)>,
    /// Port numbers.
    pub(super) ports: Vec<u16>,
}

/// Address of a pool.
#[derive(Clone, Copy)]
pub(super) struct PoolPtr(pub(super) NonNull<ffi::GnPool>);

// SAFETY: an address; each use of it answers for itself.
unsafe impl Send for PoolPtr {}
// SAFETY: as above.
unsafe impl Sync for PoolPtr {}

impl fmt::Debug for Eal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eal").field("huge", &self.shared.huge).finish_non_exhaustive()
    }
}

static STARTED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Starts DPDK. The calling thread keeps its CPU affinity.
    ///
    /// # Errors
    /// [`DpdkError`]: a second start, a bad or an owned argument, too few huge pages, or what
    /// `rte_eal_init` says. After the latter no second attempt is possible.
    pub fn init(config: &EalConfig) -> Result<Self, DpdkError> {
        let before = affinity()?;
        let cpus = if config.cpus.is_empty() { cpus_of(&before) } else { config.cpus.clone() };
        let (huge, nodes) = decide_huge(config, &cpus)?;
        let args = arguments(config, huge, nodes, &cpus)?;
        let mut argv = args
            .iter()
            .map(|a| CString::new(a.as_str()))
            .collect::<Result<Vec<_>, _>>()
            .map_err(|_| DpdkError::BadArgument { arg: args.join(" ") })?
            .into_iter()
            // DPDK may keep pointers into them: they live as long as the process.
            .map(CString::into_raw)
            .collect::<Vec<*mut c_char>>();
        let argc = c_int::try_from(argv.len()).unwrap_or(c_int::MAX);
        argv.push(std::ptr::null_mut());

        if STARTED.swap(true, Ordering::SeqCst) {
            return Err(DpdkError::AlreadyStarted);
        }
        // DPDK's own threads run where this thread may run during the start.
        if let Err(e) = set_affinity(&cpu_set(&cpus)) {
            STARTED.store(false, Ordering::SeqCst);
            return Err(e);
        }
        // For DPDK's threads and for workers.
        PacketSignals::block();
        // SAFETY: argc pointers to leaked strings, then a null.
        let started = check(unsafe { ffi::gn_eal_init(argc, argv.as_mut_ptr()) });
        set_affinity(&before)?;
        started.map_err(|source| DpdkError::Init {
            hint: init_hint(&source),
            source,
            args: args.join(" "),
        })?;

        let own_dir = config.file_prefix.is_none().then(runtime_dir);
        Ok(Self {
            shared: Arc::new(EalShared {
                open: Mutex::new(Open::default()),
                huge,
                nodes: nodes.iter().map(|node| node.id).collect(),
                own_dir,
            }),
        })
    }

    /// The directory of DPDK's sockets, where it goes with this.
    pub fn runtime_dir(&self) -> Option<&Path> {
        self.shared.own_dir.as_deref()
    }

    /// DPDK's version, as it names itself.
    pub fn version() -> &'static str {
        // SAFETY: a static, zero-closed string.
        let name = unsafe { CStr::from_ptr(ffi::gn_version()) };
        name.to_str().unwrap_or("DPDK")
    }
}

impl Drop for EalShared {
    fn drop(&mut self) {
        // SAFETY: ports, pools and registered threads each hold an Arc of this; none is left.
        unsafe { ffi::gn_eal_cleanup() };
        if let Some(dir) = &self.own_dir
            && let Err(e) = std::fs::remove_dir_all(dir)
            && e.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!("cannot remove {}: {e}", dir.display());
        }
    }
}

fn runtime_dir() -> PathBuf {
    // SAFETY: zero-closed and valid until the clean-up; copied at once.
    let dir = unsafe { CStr::from_ptr(ffi::gn_runtime_dir()) };
    PathBuf::from(OsStr::from_bytes(dir.to_bytes()))
}

fn init_hint(e: &io::Error) -> &'static str {
    match e.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => "run as root or give the process the capabilities",
        Some(libc::ENOMEM) => "free memory or ask for less DPDK memory",
        Some(libc::EAGAIN | libc::EBUSY) => "another process uses this file prefix: choose another",
        _ => "see the lines that DPDK wrote above",
    }
}

/// Huge pages or not, and of which nodes if of certain ones, by what is requested and what is free.
fn decide_huge<'a>(
    config: &'a EalConfig,
    cpus: &[usize],
) -> Result<(bool, &'a [NumaNode]), DpdkError> {
    if config.huge == Pages::Small {
        return Ok((false, &[]));
    }
    let enough = |node: &NumaNode| {
        !node.cpus.is_empty() && free_huge_mb(Some(node.id)) >= config.memory_mb.into()
    };
    if !config.nodes.is_empty() && config.nodes.iter().all(enough) {
        return Ok((true, &config.nodes));
    }
    let wanted_mb = config.all_mb();
    // DPDK takes them from where its first thread is.
    let free_mb = free_huge_mb(cpus.first().and_then(|cpu| node_of(*cpu)));
    match config.huge {
        Pages::Require if free_mb < wanted_mb.into() => {
            Err(DpdkError::HugePages { wanted_mb, free_mb })
        }
        _ => Ok((free_mb >= wanted_mb.into(), &[])),
    }
}

/// The NUMA node of a CPU. `None` where the kernel has none.
fn node_of(cpu: usize) -> Option<u32> {
    let entries = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")).ok()?;
    let name_of = |entry: std::fs::DirEntry| entry.file_name().into_string().ok();
    entries.flatten().filter_map(name_of).find_map(|name| name.strip_prefix("node")?.parse().ok())
}

/// What is free of the reserved huge pages of a NUMA node, or of all.
fn free_huge_mb(node: Option<u32>) -> u64 {
    let dir = match node {
        Some(node) => format!("/sys/devices/system/node/node{node}"),
        None => "/sys/kernel/mm".to_owned(),
    };
    std::fs::read_to_string(format!("{dir}/hugepages/hugepages-2048kB/free_hugepages"))
        .ok()
        .and_then(|s| s.trim().parse::<u64>().ok())
        .map_or(0, |pages| pages * 2)
}

/// Options that `init` decides, and what to use in their place.
const OWNED: [(&str, &str); 22] = [
    ("--no-huge", "choose the kind of pages in its place"),
    ("--in-memory", "it follows from the kind of pages"),
    ("--legacy-mem", "it follows from the kind of pages"),
    ("--no-shconf", "it is always on"),
    ("-m", "set the DPDK memory in its place"),
    ("--socket-mem", "set the DPDK memory in its place"),
    ("--file-prefix", "set the file prefix in its place"),
    ("--proc-type", "gnomon is always the primary process"),
    ("--iova-mode", "it is always va"),
    ("-l", "choose the CPUs in its place"),
    ("-c", "choose the CPUs in its place"),
    ("-s", "choose the CPUs in its place"),
    ("--lcores", "choose the CPUs in its place"),
    ("--main-lcore", "choose the CPUs in its place"),
    ("-a", "name the device as a port"),
    ("--allow", "name the device as a port"),
    ("-b", "name the wanted devices as ports"),
    ("--block", "name the wanted devices as ports"),
    ("--no-pci", "it follows from the ports"),
    ("--vdev", "name the device as a port"),
    ("-h", "see DPDK's own guide to EAL parameters"),
    ("--help", "see DPDK's own guide to EAL parameters"),
];

/// The owned option that `arg` is, abbreviated (`--file-p`) or joined to its value (`-m64`).
fn owned(arg: &str) -> Option<&'static str> {
    let name = arg.split('=').next().unwrap_or(arg);
    let is = |option: &str| {
        if option.starts_with("--") {
            name.len() > 2 && option.starts_with(name)
        } else {
            arg.starts_with(option) && !arg.starts_with("--")
        }
    };
    OWNED.iter().find(|(option, _)| is(option)).map(|&(_, instead)| instead)
}

/// Whether these arguments for DPDK are the user's to give.
///
/// # Errors
/// [`DpdkError::OwnedArgument`].
pub fn check_arguments(arguments: &[String]) -> Result<(), DpdkError> {
    let refused = arguments.iter().find_map(|arg| {
        owned(arg).map(|instead| DpdkError::OwnedArgument { arg: arg.clone(), instead })
    });
    refused.map_or(Ok(()), Err)
}

/// The arguments of `rte_eal_init`.
fn arguments(
    config: &EalConfig,
    huge: bool,
    nodes: &[NumaNode],
    cpus: &[usize],
) -> Result<Vec<String>, DpdkError> {
    check_arguments(&config.extra)?;
    let prefix = match &config.file_prefix {
        Some(p) if p.is_empty() || p.contains(['/', '%', '\0']) => {
            return Err(DpdkError::BadArgument { arg: p.clone() });
        }
        Some(p) => p.clone(),
        None => format!("gnomon-{}", std::process::id()),
    };
    let is_near = |node: &&NumaNode| node.cpus.iter().any(|cpu| cpus.contains(cpu));
    let near = nodes.iter().find(is_near).or_else(|| nodes.first());
    let cpus = near.map_or_else(|| cpus.to_vec(), |node| node.nearest(cpus));
    let cpus = cpus.iter().map(usize::to_string).collect::<Vec<_>>().join(",");
    let mut args = vec![
        "gnomon".to_owned(),
        // Errors only; `--log-level` after `--` comes later and wins.
        "--log-level=*:error".to_owned(),
        format!("--file-prefix={prefix}"),
        // One lcore that floats over these CPUs, and has its memory from their node. Its thread goes
        // back to where it was, and workers are threads of our own.
        format!("--lcores=0@({cpus})"),
        "--iova-mode=va".to_owned(),
        match nodes.iter().map(|node| node.id).max() {
            // So much for each node in turn.
            Some(last) => {
                let has = |id| nodes.iter().any(|node| node.id == id);
                let mb = (0..=last).map(|id| if has(id) { config.memory_mb } else { 0 });
                let each = mb.map(|mb| mb.to_string()).collect::<Vec<_>>();
                format!("--socket-mem={}", each.join(","))
            }
            None => format!("-m{}", config.all_mb()),
        },
    ];
    // 22.11 refuses --in-memory together with --no-huge; --no-shconf is the part of it that keeps
    // files away. With huge pages --in-memory also spares us a mounted hugetlbfs.
    args.extend(
        if huge { vec!["--in-memory"] } else { vec!["--no-huge", "--no-shconf"] }
            .into_iter()
            .map(str::to_owned),
    );
    if config.pci_allow.is_empty() {
        args.push("--no-pci".to_owned());
    }
    args.extend(config.pci_allow.iter().map(|d| format!("--allow={d}")));
    if let Some(dir) = &config.drivers {
        let dir = dir
            .to_str()
            .ok_or_else(|| DpdkError::BadArgument { arg: dir.display().to_string() })?;
        args.extend(["-d".to_owned(), dir.to_owned()]);
    }
    args.extend(config.extra.iter().cloned());
    Ok(args)
}

fn affinity_error(source: io::Error) -> DpdkError {
    DpdkError::Init {
        source,
        args: "CPU affinity".to_owned(),
        hint: "name CPUs that exist and that this process may use",
    }
}

fn affinity() -> Result<libc::cpu_set_t, DpdkError> {
    let mut set = cpu_set(&[]);
    // SAFETY: `set` is valid for a write of its size; 0 is the calling thread.
    let rc = unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) };
    if rc < 0 { Err(affinity_error(io::Error::last_os_error())) } else { Ok(set) }
}

fn set_affinity(set: &libc::cpu_set_t) -> Result<(), DpdkError> {
    // SAFETY: `set` is valid for a read of its size; 0 is the calling thread.
    let rc = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
    if rc < 0 { Err(affinity_error(io::Error::last_os_error())) } else { Ok(()) }
}

fn cpu_set(cpus: &[usize]) -> libc::cpu_set_t {
    // SAFETY: a set of bits; all zero is the empty set.
    let mut set = unsafe { std::mem::zeroed::<libc::cpu_set_t>() };
    for &cpu in cpus.iter().filter(|&&c| c < CPUS_MAX) {
        // SAFETY: cpu is within the set (filtered).
        unsafe { libc::CPU_SET(cpu, &mut set) };
    }
    set
}

fn cpus_of(set: &libc::cpu_set_t) -> Vec<usize> {
    // SAFETY: cpu is within the set.
    (0..CPUS_MAX).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, set) }).collect()
}

const CPUS_MAX: usize = libc::CPU_SETSIZE as usize;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinary_pages_exclude_in_memory() {
        let args = arguments(&EalConfig::default(), false, &[], &[2, 5]).unwrap();
        assert!(args.iter().any(|a| a == "--no-huge"));
        assert!(!args.iter().any(|a| a == "--in-memory"));
        assert!(args.iter().any(|a| a == "--lcores=0@(2,5)"));
        assert!(args.iter().any(|a| a == "--no-pci"));
    }

    #[test]
    fn huge_pages_come_from_the_node() {
        let of = |nodes: &[NumaNode]| {
            let config = EalConfig { nodes: nodes.to_vec(), ..EalConfig::default() };
            arguments(&config, true, nodes, &[0]).unwrap()
        };
        let has = |nodes: &[NumaNode], arg: &str| of(nodes).iter().any(|a| a == arg);
        let node = NumaNode { id: 2, cpus: vec![8, 9] };
        assert_eq!((node.nearest(&[0, 9]), node.nearest(&[0])), (vec![9], vec![8, 9]));
        let one = std::slice::from_ref(&node);
        assert!(has(one, "--socket-mem=0,0,128") && !has(one, "-m128"));
        assert!(has(one, "--lcores=0@(8,9)"));
        assert!(has(&[], "-m128") && has(&[], "--lcores=0@(0)"));
        // Of several, each has as much, and the first thread is on that of its CPU.
        let near = NumaNode { id: 0, cpus: vec![0, 1] };
        let two = [node, near];
        assert!(has(&two, "--socket-mem=128,0,128") && has(&two, "--lcores=0@(0)"));
        let config = EalConfig { nodes: two.to_vec(), ..EalConfig::default() };
        let neither = arguments(&config, true, &[], &[0]).unwrap();
        assert!(neither.iter().any(|a| a == "-m256"), "{neither:?}");
    }

    #[test]
    fn pci_devices_are_allowed_by_name() {
        let pci_allow = vec!["0000:81:00.0,mprq_en=1".to_owned()];
        let config = EalConfig { pci_allow, ..EalConfig::default() };
        let args = arguments(&config, true, &[], &[0]).unwrap();
        assert!(args.iter().any(|a| a == "--allow=0000:81:00.0,mprq_en=1"));
        assert!(args.iter().any(|a| a == "--in-memory"));
        assert!(!args.iter().any(|a| a == "--no-pci" || a == "--no-huge"));
    }

    #[test]
    fn drivers_beside_the_program_are_told() {
        let config = EalConfig { drivers: Some("/opt/g/pmds".into()), ..EalConfig::default() };
        let args = arguments(&config, false, &[], &[0]).unwrap();
        assert!(args.windows(2).any(|pair| pair == ["-d", "/opt/g/pmds"]));
    }

    #[test]
    fn owned_arguments_are_refused_however_they_are_written() {
        let typed =
            ["-m", "-m64", "--file-prefix=x", "--file-p=x", "--no-huge", "-l0-3", "--vdev", "-h"];
        for arg in typed {
            let config = EalConfig { extra: vec![arg.to_owned()], ..EalConfig::default() };
            let e = arguments(&config, false, &[], &[0]).unwrap_err();
            assert!(matches!(e, DpdkError::OwnedArgument { .. }), "{arg}: {e}");
        }
        for arg in ["--log-level=pmd:debug", "--no-telemetry", "-d", "-n4", "--huge-dir=/mnt"] {
            assert_eq!(owned(arg), None, "{arg}");
        }
    }

    #[test]
    fn a_prefix_that_is_a_path_is_refused() {
        for bad in ["", "a/b", "50%"] {
            let config = EalConfig { file_prefix: Some(bad.to_owned()), ..EalConfig::default() };
            assert!(arguments(&config, false, &[], &[0]).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_cpu_set_gives_back_what_it_got() {
        assert_eq!(cpus_of(&cpu_set(&[0, 3, 1023, 5000])), [0, 3, 1023]);
    }
}
