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
    fn put_decimal(&mut self, n: u64) {
        self.put(itoa::Buffer::new().format(n).as_bytes());
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
