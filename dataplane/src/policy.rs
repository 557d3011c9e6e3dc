//! How much each source gets (D13): bounded replies and bounded rates for sources that are not
//! trusted, and a bounded rate of answers to ping, ARP and neighbour discovery.
//!
//! In: a request that stage 3 found to be from an allowed source, trusted or not, and the bytes of
//! each reply. Out: that the request goes on, or the [`DropReason`]. A [`Policy`] is fixed at
//! start-up; each worker owns a [`Gate`] made of it, so there is nothing to lock. All memory is
//! taken when the gate is made. Nothing here can fail or panic on any bytes.
//!
//! **What is counted.** Requests: UDP datagrams for the service. Reply bytes: UDP payload, the
//! 8-byte memcached frame header of each datagram included, Ethernet, IP and UDP headers not. The
//! same on both sides of the amplification factor, so a request of 15 bytes (`get a`) may have 45
//! bytes of reply at factor 3.
//!
//! **Reply bytes are charged when the reply leaves**, because it is not known before how many they
//! are. A request is let in while its source has any left; what is then in flight can overdraw,
//! and the source waits until that is paid back. So the average is exact, and what comes at once
//! is bounded by a second's worth and what was in flight.
//!
//! **Work is charged in requests**, when it has been done: a datagram of a source that is not trusted
//! costs one on its way in, and more if what it had done is more than one request pays for
//! ([`Debt`]). A source in debt waits, and its drops have a name of their own.
#![deny(clippy::indexing_slicing)]

mod buckets;
mod rate;

pub use rate::Rate;

use buckets::{Bucket, Meter, Over, Sources, UnitPrice};
use gpu::{Entry, EntryFlags};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use wire::DropReason;
use wire::udp_frame;

/// Who gets how much. Who is trusted, and who is served at all, is in [`wire::Local`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Most bytes of reply per byte of request, for sources that are not trusted.
    pub amp_factor: NonZeroU32,
    /// What each of those may have.
    pub source: Rate,
    /// What all of those may have together.
    pub total: Rate,
    /// What each trusted source may have.
    pub trusted_source: Rate,
    /// Echo requests answered per second; as many ARP requests and neighbour solicitations.
    pub answers: Option<NonZeroU32>,
}

impl Policy {
    /// The factor of RFC 9000, section 8.1.
    pub const AMP_FACTOR_DEFAULT: NonZeroU32 = NonZeroU32::new(3).unwrap();

    /// The policy of one worker among `workers`: its share of each rate on requests, because a
    /// source's packets are spread over the workers by address and port. Not of the answers: a NIC
    /// brings what is not IP to one queue.
    #[must_use]
    pub fn for_one_of(self, workers: NonZeroU32) -> Self {
        Self {
            source: self.source.share(workers),
            total: self.total.share(workers),
            trusted_source: self.trusted_source.share(workers),
            ..self
        }
    }
}

impl Default for Policy {
    /// No limit but the amplification factor.
    fn default() -> Self {
        Self {
            amp_factor: Self::AMP_FACTOR_DEFAULT,
            source: Rate::default(),
            total: Rate::default(),
            trusted_source: Rate::default(),
            answers: None,
        }
    }
}

/// Replies of this host itself, not of the service, that have a rate, each kind its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalReply {
    /// To ping, over both IP versions.
    Echo,
    /// To ARP requests and neighbour solicitations.
    Neighbour,
}

/// One worker's rate limiter.
#[derive(Debug)]
pub struct Gate {
    sources: Option<Sources>,
    total: Meter,
    trusted_sources: Option<Sources>,
    answer: Option<UnitPrice>,
    echo: Bucket,
    neighbour: Bucket,
}

impl Gate {
    /// A gate with all buckets full. `policy` is this worker's alone ([`Policy::for_one_of`]).
    pub fn new(policy: &Policy) -> Self {
        Self {
            sources: Sources::new(policy.source),
            total: Meter::new(policy.total),
            trusted_sources: Sources::new(policy.trusted_source),
            answer: policy.answers.map(UnitPrice::per_second),
            echo: Bucket::default(),
            neighbour: Bucket::default(),
        }
    }

    /// Lets a request in, or says why not.
    ///
    /// # Errors
    /// [`DropReason::RateSource`], [`DropReason::RateSourceBytes`], [`DropReason::RateSourceWork`],
    /// [`DropReason::RateTotal`], [`DropReason::RateTotalBytes`], [`DropReason::RateTotalWork`].
    #[inline(always)]
    pub fn admit(&mut self, frame: &[u8], entry: &Entry, now_ns: u64) -> Result<(), DropReason> {
        if self.counts(entry) { self.admit_counted(frame, entry, now_ns) } else { Ok(()) }
    }

    /// Whether what trusted sources have is counted.
    pub(crate) fn counts_trusted(&self) -> bool {
        self.trusted_sources.is_some()
    }

    /// Whether the request's source has anything counted.
    #[inline(always)]
    fn counts(&self, entry: &Entry) -> bool {
        entry.flags.has(EntryFlags::LIMITED) || self.trusted_sources.is_some()
    }

    #[inline(never)]
    fn admit_counted(
        &mut self,
        frame: &[u8],
        entry: &Entry,
        now_ns: u64,
    ) -> Result<(), DropReason> {
        let limited = entry.flags.has(EntryFlags::LIMITED);
        // The source first: one that is over its own limit takes nothing from the others.
        let sources = if limited { &mut self.sources } else { &mut self.trusted_sources };
        if let Some(sources) = sources {
            sources.admit(source(frame, entry), now_ns).map_err(of_source)?;
        }
        if !limited {
            return Ok(());
        }
        self.total.admit(now_ns).map_err(|over| match over {
            Over::Requests => DropReason::RateTotal,
            Over::Bytes => DropReason::RateTotalBytes,
            Over::Work => DropReason::RateTotalWork,
        })
    }

    /// Charges the work of a request that was let in, beside the one that was taken then.
    pub(crate) fn charge_work(&mut self, debt: Debt, now_ns: u64) {
        if let Some(sources) = &mut self.sources {
            sources.charge_requests(debt.source, debt.requests, now_ns);
        }
        self.total.charge_requests(debt.requests, now_ns);
    }

    /// Charges a datagram that leaves for the source of its request, whose headers it still has:
    /// `payload_bytes` of UDP payload.
    #[inline(always)]
    pub fn charge(&mut self, frame: &[u8], entry: &Entry, payload_bytes: usize, now_ns: u64) {
        self.charge_any((frame, false), entry, payload_bytes, now_ns);
    }

    /// The same, and whether the headers are its own already.
    #[inline(always)]
    pub(crate) fn charge_any(
        &mut self,
        frame: (&[u8], bool),
        entry: &Entry,
        payload_bytes: usize,
        now_ns: u64,
    ) {
        if self.counts(entry) {
            self.charge_counted(frame, entry, payload_bytes, now_ns);
        }
    }

    #[inline(never)]
    fn charge_counted(
        &mut self,
        (frame, is_turned): (&[u8], bool),
        entry: &Entry,
        payload_bytes: usize,
        now_ns: u64,
    ) {
        let who = if is_turned { destination(frame, entry) } else { source(frame, entry) };
        let limited = entry.flags.has(EntryFlags::LIMITED);
        let sources = if limited { &mut self.sources } else { &mut self.trusted_sources };
        let bytes = payload_bytes as u64;
        if let Some(sources) = sources
            && sources.counts_bytes()
        {
            sources.charge(who, bytes, now_ns);
        }
        if limited {
            self.total.charge(bytes, now_ns);
        }
    }

    /// Whether anything of a TCP client's is counted.
    #[inline]
    pub(crate) fn counts_stream(&self, limited: bool) -> bool {
        limited || self.trusted_sources.is_some()
    }

    /// Whether a TCP client may be answered now, or has to wait: what it sends is not lost, so it is
    /// slowed and not dropped.
    pub(crate) fn may_stream(&mut self, source: IpAddr, limited: bool, now_ns: u64) -> bool {
        let sources = if limited { &self.sources } else { &self.trusted_sources };
        sources.as_ref().is_none_or(|sources| sources.has(source, now_ns))
            && (!limited || self.total.has(now_ns))
    }

    /// Charges a TCP client what it was answered: requests, and bytes of replies.
    pub(crate) fn charge_stream(
        &mut self,
        source: IpAddr,
        limited: bool,
        (requests, bytes): (u64, u64),
        now_ns: u64,
    ) {
        let sources = if limited { &mut self.sources } else { &mut self.trusted_sources };
        if let Some(sources) = sources {
            sources.charge_requests(source, requests, now_ns);
            sources.charge(source, bytes, now_ns);
        }
        if limited {
            self.total.charge_requests(requests, now_ns);
            self.total.charge(bytes, now_ns);
        }
    }

    /// Whether there is an answer left.
    ///
    /// # Errors
    /// [`DropReason::RateEcho`], [`DropReason::RateNeighbour`].
    pub(crate) fn may_answer(&mut self, kind: LocalReply, now_ns: u64) -> Result<(), DropReason> {
        let Some(price) = self.answer else { return Ok(()) };
        let (bucket, reason) = self.answers(kind);
        if bucket.has_one(price, now_ns) { Ok(()) } else { Err(reason) }
    }

    /// Counts an answer that leaves. What turned out to be malformed costs nothing, so that no host
    /// can use up from afar what the neighbours need.
    pub fn answered(&mut self, kind: LocalReply, now_ns: u64) {
        let Some(price) = self.answer else { return };
        self.answers(kind).0.take_one(price, now_ns);
    }

    fn answers(&mut self, kind: LocalReply) -> (&mut Bucket, DropReason) {
        match kind {
            LocalReply::Echo => (&mut self.echo, DropReason::RateEcho),
            LocalReply::Neighbour => (&mut self.neighbour, DropReason::RateNeighbour),
        }
    }
}

fn of_source(over: Over) -> DropReason {
    match over {
        Over::Requests => DropReason::RateSource,
        Over::Bytes => DropReason::RateSourceBytes,
        Over::Work => DropReason::RateSourceWork,
    }
}

/// So many a second, of something that answers untrusted hosts.
#[derive(Debug)]
pub(crate) struct Limit {
    price: UnitPrice,
    bucket: Bucket,
}

impl Limit {
    /// At this rate; a second's worth is there to begin with.
    pub(crate) fn per_second(rate: NonZeroU32) -> Self {
        Self { price: UnitPrice::per_second(rate), bucket: Bucket::default() }
    }

    /// Takes one, where there is one.
    pub(crate) fn take(&mut self, now_ns: u64) -> bool {
        let has_one = self.bucket.has_one(self.price, now_ns);
        if has_one {
            self.bucket.take_one(self.price, now_ns);
        }
        has_one
    }
}

/// Work that one request of a rate pays for, in bytes copied.
pub const REQUEST_BYTES: u64 = 4 << 10;

/// What a source that is not trusted owes for the work of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Debt {
    /// Who.
    pub source: IpAddr,
    /// How many requests of its rate, beside the one that came.
    pub requests: u64,
}

/// Most bytes of UDP payload that the reply to a request may have, all datagrams together.
/// `text_bytes` is what the request has behind its frame header.
#[inline]
pub(crate) fn allowance(entry: &Entry, text_bytes: u16, amp_factor: NonZeroU32) -> usize {
    if !entry.flags.has(EntryFlags::LIMITED) {
        return usize::MAX;
    }
    let request = udp_frame::HEADER_BYTES + usize::from(text_bytes);
    request.saturating_mul(usize::try_from(amp_factor.get()).unwrap_or(usize::MAX))
}

/// The source address in an IP header that stage 3 has checked to be there.
#[inline]
pub(crate) fn source(frame: &[u8], entry: &Entry) -> IpAddr {
    address(frame, entry, (12, 8))
}

/// The destination address there.
#[inline]
fn destination(frame: &[u8], entry: &Entry) -> IpAddr {
    address(frame, entry, (16, 24))
}

/// The address at these places, in a header of IPv4 or IPv6.
#[inline]
fn address(frame: &[u8], entry: &Entry, (v4, v6): (usize, usize)) -> IpAddr {
    let header = frame.get(usize::from(entry.l3)..).unwrap_or_default();
    if entry.flags.has(EntryFlags::IPV6) {
        let at = header.get(v6..).and_then(<[u8]>::first_chunk::<16>);
        at.map_or(Ipv6Addr::UNSPECIFIED, |a| Ipv6Addr::from(*a)).into()
    } else {
        let at = header.get(v4..).and_then(<[u8]>::first_chunk::<4>);
        at.map_or(Ipv4Addr::UNSPECIFIED, |a| Ipv4Addr::from(*a)).into()
    }
}

#[cfg(test)]
mod tests;
