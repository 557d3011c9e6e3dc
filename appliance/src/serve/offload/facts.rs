//! What `stats engine` shows: batches and what became of hints, of all workers together; each GPU, and its index.
//!
//! In: the workers' counters, and the GPUs in use. Out: rows.

use super::{Gpu, Offloads};
use dataplane::WorkerCounters;
use dataplane::observe::EngineFacts;
use dataplane::rdma::Rdma;
use std::fmt::Display;
use std::sync::Arc;

/// What `stats engine` shows.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) engine: &'static str,
    pub(crate) workers: Vec<Arc<WorkerCounters>>,
    pub(crate) offloads: Option<Arc<Offloads>>,
    /// One-sided reads, where those are answered.
    pub(crate) rdma: Option<Arc<Rdma>>,
}

impl Facts {
    fn queue_pairs(&self) -> Option<usize> {
        self.rdma.as_ref().map(|rdma| rdma.pairs.open_now())
    }
}

impl EngineFacts for Facts {
    fn rows(&self, row: &mut dyn FnMut(&str, &dyn Display)) {
        let sum =
            |read: fn(&WorkerCounters) -> u64| self.workers.iter().map(|c| read(c)).sum::<u64>();
        row("engine", &self.engine);
        let (batches, requests) = (sum(|c| c.batches.get()), sum(|c| c.batched.get()));
        let (by_gpu, gpu_requests) = (sum(|c| c.gpu_batches.get()), sum(|c| c.gpu_batched.get()));
        row("cpu_batches", &batches.saturating_sub(by_gpu));
        row("cpu_requests", &requests.saturating_sub(gpu_requests));
        row("replies_late", &sum(|c| c.replies_late.get()));
        row("hints_right", &sum(|c| c.hints_right.get()));
        row("hints_wrong", &sum(|c| c.hints_wrong.get()));
        if let Some(open) = self.queue_pairs() {
            row("rdma_queue_pairs", &open);
            row("rdma_reads", &sum(|c| c.rdma_reads.get()));
            row("rdma_repeated", &sum(|c| c.rdma_repeated.get()));
            row("rdma_refused", &sum(|c| c.rdma_refused.get()));
            row("rdma_bytes", &sum(|c| c.rdma_bytes.get()));
        }
        let Some(offloads) = &self.offloads else { return };
        let Offloads { gpus, plan, .. } = &**offloads;
        let names: Vec<String> = gpus.iter().map(|gpu| gpu.offload.card_name()).collect();
        row("gpu", &names.join(", "));
        row("gpu_mode", &plan.mode.name());
        row("gpu_batches", &by_gpu);
        row("gpu_requests", &gpu_requests);
        row("gpu_lost", &sum(|c| c.gpu_lost.get()));
        row("gpu_checked", &sum(|c| c.gpu_checked.get()));
        row("gpu_missed", &sum(|c| c.gpu_missed.get()));
        let from = self.workers.iter().map(|c| c.gpu_from.get()).max();
        row("gpu_from_requests", &from.unwrap_or(0));
        row("heads_used", &sum(|c| c.heads_used.get()));
        row("heads_unused", &sum(|c| c.heads_unused.get()));
        row("replies_accepted", &sum(|c| c.replies_accepted.get()));
        row("replies_changed", &sum(|c| c.replies_changed.get()));
        row("replies_cleared", &sum(|c| c.replies_cleared.get()));
        row("replies_expired", &sum(|c| c.replies_expired.get()));
        row("replies_sampled", &sum(|c| c.replies_sampled.get()));
        of_indexes(gpus, row);
        of_states(gpus, row);
    }
}

/// The indexes of all GPUs together.
fn of_indexes(gpus: &[Gpu], row: &mut dyn FnMut(&str, &dyn Display)) {
    let sum = |read: fn(&Gpu) -> u64| gpus.iter().map(read).sum::<u64>();
    gpus.iter().take(1).for_each(|gpu| row("index", &gpu.offload.index().kind().name()));
    row("index_bytes", &sum(|gpu| gpu.offload.index().bytes() as u64));
    row("index_entries", &sum(|gpu| gpu.offload.index().entries()));
    row("index_filled", &sum(|gpu| gpu.updates.filled()));
    row("feed_waiting", &sum(|gpu| gpu.feed.len() as u64));
    row("feed_lost", &sum(|gpu| gpu.feed.lost()));
    let mut rows = gpus.iter().map(|gpu| gpu.updates.rows());
    let first = rows.next().unwrap_or_default();
    let sums = rows.fold(first, |mut sums, more| {
        sums.iter_mut().zip(more).for_each(|((_, sum), (_, value))| *sum += value);
        sums
    });
    sums.iter().for_each(|(name, value)| row(&format!("index_{name}"), value));
}

/// How the GPUs are: the worst of them, and where there are several each.
fn of_states(gpus: &[Gpu], row: &mut dyn FnMut(&str, &dyn Display)) {
    let state = |gpu: &Gpu| match gpu.offload.fault() {
        Some(_) => "failed",
        None if gpu.offload.is_open() => "used",
        None => "resting",
    };
    let is = |what: &str| gpus.iter().any(|gpu| state(gpu) == what);
    let worst = ["failed", "resting"].into_iter().find(|what| is(what)).unwrap_or("used");
    row("gpu_state", &worst);
    let fault = gpus.iter().find_map(|gpu| gpu.offload.fault());
    fault.inspect(|fault| row("gpu_fault", fault));
    row("gpu_rests", &gpus.iter().map(|gpu| gpu.offload.rests()).sum::<u64>());
    for gpu in gpus.iter().filter(|_| gpus.len() > 1) {
        let mut of_one = |name: &str, value: &dyn Display| {
            row(&format!("gpu:{}:{name}", gpu.device), value);
        };
        of_one("state", &state(gpu));
        gpu.offload.fault().inspect(|fault| of_one("fault", fault));
        of_one("rests", &gpu.offload.rests());
        of_one("workers", &gpu.workers());
        of_one("index_filled", &gpu.updates.filled());
    }
}
