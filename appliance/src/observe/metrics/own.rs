//! The metrics that memcached has not: workers, ports, the store's depths, durations, power; those of
//! `engines` stand among them.
//!
//! In: [`Sources`]. Out: their families. Workers and ports are labelled, never summed.

use super::connections::MEMORY;
use super::engines;
use super::family::{
    Exposition, Family, Field, PORT, WORKER, counter, families, fields, gauge, histogram,
};
use super::power::Power;
use super::sources::Sources;
use crate::observe::health::PortSample;
use crate::startup::flags::LONG_VERSION;
use dataplane::WorkerCounters;
use dataplane::observe::OpTotals;
use dataplane::stages::exits::exception_path::ExceptionPathCounters;
use driver_shim::Region;
use store::StoreStats;

families! {
    BUILD gauge "gnomon_build_info" &["version"], "Release, commit and compiler: 1.";
    SANDBOX gauge "gnomon_sandbox" &["part"], "This part of the sandbox is in force (docs/security.md).";
    DROPPED counter "gnomon_worker_frames_dropped_total" &["worker", "reason"], "Frames dropped, by reason. What was received was answered, punted, dropped, or is in flight.";
    SLOTS gauge "gnomon_packet_slots" &[], "Packet slots in all.";
    SLOTS_FREE gauge "gnomon_packet_slots_free" &[], "Packet slots not in use.";
    LIMBO gauge "gnomon_slab_limbo_chunks" &["slab"], "Chunks whose item is gone and that a reader may still use, by size class.";
    DURATION histogram "gnomon_request_duration_seconds" &["transport", "engine", "command"], "From a request's arrival to the hand-over of its reply; `engine` is what `--engine` says, and none over TCP and for READs (`rdma`).";
    ENERGY counter "gnomon_energy_joules_total" &["zone"], "Energy since the start: each package and its memory (`dram`), by RAPL; each GPU of the machine, by NVML, where one is in use; `base`, what `--base-watts` says. Nothing is counted twice.";
    PER_JOULE gauge "gnomon_requests_per_joule" &[], "Requests to a joule of all that is counted, over the last ten seconds or more.";
}

/// Of each worker.
static WORKERS: &[Field<WorkerCounters>] = fields! { WORKER, w;
    counter "gnomon_worker_frames_received_total" "Frames taken from the worker's queues." w.received.get();
    counter "gnomon_worker_frames_answered_total" "Requests done with: the reply left, or none was due." w.answered.get();
    counter "gnomon_worker_frames_punted_total" "Frames given to the exception path." w.punted.get();
    gauge "gnomon_worker_frames_in_flight" "Frames received and not done with yet." w.in_flight.get();
    counter "gnomon_worker_responded_total" "ARP, neighbour and echo packets answered." w.responded.get();
    counter "gnomon_worker_amplification_refused_total" "Replies that a refusal took the place of, as larger than their source may have." w.amplification_refused.get();
    counter "gnomon_worker_too_long_refused_total" "Requests refused as longer than one packet." w.too_long_refused.get();
    counter "gnomon_worker_work_refused_total" "Commands refused because those before them in their datagram had done all the work that one may cause." w.work_refused.get();
    counter "gnomon_worker_tcp_segments_total" "TCP segments taken in by their connection where workers serve TCP." w.segments.get();
    counter "gnomon_worker_tcp_segments_sent_total" "TCP segments that left." w.segments_sent.get();
    counter "gnomon_worker_tcp_segments_lost_total" "TCP segments dropped on their way out; those of a connection are sent again." w.segments_lost.get();
    counter "gnomon_worker_rdma_reads_total" "RDMA READs carried out for the first time (--rdma)." w.rdma_reads.get();
    counter "gnomon_worker_rdma_repeated_total" "RDMA READs carried out again, in whole or in part, because the client sent them again." w.rdma_repeated.get();
    counter "gnomon_worker_rdma_refused_total" "RDMA requests refused (NAK)." w.rdma_refused.get();
    counter "gnomon_worker_rdma_bytes_total" "Bytes that RDMA READs got." w.rdma_bytes.get();
    counter "gnomon_worker_frames_sent_total" "Frames given to the driver." w.tx_frames.get();
    counter "gnomon_worker_bytes_sent_total" "Bytes queued for the driver." w.tx_bytes.get();
    counter "gnomon_worker_reply_parts_lost_total" "Datagrams of replies dropped beside the one that counts." w.tx_parts_lost.get();
    counter "gnomon_worker_kernel_frames_sent_total" "Frames of the kernel that left." w.kernel_frames.get();
    counter "gnomon_worker_kernel_frames_lost_total" "Frames of the kernel that were dropped." w.kernel_lost.get();
    counter "gnomon_worker_announcements_sent_total" "Announcements of a port's addresses that left." w.announcements.get();
    counter "gnomon_worker_announcements_lost_total" "Announcements that found no packet slot or were dropped." w.announcements_lost.get();
    counter "gnomon_worker_requests_from_descriptor_total" "Requests answered from what the engine had found out." w.fast.get();
    counter "gnomon_worker_requests_parsed_total" "Requests that the strict parser had to read." w.slow.get();
    counter "gnomon_worker_turns_total" "Turns of the worker's loop." w.turns.get();
    counter "gnomon_worker_empty_turns_total" "Of these, those that found nothing to do." w.empty_turns.get();
};

/// Of each port, as its driver counts.
static PORTS: &[Field<PortSample>] = fields! { PORT, p;
    gauge "gnomon_port_link_up" "The link is up." p.link_up.into();
    counter "gnomon_port_frames_received_total" "Frames received." p.counters.rx_frames;
    counter "gnomon_port_frames_sent_total" "Frames sent." p.counters.tx_frames;
    counter "gnomon_port_bytes_received_total" "Bytes received." p.counters.rx_bytes;
    counter "gnomon_port_bytes_sent_total" "Bytes sent." p.counters.tx_bytes;
    counter "gnomon_port_frames_missed_total" "Frames lost for lack of a receive descriptor: the workers are too slow." p.counters.rx_missed;
    counter "gnomon_port_frames_without_slot_total" "Frames lost for lack of a packet slot." p.counters.rx_no_slot;
    counter "gnomon_port_receive_errors_total" "Frames that the device or the driver refused." p.counters.rx_errors;
    counter "gnomon_port_send_errors_total" "Frames that were taken and did not leave." p.counters.tx_errors;
};

/// Of each port's exception path.
static DOORS: &[Field<ExceptionPathCounters>] = fields! { PORT, d;
    counter "gnomon_side_door_punted_total" "Frames taken from workers for the kernel." d.punted;
    counter "gnomon_side_door_written_total" "Of these, those that the kernel took." d.written;
    counter "gnomon_side_door_write_errors_total" "Of these, those that it refused." d.write_errors;
    counter "gnomon_side_door_read_total" "Frames read from the kernel." d.read;
    counter "gnomon_side_door_sent_on_total" "Of these, those given to a worker to send." d.sent_on;
    counter "gnomon_side_door_runts_total" "Of these, those too short to be frames." d.runts;
    counter "gnomon_side_door_read_errors_total" "Reads that failed." d.read_errors;
    counter "gnomon_side_door_held_back_total" "Rounds that left the kernel waiting." d.held_back;
    gauge "gnomon_side_door_to_write" "Frames that wait for the kernel." d.to_write;
    gauge "gnomon_side_door_to_send" "Frames that wait for a worker." d.to_send;
};

/// Of the store.
static STORE: &[Field<StoreStats>] = fields! { &[], s;
    gauge "gnomon_store_epoch_lag" "Epochs that the reader furthest behind is behind." s.epoch_lag;
    gauge "gnomon_store_limbo_chunks" "Chunks whose item is gone and that a reader may still use." s.limbo_chunks;
    gauge "gnomon_store_pages" "Slab pages in all." s.pages_total;
    gauge "gnomon_store_pages_free" "Slab pages that belong to no class." s.pages_free;
    counter "gnomon_store_pages_moved_total" "Slab pages taken from a class for others." s.pages_moved;
    counter "gnomon_store_evicted_by_mover_total" "Live items removed to empty a page." s.evicted_by_mover;
    counter "gnomon_store_evicted_unfetched_total" "Evicted items that were never read." s.evicted_unfetched;
    gauge "gnomon_store_index_slots" "Places of the index; items take one each." s.index_slots;
    gauge "gnomon_store_index_bytes" "Memory of the index." s.index_bytes;
    counter "gnomon_store_housekeeping_turns_total" "Turns of housekeeping; 100 a second are due." s.turns;
};

/// Of all threads that serve clients.
static CLIENTS: &[Field<OpTotals>] = fields! { &[], o;
    counter "gnomon_misses_expired_total" "Keys not found whose expired item was still there." o.get_expired;
    counter "gnomon_misses_flushed_total" "Keys not found whose flushed item was still there." o.get_flushed;
    counter "gnomon_connections_idle_closed_total" "Connections closed because nothing came for too long." o.idle_kicks;
    counter "gnomon_authentications_total" "Attempts to authenticate." o.auth_cmds;
    counter "gnomon_authentication_failures_total" "Attempts that failed." o.auth_errors;
    counter "gnomon_tls_sessions_total" "TLS sessions begun anew." o.tls_sessions;
    counter "gnomon_tls_handshake_failures_total" "TLS handshakes that failed." o.tls_handshake_errors;
    counter "gnomon_tls_handshakes_refused_total" "TLS connections closed because their source had half of all in handshakes." o.tls_refused;
    counter "gnomon_tls_protocol_errors_total" "TLS connections ended by what was no record of theirs." o.tls_proto_errors;
};

/// In the order of the page.
pub(super) fn families() -> impl Iterator<Item = &'static Family> {
    fn of<T>(table: &'static [Field<T>]) -> impl Iterator<Item = &'static Family> {
        table.iter().map(|(family, _)| family)
    }
    [&BUILD, &SANDBOX]
        .into_iter()
        .chain(of(WORKERS))
        .chain([&DROPPED])
        .chain(engines::families())
        .chain(of(PORTS))
        .chain(of(DOORS))
        .chain([&SLOTS, &SLOTS_FREE])
        .chain(of(STORE))
        .chain([&LIMBO])
        .chain(of(CLIENTS))
        .chain(of(MEMORY))
        .chain([&DURATION, &ENERGY, &PER_JOULE])
}

/// Reports them all.
pub(super) fn collect(sources: &Sources, power: &mut Power, out: &mut Exposition) {
    out.family(&BUILD).sample(&[LONG_VERSION], 1);
    let mut sandbox = out.family(&SANDBOX);
    for (part, on) in sources.sandbox.parts() {
        sandbox.sample(&[part], u8::from(on));
    }
    let numbers = (0..sources.workers.len()).map(|n| n.to_string());
    let workers: Vec<(String, &WorkerCounters)> =
        numbers.zip(sources.workers.iter().map(|w| &**w)).collect();
    for (family, figure) in WORKERS {
        let mut samples = out.family(family);
        workers.iter().for_each(|(n, w)| samples.sample(&[n], figure(w)));
    }
    let mut dropped = out.family(&DROPPED);
    for (n, worker) in &workers {
        for (reason, count) in worker.dropped.iter() {
            dropped.sample(&[n, reason.name()], count.get());
        }
    }
    engines::collect(sources, &workers, out);
    by_port(sources, PORTS, DOORS, out);
    let regions = sources.regions.as_slice();
    let sum = |figure: fn(&Region) -> usize| regions.iter().map(figure).sum::<usize>();
    for (family, slots) in [(&SLOTS, sum(Region::capacity)), (&SLOTS_FREE, sum(Region::available))]
    {
        let mut samples = out.family(family);
        if !regions.is_empty() {
            samples.sample(&[], slots);
        }
    }

    let store = sources.server.store.stats();
    for (family, figure) in STORE {
        out.family(family).sample(&[], figure(&store));
    }
    let mut limbo = out.family(&LIMBO);
    for class in &store.classes {
        limbo.sample(&[&class.class.to_string()], class.limbo_chunks);
    }
    let ops = sources.server.counted();
    for (family, figure) in CLIENTS {
        out.family(family).sample(&[], figure(&ops));
    }
    let memory = sources.server.conn_memory.now();
    for (family, figure) in MEMORY {
        out.family(family).sample(&[], figure(&memory));
    }
    durations(sources, out);
    let mut energy = out.family(&ENERGY);
    for (zone, joules) in power.joules() {
        energy.sample(&[zone], joules);
    }
    let mut per_joule = out.family(&PER_JOULE);
    power.requests_per_joule().inspect(|ratio| per_joule.sample(&[], ratio));
}

/// Reports a family for each of these fields of ports, and of their exception paths.
pub(super) fn by_port(
    sources: &Sources,
    fields: &[Field<PortSample>],
    doors: &[Field<ExceptionPathCounters>],
    out: &mut Exposition,
) {
    let ports = sources.ports.lock().clone();
    for (family, figure) in fields {
        let mut samples = out.family(family);
        ports.iter().for_each(|p| samples.sample(&[&p.name], figure(p)));
    }
    for (family, figure) in doors {
        let mut samples = out.family(family);
        for port in &ports {
            port.exception_path.inspect(|path| samples.sample(&[&port.name], figure(path)));
        }
    }
}

fn durations(sources: &Sources, out: &mut Exposition) {
    let mut durations = out.family(&DURATION);
    for d in sources.server.distributions() {
        let engine = if d.transport == "udp" { sources.engine } else { "none" };
        durations.histogram(&[d.transport, engine, d.kind], &d.cumulative, d.count, d.sum_ns);
    }
}

/// Requests answered so far, over every transport.
pub(super) fn requests(sources: &Sources) -> u64 {
    sources.server.distributions().iter().map(|d| d.count).sum()
}
