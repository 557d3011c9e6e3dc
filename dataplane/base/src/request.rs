//! Requests to the store, the same for every dialect.
//!
//! Parsers make these from bytes, which they borrow, and the store's verbs take them; a [`Claim`] goes the other way.
//! Nothing fails.

/// Longest key, in bytes (protocol.txt).
pub const KEY_MAX_BYTES: usize = 250;

/// When a storage command stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreMode {
    /// Always.
    Set,
    /// If there is nothing.
    Add,
    /// If there is something.
    Replace,
    /// Behind what there is.
    Append,
    /// Before what there is.
    Prepend,
}

impl StoreMode {
    /// The word of the command that stores in this mode.
    pub fn name(self) -> &'static str {
        match self {
            Self::Set => "set",
            Self::Add => "add",
            Self::Replace => "replace",
            Self::Append => "append",
            Self::Prepend => "prepend",
        }
    }
}

/// The arguments of a storage command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Store<'a> {
    /// When to store.
    pub mode: StoreMode,
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// The client's own, opaque. Not looked at by append and prepend.
    pub flags: u32,
    /// As the client gave it: 0 never, negative at once, up to 30 days relative, else absolute
    /// Unix time, in seconds. Not looked at by append and prepend.
    pub exptime: i64,
    /// Without the line end.
    pub value: &'a [u8],
    /// Only in place of the item with this CAS id.
    pub cas: Option<u64>,
    /// An item with a higher CAS id is replaced too, by this one marked as stale (`ms`, flag I).
    pub or_stale: bool,
    /// What append and prepend store where there is nothing, and its exptime (`ms`, flag N).
    pub create: Option<i64>,
    /// The CAS id of what is stored (`ms`, flag E).
    pub own_cas: Option<u64>,
    /// The key came in base64, and is shown so in replies (`ms`, flag b).
    pub base64_key: bool,
}

impl<'a> Store<'a> {
    /// A plain `set`.
    pub fn set(key: &'a [u8], flags: u32, exptime: i64, value: &'a [u8]) -> Self {
        Self {
            mode: StoreMode::Set,
            key,
            flags,
            exptime,
            value,
            cas: None,
            or_stale: false,
            create: None,
            own_cas: None,
            base64_key: false,
        }
    }
}

/// Whether a value is to be fetched anew, and by which client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// It need not be.
    None,
    /// By the one that asks, and no other wins it until it is replaced.
    Won,
    /// By another, earlier.
    Taken,
}

/// The arguments of `incr` and `decr`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Arith<'a> {
    /// 1 to 250 bytes.
    pub key: &'a [u8],
    /// How much.
    pub delta: u64,
    /// Subtract, down to 0; otherwise add, modulo 2^64.
    pub decrement: bool,
    /// Only if the item has this CAS id.
    pub cas: Option<u64>,
    /// What to store when there is nothing, and its exptime.
    pub initial: Option<(u64, i64)>,
    /// The CAS id of the new number (`ma`, flag E).
    pub own_cas: Option<u64>,
    /// A new exptime for what there is.
    pub exptime: Option<i64>,
}
