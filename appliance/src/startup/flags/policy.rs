//! Flags of who is served, and how much each source gets. What they mean is in `dataplane::policy`.

use super::values::parse_size;
use clap::Args;
use dataplane::policy::{Policy, Rate};
use serde::Serialize;
use std::num::{NonZeroU32, NonZeroU64};
use std::str::FromStr;
use wire::Cidr;

/// How much each source gets.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Who is answered")]
pub struct PolicyFlags {
    /// Networks that are served on ports; may be repeated. Those of --trusted come on top. Default: loopback and
    /// the subnets of --ip; over TCP, unless --trusted is given, everybody.
    #[arg(long, value_name = "CIDR", env = "GNOMON_ALLOW", value_delimiter = ',')]
    pub allow: Vec<Cidr>,

    /// Networks whose UDP replies may have any size; may be repeated. The other allowed ones get
    /// the limits below. Default: loopback, and the subnets of --ip, as far as they are allowed.
    #[arg(long, value_name = "CIDR", env = "GNOMON_TRUSTED", value_delimiter = ',')]
    pub trusted: Vec<Cidr>,

    /// The limits.
    #[command(flatten)]
    pub limits: Limits,
}

/// What a source gets that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Args, Serialize)]
pub struct Limits {
    /// Most bytes of reply per byte of request for sources that are not trusted: UDP payload, its
    /// 8-byte frame header included. What would be more becomes a SERVER_ERROR line.
    #[arg(long, value_name = "N", env = "GNOMON_AMP_FACTOR")]
    #[arg(default_value_t = Policy::AMP_FACTOR_DEFAULT)]
    #[arg(value_parser = amp_factor)]
    pub amp_factor: NonZeroU32,

    /// What each source that is not trusted (an IPv4 address, an IPv6 /64) may have per second:
    /// requests, and bytes of replies; k and m are understood. PPS, PPS:BYTES, :BYTES or off. What
    /// is above is dropped and counted; over TCP by the workers it waits, and nothing is lost. A
    /// request that takes the work of several counts as several. Workers have equal shares.
    #[arg(long, value_name = "PPS[:BYTES]", env = "GNOMON_RATE_LIMIT")]
    #[arg(default_value = "10000:4m")]
    pub rate_limit: RateLimit,

    /// The same for all sources that are not trusted together.
    #[arg(long, value_name = "PPS[:BYTES]", env = "GNOMON_RATE_LIMIT_TOTAL")]
    #[arg(default_value = "100000:40m")]
    pub rate_limit_total: RateLimit,

    /// The same for each trusted source.
    #[arg(long, value_name = "PPS[:BYTES]", env = "GNOMON_RATE_LIMIT_TRUSTED")]
    #[arg(default_value = "off")]
    pub rate_limit_trusted: RateLimit,

    /// Pings that each worker answers per second, to all sources together; ARP and neighbour requests have as
    /// many of their own. A number, or off.
    #[arg(long, value_name = "PPS", env = "GNOMON_RATE_LIMIT_PING")]
    #[arg(default_value = "1000")]
    pub rate_limit_ping: PingLimit,
}

fn amp_factor(s: &str) -> Result<NonZeroU32, String> {
    /// Beyond what any reply needs: 1,024 datagrams for the shortest request.
    const FACTOR_MAX: u32 = 1_000_000;
    s.parse()
        .ok()
        .filter(|n: &NonZeroU32| n.get() <= FACTOR_MAX)
        .ok_or_else(|| format!("not a whole number from 1 to {FACTOR_MAX}"))
}

/// `--rate-limit` and its like: requests, and bytes of replies, per second. `None`: any number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct RateLimit {
    /// Requests per second.
    pub requests: Option<NonZeroU32>,
    /// Bytes of replies per second.
    pub reply_bytes: Option<NonZeroU64>,
}

impl From<RateLimit> for Rate {
    fn from(limit: RateLimit) -> Self {
        Self { requests: limit.requests, reply_bytes: limit.reply_bytes }
    }
}

impl FromStr for RateLimit {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if s == "off" {
            return Ok(Self::default());
        }
        let wrong = || {
            "neither requests per second, with or without bytes of replies per second \
             (5000, 5000:1m, :1m), nor off"
                .to_owned()
        };
        let (requests, bytes) = match s.split_once(':') {
            Some((requests, bytes)) => (requests, Some(bytes)),
            None => (s, None),
        };
        let requests = match requests {
            "" if bytes.is_some() => None,
            n => Some(n.parse().map_err(|_| wrong())?),
        };
        let reply_bytes = match bytes {
            None => None,
            Some(b) => Some(parse_size(b).ok().and_then(NonZeroU64::new).ok_or_else(wrong)?),
        };
        Ok(Self { requests, reply_bytes })
    }
}

/// `--rate-limit-ping`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct PingLimit(pub Option<NonZeroU32>);

impl FromStr for PingLimit {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "off" => Ok(Self(None)),
            n => {
                n.parse().map(|n| Self(Some(n))).map_err(|_| "neither a number nor off".to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::startup::flags::parse;

    fn limit(requests: u32, reply_bytes: u64) -> RateLimit {
        RateLimit { requests: NonZeroU32::new(requests), reply_bytes: NonZeroU64::new(reply_bytes) }
    }

    #[test]
    fn untrusted_sources_are_limited_unless_told_otherwise() {
        let f = parse(&[]).unwrap().policy;
        assert!(f.allow.is_empty() && f.trusted.is_empty());
        let f = f.limits;
        assert_eq!(f.amp_factor.get(), 3);
        assert_eq!(f.rate_limit, limit(10_000, 4 << 20));
        assert_eq!(f.rate_limit_total, limit(100_000, 40 << 20));
        assert_eq!(f.rate_limit_trusted, limit(0, 0));
        assert_eq!(f.rate_limit_ping, PingLimit(NonZeroU32::new(1000)));
    }

    #[test]
    fn limits_are_understood() {
        for (text, want) in [
            ("off", limit(0, 0)),
            ("5000", limit(5000, 0)),
            ("5000:1m", limit(5000, 1 << 20)),
            (":512k", limit(0, 512 << 10)),
            ("1:1", limit(1, 1)),
        ] {
            let f =
                parse(&["--rate-limit", text, "--rate-limit-total", text]).unwrap().policy.limits;
            assert_eq!((f.rate_limit, f.rate_limit_total), (want, want), "{text}");
        }
        let f = parse(&["--trusted", "10.0.0.0/8,fd00::/8", "--rate-limit-ping", "off"]).unwrap();
        assert_eq!(f.policy.trusted.len(), 2);
        assert_eq!(f.policy.limits.rate_limit_ping, PingLimit(None));
    }

    #[test]
    fn each_wrong_value_is_named_with_its_reason() {
        for (flag, text, reason) in [
            ("--amp-factor", "0", "not a whole number from 1 to 1000000"),
            ("--amp-factor", "2.5", "not a whole number"),
            ("--amp-factor", "1000001", "not a whole number"),
            ("--rate-limit", "", "neither requests per second"),
            ("--rate-limit", "0", "neither requests per second"),
            ("--rate-limit", ":", "neither requests per second"),
            ("--rate-limit", "5:", "neither requests per second"),
            ("--rate-limit", "5:0", "neither requests per second"),
            ("--rate-limit", "5:1g", "nor off"),
            ("--rate-limit-total", "-5", "unexpected argument '-5'"),
            ("--rate-limit-trusted", "99999999999", "neither requests per second"),
            ("--rate-limit-ping", "0", "neither a number nor off"),
            ("--trusted", "10.1.2.3/8", "write 10.0.0.0/8 for all of it"),
        ] {
            let said = parse(&[flag, text]).expect_err(&format!("{flag} {text}")).to_string();
            assert!(said.contains(reason), "{flag} {text}: {said}");
        }
    }
}
