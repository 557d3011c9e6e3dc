//! `rdma`: connects a queue pair for one-sided reads.
//!
//! In: the client's side of the pair. Out: our side. Fails: where there are no one-sided reads, it is refused as any
//! other command that memcached does not have.

use super::ctx::{Ctx, Flow};
use crate::observe::Server;
use crate::rdma::{Between, Handle, Opened};
use memcache::{FarEnd, Outcome, Refusal, Reply, Sink};
use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr};

/// The queue pair that a connection's client may have, or has: closed when this is dropped. On the heap, since most
/// connections want none.
#[derive(Debug, Default)]
pub(super) struct Pair(Option<Box<QueuePair>>);

#[derive(Debug)]
enum QueuePair {
    /// It may have one, between the addresses of the connection.
    May(Between),
    /// It has it.
    Has(Handle),
}

/// Leaves it to the conversation to connect, which knows the connection's addresses.
pub(super) fn connect<S: Sink>(
    ctx: &Ctx<'_>,
    far: Option<FarEnd>,
    reply: &mut Reply<'_, S>,
) -> Flow {
    match (&ctx.server().rdma, far) {
        (Some(_), Some(far)) => return Flow::Connect(far),
        (Some(_), None) => reply.put(Outcome::Refused(Refusal::BadLineFormat)),
        (None, _) => reply.put(Outcome::Refused(Refusal::Error)),
    }
    Flow::Continue
}

impl Pair {
    /// None, but the client can have one between these addresses.
    pub(super) fn may(between: Between) -> Self {
        Self(Some(Box::new(QueuePair::May(between))))
    }

    /// Opens a queue pair, in the place of the one before, and says what it is or why there is none.
    #[cold]
    pub(super) fn open(&mut self, server: &Server, far: &FarEnd, out: &mut impl Sink) {
        let Some(rdma) = &server.rdma else { return };
        let between = match self.0.take().map(|pair| *pair) {
            None => None,
            Some(QueuePair::May(between)) => Some(between),
            Some(QueuePair::Has(handle)) => Some(handle.between()),
        };
        match rdma.pairs.open(between, far) {
            Ok(Opened { handle, qpn, psn }) => {
                let gid = match between.map(|b| b.ours) {
                    Some(IpAddr::V4(ours)) => ours.to_ipv6_mapped(),
                    Some(IpAddr::V6(ours)) => ours,
                    None => Ipv6Addr::UNSPECIFIED,
                };
                let mut line = arrayvec::ArrayString::<96>::new();
                // Three numbers of 8 digits and an address of 45 fit.
                let _ = write!(line, "RDMA {qpn} {psn} {gid} {}\r\n", far.mtu);
                out.put(line.as_bytes());
                self.0 = Some(Box::new(QueuePair::Has(handle)));
            }
            Err(why) => {
                out.put(why.line());
                self.0 = between.map(|between| Box::new(QueuePair::May(between)));
            }
        }
    }
}
