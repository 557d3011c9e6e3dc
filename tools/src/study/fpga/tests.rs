use super::*;

const RUN: Run = Run {
    operation: Operation::Get,
    value_bytes: PRINTED_BYTES,
    requests: 2_000,
    fifo_bytes: FIFO_BYTES,
    seed: 1,
};

/// Section 5.3.1: nearly 270 KOps/s at 128 B, of GETs and of SETs; table 3: 283 and 566 of GETs.
#[test]
fn rates_at_128_bytes_are_the_papers_within_a_tenth() {
    let near = |kops: f64, paper: f64| assert!((kops / paper - 1.0).abs() < 0.1, "{kops} {paper}");
    for operation in [Operation::Get, Operation::Set] {
        near(Run { operation, ..RUN }.kops(1, Load::OneAtATime).0, FIGURE_9);
    }
    for (instances, paper) in [1, 2].into_iter().zip(TABLE_3) {
        near(RUN.kops(instances, Load::OneAtATime).0, paper);
    }
}

#[test]
fn two_instances_are_double() {
    for operation in Operation::ALL {
        let run = Run { operation, ..RUN };
        for load in [Load::OneAtATime, Load::Every(0.0)] {
            let times = run.kops(2, load).0 / run.kops(1, load).0;
            assert!((times - 2.0).abs() < 0.01, "{operation:?} {load:?}: {times}");
        }
    }
}

/// What the text says about figures 7 and 8 (5.2.2): 23 and 42 cycles, what grows with the size and what does not, and
/// that network and memory take most.
#[test]
fn modules_take_what_the_paper_says() {
    for (set, slab, hash) in
        [(true, Module::SlabWrite, Module::HashWrite), (false, Module::SlabRead, Module::HashRead)]
    {
        let of = |bytes| alone(set, bytes);
        let (small, large) = (of(128), of(1_024));
        let grows = |module| large.spent(module) > small.spent(module);
        assert_eq!(small.spent(Module::Hash), 23);
        assert!(set || small.spent(Module::HashRead) == 42);
        assert!(grows(slab) && !grows(hash) && !grows(Module::Hash));
        assert_eq!(grows(Module::NetworkInput), set);
        assert_eq!(grows(Module::NetworkOutput), !set);
        for counters in [small, large] {
            let sum: u64 = Module::ALL.into_iter().map(|module| counters.spent(module)).sum();
            assert_eq!(sum, counters.cycles);
            let most = [Module::NetworkInput, Module::NetworkOutput, slab, hash];
            let most: u64 = most.into_iter().map(|module| counters.spent(module)).sum();
            assert!(2 * most > sum);
        }
    }
    // 8 bits a cycle: the input of a SET grows by a cycle a byte.
    let input = |bytes| alone(true, bytes).spent(Module::NetworkInput);
    assert_eq!(input(1_024) - input(512), 512);
}

/// A stream is as fast as its slowest machine, the output, and faster than one request at a time.
#[test]
fn a_stream_overlaps() {
    let (one, _) = RUN.kops(1, Load::OneAtATime);
    let (streamed, counters) = RUN.kops(1, Load::Every(0.0));
    let reply = alone(false, PRINTED_BYTES).spent(Module::NetworkOutput) + cycles::WIRE_GAP_CYCLES;
    let bound = cycles::CLOCK_HZ / reply as f64 / 1e3;
    assert_eq!(limit(&counters), "network output");
    assert!(
        streamed > 1.5 * one && streamed <= bound && streamed > 0.98 * bound,
        "{streamed} {bound}"
    );
}

/// Every packet is answered or dropped, below the limit none is dropped, above it what is too much.
#[test]
fn overload_drops_what_is_too_much() {
    let run = Run { fifo_bytes: 4_096, requests: 20_000, ..RUN };
    let (streamed, _) = RUN.kops(1, Load::Every(0.0));
    let at = |part: f64| {
        let counters = run.serve(Load::Every(cycles::CLOCK_HZ / (streamed * 1e3 * part)));
        assert_eq!(counters.served() + counters.dropped, 20_000);
        assert_eq!((counters.offered, counters.misses), (20_000, 0));
        counters
    };
    assert_eq!(at(0.5).dropped, 0);
    let above = at(1.25);
    let part = above.dropped as f64 / 20_000.0;
    assert!((part - 0.2).abs() < 0.02, "{part}");
    assert!(above.rate() / 1e3 > 0.9 * streamed);
    // 4 KB of requests and of replies wait at most, each as long as a reply takes.
    let longest = above.latencies.iter().max().copied().unwrap();
    let replies = 4_096 / 88 + 4_096 / 156 + 3;
    assert!(longest > 5_000 && longest < replies * 222 + 500, "{longest}");
}

/// Without a queue, all that hit in the first entry take as long.
#[test]
fn one_at_a_time_has_no_jitter_but_by_entry() {
    let counters = RUN.serve(Load::OneAtATime);
    let least = counters.latencies.iter().min().copied().unwrap();
    assert_eq!(least, alone(false, PRINTED_BYTES).cycles);
    let entry = cycles::hash_read(2) - cycles::hash_read(1);
    assert!(counters.latencies.iter().all(|l| (l - least) % entry == 0));
    assert!(counters.latencies.iter().any(|l| *l > least));
}

/// A miss reads all entries and sends a header alone.
#[test]
fn a_miss_takes_its_own_way() {
    let memory = Memory::new(64, &[1; memory::SLAB_BYTES.len()], 1);
    let request = Request { key: 1, set: false, value_bytes: 1_024 };
    let counters = Appliance::new(memory, FIFO_BYTES).run(&[request], Load::OneAtATime, 1);
    assert_eq!((counters.misses, counters.served()), (1, 1));
    assert_eq!(counters.spent(Module::SlabRead), 0);
    assert_eq!(counters.spent(Module::HashRead), cycles::hash_read(0));
    assert_eq!(counters.spent(Module::NetworkOutput), 42 + 24);
}

/// An overwritten place costs the eviction of what it held.
#[test]
fn evictions_take_cycles() {
    let run = |slots: usize| {
        let memory = Memory::new(64, &[slots; memory::SLAB_BYTES.len()], 1);
        let set = |key| Request { key, set: true, value_bytes: 64 };
        Appliance::new(memory, FIFO_BYTES).run(&[set(1), set(2)], Load::OneAtATime, 1)
    };
    let more = run(1).cycles - run(2).cycles;
    assert_eq!(more, cycles::slab_write(64, true) - cycles::slab_write(64, false));
    assert!(more > 2 * cycles::DRAM_CYCLES);
}

#[test]
fn the_same_seed_gives_the_same() {
    let run = Run { operation: Operation::Mix, requests: 1_000, fifo_bytes: 2_048, ..RUN };
    let of = |seed| Run { seed, ..run }.serve(Load::Every(230.0)).latencies;
    assert_eq!(of(1), of(1));
    assert_ne!(of(1), of(2));
}

#[test]
fn bad_flags_are_refused() {
    let parse = |flags: &[&str]| Cli::try_parse_from([&["fpga"], flags].concat());
    assert!(parse(&["--sizes", "10,1376", "--fifo", "2048"]).is_ok());
    for bad in [
        ["--sizes", "0"],
        ["--sizes", "1377"],
        ["--sizes", "x"],
        ["--fifo", "100"],
        ["--keys", "1"],
    ] {
        assert!(parse(&bad).is_err(), "{bad:?}");
    }
}
