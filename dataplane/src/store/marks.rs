//! What an item tells beside its value, and what it hands on to the one that takes its place.

/// What readers are told of an item beside its value (meta protocol: flags X, W, Z, b).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marks(pub(super) u8);

impl Marks {
    /// The value is out of date and may be served until it is replaced.
    pub(super) const STALE: Self = Self(1);
    /// Somebody was told to fetch the value anew.
    pub(super) const WON: Self = Self(2);
    /// The key came in base64, and is told in base64.
    pub(super) const BASE64_KEY: Self = Self(4);
    /// Every mark.
    pub(super) const ALL: Self = Self(7);

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// What an item takes over from the one in whose place it comes, as that one is at the last moment.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Inherits {
    /// The expiry time.
    pub(super) expiry: bool,
    /// These marks, where they are set.
    pub(super) marks: Marks,
    /// When it was asked for.
    pub(super) history: bool,
}
