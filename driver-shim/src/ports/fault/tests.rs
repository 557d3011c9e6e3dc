//! The faults, one kind at a time and all together.

use super::*;
use crate::ports::memory::linked;
use crate::{Pages, Port};
use proptest::prelude::*;

const ALWAYS: PerMillion = PerMillion(1_000_000);

/// A wrapped end, the plain other end, and the counters.
fn faulty(region: &Region, depth: usize, config: &FaultConfig) -> (Port, Port, FaultCounters) {
    let (mut near, far) = linked(1, depth);
    let (pair, counters) = wrap(near.queues.remove(0), region, config);
    near.queues.push(pair);
    (near, far, counters)
}

fn numbered(region: &Region, n: u16) -> Burst {
    (0..n)
        .map(|i| {
            let mut f = region.alloc().unwrap();
            f.fill(&[&i.to_be_bytes()[..], &[0xaa; 58]].concat()).unwrap();
            f.rx.ip_good = true.into();
            f.tx.udp = true.into();
            f
        })
        .collect()
}

fn numbers(burst: &[Frame]) -> Vec<u16> {
    burst.iter().map(|f| u16::from_be_bytes([f.bytes()[0], f.bytes()[1]])).collect()
}

/// Sends `n` frames from the plain end and receives all that comes.
fn through(faults: Faults, n: u16, seed: u64) -> (Vec<Vec<u8>>, FaultCounts) {
    let region = Region::new(1024, Pages::Small).unwrap();
    let config = FaultConfig { seed, rx: faults, ..Default::default() };
    let (mut near, mut far, counters) = faulty(&region, 256, &config);
    far.queues[0].tx.burst(&mut numbered(&region, n));
    let mut out = Vec::new();
    // One burst for what is there, some for what is held.
    for _ in 0..10 {
        let mut burst = Burst::new();
        near.queues[0].rx.burst(&mut burst);
        out.extend(burst.iter().map(|f| f.bytes().to_vec()));
    }
    drop((near, far));
    assert_eq!(region.available(), region.capacity());
    (out, counters.rx())
}

fn first(frames: &[Vec<u8>]) -> Vec<u16> {
    frames.iter().map(|f| u16::from_be_bytes([f[0], f[1]])).collect()
}

/// A worker's sleep is bound by the queue behind.
#[test]
fn a_queue_behind_it_waits_no_longer_for_a_look() {
    struct Hasty;
    impl RxQueue for Hasty {
        fn burst(&mut self, _: &mut Burst) -> usize {
            0
        }
        fn idle_max(&self) -> Duration {
            Duration::from_micros(7)
        }
    }
    let region = Region::new(16, Pages::Small).unwrap();
    let (mut near, _far) = linked(1, 16);
    let pair = QueuePair { rx: Box::new(Hasty), ..near.queues.remove(0) };
    let (wrapped, _) = wrap(pair, &region, &FaultConfig::default());
    assert_eq!(wrapped.rx.idle_max(), Duration::from_micros(7));
}

#[test]
fn no_faults_change_nothing() {
    let region = Region::new(256, Pages::Small).unwrap();
    let (mut near, mut far, counters) = faulty(&region, 256, &FaultConfig::default());
    let mut burst = numbered(&region, 50);
    assert_eq!(near.queues[0].tx.burst(&mut burst), 50);
    assert_eq!(far.queues[0].rx.burst(&mut burst), 50);
    assert_eq!(numbers(&burst), (0..50).collect::<Vec<_>>());
    assert_eq!(far.queues[0].tx.burst(&mut burst), 50);
    assert_eq!(near.queues[0].rx.burst(&mut burst), 50);
    assert_eq!(numbers(&burst), (0..50).collect::<Vec<_>>());
    let plain = FaultCounts { entered: 50, left: 50, ..Default::default() };
    assert_eq!((counters.rx(), counters.tx()), (plain, plain));
}

#[test]
fn each_fault_does_what_it_says() {
    let (out, c) = through(Faults { lose: ALWAYS, ..Default::default() }, 20, 1);
    assert_eq!((out.len(), c.lost), (0, 20));

    let (out, c) = through(Faults { duplicate: ALWAYS, ..Default::default() }, 20, 1);
    assert_eq!(first(&out), (0..20).flat_map(|i| [i, i]).collect::<Vec<_>>());
    assert_eq!((c.duplicated, c.left), (20, 40));

    let (out, c) = through(Faults { reorder: ALWAYS, ..Default::default() }, 20, 1);
    let mut sorted = first(&out);
    assert_ne!(sorted, (0..20).collect::<Vec<_>>());
    sorted.sort_unstable();
    assert_eq!(sorted, (0..20).collect::<Vec<_>>());
    assert!(c.reordered > 3);

    let (out, c) = through(Faults { truncate: ALWAYS, ..Default::default() }, 20, 1);
    assert!(out.iter().all(|f| f.len() < 60));
    assert_eq!((out.len(), c.truncated), (20, 20));

    let (out, c) = through(Faults { flip: ALWAYS, ..Default::default() }, 20, 1);
    for (i, f) in (0_u16..).zip(&out) {
        let sent = [&i.to_be_bytes()[..], &[0xaa; 58]].concat();
        let turned: u32 = f.iter().zip(&sent).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(turned, 1);
    }
    assert_eq!(c.flipped, 20);

    let (out, c) = through(Faults { short_burst: ALWAYS, ..Default::default() }, 20, 1);
    assert!(out.len() < 20 && c.short_bursts > 1);
    assert_eq!(first(&out), (0..20).take(out.len()).collect::<Vec<_>>());
}

#[test]
fn rates_are_rates() {
    let region = Region::new(1024, Pages::Small).unwrap();
    let rx = Faults { lose: PerMillion(100_000), ..Default::default() };
    let config = FaultConfig { seed: 3, rx, ..Default::default() };
    let (mut near, mut far, counters) = faulty(&region, 64, &config);
    for _ in 0..1000 {
        far.queues[0].tx.burst(&mut numbered(&region, 50));
        near.queues[0].rx.burst(&mut Burst::new());
    }
    let lost = counters.rx().lost;
    assert!((4_500..5_500).contains(&lost), "{lost} of 50,000 at 10 %");
}

#[test]
fn damage_withdraws_the_drivers_word() {
    let region = Region::new(64, Pages::Small).unwrap();
    for damage in [
        Faults { flip: ALWAYS, ..Default::default() },
        Faults { truncate: ALWAYS, ..Default::default() },
    ] {
        let mut channel = Channel::new(damage, 1, &region, &Plug::default());
        numbered(&region, 4).drain(..).for_each(|f| channel.add(f));
        for f in &channel.ready {
            assert_eq!((f.rx, f.tx), Default::default());
        }
    }
}

#[test]
fn a_full_queue_behind_holds_frames_until_the_next_burst() {
    let region = Region::new(256, Pages::Small).unwrap();
    let tx = Faults { duplicate: ALWAYS, ..Default::default() };
    let config = FaultConfig { tx, ..Default::default() };
    let (mut near, mut far, counters) = faulty(&region, 10, &config);
    let mut burst = numbered(&region, 8);
    assert_eq!(near.queues[0].tx.burst(&mut burst), 8);
    assert_eq!(counters.tx().held(), 6);
    let mut more = numbered(&region, 8);
    assert_eq!(near.queues[0].tx.burst(&mut more), 0, "full");
    assert_eq!(far.queues[0].rx.burst(&mut burst), 10);
    assert_eq!(near.queues[0].tx.burst(&mut Burst::new()), 0);
    assert_eq!(counters.tx().held(), 0);
    assert_eq!(far.queues[0].rx.burst(&mut burst), 6);
    assert_eq!(numbers(&burst), (0..8).flat_map(|i| [i, i]).collect::<Vec<_>>());
}

#[test]
fn a_refused_burst_keeps_its_frames() {
    let region = Region::new(64, Pages::Small).unwrap();
    let tx = Faults { refuse: ALWAYS, ..Default::default() };
    let (mut near, _far, counters) = faulty(&region, 16, &FaultConfig { tx, ..Default::default() });
    let mut burst = numbered(&region, 8);
    assert_eq!(near.queues[0].tx.burst(&mut burst), 0);
    assert_eq!(numbers(&burst), (0..8).collect::<Vec<_>>());
    assert_eq!((counters.tx().refused, counters.tx().entered), (1, 0));
}

#[test]
fn a_pulled_cable_loses_frames_and_a_device_that_rests_keeps_them() {
    let region = Region::new(64, Pages::Small).unwrap();
    let (mut near, mut far, counters) = faulty(&region, 16, &FaultConfig::default());
    let (near, far) = (&mut near.queues[0], &mut far.queues[0]);
    let mut both_ways = || {
        far.tx.burst(&mut numbered(&region, 4));
        near.tx.burst(&mut numbered(&region, 4));
        let (mut in_, mut out) = (Burst::new(), Burst::new());
        (near.rx.burst(&mut in_), far.rx.burst(&mut out))
    };
    assert_eq!(both_ways(), (4, 4));
    counters.plug().set(Wire::Down);
    assert_eq!(both_ways(), (0, 0));
    assert_eq!((counters.rx().lost, counters.tx().lost), (4, 4));
    counters.plug().set(Wire::Away);
    assert_eq!(both_ways(), (0, 0));
    counters.plug().set(Wire::Up);
    assert_eq!(both_ways(), (8, 4), "what had come meanwhile is there");
    assert_eq!((counters.rx().lost, counters.tx().lost), (4, 4));
}

#[test]
fn no_slot_for_a_copy_is_counted() {
    let region = Region::new(8, Pages::Small).unwrap();
    let rx = Faults { duplicate: ALWAYS, ..Default::default() };
    let (mut near, mut far, counters) =
        faulty(&region, 16, &FaultConfig { rx, ..Default::default() });
    far.queues[0].tx.burst(&mut numbered(&region, 6));
    near.queues[0].rx.burst(&mut Burst::new());
    assert_eq!((counters.rx().duplicated, counters.rx().not_duplicated), (2, 4));
    assert_eq!(counters.rx().left, 8);
}

fn rate() -> impl Strategy<Value = PerMillion> {
    prop_oneof![Just(0), 0..300_000_u32].prop_map(PerMillion)
}

prop_compose! {
    fn faults()(r in prop::array::uniform7(rate())) -> Faults {
        let [lose, duplicate, reorder, truncate, flip, short_burst, refuse] = r;
        Faults { lose, duplicate, reorder, truncate, flip, short_burst, refuse }
    }
}

/// Bursts of these sizes go from the plain end through receive faults to an echo and back
/// through transmit faults. Returns what came back, and the counters.
fn echo(
    config: &FaultConfig,
    depth: usize,
    sizes: &[u16],
) -> (Vec<Vec<u8>>, FaultCounts, FaultCounts) {
    let region = Region::new(2048, Pages::Small).unwrap();
    let (mut near, mut far, counters) = faulty(&region, depth, config);
    let (near, far) = (&mut near.queues[0], &mut far.queues[0]);
    let (mut offered, mut got) = (0, Vec::new());
    let mut burst = Burst::new();
    let mut back = Burst::new();
    // Then with nothing new, until all has come through: each turn moves something unless a
    // burst is refused or empty, and neither goes on for long at a rate of 30 %.
    for size in sizes.iter().copied().chain(std::iter::repeat_n(0, 500)) {
        let mut out = numbered(&region, size);
        offered += far.tx.burst(&mut out) as u64;
        near.rx.burst(&mut burst);
        near.tx.burst(&mut burst);
        far.rx.burst(&mut back);
        got.extend(back.drain(..).map(|f| f.bytes().to_vec()));
    }
    assert!(burst.is_empty());
    let (rx, tx) = (counters.rx(), counters.tx());
    assert_eq!(rx.entered, offered);
    assert_eq!(tx.entered, rx.left);
    assert_eq!(tx.left, got.len() as u64);
    assert_eq!((rx.held(), tx.held()), (0, 0));
    assert_eq!(region.available(), region.capacity());
    (got, rx, tx)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..Default::default() })]

    #[test]
    fn frames_balance_and_the_seed_decides(
        seed: u64,
        rx in faults(),
        tx in faults(),
        depth in 1..100_usize,
        sizes in prop::collection::vec(0..=64_u16, 1..20),
    ) {
        let config = FaultConfig { seed, rx, tx };
        let (got, rx, tx) = echo(&config, depth, &sizes);
        for c in [rx, tx] {
            prop_assert_eq!(c.entered + c.duplicated, c.left + c.lost);
            prop_assert_eq!(c.not_duplicated, 0);
        }
        // Each damage shows in at most the frames that it was counted for.
        let damaged = rx.truncated + rx.flipped + tx.truncated + tx.flipped;
        let whole = |f: &&Vec<u8>| f.len() == 60 && f[2..].iter().all(|&b| b == 0xaa);
        let bad = got.len() - got.iter().filter(whole).count();
        prop_assert!(bad as u64 <= damaged * 2, "a damaged frame may be duplicated on its way back");
        prop_assert_eq!((got, rx, tx), echo(&config, depth, &sizes));
    }
}
