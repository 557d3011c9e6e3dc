//! A device made ready for its start: the first time, and again after it has requested a reset.
//!
//! In: a port's configuration, kept in its `State`. Out: the device set up by it, and isolated where that is
//! wanted; after a reset, started too. Frames that the device held are lost, and their slots return to the pool. Can fail:
//! [`DpdkError`], with the step; bursts then do nothing until another reset succeeds.
#![allow(unsafe_code)]

use super::error::{DpdkError, check};
use super::isolation::Isolation;
use super::shared::{PortShared, State, each};
use crate::port::PortEvents;
use dpdk_ffi as ffi;
use std::ffi::{CStr, c_char};
use std::io;
use std::sync::atomic::Ordering;

/// What helps where a step of the set-up is short of something.
pub(super) const MEMORY: &str = "give DPDK more memory, or ask for fewer descriptors";
/// What helps where the kernel gives `net_af_xdp` no queue.
const AF_XDP: &str = "see the lines above; it takes root, or CAP_SYS_ADMIN, CAP_NET_ADMIN and \
                      CAP_NET_RAW, 14 MB of locked memory a queue (ulimit -l), and an interface \
                      that has the queue and no XDP program of another's (ip link show)";

/// What a driver says when it refuses.
type Words = [c_char; ffi::WHY_BYTES];

impl PortShared {
    /// Sets the stopped device up. No burst is running, and none begins before it has started.
    pub(super) fn apply(&self, state: &mut State) -> Result<(), DpdkError> {
        // SAFETY: every call for a port that is set up is made under its `state`'s lock; before
        // that it is ours alone.
        let rc = unsafe { ffi::gn_port_configure(self.number, &mut state.conf) };
        self.step("be configured", MEMORY, rc)?;
        let conf = &state.conf;
        for q in 0..conf.queues {
            // SAFETY: as above, and the pool lives as long as our region, which outlives the
            // close.
            let rc = unsafe { ffi::gn_port_rx_queue(self.number, q, conf.rx_desc, self.pool()) };
            let hint = if self.name.starts_with("net_af_xdp") { AF_XDP } else { MEMORY };
            self.step("set up a receive queue", hint, rc)?;
            // SAFETY: as above.
            let rc = unsafe { ffi::gn_port_tx_queue(self.number, q, conf.tx_desc) };
            self.step("set up a transmit queue", MEMORY, rc)?;
        }
        let hint = "the device keeps its filter; leave promiscuous mode as it is";
        // SAFETY: as above.
        let rc = unsafe { ffi::gn_port_promiscuous(self.number, state.promiscuous.into()) };
        self.try_step("set promiscuous mode", hint, rc)?;
        // Neighbour discovery is multicast.
        let hint = "IPv6 neighbours are found by multicast, which the device does not receive";
        // SAFETY: as above.
        let rc = unsafe { ffi::gn_port_all_multicast(self.number) };
        self.try_step("receive multicast", hint, rc)
    }

    /// What the device has reported since it was last asked. Nothing, once it is closed.
    pub(super) fn told(&self) -> PortEvents {
        let mut state = self.state.lock();
        if !state.open {
            return PortEvents::default();
        }
        // SAFETY: every call for a port that is set up is made under its `state`'s lock.
        let bits = unsafe { ffi::gn_port_told(self.number) };
        state.gone |= bits & ffi::TOLD_REMOVED != 0;
        PortEvents {
            reset_wanted: bits & ffi::TOLD_RESET != 0,
            removed: bits & ffi::TOLD_REMOVED != 0,
        }
    }

    /// Resets the device and starts it again. A port that is closed stays closed.
    pub(super) fn reset(&self) -> Result<(), DpdkError> {
        const HINT: &str = "it is tried again; if that does not help, restart the process, or the \
                            machine";
        let refused = |step, errno| DpdkError::Setup {
            name: self.name.clone(),
            step,
            source: io::Error::from_raw_os_error(errno),
            hint: HINT,
        };
        if !self.shut() {
            return Err(refused("end a burst", libc::EBUSY));
        }
        // In the order in which the close takes them.
        let _control = self.eal.open.lock();
        let mut state = self.state.lock();
        if !state.open {
            return Err(refused("be reset, being closed", libc::ENODEV));
        }
        self.count(&mut state);
        // SAFETY: no burst is running and none begins (`shut`), and the two locks keep out every
        // other call for the port, and any plugging in or removal.
        self.step("be reset", HINT, unsafe { ffi::gn_port_reset(self.number) })?;
        state.started = false;
        self.apply(&mut state)?;
        // SAFETY: as above.
        self.step("start again", HINT, unsafe { ffi::gn_port_start(self.number) })?;
        state.started = true;
        self.steer(&state)?;
        // A device that cannot clear its counters goes on from what it had.
        let now = self.device_stats(&state).unwrap_or_default();
        state.before = each(&state.last, &now, u64::wrapping_sub);
        self.closed.store(false, Ordering::SeqCst);
        Ok(())
    }

    /// Isolates the device, which is set up and stopped, and keeps the services for its starts.
    pub(super) fn isolate(
        &self,
        isolation: &Isolation,
        state: &mut State,
    ) -> Result<(), DpdkError> {
        let mut why: Words = [0; ffi::WHY_BYTES];
        // SAFETY: every call for a port that is set up is made under its `state`'s lock, and `why` has
        // the bytes.
        let rc = unsafe { ffi::gn_port_isolate(self.number, why.as_mut_ptr()) };
        match check(rc) {
            Ok(_) => state.services.clone_from(&isolation.services),
            Err(source) => {
                let refused = DpdkError::NoIsolation {
                    name: self.name.clone(),
                    driver: self.driver.clone(),
                    words: in_words(&why, &source),
                    source,
                };
                if isolation.required {
                    return Err(refused);
                }
                tracing::warn!("{refused}, as now");
            }
        }
        Ok(())
    }

    /// Names the frames that a started device is to hand over, where it is isolated.
    pub(super) fn steer(&self, state: &State) -> Result<(), DpdkError> {
        let mut tags_apart = true;
        for service in &state.services {
            let mut why: Words = [0; ffi::WHY_BYTES];
            // SAFETY: as above.
            let rc = unsafe {
                ffi::gn_port_rule(self.number, &service.rule(), &state.conf, why.as_mut_ptr())
            };
            let whole = check(rc).map_err(|source| DpdkError::NoRule {
                name: self.name.clone(),
                service: service.to_string(),
                words: in_words(&why, &source),
                source,
            })?;
            tags_apart &= whole == 0;
        }
        if !tags_apart {
            let port = &self.name;
            tracing::info!(port, "no rules for VLANs: tagged frames come with the others, or stay");
        }
        Ok(())
    }
}

/// Behind an error: the driver's words in brackets, where they say more.
fn in_words(why: &Words, error: &io::Error) -> String {
    // SAFETY: the shim closes what it writes with a zero, and it was zeroes before.
    let words = unsafe { CStr::from_ptr(why.as_ptr()) }.to_string_lossy();
    let more = !words.is_empty() && !error.to_string().starts_with(&*words);
    if more { format!(" ({words})") } else { String::new() }
}
