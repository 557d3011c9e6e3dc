//! Huge pages, and how much memory may be pinned.

use super::{Finding, Host, Want, Wants};
use std::path::Path;

const HUGE_BYTES: u64 = 2 << 20;
/// Mappings of 4 KB that a NIC's address space takes before the kernel says no, by default.
const DMA_ENTRIES_DEFAULT: u64 = 65_535;
const PAGE_BYTES: u64 = 4096;

pub(super) fn check(host: &Host, wants: &Wants) -> Vec<Finding> {
    let mut findings = vec![huge_pages(host, wants)];
    findings.extend(nodes_without_pages(host, wants));
    if !wants.nics.is_empty() {
        findings.push(locked_memory(host, wants));
        findings.extend(dma_entries(host, wants));
    }
    findings
}

fn free_pages(host: &Host, dir: &Path) -> u64 {
    host.number(dir.join("hugepages-2048kB/free_hugepages")).unwrap_or(0)
}

fn huge_pages(host: &Host, wants: &Wants) -> Finding {
    const WHAT: &str = "huge pages";
    let wanted = wants.memory_bytes.div_ceil(HUGE_BYTES);
    let free = free_pages(host, Path::new("sys/kernel/mm/hugepages"));
    let reserve = format!("sysctl -w vm.nr_hugepages={wanted}");
    let found = format!("{free} of 2 MB free, {wanted} wanted");
    if wants.huge == Want::No {
        return Finding::pass(WHAT, "not wanted");
    }
    if free >= wanted {
        return Finding::pass(WHAT, found);
    }
    if wants.huge == Want::Must {
        return Finding::fail(WHAT, found, reserve);
    }
    let transparent = host.read("sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    if transparent.contains("[always]") || transparent.contains("[madvise]") {
        let found = format!("{found}; transparent ones may stand in, and may not");
        return Finding::warn(WHAT, found, reserve);
    }
    Finding::warn(WHAT, format!("{found}; 4 KB pages will do, at 10 to 40 % less speed"), reserve)
}

/// Nodes of the NICs that have none, where others have, and those that memory is divided over and have too few: it
/// would lie on the wrong side.
fn nodes_without_pages<'a>(host: &'a Host, wants: &'a Wants) -> impl Iterator<Item = Finding> + 'a {
    let mut nodes: Vec<(u32, u64)> =
        wants.nodes.iter().map(|node| (node.id, node.memory_bytes)).collect();
    let divided = !nodes.is_empty();
    if !divided {
        let of_nics = wants.nics.iter().filter_map(|nic| host.node_of(nic));
        nodes.extend(of_nics.map(|node| (node, wants.memory_bytes)));
        nodes.sort_unstable();
        nodes.dedup();
    }
    let others = host.nodes().len() > 1 && wants.huge != Want::No;
    nodes.into_iter().filter(move |_| others).filter_map(move |(node, bytes)| {
        let dir = format!("sys/devices/system/node/node{node}/hugepages");
        let (free, wanted) = (free_pages(host, Path::new(&dir)), bytes.div_ceil(HUGE_BYTES));
        let found = match (divided, free) {
            (true, free) if free < wanted => format!("{free} of 2 MB free, {wanted} wanted"),
            (false, 0) => "none free beside the NIC".to_owned(),
            _ => return None,
        };
        let fix = format!(
            "echo {wanted} > /sys/devices/system/node/node{node}/hugepages/hugepages-2048kB/nr_hugepages"
        );
        Some(Finding::warn(format!("huge pages of node {node}"), found, fix))
    })
}

/// A NIC's frames are pinned, and pinned memory counts.
fn locked_memory(host: &Host, wants: &Wants) -> Finding {
    const WHAT: &str = "locked memory";
    let limits = host.read("proc/self/limits").unwrap_or_default();
    let limit = limits
        .lines()
        .find_map(|line| line.strip_prefix("Max locked memory"))
        .and_then(|rest| rest.split_whitespace().next());
    if may_lock(host) {
        return Finding::pass(WHAT, "without limit, by CAP_IPC_LOCK");
    }
    match limit {
        None => Finding::pass(WHAT, "its limit cannot be read"),
        Some("unlimited") => Finding::pass(WHAT, "unlimited"),
        Some(text) => {
            let bytes = text.parse().unwrap_or(0u64);
            if bytes >= wants.memory_bytes {
                return Finding::pass(WHAT, format!("{} MB", bytes >> 20));
            }
            Finding::fail(
                WHAT,
                format!("{} KB, {} MB wanted", bytes >> 10, wants.memory_bytes >> 20),
                "ulimit -l unlimited, or LimitMEMLOCK=infinity in the unit",
            )
        }
    }
}

/// Whether this process has the capability that the limit does not bind.
fn may_lock(host: &Host) -> bool {
    const CAP_IPC_LOCK: u64 = 1 << 14;
    let status = host.read("proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_some_and(|bits| bits & CAP_IPC_LOCK != 0)
}

/// Without huge pages each 4 KB is a mapping of its own.
fn dma_entries(host: &Host, wants: &Wants) -> Option<Finding> {
    let most = host
        .number("sys/module/vfio_iommu_type1/parameters/dma_entry_limit")
        .unwrap_or(DMA_ENTRIES_DEFAULT);
    let wanted = wants.memory_bytes.div_ceil(PAGE_BYTES);
    (wants.huge == Want::No && wanted > most).then(|| {
        Finding::fail(
            "DMA mappings",
            format!("{most} allowed, {wanted} wanted for 4 KB pages"),
            "leave out --huge off, or: modprobe vfio_iommu_type1 dma_entry_limit=1000000",
        )
    })
}
