//! Connections that begin: which slot a SYN gets, and the initial sequence number.
//!
//! In: that a client wants to connect. Out: a slot, or none. Free slots first, then the one that
//! ended longest ago, then the one whose client has left us longest without its confirmation. Of
//! those that are not confirmed there is only a bounded number: the oldest makes room. A slot with a
//! client is never taken. The initial sequence number follows from a keyed hash of both ends and the time
//! (RFC 6528), so that nobody can guess another's.

use super::connection::Connection;
use super::machine::Stand;
use super::table::Ends;
use super::waiting::Waiting;
use std::hash::{BuildHasher, RandomState};

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
    secret: RandomState,
}

impl Listener {
    /// All of so many slots are free.
    pub(super) fn new(slots: usize) -> Self {
        let most = (slots / HALF_OPEN_PART).max(HALF_OPEN_MIN).min(slots);
        Self {
            free: (0..u32::try_from(slots).unwrap_or(u32::MAX)).rev().collect(),
            half_open: Waiting::new(most),
            ended: Waiting::new(slots),
            secret: RandomState::new(),
        }
    }

    /// A slot for a fresh connection, and whether another connection has it still and must leave it.
    pub(super) fn slot(&mut self, all: &[Connection]) -> Option<(u32, bool)> {
        let opening = |slot, generation| stands(all, slot, generation, Stand::Opening);
        self.half_open.tidy(opening);
        if self.half_open.is_full()
            && let Some(slot) = self.half_open.oldest(opening)
        {
            return Some((slot, true));
        }
        if let Some(slot) = self.free.pop() {
            return Some((slot, false));
        }
        let ended = |slot, generation| stands(all, slot, generation, Stand::Ended);
        let taken = self.ended.oldest(ended).or_else(|| self.half_open.oldest(opening));
        taken.map(|slot| (slot, true))
    }

    /// The slot's client has still to confirm.
    pub(super) fn half_open(&mut self, slot: u32, generation: u32) {
        self.half_open.enter(slot, generation);
    }

    /// The slot's connection has been ended by both sides.
    pub(super) fn ended(&mut self, slot: u32, generation: u32) {
        self.ended.enter(slot, generation);
    }

    /// The slot is free.
    pub(super) fn give_back(&mut self, slot: u32) {
        self.free.push(slot);
    }

    /// Free slots.
    pub(super) fn free(&self) -> usize {
        self.free.len()
    }

    /// What the initial sequence number of a connection between these ends follows from.
    pub(super) fn seed(&self, ends: &Ends, now_ns: u64) -> u64 {
        self.secret.hash_one((ends, now_ns))
    }
}

fn stands(all: &[Connection], slot: u32, generation: u32, stand: Stand) -> bool {
    let connection = all.get(slot as usize);
    connection.is_some_and(|c| c.generation == generation && c.machine.stand() == stand)
}
