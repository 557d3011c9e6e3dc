//! How much each source gets, as planned.

use super::as_text;
use crate::startup::flags::{Limits, PolicyFlags};
use dataplane::policy::Policy;
use serde::Serialize;
use wire::Cidr;

/// How much each source gets over UDP.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PolicyPlan {
    /// Networks whose replies may have any size.
    #[serde(serialize_with = "as_text")]
    pub trusted: Vec<Cidr>,
    /// What each source gets.
    #[serde(flatten)]
    pub limits: Limits,
}

impl PolicyPlan {
    pub(super) fn new(flags: &PolicyFlags, trusted: Vec<Cidr>) -> Self {
        Self { trusted, limits: flags.limits }
    }

    /// The policy of all workers together.
    pub fn policy(&self) -> Policy {
        let Limits { amp_factor, rate_limit, rate_limit_total, .. } = self.limits;
        Policy {
            amp_factor,
            source: rate_limit.into(),
            total: rate_limit_total.into(),
            trusted_source: self.limits.rate_limit_trusted.into(),
            answers: self.limits.rate_limit_ping.0,
        }
    }

    /// The trusted network that contains all addresses, if one does.
    pub(super) fn everybody(&self) -> Option<Cidr> {
        self.trusted.iter().copied().find(|network| network.prefix() == 0)
    }
}
