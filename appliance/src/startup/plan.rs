//! What follows from the flags on this machine: checked, resolved facts, and nothing touched yet.
//!
//! In: [`ServeFlags`] and [`Machine`]. Out: [`Plan`], or a [`PlanError`] that says what to do.
//! [`crate::startup::topology`] builds from a plan without asking again.

mod clients;
mod error;
mod network;
mod numa;
mod offload;
mod policy;
mod process;
mod resources;
mod settings;
mod slabs;
mod tls;
mod unused;

pub use clients::{ClientsPlan, UnixPlan};
pub use error::PlanError;
pub use numa::{NumaPlan, PartPlan};
pub use offload::OffloadPlan;
pub use policy::PolicyPlan;
pub use process::ProcessPlan;
pub(crate) use resources::{needed_bytes, understood};
pub use tls::{ClientCerts, TlsPlan};

use crate::host::machine::{Gpu, Machine};
use crate::startup::flags::{
    Energy, Engine, FileMask, Isolated, MetricsAddr, Network, PortSpec, Profile, ServeFlags, TcpIn,
};
use dataplane::stages::batch::BatchMode;
use driver_shim::Pages;
use gpu::index::IndexKind;
use gpu::offload::Mode;
use serde::{Serialize, Serializer};
use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use store::{Eviction, SlabPages};
use wire::Cidr;

/// Bytes per packet slot.
pub(crate) const SLOT_BYTES: u64 = driver_shim::SLOT_BYTES as u64;

/// What size classes may grow by: less makes more of them than there can be.
const GROWTH_FACTORS: RangeInclusive<f64> = 1.05..=100.0;

/// Everything that start-up needs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Plan {
    /// Ports that bring requests to workers.
    pub ports: Vec<PortPlan>,
    /// Where TCP listens.
    pub tcp: Vec<TcpPlan>,
    /// Who serves TCP on the ports.
    pub tcp_in: TcpIn,
    /// Frames per second to the kernel's TAP device, and as many from it.
    pub exception_rate: NonZeroU32,
    /// TCP threads.
    pub tcp_threads: usize,
    /// Most TCP connections at a time.
    pub conn_limit: usize,
    /// Most memory for buffers of connections, in bytes.
    pub conn_memory_bytes: u64,
    /// How clients connect, and what they may ask for.
    pub clients: ClientsPlan,
    /// How TLS is spoken, where it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<TlsPlan>,
    /// How the process runs.
    pub process: ProcessPlan,
    /// Files that may be open at once.
    pub open_files: u64,
    /// Regions, and the ports and workers of each: one, or one for each of several NUMA nodes.
    #[serde(flatten, serialize_with = "numa::parts")]
    pub parts: Vec<PartPlan>,
    /// A flag sets the number of workers.
    pub cores_given: bool,
    /// Threads keep to their CPUs. Those on kernel sockets do where a CPU was chosen: several processes of a machine
    /// would share the same few.
    pub pinned: bool,
    /// The CPU of everything else.
    pub control_cpu: usize,
    /// CPUs that TCP threads may use. On kernel sockets all, unless the workers' were chosen.
    pub tcp_cpus: Vec<usize>,
    /// Memory for items, in bytes.
    pub memory_bytes: u64,
    /// The file that items lie in, if they are to outlive the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_file: Option<PathBuf>,
    /// Largest item, in bytes.
    pub item_max_bytes: u64,
    /// Evict when memory is full.
    pub evict: bool,
    /// Whom to evict.
    #[serde(serialize_with = "eviction")]
    pub eviction: Eviction,
    /// The slab classes and their pages, where these are fixed.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shown")]
    pub slab_pages: Option<SlabPages>,
    /// The appliance that it is set up as.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub profile: Option<Profile>,
    /// Size ratio between neighbouring slab classes.
    pub growth_factor: f64,
    /// Space for key, value and flags that the smallest chunk has at least.
    pub chunk_min_bytes: u32,
    /// Huge pages.
    #[serde(serialize_with = "pages")]
    pub huge: Pages,
    /// What looks requests up.
    pub engine: Engine,
    /// What GPU there is, where it was looked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<Gpu>,
    /// How it is used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offload: Option<OffloadPlan>,
    /// Most requests per batch.
    pub batch: usize,
    /// When a batch goes.
    #[serde(serialize_with = "batch_mode")]
    pub batch_mode: BatchMode,
    /// Length of its cycles in microseconds, where it has any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub batch_cycle_us: Option<u32>,
    /// Networks that are served on ports.
    #[serde(serialize_with = "as_text")]
    pub allow: Vec<Cidr>,
    /// TCP is served from everywhere else, too.
    pub tcp_from_all: bool,
    /// How much each of them gets.
    pub policy: PolicyPlan,
    /// Where metrics are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsAddr>,
    /// What is done about power.
    pub energy: Energy,
    /// Power that no meter shows, in watts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base_watts: Option<f64>,
    /// Arguments for DPDK.
    pub eal: Vec<String>,
    /// What an operator may not expect.
    pub notes: Vec<String>,
    /// What was given and changes nothing here.
    pub unused: Vec<String>,
}

/// A port of the plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PortPlan {
    /// What drives it.
    pub device: Device,
    /// The UDP port of the service; 0: any free one.
    pub udp_port: u16,
    /// The TCP port of the service, where workers serve it.
    pub tcp_port: Option<u16>,
    /// Its own addresses. Kernel sockets have theirs in the device.
    pub addresses: Vec<Network>,
    /// Name of the TAP device behind its exception path.
    #[serde(rename = "side_door")]
    pub exception_path: Option<String>,
    /// The kernel keeps what no service has, and there is no exception path then.
    pub isolated: Isolated,
}

/// What drives a port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Device {
    /// Kernel UDP sockets at these addresses.
    Sockets(Vec<IpAddr>),
    /// DPDK.
    #[serde(untagged)]
    Dpdk(PortSpec),
}

/// An address that TCP listens on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TcpPlan {
    /// The address; port 0: any free one.
    pub address: SocketAddr,
    /// The address will exist only when the exception path's TAP device has got it.
    #[serde(rename = "behind_side_door")]
    pub behind_exception_path: bool,
    /// What is asked of clients over TLS; `None`: no TLS is spoken.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<ClientCerts>,
}

impl Plan {
    /// Checks the flags against each other and against the machine.
    ///
    /// # Errors
    /// The first contradiction found, with what to do about it.
    pub fn new(flags: &ServeFlags, machine: &Machine) -> Result<Self, PlanError> {
        let flags = &network::with_addresses(flags, machine);
        process::pid_file_apart(flags)?;
        let mut notes = Vec::new();
        let clients = clients::clients(flags)?;
        let metrics = match &flags.metrics {
            Some(MetricsAddr::Unix(path)) => {
                Some(MetricsAddr::Unix(clients::socket_path("--metrics", path)?))
            }
            other => other.clone(),
        };
        let tls = tls::tls(flags)?;
        notes.extend(tls::notes(flags, tls.as_ref()));
        let ports = network::ports(flags, machine)?;
        let with_dpdk = !flags.port.is_empty();
        let tcp = network::tcp(flags, &ports, tls.as_ref());
        if !with_dpdk && flags.tcp == Some(TcpIn::Worker) {
            return Err(PlanError::TcpWithoutPort);
        }
        if ports.is_empty() && tcp.is_empty() && clients.unix.is_none() {
            return Err(PlanError::NothingToServe);
        }
        let numa::Choice { places, note } = numa::choose(flags, machine, ports.len())?;
        notes.extend(note);
        let (parts, control_cpu) = resources::parts(flags, machine, &places)?;
        let worker_cpus: Vec<usize> = parts.iter().flat_map(|p| p.worker_cpus.clone()).collect();
        if worker_cpus.contains(&control_cpu) {
            notes.push(format!(
                "CPU {control_cpu} serves packets and everything else: allow the process one more CPU"
            ));
        }
        // Workers on kernel sockets sleep when there is nothing to do: other threads need not keep off their
        // CPUs, unless they were chosen.
        let own = !flags.port.is_empty() || flags.cores.is_some();
        let spare = machine.cpus.iter().copied().filter(|c| !own || !worker_cpus.contains(c));
        let mut tcp_cpus: Vec<usize> = spare.collect();
        if tcp_cpus.is_empty() {
            tcp_cpus.push(control_cpu);
        }
        let slab_pages = slabs::slab_pages(flags)?;
        let items = resources::memory(flags, machine, &parts, slab_pages.as_ref())?;
        let memory_bytes = items.bytes;
        let conn_memory_bytes = resources::conn_memory(flags, memory_bytes)?;
        if memory_bytes >> 20 > flags.memory {
            notes.push(format!(
                "-m {}: items have {} MB, the least that size classes work with",
                flags.memory,
                memory_bytes >> 20
            ));
        }
        if flags.slab_pages.is_some() && memory_bytes >> 20 < flags.memory {
            notes.push(format!(
                "-m {}: --slab-pages takes {} MB of it, and nothing takes the rest",
                flags.memory,
                memory_bytes >> 20
            ));
        }
        let connections = resources::connection_bytes(flags);
        let of_part = connections / parts.len().max(1) as u64;
        let wanted = resources::needed_bytes(flags, &parts).into_iter().map(|n| n + of_part);
        let short = places.iter().zip(wanted).filter_map(|(place, wanted)| {
            place.node.as_ref().and_then(|node| numa::shortage(node, wanted))
        });
        notes.extend(short);
        let listeners = tcp.len() + usize::from(clients.unix.is_some());
        let of_kernel = if listeners > 0 { conn_memory_bytes } else { 0 };
        notes.extend(resources::shortage(machine, &items, of_kernel + connections));
        let (open_files, conn_limit) =
            resources::open_files(flags, machine, &ports, listeners, worker_cpus.len())?;
        if conn_limit < flags.conn_limit {
            notes.push(format!(
                "at most {conn_limit} connections: the limit of open files is {open_files}; raise it (ulimit -Hn, LimitNOFILE=)"
            ));
        }
        let asked = flags.slab_growth_factor;
        if asked.is_nan() || asked <= 1.0 {
            return Err(PlanError::GrowthFactor(asked));
        }
        let growth_factor = asked.clamp(*GROWTH_FACTORS.start(), *GROWTH_FACTORS.end());
        if !GROWTH_FACTORS.contains(&asked) {
            notes.push(format!("-f {asked}: sizes grow by a factor of {growth_factor} here"));
        }
        if !with_dpdk && !flags.eal.is_empty() {
            return Err(PlanError::EalWithoutPort);
        }
        #[cfg(feature = "dpdk")]
        driver_shim::ports::dpdk::check_arguments(&flags.eal)
            .map_err(|error| PlanError::Eal(error.to_string()))?;
        let to_nobody = |port: &PortPlan| port.exception_path.is_none();
        if with_dpdk && flags.tcp_in() == TcpIn::Kernel && ports.iter().any(to_nobody) {
            notes.push("--tcp kernel: TCP to a port without --side-door reaches nobody".to_owned());
        }
        let chunk_min_bytes = flags.slab_min_size.unwrap_or(0);
        if u64::from(chunk_min_bytes) > flags.max_item_size {
            return Err(PlanError::ChunkMin(chunk_min_bytes));
        }
        let (engine, gpu) = resources::engine(flags.engine, machine)?;
        let offload = OffloadPlan::new(&flags.offload, engine, memory_bytes)?;
        let (nodes, gpus) = (parts.len(), offload.as_ref().map_or(0, |plan| plan.devices.len()));
        if matches!(engine, Engine::Gpu | Engine::Simt) && gpus < nodes && nodes > 1 {
            return Err(PlanError::SplitWithFewerGpus { engine: engine.name(), nodes, gpus });
        }
        if let Some(ip) = network::unanswered(flags, &ports) {
            notes.push(format!(
                "UDP listens on {ip} and answers only this machine: name your clients' networks with --trusted or --allow"
            ));
        }
        let policy = PolicyPlan::new(&flags.policy, network::trusted(flags));
        if let Some(everybody) = policy.everybody() {
            notes.push(format!(
                "--trusted {everybody} is every source: replies of any size go to an address that a client forges"
            ));
        }
        if clients.auth_file.is_some() && clients.unix.is_none() && flags.udp_port.is_none() {
            notes.push("-Y turns UDP off, where no client can authenticate".to_owned());
        }
        let unused = unused::unused(flags, &ports, &tcp);
        Ok(Self {
            allow: network::allow(flags),
            tcp_from_all: flags.policy.allow.is_empty() && flags.policy.trusted.is_empty(),
            policy,
            ports,
            tcp,
            tcp_in: flags.tcp_in(),
            exception_rate: flags.exception_rate,
            tcp_threads: usize::from(flags.threads),
            conn_limit: conn_limit as usize,
            conn_memory_bytes,
            clients,
            tls,
            process: process::process(flags),
            open_files,
            parts,
            cores_given: flags.cores.is_some(),
            pinned: own || flags.control_core.is_some(),
            control_cpu,
            tcp_cpus,
            memory_bytes,
            memory_file: flags.memory_file.clone(),
            item_max_bytes: flags.max_item_size,
            evict: !flags.disable_evictions,
            eviction: flags.evict,
            slab_pages,
            profile: flags.profile,
            growth_factor,
            chunk_min_bytes,
            huge: flags.huge,
            engine,
            gpu,
            offload,
            batch: flags.batch as usize,
            batch_mode: flags.batch_mode,
            batch_cycle_us: (flags.batch_mode == BatchMode::Periodic)
                .then_some(flags.offload.index_cycle),
            metrics,
            energy: flags.energy,
            base_watts: flags.base_watts,
            eal: flags.eal.clone(),
            notes,
            unused,
        })
    }

    /// What the profile stands for, in the words of the flags.
    pub fn profile(&self) -> Option<String> {
        let Profile::Fpga = self.profile?;
        let is_udp =
            |port: &PortPlan| port.udp_port != 0 || matches!(port.device, Device::Sockets(_));
        Some(format!(
            "fpga: -B {}, {}, -f {}, --slab-pages {}, --evict {}, --batch {}",
            self.clients.protocol(),
            if self.ports.iter().any(is_udp) { "UDP" } else { "no UDP" },
            self.growth_factor,
            self.slab_pages.as_ref().map(SlabPages::to_string).unwrap_or_default(),
            self.eviction.name(),
            self.batch,
        ))
    }

    /// Where a thread runs that is planned on this CPU.
    pub fn cpus_of(&self, cpu: usize) -> Vec<usize> {
        if self.pinned { vec![cpu] } else { self.cpus() }
    }

    /// CPUs that anything runs on.
    pub fn cpus(&self) -> Vec<usize> {
        let all = [&self.worker_cpus()[..], &self.tcp_cpus, &[self.control_cpu]];
        all.concat()
    }

    /// The CPU of each worker, part by part. Empty: no UDP.
    pub fn worker_cpus(&self) -> Vec<usize> {
        self.parts.iter().flat_map(|part| part.worker_cpus.iter().copied()).collect()
    }

    /// Packet slots of all regions.
    pub fn slots(&self) -> u32 {
        self.parts.iter().map(|part| part.slots).sum()
    }

    /// The nodes that the appliance is divided over; none where it is not.
    pub fn divided_over(&self) -> Vec<u32> {
        let nodes = self.parts.iter().filter_map(PartPlan::node);
        if self.parts.len() > 1 { nodes.collect() } else { Vec::new() }
    }

    /// Where workers serve TCP.
    pub fn worker_tcp(&self) -> impl Iterator<Item = SocketAddr> {
        let of = |port: &PortPlan| port.tcp_port.map(|tcp| (port.addresses.clone(), tcp));
        let served = self.ports.iter().filter_map(of);
        served.flat_map(|(own, tcp)| own.into_iter().map(move |n| SocketAddr::new(n.ip, tcp)))
    }

    /// Whether any port needs DPDK.
    pub fn needs_dpdk(&self) -> bool {
        self.ports.iter().any(|p| matches!(p.device, Device::Dpdk(_)))
    }
}

/// The path from the root on, which stays right when the working directory changes.
fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

macro_rules! by_name {
    ($($write:ident: $of:ty;)*) => {$(
        fn $write<S: Serializer>(it: &$of, s: S) -> Result<S::Ok, S::Error> {
            s.serialize_str(it.name())
        }
    )*};
}
by_name! {
    pages: Pages; eviction: Eviction; batch_mode: BatchMode; gpu_mode: Mode; gpu_index: IndexKind;
}

fn shown<T: Display, S: Serializer>(what: &Option<T>, s: S) -> Result<S::Ok, S::Error> {
    what.as_ref().map(T::to_string).serialize(s)
}

fn as_text<T: Display, S: Serializer>(items: &[T], s: S) -> Result<S::Ok, S::Error> {
    s.collect_seq(items.iter().map(T::to_string))
}

#[cfg(test)]
pub(crate) mod tests;
