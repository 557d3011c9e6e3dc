//! What the service manager is sent: ready, alive, stopping (`sd_notify(3)`). Without one, nothing.
//!
//! Alive means more than that a thread still runs: every worker passes through its stages, and the TCP
//! service is well. Otherwise the manager hears nothing, and after `WatchdogSec` it starts the
//! process anew.

use sd_notify::NotifyState;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

/// Whether there is one that watches this process, and would not know another that it starts.
pub fn watches() -> bool {
    std::env::var_os("NOTIFY_SOCKET").is_some()
}

/// Says that clients may come.
pub fn ready(status: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(status)]);
}

/// Says that it drains.
pub fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("draining")]);
}

fn tell(state: &[NotifyState<'_>]) {
    let address = std::env::var_os("NOTIFY_SOCKET").unwrap_or_default();
    let told = match address.as_bytes() {
        // A name without a file, which the library takes for a path.
        [b'@', name @ ..] => tell_name(name, state),
        _ => sd_notify::notify(state),
    };
    if let Err(why) = told {
        tracing::warn!("cannot tell the service manager: {why}");
    }
}

fn tell_name(name: &[u8], state: &[NotifyState<'_>]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&SocketAddr::from_abstract_name(name)?)?;
    let message: String = state.iter().map(|state| format!("{state}\n")).collect();
    socket.send(message.as_bytes()).map(drop)
}

/// Proves again and again that the process moves.
#[derive(Debug)]
pub(crate) struct Watchdog {
    /// Half of what the manager waits; `None` when it does not wait.
    every: Option<Duration>,
    last: Instant,
}

impl Watchdog {
    /// As the manager requests in the environment.
    pub(crate) fn new() -> Self {
        let every = sd_notify::watchdog_enabled().map(|whole| whole / 2);
        Self { every, last: Instant::now() }
    }

    /// Notifies it when it is time, if all is well.
    pub(crate) fn beat(&mut self, all_is_well: bool) {
        let due = self.every.is_some_and(|every| self.last.elapsed() >= every);
        if !due {
            return;
        }
        self.last = Instant::now();
        if all_is_well {
            tell(&[NotifyState::Watchdog]);
        } else {
            tracing::error!("not all is well; the service manager is not told otherwise");
        }
    }
}
