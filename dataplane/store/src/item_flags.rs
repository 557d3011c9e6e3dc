//! What an item shows beside its value, and what it hands on to the one that takes its place.

/// What readers get of a item beside its value (meta protocol: flags X, W, Z, b).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marks(pub(super) u8);

const _: () = assert!(Marks::OWN_CAS.0 == base::memory_file::MARK_OWN_CAS);

impl Marks {
    /// The value is out of date and may be served until it is replaced.
    pub(super) const STALE: Self = Self(1);
    /// A client has won the right to fetch the value anew.
    pub(super) const WON: Self = Self(2);
    /// The key came in base64, and is given in base64.
    pub(super) const BASE64_KEY: Self = Self(4);
    /// A CAS id of the client's own stands behind the value. The bytes there and this mark are one: no other
    /// item takes it over.
    pub(super) const OWN_CAS: Self = Self(8);
    /// Every mark but that.
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
    /// When it was read.
    pub(super) history: bool,
    /// What it was made of: it must be alive still.
    pub(super) made_of_it: bool,
}
