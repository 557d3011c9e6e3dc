//! When which connection is to be looked at next, though nothing came for it.
//!
//! In: a deadline per connection, set as often as one likes. Out: connections whose time has come. A
//! hashed timing wheel (Varghese and Lauck, 1987) of one lap: what lies further ahead waits in the
//! last place and goes round again. Each connection stands in one place at most, in a list whose
//! links are an array by connection, so that memory is fixed. A deadline that moves later is only
//! written down: the entry finds out when its old time has come. Nothing fails.

/// Nanoseconds of one place: well below a delayed acknowledgement and the least retransmission time.
const TICK_NS: u64 = 1 << 20;
/// Places, a power of two: half a second.
const PLACES: usize = 512;
const NONE: u32 = u32::MAX;

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// When it is due, in nanoseconds. `u64::MAX`: never.
    due_ns: u64,
    /// The place where it stands.
    place: u32,
    next: u32,
    before: u32,
}

const IDLE: Entry = Entry { due_ns: u64::MAX, place: NONE, next: NONE, before: NONE };

/// The timers of all connections of a worker.
#[derive(Debug)]
pub(super) struct Wheel {
    entries: Box<[Entry]>,
    heads: Box<[u32; PLACES]>,
    /// The tick up to which everything was given out.
    done: u64,
}

impl Wheel {
    /// For connections 0 to `connections` - 1, none of which has a deadline.
    pub(super) fn new(connections: usize) -> Self {
        let heads = Box::new([NONE; PLACES]);
        Self { entries: vec![IDLE; connections].into(), heads, done: 0 }
    }

    /// Sets when `connection` is due, instead of what was set before. `None`: never.
    pub(super) fn set(&mut self, connection: u32, due_ns: Option<u64>) {
        let due_ns = due_ns.unwrap_or(u64::MAX);
        let Some(entry) = self.entries.get_mut(connection as usize) else { return };
        let earlier = due_ns < entry.due_ns;
        entry.due_ns = due_ns;
        if entry.place != NONE && earlier {
            self.unlink(connection);
            self.link(connection, due_ns);
        } else if entry.place == NONE && due_ns != u64::MAX {
            self.link(connection, due_ns);
        }
    }

    /// Makes `by` the first of a place, and gives what was.
    fn replace_head(&mut self, place: usize, by: u32) -> u32 {
        self.heads.get_mut(place).map_or(NONE, |head| std::mem::replace(head, by))
    }

    fn link(&mut self, connection: u32, due_ns: u64) {
        let first = self.done + 1;
        let tick = (due_ns / TICK_NS + 1).clamp(first, self.done + PLACES as u64 - 1);
        let place = usize::try_from(tick).unwrap_or(0) % PLACES;
        let head = self.replace_head(place, connection);
        if let Some(entry) = self.entries.get_mut(connection as usize) {
            entry.place = u32::try_from(place).unwrap_or(0);
            (entry.next, entry.before) = (head, NONE);
        }
        if let Some(next) = self.entries.get_mut(head as usize) {
            next.before = connection;
        }
    }

    fn unlink(&mut self, connection: u32) {
        let Some(entry) = self.entries.get_mut(connection as usize) else { return };
        let Entry { place, next, before, .. } = *entry;
        entry.place = NONE;
        if let Some(next) = self.entries.get_mut(next as usize) {
            next.before = before;
        }
        match self.entries.get_mut(before as usize) {
            Some(before) => before.next = next,
            None => {
                if let Some(head) = self.heads.get_mut(place as usize) {
                    *head = next;
                }
            }
        }
    }

    /// Gives `due` every connection whose time has come by `now_ns`. It is not due again until it is
    /// set again.
    pub(super) fn advance(&mut self, now_ns: u64, mut due: impl FnMut(u32)) {
        let now = now_ns / TICK_NS;
        // After a long pause one lap sees everything.
        self.done = self.done.max(now.saturating_sub(PLACES as u64));
        while self.done < now {
            self.done += 1;
            let place = usize::try_from(self.done).unwrap_or(0) % PLACES;
            let mut at = self.replace_head(place, NONE);
            while let Some(entry) = self.entries.get_mut(at as usize) {
                let (connection, due_ns) = (at, entry.due_ns);
                at = entry.next;
                entry.place = NONE;
                if due_ns <= now_ns {
                    entry.due_ns = u64::MAX;
                    due(connection);
                } else if due_ns != u64::MAX {
                    self.link(connection, due_ns);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    fn due(wheel: &mut Wheel, now_ns: u64) -> Vec<u32> {
        let mut all = Vec::new();
        wheel.advance(now_ns, |c| all.push(c));
        all.sort_unstable();
        all
    }

    #[test]
    fn deadlines_move_both_ways_and_far() {
        let mut w = Wheel::new(4);
        w.set(0, Some(10 * MS));
        w.set(1, Some(20 * MS));
        w.set(2, Some(5_000 * MS));
        w.set(3, Some(10 * MS));
        w.set(3, None);
        // Later, then earlier.
        w.set(1, Some(400 * MS));
        w.set(1, Some(30 * MS));
        assert_eq!(due(&mut w, 9 * MS), []);
        assert_eq!(due(&mut w, 12 * MS), [0]);
        assert_eq!(due(&mut w, 29 * MS), []);
        assert_eq!(due(&mut w, 32 * MS), [1]);
        assert_eq!(due(&mut w, 4_999 * MS), []);
        assert_eq!(due(&mut w, 5_002 * MS), [2]);
        assert_eq!(due(&mut w, 90_000 * MS), []);
    }

    proptest! {
        /// No deadline is missed by more than two ticks, none comes early, and none comes twice.
        #[test]
        fn is_as_good_as_looking_at_all(
            sets in prop::collection::vec((0_u32..8, prop::option::of(0_u64..3_000), 0_u64..700), 1..200)
        ) {
            let (mut wheel, mut model, mut now) = (Wheel::new(8), [None; 8], 0);
            for (connection, after_ms, step_ms) in sets {
                let at = after_ms.map(|ms| now + ms * MS);
                wheel.set(connection, at);
                model[connection as usize] = at;
                now += step_ms * MS;
                for c in due(&mut wheel, now) {
                    let at = model[c as usize].take();
                    prop_assert!(at.is_some_and(|at| at <= now));
                }
                let late = |at: u64| now >= at + 2 * TICK_NS;
                prop_assert!(!model.iter().flatten().any(|&at| late(at)), "{model:?} at {now}");
            }
        }
    }
}
