//! What the process says on standard output: the plan, one line when it is ready, one report at
//! the end. For people as a table, for programs as JSON.

use crate::host::cpu_list::CpuList;
use crate::host::machine::Gpu;
use crate::startup::flags::{Isolated, MetricsAddr, RateLimit};
use crate::startup::plan::{ClientCerts, Device, Plan, PolicyPlan, SLOT_BYTES};
use dataplane::observe::OpTotals;
use dataplane::stages::exits::exception_path::ExceptionPathCounters;
use dataplane::{Ledger, WorkerCounters};
use driver_shim::{Pages, PortCounters};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use store::Eviction;

/// A table of two columns.
#[derive(Debug, Default)]
struct Table(String);

impl Table {
    fn row(&mut self, name: &str, value: impl fmt::Display) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "{name:<14}{value}");
    }
}

/// The plan, for people.
pub fn plan_text(plan: &Plan) -> String {
    let mut t = Table::default();
    plan.profile().into_iter().for_each(|profile| t.row("profile", profile));
    port_rows(&mut t, plan);
    tcp_rows(&mut t, plan);
    match plan.worker_cpus().as_slice() {
        [] => t.row("workers", "none: UDP is off"),
        cpus if plan.pinned => {
            t.row("workers", format_args!("{} on CPU {}", cpus.len(), cpu_list(cpus)));
        }
        cpus => t.row("workers", format_args!("{} on any CPU", cpus.len())),
    }
    if plan.pinned {
        t.row("control", format_args!("CPU {}", plan.control_cpu));
    }
    parts_rows(&mut t, plan);
    if !plan.tcp.is_empty() || plan.clients.unix.is_some() {
        t.row("TCP threads", format_args!("CPU {}", cpu_list(&plan.tcp_cpus)));
        let memory = bytes(plan.conn_memory_bytes);
        t.row("connections", format_args!("{memory} of requests and replies at most"));
    }
    memory_rows(&mut t, plan);
    if !plan.ports.is_empty() {
        engine_rows(&mut t, plan);
    }
    if let Some(address) = &plan.metrics {
        t.row("metrics", address);
    }
    if !plan.eal.is_empty() {
        t.row("EAL", plan.eal.join(" "));
    }
    for note in &plan.notes {
        t.row("note", note);
    }
    if !plan.unused.is_empty() {
        t.row("no effect", plan.unused.join(", "));
    }
    t.0
}

/// Where requests come by.
fn port_rows(t: &mut Table, plan: &Plan) {
    for (index, port) in plan.ports.iter().enumerate() {
        let at = match port.udp_port {
            0 if port.tcp_port.is_some() => "no UDP".to_owned(),
            0 => "any free UDP port".to_owned(),
            n => format!("UDP port {n}"),
        };
        let device = match &port.device {
            Device::Sockets(ips) => {
                t.row("sockets", format_args!("{}, {at}", list(ips)));
                continue;
            }
            Device::Dpdk(spec) => spec.spec(),
        };
        let (addresses, path) = (list(&port.addresses), port.exception_path.as_deref());
        t.row(&format!("port {index}"), format_args!("{device}: {addresses}, {at}"));
        t.row("exceptions", path.unwrap_or("none"));
        match port.isolated {
            Isolated::Off => {}
            Isolated::Auto => t.row("isolated", "if the driver can, and then without exceptions"),
            Isolated::On => t.row("isolated", "yes, and so without exceptions"),
        }
    }
}

/// Where and how clients connect.
fn tcp_rows(t: &mut Table, plan: &Plan) {
    let by_workers: Vec<_> = plan.worker_tcp().collect();
    if !by_workers.is_empty() {
        let from = if plan.tcp_from_all { "everywhere" } else { "the networks allowed below" };
        let (at, limit) = (list(by_workers.iter()), plan.conn_limit);
        t.row(
            "TCP",
            format_args!("{at}; by the workers, from {from}, {limit} connections at most"),
        );
    }
    if plan.tcp.is_empty() && by_workers.is_empty() {
        t.row("TCP", "off");
    } else if !plan.tcp.is_empty() {
        let listeners = list(plan.tcp.iter().map(|l| l.address));
        let (threads, limit) = (plan.tcp_threads, plan.conn_limit);
        t.row("TCP", format_args!("{listeners}; {threads} threads, {limit} connections at most"));
    }
    if let Some(tls) = &plan.tls {
        let clients = match tls.clients {
            ClientCerts::Ignored => "no certificates of clients",
            ClientCerts::Checked => "certificates of clients checked",
            ClientCerts::Required => "certificates of clients required",
        };
        let clear = list(plan.tcp.iter().filter(|l| l.tls.is_none()).map(|l| l.address));
        let but = if clear.is_empty() { "" } else { "; in the clear: " };
        t.row("TLS", format_args!("{}; {clients}{but}{clear}", tls.chain_cert.display()));
    }
    if let Some(unix) = &plan.clients.unix {
        t.row("Unix socket", format_args!("{}, mask {}", unix.path.display(), unix.mask));
    }
    if let Some(file) = &plan.clients.auth_file {
        let sasl = if plan.clients.sasl { ", by SASL too" } else { "" };
        t.row("users", format_args!("those of {}{sasl}; no others", file.display()));
    }
}

/// Items and packets.
fn memory_rows(t: &mut Table, plan: &Plan) {
    let sizes = match &plan.slab_pages {
        None => format!("growth factor {}", plan.growth_factor),
        Some(slab_pages) => format!("pages {slab_pages}"),
    };
    t.row(
        "items",
        format_args!(
            "{}, {} each at most, {sizes}, {}",
            bytes(plan.memory_bytes),
            bytes(plan.item_max_bytes),
            match (plan.evict, plan.eviction) {
                (false, _) => "never evicting",
                (true, Eviction::Clock) => "evicting",
                (true, Eviction::RoundRobin) => "evicting round robin",
            }
        ),
    );
    if let Some(path) = &plan.memory_file {
        t.row("memory file", path.display());
    }
    if plan.clients.shared_reads {
        t.row("shared reads", "clients who may open the memory file read items there");
    }
    let slots = plan.slots();
    if slots > 0 {
        let memory = bytes(u64::from(slots) * SLOT_BYTES);
        t.row("packets", format_args!("{slots} slots ({memory})"));
    }
    t.row(
        "huge pages",
        match plan.huge {
            Pages::Prefer => "where there are any",
            Pages::Require => "required",
            Pages::Small => "never",
        },
    );
}

/// What answers requests over UDP, and which.
fn engine_rows(t: &mut Table, plan: &Plan) {
    t.row("engine", plan.engine.name());
    match &plan.gpu {
        Some(Gpu::Found(devices)) => {
            devices.iter().for_each(|d| t.row("GPU", d));
        }
        Some(Gpu::Absent(why)) => {
            t.row("GPU", format_args!("none, and the CPU looks requests up; {why}"));
        }
        None => {}
    }
    if let Some(offload) = &plan.offload {
        let (mode, index) = (offload.mode.name(), offload.index.name());
        let (memory, ms) = (bytes(offload.index_bytes), offload.deadline_ms);
        let on = match offload.devices.len() {
            0 | 1 => String::new(),
            n => format!(" of each of {n}"),
        };
        t.row("offload", format_args!("{mode}, {index} index in {memory}{on}, {ms} ms a batch"));
    }
    let cycle = plan.batch_cycle_us.map(|us| format!(" in cycles of {us} us"));
    let (mode, cycle) = (plan.batch_mode.name(), cycle.unwrap_or_default());
    t.row("batches", format_args!("{} requests at most, {mode}{cycle}", plan.batch));
    if plan.clients.rdma {
        t.row("RDMA", "READs of connected queue pairs, RoCEv2 on UDP port 4791");
    }
    t.row("UDP allowed", list(&plan.allow));
    policy_rows(t, &plan.policy);
}

/// Where memory is, and where the appliance is divided over nodes, what is on each.
fn parts_rows(t: &mut Table, plan: &Plan) {
    let divided = plan.divided_over();
    if !divided.is_empty() {
        t.row("memory", format_args!("items on NUMA nodes {} in turn", list(&divided)));
    }
    for part in &plan.parts {
        match part.node() {
            Some(node) if divided.is_empty() => {
                t.row("memory", format_args!("of NUMA node {node}"));
            }
            Some(node) => {
                let s = if part.ports.len() == 1 { "" } else { "s" };
                let (ports, cpus) = (list(&part.ports), cpu_list(&part.worker_cpus));
                let name = format!("node {node}");
                t.row(
                    &name,
                    format_args!("port{s} {ports}, workers on CPU {cpus}, {} slots", part.slots),
                );
            }
            None => {}
        }
    }
}

fn policy_rows(t: &mut Table, policy: &PolicyPlan) {
    match policy.trusted.as_slice() {
        [] => t.row("UDP trusted", "none"),
        networks => t.row("UDP trusted", list(networks)),
    }
    let limits = &policy.limits;
    let per_source = [
        ("each trusted", limits.rate_limit_trusted),
        ("each other", limits.rate_limit),
        ("all others", limits.rate_limit_total),
    ];
    for (who, limit) in per_source {
        t.row(who, rate(limit));
    }
    t.row("others' reply", format_args!("{} times the request at most", limits.amp_factor));
    match limits.rate_limit_ping.0 {
        Some(n) => t.row("pings", format_args!("{n} per second and worker; as many ARP and ND")),
        None => t.row("pings", "any number; ARP and ND too"),
    }
}

fn rate(limit: RateLimit) -> String {
    let requests = limit.requests.map(|n| format!("{n} requests"));
    let replies = limit.reply_bytes.map(|n| format!("{} of replies", bytes(n.get())));
    match requests.into_iter().chain(replies).collect::<Vec<_>>().as_slice() {
        [] => "no rate limit".to_owned(),
        limits => format!("{} per second", limits.join(" and ")),
    }
}

/// What the process says when it serves.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "ready")]
pub struct Ready {
    /// Release, commit and compiler.
    pub version: &'static str,
    /// Where UDP is served.
    pub udp: Vec<SocketAddr>,
    /// Where TCP is served.
    pub tcp: Vec<SocketAddr>,
    /// The Unix socket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unix: Option<PathBuf>,
    /// Where metrics are served.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsAddr>,
    /// Workers.
    pub workers: usize,
    /// What looks requests up.
    pub engine: &'static str,
    /// What packets lie in.
    pub packet_memory: Option<&'static str>,
    /// What items lie in.
    pub item_memory: &'static str,
    /// Most memory for requests and replies of connections, in bytes; none without TCP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub conn_memory_bytes: Option<u64>,
    /// Items of the process before, recovered from the memory file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_items: Option<u64>,
}

impl fmt::Display for Ready {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ready:")?;
        if !self.udp.is_empty() {
            let s = if self.workers == 1 { "" } else { "s" };
            write!(
                f,
                " UDP {}, {} worker{s}, engine {};",
                list(&self.udp),
                self.workers,
                self.engine
            )?;
        }
        if !self.tcp.is_empty() {
            write!(f, " TCP {};", list(&self.tcp))?;
        }
        if let Some(path) = &self.unix {
            write!(f, " Unix socket {};", path.display())?;
        }
        if let Some(address) = &self.metrics {
            write!(f, " metrics at {address};")?;
        }
        if let Some(memory) = self.packet_memory {
            write!(f, " packets in {memory},")?;
        }
        write!(f, " items in {}", self.item_memory)?;
        if let Some(n) = self.kept_items {
            write!(f, ", {n} kept from before")?;
        }
        match self.conn_memory_bytes {
            Some(memory) => write!(f, "; connections in {} at most", bytes(memory)),
            None => Ok(()),
        }
    }
}

/// What became of everything: the last words.
#[derive(Debug, Serialize)]
#[serde(tag = "event", rename = "report")]
pub struct Report {
    /// How long it served, in seconds.
    pub seconds: f64,
    /// Frames received.
    pub received: u64,
    /// Requests done with.
    pub answered: u64,
    /// Frames given to the exception path.
    pub punted: u64,
    /// Frames dropped, by reason; those that happened.
    pub dropped: BTreeMap<&'static str, u64>,
    /// Frames neither answered nor dropped at the end.
    pub in_flight: u64,
    /// Packet slots.
    pub slots: usize,
    /// Free packet slots.
    pub slots_home: usize,
    /// Received equals the sum of all fates, nothing is in flight, and every slot is free.
    pub balanced: bool,
    /// Replies that a refusal took the place of, as larger than their source may have. Answered,
    /// where the refusal left.
    pub amplification_refused: u64,
    /// Requests refused as longer than one packet. Answered, where the refusal left.
    pub too_long_refused: u64,
    /// Commands refused because those before them in their datagram had done all the work that one
    /// may cause.
    pub work_refused: u64,
    /// Pings, ARP and neighbour requests answered in user space.
    pub responded: u64,
    /// Keys requested, and found.
    pub gets: [u64; 2],
    /// Storage commands.
    pub sets: u64,
    /// TCP connections served, and refused.
    pub connections: [u64; 2],
    /// Of those, cut off when it ended, with requests unanswered or replies not taken.
    pub connections_cut: u64,
    /// What the drivers counted.
    pub ports: Vec<PortReport>,
    /// Threads that did not end well.
    pub failed: Vec<String>,
    /// Items left in the memory file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kept_items: Option<u64>,
    /// Why items were not left there, although they should have been.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub not_kept: Option<String>,
}

/// What the driver of one port and its exception path counted.
#[derive(Debug, Serialize)]
pub struct PortReport {
    /// The port.
    pub name: String,
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Lost for lack of a descriptor or a slot.
    pub rx_missed: u64,
    /// Refused on receive, as too long or damaged.
    pub rx_errors: u64,
    /// Failed on transmit.
    pub tx_errors: u64,
    /// What went by way of the kernel, where there is a way.
    #[serde(rename = "side_door", skip_serializing_if = "Option::is_none")]
    pub exception_path: Option<ExceptionPathReport>,
}

/// What an exception path counted, in frames.
#[derive(Debug, Serialize)]
pub struct ExceptionPathReport {
    /// Taken from workers for the kernel.
    pub punted: u64,
    /// Of those, taken by the kernel.
    pub written: u64,
    /// Of those, refused by the kernel.
    pub write_errors: u64,
    /// Read from the kernel.
    pub read: u64,
    /// Of those, given to a worker to transmit.
    pub sent_on: u64,
    /// Of those, too short to be frames.
    pub runts: u64,
    /// Reads that failed.
    pub read_errors: u64,
    /// Rounds that left the kernel waiting: above the rate, no slot, or the queue full.
    pub held_back: u64,
}

impl From<ExceptionPathCounters> for ExceptionPathReport {
    fn from(c: ExceptionPathCounters) -> Self {
        Self {
            punted: c.punted,
            written: c.written,
            write_errors: c.write_errors,
            read: c.read,
            sent_on: c.sent_on,
            runts: c.runts,
            read_errors: c.read_errors,
            held_back: c.held_back,
        }
    }
}

impl PortReport {
    /// The part of the counters that matters at the end.
    pub fn new(
        name: String,
        c: PortCounters,
        exception_path: Option<ExceptionPathCounters>,
    ) -> Self {
        Self {
            name,
            rx_frames: c.rx_frames,
            tx_frames: c.tx_frames,
            rx_missed: c.rx_missed + c.rx_no_slot,
            rx_errors: c.rx_errors,
            tx_errors: c.tx_errors,
            exception_path: exception_path.map(Into::into),
        }
    }
}

impl Report {
    /// Sums up. Slots are all packet slots and the free ones, `kept` what became of the items
    /// that were to be kept.
    pub fn new(
        served: Duration,
        workers: &[Arc<WorkerCounters>],
        (slots, slots_home): (usize, usize),
        ports: Vec<PortReport>,
        ops: &OpTotals,
        failed: Vec<String>,
        kept: Result<Option<u64>, String>,
    ) -> Self {
        let mut ledger = Ledger::default();
        for worker in workers {
            ledger.add(&worker.ledger());
        }
        let dropped = ledger.dropped.iter().filter(|&(_, &n)| n > 0);
        Self {
            seconds: served.as_secs_f64(),
            received: ledger.received,
            answered: ledger.answered,
            punted: ledger.punted,
            dropped: dropped.map(|(reason, &n)| (reason.name(), n)).collect(),
            in_flight: ledger.in_flight,
            slots,
            slots_home,
            balanced: ledger.balances() && ledger.in_flight == 0 && slots == slots_home,
            amplification_refused: workers.iter().map(|w| w.amplification_refused.get()).sum(),
            too_long_refused: workers.iter().map(|w| w.too_long_refused.get()).sum(),
            work_refused: workers.iter().map(|w| w.work_refused.get()).sum(),
            responded: workers.iter().map(|w| w.responded.get()).sum(),
            gets: [ops.cmd_get, ops.get_hits],
            sets: ops.cmd_set,
            connections: [ops.total_connections, ops.rejected_connections],
            connections_cut: 0,
            ports,
            failed,
            kept_items: kept.as_ref().ok().copied().flatten(),
            not_kept: kept.err(),
        }
    }

    /// Whether the process may end with success.
    pub fn is_good(&self) -> bool {
        self.balanced && self.failed.is_empty() && self.not_kept.is_none()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut t = Table::default();
        t.row("served", format_args!("{:.1} s", self.seconds));
        let [asked, found] = self.gets;
        t.row(
            "commands",
            format_args!("{asked} keys requested, {found} found, {} sets", self.sets),
        );
        let [accepted, refused] = self.connections;
        let cut = self.connections_cut;
        t.row("connections", format_args!("{accepted} served, {refused} refused, {cut} cut off"));
        t.row(
            "frames",
            format_args!(
                "{} received = {} answered + {} punted + {} dropped + {} in flight",
                self.received,
                self.answered,
                self.punted,
                self.dropped.values().sum::<u64>(),
                self.in_flight
            ),
        );
        for (reason, n) in &self.dropped {
            t.row("  dropped", format_args!("{n} {reason}"));
        }
        if self.amplification_refused > 0 {
            let n = self.amplification_refused;
            t.row("refused", format_args!("{n} replies larger than --amp-factor allows"));
        }
        if self.too_long_refused > 0 {
            let n = self.too_long_refused;
            t.row("refused", format_args!("{n} requests longer than one packet"));
        }
        if self.work_refused > 0 {
            let n = self.work_refused;
            t.row("refused", format_args!("{n} commands beyond the work of one datagram"));
        }
        t.row("slots", format_args!("{} of {} free", self.slots_home, self.slots));
        for p in &self.ports {
            t.row(
                "port",
                format_args!(
                    "{}: {} received, {} sent, {} missed, {} refused, {} not sent",
                    p.name, p.rx_frames, p.tx_frames, p.rx_missed, p.rx_errors, p.tx_errors
                ),
            );
            if let Some(d) = &p.exception_path {
                t.row(
                    "  exceptions",
                    format_args!(
                        "{} to the kernel, {} from it, {} and {} lost, held back {} times",
                        d.written,
                        d.sent_on,
                        d.punted - d.written.min(d.punted),
                        d.read - d.sent_on.min(d.read),
                        d.held_back
                    ),
                );
            }
        }
        for name in &self.failed {
            t.row("failed", format_args!("thread {name} did not end well"));
        }
        if let Some(n) = self.kept_items {
            t.row("memory file", format_args!("{n} items kept"));
        }
        if let Some(why) = &self.not_kept {
            t.row("memory file", format_args!("items LOST: {why}"));
        }
        t.row("balanced", if self.balanced { "yes" } else { "NO" });
        f.write_str(t.0.trim_end())
    }
}

fn list<T: fmt::Display>(items: impl IntoIterator<Item = T>) -> String {
    let items: Vec<String> = items.into_iter().map(|i| i.to_string()).collect();
    items.join(", ")
}

fn cpu_list(cpus: &[usize]) -> String {
    CpuList(cpus.to_vec()).to_string()
}

fn bytes(n: u64) -> String {
    match n {
        n if n >= 1 << 20 && n.is_multiple_of(1 << 20) => format!("{} MB", n >> 20),
        n if n >= 1 << 10 && n.is_multiple_of(1 << 10) => format!("{} KB", n >> 10),
        n => format!("{n} bytes"),
    }
}

#[cfg(test)]
mod tests;
