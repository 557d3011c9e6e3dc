//! CPUs, memory, files and engines.

use super::numa::{NumaPlan, PartPlan, Place};
use super::{Device, PlanError, PortPlan, SLOT_BYTES, numa, slabs};
use crate::host::cpu_list::CpuList;
use crate::host::machine::{FileSystem, Gpu, Machine};
use crate::serve::tcp;
use crate::startup::flags::{Engine, ServeFlags, TcpIn};
use dataplane::stages::stream::{CONNECTION_BYTES, TLS_CONNECTION_BYTES};
use driver_shim::Pages;
use store::{SlabPages, restart};

/// Workers over kernel sockets when no flag says how many: memcached's number of threads.
const SOCKET_WORKERS: usize = 4;
/// Slots per queue: a full receive ring, a full transmit ring, and as much again in the pipeline.
pub(super) const SLOTS_PER_QUEUE: u32 = 4096;
/// The index comes on top of item memory: an eighth of it and some, rounded up.
pub(super) const INDEX_SHARE: u64 = 7;
/// Two slab pages: one in use, one for the next size that turns up.
const MEMORY_LEAST_BYTES: u64 = 4 << 20;
/// The bound that memcached has for `-I`.
const ITEM_MOST_BYTES: u64 = 1 << 30;
/// The huge pages that slabs are made of.
const HUGE_PAGE_BYTES: u64 = 2 << 20;
/// Memory of connections is this part of that of items, when no flag says how much.
const CONN_SHARE: u64 = 8;
/// And this much at least, beside the largest item.
const CONN_SHARED_BYTES: u64 = 16 << 20;
/// What `--conn-memory` must leave for all connections together.
const CONN_SHARED_LEAST_BYTES: u64 = 4 << 20;
/// A request's line and a reply's, beside the item's value.
const BESIDE_ITEM_BYTES: u64 = 16 << 10;
/// The process itself, with its threads.
const PROCESS_BYTES: u64 = 30 << 20;
/// What -c is without the flag.
const CONN_LIMIT_DEFAULT: u32 = 1024;
/// Open files besides connections and sockets: devices, logs, polls, what libraries open.
const FILES_BESIDES: u64 = 128;

/// The workers' CPUs of each place, on its node unless they were chosen, and the control plane's.
pub(super) fn cpus(
    flags: &ServeFlags,
    machine: &Machine,
    places: &[Place],
) -> Result<(Vec<Vec<usize>>, usize), PlanError> {
    let allowed = &machine.cpus;
    let outside = |cpu, flag| PlanError::CpuNotAllowed {
        flag,
        cpu,
        allowed: CpuList(allowed.clone()).to_string(),
    };
    let first = *allowed.first().ok_or(PlanError::NoCpus)?;
    if let Some(control) = flags.control_core
        && !allowed.contains(&control)
    {
        return Err(outside(control, "--control-core"));
    }
    let cores = flags.cores.as_ref().map_or(&[][..], |CpuList(cores)| cores);
    if let Some(&cpu) = cores.iter().find(|c| !allowed.contains(c)) {
        return Err(outside(cpu, "--cores"));
    }
    let control = match flags.control_core {
        Some(c) if cores.contains(&c) => return Err(PlanError::ControlCoreServes(c)),
        Some(c) => c,
        None => allowed.iter().copied().find(|c| !cores.contains(c)).unwrap_or(first),
    };
    let workers = match places {
        [only] => vec![of_one_place(flags, allowed, control, only)],
        several => of_each_place(flags, allowed, control, several)?,
    };
    Ok((workers, control))
}

/// The workers' CPUs where all ports are in one place: none without ports.
fn of_one_place(
    flags: &ServeFlags,
    allowed: &[usize],
    control: usize,
    place: &Place,
) -> Vec<usize> {
    if place.ports.is_empty() {
        return Vec::new();
    }
    if let Some(CpuList(cores)) = &flags.cores {
        return cores.clone();
    }
    let most = if flags.port.is_empty() { SOCKET_WORKERS } else { usize::MAX };
    let spare = || allowed.iter().copied().filter(|&c| c != control);
    let mut cores: Vec<usize> = spare().filter(|&cpu| place.has(cpu)).take(most).collect();
    if cores.is_empty() {
        // Far from the NIC is better than nowhere.
        cores.extend(spare().take(most));
    }
    if cores.is_empty() {
        cores.push(control);
    }
    cores
}

/// The workers' CPUs of each of several places, at least one: of a node whose only CPU is the control plane's, that.
fn of_each_place(
    flags: &ServeFlags,
    allowed: &[usize],
    control: usize,
    places: &[Place],
) -> Result<Vec<Vec<usize>>, PlanError> {
    let chosen = flags.cores.as_ref().map(|CpuList(cores)| cores.as_slice());
    let stray = chosen.and_then(|cores| cores.iter().find(|&&c| !places.iter().any(|p| p.has(c))));
    if let Some(&cpu) = stray {
        return Err(PlanError::SplitCpuWithoutPort(cpu));
    }
    let among = chosen.unwrap_or(allowed);
    let of = |place: &Place| {
        let near = || among.iter().copied().filter(|&cpu| place.has(cpu));
        let spare: Vec<usize> = near().filter(|&cpu| chosen.is_some() || cpu != control).collect();
        let cpus = if spare.is_empty() { near().collect() } else { spare };
        match &place.node {
            Some(node) if cpus.is_empty() => {
                let among = CpuList(among.to_vec()).to_string();
                Err(PlanError::SplitWithoutCpu { node: node.id, among })
            }
            _ => Ok(cpus),
        }
    };
    places.iter().map(of).collect()
}

/// The parts of the appliance, their slots as they are by default or by the flag.
pub(super) fn parts(
    flags: &ServeFlags,
    machine: &Machine,
    places: &[Place],
) -> Result<(Vec<PartPlan>, usize), PlanError> {
    let (cpus, control) = cpus(flags, machine, places)?;
    let with_cpus = places.iter().zip(cpus);
    let mut parts: Vec<PartPlan> = with_cpus
        .map(|(place, worker_cpus)| PartPlan {
            numa: place.node.as_ref().map(|node| NumaPlan::new(node, &machine.cpus)),
            ports: place.ports.clone(),
            worker_cpus,
            slots: 0,
        })
        .collect();
    let queues = queues(&parts);
    let slots = flags.slots.unwrap_or_else(|| slots_by_default(flags, queues));
    for part in &mut parts {
        // By its queues.
        let own = u32::try_from(part.queues()).unwrap_or(u32::MAX);
        let share = u64::from(slots) * u64::from(own) / u64::from(queues.max(1));
        part.slots = if queues == 0 { slots } else { u32::try_from(share).unwrap_or(slots) };
    }
    Ok((parts, control))
}

/// Queues of all parts.
fn queues(parts: &[PartPlan]) -> u32 {
    u32::try_from(parts.iter().map(PartPlan::queues).sum::<usize>()).unwrap_or(u32::MAX)
}

/// The parts of the appliance, as far as the flags can be understood.
pub(crate) fn understood(flags: &ServeFlags, machine: &Machine) -> Vec<PartPlan> {
    let choice = numa::choose(flags, machine, flags.port.len().max(1));
    let parts = choice.and_then(|choice| parts(flags, machine, &choice.places));
    parts.map_or_else(|_| vec![PartPlan::default()], |(parts, _)| parts)
}

/// Bytes for each part: its share of items and their index, its packets, and what DPDK has of its own for these: what
/// lies in huge pages, where there are.
pub(crate) fn needed_bytes(flags: &ServeFlags, parts: &[PartPlan]) -> Vec<u64> {
    let all = || flags.memory.saturating_mul(1 << 20);
    let items = flags.slab_pages.as_ref().map_or_else(all, slabs::bytes);
    let items = items.saturating_add(items / INDEX_SHARE) / parts.len().max(1) as u64;
    let dpdk = dpdk_bytes(flags, parts);
    let packets = |part: &PartPlan| u64::from(part.slots) * SLOT_BYTES + dpdk;
    parts.iter().map(|part| items.saturating_add(packets(part))).collect()
}

/// Bytes for connections that workers serve.
pub(super) fn connection_bytes(flags: &ServeFlags) -> u64 {
    let of_tls = if flags.clients.enable_ssl { TLS_CONNECTION_BYTES } else { 0 };
    match flags.tcp_in() {
        TcpIn::Worker => u64::from(flags.conn_limit) * (CONNECTION_BYTES + of_tls),
        TcpIn::Kernel => 0,
    }
}

/// What DPDK has of its own on each node: EAL takes as much of each as the largest part needs.
fn dpdk_bytes(flags: &ServeFlags, parts: &[PartPlan]) -> u64 {
    let most = parts.iter().map(|part| part.slots).max();
    most.filter(|_| !flags.port.is_empty()).map_or(0, dpdk_bytes_for)
}

#[cfg(feature = "dpdk")]
fn dpdk_bytes_for(slots: u32) -> u64 {
    u64::from(driver_shim::ports::dpdk::memory_mb_for(slots)) << 20
}

/// Without DPDK a port is an error of the plan's.
#[cfg(not(feature = "dpdk"))]
fn dpdk_bytes_for(_slots: u32) -> u64 {
    0
}

/// Two batches on their way and what a burst or two bring meanwhile.
fn slots_least(flags: &ServeFlags, queues: u32) -> u32 {
    queues.saturating_mul(flags.batch.saturating_mul(2).saturating_add(256))
}

fn slots_by_default(flags: &ServeFlags, queues: u32) -> u32 {
    queues.saturating_mul(SLOTS_PER_QUEUE).max(slots_least(flags, queues))
}

/// What items take.
pub(super) struct ItemMemory {
    pub bytes: u64,
    /// What they, their index and packets take of memory that is given page by page, as it is used.
    pub ordinary_bytes: u64,
}

/// Memory for items, beside the packet slots of these parts.
pub(super) fn memory(
    flags: &ServeFlags,
    machine: &Machine,
    parts: &[PartPlan],
    slab_pages: Option<&SlabPages>,
) -> Result<ItemMemory, PlanError> {
    const MB: u64 = 1 << 20;
    let items = flags.memory.checked_mul(MB).ok_or(PlanError::MemoryAbsurd(flags.memory))?;
    let item_max = flags.max_item_size;
    if items == 0 {
        return Err(PlanError::NoMemory);
    }
    let items = slab_pages.map_or_else(|| items.max(MEMORY_LEAST_BYTES), slabs::bytes);
    if !(1 << 10..=ITEM_MOST_BYTES).contains(&item_max) {
        return Err(PlanError::ItemSize(item_max));
    }
    if item_max > items / 2 && slab_pages.is_none() {
        return Err(PlanError::ItemAboveHalf { item_max, memory_mb: flags.memory });
    }
    let queues = queues(parts);
    let least = slots_least(flags, queues);
    if let Some(slots) = flags.slots.filter(|slots| *slots < least) {
        return Err(PlanError::Slots { slots, queues, least });
    }
    let packets = parts.iter().map(|part| u64::from(part.slots)).sum::<u64>() * SLOT_BYTES;
    let file = memory_file(flags, machine, items)?;
    let index = items / INDEX_SHARE;
    let items_need = items.saturating_sub(file.taken_bytes);
    let huge = machine.huge_free_bytes;
    let need = match flags.huge {
        Pages::Require => {
            let dpdk = dpdk_bytes(flags, parts) * parts.len() as u64;
            let mappings = [items_need, index, packets, dpdk];
            let pages = mappings.iter().map(|bytes| bytes.div_ceil(2 * MB)).sum();
            let free = huge / (2 * MB);
            return if pages > free {
                Err(PlanError::HugePages { pages, free })
            } else {
                Ok(ItemMemory { bytes: items, ordinary_bytes: 0 })
            };
        }
        Pages::Prefer => {
            let items_huge = if file.may_be_huge { items_need } else { u64::MAX };
            ordinary_bytes(huge, [(items_need, items_huge), (index, index), (packets, packets)])
        }
        Pages::Small => items_need.saturating_add(index).saturating_add(packets),
    };
    match machine.memory_available_bytes {
        Some(available) if need > available => Err(PlanError::Memory {
            items_mb: items / MB,
            index_mb: index / MB,
            packets_mb: packets.div_ceil(MB),
            available_mb: available / MB,
            huge_mb: if flags.huge == Pages::Prefer { huge / MB } else { 0 },
        }),
        _ => Ok(ItemMemory { bytes: items, ordinary_bytes: need }),
    }
}

/// A note where there is not enough for all that the process may come to use: each page counts when it is used, so that it starts, and
/// the kernel ends it one day.
pub(super) fn shortage(machine: &Machine, items: &ItemMemory, connections: u64) -> Option<String> {
    let available = machine.memory_available_bytes?;
    let most = [items.ordinary_bytes, connections, PROCESS_BYTES].iter().sum::<u64>();
    (most > available).then(|| {
        format!(
            "up to {} MB will be used and {} MB are available: the kernel ends the process when they run out; lower -m, -c or --conn-memory",
            most.div_ceil(1 << 20),
            available >> 20
        )
    })
}

/// Bytes of ordinary pages, where a mapping is of huge pages if so many are left that all of it is: each needs the
/// first number, of huge pages the second.
fn ordinary_bytes(mut huge: u64, mappings: [(u64, u64); 3]) -> u64 {
    let mut ordinary = 0_u64;
    for (bytes, of_huge) in mappings {
        match huge.checked_sub(of_huge) {
            Some(left) => huge = left,
            None => ordinary = ordinary.saturating_add(bytes),
        }
    }
    ordinary
}

/// What there is of a memory file.
struct OfFile {
    /// Bytes of memory that it has already.
    taken_bytes: u64,
    /// Items are in huge pages, if there are enough.
    may_be_huge: bool,
}

/// Checks the place of the memory file.
fn memory_file(flags: &ServeFlags, machine: &Machine, items: u64) -> Result<OfFile, PlanError> {
    const MB: u64 = 1 << 20;
    let Some(path) = &flags.memory_file else {
        return Ok(OfFile { taken_bytes: 0, may_be_huge: true });
    };
    let path = path.clone();
    let room = match (machine.look_at_file)(&path) {
        Ok(room) => room,
        Err(why) => return Err(PlanError::MemoryFile { path, why }),
    };
    let free = match room.system {
        FileSystem::Hugetlbfs { page_bytes } if page_bytes != HUGE_PAGE_BYTES => {
            return Err(PlanError::MemoryFilePages { path, page_mb: page_bytes / MB });
        }
        // A mount without a limit of its own has what there is.
        FileSystem::Hugetlbfs { .. } => room.free_bytes.unwrap_or(machine.huge_free_bytes),
        _ if flags.huge == Pages::Require => return Err(PlanError::MemoryFileNotHuge { path }),
        _ => room.free_bytes.unwrap_or(u64::MAX),
    };
    let need = restart::file_bytes(items);
    let free = free.saturating_add(room.taken_bytes);
    if need > free {
        let (need_mb, free_mb) = (need / MB, free / MB);
        return Err(PlanError::MemoryFileSpace { path, need_mb, free_mb });
    }
    // What a file on a disk has is no memory.
    let taken_bytes = if room.system == FileSystem::Disk { 0 } else { room.taken_bytes };
    Ok(OfFile { taken_bytes, may_be_huge: matches!(room.system, FileSystem::Hugetlbfs { .. }) })
}

/// Bytes for buffers of connections.
pub(super) fn conn_memory(flags: &ServeFlags, items: u64) -> Result<u64, PlanError> {
    let aside = u64::from(flags.conn_limit) * tcp::RESERVE_BYTES as u64
        + u64::from(flags.threads) * tcp::THREAD_BYTES as u64;
    let of_tls = if flags.clients.enable_ssl { tcp::TLS_BYTES as u64 } else { 0 };
    let aside = aside + u64::from(flags.conn_limit) * of_tls;
    // Three quarters are for what is large: the largest request, its line, and the same as a reply.
    let largest = (flags.max_item_size + BESIDE_ITEM_BYTES) / 3 * 4;
    let least = aside + largest.max(CONN_SHARED_LEAST_BYTES);
    match flags.conn_memory {
        Some(typed) if typed < least => Err(PlanError::ConnMemory { typed, least }),
        Some(typed) => Ok(typed),
        None => {
            let shared = CONN_SHARED_BYTES.saturating_add(largest);
            Ok(aside.saturating_add(shared.max(items / CONN_SHARE)).next_multiple_of(1 << 20))
        }
    }
}

/// Files that may be open at once, and how many connections: fewer than -c has by default where the limit is lower.
pub(super) fn open_files(
    flags: &ServeFlags,
    machine: &Machine,
    ports: &[PortPlan],
    listeners: usize,
    workers: usize,
) -> Result<(u64, u32), PlanError> {
    let sockets: usize = ports
        .iter()
        .map(|p| match &p.device {
            Device::Sockets(ips) => ips.len() * workers,
            Device::Dpdk(_) => 0,
        })
        .sum();
    // Each thread has handles of its own on the listeners, and a few for its runtime; whose turn it is at a
    // listener has a copy to watch, and a connection that it refuses.
    let per_thread = listeners + 4;
    let fixed = sockets + per_thread * usize::from(flags.threads) + 2 * listeners;
    let (conn_limit, besides) = (flags.conn_limit, fixed as u64 + FILES_BESIDES);
    let need = u64::from(conn_limit) + besides;
    let Some(limit) = machine.open_files_max.filter(|limit| need > *limit) else {
        return Ok((need, conn_limit));
    };
    let fits = limit.checked_sub(besides).and_then(|fits| u32::try_from(fits).ok());
    match fits {
        Some(fits) if fits > 0 && conn_limit == CONN_LIMIT_DEFAULT => Ok((limit, fits)),
        _ => Err(PlanError::OpenFiles { conn_limit, need, limit }),
    }
}

/// What looks requests up, and the GPU that was looked for.
pub(super) fn engine(flag: Engine, machine: &Machine) -> Result<(Engine, Option<Gpu>), PlanError> {
    let find = || machine.find_gpu.map(|find| find());
    match flag {
        Engine::Cpu => Ok((Engine::Cpu, None)),
        Engine::Auto => match find() {
            Some(found @ Gpu::Found(_)) => Ok((Engine::Auto, Some(found))),
            none => Ok((Engine::Cpu, none)),
        },
        Engine::Gpu => match find() {
            None => Err(PlanError::NoCuda),
            Some(Gpu::Absent(why)) => Err(PlanError::NoGpu(why)),
            Some(found) => Ok((Engine::Gpu, Some(found))),
        },
        Engine::Simt if machine.has_simt => Ok((Engine::Simt, None)),
        Engine::Simt => Err(PlanError::NoEngine("simt")),
    }
}
