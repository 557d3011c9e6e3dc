//! Queues of a DPDK port: the only code here that runs per packet.
//!
//! In: buffers that the driver filled. Out: frames of the port's region, and back. A queue
//! has one owner; the port may be stopped from elsewhere at any moment, so each burst announces
//! itself and looks whether the port is still open (`QueueState::enter`). Nothing here can
//! fail: a stopped port receives and sends nothing.
#![allow(unsafe_code)]

use super::shared::PortShared;
use super::signals::PacketSignals;
use crate::frame::{BURST_MAX, Burst, Frame, RxChecksum};
use crate::port::{NIC_IDLE_MAX, RxQueue, TxQueue};
use crate::slots::SLOT_BYTES;
use dpdk_ffi as ffi;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

const _: () = assert!(BURST_MAX == ffi::BURST_MAX);
const BURST: u16 = 64;

/// Longest sleep of an idle worker on a virtual device. One of the kernel's takes about as long to wake a thread.
const VIRTUAL_IDLE_MAX: Duration = Duration::from_micros(80);

/// The receiving half of a queue pair.
pub(super) struct DpdkRx {
    port: Arc<PortShared>,
    queue: u16,
    frames: [ffi::GnFrame; BURST_MAX],
    /// Of a driver that says by signals that packets came.
    signals: Option<Arc<PacketSignals>>,
    /// Looks for them since one came.
    looks: u32,
}

impl DpdkRx {
    pub(super) fn new(
        port: Arc<PortShared>,
        queue: u16,
        signals: Option<Arc<PacketSignals>>,
    ) -> Self {
        Self { port, queue, frames: [ffi::GnFrame::default(); BURST_MAX], signals, looks: 0 }
    }
}

impl RxQueue for DpdkRx {
    fn burst(&mut self, into: &mut Burst) -> usize {
        let port = &*self.port;
        let Some((state, _inside)) = port.rx_inside(self.queue) else { return 0 };
        if let Some(signals) = &self.signals {
            signals.take(&mut self.looks);
        }
        let room = u16::try_from(into.remaining_capacity()).unwrap_or(BURST).min(BURST);
        let mut bad = 0;
        // SAFETY:
        // - the port is started and stays so while we are inside;
        // - this object is the queue's only receiver, and `&mut self` makes the call exclusive;
        // - `frames` has a capacity of BURST_MAX >= room.
        let got = unsafe {
            ffi::gn_rx_burst(
                port.pool(),
                port.number,
                self.queue,
                self.frames.as_mut_ptr(),
                room,
                &mut bad,
            )
        };
        if bad != 0 {
            state.refused.fetch_add(bad, Ordering::Relaxed);
        }
        for f in self.frames.iter().take(got.into()) {
            // SAFETY: the shim gave us the slot, which is ours alone from here on.
            let mut frame = unsafe { port.region.frame(f.slot, f.off.into(), f.len.into()) };
            frame.rx = RxChecksum {
                ip_good: (f.flags & ffi::RX_IP_GOOD != 0).into(),
                udp_good: (f.flags & ffi::RX_UDP_GOOD != 0).into(),
            };
            // `into` has space for as many as were requested; were there none, the slot returns to the pool.
            drop(into.try_push(frame));
        }
        got.into()
    }

    fn idle(&mut self, at_most: Duration) {
        std::thread::sleep(at_most);
    }

    fn idle_max(&self) -> Duration {
        if self.port.busy_poll { NIC_IDLE_MAX } else { VIRTUAL_IDLE_MAX }
    }
}

/// The sending half of a queue pair.
pub(super) struct DpdkTx {
    port: Arc<PortShared>,
    queue: u16,
    out: [ffi::GnTx; BURST_MAX],
}

impl DpdkTx {
    pub(super) fn new(port: Arc<PortShared>, queue: u16) -> Self {
        Self { port, queue, out: [ffi::GnTx::default(); BURST_MAX] }
    }
}

impl TxQueue for DpdkTx {
    fn burst(&mut self, from: &mut Burst) -> usize {
        let port = &*self.port;
        let Some((state, _inside)) = port.tx_inside(self.queue) else { return 0 };
        let mut n: u16 = 0;
        for (out, frame) in self.out.iter_mut().zip(from.iter()) {
            if !port.region.owns(frame) {
                break;
            }
            *out = describe(frame);
            n += 1;
        }
        if n == 0 && !from.is_empty() {
            // A frame of another region has no buffer here: it cannot leave by this port.
            state.refused.fetch_add(1, Ordering::Relaxed);
            drop(from.remove(0));
            return 1;
        }
        // SAFETY:
        // - the port is started and stays so while we are inside;
        // - this object is the queue's only sender, and `&mut self` makes the call exclusive;
        // - the first n entries are written; each names the slot of a different frame of our
        //   region that `from` owns, and a frame's bytes lie within its slot.
        let sent =
            unsafe { ffi::gn_tx_burst(port.pool(), port.number, self.queue, self.out.as_ptr(), n) };
        for frame in from.drain(..usize::from(sent)) {
            // The driver owns the slot now and returns it to the pool.
            let _ = frame.into_slot();
        }
        sent.into()
    }
}

/// A frame as the shim takes it.
fn describe(frame: &Frame) -> ffi::GnTx {
    let mut flags = 0;
    if frame.tx.ip.is_set() {
        flags |= ffi::TX_IP;
    }
    if frame.tx.udp.is_set() {
        flags |= ffi::TX_UDP;
    }
    if frame.tx.ipv6.is_set() {
        flags |= ffi::TX_IPV6;
    }
    debug_assert!(frame.len() <= SLOT_BYTES);
    ffi::GnTx {
        slot: frame.slot(),
        off: frame.offset(),
        // At most SLOT_BYTES, so it fits.
        len: u16::try_from(frame.len()).unwrap_or(u16::MAX),
        flags,
        l2_len: frame.tx.l2_len,
        l3_len: frame.tx.l3_len,
        pad: 0,
    }
}
