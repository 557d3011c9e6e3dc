//! A request in a frame: its client, id, protocol and command.
//!
//! In: a frame. Out: the [`Request`], or `None` for what is no datagram with a frame header.

use super::datagram::Datagram;
use gnomon_client::codec::{Asked, Protocol, udp};

/// A datagram that bears a memcached UDP frame header and some request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// The envelope.
    pub datagram: Datagram,
    /// Request id.
    pub id: u16,
    /// What it is written in.
    pub protocol: Protocol,
    /// What is asked.
    pub asked: Asked,
}

impl Request {
    /// Reads a frame; `None` when it is no datagram with a frame header in it.
    pub fn parse(frame: &[u8]) -> Option<Self> {
        let datagram = Datagram::parse(frame)?;
        let payload = frame.get(datagram.payload.clone())?;
        let (part, text) = udp::split(payload)?;
        let protocol = Protocol::of(text);
        let asked = udp::request(payload).and_then(|text| protocol.asked(text));
        Some(Self { datagram, id: part.id, protocol, asked: asked.unwrap_or(Asked::Other) })
    }

    /// Appends the keys of this frame's get, with a blank between them.
    pub fn append_keys(&self, frame: &[u8], out: &mut Vec<u8>) {
        let text = frame.get(self.datagram.payload.clone()).and_then(udp::request);
        let start = out.len();
        let mut push = |key: &[u8]| {
            if out.len() > start {
                out.push(b' ');
            }
            out.extend_from_slice(key);
        };
        if let (Asked::Get(_), Some(text)) = (self.asked, text) {
            self.protocol.keys(text, &mut push);
        }
    }
}
