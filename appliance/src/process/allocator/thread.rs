//! What a thread makes on its first use of a library, made when the thread starts: the C library notes
//! what is to be freed with the thread, in memory of its own, and ends the process if it has none.

use crate::process::log;
use parking_lot::Mutex;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::task::LocalSet;

/// For each thread that serves, when it starts.
pub fn prepare_thread() {
    // A buffer for lines.
    tracing::error!(target: log::UNWRITTEN, "ready");
    // A place in the queue for a lock that another thread has. The wait fails at once.
    let lock = Mutex::new(());
    let held = lock.lock();
    drop(lock.try_lock_for(Duration::from_nanos(1)));
    drop(held);
    // What a runtime has of each thread that runs it, wakes a task of it, or ends it.
    if let Ok(runtime) = Builder::new_current_thread().build() {
        LocalSet::new().block_on(&runtime, async {});
    }
}
