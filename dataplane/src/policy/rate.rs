//! What may pass per second: the figures that a limit is made of.
//!
//! In: numbers from the command line. Out: the share of one worker. Cannot fail.

use std::num::{NonZeroU32, NonZeroU64};

/// What may pass per second. A second's worth may come at once. `None`: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rate {
    /// Requests.
    pub requests: Option<NonZeroU32>,
    /// Bytes of replies.
    pub reply_bytes: Option<NonZeroU64>,
}

impl Rate {
    /// The part of one worker among `workers`, rounded up.
    pub(super) fn share(self, workers: NonZeroU32) -> Self {
        let bytes = |n: NonZeroU64| n.get().div_ceil(u64::from(workers.get()));
        Self {
            requests: self.requests.and_then(|n| NonZeroU32::new(n.get().div_ceil(workers.get()))),
            reply_bytes: self.reply_bytes.and_then(|n| NonZeroU64::new(bytes(n))),
        }
    }
}
