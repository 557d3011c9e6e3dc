//! What carries READs out: the seam between the client and a NIC, the kernel, or frames.

use std::io;

/// Why a READ got nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The responder refused it, which ends the queue pair: open another.
    #[error("the READ was refused with syndrome {0:#x}")]
    Refused(u8),
    /// Nothing came, however often it was requested: the queue pair is over.
    #[error("nothing answers the READ")]
    Silent,
    /// The transport's.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A connected queue pair that reads.
pub trait Reader {
    /// Reads as many bytes as `into` has of what a stag names, from its beginning.
    ///
    /// # Errors
    /// [`ReadError`]; the queue pair is then over, and `into` may hold anything.
    fn read(&mut self, stag: u64, into: &mut [u8]) -> Result<(), ReadError>;
}
