//! Sleeping until the kernel has something for us, with a bound.

use arrayvec::ArrayVec;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::time::TimeSpec;
use std::os::fd::BorrowedFd;
use std::time::Duration;

/// Most descriptors that one wait looks at.
pub(crate) const WAIT_FDS_MAX: usize = 16;

/// Sleeps until one of the first [`WAIT_FDS_MAX`] of `fds` is readable, a signal comes, or
/// `at_most` is over.
pub(crate) fn until_readable<'a>(fds: impl Iterator<Item = BorrowedFd<'a>>, at_most: Duration) {
    let mut polled: ArrayVec<PollFd<'_>, WAIT_FDS_MAX> =
        fds.take(WAIT_FDS_MAX).map(|fd| PollFd::new(fd, PollFlags::POLLIN)).collect();
    // Whatever it says, the caller looks next: an error here is a wait that was too short.
    let _ = ppoll(&mut polled, Some(TimeSpec::from_duration(at_most)), None);
}
