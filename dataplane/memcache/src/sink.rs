//! Where reply bytes go: a connection's buffer, straight to its socket, or the datagrams of one reply.

use arrayvec::ArrayVec;
use std::fmt;

/// Takes reply bytes in order. Never fails for the writer: a sink that cannot take any more
/// remembers it, and its owner finds out at the end.
pub trait Sink {
    /// Appends `bytes` to the reply.
    fn put(&mut self, bytes: &[u8]);

    /// Appends a value, or the end of one, and what stands behind it.
    #[inline(always)]
    fn put_with_tail(&mut self, bytes: &[u8], tail: Tail) {
        self.put(bytes);
        self.put(tail.bytes);
    }

    /// Whether the writer should stop between two values, to go on when there is space again.
    /// Called only by writers that can resume.
    fn is_full(&self) -> bool {
        false
    }

    /// Most bytes that a value may have to be put now.
    fn room(&self) -> usize {
        usize::MAX
    }

    /// Whether [`Self::room`] is enough for a value of this length. If not, the sink remembers what
    /// was missing, and nothing of the value is to be put.
    fn admits(&mut self, bytes: usize) -> bool {
        bytes <= self.room()
    }

    /// Bytes that can still be put, where a reply with more is refused as a whole.
    fn left(&self) -> Option<usize> {
        None
    }

    /// Appends a number in decimal.
    #[inline]
    fn put_decimal(&mut self, n: u64) {
        match u8::try_from(n) {
            // Client flags and lengths of small values.
            Ok(n @ 0..10) => self.put(&[b'0' + n]),
            Ok(n @ 10..100) => self.put(&[b'0' + n / 10, b'0' + n % 10]),
            _ => self.put(itoa::Buffer::new().format(n).as_bytes()),
        }
    }
}

/// What stands behind a value in a reply.
#[derive(Debug, Clone, Copy)]
pub struct Tail {
    /// This text.
    pub bytes: &'static [u8],
    /// Then the reply is at its end.
    pub last: bool,
}

/// What the reply to a get of one value has beside the value, in bytes: key, numbers, flags, ends.
const BESIDE_VALUE_BYTES: usize = 1 << 10;

/// What is as long is sent from where it lies, where a [`Sender`] is there;
const LONG_BYTES: usize = 16 << 10;
/// as long as no more went in this turn, which others wait for.
const SENT_MAX_BYTES: usize = 1 << 20;

/// Sends pieces, one behind the other, as far as that goes at once: how many bytes went. The reply may be at its
/// end with them.
pub struct Sender<'a>(pub &'a mut dyn FnMut([&[u8]; 3], bool) -> usize);

impl fmt::Debug for Sender<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender")
    }
}

/// A buffer that is full once `max_bytes` were put.
#[derive(Debug)]
pub struct Buffer<'a> {
    bytes: &'a mut Vec<u8>,
    max_bytes: usize,
    /// Most bytes that may be put with a value behind the rest.
    limit_bytes: usize,
    sender: Option<Sender<'a>>,
    /// Bytes that went by it.
    sent: usize,
    /// What a value that was not admitted needs, alone in the buffer.
    needs: usize,
    /// There was no memory for something.
    lost: bool,
}

impl<'a> Buffer<'a> {
    /// Appends to `bytes`. Full from `max_bytes` on; what is being written may go beyond.
    pub fn new(bytes: &'a mut Vec<u8>, max_bytes: usize) -> Self {
        let limit_bytes = usize::MAX;
        Self { bytes, max_bytes, limit_bytes, sender: None, sent: 0, needs: 0, lost: false }
    }

    /// The same, admitting values only as far as all of the reply stays below `limit_bytes`.
    pub fn limited_to(self, limit_bytes: usize) -> Self {
        Self { limit_bytes, ..self }
    }

    /// The same, sending long values, and what stands before them, as far as that goes at once.
    pub fn sent_by(self, sender: Sender<'a>) -> Self {
        Self { sender: Some(sender), ..self }
    }

    /// Bytes that were put so far.
    fn put_bytes(&self) -> usize {
        self.sent.saturating_add(self.bytes.len())
    }

    /// Sends what is in the buffer, and of a value and its tail what goes with it; the rest is put.
    #[cold]
    fn put_long(&mut self, mut bytes: &[u8], Tail { bytes: mut tail, last }: Tail) {
        let may_send = !self.lost && self.sent < SENT_MAX_BYTES;
        if let Some(sender) = self.sender.take().filter(|_| may_send) {
            let mut sent = (sender.0)([self.bytes, bytes, tail], last);
            self.sent = self.sent.saturating_add(sent);
            let mut gone_of = |there: usize| {
                let gone = sent.min(there);
                sent -= gone;
                gone
            };
            self.bytes.drain(..gone_of(self.bytes.len()));
            bytes = bytes.get(gone_of(bytes.len())..).unwrap_or_default();
            tail = tail.get(gone_of(tail.len())..).unwrap_or_default();
            if bytes.is_empty() && tail.is_empty() {
                self.sender = Some(sender);
                return;
            }
        }
        // With the end of the reply, and a value's other parts, so that it need not grow for those.
        let rest = match self.limit_bytes {
            usize::MAX => BESIDE_VALUE_BYTES,
            limit => limit.saturating_sub(self.put_bytes().saturating_add(bytes.len())),
        };
        let most = bytes.len().saturating_add(rest.max(tail.len()));
        if self.lost || self.bytes.try_reserve_exact(most).is_err() {
            self.lost = true;
            return;
        }
        self.bytes.extend_from_slice(bytes);
        self.bytes.extend_from_slice(tail);
    }

    /// Bytes that the reply needs whose value was not admitted; 0 when all were.
    pub fn needs(&self) -> usize {
        self.needs
    }

    /// Whether all that was put is there or has gone. If not, nothing is there, and the connection is to end: half a
    /// reply would be a wrong one.
    pub fn finish(self) -> bool {
        if self.lost {
            self.bytes.clear();
        }
        !self.lost
    }
}

impl Sink for Buffer<'_> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        if self.lost || self.bytes.try_reserve(bytes.len()).is_err() {
            self.lost = true;
            return;
        }
        self.bytes.extend_from_slice(bytes);
    }

    #[inline]
    fn put_with_tail(&mut self, bytes: &[u8], tail: Tail) {
        if bytes.len() >= LONG_BYTES {
            return self.put_long(bytes, tail);
        }
        self.put(bytes);
        self.put(tail.bytes);
    }

    fn is_full(&self) -> bool {
        self.lost || self.put_bytes() >= self.max_bytes
    }

    fn room(&self) -> usize {
        self.limit_bytes.saturating_sub(self.put_bytes().saturating_add(BESIDE_VALUE_BYTES))
    }

    fn admits(&mut self, bytes: usize) -> bool {
        let fits = bytes <= self.room();
        if !fits {
            self.needs = bytes.saturating_add(BESIDE_VALUE_BYTES);
        }
        fits
    }
}

/// Counts what is put.
#[derive(Debug, Default)]
pub struct Count {
    /// Bytes so far.
    pub bytes: usize,
}

impl Sink for Count {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes = self.bytes.saturating_add(bytes.len());
    }
}

/// A piece of a reply. What does not fit is not there: the caller has checked how long it can be.
impl<const N: usize> Sink for ArrayVec<u8, N> {
    #[inline]
    fn put(&mut self, bytes: &[u8]) {
        let fits = self.try_extend_from_slice(bytes);
        debug_assert!(fits.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for n in (0..2000).chain([u64::MAX]) {
            let mut bytes = Vec::new();
            Buffer::new(&mut bytes, 0).put_decimal(n);
            assert_eq!(bytes, n.to_string().as_bytes());
        }
    }

    #[test]
    fn a_value_is_admitted_as_far_as_the_limit_goes() {
        let mut bytes = vec![0; 100];
        let mut out = Buffer::new(&mut bytes, 10).limited_to(100 + BESIDE_VALUE_BYTES + 5);
        assert!(out.admits(5));
        assert_eq!(out.needs(), 0);
        assert!(!out.admits(6));
        assert_eq!(out.needs(), BESIDE_VALUE_BYTES + 6);
        bytes.clear();
        assert!(Buffer::new(&mut bytes, 10).limited_to(BESIDE_VALUE_BYTES + 6).admits(6));
        assert!(Buffer::new(&mut bytes, 10).admits(usize::MAX >> 1));
    }

    /// However much goes at once: what was sent and what is in the buffer are the reply.
    #[test]
    fn long_values_are_sent_as_far_as_they_go() {
        let long = vec![b'v'; LONG_BYTES];
        let (more, end) = (Tail { bytes: b"\r\n", last: false }, Tail { bytes: b"E", last: true });
        let whole = [b"ab", &long[..], b"\r\nshort\r\nc", &long[..], b"E"].concat();
        let first = 2 + LONG_BYTES + 2;
        for most in [0, 1, 2, 3, first - 1, first, first + 1, whole.len() - 1, whole.len()] {
            let (mut left, mut sent, mut calls) = (most, Vec::new(), Vec::new());
            let mut send = |pieces: [&[u8]; 3], last| {
                calls.push(last);
                let all = pieces.concat();
                let taken = all.len().min(left);
                left -= taken;
                sent.extend_from_slice(&all[..taken]);
                taken
            };
            let mut bytes = b"a".to_vec();
            let mut out = Buffer::new(&mut bytes, first + 1).limited_to(whole.len());
            out = out.sent_by(Sender(&mut send));
            out.put(b"b");
            out.put_with_tail(&long, more);
            assert!(!out.is_full() && out.room() < long.len(), "what was sent counts");
            out.put_with_tail(b"short", more);
            assert!(out.is_full());
            out.put(b"c");
            out.put_with_tail(&long, end);
            assert!(out.finish());
            let again = if most >= first { &[false, true][..] } else { &[false] };
            assert_eq!((sent.len(), &calls[..]), (most, again), "of {most}");
            assert!([sent, bytes].concat() == whole, "of {most}");
        }
    }

    #[test]
    fn a_value_in_parts_takes_no_more_than_was_asked_for() {
        let parts = [2, 2, 3].map(|n| vec![b'v'; n * LONG_BYTES]);
        let len = parts.iter().map(Vec::len).sum::<usize>();
        let mut bytes = Vec::new();
        let mut out = Buffer::new(&mut bytes, 10).limited_to(10);
        assert!(!out.admits(len));
        let needs = out.needs();
        let mut out = Buffer::new(&mut bytes, 10).limited_to(needs);
        assert!(out.admits(len));
        out.put(b"VALUE k 0 70536\r\n");
        let on = Tail { bytes: b"", last: false };
        parts[..2].iter().for_each(|part| out.put_with_tail(part, on));
        out.put_with_tail(&parts[2], Tail { bytes: b"\r\nEND\r\n", last: true });
        assert!(out.finish() && bytes.len() > len);
        assert!(bytes.capacity() <= needs, "{} for {needs}", bytes.capacity());
    }

    #[test]
    fn half_a_reply_is_none() {
        let mut bytes = Vec::new();
        let mut out = Buffer::new(&mut bytes, 100);
        out.put(b"VALUE a 0 3\r\n");
        assert!(!out.is_full());
        out.lost = true;
        out.put(b"abc");
        assert!(out.is_full());
        assert!(!out.finish());
        assert!(bytes.is_empty());
        let mut out = Buffer::new(&mut bytes, 100);
        out.put(b"END\r\n");
        assert!(out.finish());
        assert_eq!(bytes, b"END\r\n");
    }
}
