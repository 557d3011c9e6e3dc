//! What goes wrong while it serves, as the control plane sees it: links, devices that want a reset or
//! are gone, side doors without a kernel's end, workers and the control plane itself standing still.
//!
//! In: a look at everything, a few times a second. Out: what there is to do, done; counts for the
//! metrics; a line in the log when a state changes, one a second at most for each thing. Each thing
//! has a state machine of its own, which is told the time and waits for nobody. Never fails.

mod announcing;
mod port;
mod sparing;
mod stall;

pub use port::PortHealth;
pub use stall::StallCounts;

use crate::metrics::PortSample;
use crate::ports::OpenPort;
use crate::topology::Appliance;
use announcing::Announcing;
use dataplane::side_door::SideDoorCounters;
use parking_lot::Mutex;
use port::{PortState, PortWatch, Step};
pub(crate) use sparing::Sparing;
use stall::{Change, Pulse, Stall};
use std::sync::Arc;
use std::time::Instant;

/// What the metrics tell of threads.
pub type HealthFigures = Arc<Mutex<HealthSample>>;

/// What was seen of the threads.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HealthSample {
    /// Of each worker, in their order.
    pub workers: Vec<StallCounts>,
    /// Of the control plane.
    pub control: StallCounts,
}

/// A port, its side door, and what has been told of them.
#[derive(Debug)]
struct Watched {
    watch: PortWatch,
    announcing: Announcing,
    told: PortState,
    port_lines: Sparing,
    door_up: bool,
    door_lines: Sparing,
}

impl Watched {
    /// All well, so far.
    fn new() -> Self {
        Self {
            watch: PortWatch::default(),
            announcing: Announcing::default(),
            told: PortState::Up,
            port_lines: Sparing::default(),
            door_up: true,
            door_lines: Sparing::default(),
        }
    }
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
    pub(crate) fn new(appliance: &Appliance, now: Instant) -> Self {
        Self {
            ports: appliance.ports.iter().map(|_| Watched::new()).collect(),
            workers: appliance.counters.iter().map(|_| Stall::new(now)).collect(),
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
            tracing::warn!(more, "the control plane stood still for {gap:?}");
        }
    }

    /// Every worker moves.
    pub(crate) fn workers_move(&self) -> bool {
        !self.workers.iter().any(|stall| stall.counts().stalled)
    }

    /// Looks at everything, does what is due, and leaves the figures where metrics find them.
    pub(crate) fn look(&mut self, appliance: &mut Appliance, now: Instant) {
        for (n, (stall, counters)) in self.workers.iter_mut().zip(&appliance.counters).enumerate() {
            match stall.look(counters.turns.get(), now) {
                Some(Change::Stands) => tracing::error!(worker = n, "a worker stands still"),
                Some(Change::Moves(after)) => {
                    tracing::warn!(worker = n, "a worker moves again, after {after:?}");
                }
                None => {}
            }
        }
        let mut figures = Vec::new();
        for (port, watched) in appliance.ports.iter_mut().zip(&mut self.ports) {
            let side_door = port.side_door.as_ref().map(|door| door.counters());
            look_at_port(port, watched, now);
            side_door.inspect(|door| look_at_door(&port.info.name, door, watched, now));
            if appliance.metrics.is_some() {
                figures.push(PortSample {
                    name: port.info.name.clone(),
                    link_up: watched.watch.state() == PortState::Up,
                    health: watched.watch.counts(),
                    counters: port.control.counters(),
                    side_door,
                });
            }
        }
        *appliance.port_figures.lock() = figures;
        *appliance.health_figures.lock() = HealthSample {
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
            port.control.stop();
            tracing::error!(port = name, "the device is gone; restart when it is back");
            *told = PortState::Removed;
        }
        Step::Reset => {
            let done = port.control.reset();
            match &done {
                Ok(()) => tracing::warn!(port = name, "reset, as the device had asked for"),
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

fn look_at_door(port: &str, door: &SideDoorCounters, watched: &mut Watched, now: Instant) {
    let up = door.up != 0;
    if up != watched.door_up
        && let Some(more) = watched.door_lines.allows(now)
    {
        watched.door_up = up;
        let words = match up {
            true => "the side door's TAP device is there again",
            false => {
                "somebody has removed the side door's TAP device; it is made anew when it can be"
            }
        };
        tracing::warn!(port, more, "{words}");
    }
}

#[cfg(test)]
mod tests;
