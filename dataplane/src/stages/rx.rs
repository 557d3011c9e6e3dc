//! Stage 2: polls a queue, stamps what came and prefetches its headers.
//!
//! In: whatever the driver holds. Out: the burst, each frame with the worker's time on it and its
//! first line on the way to the cache. The worker owns the frames. Nothing can fail; 0 frames
//! is the common case.

use driver_shim::prefetch_read;
use driver_shim::{Burst, RxQueue};

/// Takes one burst. `now_ns` is the worker's clock.
pub fn receive(queue: &mut dyn RxQueue, into: &mut Burst, now_ns: u64) -> usize {
    let before = into.len();
    queue.burst(into);
    // Frames are counted as received here, not by the port: the packet-accounting invariant is over frames.
    let received = into.get_mut(before..).unwrap_or_default();
    for frame in received.iter_mut() {
        frame.stamp_ns = now_ns;
        prefetch_read(frame.bytes().as_ptr());
    }
    received.len()
}
