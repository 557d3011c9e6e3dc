//! The life of a port.
//!
//! ```text
//!        link             requests a reset               reset done
//!  Up ◄──────► Down ──────────────────────► Resetting ──────────────► Up
//!   └──────────┴───────── device gone ──────────┴──────► Removed
//! ```
//!
//! In: what the device says, and the time. Out: what to do. A reset that fails is tried again at
//! growing distances; a device that is gone stays so.

use driver_shim::PortEvents;
use std::time::{Duration, Instant};

/// First pause after a reset that failed, and the longest: in three seconds there are several.
const RESET_PAUSE_MIN: Duration = Duration::from_millis(100);
const RESET_PAUSE_MAX: Duration = Duration::from_secs(1);

/// The same of a port that cannot be closed yet: each try waits for a second.
const CLOSE_PAUSE_MIN: Duration = Duration::from_secs(1);
const CLOSE_PAUSE_MAX: Duration = Duration::from_secs(30);

/// Where a port stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum PortState {
    /// It serves.
    #[default]
    Up,
    /// No link.
    Down,
    /// The device works no more until a reset succeeds.
    Resetting,
    /// There is no device any more.
    Removed,
}

impl PortState {
    /// For people.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Up => "link up",
            Self::Down => "link down",
            Self::Resetting => "the device wants a reset",
            Self::Removed => "the device is gone",
        }
    }
}

/// What the control plane is to do about a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing.
    Nothing,
    /// Reset it.
    Reset,
    /// Close it for good.
    Close,
}

/// What has happened to a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortHealth {
    /// Times that the link was seen to go up or down.
    pub link_changes: u64,
    /// Resets that the device requested and got.
    pub resets: u64,
    /// Resets that failed.
    pub reset_failures: u64,
    /// The device is gone.
    pub removed: bool,
}

/// A port as the control plane sees it.
#[derive(Debug, Default)]
pub(super) struct PortWatch {
    state: PortState,
    counts: PortHealth,
    /// When the requested reset is tried next, and the pause after that.
    reset: Option<(Instant, Duration)>,
    /// The device is gone: when the port is to be closed, and the pause after that.
    close: Option<(Instant, Duration)>,
}

impl PortWatch {
    /// A look at the port.
    pub(super) fn look(&mut self, link_up: bool, events: PortEvents, now: Instant) -> Step {
        if self.state == PortState::Removed {
            return match self.close {
                Some((at, _)) if now >= at => Step::Close,
                _ => Step::Nothing,
            };
        }
        if events.removed {
            self.state = PortState::Removed;
            self.counts.removed = true;
            self.reset = None;
            self.close = Some((now, CLOSE_PAUSE_MIN));
            return Step::Close;
        }
        if events.reset_wanted && self.reset.is_none() {
            self.state = PortState::Resetting;
            self.reset = Some((now, RESET_PAUSE_MIN));
        }
        if let Some((at, _)) = self.reset {
            return if now >= at { Step::Reset } else { Step::Nothing };
        }
        let state = if link_up { PortState::Up } else { PortState::Down };
        self.counts.link_changes += u64::from(self.state != state);
        self.state = state;
        Step::Nothing
    }

    /// What became of the reset.
    pub(super) fn reset_done(&mut self, good: bool, now: Instant) {
        let Some((_, pause)) = self.reset.take() else { return };
        if good {
            self.counts.resets += 1;
            // Its link is for the next look.
            self.state = PortState::Up;
        } else {
            self.counts.reset_failures += 1;
            self.reset = Some((now + pause, (pause * 2).min(RESET_PAUSE_MAX)));
        }
    }

    /// Whether the port of a device that is gone was closed.
    pub(super) fn close_done(&mut self, closed: bool, now: Instant) {
        let Some((_, pause)) = self.close.take() else { return };
        if !closed {
            self.close = Some((now + pause, (pause * 2).min(CLOSE_PAUSE_MAX)));
        }
    }

    pub(super) fn state(&self) -> PortState {
        self.state
    }

    pub(super) fn counts(&self) -> PortHealth {
        self.counts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: PortEvents = PortEvents { reset_wanted: false, removed: false };
    const RESET: PortEvents = PortEvents { reset_wanted: true, removed: false };
    const GONE: PortEvents = PortEvents { reset_wanted: true, removed: true };

    #[test]
    fn a_link_goes_down_and_up() {
        let (now, mut p) = (Instant::now(), PortWatch::default());
        let links = [true, false, false, true, false, true];
        let states: Vec<_> = links
            .map(|up| {
                assert_eq!(p.look(up, QUIET, now), Step::Nothing);
                p.state()
            })
            .into();
        use PortState::{Down, Up};
        assert_eq!(states, [Up, Down, Down, Up, Down, Up]);
        assert_eq!(p.counts(), PortHealth { link_changes: 4, ..PortHealth::default() });
    }

    #[test]
    fn a_reset_is_tried_until_it_succeeds() {
        let (begun, mut p) = (Instant::now(), PortWatch::default());
        let mut tries = Vec::new();
        for ms in (0..3_000).step_by(50) {
            let now = begun + Duration::from_millis(ms);
            // It goes on asking: the first time counts.
            let step = p.look(false, RESET, now);
            assert_eq!(p.state(), PortState::Resetting);
            if step == Step::Reset {
                tries.push(ms);
                p.reset_done(false, now);
            }
        }
        assert_eq!(tries, [0, 100, 300, 700, 1_500, 2_500]);
        let now = begun + Duration::from_secs(4);
        assert_eq!(p.look(false, QUIET, now), Step::Reset);
        p.reset_done(true, now);
        assert_eq!(p.look(false, QUIET, now), Step::Nothing);
        assert_eq!(p.state(), PortState::Down, "the link comes later");
        p.look(true, QUIET, now);
        let counts = PortHealth { link_changes: 2, resets: 1, reset_failures: 6, removed: false };
        assert_eq!((p.state(), p.counts()), (PortState::Up, counts));
        assert_eq!(p.look(true, RESET, now), Step::Reset, "at once, the next time");
    }

    #[test]
    fn a_device_that_is_gone_is_closed_once_whatever_it_wanted() {
        let (now, mut p) = (Instant::now(), PortWatch::default());
        assert_eq!(p.look(true, RESET, now), Step::Reset);
        assert_eq!(p.look(true, GONE, now), Step::Close);
        p.reset_done(true, now);
        p.close_done(false, now);
        assert_eq!(p.look(true, QUIET, now), Step::Nothing);
        let now = now + CLOSE_PAUSE_MIN;
        assert_eq!(p.look(true, QUIET, now), Step::Close, "it could not be");
        p.close_done(true, now);
        for events in [QUIET, RESET, GONE] {
            assert_eq!(p.look(true, events, now), Step::Nothing);
            assert_eq!(p.state(), PortState::Removed);
        }
        assert!(p.counts().removed);
    }
}
