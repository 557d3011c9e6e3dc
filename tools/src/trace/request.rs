//! What a request payload asks for, as far as a reply can be checked against it.
//!
//! In: a frame. Out: who asks, under which id, in which protocol, and for what. `None` for what is
//! no datagram with a frame header. Requests that call for no particular reply, or that only the
//! server can judge, are [`Asked::Other`].

#[cfg(test)]
mod tests;

use super::datagram::Datagram;
use super::generate::SPOILT_MARK;
use crate::workload::Protocol;
use dataplane::protocol::binary::{Header, REQUEST_MAGIC, opcode};
use dataplane::protocol::command::KEY_MAX_BYTES;
use dataplane::protocol::udp_frame::HEADER_BYTES as UDP_FRAME_BYTES;

/// The reply that a request calls for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// Some of the values of so many keys.
    Get(u32),
    /// That a value was stored.
    Set,
    /// That a key was deleted or was not there.
    Delete,
    /// Anything else: a reply may come or not. A spoilt frame counts here even when the damage
    /// lies where only the server can see it.
    Other,
}

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
        let (header, text) =
            frame.get(datagram.payload.clone())?.split_first_chunk::<UDP_FRAME_BYTES>()?;
        let id = u16::from_be_bytes([header[0], header[1]]);
        let protocol = spoken(text);
        // One datagram of one, reserved field 0: the only requests that servers take.
        let plain = header[4..] == [0, 1, 0, 0];
        let asked = if plain { asked(protocol, text) } else { None };
        Some(Self { datagram, id, protocol, asked: asked.unwrap_or(Asked::Other) })
    }

    /// Appends the keys that a get of this frame asks for, with a blank between them.
    pub fn append_keys(&self, frame: &[u8], out: &mut Vec<u8>) {
        let text = frame.get(self.datagram.payload.clone()).and_then(|p| p.get(UDP_FRAME_BYTES..));
        let start = out.len();
        let mut push = |key: &[u8]| {
            if out.len() > start {
                out.push(b' ');
            }
            out.extend_from_slice(key);
        };
        if let (Asked::Get(_), Some(text)) = (self.asked, text) {
            keys(self.protocol, text, &mut push);
        }
    }
}

/// The protocol that a request begins in.
fn spoken(text: &[u8]) -> Protocol {
    match text {
        [REQUEST_MAGIC, ..] => Protocol::Binary,
        [b'm', b'g' | b's' | b'd' | b'n', b' ' | b'\r', ..] => Protocol::Meta,
        _ => Protocol::Ascii,
    }
}

fn is_key(k: &[u8]) -> bool {
    !k.is_empty()
        && k.len() <= KEY_MAX_BYTES
        && k.iter().all(|b| *b > b' ' && *b != 0x7f)
        && k.first() != Some(&SPOILT_MARK)
}

/// `None`: nothing that a reply could be held against.
fn asked(protocol: Protocol, text: &[u8]) -> Option<Asked> {
    if let Some(count) = keys(protocol, text, &mut |_| ()) {
        return Some(Asked::Get(count));
    }
    match protocol {
        Protocol::Ascii | Protocol::Meta => lines(text),
        Protocol::Binary => {
            let (op, extras, key, rest) = packet(text)?;
            if !rest.is_empty() || !is_key(key) {
                return None;
            }
            match (op, extras) {
                (opcode::SET, 8) => Some(Asked::Set),
                (opcode::DELETE, 0) => Some(Asked::Delete),
                _ => None,
            }
        }
    }
}

/// Tells of each key of a get, and says how many there are. `None`: it is no get, or not one that
/// a reply can be held against.
fn keys(protocol: Protocol, text: &[u8], each: &mut dyn FnMut(&[u8])) -> Option<u32> {
    match protocol {
        Protocol::Ascii => {
            let line = text.strip_suffix(b"\r\n")?;
            let list = line.strip_prefix(b"get ").or_else(|| line.strip_prefix(b"gets "))?;
            let mut count = 0;
            for key in list.split(|b| *b == b' ') {
                is_key(key).then(|| each(key))?;
                count += 1;
            }
            Some(count)
        }
        Protocol::Meta => {
            let mut rest = text;
            let mut count = 0;
            while let Some(after) = rest.strip_prefix(b"mg ") {
                let len = after.iter().position(|b| *b == b' ')?;
                let (key, flags) = after.split_at(len);
                is_key(key).then(|| each(key))?;
                count += 1;
                if count == 1 && flags == b" k f v\r\n" {
                    return Some(1);
                }
                rest = flags.strip_prefix(b" k f v q\r\n")?;
            }
            (rest == b"mn\r\n" && count > 0).then_some(count)
        }
        Protocol::Binary => {
            let mut rest = text;
            let mut count = 0;
            loop {
                let (op, extras, key, after) = packet(rest)?;
                rest = after;
                match op {
                    opcode::GETK if count == 0 => {
                        let alone = extras == 0 && is_key(key) && rest.is_empty();
                        alone.then(|| each(key))?;
                        return Some(1);
                    }
                    opcode::GETKQ if extras == 0 && is_key(key) => each(key),
                    opcode::NOOP if count > 0 && rest.is_empty() => return Some(count),
                    _ => return None,
                }
                count += 1;
            }
        }
    }
}

/// A binary request: its opcode, bytes of extras, key, and what follows it.
fn packet(text: &[u8]) -> Option<(u8, u8, &[u8], &[u8])> {
    let (header, rest) = Header::split(text)?;
    let (body, rest) = rest.split_at_checked(usize::try_from(header.body_bytes).ok()?)?;
    let extras = usize::from(header.extras_bytes);
    let key = body.get(extras..extras + usize::from(header.key_bytes))?;
    let plain = header.magic == REQUEST_MAGIC && header.status == 0;
    plain.then_some((header.opcode, header.extras_bytes, key, rest))
}

/// Sets and deletes in text.
fn lines(text: &[u8]) -> Option<Asked> {
    let end = text.windows(2).position(|w| w == b"\r\n")?;
    let (line, data) = (text.get(..end)?, text.get(end + 2..)?);
    let mut words = line.split(|b| *b == b' ');
    let verb = words.next()?;
    let key = is_key(words.next()?);
    let number = |w: Option<&[u8]>| std::str::from_utf8(w?).ok()?.parse::<u32>().ok();
    let bytes = match verb {
        b"set" => {
            let (_flags, _exptime) = (number(words.next())?, number(words.next())?);
            number(words.next())?
        }
        b"ms" => {
            let bytes = number(words.next())?;
            // Flags F and T, as we write them: others change what comes back.
            let known = |w: Option<&[u8]>, flag: u8| {
                let word = w?;
                (word.first() == Some(&flag)).then(|| number(word.get(1..)))?
            };
            let (_f, _t) = (known(words.next(), b'F')?, known(words.next(), b'T')?);
            bytes
        }
        b"delete" | b"md" => {
            return (key && data.is_empty() && words.next().is_none()).then_some(Asked::Delete);
        }
        _ => return None,
    };
    let bytes = usize::try_from(bytes).ok()?;
    let whole = data.len() == bytes.checked_add(2)? && data.ends_with(b"\r\n");
    (key && whole && words.next().is_none()).then_some(Asked::Set)
}
