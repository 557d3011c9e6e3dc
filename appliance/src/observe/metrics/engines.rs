//! The metrics of engines: batches, what became of hints, the GPU's part and its index.
//!
//! In: [`Sources`]. Out: their families, for [`own`](super::own).

use super::family::{
    Exposition, Family, Field, WORKER, counter, families, fields, gauge, histogram,
};
use super::memcached::Page;
use super::sources::Sources;
use dataplane::WorkerCounters;
use dataplane::observe::{Overview, overview};

const ENGINE: &[&str] = &["worker", "engine"];

families! {
    BATCHES counter "gnomon_engine_batches_total" ENGINE, "Batches given to the engine.";
    BATCHED counter "gnomon_engine_requests_total" ENGINE, "Requests in them.";
    BATCH_SIZES histogram "gnomon_engine_batch_requests" WORKER, "Requests in a batch.";
    BATCH_WAITS histogram "gnomon_engine_batch_wait_seconds" WORKER, "How long the oldest request of a batch waited for the engine; 0 when it went in the turn in which it came.";
    GPU_UP gauge "gnomon_gpu_up" &[], "The GPU engine works: 1, or 0 since it, or one of several, has failed; no sample without one.";
    BATCH_LIMIT gauge "gnomon_engine_batch_limit" &[], "Most requests in a batch (`--batch`).";
}

/// Bits of the numbers that these distinguish: batches of up to 65,536; 1 µs to 1 s.
const SIZE_BITS: std::ops::RangeInclusive<u32> = 0..=16;
const WAIT_BITS: std::ops::RangeInclusive<u32> = 10..=30;

/// Of each worker's engines together.
static ENGINES: &[Field<WorkerCounters>] = fields! { WORKER, w;
    counter "gnomon_engine_hints_right_total" "Keys that an engine located and the store confirmed." w.hints_right.get();
    counter "gnomon_engine_hints_wrong_total" "Keys that an engine located and the store did not confirm." w.hints_wrong.get();
    counter "gnomon_gpu_batches_lost_total" "Batches that the GPU engine lost, and that the CPU engine did instead." w.gpu_lost.get();
    counter "gnomon_gpu_batches_checked_total" "Batches of the GPU engine's that the CPU engine read again, to compare." w.gpu_checked.get();
    counter "gnomon_gpu_keys_missed_total" "Keys that the GPU engine did not find and the CPU engine did." w.gpu_missed.get();
    counter "gnomon_engine_replies_late_total" "Replies to requests over UDP later than three cycles, with --batch-mode periodic." w.replies_late.get();
    gauge "gnomon_gpu_from_requests" "Requests from which on a batch goes to an idle GPU." w.gpu_from.get();
    counter "gnomon_gpu_heads_used_total" "Replies begun with a head that the GPU made." w.heads_used.get();
    counter "gnomon_gpu_heads_unused_total" "Heads that did not fit the item, or the request." w.heads_unused.get();
    counter "gnomon_gpu_replies_accepted_total" "Replies that the GPU wrote whole and that were sent." w.replies_accepted.get();
    counter "gnomon_gpu_replies_changed_total" "Whole replies not sent: the key had changed, or one with the same bits of its hash." w.replies_changed.get();
    counter "gnomon_gpu_replies_cleared_total" "Whole replies not sent: all keys had changed, or might have." w.replies_cleared.get();
    counter "gnomon_gpu_replies_expired_total" "Whole replies not sent: the item had expired." w.replies_expired.get();
    counter "gnomon_gpu_replies_sampled_total" "Whole replies not sent: the CPU answered, by which the store sees that the item is in use." w.replies_sampled.get();
};

/// Of the GPU's index, from `stats engine`; no sample without a GPU engine.
static GPU: &[(Family, &str)] = fields! { &[];
    gauge "gnomon_gpu_index_bytes" "Memory of the GPU's index." "index_bytes";
    gauge "gnomon_gpu_index_entries" "Entries that the GPU's index has room for." "index_entries";
    gauge "gnomon_gpu_feed_waiting" "Changes on their way to the GPU's index." "feed_waiting";
    counter "gnomon_gpu_feed_lost_total" "Changes that found no place on that way." "feed_lost";
    counter "gnomon_gpu_rests_total" "Times that the GPU rested for having been late." "gpu_rests";
};
/// In the order of the page.
pub(super) fn families() -> impl Iterator<Item = &'static Family> {
    [&BATCHES, &BATCHED, &BATCH_SIZES, &BATCH_WAITS]
        .into_iter()
        .chain(ENGINES.iter().map(|(family, _)| family))
        .chain([&BATCH_LIMIT])
        .chain(GPU.iter().map(|(family, _)| family))
        .chain([&GPU_UP])
}

/// Reports what each engine did, what all did together, and the GPU's index.
pub(super) fn collect(
    sources: &Sources,
    workers: &[(String, &WorkerCounters)],
    out: &mut Exposition,
) {
    // Beside the CPU's, which takes what is left.
    let beside = match sources.engine {
        "cpu" => None,
        "simt" => Some("simt"),
        _ => Some("gpu"),
    };
    let shares: [Field2<'_>; 2] = [
        (&BATCHES, |w| (w.batches.get(), w.gpu_batches.get())),
        (&BATCHED, |w| (w.batched.get(), w.gpu_batched.get())),
    ];
    for (family, figures) in shares {
        let mut samples = out.family(family);
        for (n, worker) in workers {
            let (all, by_gpu) = figures(worker);
            samples.sample(&[n, "cpu"], all.saturating_sub(by_gpu));
            beside.inspect(|name| samples.sample(&[n, name], by_gpu));
        }
    }
    let mut sizes = out.family(&BATCH_SIZES);
    for (n, worker) in workers {
        let all = &worker.batch_sizes;
        sizes.distribution(&[n], &all.cumulative(SIZE_BITS), all.total(), all.sum(), |n| n);
    }
    let mut waits = out.family(&BATCH_WAITS);
    for (n, worker) in workers {
        let all = &worker.batch_waits;
        waits.histogram(&[n], &all.cumulative(WAIT_BITS), all.total(), all.sum());
    }
    for (family, figure) in ENGINES {
        let mut samples = out.family(family);
        workers.iter().for_each(|(n, w)| samples.sample(&[n], figure(w)));
    }
    out.family(&BATCH_LIMIT).sample(&[], sources.batch);
    gpu(sources, out);
}

/// A family, and where all and the GPU's part of it are.
type Field2<'a> = (&'a Family, fn(&WorkerCounters) -> (u64, u64));

fn gpu(sources: &Sources, out: &mut Exposition) {
    let mut rows = Page::default();
    overview(Overview::Engine, &sources.server, &mut rows);
    for (family, row) in GPU {
        let mut samples = out.family(family);
        rows.number(row).inspect(|value| samples.sample(&[], value));
    }
    let mut up = out.family(&GPU_UP);
    rows.text("gpu_state").inspect(|state| up.sample(&[], u8::from(*state != "failed")));
}
