//! SIGTERM, SIGINT and SIGUSR1: the first stops the process; after it, SIGTERM or SIGINT end
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
use std::time::{Duration, Instant};

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
/// The kernel's refusal.
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

/// Waits for so long, however often signals come. `std::thread::sleep` goes on with what was left, to which the
/// kernel adds 50 us of slack each time: with net_tap, which sends a signal for each packet, it had no end at 20,000
/// packets a second.
pub fn pause(time: Duration) {
    let until = Instant::now() + time;
    while let Some(left) =
        until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
    {
        // Until a time on the clock, which stays what it is when a signal comes.
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::pthread::{pthread_kill, pthread_self};
    use nix::sys::signal::Signal;
    use std::sync::atomic::Ordering;

    #[test]
    fn a_pause_ends_though_signals_come_all_the_while() {
        register(signal_hook::consts::SIGUSR2, Arc::default()).unwrap();
        let (this, begun, is_over) = (pthread_self(), Instant::now(), AtomicBool::new(false));
        let late = Duration::from_secs(5);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) && begun.elapsed() < 2 * late {
                    pthread_kill(this, Signal::SIGUSR2).unwrap();
                    let sent = Instant::now();
                    while sent.elapsed() < Duration::from_micros(20) {
                        std::hint::spin_loop();
                    }
                }
            });
            pause(Duration::from_millis(10));
            is_over.store(true, Ordering::Relaxed);
        });
        let took = begun.elapsed();
        assert!((Duration::from_millis(10)..late).contains(&took), "{took:?}");
    }
}
