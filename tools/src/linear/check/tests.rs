use super::*;
use crate::linear::{Condition, Lifetime};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

const BUDGET: usize = 1_000_000;

fn op(process: u32, times: (u64, u64), call: Call, answer: Answer) -> Op {
    Op { process, call, answer, invoked: times.0, returned: times.1, lifetime: None }
}

fn set(value: &str) -> Call {
    Call::Store { condition: Condition::None, value: value.into(), flags: 0 }
}

fn store(condition: Condition, value: &str) -> Call {
    Call::Store { condition, value: value.into(), flags: 0 }
}

fn is(value: &str) -> Answer {
    Answer::Value { value: value.into(), flags: 0, cas: None }
}

fn is_with(value: &str, id: u64) -> Answer {
    Answer::Value { value: value.into(), flags: 0, cas: Some(id) }
}

fn append(value: &str) -> Call {
    Call::Join { front: false, value: value.into() }
}

const INCR: Call = Call::Count { up: true, by: 1 };
const DELETE: Call = Call::Delete { only: None };
use Answer::{Done, Exists, Lost, NotANumber, NotFound, NotStored, Number};

/// The history as given, and with the answer of its last operation changed to `wrong`: the one
/// must pass and the other must not, and that operation must be shown.
fn judge(good: &[Op], wrong: Answer) {
    assert_eq!(check(good, BUDGET), Verdict::Linearizable);
    let (last, rest) = good.split_last().unwrap();
    let bad: Vec<Op> = rest.iter().cloned().chain([Op { answer: wrong, ..last.clone() }]).collect();
    let Verdict::Violation(violation) = check(&bad, BUDGET) else { panic!("{bad:?} passed") };
    assert!(violation.window.contains(&bad[rest.len()]), "{violation}");
}

#[test]
fn a_stale_read_is_found() {
    let two = [op(0, (0, 1), set("a"), Done), op(0, (2, 3), set("b"), Done)];
    judge(&[&two[..], &[op(1, (4, 5), Call::Get, is("b"))]].concat(), is("a"));
    // While `b` is being stored both may be seen, and in one order only.
    let slow = [op(0, (0, 1), set("a"), Done), op(0, (2, 9), set("b"), Done)];
    let old = op(1, (3, 4), Call::Get, is("a"));
    judge(&[&slow[..], &[old, op(1, (5, 6), Call::Get, is("a"))]].concat(), is("c"));
    let new = op(1, (3, 4), Call::Get, is("b"));
    judge(&[&slow[..], &[new, op(2, (5, 6), Call::Get, is("b"))]].concat(), is("a"));
}

#[test]
fn a_lost_update_is_found() {
    let ops = [
        op(0, (0, 1), set("5"), Done),
        op(1, (2, 9), INCR, Number(6)),
        op(2, (3, 8), INCR, Number(7)),
    ];
    judge(&ops, Number(6));
    let then = [&ops[..], &[op(0, (10, 11), Call::Get, is("7"))]].concat();
    judge(&then, is("6"));
}

#[test]
fn a_cas_that_succeeds_twice_is_found() {
    let ops = [
        op(0, (0, 1), set("a"), Done),
        op(1, (2, 3), Call::Get, is_with("a", 7)),
        op(2, (2, 3), Call::Get, is_with("a", 7)),
        op(1, (4, 9), store(Condition::Unchanged(7), "b"), Done),
        op(2, (5, 8), store(Condition::Unchanged(7), "c"), Exists),
    ];
    judge(&ops, Done);
    judge(&[op(0, (0, 1), store(Condition::Unchanged(7), "b"), NotFound)], Done);
}

#[test]
fn an_id_names_one_version() {
    let ops = [
        op(0, (0, 1), set("a"), Done),
        op(0, (2, 3), Call::Get, is_with("a", 7)),
        op(1, (4, 5), set("a"), Done),
        op(0, (6, 7), Call::Get, is_with("a", 8)),
    ];
    judge(&ops, is_with("a", 7));
    // Nor may an unchanged item show another.
    judge(&[&ops[..], &[op(0, (8, 9), Call::Get, is_with("a", 8))]].concat(), is_with("a", 9));
    let touched = [op(1, (8, 9), Call::Touch, Done), op(0, (10, 11), Call::Get, is_with("a", 8))];
    judge(&[&ops[..], &touched[..]].concat(), is_with("a", 9));
}

#[test]
fn an_add_that_succeeds_twice_is_found() {
    let add = |value| store(Condition::Absent, value);
    judge(&[op(0, (0, 9), add("a"), Done), op(1, (1, 8), add("b"), NotStored)], Done);
    // Unless it was deleted between them.
    let deleted = [
        op(0, (0, 1), add("a"), Done),
        op(2, (2, 9), DELETE, Done),
        op(1, (3, 8), add("b"), Done),
        op(1, (10, 11), Call::Get, is("b")),
    ];
    judge(&deleted, NotFound);
}

#[test]
fn a_torn_append_is_found() {
    let ops = [
        op(0, (0, 1), set("x"), Done),
        op(1, (2, 9), append("ab"), Done),
        op(2, (3, 8), append("cd"), Done),
        op(0, (10, 11), Call::Get, is("xcdab")),
    ];
    for torn in ["xabc", "xacbd", "xab", "abxcd", "x"] {
        judge(&ops, is(torn));
    }
    let front = Call::Join { front: true, value: b"ab".to_vec() };
    let ops = [&ops[..1], &[op(1, (2, 9), front, Done), op(0, (10, 11), Call::Get, is("abx"))]];
    judge(&ops.concat(), is("xab"));
}

#[test]
fn each_verb_has_its_own_refusals() {
    let absent = |call, right, wrong| judge(&[op(0, (0, 1), call, right)], wrong);
    absent(Call::Get, NotFound, is(""));
    absent(DELETE, NotFound, Done);
    absent(Call::Touch, NotFound, Done);
    absent(INCR, NotFound, Number(1));
    absent(append("a"), NotStored, Done);
    absent(store(Condition::Present, "a"), NotStored, Done);
    let present = |call, right, wrong| {
        judge(&[op(0, (0, 1), set("a"), Done), op(0, (2, 3), call, right)], wrong);
    };
    present(store(Condition::Present, "b"), Done, NotStored);
    present(INCR, NotANumber, Number(1));
    present(Call::Touch, Done, NotFound);
    present(DELETE, Done, NotFound);
    present(Call::Delete { only: Some(3) }, Exists, Done);
    let nine = |call, right| [op(0, (0, 1), set("9"), Done), op(0, (2, 3), call, right)];
    judge(&nine(Call::Count { up: false, by: 10 }, Number(0)), Number(u64::MAX));
    // A number that got shorter keeps blanks in its place.
    let shorter = [
        op(0, (0, 1), set("10"), Done),
        op(0, (2, 3), Call::Count { up: false, by: 1 }, Number(9)),
        op(0, (4, 5), Call::Get, is("9 ")),
    ];
    judge(&shorter, is("90"));
}

#[test]
fn flags_belong_to_the_value() {
    let flagged = Call::Store { condition: Condition::None, value: b"a".to_vec(), flags: 3 };
    let with = |flags| Answer::Value { value: b"a".to_vec(), flags, cas: None };
    judge(&[op(0, (0, 1), flagged, Done), op(0, (2, 3), Call::Get, with(3))], with(0));
}

#[test]
fn what_expires_is_there_before_and_gone_behind() {
    let lives = |may_end, must_end| Some(Lifetime { may_end, must_end });
    let stored = Op { lifetime: lives(20, 40), ..op(0, (0, 1), set("a"), Done) };
    let get = |times, answer| op(1, times, Call::Get, answer);
    judge(&[stored.clone(), get((18, 19), is("a"))], NotFound);
    judge(&[stored.clone(), get((41, 42), NotFound)], is("a"));
    for answer in [is("a"), NotFound] {
        judge(&[stored.clone(), get((30, 31), answer)], is("b"));
    }
    // Once it was seen to be gone it stays so.
    judge(&[stored.clone(), get((30, 31), NotFound), get((32, 33), NotFound)], is("a"));
    // What is made of it goes when it did; who touches it says when, and who stores another.
    let append = [stored.clone(), op(0, (2, 3), append("b"), Done), get((41, 42), NotFound)];
    judge(&append, is("ab"));
    let touch = Op { lifetime: lives(50, 60), ..op(0, (10, 11), Call::Touch, Done) };
    judge(&[stored.clone(), touch, get((48, 49), is("a"))], NotFound);
    let gat = Op { lifetime: Some(Lifetime::NEVER), ..get((10, 11), is("a")) };
    judge(&[stored.clone(), gat, get((99, 100), is("a"))], NotFound);
    let again = [stored.clone(), op(0, (10, 11), set("c"), Done), get((99, 100), is("c"))];
    judge(&again, NotFound);
    // Two at once: the later one counts.
    let touch = Op { lifetime: lives(20, 30), ..op(0, (10, 20), Call::Touch, Done) };
    let gat = Op { lifetime: Some(Lifetime::NEVER), ..get((11, 19), is("a")) };
    let kept = Op { lifetime: Some(Lifetime::NEVER), ..stored.clone() };
    judge(&[kept, touch, gat, op(2, (99, 100), Call::Get, is("a"))], is("b"));
    // What may be evicted may be gone at any time, and comes back no more.
    let stored = Op { lifetime: lives(0, u64::MAX), ..op(0, (0, 1), set("a"), Done) };
    judge(&[stored.clone(), get((2, 3), is("a"))], is("b"));
    judge(&[stored, get((2, 3), NotFound), get((4, 5), NotFound)], is("a"));
}

#[test]
fn a_flush_takes_what_is_there() {
    let ops = [op(0, (0, 1), set("a"), Done), op(1, (2, 5), Call::Flush, Done)];
    let during = [&ops[..], &[op(2, (3, 4), Call::Get, is("a"))]].concat();
    judge(&during, is("b"));
    judge(&[&during[..], &[op(2, (6, 7), Call::Get, NotFound)]].concat(), is("a"));
}

#[test]
fn a_lost_command_may_have_happened_once_or_not() {
    let lost = |call| op(1, (2, u64::MAX), call, Lost);
    let five = op(0, (0, 1), set("5"), Done);
    for seen in ["5", "6"] {
        let ops = [five.clone(), lost(INCR), op(0, (3, 4), Call::Get, is(seen))];
        judge(&ops, is("7"));
    }
    // Once it was seen to have happened it stays so.
    let ops =
        [five, lost(INCR), op(0, (3, 4), Call::Get, is("6")), op(0, (5, 6), Call::Get, is("6"))];
    judge(&ops, is("5"));
}

#[test]
fn the_window_shows_who_wrote_the_stale_value() {
    let n = 50;
    let mut ops: Vec<Op> =
        (0..n).map(|i| op(0, (10 * i, 10 * i + 1), set(&format!("<{i}>")), Done)).collect();
    ops.push(op(1, (1_000, 1_001), Call::Get, is("<7>")));
    ops.push(op(1, (1_002, 1_003), Call::Get, is("<49>")));
    let Verdict::Violation(v) = check(&ops, BUDGET) else { panic!() };
    assert_eq!(v.window.last().unwrap().returned, 1_001, "the first wrong answer, not the last");
    assert!(v.window.contains(&ops[7]) && v.window.contains(&ops[49]), "{v}");
    assert!(v.window.len() < 8 && v.stuck_at.contains("<49>"), "{v}");
}

#[test]
fn no_time_is_no_verdict() {
    let ops = [op(0, (0, 1), set("a"), Done), op(0, (2, 3), set("b"), Done)];
    assert_eq!(check(&ops, 1), Verdict::Undecided);
}

/// Every order of the operations, tried one by one; with `times`, each at a time of its own, no earlier than those
/// before it, at which the item is gone or is not.
fn explained_by_brute_force(ops: &[Op], times: bool) -> bool {
    struct Search<'a> {
        steps: Vec<(Step, &'a Op)>,
        left: Vec<usize>,
        shown: Vec<u64>,
        values: Values,
        times: bool,
    }
    fn go(s: &mut Search<'_>, state: State, since: u64) -> bool {
        if s.left.iter().all(|i| s.steps[*i].1.answer == Lost) {
            return true;
        }
        for at in 0..s.left.len() {
            let n = s.left[at];
            let (step, op) = s.steps[n];
            let ended = |other: &usize| s.steps[*other].1.returned < op.invoked;
            if s.left.iter().any(ended) || op.returned < since {
                continue;
            }
            let since = if s.times { since.max(op.invoked) } else { 0 };
            // What is there now, and what is when it is gone.
            let lifetime =
                state.map(|item| item.lifetime).filter(|lifetime| *lifetime != Lifetime::NEVER);
            let there = lifetime
                .is_none_or(|lifetime| since <= lifetime.must_end)
                .then_some((state, since));
            let gone = lifetime
                .map(|lifetime| (None, if s.times { since.max(lifetime.may_end) } else { 0 }));
            for (state, since) in [there, gone].into_iter().flatten() {
                let taken = |id| s.shown.contains(&id);
                if op.returned < since {
                    continue;
                }
                let Some(after) = step.apply_to(state, &mut s.values, &taken) else { continue };
                s.left.remove(at);
                s.shown.extend(step.shows_cas());
                let found = go(s, after, since);
                if step.shows_cas().is_some() {
                    s.shown.pop();
                }
                s.left.insert(at, n);
                if found {
                    return true;
                }
            }
        }
        false
    }
    let mut values = Values::default();
    // What only looks and was not answered is no operation.
    let looks = |op: &&Op| op.lifetime.is_none() && matches!(op.call, Call::Get | Call::Touch);
    let ops = ops.iter().filter(|op| op.answer != Lost || !looks(op));
    let steps: Vec<_> = ops.map(|op| (Step::new(op, &mut values), op)).collect();
    let left = (0..steps.len()).collect();
    go(&mut Search { steps, left, shown: Vec::new(), values, times }, None, 0)
}

#[test]
fn agrees_with_brute_force_on_small_histories() {
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
    let (mut verdicts, mut generous) = ([0; 2], 0);
    for _ in 0..20_000 {
        let mut clock = [0; 3];
        let ops: Vec<Op> = (0..rng.random_range(2..7))
            .map(|_| {
                let process = rng.random_range(0..3u32);
                let at = &mut clock[process as usize];
                let invoked = *at + rng.random_range(1..4);
                let returned = invoked + rng.random_range(1..8);
                *at = returned;
                let id = rng.random_range(1..3);
                let value = ["1", "2"][rng.random_range(0..2)];
                let (call, answers) = match rng.random_range(0..9) {
                    0 => (set(value), vec![Done]),
                    1 => (store(Condition::Absent, value), vec![Done, NotStored]),
                    2 => (store(Condition::Unchanged(id), value), vec![Done, Exists, NotFound]),
                    3 => (INCR, vec![Number(2), Number(3), NotFound]),
                    4 => (DELETE, vec![Done, NotFound]),
                    5 => (append("1"), vec![Done, NotStored]),
                    6 => (Call::Flush, vec![Done]),
                    _ => (Call::Get, vec![is("1"), is("2"), is_with(value, id), NotFound]),
                };
                let answer = answers[rng.random_range(0..answers.len())].clone();
                let may_end = rng.random_range(0..12);
                let must_end = may_end + rng.random_range(0..12);
                let lifetime = match rng.random_range(0..6) {
                    0 => Some(Lifetime { may_end, must_end }),
                    1 => Some(Lifetime::NEVER),
                    _ => None,
                };
                Op { lifetime, ..op(process, (invoked, returned), call, answer) }
            })
            .collect();
        let mut ops = ops;
        // Now and then a process's last answer does not come.
        if let Some(last) = ops.last_mut().filter(|_| rng.random_ratio(1, 8)) {
            (last.answer, last.returned) = (Lost, u64::MAX);
        }
        let found = check(&ops, BUDGET) == Verdict::Linearizable;
        // It looks at times when an item may have gone, but not at what they mean for each other.
        let [by_times, by_order] = [true, false].map(|t| explained_by_brute_force(&ops, t));
        assert!(found >= by_times && found <= by_order, "{ops:#?}");
        verdicts[usize::from(found)] += 1;
        generous += u32::from(found != by_times);
    }
    assert!(verdicts.iter().all(|n| *n > 1_000), "both verdicts are tried: {verdicts:?}");
    assert!(generous < verdicts[1] / 20, "{generous} of {verdicts:?}");
}
