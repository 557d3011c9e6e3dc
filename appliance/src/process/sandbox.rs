//! What the process gives up before it serves clients: every file, address and system call that it
//! will not need again.
//!
//! In: a [`Plan`], when everything is open and no thread of ours runs. Out: [`State`]: what is in
//! force, and why something is not. `files` first, which holds for the calling thread and the
//! threads it starts, then `filter`, which holds for every thread, those of DPDK and of a GPU's
//! driver among them. Never fails: what a kernel cannot do is logged, in `stats settings`
//! and in the metrics.

mod calls;
mod files;
mod filter;

pub use calls::table;

use crate::serve::tls;
use crate::startup::flags::Engine;
use crate::startup::flags::MetricsAddr;
use crate::startup::flags::PortSpec;
use crate::startup::plan::{Device, Plan};
use std::fs;
use std::path::{Path, PathBuf};

/// What is needed after start-up beyond what every process needs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// DPDK drives the ports.
    pub dpdk: bool,
    /// A port is one of `net_af_xdp`, which asks for `bpf` when it closes, and does without.
    pub xdp: bool,
    /// A GPU is used, whose driver may load code.
    pub gpu: bool,
    /// Devices that may be opened again, and directories of them.
    pub drive: Vec<PathBuf>,
    /// Files, and directories with all in them, that are read.
    pub read: Vec<PathBuf>,
    /// Directories in which files are removed.
    pub remove_in: Vec<PathBuf>,
}

impl Needs {
    /// What this plan needs. `driver_dir` is where DPDK keeps its sockets.
    pub fn of(plan: &Plan, driver_dir: Option<&Path>) -> Self {
        let pci =
            plan.ports.iter().any(|port| matches!(port.device, Device::Dpdk(PortSpec::Pci { .. })));
        let exception_path = plan.ports.iter().any(|port| port.exception_path.is_some());
        let gpu = plan.offload.is_some() && plan.engine != Engine::Simt;
        // A file that takes another's place is not the file that a rule was made for: the rule is
        // its directory's.
        let users = plan.clients.auth_file.as_deref().map(directories);
        let certificates = plan.tls.as_ref().map(tls::directories);
        let users = users.into_iter().chain(certificates).flatten();
        let proc = gpu.then(|| PathBuf::from("/proc"));
        let metrics = match &plan.metrics {
            Some(MetricsAddr::Unix(path)) => Some(path.as_path()),
            Some(MetricsAddr::Tcp(_)) | None => None,
        };
        let unix = plan.clients.unix.as_ref().map(|unix| unix.path.as_path());
        let removed = [unix, metrics, plan.process.pid_file.as_deref(), driver_dir];
        let sockets = plan.ports.iter().flat_map(|port| paths_in(&port.device));
        Self {
            dpdk: plan.needs_dpdk(),
            xdp: plan.ports.iter().any(
                |port| matches!(&port.device, Device::Dpdk(PortSpec::Vdev(spec)) if spec.starts_with("net_af_xdp")),
            ),
            gpu,
            drive: [
                if pci || gpu { devices(Path::new("/dev")) } else { Vec::new() },
                // A TAP device that was removed is made anew.
                if exception_path { TUN.map(PathBuf::from).to_vec() } else { Vec::new() },
            ]
            .concat(),
            read: [PathBuf::from("/sys")].into_iter().chain(users).chain(proc).collect(),
            remove_in: removed.into_iter().flatten().map(directory).chain(sockets).collect(),
        }
    }
}

/// Directories of files that are named in a virtual device's arguments, which it removes at its end.
fn paths_in(device: &Device) -> Vec<PathBuf> {
    let Device::Dpdk(PortSpec::Vdev(spec)) = device else { return Vec::new() };
    let values = spec.split(',').filter_map(|argument| Some(argument.split_once('=')?.1));
    let paths = values.filter(|value| value.starts_with('/'));
    paths.map(|path| directory(Path::new(path))).collect()
}

/// What it takes to make a TAP device.
const TUN: [&str; 2] = ["/dev/net/tun", "/proc/sys/net/ipv6/conf"];

/// Devices of NICs and GPUs, and what the kernel shows of them.
fn devices(dev: &Path) -> Vec<PathBuf> {
    const NAMES: [&str; 4] = ["vfio", "uio", "infiniband", "nvidia"];
    let entries = fs::read_dir(dev).into_iter().flatten().flatten();
    let ours = entries.filter(|e| {
        let name = e.file_name();
        NAMES.iter().any(|ours| name.as_encoded_bytes().starts_with(ours.as_bytes()))
    });
    ours.map(|e| e.path()).chain([PathBuf::from("/sys/devices")]).collect()
}

/// Directories in which the file lies: by its name, and where that is a link, the one that it leads to.
fn directories(file: &Path) -> Vec<PathBuf> {
    let real = file.canonicalize().ok();
    let mut found: Vec<PathBuf> =
        [Some(file), real.as_deref()].into_iter().flatten().map(directory).collect();
    found.dedup();
    found
}

fn directory(file: &Path) -> PathBuf {
    file.parent().unwrap_or_else(|| Path::new("/")).to_owned()
}

/// A part of the sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// In force, for good.
    On,
    /// Not in force: why.
    Off(String),
}

/// What is in force.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct State {
    /// The filter over system calls.
    pub seccomp: Part,
    /// The limits on files and TCP.
    pub landlock: Part,
}

impl State {
    /// The name of each part, and whether it is in force.
    pub fn parts(&self) -> [(&'static str, bool); 2] {
        [("seccomp", self.seccomp == Part::On), ("landlock", self.landlock == Part::On)]
    }

    /// The same for `stats settings`.
    pub fn settings(&self) -> Vec<(&'static str, String)> {
        let yes = |part: &Part| if *part == Part::On { "yes" } else { "no" }.to_owned();
        vec![("sandbox_seccomp", yes(&self.seccomp)), ("sandbox_landlock", yes(&self.landlock))]
    }
}

/// Nothing is in force, as was requested.
pub fn none() -> State {
    let off = || Part::Off("--no-sandbox".to_owned());
    State { seccomp: off(), landlock: off() }
}

/// Gives up everything else. Reports what could not be given up.
pub fn enter(needs: &Needs) -> State {
    let landlock = files::restrict(needs);
    let seccomp = filter::install(needs);
    let state = State { seccomp, landlock };
    for (name, part) in [("seccomp", &state.seccomp), ("landlock", &state.landlock)] {
        if let Part::Off(why) = part {
            tracing::warn!("the sandbox goes without {name}: {why}");
        }
    }
    state
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::machine::tests::Tree;
    use crate::startup::plan::tests::planned;
    use std::os::unix::fs::symlink;

    fn paths<const N: usize>(paths: [&str; N]) -> Vec<PathBuf> {
        paths.map(PathBuf::from).to_vec()
    }

    #[test]
    fn kernel_sockets_need_little() {
        let needs = Needs::of(&planned(""), None);
        assert_eq!(needs, Needs { read: paths(["/sys"]), ..Needs::default() });
    }

    #[test]
    fn files_are_read_and_removed_where_they_are() {
        let plan =
            planned("-s /run/a/s -P /run/b/pid --metrics unix:/run/c/m -Y /etc/d/users -U 0");
        let needs = Needs::of(&plan, None);
        assert_eq!(needs.read, paths(["/sys", "/etc/d"]));
        assert_eq!(needs.remove_in, paths(["/run/a", "/run/c", "/run/b"]));
        assert!(!(needs.dpdk || needs.gpu));
    }

    #[test]
    fn users_are_read_behind_links_too() {
        let t = Tree::new("users-links", &[("live/none", ""), ("archive/users1", "ann:s3cret\n")]);
        let link = t.0.join("live/users");
        symlink(t.0.join("archive/users1"), &link).unwrap();
        let needs = Needs::of(&planned(&format!("-Y {} -U 0", link.display())), None);
        let archive = t.0.join("archive").canonicalize().unwrap();
        assert_eq!(needs.read, [PathBuf::from("/sys"), t.0.join("live"), archive]);
        // A file that is no link has one.
        let file = t.0.join("archive/users1").canonicalize().unwrap();
        assert_eq!(directories(&file), [t.0.canonicalize().unwrap().join("archive")]);
    }

    #[test]
    fn devices_are_those_of_nics_and_gpus() {
        let files = ["vfio/vfio", "nvidia0", "nvidiactl", "sda", "mem", "uio0", "net/tun"];
        let t = Tree::new("devices", &files.map(|f| (f, "")));
        let mut found = devices(&t.0);
        found.sort();
        let mut ours = ["nvidia0", "nvidiactl", "uio0", "vfio"].map(|f| t.0.join(f)).to_vec();
        ours.push(PathBuf::from("/sys/devices"));
        ours.sort();
        assert_eq!(found, ours);
    }

    #[test]
    fn drivers_need_more() {
        let vdev = "--port net_memif0,role=server,socket=/run/m/s --ip 10.0.0.1/24";
        let needs = Needs::of(&planned(vdev), None);
        assert_eq!(needs.drive, paths(["/dev/net/tun", "/proc/sys/net/ipv6/conf"]));
        let closed = planned(&format!("{vdev} --side-door none"));
        let needs = Needs::of(&closed, Some(Path::new("/var/run/dpdk/gnomon-1")));
        assert!(needs.dpdk && needs.drive.is_empty() && !needs.gpu);
        assert_eq!(needs.remove_in, paths(["/var/run/dpdk", "/run/m"]));
        let xdp = planned("--port net_af_xdp0,iface=w --ip 10.0.0.1/24");
        assert!(Needs::of(&xdp, None).xdp && !needs.xdp);
    }
}
