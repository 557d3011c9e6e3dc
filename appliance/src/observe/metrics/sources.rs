//! Where the figures come from: blocks of counters that others write.

use super::gpus::GpuFigures;
use crate::observe::health::{HealthFigures, PortFigures};
use crate::process::sandbox::State;
use crate::startup::flags::Energy;
use dataplane::WorkerCounters;
use dataplane::capture::Channel;
use dataplane::observe::Server;
use driver_shim::Region;
use std::sync::Arc;

/// What everything is read from. Reading takes nothing from the data path.
#[derive(Debug, Clone)]
pub struct Sources {
    /// Commands, the store, connections.
    pub server: Arc<Server>,
    /// One block for each worker, in their order.
    pub workers: Vec<Arc<WorkerCounters>>,
    /// Where to order captures, of each worker.
    pub capture_channels: Vec<Arc<Channel>>,
    /// The ports, as the control plane saw them last.
    pub ports: PortFigures,
    /// GPUs in use, as their management library saw them last.
    pub gpus: GpuFigures,
    /// Whether meters are read.
    pub energy: Energy,
    /// Power that no meter shows, in watts, where the operator has said it.
    pub base_watts: Option<f64>,
    /// The threads, as the control plane saw them last.
    pub health: HealthFigures,
    /// Where frames lie, of each part; none without ports.
    pub regions: Vec<Region>,
    /// What looks requests up.
    pub engine: &'static str,
    /// Most requests in a batch.
    pub batch: usize,
    /// What the process has given up.
    pub sandbox: State,
}
