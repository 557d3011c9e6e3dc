//! A FIFO of packets with a second FIFO of their headers (section 4.2.2).
//!
//! In: bytes of one packet after the other. Out: whole packets in their order. A packet that finds the FIFO full is
//! dropped as a whole: what was stored of it stays until its header, marked as an error, is read (4.3.1). The header
//! FIFO never fills first: the paper prints no length of it.

use std::collections::VecDeque;

/// Section 4.2.2: the input packet FIFO.
pub const FIFO_BYTES: u64 = 512 << 10;

/// What the header FIFO says about a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header<T> {
    /// Which packet.
    pub of: T,
    /// Bytes stored of it.
    pub bytes: u64,
    /// All of it is there.
    pub whole: bool,
}

/// A FIFO.
#[derive(Debug)]
pub struct Fifo<T> {
    capacity: u64,
    held: u64,
    headers: VecDeque<Header<T>>,
    /// Bytes stored of the packet that is being written.
    stored: u64,
    overflowed: bool,
}

impl<T> Fifo<T> {
    /// An empty FIFO of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, held: 0, headers: VecDeque::new(), stored: 0, overflowed: false }
    }

    /// Bytes free.
    pub fn room(&self) -> u64 {
        self.capacity - self.held
    }

    /// Writes the next bytes of a packet, as far as it has lost none.
    pub fn write(&mut self, bytes: u64) {
        if !self.overflowed {
            let fits = bytes.min(self.room());
            self.held += fits;
            self.stored += fits;
            self.overflowed = fits < bytes;
        }
    }

    /// Ends a packet; whether all of it is there. One of which nothing was stored leaves no header.
    pub fn close(&mut self, of: T) -> bool {
        let bytes = std::mem::take(&mut self.stored);
        let whole = !std::mem::take(&mut self.overflowed);
        if whole || bytes > 0 {
            self.headers.push_back(Header { of, bytes, whole });
        }
        whole
    }

    /// The header of the oldest packet that is complete, or known to be in error.
    pub fn pop(&mut self) -> Option<Header<T>> {
        self.headers.pop_front()
    }

    /// Takes out bytes of the packet whose header was read.
    pub fn read(&mut self, bytes: u64) {
        self.held -= bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    /// Packets of random lengths, written piece by piece while a reader takes others out: each comes out whole and in
    /// order or not at all, and no byte stays.
    #[test]
    fn packets_are_whole_or_dropped() {
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(1);
        let mut fifo = Fifo::new(1_000);
        let (mut accepted, mut delivered, mut dropped, mut partial) = (Vec::new(), vec![], 0, 0);
        let mut reading: Option<(Header<(u32, u64)>, u64)> = None;
        for n in 0..20_000_u32 {
            let length = rng.random_range(1..400_u64);
            let (mut unwritten, reads) = (length, rng.random_range(0..8));
            while unwritten > 0 {
                let written = rng.random_range(1..=8).min(unwritten);
                unwritten -= written;
                fifo.write(written);
                assert!(fifo.room() <= 1_000);
                for _ in 0..reads {
                    reading = reading.or_else(|| fifo.pop().map(|header| (header, header.bytes)));
                    let Some((header, left)) = &mut reading else { break };
                    fifo.read(1);
                    *left -= 1;
                    if *left == 0 {
                        if header.whole {
                            assert_eq!(header.bytes, header.of.1, "{header:?}");
                            delivered.push(header.of);
                        } else {
                            assert!(header.bytes < header.of.1, "{header:?}");
                            partial += 1;
                        }
                        reading = None;
                    }
                }
            }
            match fifo.close((n, length)) {
                true => accepted.push((n, length)),
                false => dropped += 1,
            }
        }
        while let Some((header, left)) = reading.take().or_else(|| fifo.pop().map(|h| (h, h.bytes)))
        {
            fifo.read(left);
            delivered.extend(header.whole.then_some(header.of));
        }
        assert_eq!(delivered, accepted);
        assert_eq!(fifo.room(), 1_000);
        assert!(
            dropped > 1_000 && partial > 1_000 && delivered.len() > 1_000,
            "{dropped} {partial}"
        );
    }

    #[test]
    fn a_packet_without_a_byte_of_room_leaves_nothing() {
        let mut fifo = Fifo::new(10);
        fifo.write(10);
        assert!(fifo.close('a'));
        fifo.write(5);
        // What was lost stays lost, also when there is room again.
        fifo.read(10);
        fifo.write(5);
        assert!(!fifo.close('b'));
        assert_eq!(fifo.pop(), Some(Header { of: 'a', bytes: 10, whole: true }));
        assert_eq!((fifo.pop(), fifo.room()), (None, 10));
    }
}
