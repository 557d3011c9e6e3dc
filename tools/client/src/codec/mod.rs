//! memcached's protocols as a client speaks them: the one codec of all tools.
//!
//! [`request`] writes requests in text, meta and binary form; [`reply`] reads what comes back, piece
//! by piece; [`udp`] is the header of every datagram; [`connection`] is a TCP stream that replies
//! are read from; [`asked`] reads requests back from a capture; [`stag`] has what one-sided reads over the
//! network need, and replies say where items lie for those in the memory file.

pub mod asked;
pub mod connection;
mod malformed;
mod place;
pub mod reply;
pub mod request;
pub mod stag;
pub mod udp;

pub use asked::Asked;
pub use base::memory_file::Place;
pub use malformed::Malformed;
pub use reply::{Reply, Value};
pub use request::{Field, Set};
pub use stag::Stag;

/// What requests are written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
pub enum Protocol {
    /// The classic text protocol.
    #[default]
    Ascii,
    /// Meta commands.
    Meta,
    /// The binary protocol.
    Binary,
}

/// What was read, and what follows it; `None` while it is not whole.
type Read<'a, T> = Result<Option<(T, &'a [u8])>, Malformed>;

/// Bytes that no line of a server reaches.
const LINE_MAX_BYTES: usize = 4096;

/// A line without its end.
fn line(text: &[u8]) -> Read<'_, &[u8]> {
    let Some(end) = text.iter().position(|b| *b == b'\n') else {
        return if text.len() < LINE_MAX_BYTES { Ok(None) } else { Err(Malformed) };
    };
    let (line, after) = text.split_at_checked(end).ok_or(Malformed)?;
    let line = line.strip_suffix(b"\r").ok_or(Malformed)?;
    Ok(Some((line, after.get(1..).unwrap_or_default())))
}

/// Digits and nothing else, as programs write them.
fn number<T: std::str::FromStr>(word: &[u8]) -> Option<T> {
    let digits = !word.is_empty() && word.iter().all(u8::is_ascii_digit);
    digits.then(|| std::str::from_utf8(word).ok()?.parse().ok())?
}
