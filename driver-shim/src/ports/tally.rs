//! Counters shared by a queue, which writes them, and the port's control, which reads them.
//!
//! Each counter has one writer: the receive half or the transmit half of one queue.

use crate::counter::Counter;
use crate::port::{PortControl, PortCounters};
use std::sync::Arc;

/// What one queue counts. Two cache lines of its own, against false sharing between workers.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Tally {
    pub(crate) rx_frames: Counter,
    pub(crate) rx_bytes: Counter,
    pub(crate) rx_errors: Counter,
    pub(crate) rx_no_slot: Counter,
    pub(crate) tx_frames: Counter,
    pub(crate) tx_bytes: Counter,
    pub(crate) tx_errors: Counter,
}

/// Control of a port that has counters and nothing else: the sum over its queues.
#[derive(Debug)]
pub(crate) struct Tallies(pub(crate) Vec<Arc<Tally>>);

impl PortControl for Tallies {
    fn counters(&self) -> PortCounters {
        let mut sum = PortCounters::default();
        for t in &self.0 {
            sum.rx_frames += t.rx_frames.get();
            sum.rx_bytes += t.rx_bytes.get();
            sum.rx_errors += t.rx_errors.get();
            sum.rx_no_slot += t.rx_no_slot.get();
            sum.tx_frames += t.tx_frames.get();
            sum.tx_bytes += t.tx_bytes.get();
            sum.tx_errors += t.tx_errors.get();
        }
        sum
    }
}
