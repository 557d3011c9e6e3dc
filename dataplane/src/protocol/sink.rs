//! Where reply bytes go: a connection's buffer, or the datagrams of one reply.

/// Takes reply bytes in order. Never fails for the writer: a sink that cannot take any more
/// remembers it, and its owner finds out at the end.
pub trait Sink {
    /// Appends `bytes` to the reply.
    fn put(&mut self, bytes: &[u8]);

    /// Whether the writer should stop between two values, to go on when there is room again.
    /// Only what can be resumed asks.
    fn is_full(&self) -> bool {
        false
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

/// A buffer that asks for a pause once it holds `max_bytes`.
#[derive(Debug)]
pub struct Buffer<'a> {
    /// The bytes.
    pub bytes: &'a mut Vec<u8>,
    /// Full from here on; what is being written may go beyond.
    pub max_bytes: usize,
}

impl Sink for Buffer<'_> {
    fn put(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
    }

    fn is_full(&self) -> bool {
        self.bytes.len() >= self.max_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_decimal() {
        for n in (0..2000).chain([u64::MAX]) {
            let mut bytes = Vec::new();
            Buffer { bytes: &mut bytes, max_bytes: 0 }.put_decimal(n);
            assert_eq!(bytes, n.to_string().as_bytes());
        }
    }
}
