//! The byte layouts of a batch, which the host, the GPU and the SIMT executor share.
//!
//! ```text
//! Entry, 12 bytes (what goes in)            ReqDesc, 64 bytes = one cache line (what comes out)
//! 0  slot   u32                             0  verdict   u8     4  payload_off u16
//! 4  off    u16  frame's start in the slot  1  reason    u8     6  payload_len u16
//! 6  len    u16  frame's length             2  verb      u8     8  hash        u64
//! 8  l3     u8   network header, in frame   3  n_keys    u8    16  keys  6 x KeyDesc
//! 9  l4     u8   UDP header, in frame
//! 10 flags  u8                              KeyDesc, 8 bytes
//! 11 mark   u8                              0 off u16   2 len u8   3 hint u8   4 location u32
//!
//! ReplyHead, 128 bytes (what may come out)
//! 0  len        u8     2  sum    u16    8  value_len  u32
//! 1  has_line   u8     4  flags  u32   12  bytes      116 bytes
//!
//! WholeReply, 688 bytes (what comes out with rows, as far as it is used)
//! 0  facts     16 bytes     16  head  80 bytes     96  text  512 bytes     608  more  5 x 16 bytes
//! ```
//!
//! All offsets in a `ReqDesc` count from the first byte of the frame. `gpu/kernels/layout.h` says
//! the same in CUDA C++; `layout_check` compares the two. Every field takes every bit pattern: what
//! a device writes is looked at with suspicion, and cannot be undefined.

/// Keys that travel in one descriptor. A request with more is `Slow`.
pub const KEYS_MAX: usize = 6;

/// Facts about a frame that stage 3 found.
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
    /// The source is not trusted: stage 6 bounds its reply. Engines leave it alone.
    pub const LIMITED: Self = Self(8);
    /// What the request is, but for its checksums, is known: a `get` of one key of at most 32 bytes at the usual place, over
    /// IPv4 without a tag or padding, and nothing else. Engines leave it alone.
    pub const PLAIN: Self = Self(16);

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
    /// The owner's mark (the port it came from). Engines do not read it; kernels keep a request's
    /// [`BadReason`] in their own copy of it.
    pub mark: u8,
}

/// What became of a request in the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Verdict(pub u8);

impl Verdict {
    /// Parse it on the CPU with the strict parser.
    pub const SLOW: Self = Self(0);
    /// Parsed; the descriptor says what was asked.
    pub const READY: Self = Self(1);
    /// Not to be answered; `reason` says why.
    pub const BAD: Self = Self(2);
    /// Parse it on the CPU with the strict parser; the keys listed are the ones it will look for,
    /// with their hints. One that has a whole reply is answered by that, without the parser.
    pub const STRICT_HINTED: Self = Self(3);
}

/// Why a datagram is not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct BadReason(pub u8);

impl BadReason {
    /// Not bad.
    pub const NONE: Self = Self(0);
    /// The IPv4 header checksum is wrong.
    pub const IP_CHECKSUM: Self = Self(1);
    /// The UDP checksum is wrong, or missing over IPv6.
    pub const UDP_CHECKSUM: Self = Self(2);
    /// Too short for the 8-byte memcached frame header and a request.
    pub const FRAME_SHORT: Self = Self(3);
    /// A request in several datagrams (total is not 1).
    pub const FRAME_MULTIPART: Self = Self(4);
}

/// What a `READY` or `STRICT_HINTED` request asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
#[repr(transparent)]
pub struct Verb(pub u8);

impl Verb {
    /// ASCII `get`.
    pub const GET: Self = Self(0);
    /// ASCII `gets`: with CAS ids.
    pub const GETS: Self = Self(1);
    /// Binary GET or GETQ: `STRICT_HINTED`, as all below.
    pub const BINARY_GET: Self = Self(2);
    /// Binary GETK or GETKQ: with the key.
    pub const BINARY_GETK: Self = Self(3);
    /// `mg`.
    pub const META_GET: Self = Self(4);
}

/// What the engine's index says about a key. A proposal, never the truth (D1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Hint(pub u8);

impl Hint {
    /// Not looked up: ask the host index.
    pub const UNKNOWN: Self = Self(0);
    /// Probably at the location beside it.
    pub const HIT: Self = Self(1);
    /// Not in this engine's index.
    pub const MISS: Self = Self(2);
    /// Not looked up, but the device has a row for it.
    pub const ROW: Self = Self(3);
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
    /// Where, when it said `Hit`; which row, when it said `Row`.
    pub location: u32,
}

impl KeyDesc {
    /// The key, in its request's frame.
    #[inline]
    pub fn bytes(self, frame: &[u8]) -> Option<&[u8]> {
        let start = usize::from(self.off);
        frame.get(start..start + usize::from(self.len))
    }
}

/// One request's command, and where the answer probably is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C, align(64))]
pub struct ReqDesc {
    /// What became of it.
    pub verdict: Verdict,
    /// Why, when it is `Bad`.
    pub reason: BadReason,
    /// What it asks, when it is `READY` or `STRICT_HINTED`.
    pub verb: Verb,
    /// Keys in use.
    pub n_keys: u8,
    /// First byte after the memcached frame header, in the frame.
    pub payload_off: u16,
    /// Bytes of the request text.
    pub payload_len: u16,
    /// The hash of the key that begins the list of a `Slow` request, as far as the CPU engine could
    /// guess that key; else, and from every other engine, zero.
    pub hash: u64,
    /// The keys, in the order asked.
    pub keys: [KeyDesc; KEYS_MAX],
}

impl ReqDesc {
    /// A request that no engine has looked at: its text begins nowhere.
    pub const UNREAD: Self = Self {
        verdict: Verdict::SLOW,
        reason: BadReason::NONE,
        verb: Verb::GET,
        n_keys: 0,
        payload_off: 0,
        payload_len: 0,
        hash: 0,
        keys: [KeyDesc { off: 0, len: 0, hint: Hint::UNKNOWN, location: 0 }; KEYS_MAX],
    };

    /// The request's text, in its frame.
    #[inline]
    pub fn text<'f>(&self, frame: &'f [u8]) -> Option<&'f [u8]> {
        let start = usize::from(self.payload_off);
        frame.get(start..start + usize::from(self.payload_len))
    }

    /// A request that is not answered.
    pub fn bad(reason: BadReason) -> Self {
        Self { verdict: Verdict::BAD, reason, ..Self::default() }
    }
}

/// Bytes of a reply's head that fit a [`ReplyHead`].
pub const HEAD_BYTES_MAX: usize = 116;

/// The reply's headers, as an engine with helpers prepared them: what goes before the value, from
/// the frame's first byte on, for the hit that the descriptor proposes.
///
/// Made for a hit of a `Ready` [`Verb::GET`] of one key, where the head fits and the reply is one
/// datagram; only by an index that holds flags and lengths of values. One that ends before the line
/// would spare the host less than it costs it to read.
///
/// Like a hint it may be stale: it is right only if `flags` and `value_len` are the item's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(128))]
pub struct ReplyHead {
    /// Bytes in use; 0 when no head was made.
    pub len: u8,
    /// 1: it ends with the `VALUE` line, its line end included. All do.
    pub has_line: u8,
    /// Ones-complement sum of the UDP pseudo-header, the UDP header with no checksum in it, and
    /// the bytes of the head behind that, in network order, folded; an odd last byte is a high half.
    pub sum: u16,
    /// The item's flags, as the line and the lengths have them.
    pub flags: u32,
    /// Bytes of the item's value, as the line and the lengths have them.
    pub value_len: u32,
    /// The head.
    pub bytes: [u8; HEAD_BYTES_MAX],
}

impl Default for ReplyHead {
    fn default() -> Self {
        Self { len: 0, has_line: 0, sum: 0, flags: 0, value_len: 0, bytes: [0; HEAD_BYTES_MAX] }
    }
}

impl ReplyHead {
    /// The bytes in use.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or_default()
    }
}

/// What stands before the text of a reply, in a row and in what a device writes of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(C)]
pub struct RowFacts {
    /// Bytes of the text; 0: there is none. In a [`WholeReply`] bytes of its whole text.
    pub text_len: u16,
    /// Bytes of the value in it.
    pub value_len: u8,
    /// The item's size class, from 0.
    pub item_class: u8,
    /// Bytes of the key.
    pub key_len: u8,
    /// What the text replies to. Of an `mg` the bits from 4 on are the number of its flags.
    pub verb: Verb,
    /// In a row the ones-complement sum of the text, in network order, folded. In a [`WholeReply`] that
    /// of all that the UDP checksum covers.
    pub sum: u16,
    /// When the item expires, on the store's clock; 0 for never.
    pub expiry: u32,
    /// By which the row was found ([`crate::index::signature`]).
    pub signature: u32,
}

/// Most bytes of text in a row.
pub const ROW_TEXT_MAX: usize = 240;

/// Most bytes before the text of a reply: Ethernet with two tags, IPv6, UDP, memcached's frame header.
pub const REPLY_HEAD_BYTES: usize = 80;

/// Most bytes of text in a [`WholeReply`].
pub const WHOLE_TEXT_MAX: usize = 512;

/// A reply that a device wrote to a request all of whose keys have rows, but for the UDP checksum. Stale, unless the
/// filter says otherwise of each key ([`crate::index::Filter::accepts`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C, align(16))]
pub struct WholeReply {
    /// What it is about: the first key's, but for length and sum.
    pub facts: RowFacts,
    /// All that stands before the text, from its first byte on.
    pub head: [u8; REPLY_HEAD_BYTES],
    /// The text.
    pub text: [u8; WHOLE_TEXT_MAX],
    /// Those of the other keys, as their rows have them.
    pub more: [RowFacts; KEYS_MAX - 1],
}

impl WholeReply {
    /// Of each of the `n_keys` keys of its request.
    #[inline]
    pub fn facts_of_keys(&self, n_keys: u8) -> impl Iterator<Item = &RowFacts> {
        std::iter::once(&self.facts).chain(&self.more).take(n_keys.into())
    }
}

impl Default for WholeReply {
    fn default() -> Self {
        let facts = RowFacts::default();
        Self {
            facts,
            head: [0; REPLY_HEAD_BYTES],
            text: [0; WHOLE_TEXT_MAX],
            more: [facts; KEYS_MAX - 1],
        }
    }
}

const _: () = assert!(size_of::<RowFacts>() == 16);
const _: () = assert!(size_of::<WholeReply>() == 16 * KEYS_MAX + REPLY_HEAD_BYTES + WHOLE_TEXT_MAX);
const _: () = assert!(size_of::<ReplyHead>() == 128);
const _: () = assert!(size_of::<Entry>() == 12);
const _: () = assert!(size_of::<KeyDesc>() == 8);
const _: () = assert!(size_of::<ReqDesc>() == 64 && align_of::<ReqDesc>() == 64);
