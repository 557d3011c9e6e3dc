//! SIGTERM and SIGINT: the first asks the process to stop, the second ends it at once.
//!
//! The handlers set a flag or call `_exit`; all else is done by the thread that reads the flag.

use signal_hook::consts::TERM_SIGNALS;
use signal_hook::flag::{register, register_conditional_shutdown};
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// From now on a signal to end sets the flag, and another one ends the process with the status
/// that a shell gives to a process ended by that signal.
///
/// # Errors
/// The kernel's refusal.
pub fn stop_flag() -> io::Result<Arc<AtomicBool>> {
    let stop = Arc::new(AtomicBool::new(false));
    for &signal in TERM_SIGNALS {
        // In this order: the first signal finds the flag unset and sets it afterwards.
        register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        register(signal, Arc::clone(&stop))?;
    }
    Ok(stop)
}
