//! What commands use of TLS: certificates can be read again, and how old they are.

use std::fmt::Debug;

/// The owner of the server's certificates.
pub trait Refresh: Send + Sync + Debug {
    /// Reads their files again.
    ///
    /// # Errors
    /// Why not, in one line; then what was known still is.
    fn refresh(&self) -> Result<(), String>;

    /// Seconds since they were read.
    fn age_seconds(&self) -> u64;

    /// Whether clients may take up a session again.
    fn keeps_sessions(&self) -> bool;
}
