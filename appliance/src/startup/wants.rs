//! What the flags of `serve` need of the machine.

use crate::host::check::{OfNode, Want, Wants};
use crate::host::machine::Machine;
use crate::host::pci::PciAddress;
use crate::startup::flags::{Engine, ExceptionPathFlag, Isolated, PortSpec, ServeFlags};
use crate::startup::plan::{needed_bytes, understood};
use driver_shim::Pages;

impl Wants {
    /// As far as the flags can be understood; what is wrong with them, the plan says.
    pub fn new(flags: &ServeFlags, machine: &Machine) -> Self {
        let nics = flags.port.iter().filter_map(|port| match port {
            PortSpec::Pci { address, .. } => Some(PciAddress(address.clone())),
            PortSpec::Vdev(_) => None,
        });
        let ips = |index: usize| {
            let of_port = flags.ip.iter().filter(move |ip| ip.port_index.unwrap_or(0) == index);
            of_port.map(|ip| ip.network.ip)
        };
        let addressed = flags.port.iter().enumerate().filter_map(|(index, port)| match port {
            PortSpec::Pci { address, .. } => {
                let all = ips(index).next().is_some() && machine.interface_has(address, ips(index));
                all.then(|| PciAddress(address.clone()))
            }
            PortSpec::Vdev(_) => None,
        });
        let exception_path = !flags.port.is_empty()
            && flags.side_door != Some(ExceptionPathFlag::None)
            && flags.isolated != Isolated::On;
        let interfaces: Vec<_> =
            flags.port.iter().filter_map(PortSpec::packet_socket).map(str::to_owned).collect();
        let parts = understood(flags, machine);
        let needed = needed_bytes(flags, &parts);
        let divided = parts.iter().zip(&needed).filter(|_| parts.len() > 1);
        let nodes = divided.filter_map(|(part, &memory_bytes)| {
            Some(OfNode { id: part.node()?, worker_cpus: part.worker_cpus.clone(), memory_bytes })
        });
        Self {
            nics: nics.collect(),
            isolated: match flags.isolated {
                Isolated::Auto => Want::IfThere,
                Isolated::On => Want::Must,
                Isolated::Off => Want::No,
            },
            addressed: addressed.collect(),
            exception_path,
            seen_twice: if exception_path { interfaces.clone() } else { Vec::new() },
            interfaces,
            memory_bytes: needed.iter().copied().fold(0, u64::saturating_add),
            nodes: nodes.collect(),
            worker_cpus: parts.iter().flat_map(|part| part.worker_cpus.iter().copied()).collect(),
            huge: match flags.huge {
                Pages::Prefer => Want::IfThere,
                Pages::Require => Want::Must,
                Pages::Small => Want::No,
            },
            gpu: match flags.engine {
                Engine::Auto => Want::IfThere,
                Engine::Gpu => Want::Must,
                Engine::Cpu | Engine::Simt => Want::No,
            },
        }
    }
}
