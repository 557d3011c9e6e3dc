#![expect(clippy::cast_precision_loss, reason = "counts far below 2^53")]

use super::*;
use rand_xoshiro::rand_core::SeedableRng;

const DRAWS: u64 = 400_000;
/// Ranks that are cells of their own; then each doubling of the rank is one.
const SINGLES: u64 = 50;

/// The sum of 1 / i^theta over `from..=to`: term by term at first, then by the Euler-Maclaurin
/// formula, whose next term is below 1e-15 of the first that it replaces.
fn harmonic(from: u64, to: u64, theta: f64) -> f64 {
    let exact = to.min(from.max(100_000));
    let near: f64 = (from..=exact).rev().map(|i| (i as f64).powf(-theta)).sum();
    if exact == to {
        return near;
    }
    let (a, b) = (exact as f64, to as f64);
    let integral = if theta == 1.0 {
        (b / a).ln()
    } else {
        (b.powf(1.0 - theta) - a.powf(1.0 - theta)) / (1.0 - theta)
    };
    let f = |x: f64| x.powf(-theta);
    let slope = |x: f64| -theta * x.powf(-theta - 1.0);
    // The sum from a on, less the term at a, which `near` has.
    near + integral + (f(b) - f(a)) / 2.0 + (slope(b) - slope(a)) / 12.0
}

/// Chi-square per degree of freedom of `DRAWS` ranks against 1 / (i + 1)^theta over all of `keys`.
fn chi_square(keys: u64, held_against: f64, mut draw: impl FnMut() -> u64) -> f64 {
    let cell = |rank: u64| match rank {
        0..SINGLES => usize::try_from(rank).unwrap(),
        _ => (SINGLES + u64::from((rank / SINGLES).ilog2())).try_into().unwrap(),
    };
    let mut expected = vec![0.0; cell(keys - 1) + 1];
    for (n, e) in (0u64..).zip(&mut expected) {
        let first = if n < SINGLES { n } else { SINGLES << (n - SINGLES) };
        let next = if n < SINGLES { n + 1 } else { SINGLES << (n - SINGLES + 1) };
        *e = harmonic(first + 1, next.min(keys), held_against);
    }
    let sum: f64 = expected.iter().sum();
    let mut seen = vec![0u64; expected.len()];
    for _ in 0..DRAWS {
        seen[cell(draw())] += 1;
    }
    // Cells that expect fewer than 5 are joined to the one before, as the test demands.
    let mut cells: Vec<(f64, f64)> = Vec::new();
    for (s, e) in seen.iter().zip(&expected) {
        let (s, e) = (*s as f64, e / sum * DRAWS as f64);
        match cells.last_mut() {
            Some(last) if e < 5.0 => *last = (last.0 + s, last.1 + e),
            _ => cells.push((s, e)),
        }
    }
    let chi: f64 = cells.iter().map(|(s, e)| (s - e).powi(2) / e).sum();
    chi / (cells.len() as f64 - 1.0)
}

fn zipf(keys: u64, theta: f64) -> impl FnMut() -> u64 {
    let mut sampler = Sampler::new(keys, Popularity::Zipf(theta)).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    move || sampler.read(&mut rng)
}

#[test]
fn sums_are_exact() {
    // Against sums term by term, and against the known value of zeta(2).
    for theta in [0.5, 0.99, 1.0, 1.2] {
        let all: f64 = (1..=2_000_000u64).rev().map(|i| (i as f64).powf(-theta)).sum();
        assert!((harmonic(1, 2_000_000, theta) / all - 1.0).abs() < 1e-12, "{theta}");
    }
    let zeta_2 = std::f64::consts::PI.powi(2) / 6.0;
    assert!((harmonic(1, 1 << 50, 2.0) - zeta_2).abs() < 1e-12);
}

#[test]
fn zipf_is_the_analytic_distribution() {
    // 50 to 85 degrees of freedom: chi-square per degree beyond 1.75 has p < 0.0005.
    for keys in [100, 3_000_000, 1_000_000_000, 1 << 42] {
        for theta in [0.5, 0.99, 1.0, 1.2] {
            let x = chi_square(keys, theta, zipf(keys, theta));
            assert!(x < 1.75, "{keys} keys, theta {theta}: {x}");
        }
    }
}

#[test]
fn the_check_sees_a_small_error() {
    assert!(chi_square(10_000, 0.99, zipf(10_000, 0.97)) > 3.0);
    // Also one in the number of keys alone.
    assert!(chi_square(1_000_000_000, 0.99, zipf(500_000_000, 0.99)) > 3.0);
}

#[test]
fn scrambled_is_zipf_at_other_places() {
    let keys = 1_000_003;
    let mut sampler = Sampler::new(keys, Popularity::Scrambled(0.99)).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let mut plain = zipf(keys, 0.99);
    let shuffle = Permutation::new(keys);
    for _ in 0..1_000 {
        assert_eq!(sampler.read(&mut rng), shuffle.place(plain()));
    }
}

#[test]
fn uniform_covers_all_keys_alike() {
    let mut s = Sampler::new(100, Popularity::Uniform).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(2);
    let mut seen = [0i64; 100];
    for _ in 0..100_000 {
        seen[usize::try_from(s.write(&mut rng)).unwrap()] += 1;
    }
    assert!(seen.iter().all(|n| (n - 1_000).abs() < 200));
}

#[test]
fn latest_follows_the_writes() {
    let mut s = Sampler::new(1_000, Popularity::Latest(0.99)).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(3);
    assert_eq!(s.write(&mut rng), 0);
    assert_eq!(s.write(&mut rng), 1);
    let mut seen = vec![0; 1_000];
    for _ in 0..100_000 {
        seen[usize::try_from(s.read(&mut rng)).unwrap()] += 1;
    }
    assert!(seen[1] > seen[0] && seen[0] > seen[999] && seen[999] > seen[500], "{seen:?}");
}

#[test]
fn a_scan_goes_round() {
    let mut s = Sampler::new(3, Popularity::Scan).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(4);
    let seen: Vec<u64> = (0..7).map(|_| s.read(&mut rng)).collect();
    assert_eq!(seen, [0, 1, 2, 0, 1, 2, 0]);
}

#[test]
fn a_hotspot_gets_its_share_and_each_part_is_flat() {
    let mut s = Sampler::new(100, "hotspot:0.1:0.9".parse().unwrap()).unwrap();
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut seen = [0i64; 100];
    for _ in 0..100_000 {
        seen[usize::try_from(s.read(&mut rng)).unwrap()] += 1;
    }
    assert!(seen[..10].iter().all(|n| (n - 9_000).abs() < 500), "{seen:?}");
    assert!(seen[10..].iter().all(|n| (n - 111).abs() < 60), "{seen:?}");
    // All keys hot, or so few that none would be left.
    for p in ["hotspot:1:0.5", "hotspot:0:0.5"] {
        let mut s = Sampler::new(10, p.parse().unwrap()).unwrap();
        assert!((0..1_000).all(|_| s.read(&mut rng) < 10));
    }
}

#[test]
fn text_and_back() {
    for t in ["uniform", "zipf:0.99", "scrambled:1.2", "latest:0.8", "scan", "hotspot:0.2:0.8"] {
        assert_eq!(t.parse::<Popularity>().unwrap().to_string(), t);
    }
    for t in [
        "",
        "zipf:",
        "zipf:-1",
        "zipf:NaN",
        "uniform:1",
        "hot",
        "scan:2",
        "hotspot:0.2",
        "zipf:1:2",
    ] {
        assert!(t.parse::<Popularity>().is_err(), "{t}");
    }
    assert!(Sampler::new(0, Popularity::Uniform).is_none());
    assert!(Sampler::new(9, Popularity::Hotspot { keys: 2.0, requests: 0.5 }).is_none());
}
