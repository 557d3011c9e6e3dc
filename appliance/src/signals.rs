//! SIGTERM, SIGINT and SIGUSR1: the first asks the process to stop; after it, SIGTERM or SIGINT end
//! it at once.
//!
//! SIGUSR1 asks for a stop that keeps the items (memcached's graceful restart), whether it comes
//! first or while the process stops already. The handlers set flags or call `_exit`; all else is
//! done by the thread that reads the flags.

use signal_hook::consts::{SIGUSR1, TERM_SIGNALS};
use signal_hook::flag::{register, register_conditional_shutdown};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the process was asked for.
#[derive(Debug, Default)]
pub struct Stop {
    stop: Arc<AtomicBool>,
    keep: Arc<AtomicBool>,
}

impl Stop {
    /// From now on a signal to end asks for it, and another one but SIGUSR1 ends the process with
    /// the status that a shell gives to a process ended by that signal.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub fn on_signals() -> io::Result<Self> {
        let asked = Self::default();
        for &signal in TERM_SIGNALS {
            // In this order: the first signal finds the flag unset and sets it afterwards.
            register_conditional_shutdown(signal, 128 + signal, Arc::clone(&asked.stop))?;
            register(signal, Arc::clone(&asked.stop))?;
        }
        // In this order: whoever sees that it is time sees also what for.
        register(SIGUSR1, Arc::clone(&asked.keep))?;
        register(SIGUSR1, Arc::clone(&asked.stop))?;
        Ok(asked)
    }

    /// Whether to stop.
    pub fn is_asked(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Whether items are to be kept, where there is something to keep them in.
    pub fn keeps_items(&self) -> bool {
        self.keep.load(Ordering::Acquire)
    }
}
