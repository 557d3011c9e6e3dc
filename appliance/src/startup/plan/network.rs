//! Ports, listeners and who is answered.

use super::clients::{tcp_port, udp_port};
use super::{Device, PlanError, PortPlan, TcpPlan, TlsPlan, tls};
use crate::host::check::BIFURCATED;
use crate::host::machine::Machine;
use crate::startup::flags::{
    ExceptionPathFlag, IpFlag, Isolated, ListenAddr, ListenAddrs, PortSpec, ServeFlags,
    ServicePort, TcpIn,
};
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use wire::Cidr;
use wire::local::ADDRESSES_MAX;

/// Kernel drivers under which DPDK can work a device. The last two stay in the kernel's hands.
const DPDK_DRIVERS: [&str; 5] =
    ["vfio-pci", "uio_pci_generic", "igb_uio", "mlx4_core", "mlx5_core"];

/// The flags with kernel addresses to listen on: where none were given, those that `localhost` may stand for. Of any
/// free port there is one number, which need not be free on both.
pub(super) fn with_addresses(flags: &ServeFlags, machine: &Machine) -> ServeFlags {
    let mut flags = flags.clone();
    if flags.listen.is_empty() {
        let any_port = [tcp_port(&flags), udp_port(&flags)].contains(&ServicePort::Any);
        let v6 = IpAddr::from(Ipv6Addr::LOCALHOST);
        let has_v6 = machine.addresses.iter().any(|(_, ip)| *ip == v6);
        let mut ips = vec![Ipv4Addr::LOCALHOST.into()];
        ips.extend((has_v6 && !any_port).then_some(v6));
        flags.listen.push(ListenAddrs(vec![ListenAddr { ips, ..ListenAddr::default() }]));
    }
    flags
}

pub(super) fn ports(flags: &ServeFlags, machine: &Machine) -> Result<Vec<PortPlan>, PlanError> {
    if flags.port.is_empty() {
        if !flags.ip.is_empty() {
            return Err(PlanError::IpWithoutPort);
        }
        if matches!(flags.side_door, Some(ExceptionPathFlag::Tap(_))) {
            return Err(PlanError::ExceptionPathWithoutPort);
        }
        if flags.isolated == Isolated::On {
            return Err(PlanError::IsolatedWithoutPort);
        }
        return Ok(socket_ports(flags));
    }
    if !machine.has_dpdk {
        return Err(PlanError::NoDpdk);
    }
    let udp_port = match udp_port(flags) {
        ServicePort::Fixed(n) => n,
        ServicePort::Off if flags.tcp_in() == TcpIn::Worker => 0,
        ServicePort::Off | ServicePort::Any => return Err(PlanError::PortWithoutUdp),
    };
    if flags.clients.rdma && udp_port == wire::roce::PORT {
        return Err(PlanError::RdmaUdpPort);
    }
    let tcp_port = match tcp_port(flags) {
        ServicePort::Fixed(n) if flags.tcp_in() == TcpIn::Worker => Some(n),
        _ => None,
    };
    if udp_port == 0 && tcp_port.is_none() {
        return Err(PlanError::PortWithoutUdp);
    }
    let mut seen = BTreeSet::new();
    let mut plans = Vec::new();
    for spec in &flags.port {
        if !seen.insert(spec.device()) {
            return Err(PlanError::PortTwice(spec.device().to_owned()));
        }
        if let PortSpec::Pci { address, .. } = spec {
            pci(address, machine)?;
        }
        let exception_path = exception_path(flags, plans.len())?;
        plans.push(PortPlan {
            device: Device::Dpdk(spec.clone()),
            udp_port,
            tcp_port,
            addresses: Vec::new(),
            exception_path,
            isolated: Isolated::Off,
        });
    }
    give_addresses(&mut plans, &flags.ip)?;
    for (index, (plan, spec)) in plans.iter().zip(&flags.port).enumerate() {
        if plan.addresses.is_empty() {
            return Err(PlanError::PortWithoutIp { index, device: spec.device().to_owned() });
        }
    }
    for plan in &mut plans {
        plan.isolated = isolated(flags.isolated, plan, machine)?;
    }
    Ok(plans)
}

/// Whether the port is to be isolated. By itself only where the kernel has its addresses: it alone answers
/// ARP then.
fn isolated(asked: Isolated, plan: &PortPlan, machine: &Machine) -> Result<Isolated, PlanError> {
    let Device::Dpdk(PortSpec::Pci { address, .. }) = &plan.device else {
        return Ok(if asked == Isolated::On { asked } else { Isolated::Off });
    };
    let shared = machine.pci_driver(address).is_some_and(|d| BIFURCATED.contains(&d.as_str()));
    let ips = plan.addresses.iter().map(|network| network.ip);
    match asked {
        Isolated::On if !shared => Err(PlanError::NothingToIsolate(address.clone())),
        Isolated::Auto if !(shared && machine.interface_has(address, ips)) => Ok(Isolated::Off),
        asked => Ok(asked),
    }
}

/// One port per UDP port number, over every address that has it.
fn socket_ports(flags: &ServeFlags) -> Vec<PortPlan> {
    if flags.clients.unix_socket.is_some() {
        return Vec::new();
    }
    let service = udp_port(flags);
    let mut by_port = BTreeMap::<u16, Vec<IpAddr>>::new();
    for listen in flags.listening() {
        if let Some(port) = port_of(listen, service) {
            let ips = by_port.entry(port).or_default();
            let new: Vec<_> = listen.ips.iter().filter(|ip| !ips.contains(ip)).collect();
            ips.extend(new);
        }
    }
    by_port
        .into_iter()
        .map(|(udp_port, ips)| PortPlan {
            device: Device::Sockets(ips),
            udp_port,
            tcp_port: None,
            addresses: Vec::new(),
            exception_path: None,
            isolated: Isolated::Off,
        })
        .collect()
}

fn port_of(listen: &ListenAddr, service: ServicePort) -> Option<u16> {
    match service {
        ServicePort::Off => None,
        ServicePort::Any => Some(listen.port.unwrap_or(0)),
        ServicePort::Fixed(n) => Some(listen.port.unwrap_or(n)),
    }
}

fn pci(address: &str, machine: &Machine) -> Result<(), PlanError> {
    if !machine.has_pci_device(address) {
        return Err(PlanError::NoSuchDevice(address.to_owned()));
    }
    match machine.pci_driver(address) {
        Some(driver) if DPDK_DRIVERS.contains(&driver.as_str()) => Ok(()),
        driver => Err(PlanError::WrongDriver {
            address: address.to_owned(),
            driver: driver.unwrap_or_else(|| "no driver".to_owned()),
        }),
    }
}

fn give_addresses(plans: &mut [PortPlan], ips: &[IpFlag]) -> Result<(), PlanError> {
    let ports = plans.len();
    let mut seen = BTreeSet::new();
    for flag in ips {
        let ip = flag.network.ip;
        let is_no_host = ip.is_unspecified()
            || ip.is_multicast()
            || ip.is_loopback()
            || ip == Ipv4Addr::BROADCAST
            || flag.network.is_first_or_last();
        if is_no_host {
            return Err(PlanError::IpNotAHost(flag.network));
        }
        if !seen.insert(ip) {
            return Err(PlanError::IpTwice(ip));
        }
        let index = match flag.port_index {
            Some(i) => i,
            None if ports == 1 => 0,
            None => return Err(PlanError::IpOfWhichPort(flag.network)),
        };
        let plan = plans.get_mut(index).ok_or(PlanError::IpOfNoPort { index, ports })?;
        let same = plan.addresses.iter().filter(|a| a.ip.is_ipv4() == ip.is_ipv4());
        if same.count() == ADDRESSES_MAX {
            return Err(PlanError::IpTooMany { index, most: ADDRESSES_MAX });
        }
        plan.addresses.push(flag.network);
    }
    Ok(())
}

pub(super) fn tcp(flags: &ServeFlags, ports: &[PortPlan], tls: Option<&TlsPlan>) -> Vec<TcpPlan> {
    let mut plans = Vec::<TcpPlan>::new();
    if flags.clients.unix_socket.is_some() {
        return plans;
    }
    let service = tcp_port(flags);
    let kernel = flags.listening().flat_map(|l| {
        let ips = l.ips.iter().filter_map(move |ip| Some((*ip, port_of(l, service)?)));
        let tls = tls::of_listener(l.tls, tls);
        ips.map(move |at| TcpPlan {
            address: SocketAddr::from(at),
            behind_exception_path: false,
            tls,
        })
    });
    // Any free port will not do here: clients of a NIC must know where to connect.
    let ServicePort::Fixed(port) = service else { return kernel.collect() };
    let tap = ports
        .iter()
        .filter(|p| p.exception_path.is_some() && p.tcp_port.is_none())
        .flat_map(|p| &p.addresses)
        .map(|n| TcpPlan {
            address: SocketAddr::new(n.ip, port),
            behind_exception_path: true,
            tls: tls::of_listener(None, tls),
        });
    for plan in kernel.chain(tap) {
        // A listener on all addresses of a family takes the exception path's too.
        let any = if plan.address.is_ipv4() {
            IpAddr::from(Ipv4Addr::UNSPECIFIED)
        } else {
            Ipv6Addr::UNSPECIFIED.into()
        };
        let any = SocketAddr::new(any, plan.address.port());
        if !plans.iter().any(|p| p.address == plan.address || p.address == any) {
            plans.push(plan);
        }
    }
    plans
}

/// The name of a port's TAP device: as it was given, with the port's number when there are several.
fn exception_path(flags: &ServeFlags, index: usize) -> Result<Option<String>, PlanError> {
    /// IFNAMSIZ less the closing zero.
    const NAME_MAX_BYTES: usize = 15;
    let name = match &flags.side_door {
        Some(ExceptionPathFlag::None) => return Ok(None),
        Some(ExceptionPathFlag::Tap(Some(name))) if flags.port.len() == 1 => name.clone(),
        Some(ExceptionPathFlag::Tap(Some(name))) => format!("{name}{index}"),
        None | Some(ExceptionPathFlag::Tap(None)) => format!("gnomon{index}"),
    };
    if name.len() > NAME_MAX_BYTES {
        return Err(PlanError::ExceptionPathName(name));
    }
    Ok(Some(name))
}

/// What `--allow` says, else loopback and the ports' subnets; and what `--trusted` says.
pub(super) fn allow(flags: &ServeFlags) -> Vec<Cidr> {
    let policy = &flags.policy;
    let mut networks =
        if policy.allow.is_empty() { own_networks(flags) } else { policy.allow.clone() };
    for network in &policy.trusted {
        if !networks.contains(network) {
            networks.push(*network);
        }
    }
    networks
}

/// What `--trusted` says, else as much of loopback and the ports' subnets as is allowed.
pub(super) fn trusted(flags: &ServeFlags) -> Vec<Cidr> {
    let policy = &flags.policy;
    if !policy.trusted.is_empty() {
        return policy.trusted.clone();
    }
    let own = own_networks(flags);
    if policy.allow.is_empty() {
        return own;
    }
    let both = |own: Cidr| policy.allow.iter().filter_map(move |allowed| own.meet(*allowed));
    own.into_iter().flat_map(both).collect()
}

fn own_networks(flags: &ServeFlags) -> Vec<Cidr> {
    let loopback = [(Ipv4Addr::LOCALHOST.into(), 8), (Ipv6Addr::LOCALHOST.into(), 128)];
    let own = flags.ip.iter().map(|i| (i.network.ip, i.network.prefix_len));
    let mut networks = Vec::new();
    for (ip, prefix_len) in loopback.into_iter().chain(own) {
        let network = Cidr::around(ip, prefix_len);
        if !networks.contains(&network) {
            networks.push(network);
        }
    }
    networks
}

/// A kernel address that untrusted clients reach over UDP, to be turned away for lack of `--allow` and
/// `--trusted`.
pub(super) fn unanswered(flags: &ServeFlags, ports: &[PortPlan]) -> Option<IpAddr> {
    if !flags.policy.allow.is_empty() || !flags.policy.trusted.is_empty() {
        return None;
    }
    ports
        .iter()
        .filter_map(|p| match &p.device {
            Device::Sockets(ips) => ips.iter().find(|ip| !ip.is_loopback()).copied(),
            Device::Dpdk(_) => None,
        })
        .next()
}
