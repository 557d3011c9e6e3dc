//! The byte layouts that the host, the GPU and the SIMT executor share.
//!
//! ```text
//! Entry, 12 bytes (what goes in)            ReqDesc, 64 bytes = one cache line (what comes out)
//! 0  slot   u32                             0  verdict   u8     4  payload_off u16
//! 4  off    u16  frame's start in the slot  1  reason    u8     6  payload_len u16
//! 6  len    u16  frame's length             2  verb      u8     8  reserved    8 bytes
//! 8  l3     u8   network header, in frame   3  n_keys    u8    16  keys  6 x KeyDesc
//! 9  l4     u8   UDP header, in frame
//! 10 flags  u8                              KeyDesc, 8 bytes
//! 11 mark   u8                              0 off u16   2 len u8   3 hint u8   4 location u32
//! ```
//!
//! All offsets in a `ReqDesc` count from the first byte of the frame.

/// Keys that travel in one descriptor. A request with more is `Slow`.
pub const KEYS_MAX: usize = 6;

/// Facts about a frame that room 3 found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct EntryFlags(pub u8);

impl EntryFlags {
    /// The network header is IPv6.
    pub const IPV6: Self = Self(1);
    /// The IPv4 header checksum is known to be right.
    pub const IP_GOOD: Self = Self(2);
    /// The UDP checksum is known to be right.
    pub const UDP_GOOD: Self = Self(4);
    /// The source is not trusted: room 6 bounds its reply. Engines leave it alone.
    pub const LIMITED: Self = Self(8);

    /// Both sets of flags.
    #[must_use]
    pub fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all of `other` are set.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

/// One frame of a batch: where it is, not what it says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct Entry {
    /// Slot in the shared region.
    pub slot: u32,
    /// First byte of the frame in the slot.
    pub off: u16,
    /// Bytes of the frame.
    pub len: u16,
    /// First byte of the IP header in the frame.
    pub l3: u8,
    /// First byte of the UDP header in the frame.
    pub l4: u8,
    /// What is known already.
    pub flags: EntryFlags,
    /// The owner's mark (the port it came from); engines leave it alone.
    pub mark: u8,
}

/// What became of a request in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Verdict {
    /// Parse it on the CPU with the strict parser. Also what an engine that never ran leaves.
    #[default]
    Slow = 0,
    /// Parsed; the descriptor says what was asked.
    Ready = 1,
    /// Not to be answered; `reason` says why.
    Bad = 2,
}

/// Why a datagram is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum BadReason {
    /// Not bad.
    #[default]
    None = 0,
    /// The IPv4 header checksum is wrong.
    IpChecksum = 1,
    /// The UDP checksum is wrong, or missing over IPv6.
    UdpChecksum = 2,
    /// No room for the 8-byte memcached frame header and a request.
    FrameShort = 3,
    /// A request in several datagrams (total is not 1).
    FrameMultipart = 4,
}

/// What a `Ready` request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Verb {
    /// ASCII `get`.
    #[default]
    Get = 0,
    /// ASCII `gets`: with CAS ids.
    Gets = 1,
}

/// What the engine's index says about a key. A proposal, never the truth (D1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum Hint {
    /// Not looked up: ask the host index.
    #[default]
    Unknown = 0,
    /// Probably at the location beside it.
    Hit = 1,
    /// Not in this engine's index.
    Miss = 2,
}

/// One key of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct KeyDesc {
    /// First byte of the key in the frame.
    pub off: u16,
    /// Bytes of the key, 1 to 250.
    pub len: u8,
    /// What the index said.
    pub hint: Hint,
    /// Where, when it said `Hit`.
    pub location: u32,
}

/// What one request asked for, and where the answer probably is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub struct ReqDesc {
    /// What became of it.
    pub verdict: Verdict,
    /// Why, when it is `Bad`.
    pub reason: BadReason,
    /// What it asks, when it is `Ready`.
    pub verb: Verb,
    /// Keys in use.
    pub n_keys: u8,
    /// First byte after the memcached frame header, in the frame.
    pub payload_off: u16,
    /// Bytes of the request text.
    pub payload_len: u16,
    /// Zero.
    pub reserved: [u8; 8],
    /// The keys, in the order asked.
    pub keys: [KeyDesc; KEYS_MAX],
}

impl ReqDesc {
    /// A request that is not answered.
    pub fn bad(reason: BadReason) -> Self {
        Self { verdict: Verdict::Bad, reason, ..Self::default() }
    }
}

const _: () = assert!(size_of::<Entry>() == 12);
const _: () = assert!(size_of::<KeyDesc>() == 8);
const _: () = assert!(size_of::<ReqDesc>() == 64 && align_of::<ReqDesc>() == 64);
