//! What the flags of `serve` want of the machine.

use super::{PciAddress, Want, Wants};
use crate::flags::{EngineFlag, HugeFlag, PortSpec, ServeFlags, SideDoorFlag};
use crate::machine::Machine;
use crate::plan::{needed_bytes, worker_cpus};

impl Wants {
    /// As far as the flags can be understood; what is wrong with them, the plan says.
    pub fn new(flags: &ServeFlags, machine: &Machine) -> Self {
        let nics = flags.port.iter().filter_map(|port| match port {
            PortSpec::Pci { address, .. } => Some(PciAddress(address.clone())),
            PortSpec::Vdev(_) => None,
        });
        let worker_cpus = worker_cpus(flags, machine).unwrap_or_default();
        Self {
            nics: nics.collect(),
            side_door: !flags.port.is_empty() && flags.side_door != Some(SideDoorFlag::None),
            memory_bytes: needed_bytes(flags, worker_cpus.len() * flags.port.len().max(1)),
            worker_cpus,
            huge: match flags.huge {
                HugeFlag::Auto => Want::IfThere,
                HugeFlag::On => Want::Must,
                HugeFlag::Off => Want::No,
            },
            gpu: match flags.engine {
                EngineFlag::Auto => Want::IfThere,
                EngineFlag::Gpu => Want::Must,
                EngineFlag::Cpu | EngineFlag::Simt => Want::No,
            },
        }
    }
}
