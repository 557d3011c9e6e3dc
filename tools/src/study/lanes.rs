//! Threads made warps of some width again: what lanes do together, and in which order.
//!
//! In: what each thread of a launch did, as the executor records it. Out: for each warp its turns: a basic
//! block or an access to memory, and the lanes that take part. Lanes part at a branch and meet again at its
//! immediate post-dominator, as in the ISPASS paper's simulators (PDOM); the control flow graph is what threads
//! were seen to do. Nothing is run again: votes and shuffles stay what they were among 32 lanes. Cannot fail.

use gpu::simt::Event;
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Lanes of the warps that kernels are written for.
pub const WARP: u32 = 32;
/// Bytes of a sector.
pub const SECTOR_BYTES: u64 = 32;

/// What lanes of a warp did together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    /// How many lanes.
    pub lanes: u32,
    /// Of an access, what it was: see [`Event`].
    pub access: u32,
    /// The sectors of an access, in order, each once; none: a basic block.
    pub sectors: Vec<u64>,
}

/// A warp's turns, in order.
#[derive(Debug, PartialEq, Eq)]
pub struct Warp {
    /// Its block.
    pub block: u32,
    /// What it did.
    pub turns: Vec<Turn>,
}

/// The warps of one launch, if each is of `width` threads: block by block.
pub fn warps(events: &[Event], width: u32) -> Vec<Warp> {
    let mut threads: BTreeMap<(u32, u32), Vec<Event>> = BTreeMap::new();
    for event in events {
        threads.entry((event.block, event.thread)).or_default().push(*event);
    }
    let meet = Meet::of(threads.values());
    let mut all: BTreeMap<(u32, u32), Vec<Lane>> = BTreeMap::new();
    for ((block, thread), events) in threads {
        all.entry((block, warp_of(thread, width))).or_default().push(Lane { events, next: 0 });
    }
    let turns = |mut lanes: Vec<Lane>| {
        let (mut turns, those) = (Vec::new(), (0..lanes.len()).collect());
        together(&mut lanes, those, START, END, &meet, &mut turns);
        turns
    };
    all.into_iter().map(|((block, _), lanes)| Warp { block, turns: turns(lanes) }).collect()
}

/// The warp that a thread of a block is in. One of more than [`WARP`] lanes joins warps of one role: of the
/// kernels that look things up every other warp is a helper.
fn warp_of(thread: u32, width: u32) -> u32 {
    let joined = width / WARP;
    if joined < 2 {
        return thread / width.max(1);
    }
    let warp = thread / WARP;
    warp / 2 / joined * 2 + warp % 2
}

/// A thread, and which of its events comes next.
struct Lane {
    events: Vec<Event>,
    next: usize,
}

impl Lane {
    fn place(&self) -> u64 {
        self.events.get(self.next).map_or(END, |event| event.place)
    }
}

/// Lanes go on from the place `last` until each is at `stop`.
fn together(
    lanes: &mut [Lane],
    those: Vec<usize>,
    mut last: u64,
    stop: u64,
    meet: &Meet,
    turns: &mut Vec<Turn>,
) {
    loop {
        let mut at: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for &i in &those {
            let place = lanes.get(i).map_or(END, Lane::place);
            if place != stop && place != END {
                at.entry(place).or_default().push(i);
            }
        }
        if at.len() > 1 {
            let next = meet.after(last);
            for those in at.into_values() {
                together(lanes, those, last, next, meet, turns);
            }
            continue;
        }
        let Some((place, those)) = at.pop_first() else { return };
        let mut turn = Turn { lanes: 0, access: 0, sectors: Vec::new() };
        for i in those {
            let Some(lane) = lanes.get_mut(i) else { continue };
            let Some(event) = lane.events.get(lane.next) else { continue };
            lane.next += 1;
            turn.lanes += 1;
            turn.access = event.access;
            if event.bytes > 0 {
                let end = event.at + u64::from(event.bytes) - 1;
                turn.sectors.extend(event.at / SECTOR_BYTES..=end / SECTOR_BYTES);
            }
        }
        turn.sectors.sort_unstable();
        turn.sectors.dedup();
        turns.push(turn);
        last = place;
    }
}

/// Before every thread's first place, and behind its last one.
const START: u64 = 0;
const END: u64 = u64::MAX;

/// Where lanes that part behind a place meet again: its immediate post-dominator.
struct Meet(HashMap<u64, u64>);

impl Meet {
    /// Of the control flow that these threads show.
    fn of<'a>(threads: impl Iterator<Item = &'a Vec<Event>>) -> Self {
        let mut behind: HashMap<u64, BTreeSet<u64>> = HashMap::new();
        let mut before: HashMap<u64, BTreeSet<u64>> = HashMap::new();
        for events in threads {
            let mut last = START;
            for place in events.iter().map(|event| event.place).chain([END]) {
                behind.entry(last).or_default().insert(place);
                before.entry(place).or_default().insert(last);
                last = place;
            }
        }
        // From the end backwards, each place after all that are reached through it.
        let (mut order, mut seen) = (Vec::new(), BTreeSet::from([END]));
        let mut way = vec![(END, before.get(&END).into_iter().flatten())];
        while let Some((place, rest)) = way.last_mut() {
            match rest.next() {
                Some(next) if seen.insert(*next) => {
                    way.push((*next, before.get(next).into_iter().flatten()));
                }
                Some(_) => {}
                None => {
                    order.push(*place);
                    way.pop();
                }
            }
        }
        order.reverse();
        // Cooper, Harvey, Kennedy: A Simple, Fast Dominance Algorithm, on the graph turned round.
        let number: HashMap<u64, usize> = order.iter().copied().zip(0..).collect();
        let mut meet: Vec<Option<usize>> = vec![None; order.len()];
        if let Some(end) = meet.first_mut() {
            *end = Some(0);
        }
        let mut changed = true;
        while changed {
            changed = false;
            for (at, place) in order.iter().enumerate().skip(1) {
                let next = behind.get(place).into_iter().flatten().filter_map(|p| number.get(p));
                let known = next.copied().filter(|n| meet.get(*n).is_some_and(Option::is_some));
                let new = known.reduce(|a, b| common(&meet, a, b));
                if let Some(old) = meet.get_mut(at).filter(|old| **old != new) {
                    *old = new;
                    changed = true;
                }
            }
        }
        let place = |(at, next): (&u64, &Option<usize>)| Some((*at, *order.get((*next)?)?));
        Self(order.iter().zip(&meet).filter_map(place).collect())
    }

    fn after(&self, place: u64) -> u64 {
        self.0.get(&place).copied().unwrap_or(END)
    }
}

/// The nearest place behind both: numbers grow with the distance from the end.
fn common(meet: &[Option<usize>], mut a: usize, mut b: usize) -> usize {
    while a != b {
        let further = if a > b { &mut a } else { &mut b };
        *further = meet.get(*further).copied().flatten().unwrap_or(0);
    }
    a
}

/// What warps did, as [`gpu::simt::WatchCounts`] counts it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sums {
    /// Basic blocks that warps entered.
    pub steps: u64,
    /// Lanes that entered them.
    pub lanes: u64,
    /// Loads and stores of warps.
    pub accesses: u64,
    /// Sectors of 32 bytes that these touched.
    pub sectors: u64,
}

/// The sums of these warps.
pub fn sums(warps: &[Warp]) -> Sums {
    let mut sums = Sums::default();
    for turn in warps.iter().flat_map(|warp| &warp.turns) {
        if turn.sectors.is_empty() {
            sums.steps += 1;
            sums.lanes += u64::from(turn.lanes);
        } else {
            sums.accesses += 1;
            sums.sectors += turn.sectors.len() as u64;
        }
    }
    sums
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::kernels::Case;

    fn step(thread: u32, place: u64) -> Event {
        Event { thread, place, ..Event::default() }
    }

    fn load(thread: u32, place: u64, at: u64, bytes: u32) -> Event {
        Event { thread, place, at, bytes, ..Event::default() }
    }

    #[test]
    fn lanes_that_come_to_one_place_take_part_together() {
        // Lane 0 goes 1, 2, 4 and lane 1 goes 1, 3, 4; then both load 4 bytes, in one sector and in two.
        let events = [
            [step(0, 1), step(0, 2), step(0, 4), load(0, 5, 28, 4), load(0, 6, 30, 4)],
            [step(1, 1), step(1, 3), step(1, 4), load(1, 5, 24, 4), load(1, 6, 0, 4)],
        ];
        let warps = warps(&events.concat(), 32);
        let turn = |lanes, sectors: &[u64]| Turn { lanes, access: 0, sectors: sectors.to_vec() };
        let turns = [
            turn(2, &[]),
            turn(1, &[]),
            turn(1, &[]),
            turn(2, &[]),
            turn(2, &[0]),
            turn(2, &[0, 1]),
        ];
        assert_eq!(warps, [Warp { block: 0, turns: turns.to_vec() }]);
        assert_eq!(sums(&warps), Sums { steps: 4, lanes: 6, accesses: 2, sectors: 3 });
        // Of one thread each: nothing is together.
        assert_eq!(sums(&super::warps(&events.concat(), 1)).steps, 6);
    }

    fn lanes_at_work(threads: &[&[u64]]) -> Vec<u32> {
        let thread = |(i, places): (u32, &&[u64])| {
            places.iter().map(|place| step(i, *place)).collect::<Vec<_>>()
        };
        let events: Vec<Event> = (0..).zip(threads).flat_map(thread).collect();
        warps(&events, 32).iter().flat_map(|warp| &warp.turns).map(|turn| turn.lanes).collect()
    }

    #[test]
    fn lanes_meet_behind_a_branch_in_each_round_of_a_loop() {
        // Head 1, body 2 in the first and third round or the second and third, latch 3, and 4 behind it.
        let one = [1, 2, 3, 1, 3, 1, 2, 3, 4];
        let two = [1, 3, 1, 2, 3, 1, 2, 3, 4];
        assert_eq!(lanes_at_work(&[&one, &two]), [2, 1, 2, 2, 1, 2, 2, 2, 2, 2]);
    }

    #[test]
    fn who_leaves_a_loop_waits_behind_it() {
        // One round, two, and three.
        let (one, two, three) = ([1, 2, 3], [1, 2, 1, 2, 3], [1, 2, 1, 2, 1, 2, 3]);
        assert_eq!(lanes_at_work(&[&one, &two, &three]), [3, 3, 2, 2, 1, 1, 3]);
    }

    #[test]
    fn branches_within_branches_meet_inside_first() {
        // 1 to 2 or 7; 2 to 3 or 4, which meet at 5; all at 8. And 9 ends a thread early.
        let threads: [&[u64]; 4] = [&[1, 2, 3, 5, 8], &[1, 2, 4, 5, 8], &[1, 7, 8], &[1, 9]];
        assert_eq!(lanes_at_work(&threads[..3]), [3, 2, 1, 1, 2, 1, 3]);
        // Then 8 is no longer where all meet, and each branch goes to its end.
        assert_eq!(lanes_at_work(&threads), [4, 2, 1, 1, 2, 2, 1, 1, 1]);
    }

    #[test]
    fn at_the_executors_width_the_sums_are_near_the_executors() {
        for setassoc in [true, false] {
            let case = Case { lengths: &[16, 64], ..Case::plain(setassoc) };
            let done = case.run(1, true).unwrap();
            let (sums, counted) = (sums(&warps(&done.gets, 32)), done.counts);
            // The executor's lanes are together when they come to a place for the same time, these when
            // they met before: the turns differ a little, what each lane does cannot.
            assert_eq!(sums.lanes, counted.lanes);
            let is_near = |mine: u64, counted: u64| mine.abs_diff(counted) * 20 < counted;
            assert!(is_near(sums.steps, counted.steps), "{sums:?} {counted:?}");
            assert!(is_near(sums.accesses, counted.accesses), "{sums:?} {counted:?}");
            assert!(is_near(sums.sectors, counted.sectors), "{sums:?} {counted:?}");
        }
    }

    #[test]
    fn wide_warps_join_those_of_one_role() {
        let of = |width| [0, 31, 32, 64, 95, 96, 128, 255].map(|thread| warp_of(thread, width));
        assert_eq!(of(16), [0, 1, 2, 4, 5, 6, 8, 15]);
        assert_eq!(of(32), [0, 0, 1, 2, 2, 3, 4, 7]);
        assert_eq!(of(64), [0, 0, 1, 0, 0, 1, 2, 3]);
        assert_eq!(of(128), [0, 0, 1, 0, 0, 1, 0, 1]);
    }

    #[test]
    fn narrow_warps_lose_fewer_lanes_and_issue_more() {
        let done = Case { lengths: &[16, 32, 64, 128], ..Case::plain(true) }.run(1, true).unwrap();
        let of = |width: u32| sums(&warps(&done.gets, width));
        for (narrow, wide) in [(8, 16), (16, 32), (32, 64)] {
            let (a, b) = (of(narrow), of(wide));
            assert_eq!(a.lanes, b.lanes);
            assert!(a.steps > b.steps && a.steps * u64::from(narrow) < b.steps * u64::from(wide));
            assert!(a.accesses > b.accesses && a.sectors >= b.sectors, "{a:?} {b:?}");
        }
    }
}
