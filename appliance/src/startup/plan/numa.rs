//! The NUMA nodes that ports, workers and memory are to be on: the parts of the appliance.

use super::PlanError;
use crate::host::cpu_list::CpuList;
use crate::host::machine::{self, Machine, Node};
use crate::startup::flags::{NodeFlag, PortSpec, ServeFlags};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use std::collections::BTreeSet;

/// Ports, and the node that they, their workers and their packets are on.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// `None`: workers are anywhere, and memory comes from where the kernel likes.
    pub(super) node: Option<Node>,
    /// Numbers of ports, ascending.
    pub(super) ports: Vec<usize>,
}

impl Place {
    /// Whether the CPU is on its node, or its node any.
    pub(super) fn has(&self, cpu: usize) -> bool {
        self.node.as_ref().is_none_or(|node| node.cpus.contains(&cpu))
    }
}

/// What was chosen, and what an operator may not expect of it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Choice {
    /// One at least; with `--numa-node split` one for each node, by their numbers.
    pub(super) places: Vec<Place>,
    pub(super) note: Option<String>,
}

impl Choice {
    /// All ports in one place.
    fn one(node: Option<Node>, ports: usize) -> Self {
        Self { places: vec![Place { node, ports: (0..ports).collect() }], note: None }
    }
}

/// A part of the appliance: a packet region, the ports whose frames lie in it, and the workers that serve these.
/// There is one; with `--numa-node split` one for each node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct PartPlan {
    /// The NUMA node that it is on. `None`: memory comes from where the kernel likes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub numa: Option<NumaPlan>,
    /// Its ports, the plan's first being 0.
    pub ports: Vec<usize>,
    /// The CPU of each worker, each of which has a queue of each port. Empty: no UDP.
    pub worker_cpus: Vec<usize>,
    /// Packet slots of its region.
    pub slots: u32,
}

impl PartPlan {
    /// Of each queue pair of its ports a worker has one.
    pub(super) fn queues(&self) -> usize {
        self.worker_cpus.len() * self.ports.len()
    }

    /// The number of its node.
    pub fn node(&self) -> Option<u32> {
        self.numa.as_ref().map(|numa| numa.node)
    }
}

/// Where memory comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NumaPlan {
    /// The node.
    pub node: u32,
    /// CPUs of it that this process may use.
    pub cpus: Vec<usize>,
}

impl NumaPlan {
    pub(super) fn new(node: &Node, allowed: &[usize]) -> Self {
        let cpus = node.cpus.iter().copied().filter(|cpu| allowed.contains(cpu)).collect();
        Self { node: node.id, cpus }
    }
}

/// The node that was requested, or else the one that all NICs are on, where there are several; or all that the ports
/// are divided over. Of ports there are so many: those of the flags, or kernel sockets.
pub(super) fn choose(
    flags: &ServeFlags,
    machine: &Machine,
    ports: usize,
) -> Result<Choice, PlanError> {
    let nodes = machine::nodes(&machine.sysfs);
    let find = |id| nodes.iter().find(|node| node.id == id).cloned();
    let one = |node| Ok(Choice::one(node, ports));
    let ids: BTreeSet<u32> = match flags.numa_node {
        NodeFlag::Off => return one(None),
        NodeFlag::Split => {
            return Ok(Choice { places: split(flags, machine, nodes)?, note: None });
        }
        NodeFlag::Node(id) => {
            let node = find(id).ok_or_else(|| PlanError::NoSuchNode {
                node: id,
                there: match nodes.as_slice() {
                    [] => "this kernel knows of none: leave the flag out".to_owned(),
                    some => {
                        let ids = some.iter().map(|node| node.id.to_string());
                        format!("choose of {}", ids.collect::<Vec<_>>().join(", "))
                    }
                },
            })?;
            return one(Some(node));
        }
        NodeFlag::Auto if nodes.len() < 2 => return one(None),
        NodeFlag::Auto => {
            flags.port.iter().filter_map(|port| node_of_port(machine, port)).collect()
        }
    };
    let mut ids = ids.into_iter();
    match (ids.next(), ids.next()) {
        (Some(id), None) => one(find(id)),
        (Some(id), Some(other)) => Ok(Choice {
            note: Some(format!(
                "there are ports on NUMA nodes {id} and {other}, and memory comes from where the kernel likes: divide the appliance with --numa-node split, run one for each, or choose a node"
            )),
            ..Choice::one(None, ports)
        }),
        (None, _) => one(None),
    }
}

/// The node of a NIC, as far as the firmware says. A virtual device has none.
fn node_of_port(machine: &Machine, port: &PortSpec) -> Option<u32> {
    match port {
        PortSpec::Pci { address, .. } => machine::node_of(&machine.sysfs, address),
        PortSpec::Vdev(_) => None,
    }
}

/// The ports, by the node of each; one without goes to the node with the fewest so far that has CPUs for workers.
fn split(flags: &ServeFlags, machine: &Machine, nodes: Vec<Node>) -> Result<Vec<Place>, PlanError> {
    if flags.port.is_empty() {
        return Err(PlanError::SplitWithoutPort);
    }
    if nodes.len() < 2 {
        return Err(PlanError::SplitOfOneNode);
    }
    let serves = |cpu: &usize| {
        let chosen = flags.cores.as_ref().is_none_or(|CpuList(cores)| cores.contains(cpu));
        chosen && machine.cpus.contains(cpu)
    };
    let mut places: Vec<Place> =
        nodes.into_iter().map(|node| Place { node: Some(node), ports: Vec::new() }).collect();
    let is = |place: &Place, id| place.node.as_ref().is_some_and(|node| node.id == id);
    let has_cpus =
        |place: &Place| place.node.as_ref().is_some_and(|node| node.cpus.iter().any(serves));
    let placed = |(n, port)| (n, node_of_port(machine, port));
    let (near, anywhere): (Vec<_>, Vec<_>) =
        flags.port.iter().enumerate().map(placed).partition(|(_, node)| node.is_some());
    for (n, node) in near.into_iter().chain(anywhere) {
        let own = places.iter().position(|place| node.is_some_and(|id| is(place, id)));
        let fewest = || {
            let fit = places.iter().enumerate().filter(|(_, place)| has_cpus(place));
            fit.min_by_key(|(_, place)| place.ports.len()).map(|(at, _)| at)
        };
        if let Some(place) = own.or_else(fewest).and_then(|at| places.get_mut(at)) {
            place.ports.push(n);
        }
    }
    places.retain(|place| !place.ports.is_empty());
    places.iter_mut().for_each(|place| place.ports.sort_unstable());
    match places.as_slice() {
        [] => Err(PlanError::NoCpus),
        [Place { node: Some(node), .. }] => Err(PlanError::SplitOntoOneNode(node.id)),
        _ => Ok(places),
    }
}

/// What to say where the node cannot give as much memory as is needed.
pub(super) fn shortage(node: &Node, wanted_bytes: u64) -> Option<String> {
    let free = node.free_bytes.filter(|free| *free < wanted_bytes)?;
    Some(format!(
        "NUMA node {} has {} MB free of {} MB that are wanted: the rest comes from other nodes, at less speed",
        node.id,
        free >> 20,
        wanted_bytes.div_ceil(1 << 20)
    ))
}

/// For programs: the workers' CPUs and the slots of all parts, the node of the only one, and the parts where there
/// are several.
pub(super) fn parts<S: Serializer>(parts: &[PartPlan], to: S) -> Result<S::Ok, S::Error> {
    let cpus: Vec<usize> = parts.iter().flat_map(|part| part.worker_cpus.clone()).collect();
    let mut all = to.serialize_map(None)?;
    all.serialize_entry("worker_cpus", &cpus)?;
    all.serialize_entry("slots", &parts.iter().map(|part| part.slots).sum::<u32>())?;
    match parts {
        [PartPlan { numa: Some(numa), .. }] => all.serialize_entry("numa", numa)?,
        [_] => {}
        several => all.serialize_entry("parts", several)?,
    }
    all.end()
}
