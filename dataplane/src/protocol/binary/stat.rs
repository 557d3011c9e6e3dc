//! `stat`: the statistics, one packet for each.

use super::execute::{Answer, answer};
use super::{Request, Status};
use crate::protocol::Sink;
use crate::protocol::stats::{self, Server};

/// Answers `stat what`.
pub(super) fn write(request: &Request<'_>, what: &[u8], server: &Server, out: &mut impl Sink) {
    let mut packets = Packets { request, line: Vec::new(), out };
    stats::write((!what.is_empty()).then_some(what), server, &mut packets);
}

/// Makes a packet of every line that is written to it.
struct Packets<'a, S> {
    request: &'a Request<'a>,
    /// The beginning of a line.
    line: Vec<u8>,
    out: &'a mut S,
}

impl<S: Sink> Sink for Packets<'_, S> {
    fn put(&mut self, bytes: &[u8]) {
        self.line.extend_from_slice(bytes);
        while let Some(end) = self.line.iter().position(|&b| b == b'\n') {
            let rest = self.line.split_off(end + 1);
            let line = std::mem::replace(&mut self.line, rest);
            let line = line.trim_ascii_end();
            let packet = match line.strip_prefix(b"STAT ") {
                Some(text) => {
                    let name_len = text.iter().position(|&b| b == b' ').unwrap_or(text.len());
                    let (key, value) = text.split_at(name_len);
                    let value = value.get(1..).unwrap_or_default().into();
                    Answer { key, value, ..Answer::default() }
                }
                // The last packet is an empty one.
                None if matches!(line, b"END" | b"RESET" | b"OK") => Answer::default(),
                None => Answer::of(Status::NotFound),
            };
            answer(self.request, &packet, self.out);
        }
    }
}
