//! What the remote has beyond what it acknowledges (RFC 2018), and what is sent again because of it: by
//! RFC 6675, with a last segment that is sent twice where nothing is heard (the probe of RFC 8985), and with
//! time instead of duplicates where too few segments come behind the one that is missing. Not in smoltcp.

use crate::time::{Duration, Instant};
use crate::wire::TcpSeqNumber;

/// Ranges that are remembered: more than 1 % of loss and 5 % of overtaking make of 180 segments, which a
/// long buffer holds.
const RANGES: usize = 16;

/// Why something is to be done at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// Nothing is heard of what was sent.
    Probe,
    /// What is missing is not just late.
    Late,
    /// What was sent again does not arrive either.
    Again,
}

#[derive(Debug, Default)]
pub(super) struct Recovery {
    ranges: [(TcpSeqNumber, TcpSeqNumber); RANGES],
    count: u8,
    /// What was under way when a loss was found: until all of it is acknowledged, the window is not
    /// made smaller once more.
    pub(super) point: Option<TcpSeqNumber>,
    /// In recovery: what is missing below has been sent again.
    pub(super) resent: TcpSeqNumber,
    pub(super) timer: Option<(Instant, Why)>,
    /// The last segment is to be sent again.
    pub(super) probe: bool,
    /// That has been done, and nothing was acknowledged since.
    pub(super) probed: bool,
    /// Segments have overtaken others: what is missing may be late, however much comes behind it.
    pub(super) overtaken: bool,
}

impl Recovery {
    /// Forgets all: the remote may have thrown away what it had beyond (RFC 2018, section 8).
    pub(super) fn clear(&mut self) {
        *self = Self { overtaken: self.overtaken, ..Self::default() };
    }

    fn ranges(&self) -> &[(TcpSeqNumber, TcpSeqNumber)] {
        &self.ranges[..usize::from(self.count)]
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// All below has been acknowledged.
    pub(super) fn acknowledged(&mut self, una: TcpSeqNumber) {
        let mut kept = 0;
        for n in 0..usize::from(self.count) {
            let (start, end) = self.ranges[n];
            if end > una {
                self.ranges[kept] = (start.max(una), end);
                kept += 1;
            }
        }
        self.count = kept as u8;
        match self.point {
            Some(point) if una < point => self.resent = self.resent.max(una),
            _ => self.point = None,
        }
        (self.probe, self.probed) = (false, false);
    }

    /// The remote has this. Says whether that is news.
    pub(super) fn add(&mut self, mut start: TcpSeqNumber, mut end: TcpSeqNumber) -> bool {
        if self.ranges().iter().any(|&(s, e)| s <= start && end <= e) {
            return false;
        }
        let mut kept = 0;
        for n in 0..usize::from(self.count) {
            let (s, e) = self.ranges[n];
            if e < start || end < s {
                self.ranges[kept] = (s, e);
                kept += 1;
            } else {
                (start, end) = (start.min(s), end.max(e));
            }
        }
        if kept == RANGES {
            self.count = kept as u8;
            return false;
        }
        let at = self.ranges[..kept].iter().take_while(|&&(s, _)| s < start).count();
        self.ranges.copy_within(at..kept, at + 1);
        self.ranges[at] = (start, end);
        self.count = kept as u8 + 1;
        true
    }

    /// Octets that the remote has between these.
    pub(super) fn held(&self, from: TcpSeqNumber, to: TcpSeqNumber) -> usize {
        let within = |&(s, e): &(TcpSeqNumber, TcpSeqNumber)| {
            let (s, e) = (s.max(from), e.min(to));
            if s < e { e - s } else { 0 }
        };
        self.ranges().iter().map(within).sum()
    }

    /// By RFC 6675 what the remote lacks first is lost: so much of what was sent behind it has come.
    pub(super) fn is_lost(&self, mss: usize) -> bool {
        let held: usize = self.ranges().iter().map(|&(s, e)| e - s).sum();
        self.count >= 3 || held > 2 * mss
    }

    /// The first octet from `seq` on that the remote lacks.
    pub(super) fn skip(&self, seq: TcpSeqNumber) -> TcpSeqNumber {
        let around = self.ranges().iter().find(|&&(s, e)| s <= seq && seq < e);
        around.map_or(seq, |&(_, e)| e)
    }

    /// Where what the remote has begins again behind `seq`, which it lacks.
    pub(super) fn next(&self, seq: TcpSeqNumber) -> Option<TcpSeqNumber> {
        self.ranges().iter().map(|&(s, _)| s).find(|&s| s > seq)
    }

    /// In recovery: what is missing and was not sent again, as its first octet and its length.
    pub(super) fn hole(&self) -> Option<(TcpSeqNumber, usize)> {
        self.point?;
        let seq = self.skip(self.resent);
        self.next(seq).map(|next| (seq, next - seq))
    }

    /// Octets that are missing and were not sent again: they are no longer under way.
    pub(super) fn lost(&self) -> usize {
        match (self.point, self.ranges().last()) {
            (Some(_), Some(&(_, end))) if end > self.resent => {
                (end - self.resent) - self.held(self.resent, end)
            }
            _ => 0,
        }
    }

    pub(super) fn arm(&mut self, at: Instant, delay: Duration, why: Why) {
        self.timer = Some((at + delay, why));
    }
}

#[cfg(test)]
mod test {
    use super::*;

    const BASE: u32 = u32::MAX - 40;

    fn seq(n: usize) -> TcpSeqNumber {
        TcpSeqNumber(BASE.wrapping_add(n as u32) as i32)
    }

    /// Against one flag an octet, around the wrap of sequence numbers.
    #[test]
    fn is_a_set_of_octets() {
        let mut state = 1u64;
        let mut random = |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as usize % below
        };
        for _ in 0..2000 {
            let mut recovery = Recovery::default();
            let mut has = [false; 100];
            let mut una = 0;
            for _ in 0..30 {
                if random(4) == 0 {
                    una = (una + random(20)).min(99);
                    has[..una].fill(false);
                    recovery.acknowledged(seq(una));
                } else {
                    let start = una + random(100 - una);
                    let end = (start + 1 + random(12)).min(100);
                    let known = has[start..end].iter().all(|&h| h);
                    let full = usize::from(recovery.count) == RANGES;
                    if recovery.add(seq(start), seq(end)) {
                        assert!(!known);
                        has[start..end].fill(true);
                    } else {
                        assert!(known || full);
                    }
                }
                let from = una + random(100 - una);
                let to = from + random(100 - from);
                assert_eq!(recovery.held(seq(from), seq(to)), has[from..to].iter().filter(|&&h| h).count());
                let next = (from..100).find(|&n| !has[n]).unwrap_or(100);
                assert_eq!(recovery.skip(seq(from)), seq(next));
                if !has[from] {
                    let held = (from..100).find(|&n| has[n]).map(seq);
                    assert_eq!(recovery.next(seq(from)), held);
                }
                (recovery.point, recovery.resent) = (Some(seq(100)), seq(from));
                let last = (from..100).rev().find(|&n| has[n]);
                let lost = last.map_or(0, |last| (from..last).filter(|&n| !has[n]).count());
                assert_eq!(recovery.lost(), lost);
                recovery.point = None;
            }
        }
    }
}
