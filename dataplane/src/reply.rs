//! A reply on its way from stage 6 to stage 7, and the datagrams that a long one is cut into.
//!
//! A [`Reply`] is not fit to send: addresses still point the wrong way round and lengths and
//! checksums are stale. Only stage 7 takes it, and only stage 7 makes it fit.

mod head;
mod whole;

pub(crate) use head::{head_fits, with_head};
pub(crate) use whole::{whole_fits, with_whole};

use base::small_bytes;
use driver_shim::{Frame, Region};
use memcache::sink::Sink;
use std::mem;
use wire::udp_frame::{self, HEADER_BYTES, PAYLOAD_MAX_BYTES};

/// Most datagrams of one reply: a value of 1 MB takes 754. One request can hold no more slots
/// than this.
pub const REPLY_DATAGRAMS_MAX: usize = 1024;

/// What a frame's leaving means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The last (mostly the only) datagram of a reply: its request is answered now.
    Answer,
    /// More datagrams of the same reply follow.
    Part,
    /// A frame of the kernel's, through the exception path.
    Kernel,
    /// An unsolicited one of our own.
    Announcement,
    /// A segment of a TCP connection.
    Segment,
}

/// Where the headers of a request, and so of its reply, stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Headers {
    /// First byte of the IP header.
    pub l3: u8,
    /// First byte of the UDP header.
    pub l4: u8,
    /// IPv6 rather than IPv4.
    pub ipv6: bool,
}

impl Headers {
    /// First byte of the memcached frame header.
    pub fn kv(self) -> usize {
        self.l4 as usize + 8
    }

    /// First byte of the text.
    pub fn text(self) -> usize {
        self.kv() + HEADER_BYTES
    }
}

/// An unsent reply: the request's headers, the reply's text.
#[derive(Debug)]
pub struct Reply {
    /// The frame, of the reply's length.
    pub frame: Frame,
    /// Where its headers stand.
    pub headers: Headers,
    /// What its leaving means.
    pub meaning: Meaning,
    /// What is known of its checksum.
    pub sum: Sum,
}

/// What is known of the checksum of a reply that is not sealed yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sum {
    /// Nothing.
    Unknown,
    /// The sum of the UDP payload, which was had for less than summing it.
    Payload(u16),
    /// The headers are the reply's own already, but for the UDP checksum: this is the sum of all
    /// that it covers.
    Covered(u16),
}

impl Reply {
    /// The reply to a request, all of it in one datagram.
    pub fn whole(frame: Frame, headers: Headers, sum: Sum) -> Self {
        Self { frame, headers, meaning: Meaning::Answer, sum }
    }

    /// Bytes of UDP payload: the memcached frame header and the text behind it.
    pub(crate) fn payload_bytes(&self) -> usize {
        self.frame.len().saturating_sub(self.headers.kv())
    }
}

/// Writes the memcached frame header of datagram `seq` of `total`, keeping the request's id.
#[inline]
fn number(frame: &mut Frame, headers: Headers, seq: usize, total: usize) {
    let field = frame.bytes_mut().get_mut(headers.kv()..);
    if let Some(field) = field.and_then(<[u8]>::first_chunk_mut) {
        renumber(field, seq, total);
    }
}

#[inline]
fn renumber(field: &mut [u8; HEADER_BYTES], seq: usize, total: usize) {
    let &mut [id_hi, id_lo, ..] = field;
    let clip = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    *field = udp_frame::header(u16::from_be_bytes([id_hi, id_lo]), clip(seq), clip(total));
}

/// Writes into the text of a single datagram. What does not fit is not written.
#[derive(Debug)]
pub struct OneDatagram<'a> {
    /// Where the next byte goes.
    rest: &'a mut [u8],
}

impl Sink for OneDatagram<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if bytes.len() <= self.rest.len() {
            let (to, rest) = mem::take(&mut self.rest).split_at_mut(bytes.len());
            small_bytes::copy(to, bytes);
            self.rest = rest;
        }
    }
}

/// Makes a request's frame its reply, of at most `text_max` bytes that `write` puts there.
///
/// False: the frame is unchanged, because that does not fit its slot.
#[inline]
#[must_use]
pub fn in_place(
    frame: &mut Frame,
    headers: Headers,
    text_max: usize,
    write: impl FnOnce(&mut OneDatagram<'_>),
) -> bool {
    let end = headers.text() + text_max;
    if text_max > PAYLOAD_MAX_BYTES || frame.set_len(end).is_err() {
        return false;
    }
    let payload = frame.bytes_mut().get_mut(headers.kv()..);
    let Some((field, rest)) = payload.and_then(<[u8]>::split_first_chunk_mut) else {
        return false;
    };
    renumber(field, 0, 1);
    let mut sink = OneDatagram { rest };
    write(&mut sink);
    let len = end - sink.rest.len();
    // Shorter than the length just set, so it fits.
    let shrunk = frame.set_len(len);
    debug_assert!(shrunk.is_ok());
    true
}

/// Why a reply cannot be sent as it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyFault {
    /// No free slot, or a request whose headers leave no space in its slot.
    NoFrame,
    /// More than [`REPLY_DATAGRAMS_MAX`] datagrams.
    TooLarge,
    /// More bytes than the source of the request may have.
    Amplified,
}

/// Cuts a reply into datagrams of [`PAYLOAD_MAX_BYTES`], the first in the request's own frame.
///
/// `frames` is the worker's, kept for its capacity; it is empty between replies.
#[derive(Debug)]
pub struct Datagrams<'a> {
    region: &'a Region,
    headers: Headers,
    frames: &'a mut Vec<Frame>,
    /// Text bytes in the last frame.
    used: usize,
    /// Most bytes of UDP payload in all of them, frame headers included.
    allowance: usize,
    /// What is left of that.
    left: usize,
    fault: Option<ReplyFault>,
}

impl<'a> Datagrams<'a> {
    /// Begins a reply in the request's frame, of at most `allowance` bytes of UDP payload, frame
    /// headers included. The request's text is lost.
    pub fn new(
        region: &'a Region,
        frame: Frame,
        headers: Headers,
        allowance: usize,
        frames: &'a mut Vec<Frame>,
    ) -> Self {
        debug_assert!(frames.is_empty() && frames.capacity() >= REPLY_DATAGRAMS_MAX);
        let mut new =
            Self { region, headers, frames, used: 0, allowance, left: allowance, fault: None };
        new.take(HEADER_BYTES);
        new.begin(frame);
        new
    }

    /// Takes payload bytes out of the allowance, if there are as many left.
    fn take(&mut self, bytes: usize) {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => self.fault = Some(ReplyFault::Amplified),
        }
    }

    fn begin(&mut self, mut frame: Frame) {
        if frame.set_len(self.headers.text() + PAYLOAD_MAX_BYTES).is_err() {
            self.fault = Some(ReplyFault::NoFrame);
        }
        self.frames.push(frame);
        self.used = 0;
    }

    /// One more frame, with the headers of the first.
    fn next(&mut self) {
        if self.frames.len() >= REPLY_DATAGRAMS_MAX {
            self.fault = Some(ReplyFault::TooLarge);
            return;
        }
        self.take(HEADER_BYTES);
        if self.fault.is_some() {
            return;
        }
        let Some(mut frame) = self.region.alloc() else {
            self.fault = Some(ReplyFault::NoFrame);
            return;
        };
        let head = self.frames.first().and_then(|f| f.bytes().get(..self.headers.text()));
        match head.map(|head| frame.fill(head)) {
            Some(Ok(())) => {
                frame.watched = self.frames.first().map_or(0, |f| f.watched);
                self.begin(frame);
            }
            _ => self.fault = Some(ReplyFault::NoFrame),
        }
    }

    /// Whether anything was written.
    pub fn is_empty(&self) -> bool {
        self.frames.len() <= 1 && self.used == 0
    }

    /// Bytes of text that were written.
    pub(crate) fn text_bytes(&self) -> usize {
        self.frames.len().saturating_sub(1) * PAYLOAD_MAX_BYTES + self.used
    }

    /// Throws away what was written, and a fault of size with it.
    pub fn restart(&mut self) {
        self.frames.truncate(1);
        self.used = 0;
        if matches!(self.fault, Some(ReplyFault::TooLarge | ReplyFault::Amplified)) {
            self.fault = None;
        }
        self.left = self.allowance;
        self.take(HEADER_BYTES);
    }

    /// Text bytes that still go into datagrams, as many as a reply may have.
    fn in_frames(&self) -> usize {
        let further = REPLY_DATAGRAMS_MAX.saturating_sub(self.frames.len());
        (PAYLOAD_MAX_BYTES - self.used) + further * PAYLOAD_MAX_BYTES
    }

    /// Text bytes that the allowance still lets through: each further datagram has a header.
    fn in_allowance(&self) -> usize {
        let here = self.left.min(PAYLOAD_MAX_BYTES - self.used);
        let later = self.left - here;
        let whole = later / (HEADER_BYTES + PAYLOAD_MAX_BYTES);
        let last = later % (HEADER_BYTES + PAYLOAD_MAX_BYTES);
        here + whole * PAYLOAD_MAX_BYTES + last.saturating_sub(HEADER_BYTES)
    }

    /// Notes that the reply has more than is left, which was not put: the fault that it would have been.
    pub fn overflow(&mut self) {
        let amplified = self.in_allowance() < self.in_frames();
        let fault = if amplified { ReplyFault::Amplified } else { ReplyFault::TooLarge };
        self.fault.get_or_insert(fault);
    }

    /// What went wrong, if anything.
    pub fn fault(&self) -> Option<ReplyFault> {
        self.fault
    }

    /// The request's frame as it came, with this text of it, in place of a reply.
    pub(crate) fn give_up(self, text: &[u8]) -> Option<Frame> {
        self.frames.truncate(1);
        let mut frame = self.frames.pop()?;
        let start = self.headers.text();
        frame.set_len(start + text.len()).ok()?;
        frame.bytes_mut().get_mut(start..)?.copy_from_slice(text);
        Some(frame)
    }

    /// Numbers the datagrams and gives them out in order.
    pub fn finish(self, mut emit: impl FnMut(Reply)) {
        let total = self.frames.len();
        for (seq, mut frame) in self.frames.drain(..).enumerate() {
            let last = seq + 1 == total;
            if last {
                let shrunk = frame.set_len(self.headers.text() + self.used);
                debug_assert!(shrunk.is_ok());
            }
            number(&mut frame, self.headers, seq, total);
            let meaning = if last { Meaning::Answer } else { Meaning::Part };
            emit(Reply { frame, headers: self.headers, meaning, sum: Sum::Unknown });
        }
    }
}

impl Drop for Datagrams<'_> {
    /// Returns the slots of a reply that was given up to the pool.
    fn drop(&mut self) {
        self.frames.clear();
    }
}

impl Sink for Datagrams<'_> {
    fn left(&self) -> Option<usize> {
        Some(if self.fault.is_some() { 0 } else { self.in_allowance().min(self.in_frames()) })
    }

    fn put(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.fault.is_none() {
            if self.used == PAYLOAD_MAX_BYTES {
                self.next();
                continue;
            }
            let (now, later) = bytes.split_at(bytes.len().min(PAYLOAD_MAX_BYTES - self.used));
            self.take(now.len());
            if self.fault.is_some() {
                return;
            }
            let start = self.headers.text() + self.used;
            let frame = self.frames.last_mut().map(Frame::bytes_mut);
            match frame.and_then(|b| b.get_mut(start..start + now.len())) {
                Some(to) => to.copy_from_slice(now),
                None => self.fault = Some(ReplyFault::NoFrame),
            }
            self.used += now.len();
            bytes = later;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use driver_shim::Pages;

    const HEADERS: Headers = Headers { l3: 14, l4: 34, ipv6: false };

    fn request(region: &Region) -> Frame {
        let mut frame = region.alloc().unwrap();
        let mut bytes = vec![0xAA; HEADERS.text()];
        bytes[HEADERS.kv()..HEADERS.kv() + 2].copy_from_slice(&[0x12, 0x34]);
        bytes.extend_from_slice(b"get a\r\n");
        frame.fill(&bytes).unwrap();
        frame
    }

    fn cut(region: &Region, text: &[u8]) -> Result<Vec<Reply>, ReplyFault> {
        cut_within(region, text, usize::MAX)
    }

    fn cut_within(
        region: &Region,
        text: &[u8],
        allowance: usize,
    ) -> Result<Vec<Reply>, ReplyFault> {
        let mut frames = Vec::with_capacity(REPLY_DATAGRAMS_MAX);
        let mut datagrams =
            Datagrams::new(region, request(region), HEADERS, allowance, &mut frames);
        for piece in text.chunks(1000) {
            datagrams.put(piece);
        }
        if let Some(fault) = datagrams.fault() {
            return Err(fault);
        }
        let mut out = Vec::new();
        datagrams.finish(|r| out.push(r));
        Ok(out)
    }

    #[test]
    fn cuts_at_every_boundary() {
        let region = Region::new(2000, Pages::Small).unwrap();
        for (len, want) in
            [(0, 1), (1, 1), (1391, 1), (1392, 1), (1393, 2), (2784, 2), (2785, 3), (1 << 20, 754)]
        {
            let text: Vec<u8> = (0..=250).cycle().take(len).collect();
            let replies = cut(&region, &text).unwrap();
            assert_eq!(replies.len(), want, "{len}");
            let mut got = Vec::new();
            for (seq, r) in replies.iter().enumerate() {
                let b = r.frame.bytes();
                let seq = u16::try_from(seq).unwrap();
                let total = u16::try_from(want).unwrap();
                let header = udp_frame::header(0x1234, seq, total);
                assert_eq!(b[HEADERS.kv()..HEADERS.text()], header);
                assert_eq!(b[..HEADERS.kv()], [0xAA; 42]);
                assert_eq!(r.meaning == Meaning::Answer, seq + 1 == total);
                got.extend_from_slice(&b[HEADERS.text()..]);
            }
            assert_eq!(got, text);
            drop(replies);
            assert_eq!(region.available(), region.capacity());
        }
    }

    #[test]
    fn too_many_datagrams_and_too_few_slots_are_faults() {
        let region = Region::new(2000, Pages::Small).unwrap();
        let text = vec![0; REPLY_DATAGRAMS_MAX * PAYLOAD_MAX_BYTES + 1];
        assert_eq!(cut(&region, &text).unwrap_err(), ReplyFault::TooLarge);
        assert_eq!(region.available(), region.capacity());
        let region = Region::new(3, Pages::Small).unwrap();
        assert_eq!(cut(&region, &[0; 1392 * 4]).unwrap_err(), ReplyFault::NoFrame);
        assert_eq!(region.available(), region.capacity());
    }

    #[test]
    fn the_allowance_counts_every_byte_of_payload_and_is_exact() {
        let region = Region::new(16, Pages::Small).unwrap();
        for len in [1, 37, 1392, 1393, 2784, 4000] {
            let text = vec![b'x'; len];
            let payload = len + 8 * len.div_ceil(PAYLOAD_MAX_BYTES);
            let replies = cut_within(&region, &text, payload).unwrap();
            assert_eq!(replies.iter().map(Reply::payload_bytes).sum::<usize>(), payload);
            drop(replies);
            let fault = cut_within(&region, &text, payload - 1).unwrap_err();
            assert_eq!(fault, ReplyFault::Amplified, "{len}");
            assert_eq!(region.available(), region.capacity());
        }
    }

    #[test]
    fn what_is_left_is_exact_and_one_byte_more_is_the_fault_of_putting_it() {
        let region = Region::new(2000, Pages::Small).unwrap();
        let whole = REPLY_DATAGRAMS_MAX * (HEADER_BYTES + PAYLOAD_MAX_BYTES);
        for allowance in [8, 9, 45, 1399, 1400, 1401, 1407, 1408, 1409, 2800, 5000]
            .into_iter()
            .chain([whole - 1, whole, whole + 1, usize::MAX])
        {
            for before in [0, 1, 37, 1391, 1392, 1393, 2784, 2785] {
                let mut frames = Vec::with_capacity(REPLY_DATAGRAMS_MAX);
                let frame = request(&region);
                let mut out = Datagrams::new(&region, frame, HEADERS, allowance, &mut frames);
                out.put(&vec![b'x'; before]);
                if out.fault().is_some() {
                    assert_eq!(out.left(), Some(0));
                    continue;
                }
                let left = out.left().unwrap();
                out.put(&vec![b'y'; left]);
                assert_eq!((out.fault(), out.left()), (None, Some(0)), "{allowance} {before}");
                out.put(b"z");
                let fault = out.fault();
                assert!(fault.is_some(), "{allowance} {before}");
                out.restart();
                out.put(&vec![b'x'; before]);
                assert_eq!((out.fault(), out.left()), (None, Some(left)));
                out.overflow();
                assert_eq!(out.fault(), fault, "{allowance} {before}");
            }
        }
    }

    #[test]
    fn a_reply_begun_again_has_its_whole_allowance() {
        let region = Region::new(16, Pages::Small).unwrap();
        let mut frames = Vec::with_capacity(REPLY_DATAGRAMS_MAX);
        let mut out = Datagrams::new(&region, request(&region), HEADERS, 45, &mut frames);
        out.put(&[b'x'; 30]);
        out.put(&[b'x'; 8]);
        assert_eq!(out.fault(), Some(ReplyFault::Amplified));
        out.restart();
        out.put(&[b'y'; 37]);
        assert_eq!(out.fault(), None);
        out.restart();
        out.put(&[b'z'; 38]);
        assert_eq!(out.fault(), Some(ReplyFault::Amplified));
        drop(out);
        assert_eq!(region.available(), region.capacity());
    }

    #[test]
    fn in_place_keeps_the_id_and_sets_the_length() {
        let region = Region::new(1, Pages::Small).unwrap();
        let mut frame = request(&region);
        assert!(in_place(&mut frame, HEADERS, 100, |s| s.put(b"END\r\n")));
        assert_eq!(&frame.bytes()[HEADERS.kv()..], b"\x12\x34\0\0\0\x01\0\0END\r\n");
        let before = frame.bytes().to_vec();
        assert!(!in_place(&mut frame, HEADERS, PAYLOAD_MAX_BYTES + 1, |_| {}));
        assert_eq!(frame.bytes(), before);
        assert!(
            in_place(&mut frame, HEADERS, 3, |s| s.put(b"four")),
            "what does not fit is left out"
        );
        assert_eq!(frame.len(), HEADERS.text());
    }
}
