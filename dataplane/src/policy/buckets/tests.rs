use super::*;

const SECOND_NS: u64 = 1_000_000_000;

fn rate(requests: u32, reply_bytes: u64) -> Rate {
    Rate { requests: NonZeroU32::new(requests), reply_bytes: NonZeroU64::new(reply_bytes) }
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Requests that get in at `now_ns` before one does not.
fn admitted(meter: &mut Meter, now_ns: u64) -> u64 {
    (0..).take_while(|_| meter.admit(now_ns).is_ok()).count() as u64
}

#[test]
fn a_full_bucket_holds_a_seconds_worth_and_fills_evenly() {
    for per_second in [1, 2, 3, 7, 1000, 10_000, 999_983] {
        let mut meter = Meter::new(rate(per_second, 0));
        let n = u64::from(per_second);
        let begin = 5 * SECOND_NS;
        assert_eq!(admitted(&mut meter, begin), n, "{per_second}");
        assert_eq!(meter.admit(begin), Err(Over::Requests));
        // The next one has been earned when its whole interval has passed, and not before.
        let interval = SECOND_NS.div_ceil(n);
        assert_eq!(admitted(&mut meter, begin + SECOND_NS / n - 1), 0, "{per_second}");
        assert_eq!(admitted(&mut meter, begin + interval + 1), 1, "{per_second}");
        // However long the pause, not more than a second's worth.
        assert_eq!(admitted(&mut meter, begin + 1000 * SECOND_NS), n, "{per_second}");
    }
}

#[test]
fn no_more_than_the_rate_passes_in_the_long_run_whatever_the_rhythm() {
    for (per_second, step_ns) in [(1000, 1), (1000, 333), (10, 77_777_777), (999_983, 997)] {
        let mut meter = Meter::new(rate(per_second, 0));
        let (mut now_ns, mut passed) = (0, 0);
        for _ in 0..200_000 {
            passed += u64::from(meter.admit(now_ns).is_ok());
            now_ns += step_ns;
        }
        let earned = u128::from(now_ns) * u128::from(per_second) / u128::from(SECOND_NS);
        let most = u128::from(per_second) + earned;
        assert!(u128::from(passed) <= most, "{passed} of {most}");
        let demand = 200_000u128.min(most);
        assert!(u128::from(passed) + 2 >= demand, "{passed} of {demand}");
    }
}

#[test]
fn bytes_may_be_overdrawn_and_are_paid_back() {
    let mut meter = Meter::new(rate(0, 1000));
    assert_eq!(meter.admit(0), Ok(()));
    meter.charge(999, 0);
    assert_eq!(meter.admit(0), Ok(()), "one byte is left");
    meter.charge(5001, 0);
    assert_eq!(meter.admit(0), Err(Over::Bytes));
    // 5,000 bytes of debt take five seconds.
    assert_eq!(meter.admit(5 * SECOND_NS), Err(Over::Bytes));
    assert_eq!(meter.admit(5 * SECOND_NS + SECOND_NS / 1000), Ok(()));
    assert!(admitted_bytes(&mut meter, 60 * SECOND_NS) == 1000);
}

fn admitted_bytes(meter: &mut Meter, now_ns: u64) -> usize {
    (0..).take_while(|_| meter.admit(now_ns).map(|()| meter.charge(1, now_ns)).is_ok()).count()
}

#[test]
fn a_source_without_bytes_left_spends_no_request() {
    let mut meter = Meter::new(rate(1, 1));
    meter.charge(2, 0);
    assert_eq!(meter.admit(SECOND_NS / 2), Err(Over::Bytes));
    assert_eq!(meter.admit(SECOND_NS + 1), Ok(()));
}

#[test]
fn prices_are_never_below_the_rate() {
    for per_second in [1, 3, 1 << 20, 10_000_000_000, u64::MAX] {
        let price = BytePrice::per_second(NonZeroU64::new(per_second).unwrap());
        for tokens in [1, 33, 1400, 1 << 21] {
            let exact = u128::from(FILL_TICKS) * u128::from(tokens);
            let charged = u128::from(price.of(tokens)) * u128::from(per_second);
            assert!(charged >= exact, "{tokens} at {per_second}");
        }
    }
    // At 10 GB/s a small reply is not charged much too much either.
    let price = BytePrice::per_second(NonZeroU64::new(10_000_000_000).unwrap());
    assert!(price.of(1000) <= 1601, "{}", price.of(1000));
}

#[test]
fn nothing_overflows_at_the_end_of_time() {
    let mut meter = Meter::new(rate(1, 1));
    meter.charge(u64::MAX, u64::MAX);
    assert_eq!(meter.admit(0), Err(Over::Bytes));
    let mut meter = Meter::new(rate(1, 0));
    assert_eq!(meter.admit(u64::MAX - 1), Ok(()));
    assert!(meter.admit(0).is_err(), "a clock that goes back gives nothing away");
}

#[test]
fn a_rate_without_limits_takes_no_memory_and_refuses_nobody() {
    assert!(Sources::new(Rate::default()).is_none());
    let mut meter = Meter::new(Rate::default());
    meter.charge(u64::MAX, 0);
    assert!((0..100_000).all(|_| meter.admit(0).is_ok()));
}

#[test]
fn a_source_is_an_ipv4_address_or_an_ipv6_64() {
    let sources = Sources::new(rate(1, 0)).unwrap();
    let place = |text| sources.place(ip(text));
    assert_eq!(place("fd00::1"), place("fd00::ffff:ffff:ffff:ffff"));
    // Each of these pairs could share a place by chance; all of them at once, one in 2^64.
    let others = [
        ("fd00::1", "fd00:0:0:1::1"),
        ("fd00::1", "fd01::1"),
        ("10.0.0.1", "10.0.0.2"),
        ("10.0.0.1", "0:0:a00:1::"),
    ];
    assert!(others.iter().any(|(a, b)| place(a) != place(b)));
}

#[test]
fn sources_are_limited_each_by_itself() {
    let mut sources = Sources::new(rate(2, 0)).unwrap();
    let a = ip("10.0.0.1");
    let b =
        (2..).map(|n| IpAddr::from([10, 0, 0, n])).find(|b| sources.place(*b) != sources.place(a));
    let b = b.unwrap();
    for now_ns in [0, SECOND_NS] {
        for source in [a, a, b, b] {
            assert_eq!(sources.admit(source, now_ns), Ok(()));
        }
        for source in [a, b] {
            assert_eq!(sources.admit(source, now_ns), Err(Over::Requests));
        }
    }
}

#[test]
fn sources_that_collide_share_one_bucket_and_get_no_more_than_one() {
    let mut sources = Sources::new(rate(10, 0)).unwrap();
    let a = ip("10.0.0.1");
    // 2^24 addresses over 2^16 places: about 256 collide with any.
    let others: Vec<IpAddr> = (0..1u32 << 24)
        .map(|n| IpAddr::V4((0x0b00_0000 | n).into()))
        .filter(|b| sources.place(*b) == sources.place(a))
        .take(3)
        .collect();
    assert_eq!(others.len(), 3, "places are used unevenly");
    let mut passed = 0;
    for _ in 0..100 {
        for source in others.iter().chain([&a]) {
            passed += u32::from(sources.admit(*source, 7).is_ok());
        }
    }
    assert_eq!(passed, 10);
}

#[test]
fn a_flood_of_sources_does_not_give_a_limited_one_a_fresh_bucket() {
    let mut sources = Sources::new(rate(5, 100)).unwrap();
    let a = ip("192.0.2.1");
    sources.charge(a, 100_000, 0);
    for n in 0..1_000_000u32 {
        let _ = sources.admit(IpAddr::V4((0x0a00_0000 | n).into()), 0);
    }
    assert_eq!(sources.admit(a, 0), Err(Over::Bytes));
}

#[test]
fn each_table_has_a_key_of_its_own() {
    let (a, b) = (Sources::new(rate(1, 0)).unwrap(), Sources::new(rate(1, 0)).unwrap());
    let addresses = (0..64).map(|n| IpAddr::from([10, 0, 0, n]));
    assert!(addresses.filter(|i| a.place(*i) == b.place(*i)).count() < 64);
}

#[test]
fn work_is_charged_in_requests_and_its_debt_has_a_name() {
    let mut meter = Meter::new(rate(100, 0));
    assert_eq!(meter.admit(0), Ok(()));
    meter.charge_requests(98, 0);
    assert_eq!(meter.admit(0), Ok(()), "one is left");
    assert_eq!(meter.admit(0), Err(Over::Requests), "spent to the last, and not beyond");
    meter.charge_requests(250, 0);
    // 250 are owed: two seconds and a half, and a hundredth for the next one.
    let next = SECOND_NS / 100;
    for now_ns in [0, SECOND_NS, 250 * next - 1] {
        assert_eq!(meter.admit(now_ns), Err(Over::Work), "{now_ns}");
    }
    assert_eq!(meter.admit(250 * next), Err(Over::Requests), "paid back, and nothing left");
    assert_eq!(meter.admit(251 * next), Ok(()));
    assert_eq!(admitted(&mut meter, 60 * SECOND_NS), 100);
}

#[test]
fn work_costs_nothing_where_requests_do_not() {
    let mut meter = Meter::new(rate(0, 1));
    meter.charge_requests(u64::MAX, 0);
    assert_eq!(meter.admit(0), Ok(()));
    // And overflows nowhere.
    let mut meter = Meter::new(rate(1, 0));
    meter.charge_requests(u64::MAX, 0);
    meter.charge_requests(u64::MAX, u64::MAX);
    assert_eq!(meter.admit(0), Err(Over::Work));
}

proptest::proptest! {
    /// However work and requests come, no more is had in the long run than the rate and a second's
    /// worth, but for the last charge.
    #[test]
    fn no_more_than_the_rate_is_worked_in_the_long_run(
        per_second in 1u32..20_000,
        steps in proptest::collection::vec((0u64..50_000_000, 0u64..5_000), 1..300),
    ) {
        let mut meter = Meter::new(rate(per_second, 0));
        let (mut now_ns, mut had, mut last) = (0, 0u128, 0u128);
        for (step_ns, work) in steps {
            now_ns += step_ns;
            if meter.admit(now_ns).is_ok() {
                meter.charge_requests(work, now_ns);
                last = u128::from(work);
                had += 1 + last;
            }
        }
        let earned = u128::from(now_ns) * u128::from(per_second) / u128::from(SECOND_NS);
        proptest::prop_assert!(had <= u128::from(per_second) + earned + last);
    }
}
