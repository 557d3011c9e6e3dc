//! The search: is there an order of one key's operations that explains every answer?
//!
//! Wing and Gong's search with Lowe's memory of configurations already tried (1993, 2017). As each
//! process has one request at a time, what has been put in order so far is a number per process.
//! An operation that only looks, and sees the present state, is taken at once: in every order that
//! explains the rest it could as well stand first. Fails: `Undecided` when the budget of
//! configurations is spent.

use super::model::{Answer, Call, Op, State, Step, Values};
use std::collections::{HashMap, HashSet};

/// What the search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// There is such an order.
    Linearizable,
    /// There is none.
    Violation(Violation),
    /// There was no time to find out.
    Undecided,
}

/// The shortest beginning of a history that no order explains.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The operations that decide: the one whose answer nothing explains comes last; with it
    /// those under way at the same time, those last put in order, and the calls that wrote what it saw.
    pub window: Vec<Op>,
    /// The item where the search got furthest, in words.
    pub stuck_at: String,
}

/// Operations before the window that are shown with it.
const CONTEXT_OPS: usize = 3;

/// Checks one key's operations, in any order, against an item that is absent at first. Tries at
/// most `budget` configurations.
pub fn check(ops: &[Op], budget: usize) -> Verdict {
    check_counting(ops, budget).0
}

/// The same, and how many of the answers show an item that was gone by itself.
pub fn check_counting(ops: &[Op], budget: usize) -> (Verdict, usize) {
    match Search::new(ops).run(budget) {
        Found::Order { ended } => (Verdict::Linearizable, ended),
        Found::Nothing { .. } => (shortest(ops, budget), 0),
        Found::OutOfBudget => (Verdict::Undecided, 0),
    }
}

/// The shortest beginning that cannot be explained, by bisection over the answers' times: what is
/// impossible at one time is impossible ever after.
fn shortest(ops: &[Op], budget: usize) -> Verdict {
    let mut times: Vec<u64> = ops.iter().map(|op| op.returned).filter(|t| *t < u64::MAX).collect();
    times.sort_unstable();
    let (mut low, mut high) = (0, times.len().saturating_sub(1));
    while low < high {
        let middle = low.midpoint(high);
        match Search::new(&until(ops, times[middle])).run(budget) {
            Found::Order { .. } => low = middle + 1,
            Found::Nothing { .. } => high = middle,
            Found::OutOfBudget => return Verdict::Undecided,
        }
    }
    let Some(end) = times.get(low) else { return Verdict::Undecided };
    let beginning = until(ops, *end);
    match Search::new(&beginning).run(budget) {
        Found::Nothing { open_since, stuck_at } => {
            Verdict::Violation(Violation { window: window(&beginning, *end, open_since), stuck_at })
        }
        Found::Order { .. } | Found::OutOfBudget => Verdict::Undecided,
    }
}

/// The history as it was at `end`: later answers have not come yet.
fn until(ops: &[Op], end: u64) -> Vec<Op> {
    let known = ops.iter().filter(|op| op.invoked <= end);
    known
        .map(|op| match op.returned <= end {
            true => op.clone(),
            false => Op { answer: Answer::Lost, returned: u64::MAX, ..op.clone() },
        })
        .collect()
}

/// The operations to show: see [`Violation::window`].
fn window(ops: &[Op], end: u64, open_since: u64) -> Vec<Op> {
    let Some(last) = ops.iter().find(|op| op.returned == end) else { return Vec::new() };
    let begin = open_since.min(last.invoked);
    let wrote = |op: &Op| match (&op.call, &last.answer) {
        (
            Call::Store { value: new, .. } | Call::Join { value: new, .. },
            Answer::Value { value, .. },
        ) => !new.is_empty() && value.windows(new.len()).any(|part| part == new),
        _ => false,
    };
    let mutates = |op: &Op| op.call != Call::Get || op.lifetime.is_some();
    let mut before: Vec<&Op> = ops.iter().filter(|op| op.returned < begin && mutates(op)).collect();
    before.sort_by_key(|op| op.returned);
    let from = before.len().saturating_sub(CONTEXT_OPS);
    let context = before[from..].first().map_or(begin, |op| op.returned);
    let mut window: Vec<Op> = ops
        .iter()
        .filter(|op| op.returned >= begin || (mutates(op) && op.returned >= context) || wrote(op))
        .cloned()
        .collect();
    window.sort_by_key(|op| (op.returned == end, op.invoked));
    window
}

enum Found {
    Order {
        /// Items that were gone by themselves.
        ended: usize,
    },
    Nothing {
        /// Since when an operation had waited for its place where the search got furthest.
        open_since: u64,
        stuck_at: String,
    },
    OutOfBudget,
}

/// One operation of one process.
struct Entry {
    step: Step,
    invoked: u64,
    returned: u64,
}

/// What may come next, the state then, and whether the item was gone by itself.
type Move = (usize, State, bool);

/// A point of the search: what may come next there, and how much of it was tried.
struct Frame {
    state: State,
    moves: Vec<Move>,
    tried: usize,
}

struct Search {
    /// In the order asked, one list a process.
    processes: Vec<Vec<Entry>>,
    values: Values,
    /// How many operations of each process have been put in order.
    done: Vec<usize>,
    /// How many of these have shown each CAS id.
    shown: HashMap<u64, u32>,
    /// Answered operations not put in order yet.
    open: usize,
}

impl Search {
    fn new(ops: &[Op]) -> Self {
        let mut values = Values::default();
        let mut numbers = HashMap::new();
        let mut processes: Vec<Vec<Entry>> = Vec::new();
        let mut sorted: Vec<&Op> = ops.iter().collect();
        sorted.sort_by_key(|op| op.invoked);
        for op in sorted {
            let looks = matches!(op.call, Call::Get | Call::Touch) && op.lifetime.is_none();
            if op.answer == Answer::Lost && looks {
                continue; // Neither seen nor felt.
            }
            let next = processes.len();
            let n = *numbers.entry(op.process).or_insert(next);
            if n == next {
                processes.push(Vec::new());
            }
            let step = Step::new(op, &mut values);
            processes[n].push(Entry { step, invoked: op.invoked, returned: op.returned });
        }
        let done = vec![0; processes.len()];
        let open = processes.iter().flatten().filter(|e| e.returned < u64::MAX).count();
        Self { processes, values, done, shown: HashMap::new(), open }
    }

    fn run(mut self, budget: usize) -> Found {
        let mut tried: HashSet<(Box<[usize]>, State)> = HashSet::new();
        let (mut fewest_open, mut open_since, mut stuck_at) = (usize::MAX, 0, None);
        let mut spent = 0;
        let mut path = vec![Frame { state: None, moves: self.moves(None), tried: 0 }];
        while self.open > 0 {
            let Some(frame) = path.last_mut() else {
                let stuck_at = self.values.show(stuck_at.flatten());
                return Found::Nothing { open_since, stuck_at };
            };
            if self.open < fewest_open {
                (fewest_open, stuck_at) = (self.open, Some(frame.state));
                open_since = next_of(&self.processes, &self.done)
                    .filter(|(_, e)| e.returned < u64::MAX)
                    .map(|(_, e)| e.invoked)
                    .min()
                    .unwrap_or(0);
            }
            let Some((process, state, _)) = frame.moves.get(frame.tried).copied() else {
                path.pop();
                if let Some((process, ..)) = path.last().map(|f| f.moves[f.tried - 1]) {
                    self.take_back(process);
                }
                continue;
            };
            frame.tried += 1;
            let fork = frame.moves.len() > 1;
            self.put(process);
            if fork && !tried.insert((self.done.as_slice().into(), state)) {
                self.take_back(process);
                continue;
            }
            spent += 1;
            if spent > budget {
                return Found::OutOfBudget;
            }
            path.push(Frame { state, moves: self.moves(state), tried: 0 });
        }
        let ended = |frame: &&Frame| frame.tried.checked_sub(1).is_some_and(|n| frame.moves[n].2);
        Found::Order { ended: path.iter().filter(ended).count() }
    }

    /// What may come next in `state`, the first answered first.
    fn moves(&mut self, state: State) -> Vec<Move> {
        let Self { processes, values, done, shown, .. } = self;
        // A call that was answered before another was sent comes before it.
        let limit = next_of(processes, done).map(|(_, e)| e.returned).min().unwrap_or(u64::MAX);
        let mut moves = Vec::new();
        for (process, entry) in next_of(processes, done).filter(|(_, e)| e.invoked <= limit) {
            let taken = |id| shown.get(&id).is_some_and(|n| *n > 0);
            let afters = entry.step.apply(state, values, taken);
            for (after, ended) in afters.into_iter().zip([false, true]) {
                let Some(after) = after else { continue };
                if after == state && entry.step.only_looks() {
                    return vec![(process, after, false)];
                }
                // Lost and of no effect here is as good as not having happened yet.
                if after != state || entry.returned < u64::MAX {
                    moves.push((process, after, ended));
                }
            }
        }
        moves.sort_by_key(|(process, ..)| processes[*process][done[*process]].returned);
        moves
    }

    fn put(&mut self, process: usize) {
        let entry = &self.processes[process][self.done[process]];
        self.done[process] += 1;
        self.open -= usize::from(entry.returned < u64::MAX);
        if let Some(id) = entry.step.shows_cas() {
            *self.shown.entry(id).or_default() += 1;
        }
    }

    fn take_back(&mut self, process: usize) {
        self.done[process] -= 1;
        let entry = &self.processes[process][self.done[process]];
        self.open += usize::from(entry.returned < u64::MAX);
        if let Some(n) = entry.step.shows_cas().and_then(|id| self.shown.get_mut(&id)) {
            *n -= 1;
        }
    }
}

/// The next operation of each process that has one left.
fn next_of<'a>(
    processes: &'a [Vec<Entry>],
    done: &'a [usize],
) -> impl Iterator<Item = (usize, &'a Entry)> {
    let next = processes.iter().zip(done).enumerate();
    next.filter_map(|(n, (entries, done))| Some((n, entries.get(*done)?)))
}

#[cfg(test)]
mod tests;
