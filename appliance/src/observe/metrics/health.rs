//! The metrics of bad days: links that change, resets, devices and TAP devices that are gone, threads
//! that stall. `docs/operations.md` says what to do about each.
//!
//! In: [`Sources`]. Out: their families.

use super::family::{
    Exposition, Family, Field, PORT, Seconds, WORKER, counter, families, fields, gauge,
};
use super::own::by_port;
use super::sources::Sources;
use crate::observe::health::PortSample;
use dataplane::stages::exits::exception_path::ExceptionPathCounters;

/// Of each port.
static PORTS: &[Field<PortSample>] = fields! { PORT, p;
    counter "gnomon_port_link_changes_total" "Times that the link was seen to go up or down, five looks a second." p.health.link_changes;
    counter "gnomon_port_resets_total" "Resets that the device requested." p.health.resets;
    counter "gnomon_port_reset_failures_total" "Resets that failed and are tried again." p.health.reset_failures;
    gauge "gnomon_port_removed" "The device is gone, and the port closed." p.health.removed.into();
};

/// Of each port's exception path.
static DOORS: &[Field<ExceptionPathCounters>] = fields! { PORT, d;
    gauge "gnomon_side_door_up" "The exception path's TAP device exists." d.up;
    counter "gnomon_side_door_reopened_total" "Times that the TAP device was made again after its removal." d.reopened;
};

families! {
    WORKER_STALLED gauge "gnomon_worker_stalled" WORKER, "The worker has been stalled for a second or more.";
    WORKER_STALLS counter "gnomon_worker_stalls_total" WORKER, "Times that it was stalled for a second or more.";
    CONTROL_STALLS counter "gnomon_control_stalls_total" &[], "Times that the control plane was stalled for half a second or more.";
    CONTROL_LONGEST gauge "gnomon_control_stall_longest_seconds" &[], "The longest of them.";
}

/// In the order of the page.
pub(super) fn families() -> impl Iterator<Item = &'static Family> {
    PORTS.iter().map(|(family, _)| family).chain(DOORS.iter().map(|(family, _)| family)).chain([
        &WORKER_STALLED,
        &WORKER_STALLS,
        &CONTROL_STALLS,
        &CONTROL_LONGEST,
    ])
}

/// Reports them all.
pub(super) fn collect(sources: &Sources, out: &mut Exposition) {
    by_port(sources, PORTS, DOORS, out);
    let health = sources.health.lock().clone();
    let mut stalled = out.family(&WORKER_STALLED);
    for (n, worker) in health.workers.iter().enumerate() {
        stalled.sample(&[&n.to_string()], u8::from(worker.stalled));
    }
    let mut stalls = out.family(&WORKER_STALLS);
    for (n, worker) in health.workers.iter().enumerate() {
        stalls.sample(&[&n.to_string()], worker.stalls);
    }
    out.family(&CONTROL_STALLS).sample(&[], health.control.stalls);
    let longest = u64::try_from(health.control.longest.as_nanos()).unwrap_or(u64::MAX);
    out.family(&CONTROL_LONGEST).sample(&[], Seconds(longest));
}
