//! SIGTERM, SIGINT, SIGQUIT and SIGUSR1: the first stops the process; after it, all but SIGUSR1 end
//! it at once. SIGHUP makes it read its files again.
//!
//! SIGUSR1 requests a stop that keeps the items (memcached's graceful restart), whether it comes
//! first or while the process stops already. The handlers set flags or call `_exit`; all else is
//! done by the thread that reads the flags.

use signal_hook::consts::{SIGHUP, SIGUSR1, SIGXFSZ, TERM_SIGNALS};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What signals have requested.
#[derive(Debug, Default)]
pub struct Signals {
    /// To stop.
    pub stop: Arc<AtomicBool>,
    /// To keep the items then, where there is something to keep them in.
    pub keep: Arc<AtomicBool>,
    /// To read files again; to be unset by the thread that reads them.
    pub reload: Arc<AtomicBool>,
}

/// From now on a signal to end sets a flag, and another one but SIGUSR1 ends the process with the
/// status that a shell gives to a process ended by that signal. A hangup sets a flag of its own.
///
/// # Errors
/// The OS error.
pub fn install() -> io::Result<Signals> {
    let signals = Signals::default();
    for &signal in TERM_SIGNALS {
        // In this order: the first signal finds the flag unset and sets it afterwards.
        register_conditional_shutdown(signal, 128 + signal, Arc::clone(&signals.stop))?;
        register(signal, Arc::clone(&signals.stop))?;
    }
    register(SIGUSR1, Arc::clone(&signals.keep))?;
    register(SIGUSR1, Arc::clone(&signals.stop))?;
    register(SIGHUP, Arc::clone(&signals.reload))?;
    // A file beyond the limit on their size is an error for its writer, and does not end the process.
    register(SIGXFSZ, Arc::default())?;
    Ok(signals)
}
