//! SIGTERM and SIGINT: the first asks the process to stop, the second ends it at once. SIGHUP asks it
//! to read its files again.
//!
//! The handlers set a flag or call `_exit`; all else is done by the thread that reads the flag.

use signal_hook::consts::{SIGHUP, TERM_SIGNALS};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What signals have asked for.
#[derive(Debug, Default)]
pub struct Signals {
    /// To stop.
    pub stop: Arc<AtomicBool>,
    /// To read files again; to be unset by whoever does.
    pub reload: Arc<AtomicBool>,
}

/// From now on a signal to end sets a flag, and another one ends the process with the status that a
/// shell gives to a process ended by that signal. A hangup sets the other flag.
///
/// # Errors
/// The kernel's refusal.
pub fn heed() -> io::Result<Signals> {
    let signals = Signals::default();
    for &signal in TERM_SIGNALS {
        // In this order: the first signal finds the flag unset and sets it afterwards.
        register_conditional_shutdown(signal, 128 + signal, Arc::clone(&signals.stop))?;
        register(signal, Arc::clone(&signals.stop))?;
    }
    register(SIGHUP, Arc::clone(&signals.reload))?;
    Ok(signals)
}
