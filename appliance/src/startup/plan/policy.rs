//! How much each source gets, as planned.

use super::as_text;
use crate::startup::flags::{PingLimit, PolicyFlags, RateLimit};
use dataplane::policy::Policy;
use serde::Serialize;
use std::num::NonZeroU32;
use wire::Cidr;

/// How much each source gets over UDP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyPlan {
    /// Networks whose replies may have any size.
    #[serde(serialize_with = "as_text")]
    pub trusted: Vec<Cidr>,
    /// Most bytes of reply per byte of request, for the other allowed ones.
    pub amp_factor: NonZeroU32,
    /// Per second, for each source that is not trusted.
    pub rate_limit: RateLimit,
    /// For all of them together.
    pub rate_limit_total: RateLimit,
    /// For each trusted source.
    pub rate_limit_trusted: RateLimit,
    /// Pings answered per second and worker; as many ARP and neighbour requests.
    pub rate_limit_ping: PingLimit,
}

impl PolicyPlan {
    pub(super) fn new(flags: &PolicyFlags, trusted: Vec<Cidr>) -> Self {
        Self {
            trusted,
            amp_factor: flags.amp_factor,
            rate_limit: flags.rate_limit,
            rate_limit_total: flags.rate_limit_total,
            rate_limit_trusted: flags.rate_limit_trusted,
            rate_limit_ping: flags.rate_limit_ping,
        }
    }

    /// The policy of all workers together.
    pub fn policy(&self) -> Policy {
        Policy {
            amp_factor: self.amp_factor,
            source: self.rate_limit.into(),
            total: self.rate_limit_total.into(),
            trusted_source: self.rate_limit_trusted.into(),
            answers: self.rate_limit_ping.0,
        }
    }

    /// The trusted network that contains all addresses, if one does.
    pub(super) fn everybody(&self) -> Option<Cidr> {
        self.trusted.iter().copied().find(|network| network.prefix() == 0)
    }
}
