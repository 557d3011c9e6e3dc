//! `stat`: the statistics, one packet for each.

use super::execute::{Answer, answer};
use super::{Request, Status};
use crate::protocol::Sink;
use crate::protocol::stats::{self, Page, Rows, Server};
use crate::store::Session;
use std::fmt::Display;

/// Answers `stat what`.
pub(super) fn write(
    request: &Request<'_>,
    what: &[u8],
    server: &Server,
    session: &mut Session,
    out: &mut impl Sink,
) {
    let mut packets = Packets { request, out };
    let last = match stats::page(Some(what), server, session, &mut packets) {
        Page::Rows | Page::Line(b"RESET\r\n" | b"OK\r\n") => Answer::default(),
        Page::Text(text) => {
            packets.put(b"detailed", &text);
            Answer::default()
        }
        Page::Line(_) => Answer::of(Status::NotFound),
    };
    // The last packet is an empty one.
    answer(request, &last, out);
}

/// Makes a packet of every row.
struct Packets<'a, S> {
    request: &'a Request<'a>,
    out: &'a mut S,
}

impl<S: Sink> Packets<'_, S> {
    fn put(&mut self, key: &[u8], value: &[u8]) {
        let packet = Answer { key, value: value.into(), ..Answer::default() };
        answer(self.request, &packet, self.out);
    }
}

impl<S: Sink> Rows for Packets<'_, S> {
    fn row(&mut self, name: &str, value: &dyn Display) {
        self.put(name.as_bytes(), value.to_string().as_bytes());
    }
}
