//! What a turn of a connection comes to: what it waits for then, or how it ended.
//!
//! In: nothing. Out: what the stage sets timers by, counts, and says to watchers. Nothing fails.

/// How a connection ended, in the words of memcached's watchers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum End {
    /// The client closed it, or the conversation.
    Normal,
    /// Input that cannot be followed, or the network.
    Error,
    /// Nothing came for too long, or nothing was taken.
    Idle,
    /// The service stops.
    Shutdown,
}

impl End {
    pub(super) fn reason(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Error => "error",
            Self::Idle => "idle_timeout",
            Self::Shutdown => "shutdown",
        }
    }
}

/// What a connection waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// The client.
    Client,
    /// Its next turn: others first.
    Turn,
    /// A buffer of the spill.
    Spill,
    /// Lines for a watcher.
    Lines,
    /// Its source's rate.
    Rate,
    /// The service stops: more of the client until then, in nanoseconds of the worker's clock.
    Until(u64),
}
