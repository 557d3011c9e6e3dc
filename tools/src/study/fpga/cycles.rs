//! What a request takes of each module of the FPGA appliance, in clock cycles.
//!
//! In: a request, and what happened in memory. Out: bytes and cycles. Each constant says where it comes from: a
//! section of the paper, a derivation, or one of two fits ([`HASH_START_CYCLES`], [`DRAM_CYCLES`]). Nothing fails.

/// Section 5.2.1: 125 MHz, with one instance and with two.
pub const CLOCK_HZ: f64 = 125e6;
/// Section 5.2.2: the offload engine has an 8-bit interface, so it moves a byte a cycle.
pub const NETWORK_BYTES: u64 = 1;
/// Section 6: packets are parsed and built in 32-bit words.
pub const PARSER_BYTES: u64 = 4;
/// Sections 5.2.2 and 6: 256-bit memory.
pub const MEMORY_BYTES: u64 = 32;
/// Sections 4.1.1 and 5.1: all keys have 64 bytes.
pub const KEY_BYTES: u64 = 64;
/// Section 4.3.4: the hash takes its key in pieces of 96 bits.
const HASH_BYTES: u64 = 12;
/// Section 4.3.4: a mix takes three cycles and the final mix four.
pub const HASH_STEPS: (u64, u64) = (3, 4);
/// Fitted: what 23 cycles for 64 bytes (5.2.2) leave beside five mixes and the final one (initial state, final addition).
pub const HASH_START_CYCLES: u64 = 4;
/// Fitted: what 42 cycles of a hash read (5.2.2) leave for each of its two accesses to DRAM, beside the words that it reads
/// and compares. The paper prints no latency of its DRAM.
pub const DRAM_CYCLES: u64 = 18;
/// Derived: Ethernet, IPv4 and UDP headers, which the offload engine reads and writes byte by byte (4.2.1).
pub const HEADERS_BYTES: u64 = 14 + 20 + 8;
/// Derived: preamble, checksum and gap of a frame (IEEE 802.3). They take time on the wire, and none of the modules'.
pub const WIRE_GAP_CYCLES: u64 = 8 + 4 + 12;
/// Header of a binary request or reply (the protocol, which 5.1 names). No UDP frame header: the paper mentions none.
const BINARY_BYTES: u64 = 24;
/// Extras of a binary SET: flags and expiry.
const SET_EXTRAS_BYTES: u64 = 8;
/// Extras of a binary GET's reply: flags.
const GET_EXTRAS_BYTES: u64 = 4;

/// A request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// The number of its key.
    pub key: u64,
    /// A SET; otherwise a GET.
    pub set: bool,
    /// Length of the object.
    pub value_bytes: u64,
}

impl Request {
    /// The memcached packet, as the input FIFO holds it.
    pub fn packet_bytes(self) -> u64 {
        let value = if self.set { SET_EXTRAS_BYTES + self.value_bytes } else { 0 };
        BINARY_BYTES + KEY_BYTES + value
    }

    /// The packet of its reply: a SET's and a miss are a header alone (4.1, 4.3.2).
    pub fn reply_bytes(self, hit: bool) -> u64 {
        let value = if hit && !self.set { GET_EXTRAS_BYTES + self.value_bytes } else { 0 };
        BINARY_BYTES + value
    }
}

/// A packet with its headers, in or out through the offload engine.
pub fn network(packet_bytes: u64) -> u64 {
    (HEADERS_BYTES + packet_bytes).div_ceil(NETWORK_BYTES)
}

/// A packet through the packet decipher or the response generator.
pub fn parse(packet_bytes: u64) -> u64 {
    packet_bytes.div_ceil(PARSER_BYTES)
}

/// The hash of a key: a mix for every 12 bytes while more than 12 are left, then the final mix (4.3.4).
pub fn hash(key_bytes: u64, (mix, last): (u64, u64)) -> u64 {
    let mixes = key_bytes.div_ceil(HASH_BYTES).saturating_sub(1);
    HASH_START_CYCLES + mixes * mix + last
}

/// A read of words that lie together.
fn read(bytes: u64) -> u64 {
    DRAM_CYCLES + words(bytes)
}

/// Words of memory. Writes are posted: a word takes a cycle.
fn words(bytes: u64) -> u64 {
    bytes.div_ceil(MEMORY_BYTES)
}

/// A valid bit is cleared: its word is read and written.
fn clear() -> u64 {
    read(MEMORY_BYTES) + words(MEMORY_BYTES)
}

/// The hash read module: the bucket's valid bits, a word (4.3.5.4), then entry by entry a key and a word of fields,
/// compared word by word (4.3.5.1).
pub fn hash_read(entries: u64) -> u64 {
    read(MEMORY_BYTES) + entries * (read(KEY_BYTES + MEMORY_BYTES) + words(KEY_BYTES))
}

/// The slab read module: a word of fields and the value.
pub fn slab_read(value_bytes: u64) -> u64 {
    read(MEMORY_BYTES + value_bytes)
}

/// The hash write module up to its choice of an entry: the bucket's valid bits, and when the entry held an item, that
/// entry's fields and its slab's valid bit.
pub fn hash_choose(evicts: bool) -> u64 {
    read(MEMORY_BYTES) + if evicts { read(MEMORY_BYTES) + clear() } else { 0 }
}

/// The same module after the slab write's answer: fields and valid bits. The key was written meanwhile.
pub fn hash_commit() -> u64 {
    2 * words(MEMORY_BYTES)
}

/// The slab write module, as the key is written: the slab's counter, a word (4.3.5.4), the valid bits where that points,
/// then a word of fields, the value, and counter and bits; when the slot held an item, its back pointer and its bucket's
/// valid bit first.
pub fn slab_write(value_bytes: u64, evicts: bool) -> u64 {
    let choose = 2 * read(MEMORY_BYTES) + if evicts { read(MEMORY_BYTES) + clear() } else { 0 };
    let write = words(MEMORY_BYTES + value_bytes) + 2 * words(MEMORY_BYTES);
    (choose + write).max(words(KEY_BYTES))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Section 5.2.2 prints 23 cycles for 64 bytes. Section 4.3.4 prints about 34 for 60 bytes with a mix of 6 and a
    /// final mix of 7 cycles, which nothing here was fitted to.
    #[test]
    fn hashes_take_what_the_paper_prints() {
        assert_eq!(hash(KEY_BYTES, HASH_STEPS), 23);
        assert!(hash(60, (6, 7)).abs_diff(34) <= 1, "{}", hash(60, (6, 7)));
    }

    #[test]
    fn one_entry_is_read_in_42_cycles_and_others_take_more() {
        assert_eq!(hash_read(1), 42);
        assert!(hash_read(0) < 42 && hash_read(4) < 4 * 42 && hash_read(4) > 42);
    }
}
