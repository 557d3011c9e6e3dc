//! The hit rate study against memcached, where the right figures can be counted by hand.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

use std::collections::HashMap;
use tools::study::hitrate_live::client::KEY_BYTES;
use tools::study::hitrate_live::{Shape, Trace, play};
use tools::workload::Sizes;

const MEMCACHED: &str = "memcached -u nobody -l 127.0.0.1 -p {port} -m {memory} -t 1";

fn trace(shape: Shape) -> Trace {
    let (values, shifted) = (Sizes::Uniform { min: 10, max: 200 }, Sizes::Fixed(900));
    Trace { shape, keys: 1_000, length: 20_000, values, shifted, seed: 1 }
}

#[test]
fn with_room_for_all_only_first_requests_miss() {
    for shape in [Shape::Zipf099, Shape::Shift] {
        let trace = trace(shape);
        let mut first: HashMap<u64, usize> = HashMap::new();
        for request in trace.requests() {
            first.entry(request.key).or_insert(request.value_bytes);
        }
        let bytes: usize = first.values().map(|value| value + KEY_BYTES).sum();
        for score in play(&trace, &[MEMCACHED, MEMCACHED], 64).unwrap() {
            assert_eq!((score.requests, score.items), (20_000, first.len() as u64));
            assert_eq!(score.bytes, bytes as u64);
            // A key may miss twice within one multi-get.
            let misses = score.requests - score.hits;
            assert!((score.items..score.items * 5 / 4).contains(&misses), "{score:?}");
            assert!(score.late_hits > 9_900 && score.resident_bytes > 1 << 20, "{score:?}");
            assert!(score.memory_bytes >= 64 << 20, "{score:?}");
        }
    }
}

#[test]
fn a_smaller_cache_hits_less() {
    let trace = Trace { keys: 20_000, values: Sizes::Fixed(1_000), ..trace(Shape::Zipf099) };
    let small = play(&trace, &[MEMCACHED], 2).unwrap()[0];
    let large = play(&trace, &[MEMCACHED], 64).unwrap()[0];
    assert!(small.hits < large.hits && small.items < large.items, "{small:?} {large:?}");
}

#[test]
fn what_is_no_server_is_said() {
    for command in ["", "no-such-program {port}", "false"] {
        assert!(play(&trace(Shape::Zipf099), &[command], 64).is_err(), "{command}");
    }
}
