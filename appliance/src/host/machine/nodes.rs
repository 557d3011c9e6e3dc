//! NUMA nodes: which there are, and which one a PCI device is on.
//!
//! In: where sysfs is mounted. Out: plain facts. Nothing fails: what sysfs does not report is left out.

use crate::host::cpu_list::CpuList;
use std::fs;
use std::path::Path;

/// A node: processors, and the memory beside them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The kernel's number.
    pub id: u32,
    /// Its CPUs, ascending; none where it is memory alone.
    pub cpus: Vec<usize>,
    /// Free memory, reserved huge pages of 2 MB included, in bytes.
    pub free_bytes: Option<u64>,
}

/// All nodes, ascending. None on a kernel without NUMA.
pub fn nodes(sysfs: &Path) -> Vec<Node> {
    let entries = fs::read_dir(sysfs.join("devices/system/node")).into_iter().flatten().flatten();
    let mut nodes: Vec<Node> = entries
        .filter_map(|entry| {
            let id = entry.file_name().to_str()?.strip_prefix("node")?.parse().ok()?;
            let dir = entry.path();
            let list = fs::read_to_string(dir.join("cpulist")).ok()?;
            // No CPUs are no list.
            let cpus = list.trim().parse().map_or(Vec::new(), |CpuList(cpus)| cpus);
            Some(Node { id, cpus, free_bytes: free(&dir) })
        })
        .collect();
    nodes.sort_by_key(|node| node.id);
    nodes
}

fn free(dir: &Path) -> Option<u64> {
    // `Node 0 MemFree: 123 kB`
    let text = fs::read_to_string(dir.join("meminfo")).ok()?;
    let value = |name| {
        let line = text.lines().find(|line| line.split_whitespace().nth(2) == Some(name))?;
        line.split_whitespace().nth(3)?.parse::<u64>().ok()
    };
    Some(value("MemFree:")? * 1024 + super::huge_free_of(dir))
}

/// The node of a PCI device. `None`: there is no such device, or the firmware does not say.
pub fn node_of(sysfs: &Path, address: &str) -> Option<u32> {
    // -1, which is no number here, where it does not.
    let file = sysfs.join("bus/pci/devices").join(address).join("numa_node");
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::Tree;
    use super::*;

    #[test]
    fn nodes_are_read_with_what_is_free_of_them() {
        let t = Tree::new(
            "nodes",
            &[
                ("devices/system/node/node1/cpulist", "2-3,6\n"),
                (
                    "devices/system/node/node1/meminfo",
                    "Node 1 MemTotal: 9 kB\nNode 1 MemFree: 8 kB\n",
                ),
                ("devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages", "1\n"),
                ("devices/system/node/node0/cpulist", "0-1\n"),
                // Memory alone.
                ("devices/system/node/node10/cpulist", "\n"),
                ("devices/system/node/possible", "0-1\n"),
                ("bus/pci/devices/0000:01:00.0/numa_node", "1\n"),
                ("bus/pci/devices/0000:02:00.0/numa_node", "-1\n"),
            ],
        );
        let want = [
            Node { id: 0, cpus: vec![0, 1], free_bytes: None },
            Node { id: 1, cpus: vec![2, 3, 6], free_bytes: Some((2 << 20) + 8192) },
            Node { id: 10, cpus: vec![], free_bytes: None },
        ];
        assert_eq!(nodes(&t.0), want);
        assert_eq!(node_of(&t.0, "0000:01:00.0"), Some(1));
        assert_eq!(node_of(&t.0, "0000:02:00.0"), None);
        assert_eq!(node_of(&t.0, "0000:03:00.0"), None);
        assert_eq!(nodes(Path::new("/nowhere")), []);
    }
}
