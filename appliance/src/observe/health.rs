//! What goes wrong while it serves, as the control plane sees it: links, devices that need a reset or
//! are gone, exception paths without a TAP device, stalled workers and a stalled control plane.
//!
//! In: a look at everything, a few times a second. Out: what there is to do, done; counts for the
//! metrics; a line in the log when a state changes, one a second at most for each thing. Each thing
//! has a state machine of its own, which gets the time as an argument and never waits. Never fails.

mod announcing;
mod port;
mod sparing;
mod stall;

pub use port::PortHealth;
pub use stall::StallCounts;

use crate::serve::ports::OpenPort;
use announcing::Announcing;
use dataplane::WorkerCounters;
use dataplane::stages::exits::exception_path::ExceptionPathCounters;
use driver_shim::PortCounters;
use parking_lot::Mutex;
use port::{PortState, PortWatch, Step};
pub(crate) use sparing::Sparing;
use stall::{Change, Pulse, Stall};
use std::sync::Arc;
use std::time::Instant;

/// What the metrics report of threads.
pub type HealthFigures = Arc<Mutex<HealthSample>>;

/// What was seen of the threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthSample {
    /// Of each worker, in their order.
    pub workers: Vec<StallCounts>,
    /// Of the control plane.
    pub control: StallCounts,
}

/// Figures of every port. The thread that owns the ports puts them here, because a driver is called by one
/// thread alone.
pub type PortFigures = Arc<Mutex<Vec<PortSample>>>;

/// What was seen of one port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PortSample {
    /// Its name.
    pub name: String,
    /// Its link is up.
    pub link_up: bool,
    /// What has happened to it.
    pub health: PortHealth,
    /// What the driver counted.
    pub counters: PortCounters,
    /// What its exception path counted, where it has one.
    pub exception_path: Option<ExceptionPathCounters>,
}

/// What is looked at, and where the figures go.
#[derive(Debug)]
pub(crate) struct Observed<'a> {
    /// The ports, which are reset and closed here.
    pub(crate) ports: &'a mut [OpenPort],
    /// One block for each worker, in their order.
    pub(crate) counters: &'a [Arc<WorkerCounters>],
    /// Where figures of ports go; `None`: they are not read.
    pub(crate) port_figures: Option<&'a PortFigures>,
    /// Where figures of threads go.
    pub(crate) health_figures: &'a HealthFigures,
}

/// A port, its exception path, and what has been reported of them: all well, at first.
#[derive(Debug, Default)]
struct Watched {
    watch: PortWatch,
    announcing: Announcing,
    told: PortState,
    port_lines: Sparing,
    door_gone: bool,
    door_reopened: u64,
    door_lines: Sparing,
}

/// All machines.
#[derive(Debug)]
pub(crate) struct Health {
    ports: Vec<Watched>,
    workers: Vec<Stall>,
    pulse: Pulse,
    pulse_lines: Sparing,
}

impl Health {
    /// For what runs here, all of it well.
    pub(crate) fn new(ports: usize, workers: usize, now: Instant) -> Self {
        Self {
            ports: (0..ports).map(|_| Watched::default()).collect(),
            workers: (0..workers).map(|_| Stall::new(now)).collect(),
            pulse: Pulse::new(now),
            pulse_lines: Sparing::default(),
        }
    }

    /// The control plane has come round.
    pub(crate) fn beat(&mut self, now: Instant) {
        let Some(gap) = self.pulse.beat(now) else { return };
        // Whatever kept it may have kept the workers, too.
        self.workers.iter_mut().for_each(|stall| stall.excuse(now));
        if let Some(more) = self.pulse_lines.allows(now) {
            tracing::warn!(more, "the control plane was stalled for {gap:?}");
        }
    }

    /// Every worker moves.
    pub(crate) fn workers_move(&self) -> bool {
        !self.workers.iter().any(|stall| stall.counts().stalled)
    }

    /// Looks at everything, does what is due, and leaves the figures where metrics find them.
    pub(crate) fn look(&mut self, observed: Observed<'_>, now: Instant) {
        for (n, (stall, counters)) in self.workers.iter_mut().zip(observed.counters).enumerate() {
            match stall.look(counters.turns.get(), now) {
                Some(Change::Stands) => tracing::error!(worker = n, "a worker is stalled"),
                Some(Change::Moves(after)) => {
                    tracing::warn!(worker = n, "a worker moves again, after {after:?}");
                }
                None => {}
            }
        }
        let mut figures = Vec::new();
        for (port, watched) in observed.ports.iter_mut().zip(&mut self.ports) {
            let exception_path = port.exception_path.as_ref().map(|path| path.counters());
            look_at_port(port, watched, now);
            exception_path
                .inspect(|path| look_at_exception_path(&port.info.name, path, watched, now));
            if observed.port_figures.is_some() {
                figures.push(PortSample {
                    name: port.info.name.clone(),
                    link_up: watched.watch.state() == PortState::Up,
                    health: watched.watch.counts(),
                    counters: port.control.counters(),
                    exception_path,
                });
            }
        }
        if let Some(place) = observed.port_figures {
            *place.lock() = figures;
        }
        *observed.health_figures.lock() = HealthSample {
            workers: self.workers.iter().map(Stall::counts).collect(),
            control: self.pulse.counts(),
        };
    }
}

fn look_at_port(port: &mut OpenPort, watched: &mut Watched, now: Instant) {
    let Watched { watch, announcing, told, port_lines, .. } = watched;
    let (events, link_up) = (port.control.events(), port.control.link_up());
    let name = &port.info.name;
    let step = watch.look(link_up, events, now);
    // A device that is being reset comes up anew, even if no look falls in between.
    let due = announcing.look(watch.state() == PortState::Up, now);
    if due && let Some(announcer) = &port.announcer {
        announcer.order();
    }
    match step {
        Step::Nothing => {}
        Step::Close => {
            if *told != PortState::Removed {
                tracing::error!(port = name, "the device is gone; restart when it is back");
                *told = PortState::Removed;
            }
            watch.close_done(port.control.stop(), Instant::now());
        }
        Step::Reset => {
            let done = port.control.reset();
            match &done {
                Ok(()) => tracing::warn!(port = name, "reset, as the device requested"),
                Err(error) => {
                    if let Some(more) = port_lines.allows(now) {
                        tracing::error!(port = name, more, "not reset yet: {error}");
                    }
                }
            }
            watch.reset_done(done.is_ok(), Instant::now());
        }
    }
    if watch.state() != *told
        && let Some(more) = port_lines.allows(now)
    {
        *told = watch.state();
        tracing::warn!(port = name, more, "{}", told.words());
    }
}

fn look_at_exception_path(
    port: &str,
    path: &ExceptionPathCounters,
    watched: &mut Watched,
    now: Instant,
) {
    let gone = path.up == 0;
    // It may be back before it was seen to be gone.
    if (gone, path.reopened) != (watched.door_gone, watched.door_reopened)
        && let Some(more) = watched.door_lines.allows(now)
    {
        (watched.door_gone, watched.door_reopened) = (gone, path.reopened);
        let words = match gone {
            false => {
                "the exception path's TAP device was removed, and is made anew: its routes and rules are gone"
            }
            true => "the exception path's TAP device was removed; it is made anew when it can be",
        };
        tracing::warn!(port, more, "{words}");
    }
}

#[cfg(test)]
mod tests;
