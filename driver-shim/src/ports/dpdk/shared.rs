//! What the queues and the control of a port share, and how the port is closed.
//!
//! In: a port that is set up. Out: its counters and its link, and at the end every slot
//! that the device held, returned. The port is closed once, by its control or when the last
//! queue goes; from then on bursts do nothing, as during a reset (`reset.rs`). Can fail: a device that does not stop is reported
//! in the log, since the caller can do nothing about it.
#![allow(unsafe_code)]

use super::eal::{EalShared, PoolPtr};
use super::error::{DpdkError, check, check_driver};
use super::isolation::Service;
use super::kernel_device::KernelDevice;
use super::queue_state::{Inside, QueueState};
use crate::frame::BURST_MAX;
use crate::port::{PortControl, PortCounters, PortEvents, ResetError};
use crate::region::Region;
use dpdk_ffi as ffi;
use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Longest wait for a burst in progress, and for a NIC to send what it has taken.
const CLOSE_MAX: Duration = Duration::from_secs(1);
const DRAIN_MAX: Duration = Duration::from_millis(50);

pub(super) struct State {
    pub(super) open: bool,
    pub(super) started: bool,
    /// Its device has said that it is gone, or is about to be.
    pub(super) gone: bool,
    /// What the device is set up to be, to be the same after a reset.
    pub(super) conf: ffi::GnPortConf,
    /// What it hands over, isolated. None: every frame.
    pub(super) services: Vec<Service>,
    pub(super) promiscuous: bool,
    /// What it had counted before it began to count anew.
    pub(super) before: ffi::GnPortStats,
    /// All that it had counted when it was asked last.
    pub(super) last: ffi::GnPortStats,
}

impl State {
    pub(super) fn new(promiscuous: bool) -> Self {
        Self {
            open: true,
            started: false,
            gone: false,
            conf: ffi::GnPortConf::default(),
            services: Vec::new(),
            promiscuous,
            before: ffi::GnPortStats::default(),
            last: ffi::GnPortStats::default(),
        }
    }
}

/// Two sets of counts, made one.
pub(super) fn each(
    a: &ffi::GnPortStats,
    b: &ffi::GnPortStats,
    f: fn(u64, u64) -> u64,
) -> ffi::GnPortStats {
    ffi::GnPortStats {
        rx_frames: f(a.rx_frames, b.rx_frames),
        tx_frames: f(a.tx_frames, b.tx_frames),
        rx_bytes: f(a.rx_bytes, b.rx_bytes),
        tx_bytes: f(a.tx_bytes, b.tx_bytes),
        rx_missed: f(a.rx_missed, b.rx_missed),
        rx_errors: f(a.rx_errors, b.rx_errors),
        rx_no_buffer: f(a.rx_no_buffer, b.rx_no_buffer),
        tx_errors: f(a.tx_errors, b.tx_errors),
    }
}

/// What queues and control share. Closes the port when the last of them goes.
pub(super) struct PortShared {
    pub(super) region: Region,
    pub(super) number: u16,
    pub(super) busy_poll: bool,
    pub(super) name: String,
    pub(super) driver: String,
    pub(super) pool: PoolPtr,
    pub(super) plugged: bool,
    /// A `net_ring`, which leaves waiting frames where they are when it is closed.
    pub(super) ring: bool,
    /// What it stands on, where its driver does not know whether that has a link.
    pub(super) kernel_device: Option<KernelDevice>,
    /// Bursts do nothing: it is closed, or being reset.
    pub(super) closed: AtomicBool,
    pub(super) rx: Box<[QueueState]>,
    pub(super) tx: Box<[QueueState]>,
    pub(super) state: Mutex<State>,
    pub(super) eal: Arc<EalShared>,
}

impl PortShared {
    pub(super) fn pool(&self) -> *mut ffi::GnPool {
        self.pool.0.as_ptr()
    }

    /// Announces a receive burst; `None` when the port is closed.
    pub(super) fn rx_inside(&self, queue: u16) -> Option<(&QueueState, Inside<'_>)> {
        let state = self.rx.get(usize::from(queue))?;
        Some((state, state.enter(&self.closed)?))
    }

    /// Announces a transmit burst; `None` when the port is closed.
    pub(super) fn tx_inside(&self, queue: u16) -> Option<(&QueueState, Inside<'_>)> {
        let state = self.tx.get(usize::from(queue))?;
        Some((state, state.enter(&self.closed)?))
    }

    pub(super) fn step(
        &self,
        step: &'static str,
        hint: &'static str,
        rc: i32,
    ) -> Result<(), DpdkError> {
        match check_driver(rc) {
            Ok(_) => Ok(()),
            Err(source) => Err(DpdkError::Setup { name: self.name.clone(), step, source, hint }),
        }
    }

    /// A step that some devices do not know: their own way stands.
    pub(super) fn try_step(
        &self,
        step: &'static str,
        hint: &'static str,
        rc: i32,
    ) -> Result<(), DpdkError> {
        if rc == -libc::ENOTSUP { Ok(()) } else { self.step(step, hint, rc) }
    }

    fn link_up(&self) -> bool {
        let state = self.state.lock();
        // SAFETY: every call for a port that is set up is made under its `state`'s lock.
        let up = || unsafe { ffi::gn_port_link_up(self.number) } == 1;
        let below = || self.kernel_device.as_ref().is_none_or(KernelDevice::is_running);
        state.open && state.started && up() && below()
    }

    /// The device's counters; `None` where it has none to give.
    pub(super) fn device_stats(&self, _locked: &State) -> Option<ffi::GnPortStats> {
        let mut stats = ffi::GnPortStats::default();
        // SAFETY: every call for a port that is set up is made under its `state`'s lock.
        let rc = unsafe { ffi::gn_port_stats(self.number, &mut stats) };
        (rc == 0).then_some(stats)
    }

    fn counters(&self) -> PortCounters {
        let device = {
            let mut state = self.state.lock();
            self.count(&mut state);
            state.last
        };
        let refused = |queues: &[QueueState]| -> u64 {
            queues.iter().map(|q| q.refused.load(Ordering::Relaxed)).sum()
        };
        let (rx_refused, tx_refused) = (refused(&self.rx), refused(&self.tx));
        PortCounters {
            rx_frames: device.rx_frames.saturating_sub(rx_refused),
            tx_frames: device.tx_frames,
            rx_bytes: device.rx_bytes,
            tx_bytes: device.tx_bytes,
            rx_missed: device.rx_missed,
            rx_errors: device.rx_errors + rx_refused,
            rx_no_slot: device.rx_no_buffer,
            tx_errors: device.tx_errors + tx_refused,
        }
    }

    /// Adds up what has been counted so far.
    pub(super) fn count(&self, state: &mut State) {
        let now = if state.open { self.device_stats(state) } else { None };
        if let Some(now) = now {
            // Where a frame is lost between two looks of the device's, a number may come out lower.
            let now = each(&state.before, &now, u64::wrapping_add);
            state.last = each(&state.last, &now, u64::max);
        }
    }

    /// Keeps bursts out, and waits until none is running. False when one does not end.
    pub(super) fn shut(&self) -> bool {
        self.closed.store(true, Ordering::SeqCst);
        let deadline = Instant::now() + CLOSE_MAX;
        for queue in self.rx.iter().chain(&self.tx) {
            while queue.busy.load(Ordering::Acquire) {
                if Instant::now() > deadline {
                    return false;
                }
                std::thread::yield_now();
            }
        }
        true
    }

    /// Stops and closes the port, once. Bursts that follow do nothing. False: a burst does not end.
    fn close(&self) -> bool {
        if !self.shut() {
            tracing::error!(port = self.name, "a burst does not end; port left open");
            return false;
        }
        let mut open = self.eal.open.lock();
        let mut state = self.state.lock();
        if !state.open {
            return true;
        }
        if state.started {
            if self.busy_poll {
                self.wait_until_sent(&state);
            }
            if self.ring {
                self.empty_ring();
            }
        }
        self.count(&mut state);
        state.open = false;
        // Who unplugs a device that vfio has waits until we have released it.
        let unplug = (self.plugged || state.gone).into();
        // SAFETY: no burst is running (waited for above), and none begins: `closed` is set. Other
        // calls for the port wait for the lock of `state`, and a thread that plugs in, looks up,
        // removes or maps for that of `open`. Our region keeps the pool alive.
        self.log("close", unsafe { ffi::gn_port_close(self.number, self.pool(), unplug) });
        open.ports.retain(|&p| p != self.number);
        true
    }

    fn log(&self, step: &str, rc: i32) {
        if let Err(e) = check(rc) {
            tracing::warn!(port = self.name, "cannot {step}: {e}");
        }
    }

    /// Waits until the device's count of sent frames rests.
    fn wait_until_sent(&self, locked: &State) {
        let deadline = Instant::now() + DRAIN_MAX;
        let mut sent = None;
        while Instant::now() < deadline {
            let now = self.device_stats(locked).map(|s| s.tx_frames);
            if now.is_none() || sent == now {
                return;
            }
            sent = now;
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Returns to the pool the frames that wait in the rings.
    fn empty_ring(&self) {
        let mut frames = [ffi::GnFrame::default(); BURST_MAX];
        let most = u16::try_from(BURST_MAX).unwrap_or(1);
        // A sender at the other end of a ring could keep it full for ever.
        let mut bursts_left = self.region.capacity() / BURST_MAX + 1;
        for queue in 0..u16::try_from(self.rx.len()).unwrap_or(0) {
            while bursts_left > 0 {
                bursts_left -= 1;
                let mut bad = 0;
                // SAFETY: the port is still started, no burst is running and none begins, and
                // `frames` has a capacity of BURST_MAX.
                let got = unsafe {
                    ffi::gn_rx_burst(
                        self.pool(),
                        self.number,
                        queue,
                        frames.as_mut_ptr(),
                        most,
                        &mut bad,
                    )
                };
                for f in frames.iter().take(got.into()) {
                    // SAFETY: the shim just gave us the slot.
                    unsafe { ffi::gn_pool_give(self.pool(), f.slot) };
                }
                if got == 0 && bad == 0 {
                    break;
                }
            }
        }
    }
}

impl Drop for PortShared {
    fn drop(&mut self) {
        self.close();
    }
}

pub(super) struct DpdkControl {
    pub(super) shared: Arc<PortShared>,
}

impl PortControl for DpdkControl {
    fn counters(&self) -> PortCounters {
        self.shared.counters()
    }

    fn link_up(&self) -> bool {
        self.shared.link_up()
    }

    fn events(&mut self) -> PortEvents {
        self.shared.told()
    }

    fn reset(&mut self) -> Result<(), ResetError> {
        self.shared.reset().map_err(Into::into)
    }

    fn stop(&mut self) -> bool {
        self.shared.close()
    }
}
