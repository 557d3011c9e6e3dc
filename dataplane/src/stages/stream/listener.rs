//! Connections that begin: which slot a SYN gets, and the initial sequence number.
//!
//! In: a client's SYN. Out: a slot, or none. Free slots first, then the one that
//! ended longest ago, then the one whose client has left us longest without its confirmation. Of
//! those that are not confirmed there is only a bounded number: the oldest is dropped for a new one. A slot with a
//! client is never taken. The initial sequence number follows from a keyed hash of the 4-tuple and the time
//! (RFC 6528), so that no client can guess another's.

use super::connection::Connection;
use super::machine::Phase;
use super::table::FourTuple;
use super::waiting::Waiting;
use std::hash::BuildHasher;

/// While fuzzing, a key of zeros: the same input has the same sequence numbers each time.
#[cfg(fuzzing)]
type Secret = std::hash::BuildHasherDefault<std::hash::DefaultHasher>;
#[cfg(not(fuzzing))]
type Secret = std::hash::RandomState;

/// How long a client may take to confirm: two retransmissions of our SYN fit in.
pub(super) const CONFIRM_MAX_NS: u64 = 5_000_000_000;
/// Of the slots, the part that may wait for confirmation,
const HALF_OPEN_PART: usize = 4;
/// and how many in any case.
const HALF_OPEN_MIN: usize = 16;

/// The free slots of a worker, and those that can be had back.
#[derive(Debug)]
pub(super) struct Listener {
    free: Vec<u32>,
    half_open: Waiting,
    ended: Waiting,
    secret: Secret,
}

impl Listener {
    /// All of so many slots are free.
    pub(super) fn new(slots: usize) -> Self {
        let most = (slots / HALF_OPEN_PART).max(HALF_OPEN_MIN).min(slots);
        Self {
            free: (0..u32::try_from(slots).unwrap_or(u32::MAX)).rev().collect(),
            half_open: Waiting::new(slots, most),
            ended: Waiting::new(slots, slots),
            secret: Secret::default(),
        }
    }

    /// A slot for a fresh connection, and whether another connection has it still and must leave it.
    pub(super) fn slot(&mut self, all: &[Connection]) -> Option<(u32, bool)> {
        let opening = |slot| is_in_phase(all, slot, Phase::Opening);
        if self.half_open.is_full()
            && let Some(slot) = self.half_open.oldest(opening)
        {
            return Some((slot, true));
        }
        if let Some(slot) = self.free.pop() {
            return Some((slot, false));
        }
        let ended = |slot| is_in_phase(all, slot, Phase::Ended);
        let taken = self.ended.oldest(ended).or_else(|| self.half_open.oldest(opening));
        taken.map(|slot| (slot, true))
    }

    /// The slot's client has still to confirm.
    pub(super) fn half_open(&mut self, slot: u32) {
        self.half_open.enter(slot);
    }

    /// The slot's client has confirmed.
    pub(super) fn confirmed(&mut self, slot: u32) {
        self.half_open.leave(slot);
    }

    /// The slot's connection has been ended by both sides.
    pub(super) fn ended(&mut self, slot: u32) {
        self.ended.enter(slot);
    }

    /// What the slot's connection waited for is over: another begins, or none.
    pub(super) fn removed(&mut self, slot: u32) {
        self.half_open.leave(slot);
        self.ended.leave(slot);
    }

    /// The slot is free.
    pub(super) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Free slots.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// The initial sequence number of a connection with this 4-tuple (RFC 6528, and the time is in the
    /// hash as well).
    pub(super) fn initial_seq(&self, tuple: &FourTuple, now_ns: u64) -> u32 {
        let hash = self.secret.hash_one((tuple, now_ns)).to_le_bytes();
        u32::from_le_bytes([hash[0], hash[1], hash[2], hash[3]])
    }
}

fn is_in_phase(all: &[Connection], slot: u32, phase: Phase) -> bool {
    all.get(slot as usize).is_some_and(|c| c.machine.phase() == phase)
}
