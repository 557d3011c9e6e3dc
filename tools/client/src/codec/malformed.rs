//! What no server writes.
//!
//! In: nothing. Out: the error of every reader here.

/// It does not follow the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a reply that the protocol does not have")]
pub struct Malformed;

impl From<Malformed> for std::io::Error {
    fn from(malformed: Malformed) -> Self {
        Self::new(std::io::ErrorKind::InvalidData, malformed)
    }
}
