use super::*;
use driver_shim::MacAddr;
use std::num::NonZeroU64;
use wire::build::UdpFrame;

const L3: u8 = 14;

fn rate(requests: u32, reply_bytes: u64) -> Rate {
    Rate { requests: NonZeroU32::new(requests), reply_bytes: NonZeroU64::new(reply_bytes) }
}

/// A request and its entry. Trust was decided before.
fn request(from: &str, flags: EntryFlags) -> (Vec<u8>, Entry) {
    let from: IpAddr = from.parse().unwrap();
    let to: IpAddr = if from.is_ipv4() { [10, 0, 0, 2].into() } else { Ipv6Addr::LOCALHOST.into() };
    let frame = UdpFrame {
        src_mac: MacAddr([2; 6]),
        dst_mac: MacAddr([4; 6]),
        vlans: &[],
        src: (from, 40_000).into(),
        dst: (to, 11_211).into(),
        payload: b"\0\x01\0\0\0\x01\0\0get a\r\n",
    };
    let flags = if from.is_ipv6() { flags.with(EntryFlags::IPV6) } else { flags };
    (frame.to_vec().unwrap(), Entry { l3: L3, flags, ..Entry::default() })
}

fn admit(gate: &mut Gate, from: &str, standing: EntryFlags) -> Result<(), DropReason> {
    let (frame, entry) = request(from, standing);
    gate.admit(&frame, &entry, 0)
}

fn charge(gate: &mut Gate, from: &str, standing: EntryFlags, bytes: usize) {
    let (frame, entry) = request(from, standing);
    gate.charge(&frame, &entry, bytes, 0);
}

const TRUSTED: EntryFlags = EntryFlags(0);
const LIMITED: EntryFlags = EntryFlags::LIMITED;

#[test]
fn a_header_that_is_not_there_is_some_source() {
    let mut gate = Gate::new(&Policy { source: rate(1, 1), ..Policy::default() });
    for flags in [LIMITED, LIMITED.with(EntryFlags::IPV6)] {
        let entry = Entry { l3: L3, flags, ..Entry::default() };
        assert_eq!(gate.admit(&[], &entry, 0), Ok(()));
        for len in 0..usize::from(L3) + if flags == LIMITED { 16 } else { 24 } {
            let shared = gate.admit(&vec![10; len], &entry, 0);
            assert_eq!(shared, Err(DropReason::RateSource), "all of them are one");
        }
    }
}

#[test]
fn limits_of_one_source_of_all_and_of_trusted_ones_are_apart() {
    let policy = Policy {
        source: rate(3, 0),
        total: rate(5, 0),
        trusted_source: rate(2, 0),
        ..Policy::default()
    };
    let mut gate = Gate::new(&policy);
    let mut got = |from: &str, standing, n: usize| -> Vec<_> {
        (0..n).map(|_| admit(&mut gate, from, standing)).collect()
    };
    let over = Err(DropReason::RateSource);
    assert_eq!(got("192.0.2.1", LIMITED, 5), [Ok(()), Ok(()), Ok(()), over, over]);
    let over_all = Err(DropReason::RateTotal);
    assert_eq!(got("2001:db8::1", LIMITED, 3), [Ok(()), Ok(()), over_all]);
    assert_eq!(got("10.0.0.1", TRUSTED, 3), [Ok(()), Ok(()), over]);
}

#[test]
fn bytes_are_charged_to_the_source_and_to_all_that_are_not_trusted() {
    let policy = Policy {
        source: rate(0, 100),
        total: rate(0, 150),
        trusted_source: rate(0, 1000),
        ..Policy::default()
    };
    let mut gate = Gate::new(&policy);
    assert_eq!(admit(&mut gate, "192.0.2.1", LIMITED), Ok(()));
    charge(&mut gate, "192.0.2.1", LIMITED, 100);
    assert_eq!(admit(&mut gate, "192.0.2.1", LIMITED), Err(DropReason::RateSourceBytes));
    assert_eq!(admit(&mut gate, "2001:db8::1", LIMITED), Ok(()));
    charge(&mut gate, "2001:db8::1", LIMITED, 50);
    let over_all = Err(DropReason::RateTotalBytes);
    assert_eq!(admit(&mut gate, "2001:db8:0:1::1", LIMITED), over_all);
    // What trusted sources get counts for themselves alone, and by the /64.
    charge(&mut gate, "fd00::1", TRUSTED, 999);
    assert_eq!(admit(&mut gate, "fd00::2", TRUSTED), Ok(()));
    charge(&mut gate, "fd00::3", TRUSTED, 1);
    assert_eq!(admit(&mut gate, "fd00::1", TRUSTED), Err(DropReason::RateSourceBytes));
}

#[test]
fn work_is_charged_to_the_source_and_to_all_that_are_not_trusted() {
    let policy = Policy {
        source: rate(10, 0),
        total: rate(30, 0),
        trusted_source: rate(10, 0),
        ..Policy::default()
    };
    let mut gate = Gate::new(&policy);
    let owes = |from: &str, requests| Debt { source: from.parse().unwrap(), requests };
    assert_eq!(admit(&mut gate, "192.0.2.1", LIMITED), Ok(()));
    gate.charge_work(owes("192.0.2.1", 20), 0);
    assert_eq!(admit(&mut gate, "192.0.2.1", LIMITED), Err(DropReason::RateSourceWork));
    // Others go on, as long as all together have not had too much.
    assert_eq!(admit(&mut gate, "192.0.2.2", LIMITED), Ok(()));
    gate.charge_work(owes("192.0.2.2", 9), 0);
    assert_eq!(admit(&mut gate, "192.0.2.2", LIMITED), Err(DropReason::RateSource));
    assert_eq!(admit(&mut gate, "192.0.2.3", LIMITED), Err(DropReason::RateTotalWork));
    // What trusted sources may have is not touched.
    assert_eq!(admit(&mut gate, "10.0.0.1", TRUSTED), Ok(()));
}

#[test]
fn a_workers_share_is_rounded_up() {
    let policy = Policy {
        source: rate(10, 10),
        total: rate(3, 1_000_000_001),
        trusted_source: rate(0, 1),
        answers: NonZeroU32::new(7),
        ..Policy::default()
    };
    let share = policy.for_one_of(NonZeroU32::new(4).unwrap());
    assert_eq!(share.source, rate(3, 3));
    assert_eq!(share.total, rate(1, 250_000_001));
    assert_eq!(share.trusted_source, rate(0, 1));
    assert_eq!(share.answers, policy.answers);
    assert_eq!(policy.for_one_of(NonZeroU32::MIN), policy);
}

#[test]
fn the_allowance_counts_the_frame_header_and_multiplies() {
    let entry = |flags| Entry { flags, ..Entry::default() };
    let times = |n| NonZeroU32::new(n).unwrap();
    let limited = entry(EntryFlags::LIMITED.with(EntryFlags::IPV6));
    assert_eq!(allowance(&limited, 7, times(3)), 45);
    assert_eq!(allowance(&limited, 1, times(1)), 9);
    assert_eq!(allowance(&limited, u16::MAX, times(u32::MAX)), 65_543 * (u32::MAX as usize));
    assert_eq!(allowance(&entry(EntryFlags::IPV6), 7, times(3)), usize::MAX);
}

#[test]
fn pings_and_neighbours_do_not_use_up_each_others_answers() {
    let policy = Policy { answers: NonZeroU32::new(2), ..Policy::default() };
    let mut gate = Gate::new(&policy);
    for (answer, over) in [
        (LocalReply::Echo, DropReason::RateEcho),
        (LocalReply::Neighbour, DropReason::RateNeighbour),
    ] {
        for _ in 0..2 {
            assert_eq!(gate.may_answer(answer, 0), Ok(()));
            // Asking costs nothing.
            assert_eq!(gate.may_answer(answer, 0), Ok(()));
            gate.answered(answer, 0);
        }
        assert_eq!(gate.may_answer(answer, 0), Err(over));
        assert_eq!(gate.may_answer(answer, 500_000_001), Ok(()));
    }
}

/// The refusal must be fit to be sent for the shortest get, or no client learns of the limit.
#[test]
fn the_refusal_fits_the_shortest_get_at_the_default_factor() {
    use memcache::Refusal;
    let entry = Entry { flags: EntryFlags::LIMITED, ..Entry::default() };
    let most = allowance(&entry, 6, Policy::AMP_FACTOR_DEFAULT);
    assert!(udp_frame::HEADER_BYTES + Refusal::Amplified.line().len() <= most);
}
