//! The machine as files: `/proc` and `/sys` under a root that tests choose.

use crate::host::machine::{self, Node};
use crate::host::pci::PciAddress;
use driver_shim::ports::bundled::drivers_beside;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// A directory that looks like `/`.
#[derive(Debug, Clone)]
pub struct Host {
    root: PathBuf,
}

impl Host {
    /// This machine.
    pub fn this() -> Self {
        Self::at("/")
    }

    /// A machine whose `/` is `root`.
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// A path of the machine's, without the leading slash.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        self.root.join(path)
    }

    /// A file's text without the blanks around it.
    pub fn read(&self, path: impl AsRef<Path>) -> Option<String> {
        fs::read_to_string(self.path(path)).ok().map(|text| text.trim().to_owned())
    }

    /// A file's number, decimal or `0x…`.
    pub fn number(&self, path: impl AsRef<Path>) -> Option<u64> {
        let text = self.read(path)?;
        match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => text.parse().ok(),
        }
    }

    /// Whether there is such a file or directory.
    pub fn has(&self, path: impl AsRef<Path>) -> bool {
        self.path(path).exists()
    }

    /// The names in a directory, sorted.
    pub fn list(&self, path: impl AsRef<Path>) -> Vec<String> {
        let entries = fs::read_dir(self.path(path)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            entries.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    /// The last part of what a link points to.
    fn link_name(&self, path: impl AsRef<Path>) -> Option<String> {
        let target = fs::read_link(self.path(path)).ok()?;
        Some(target.file_name()?.to_string_lossy().into_owned())
    }

    /// The DPDK drivers that travel with this program, where there are any.
    pub fn bundled_drivers(&self) -> Option<PathBuf> {
        let program = fs::read_link(self.path("proc/self/exe")).ok()?;
        let dir = drivers_beside(&program)?;
        self.has(dir.strip_prefix("/").ok()?).then_some(dir)
    }

    /// Where sysfs has a PCI device.
    pub fn pci(&self, address: &PciAddress) -> PathBuf {
        Path::new("sys/bus/pci/devices").join(&address.0)
    }

    /// The driver that holds a PCI device.
    pub fn driver(&self, address: &PciAddress) -> Option<String> {
        self.link_name(self.pci(address).join("driver"))
    }

    /// The NUMA node of a PCI device; `None` where the firmware does not say.
    pub fn node_of(&self, address: &PciAddress) -> Option<u32> {
        machine::node_of(&self.path("sys"), &address.0)
    }

    /// The NUMA nodes.
    pub fn nodes(&self) -> Vec<Node> {
        machine::nodes(&self.path("sys"))
    }

    /// Network interfaces of a PCI device.
    pub fn interfaces(&self, address: &PciAddress) -> Vec<String> {
        // virtio-net has its one level further down.
        let device = self.pci(address);
        let below = self.list(&device).into_iter().filter(|n| n.starts_with("virtio"));
        let mut dirs = vec![device.join("net")];
        dirs.extend(below.map(|name| device.join(name).join("net")));
        dirs.into_iter().flat_map(|dir| self.list(dir)).collect()
    }

    /// How a default route leads over a PCI device: by an interface of its own, `eth0`, or by one that stands
    /// on it, `bond0 on eth0`.
    pub fn default_route_over(&self, address: &PciAddress) -> Option<String> {
        let own = self.interfaces(address);
        self.default_route_interfaces().into_iter().find_map(|route| {
            let below = self.with_lower(&route);
            let interface = own.iter().find(|name| below.contains(*name))?;
            Some(match *interface == route {
                true => route,
                false => format!("{route} on {interface}"),
            })
        })
    }

    /// An interface and all that it stands on: members of a bond, a team or a bridge, and what is under a VLAN
    /// or a macvlan, at any depth. Each is looked at once, so that links in a ring end, too.
    fn with_lower(&self, interface: &str) -> BTreeSet<String> {
        let mut found = BTreeSet::from([interface.to_owned()]);
        let mut next = vec![interface.to_owned()];
        while let Some(name) = next.pop() {
            for entry in self.list(Path::new("sys/class/net").join(name)) {
                let Some(lower) = entry.strip_prefix("lower_") else { continue };
                if found.insert(lower.to_owned()) {
                    next.push(lower.to_owned());
                }
            }
        }
        found
    }

    /// Interfaces over which a default route leads, of either IP version.
    fn default_route_interfaces(&self) -> BTreeSet<String> {
        let v4 = self.read("proc/net/route").unwrap_or_default();
        let v4 = v4.lines().skip(1).filter_map(|line| {
            let mut fields = line.split_whitespace();
            let (name, destination) = (fields.next()?, fields.next()?);
            let mask = fields.nth(5)?;
            (destination == "00000000" && mask == "00000000").then(|| name.to_owned())
        });
        let v6 = self.read("proc/net/ipv6_route").unwrap_or_default();
        let v6 = v6.lines().filter_map(|line| {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let is_default = fields.first()?.bytes().all(|b| b == b'0')
                && *fields.get(1)? == "00"
                && fields.last() != Some(&"lo");
            is_default.then(|| fields.last().map(|name| (*name).to_owned())).flatten()
        });
        v4.chain(v6).collect()
    }
}

/// A CPU list as the kernel writes it: `0-3,8`.
pub(super) fn cpu_list(text: &str) -> BTreeSet<usize> {
    let parts = text.split(',').filter_map(|part| {
        let part = part.trim();
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    parts.flatten().collect()
}

/// CPUs as the kernel would write them.
pub(super) fn cpu_text(cpus: impl IntoIterator<Item = usize>) -> String {
    let mut runs: Vec<(usize, usize)> = Vec::new();
    for cpu in cpus.into_iter().collect::<BTreeSet<_>>() {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == cpu => *last = cpu,
            _ => runs.push((cpu, cpu)),
        }
    }
    let texts = runs.into_iter().map(|(first, last)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    });
    texts.collect::<Vec<_>>().join(",")
}
