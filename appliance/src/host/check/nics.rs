//! NICs that DPDK is to drive: whose they are, and how well they are placed.

use super::host::cpu_text;
use super::{Finding, Host, PciAddress, Want, Wants};
use std::path::Path;

/// Drivers that DPDK shares with the kernel. Their devices stay where they are.
pub(crate) const BIFURCATED: [&str; 2] = ["mlx5_core", "mlx4_core"];
/// Drivers that leave the device to user space without an IOMMU between it and memory.
const UIO: [&str; 2] = ["uio_pci_generic", "igb_uio"];

pub(super) fn check(host: &Host, wants: &Wants) -> Vec<Finding> {
    // Not /sys/class/net, which shows those of the network namespace that it was mounted in.
    let there = host.read("proc/self/net/dev").unwrap_or_default();
    let is_there = |name: &str| {
        there.lines().any(|line| line.split_once(':').is_some_and(|(it, _)| it.trim() == name))
    };
    let missing = wants.interfaces.iter().filter(|name| !is_there(name));
    let mut findings: Vec<_> =
        missing.map(|name| Finding::fail(name, "no interface has that name", "ip link")).collect();
    findings.extend(seen_twice(wants));
    if wants.nics.is_empty() {
        return findings;
    }
    let any_vfio = wants.nics.iter().any(|nic| !shares(host, nic));
    if any_vfio {
        findings.push(iommu(host));
        findings.push(vfio(host));
    }
    findings.push(drivers(host));
    if wants.exception_path {
        findings.push(tun(host));
    }
    for nic in &wants.nics {
        findings.extend(nic_findings(host, wants, nic));
    }
    findings
}

/// The kernel takes a frame for an address that it has, whatever interface it came by.
pub(super) fn seen_twice(wants: &Wants) -> impl Iterator<Item = Finding> {
    wants.seen_twice.iter().map(|interface| {
        let found =
            "the kernel sees its frames too, and answers those for the address of the side door";
        let fix = "drop its ingress, if that is not done (docs/dpdk-ports.md has the rule), or --side-door none";
        Finding::warn(interface, found, fix)
    })
}

fn shares(host: &Host, nic: &PciAddress) -> bool {
    host.driver(nic).is_some_and(|driver| BIFURCATED.contains(&driver.as_str()))
}

fn iommu(host: &Host) -> Finding {
    const WHAT: &str = "IOMMU";
    if !host.list("sys/kernel/iommu_groups").is_empty() {
        return Finding::pass(WHAT, "on");
    }
    let cpuinfo = host.read("proc/cpuinfo").unwrap_or_default();
    let flag = if cpuinfo.contains("AuthenticAMD") { "amd_iommu=on" } else { "intel_iommu=on" };
    let fix = format!("firmware: VT-d or AMD-Vi on; kernel command line: {flag} iommu=pt");
    // Packets lie in memory of ours, which a device finds by virtual addresses alone.
    let unsafe_mode = host.read("sys/module/vfio/parameters/enable_unsafe_noiommu_mode");
    let found = match unsafe_mode.as_deref() {
        Some("Y") => "off; that vfio was told not to mind does not help",
        _ => "off",
    };
    Finding::fail(WHAT, found, fix)
}

fn vfio(host: &Host) -> Finding {
    const WHAT: &str = "vfio-pci";
    match host.has("sys/bus/pci/drivers/vfio-pci") {
        true => Finding::pass(WHAT, "loaded"),
        false => Finding::fail(WHAT, "not loaded", "modprobe vfio-pci"),
    }
}

/// DPDK loads its drivers from a directory; without it there are no ports, and no word why.
fn drivers(host: &Host) -> Finding {
    const WHAT: &str = "DPDK's drivers";
    let dirs = ["usr/lib/x86_64-linux-gnu/dpdk", "usr/lib/aarch64-linux-gnu/dpdk"]
        .into_iter()
        .chain(["usr/local/lib/x86_64-linux-gnu/dpdk", "usr/lib64/dpdk", "usr/lib/dpdk"]);
    let found = dirs.into_iter().find_map(|dir| {
        let name = host.list(dir).into_iter().find(|name| name.starts_with("pmds-"))?;
        Some(format!("/{dir}/{name}"))
    });
    let bundled = host.bundled_drivers().map(|dir| dir.display().to_string());
    match bundled.or(found) {
        Some(dir) => Finding::pass(WHAT, dir),
        None => Finding::fail(WHAT, "no directory pmds-*", "apt-get install librte-meta-net"),
    }
}

fn tun(host: &Host) -> Finding {
    const WHAT: &str = "exception path";
    match host.has("dev/net/tun") {
        true => Finding::pass(WHAT, "/dev/net/tun is there"),
        false => Finding::fail(WHAT, "no /dev/net/tun", "modprobe tun, or --side-door none"),
    }
}

fn nic_findings(host: &Host, wants: &Wants, nic: &PciAddress) -> Vec<Finding> {
    let what = |aspect: &str| format!("NIC {nic}{aspect}");
    let device = host.pci(nic);
    if !host.has(&device) {
        return vec![Finding::fail(what(""), "no such PCI device", "lspci -D lists what there is")];
    }
    let class = host.number(device.join("class")).unwrap_or(0);
    if class >> 16 != 0x02 {
        let found = format!("not a network device (class {:04x})", class >> 8);
        return vec![Finding::fail(what(""), found, "lspci -D | grep -i net")];
    }
    let mut findings = vec![driver(host, nic, what(" driver"))];
    findings.extend(isolation(host, wants, nic, what(" isolation")));
    findings.extend(route(host, wants, nic, what(" routes")));
    findings.extend(group(host, nic, what(" IOMMU group")));
    findings.extend(link(host, &device, what(" PCIe link")));
    findings.extend(node(host, wants, nic, what(" NUMA node")));
    findings
}

fn driver(host: &Host, nic: &PciAddress, what: String) -> Finding {
    let driver = host.driver(nic);
    match driver.as_deref() {
        Some("vfio-pci") => Finding::pass(what, "vfio-pci"),
        Some(name) if BIFURCATED.contains(&name) => Finding::pass(
            what,
            format!("{name}, which DPDK shares with the kernel: leave it bound"),
        ),
        Some(name) if UIO.contains(&name) => Finding::fail(
            what,
            format!("{name}: no IOMMU between the NIC and memory"),
            format!("gnomon bind {nic}"),
        ),
        other => {
            let found =
                other.map_or_else(|| "none".to_owned(), |name| format!("{name}, the kernel's"));
            Finding::fail(what, found, format!("gnomon bind {nic}"))
        }
    }
}

/// Whether the kernel keeps all frames but the services', of a device that it shares.
fn isolation(host: &Host, wants: &Wants, nic: &PciAddress, what: String) -> Option<Finding> {
    if !shares(host, nic) {
        return None;
    }
    let interface = host.interfaces(nic).join(", ");
    let lacking = format!("{interface} lacks an address of the port");
    let fix = format!("ip addr add ADDRESS dev {interface}");
    Some(match (wants.isolated, wants.addressed.contains(nic)) {
        (Want::No, _) => Finding::pass(what, "off: every frame comes to gnomon"),
        (Want::Must, true) => Finding::pass(what, "on: the kernel keeps all but the service"),
        (Want::IfThere, true) => {
            Finding::pass(what, "on if the driver can: the kernel keeps all but the service")
        }
        (Want::Must, false) => Finding::warn(
            what,
            format!("on, and {lacking}: the kernel does not answer ARP for it"),
            fix,
        ),
        (Want::IfThere, false) => Finding::warn(
            what,
            format!("off, since {lacking}: every frame comes to gnomon"),
            format!("{fix}; or --isolated off, if that is meant"),
        ),
    })
}

/// Taking the NIC of the default route away ends remote logins.
fn route(host: &Host, wants: &Wants, nic: &PciAddress, what: String) -> Option<Finding> {
    let interface = host.default_route_over(nic)?;
    let shared = shares(host, nic);
    if shared && wants.isolated == Want::Must {
        return None;
    }
    Some(Finding::fail(
        what,
        format!("the default route goes over {interface}"),
        match shared {
            true => "another NIC, or --isolated on; this one carries the machine's own traffic",
            false => "another NIC; this one carries the machine's own traffic",
        },
    ))
}

/// vfio hands out whole groups.
fn group(host: &Host, nic: &PciAddress, what: String) -> Option<Finding> {
    if host.driver(nic).as_deref() != Some("vfio-pci") {
        return None;
    }
    let others: Vec<String> = host
        .list(host.pci(nic).join("iommu_group/devices"))
        .into_iter()
        .map(PciAddress)
        .filter(|other| other != nic)
        // Bridges stay with the kernel.
        .filter(|other| host.number(host.pci(other).join("class")).unwrap_or(0) >> 16 != 0x06)
        .filter(|other| host.driver(other).is_some_and(|driver| driver != "vfio-pci"))
        .map(|other| other.0)
        .collect();
    if others.is_empty() {
        return Some(Finding::pass(what, "its own, or shared with what is bound too"));
    }
    let fix = others.iter().map(|o| format!("gnomon bind {o}")).collect::<Vec<_>>().join("; ");
    Some(Finding::fail(
        what,
        format!("shared with {}, which the kernel has", others.join(", ")),
        fix,
    ))
}

fn link(host: &Host, device: &Path, what: String) -> Option<Finding> {
    let read = |name: &str| host.read(device.join(name));
    let (speed, speed_max) = (read("current_link_speed")?, read("max_link_speed")?);
    let (width, width_max) = (read("current_link_width")?, read("max_link_width")?);
    // An emulated device has a link of 0 lanes, or of unknown speed.
    let number = |text: &str| text.split_whitespace().next()?.parse::<f64>().ok();
    let slower = number(&speed)? < number(&speed_max)? || number(&width)? < number(&width_max)?;
    let found = format!("{speed} x{width}");
    Some(match slower {
        false => Finding::pass(what, found),
        true => Finding::warn(
            what,
            format!("{found}, of {speed_max} x{width_max}"),
            "a slot with all lanes of the processor that serves it",
        ),
    })
}

fn node(host: &Host, wants: &Wants, nic: &PciAddress, what: String) -> Option<Finding> {
    let nodes = host.nodes();
    let id = host.node_of(nic)?;
    if nodes.len() < 2 {
        return None;
    }
    let near = nodes.into_iter().find(|node| node.id == id)?.cpus;
    // Divided, those of its node serve it, and no others.
    let own = wants.nodes.iter().find(|node| node.id == id).map(|node| &node.worker_cpus);
    let workers = own.unwrap_or(&wants.worker_cpus);
    let far: Vec<usize> = workers.iter().copied().filter(|cpu| !near.contains(cpu)).collect();
    Some(match far.is_empty() {
        true => Finding::pass(what, format!("{id}, as the workers")),
        false => Finding::warn(
            what,
            format!("{id}, and workers on {} are elsewhere", cpu_text(far)),
            format!("--cores out of {}", cpu_text(near)),
        ),
    })
}
