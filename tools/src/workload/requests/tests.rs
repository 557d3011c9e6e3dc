use super::*;
use crate::workload::{Model, Popularity};

fn workload() -> Workload {
    Workload {
        keys: 1_000,
        mix: Mix {
            value_size: "1..100".parse().unwrap(),
            popularity: Popularity::Zipf(0.99),
            get_ratio: 0.9,
            ..Mix::default()
        },
        clients: Clients {
            count: 4,
            first: "10.0.0.1".parse().unwrap(),
            addresses: 2,
            first_port: 20_000,
        },
        seed: 1,
    }
}

fn with(change: impl FnOnce(&mut Workload)) -> Workload {
    let mut w = workload();
    change(&mut w);
    w
}

#[test]
fn one_seed_one_stream_and_ids_count_per_client() {
    let draw = |seed| {
        let mut r = Requests::new(with(|w| {
            w.seed = seed;
            w.mix.multi_get = 3;
        }))
        .unwrap();
        let mut all = Vec::new();
        let mut next = [0u16; 4];
        for _ in 0..200_000 {
            let Request { client, id, op } = r.next_request();
            assert_eq!(id, next[client as usize]);
            next[client as usize] = id.wrapping_add(1);
            all.push(match op {
                Op::Get(k) => {
                    assert!(k[0] != k[1] && k[1] != k[2] && k[0] != k[2]);
                    (client, k[0].index, 0)
                }
                Op::Set { key, version, .. } => (client, key.index, version),
                Op::Delete(_) => panic!("no workload deletes"),
            });
        }
        all
    };
    let (a, b, c) = (draw(7), draw(7), draw(8));
    assert_eq!(a, b);
    assert_ne!(a, c);
    let sets = a.iter().filter(|(.., v)| *v > 0).count();
    assert!((19_000..21_000).contains(&sets), "{sets}");
}

/// Gets, sets and the sum of the keys got, of so many requests of a model.
fn counts(model: Model, keys: u64, requests: u64) -> (u64, u64, u64) {
    let mut r = Requests::new(with(|w| (w.keys, w.mix) = (keys, model.mix()))).unwrap();
    let (mut gets, mut sets, mut asked) = (0, 0, 0);
    for _ in 0..requests {
        match r.next_request().op {
            Op::Get(k) => (gets, asked) = (gets + 1, asked + k.len() as u64),
            _ => sets += 1,
        }
    }
    (gets, sets, asked)
}

#[test]
fn models_mix_as_they_say() {
    for (model, share) in [
        (Model::Etc, 0.968),
        (Model::Usr, 0.998),
        (Model::Var, 0.18),
        (Model::YcsbA, 0.5),
        (Model::YcsbB, 0.95),
        (Model::YcsbC, 1.0),
        (Model::YcsbD, 0.95),
        (Model::YcsbE, 0.95),
        // A get, or a get and a set: two gets in three.
        (Model::YcsbF, 2.0 / 3.0),
    ] {
        let (gets, sets, asked) = counts(model, 100_000, 50_000);
        let got = gets as f64 / 50_000.0;
        assert_eq!(gets + sets, 50_000);
        assert!((got - share).abs() < 0.01, "{model:?}: {got}");
        let each = asked as f64 / gets as f64;
        let want = if model == Model::YcsbE { 50.5 } else { 1.0 };
        assert!((each - want).abs() < 1.0, "{model:?}: {each} keys per get");
    }
}

#[test]
fn a_modify_sets_what_the_same_client_has_just_read() {
    let mut r = Requests::new(with(|w| {
        (w.mix, w.mix.get_ratio) = (Model::YcsbF.mix(), 0.0);
    }))
    .unwrap();
    for _ in 0..1_000 {
        let Request { client, op: Op::Get(read), .. } = r.next_request() else { panic!() };
        let (reader, read) = (client, read[0]);
        let Request { client, op: Op::Set { key, .. }, .. } = r.next_request() else { panic!() };
        assert_eq!((client, key), (reader, read));
    }
}

#[test]
fn inserts_go_round_and_scans_read_in_a_row() {
    let mut r = Requests::new(with(|w| {
        (w.keys, w.mix) = (170, Model::YcsbE.mix());
    }))
    .unwrap();
    let mut inserted = 0;
    for _ in 0..5_000 {
        match r.next_request().op {
            Op::Get(k) => {
                assert!(k.windows(2).all(|w| w[1].index == (w[0].index + 1) % 170));
            }
            Op::Set { key, .. } => {
                assert_eq!(key.index, inserted % 170);
                inserted += 1;
            }
            Op::Delete(_) => panic!("no workload deletes"),
        }
    }
    assert!(inserted > 200);
}

#[test]
fn impossible_workloads_are_refused() {
    let bad = |change: &dyn Fn(&mut Workload)| Requests::new(with(change)).unwrap_err();
    assert_eq!(bad(&|w| w.keys = 0).to_string(), "a get of 1 different keys needs 1 to 0 keys");
    let short = bad(&|w| w.mix.key_size = Sizes::Fixed(1));
    assert!(matches!(short, WorkloadError::KeyNames { capacity: 64, .. }));
    for s in ["0", "16..251"] {
        let e = bad(&|w| w.mix.key_size = s.parse().unwrap());
        assert!(matches!(e, WorkloadError::KeySize(_)));
    }
    assert!(matches!(bad(&|w| w.mix.get_ratio = 1.1), WorkloadError::GetRatio(_)));
    assert!(matches!(bad(&|w| w.mix.multi_get = 1_001), WorkloadError::MultiGet { .. }));
}
