//! Where the figures come from: blocks of counters that others write.

use super::gpus::GpuFigures;
use crate::health::{HealthFigures, PortHealth};
use crate::sandbox::State;
use dataplane::WorkerCounters;
use dataplane::capture::Line;
use dataplane::protocol::Server;
use dataplane::side_door::SideDoorCounters;
use driver_shim::{PortCounters, Region};
use parking_lot::Mutex;
use std::sync::Arc;

/// What everything is read from. Reading takes nothing from the data path.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Commands, the store, connections.
    pub server: Arc<Server>,
    /// One block for each worker, in their order.
    pub workers: Vec<Arc<WorkerCounters>>,
    /// Where to order captures, of each worker.
    pub capture_lines: Vec<Arc<Line>>,
    /// The ports, as the control plane saw them last.
    pub ports: PortFigures,
    /// GPUs in use, as their management library saw them last.
    pub gpus: GpuFigures,
    /// The threads, as the control plane saw them last.
    pub health: HealthFigures,
    /// Where frames lie; none without ports.
    pub region: Option<Region>,
    /// What looks requests up.
    pub engine: &'static str,
    /// Most requests in a batch.
    pub batch: usize,
    /// What the process has given up.
    pub sandbox: State,
}

/// Figures of every port. Whoever owns the ports puts them here, because a driver is asked by one
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
    /// What its side door counted, where it has one.
    pub side_door: Option<SideDoorCounters>,
}
