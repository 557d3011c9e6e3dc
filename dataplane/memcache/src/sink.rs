//! Where reply bytes go: a connection's buffer, or the datagrams of one reply.

use arrayvec::ArrayVec;

/// Takes reply bytes in order. Never fails for the writer: a sink that cannot take any more
/// remembers it, and its owner finds out at the end.
pub trait Sink {
    /// Appends `bytes` to the reply.
    fn put(&mut self, bytes: &[u8]);

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

/// What the reply to a get of one value has beside the value, in bytes: key, numbers, flags, ends.
const BESIDE_VALUE_BYTES: usize = 1 << 10;

/// A buffer that is full once it holds `max_bytes`.
#[derive(Debug)]
pub struct Buffer<'a> {
    bytes: &'a mut Vec<u8>,
    max_bytes: usize,
    /// Most bytes that it may hold with a value behind the rest.
    limit_bytes: usize,
    /// What a value that was not admitted needs, alone in the buffer.
    needs: usize,
    /// There was no memory for something.
    lost: bool,
}

impl<'a> Buffer<'a> {
    /// Appends to `bytes`. Full from `max_bytes` on; what is being written may go beyond.
    pub fn new(bytes: &'a mut Vec<u8>, max_bytes: usize) -> Self {
        Self { bytes, max_bytes, limit_bytes: usize::MAX, needs: 0, lost: false }
    }

    /// The same, admitting values only as far as all of the reply stays below `limit_bytes`.
    pub fn limited_to(self, limit_bytes: usize) -> Self {
        Self { limit_bytes, ..self }
    }

    /// Bytes that the reply needs whose value was not admitted; 0 when all were.
    pub fn needs(&self) -> usize {
        self.needs
    }

    /// Whether all that was put is there. If not, nothing is: half a reply would be a wrong one.
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

    fn is_full(&self) -> bool {
        self.lost || self.bytes.len() >= self.max_bytes
    }

    fn room(&self) -> usize {
        self.limit_bytes.saturating_sub(self.bytes.len().saturating_add(BESIDE_VALUE_BYTES))
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
