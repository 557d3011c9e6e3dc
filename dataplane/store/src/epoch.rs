//! Epochs: when may memory that readers might still see be used again?
//!
//! In: participants that pin and unpin, and stamps of things taken out of sight. Out: a
//! safe epoch; whatever was stamped before it is visible to no reader any more. Nothing here waits,
//! allocates after start-up or fails, but for a participant too many.
//!
//! ```text
//! reader                       writer                         reclaimer
//! pin:  e = global             take it out of sight           advance: global += 1
//!       slot = e               stamp: fence                   safe epoch:
//!       fence                         r = global                min(global, pinned slots)
//! look at memory               hand over, with a lock         reuse what has r < safe epoch
//! unpin: slot = idle
//! ```
//!
//! Why that is enough, for a reader R and a thing stamped `r` and found below the safe epoch. If the
//! writer's fence comes before R's, R sees that the thing is out of sight. If it comes after:
//!
//! - the reclaimer sees R's slot at `e` or later, because it looks after the writer's fence;
//! - `e <= r`, because R read global before its fence and the writer after its own. So the safe epoch is
//!   not past `r` until R unpins or pins again.
//!
//! R's looks before that are over when the memory is used again: R's stores to its slot release,
//! the scan acquires.
//!
//! An idle participant holds nothing up; a pinned one holds up what was stamped since it pinned.

use super::sync::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

/// What the slot of a participant holds that is not pinned. Above every epoch.
const IDLE: u64 = u64::MAX;

/// Two cache lines, because the adjacent-line prefetcher pulls in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Padded<T>(T);

#[derive(Debug)]
struct Slot {
    /// The epoch that the participant is pinned in, or [`IDLE`].
    pinned: AtomicU64,
    /// A participant owns this slot.
    taken: AtomicBool,
}

/// The epoch in which something was taken out of sight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp(u64);

/// What was stamped before this is visible to no reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct SafeEpoch(u64);

impl SafeEpoch {
    /// Whether what was stamped with `stamp` is visible to no reader any more.
    pub fn is_past(self, stamp: Stamp) -> bool {
        stamp.0 < self.0
    }

    /// Its epoch: while a participant is pinned in one, no later.
    pub(super) fn number(self) -> u64 {
        self.0
    }
}

/// A place among the participants. Given back with [`Epochs::leave`].
#[derive(Debug)]
pub struct Participant(usize);

/// One domain of epochs.
#[derive(Debug)]
pub struct Epochs {
    global: Padded<AtomicU64>,
    /// Slots at and above this have never been taken.
    used: AtomicUsize,
    slots: Box<[Padded<Slot>]>,
}

impl Epochs {
    /// A domain with room for `participants`.
    pub fn new(participants: usize) -> Self {
        let slot = || Slot { pinned: AtomicU64::new(IDLE), taken: AtomicBool::new(false) };
        Self {
            global: Padded(AtomicU64::new(0)),
            used: AtomicUsize::new(0),
            slots: (0..participants).map(|_| Padded(slot())).collect(),
        }
    }

    /// A place, or `None` when all are taken.
    pub fn join(&self) -> Option<Participant> {
        let n = self.slots.iter().position(|s| {
            s.0.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
        })?;
        self.used.fetch_max(n + 1, Ordering::AcqRel);
        Some(Participant(n))
    }

    /// Gives the place back.
    pub fn leave(&self, participant: Participant) {
        if let Some(slot) = self.slots.get(participant.0) {
            slot.0.pinned.store(IDLE, Ordering::Release);
            slot.0.taken.store(false, Ordering::Release);
        }
    }

    /// From here on, what the participant can see stays as it is. Pinning again while pinned
    /// releases what was seen before.
    pub fn pin(&self, participant: &Participant) {
        let epoch = self.global.0.load(Ordering::Relaxed);
        if let Some(slot) = self.slots.get(participant.0) {
            slot.0.pinned.store(epoch, Ordering::Release);
        }
        fence(Ordering::SeqCst);
    }

    /// The participant looks at nothing any more.
    pub fn unpin(&self, participant: &Participant) {
        if let Some(slot) = self.slots.get(participant.0) {
            slot.0.pinned.store(IDLE, Ordering::Release);
        }
    }

    /// The stamp for what the caller has just taken out of sight.
    pub fn stamp(&self) -> Stamp {
        fence(Ordering::SeqCst);
        Stamp(self.global.0.load(Ordering::Relaxed))
    }

    /// Opens a new epoch. Until one is opened, nothing stamped in the current one can be reused.
    pub fn advance(&self) {
        self.global.0.fetch_add(1, Ordering::AcqRel);
    }

    /// Epochs that the participant furthest behind is behind.
    pub fn lag(&self) -> u64 {
        // The safe epoch first: one that pins later is no further behind.
        let SafeEpoch(least) = self.safe_epoch();
        self.global.0.load(Ordering::Relaxed).saturating_sub(least)
    }

    /// Looks at every participant and says what is out of sight, among the things whose stamps
    /// were handed to the caller before (as by a lock that guards them).
    pub fn safe_epoch(&self) -> SafeEpoch {
        let mut least = self.global.0.load(Ordering::Relaxed);
        let used = self.used.load(Ordering::Acquire);
        for slot in self.slots.iter().take(used) {
            least = least.min(slot.0.pinned.load(Ordering::Acquire));
        }
        SafeEpoch(least)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pinning writes to a pair of cache lines of one's own.
    #[test]
    fn participants_share_no_line() {
        assert_eq!((size_of::<Padded<Slot>>(), align_of::<Padded<Slot>>()), (128, 128));
        assert_eq!(align_of::<Padded<AtomicU64>>(), 128);
    }

    #[test]
    fn a_pinned_participant_holds_up_what_comes_after() {
        let e = Epochs::new(2);
        let (a, b) = (e.join().unwrap(), e.join().unwrap());
        assert!(e.join().is_none());
        e.pin(&a);
        let s = e.stamp();
        e.advance();
        e.pin(&b);
        assert!(!e.safe_epoch().is_past(s), "a may still look");
        assert_eq!(e.lag(), 1);
        e.pin(&a);
        assert!(e.safe_epoch().is_past(s), "both pinned later");
        let s2 = e.stamp();
        e.unpin(&a);
        e.advance();
        assert!(!e.safe_epoch().is_past(s2));
        e.leave(b);
        assert!(e.safe_epoch().is_past(s2));
        assert!(e.join().is_some());
    }

    #[test]
    fn nothing_is_reused_within_its_own_epoch() {
        let e = Epochs::new(1);
        let s = e.stamp();
        assert!(!e.safe_epoch().is_past(s));
        e.advance();
        assert!(e.safe_epoch().is_past(s));
    }
}
