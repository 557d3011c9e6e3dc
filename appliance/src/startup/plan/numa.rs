//! The NUMA node that workers and memory are to be on.

use super::PlanError;
use crate::host::machine::{self, Machine, Node};
use crate::startup::flags::{NodeFlag, PortSpec, ServeFlags};
use serde::Serialize;
use std::collections::BTreeSet;

/// What was chosen, and what an operator may not expect of it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// `None`: workers are anywhere, and memory comes from where the kernel likes.
    pub(super) node: Option<Node>,
    pub(super) note: Option<String>,
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

/// The node that was requested, or else the one that all NICs are on, where there are several.
pub(super) fn choose(flags: &ServeFlags, machine: &Machine) -> Result<Choice, PlanError> {
    let nodes = machine::nodes(&machine.sysfs);
    let find = |id| nodes.iter().find(|node| node.id == id).cloned();
    let ids: BTreeSet<u32> = match flags.numa_node {
        NodeFlag::Off => return Ok(Choice::default()),
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
            return Ok(Choice { node: Some(node), note: None });
        }
        NodeFlag::Auto if nodes.len() < 2 => return Ok(Choice::default()),
        NodeFlag::Auto => {
            let nics = flags.port.iter().filter_map(|port| match port {
                PortSpec::Pci { address, .. } => Some(address),
                PortSpec::Vdev(_) => None,
            });
            nics.filter_map(|address| machine::node_of(&machine.sysfs, address)).collect()
        }
    };
    let mut ids = ids.into_iter();
    Ok(match (ids.next(), ids.next()) {
        (Some(one), None) => Choice { node: find(one), note: None },
        (Some(one), Some(other)) => Choice {
            node: None,
            note: Some(format!(
                "there are ports on NUMA nodes {one} and {other}, and memory comes from where the kernel likes: run an appliance for each, or choose with --numa-node"
            )),
        },
        (None, _) => Choice::default(),
    })
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
