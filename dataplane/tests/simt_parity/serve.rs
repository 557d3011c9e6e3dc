//! The persistent kernels: the same answers, and an end in every case.

use crate::index::{answers, ask};
use crate::requests::keys;
use crate::rng::Rng;
use crate::{CUCKOO, SETASSOC, bench, put};

#[test]
fn batches_are_served_one_after_the_other_until_the_stop() {
    for (kind, blocks) in [(SETASSOC, 1), (SETASSOC, 3), (CUCKOO, 2)] {
        let mut rng = Rng(9);
        let mut bench = bench(kind, 9);
        let keys = keys(&mut rng, 300);
        let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let known = |n: usize| n.is_multiple_of(2).then(|| u32::try_from(n).unwrap());
        let ops: Vec<_> = all
            .iter()
            .enumerate()
            .filter_map(|(n, key)| known(n).map(|at| put(key, at, 0, 0)))
            .collect();
        bench.update(&ops, 1, 2).unwrap();
        for session in 0..2 {
            bench.start_serving(blocks, 0, 0).unwrap();
            for batch in [1, 200, 300, 127, 129, 1] {
                let first = rng.below(all.len() - batch + 1);
                let entries = ask(&mut bench, &all[first..first + batch]);
                bench.serve(&entries, 2, session == 0).unwrap();
                let got: Vec<_> = answers(&bench).collect();
                let want: Vec<_> = (first..first + batch).map(known).collect();
                assert_eq!(got, want);
            }
            bench.end_serving(true).unwrap();
        }
        // Launched ones still work behind it.
        let entries = ask(&mut bench, &all[..5]);
        bench.get(&entries, 3, false, 1).unwrap();
    }
}

#[test]
fn they_end_by_themselves_after_so_many_batches() {
    let mut bench = bench(SETASSOC, 5);
    bench.start_serving(2, 3, 0).unwrap();
    for _ in 0..3 {
        let entries = ask(&mut bench, &[b"k"]);
        bench.serve(&entries, 1, false).unwrap();
    }
    bench.end_serving(false).unwrap();
}

#[test]
fn they_end_when_the_host_is_dead() {
    let mut bench = bench(CUCKOO, 5);
    bench.start_serving(2, 0, 50).unwrap();
    let entries = ask(&mut bench, &[b"k"]);
    bench.serve(&entries, 1, false).unwrap();
    bench.end_serving(false).unwrap();
}

/// What is being put in is found at its old place, its new one, or not at all; nothing else ever.
#[test]
fn updates_beside_running_searches() {
    for kind in [SETASSOC, CUCKOO] {
        let mut rng = Rng(11);
        let mut bench = bench(kind, 11);
        let keys = keys(&mut rng, 256);
        let all: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
        let puts = |round: u32| {
            let place = |(n, key)| put(key, round << 16 | u32::try_from(n).unwrap(), round, round);
            all.iter().copied().enumerate().map(place).collect::<Vec<_>>()
        };
        bench.update(&puts(0), 1, 2).unwrap();
        bench.start_serving(2, 0, 0).unwrap();
        for round in 1..20 {
            bench.begin_update(&puts(round), round, 4).unwrap();
            for _ in 0..3 {
                let entries = ask(&mut bench, &all);
                bench.serve(&entries, round, true).unwrap();
                for (n, got) in answers(&bench).enumerate() {
                    let Some(at) = got else { panic!("key {n} is not found: nothing is evicted") };
                    assert_eq!((at & 0xffff) as usize, n);
                    assert!(at >> 16 == round || at >> 16 == round - 1, "{at:x} in round {round}");
                }
            }
            let counts = bench.end_update().unwrap();
            assert_eq!(counts.replaced as usize, all.len() * round as usize);
        }
        bench.end_serving(true).unwrap();
    }
}
