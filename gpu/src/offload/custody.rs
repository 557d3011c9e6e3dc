//! A card's fault, and what follows for its memory.
//!
//! A kernel that hangs cannot be ended from outside, and may write wherever it was told to for as
//! long as the process lives. So a fault, once there, is for ever: nothing that was taken or mapped
//! is let go of any more ([`Card::may_free`]), whoever owns it. That is the whole quarantine.
#![allow(unsafe_code)]

use crate::card::{Card, CardError, CardFacts, Stream};
use crate::params::DevAddr;
use std::ptr::NonNull;
use std::sync::{Arc, OnceLock};

/// Why a card is not used any more.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The card, or its driver, says so.
    #[error(transparent)]
    Card(#[from] CardError),
    /// A batch took too long.
    #[error("a batch of {requests} requests was not done after {waited_us} µs")]
    Late {
        /// Requests in it.
        requests: usize,
        /// How long it had.
        waited_us: u64,
    },
    /// Changes of the index took too long.
    #[error("{changes} changes of the index were not done after {waited_us} µs")]
    UpdateLate {
        /// Changes in the batch.
        changes: usize,
        /// How long they had.
        waited_us: u64,
    },
    /// What the card said of a batch is not what the CPU says.
    #[error("the card and the CPU read a request differently")]
    Wrong,
    /// A kernel did not end when it was told to.
    #[error("a kernel went on running when its engine ended")]
    Unstoppable,
}

/// A card, and its fault.
#[derive(Debug)]
pub(super) struct Custody {
    card: Arc<dyn Card>,
    fault: OnceLock<Fault>,
}

impl Custody {
    pub(super) fn new(card: Arc<dyn Card>) -> Self {
        Self { card, fault: OnceLock::new() }
    }

    #[inline]
    pub(super) fn fault(&self) -> Option<&Fault> {
        self.fault.get()
    }

    /// The first one counts.
    pub(super) fn fail(&self, fault: Fault) {
        let _ = self.fault.set(fault);
    }
}

impl Card for Custody {
    fn facts(&self) -> CardFacts {
        self.card.facts()
    }

    fn take(&self, bytes: usize) -> Result<DevAddr, CardError> {
        self.card.take(bytes)
    }

    unsafe fn give_back(&self, at: DevAddr) {
        // SAFETY: the caller's promise.
        unsafe { self.card.give_back(at) }
    }

    unsafe fn map(&self, start: NonNull<u8>, bytes: usize) -> Result<DevAddr, CardError> {
        // SAFETY: the caller's promise.
        unsafe { self.card.map(start, bytes) }
    }

    unsafe fn unmap(&self, start: NonNull<u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.card.unmap(start) }
    }

    unsafe fn read(&self, from: DevAddr, to: &mut [u8]) -> Result<(), CardError> {
        // SAFETY: the caller's promise.
        unsafe { self.card.read(from, to) }
    }

    fn may_free(&self) -> bool {
        self.fault.get().is_none() && self.card.may_free()
    }

    fn stream(&self) -> Result<Box<dyn Stream>, CardError> {
        self.card.stream()
    }
}
