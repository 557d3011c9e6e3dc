//! Token buckets, alone and by source.
//!
//! A bucket is one word: the time at which it will be full again (the "virtual scheduling" form of
//! ITU-T I.371's algorithm). It fills in one second, whatever its rate, so it holds a second's
//! worth. Time comes from the caller, in nanoseconds of any clock that does not go back.
//!
//! Sources have a fixed table of buckets and no names in it: two sources that a keyed hash sends
//! to the same bucket share it, one pair of sources in [`PLACES`]. That is never more than either
//! may have, costs no search, and leaves nothing to be pushed out by a flood of other sources.

use super::rate::Rate;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64};

/// Buckets of a table: 1 MB per worker and table.
pub(super) const PLACES: usize = 1 << 16;

/// Ticks per nanosecond. A bucket counts in ticks, so that a byte has a price at 10 GB/s; 64 bits
/// of them are 36 years.
const TICKS_PER_NS: u64 = 16;
/// How long an empty bucket fills.
const FILL_TICKS: u64 = 1_000_000_000 * TICKS_PER_NS;
/// Binary places of a price below one tick.
const PRICE_FRACTION_BITS: u32 = 16;

/// What one of something countable costs, as time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnitPrice {
    /// Of one, rounded up to whole ticks, so that no more pass.
    one: u64,
    /// Of a second's worth: what a full bucket holds.
    full: u64,
}

impl UnitPrice {
    /// At so many per second.
    pub(super) fn per_second(rate: NonZeroU32) -> Self {
        let one = FILL_TICKS.div_ceil(rate.get().into());
        Self { one, full: one * u64::from(rate.get()) }
    }
}

/// What bytes cost, as time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BytePrice {
    /// Ticks per byte, with [`PRICE_FRACTION_BITS`] binary places, rounded up.
    byte: u64,
}

impl BytePrice {
    /// At so many bytes per second.
    fn per_second(rate: NonZeroU64) -> Self {
        Self { byte: (FILL_TICKS << PRICE_FRACTION_BITS).div_ceil(rate.get()) }
    }

    /// Ticks for so many bytes, rounded up.
    #[inline]
    fn of(self, bytes: u64) -> u64 {
        let exact = u128::from(self.byte) * u128::from(bytes);
        u64::try_from(exact.div_ceil(1 << PRICE_FRACTION_BITS)).unwrap_or(u64::MAX)
    }
}

/// One bucket. Full to begin with.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bucket {
    full_at_ticks: u64,
}

impl Bucket {
    /// Time until it is full.
    #[inline]
    fn missing(self, now_ns: u64) -> u64 {
        self.full_at_ticks.saturating_sub(now_ns.saturating_mul(TICKS_PER_NS))
    }

    /// Whether there is one to take out.
    #[inline]
    pub(super) fn has_one(self, price: UnitPrice, now_ns: u64) -> bool {
        self.missing(now_ns).saturating_add(price.one) <= price.full
    }

    /// Whether more was taken out than there was: what [`Self::has_one`] guards never does that.
    #[inline]
    fn is_overdrawn(self, price: UnitPrice, now_ns: u64) -> bool {
        self.missing(now_ns) > price.full
    }

    /// Takes one out.
    #[inline]
    pub(super) fn take_one(&mut self, price: UnitPrice, now_ns: u64) {
        self.spend(price.one, now_ns);
    }

    /// Whether there are any bytes left.
    #[inline]
    fn has_bytes(self, now_ns: u64) -> bool {
        self.missing(now_ns) < FILL_TICKS
    }

    /// Takes out what costs `ticks`, more than there is if need be.
    #[inline]
    fn spend(&mut self, ticks: u64, now_ns: u64) {
        let now = now_ns.saturating_mul(TICKS_PER_NS);
        self.full_at_ticks = self.full_at_ticks.max(now).saturating_add(ticks);
    }
}

/// What there is too much of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Over {
    /// Requests.
    Requests,
    /// Bytes of replies.
    Bytes,
    /// Work of earlier requests, charged afterwards.
    Work,
}

/// The prices of a [`Rate`]; `None` is free.
#[derive(Debug, Clone, Copy)]
struct Prices {
    request: Option<UnitPrice>,
    byte: Option<BytePrice>,
}

impl Prices {
    fn new(rate: Rate) -> Self {
        Self {
            request: rate.requests.map(UnitPrice::per_second),
            byte: rate.reply_bytes.map(BytePrice::per_second),
        }
    }
}

/// A bucket of requests and one of bytes.
#[derive(Debug, Clone, Copy, Default)]
struct Pair {
    requests: Bucket,
    bytes: Bucket,
}

impl Pair {
    #[inline]
    fn admit(&mut self, prices: Prices, now_ns: u64) -> Result<(), Over> {
        if prices.byte.is_some() && !self.bytes.has_bytes(now_ns) {
            return Err(Over::Bytes);
        }
        if let Some(price) = prices.request {
            if !self.requests.has_one(price, now_ns) {
                let overdrawn = self.requests.is_overdrawn(price, now_ns);
                return Err(if overdrawn { Over::Work } else { Over::Requests });
            }
            self.requests.take_one(price, now_ns);
        }
        Ok(())
    }

    /// Whether a request would be let in.
    fn has(&self, prices: Prices, now_ns: u64) -> bool {
        let one = |price| self.requests.has_one(price, now_ns);
        (prices.byte.is_none() || self.bytes.has_bytes(now_ns)) && prices.request.is_none_or(one)
    }

    #[inline]
    fn charge(&mut self, prices: Prices, bytes: u64, now_ns: u64) {
        if let Some(price) = prices.byte {
            self.bytes.spend(price.of(bytes), now_ns);
        }
    }

    /// Takes out requests beside those that came, more than there are if need be.
    #[inline]
    fn charge_requests(&mut self, prices: Prices, requests: u64, now_ns: u64) {
        if let Some(price) = prices.request {
            self.requests.spend(price.one.saturating_mul(requests), now_ns);
        }
    }
}

/// One rate for all sources together.
#[derive(Debug)]
pub(super) struct Meter {
    prices: Prices,
    pair: Pair,
}

impl Meter {
    pub(super) fn new(rate: Rate) -> Self {
        Self { prices: Prices::new(rate), pair: Pair::default() }
    }

    /// Takes a request in.
    pub(super) fn admit(&mut self, now_ns: u64) -> Result<(), Over> {
        self.pair.admit(self.prices, now_ns)
    }

    /// Whether a request would be let in.
    pub(super) fn has(&self, now_ns: u64) -> bool {
        self.pair.has(self.prices, now_ns)
    }

    /// Counts bytes of a reply.
    pub(super) fn charge(&mut self, bytes: u64, now_ns: u64) {
        self.pair.charge(self.prices, bytes, now_ns);
    }

    /// Counts work, in requests.
    pub(super) fn charge_requests(&mut self, requests: u64, now_ns: u64) {
        self.pair.charge_requests(self.prices, requests, now_ns);
    }
}

/// The same rate for each source.
pub(super) struct Sources {
    prices: Prices,
    /// SipHash-1-3 with a random key: no client can choose which sources share a bucket.
    hash: RandomState,
    places: Box<[Pair]>,
}

base::opaque!(Sources, |it| prices: it.prices);

impl Sources {
    /// A table, unless `rate` limits nothing.
    pub(super) fn new(rate: Rate) -> Option<Self> {
        if rate == Rate::default() {
            return None;
        }
        let places = vec![Pair::default(); PLACES].into_boxed_slice();
        Some(Self { prices: Prices::new(rate), hash: RandomState::new(), places })
    }

    /// Where `source` is counted: an IPv4 address, or an IPv6 /64, which is what one host can give
    /// itself addresses from.
    #[inline]
    pub(super) fn place(&self, source: IpAddr) -> usize {
        let name = match source {
            IpAddr::V4(a) => (4u8, u64::from(a.to_bits())),
            IpAddr::V6(a) => {
                let [a, b, c, d, ..] = a.segments().map(u64::from);
                (6u8, a << 48 | b << 32 | c << 16 | d)
            }
        };
        // The low bits, as many as there are places.
        usize::try_from(self.hash.hash_one(name) % PLACES as u64).unwrap_or(0)
    }

    /// Takes a request of `source` in.
    pub(super) fn admit(&mut self, source: IpAddr, now_ns: u64) -> Result<(), Over> {
        let place = self.place(source);
        match self.places.get_mut(place) {
            Some(pair) => pair.admit(self.prices, now_ns),
            None => Ok(()),
        }
    }

    /// Whether a request of `source` would be let in.
    pub(super) fn has(&self, source: IpAddr, now_ns: u64) -> bool {
        self.places.get(self.place(source)).is_none_or(|pair| pair.has(self.prices, now_ns))
    }

    /// Whether [`Self::charge`] counts anything.
    #[inline]
    pub(super) fn counts_bytes(&self) -> bool {
        self.prices.byte.is_some()
    }

    /// Counts bytes of a reply to `source`.
    pub(super) fn charge(&mut self, source: IpAddr, bytes: u64, now_ns: u64) {
        let place = self.place(source);
        if let Some(pair) = self.places.get_mut(place) {
            pair.charge(self.prices, bytes, now_ns);
        }
    }

    /// Counts work for `source`, in requests.
    pub(super) fn charge_requests(&mut self, source: IpAddr, requests: u64, now_ns: u64) {
        let place = self.place(source);
        if let Some(pair) = self.places.get_mut(place) {
            pair.charge_requests(self.prices, requests, now_ns);
        }
    }
}

#[cfg(test)]
mod tests;
