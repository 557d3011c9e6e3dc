//! `-o`: memcached's extended options, each checked as memcached checks it.
//!
//! In: one option, `name` or `name=value`. Out: what it means here, which for most is nothing,
//! because they tune parts that gnomon does not have. Unknown ones are refused by name, and so is
//! nothing where one should stand: only behind the last comma, or for all of them, it means nothing.

use serde::Serialize;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::str::FromStr;

/// What stands behind one `-o`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtendedOptions(pub Vec<Extended>);

impl FromStr for ExtendedOptions {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let words = s.strip_suffix(',').filter(|words| !words.is_empty()).unwrap_or(s);
        match words {
            "" => Ok(Self::default()),
            words => words.split(',').map(str::parse).collect::<Result<_, _>>().map(Self),
        }
    }
}

/// One option of `-o`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extended {
    /// Whether a connection over the limit is refused at once, or waits.
    MaxconnsFast(bool),
    /// Whether dead items are swept from the start.
    LruCrawler(bool),
    /// All that `no_modern` switches off: a full house refuses, and the sweeper.
    NoModern,
    /// Seconds after which an idle connection is closed; 0: never.
    IdleTimeout(u32),
    /// How TLS is spoken.
    Ssl(Ssl),
    /// Correct, and without effect here. As it was typed.
    Unused(String),
}

/// An option about TLS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ssl {
    /// The file of the server's certificate and those that vouch for it.
    ChainCert(PathBuf),
    /// The file of its private key.
    Key(PathBuf),
    /// The file of those who may vouch for clients.
    CaCert(PathBuf),
    /// Ciphers of TLS 1.2, as OpenSSL names them.
    Ciphers(String),
    /// What is asked of clients: 0 to 3.
    VerifyMode(u8),
    /// What the key is written in.
    KeyFormat(KeyFormat),
    /// The least version: 0 to 3.
    MinVersion(u8),
    /// The size of a buffer, in kilobytes, which changes nothing here.
    WbufSize(u32),
    /// Clients may take up a session again.
    SessionCache,
    /// Records made in the kernel, which changes nothing here.
    KernelTls,
}

/// What a private key is written in, under OpenSSL's numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyFormat {
    /// Text.
    Pem,
    /// Bytes.
    Der,
}

impl KeyFormat {
    /// The number that OpenSSL has for it.
    pub fn number(self) -> u8 {
        match self {
            Self::Pem => 1,
            Self::Der => 2,
        }
    }
}

impl Ssl {
    /// Reads one, if it is one.
    fn parse(name: &str, value: Option<&str>) -> Option<Result<Self, String>> {
        let file = |of: fn(PathBuf) -> Self| match value {
            Some(path) if !path.is_empty() => Ok(of(path.into())),
            _ => Err(format!("{name} wants a file")),
        };
        let number = |most: u32| {
            let number = value.and_then(|v| v.parse::<u32>().ok()).filter(|n| *n <= most);
            number.ok_or_else(|| format!("{name} wants a number from 0 to {most}"))
        };
        let small = |of: fn(u8) -> Self| number(3).map(|n| of(u8::try_from(n).unwrap_or(u8::MAX)));
        Some(match name {
            "ssl_chain_cert" => file(Self::ChainCert),
            "ssl_key" => file(Self::Key),
            "ssl_ca_cert" => file(Self::CaCert),
            "ssl_ciphers" => match value {
                Some(list) if !list.is_empty() => Ok(Self::Ciphers(list.to_owned())),
                _ => Err(format!("{name} wants names of ciphers with : between them")),
            },
            "ssl_verify_mode" => small(Self::VerifyMode),
            "ssl_min_version" => small(Self::MinVersion),
            "ssl_keyformat" => match value {
                Some("1" | "PEM") => Ok(Self::KeyFormat(KeyFormat::Pem)),
                Some("2" | "DER") => Ok(Self::KeyFormat(KeyFormat::Der)),
                _ => Err(format!("{name} wants 1 (PEM) or 2 (DER)")),
            },
            "ssl_wbuf_size" => number(u32::MAX).map(Self::WbufSize),
            "ssl_session_cache" => Ok(Self::SessionCache),
            "ssl_kernel_tls" => Ok(Self::KernelTls),
            _ => return None,
        })
    }
}

/// What may follow the name.
enum Takes {
    Nothing,
    /// Or nothing.
    Anything,
    /// Or nothing.
    MayBeNumber(RangeInclusive<u64>),
    /// Numbers with `-` between them.
    Sizes,
    Number(RangeInclusive<u64>),
    Fraction(RangeInclusive<f64>),
    OneOf(&'static [&'static str]),
}

const ANY: Takes = Takes::Number(0..=u32::MAX as u64);
/// memcached's factors have no upper bound.
const FACTOR: Takes = Takes::Fraction(f64::MIN_POSITIVE..=f64::MAX);
const SHARE: Takes = Takes::Fraction(f64::MIN_POSITIVE..=1.0);
/// What memcached takes for the size of a chunk, in bytes.
const SLAB_SIZES: RangeInclusive<u64> = 48..=524_288;
const PERCENT: Takes = Takes::Number(1..=79);

/// Every option but those of [`REFUSED`].
const KNOWN: [(&str, Takes); 45] = [
    ("maxconns_fast", Takes::Nothing),
    ("no_maxconns_fast", Takes::Nothing),
    ("idle_timeout", ANY),
    ("modern", Takes::Nothing),
    ("no_modern", Takes::Nothing),
    ("hashpower", Takes::Number(12..=32)),
    ("hash_algorithm", Takes::OneOf(&["jenkins", "murmur3", "xxh3"])),
    ("no_hashexpand", Takes::Nothing),
    ("tail_repair_time", Takes::Number(10..=u32::MAX as u64)),
    ("slab_reassign", Takes::Nothing),
    ("no_slab_reassign", Takes::Nothing),
    ("slab_automove", Takes::MayBeNumber(0..=2)),
    ("no_slab_automove", Takes::Nothing),
    ("slab_sizes", Takes::Sizes),
    ("slab_automove_ratio", SHARE),
    ("slab_automove_window", Takes::Number(3..=u32::MAX as u64)),
    ("slab_automove_freeratio", Takes::Fraction(0.0..=f64::MAX)),
    ("slab_chunk_max", Takes::Number(1..=u32::MAX as u64)),
    ("no_chunked_items", Takes::Nothing),
    ("lru_crawler", Takes::Nothing),
    ("no_lru_crawler", Takes::Nothing),
    ("lru_crawler_sleep", Takes::Number(0..=1_000_000)),
    ("lru_crawler_tocrawl", ANY),
    ("lru_maintainer", Takes::Nothing),
    ("no_lru_maintainer", Takes::Nothing),
    ("lru_segmented", Takes::Nothing),
    ("no_lru_segmented", Takes::Nothing),
    ("hot_lru_pct", PERCENT),
    ("warm_lru_pct", PERCENT),
    ("hot_max_factor", FACTOR),
    ("warm_max_factor", FACTOR),
    ("temporary_ttl", ANY),
    ("watcher_logbuf_size", ANY),
    // memcached takes its value for one of slab_sizes, too.
    ("worker_logbuf_size", Takes::Number(SLAB_SIZES)),
    ("read_buf_mem_limit", ANY),
    ("resp_obj_mem_limit", Takes::Anything),
    ("track_sizes", Takes::Nothing),
    ("inline_ascii_resp", Takes::Nothing),
    ("no_inline_ascii_resp", Takes::Nothing),
    ("inline_ascii_response", Takes::Nothing),
    ("no_inline_ascii_response", Takes::Nothing),
    ("drop_privileges", Takes::Nothing),
    ("no_drop_privileges", Takes::Nothing),
    ("relaxed_privileges", Takes::Nothing),
    ("sock_cookie_id", ANY),
];

/// Options that ask for something that would be missed, by how their names begin.
const REFUSED: [(&str, &str); 2] = [
    ("ext_", "external storage is not supported: items lie in memory; leave it out"),
    ("proxy_", "a proxy is not supported: clients or a proxy in front spread keys; leave it out"),
];

impl FromStr for Extended {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        if s.is_empty() {
            return Err("a comma has no option before it: leave it out".to_owned());
        }
        let (name, value) = match s.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (s, None),
        };
        if let Some((_, why)) = REFUSED.iter().find(|(start, _)| name.starts_with(start)) {
            return Err(format!("{name}: {why}"));
        }
        if let Some(ssl) = Ssl::parse(name, value) {
            return ssl.map(Self::Ssl);
        }
        let (_, takes) = KNOWN
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| format!("'{name}' is none of memcached's options"))?;
        let number = takes.check(value).map_err(|wants| format!("{name} {wants}"))?;
        Ok(match name {
            "maxconns_fast" => Self::MaxconnsFast(true),
            "no_maxconns_fast" => Self::MaxconnsFast(false),
            "lru_crawler" => Self::LruCrawler(true),
            "no_lru_crawler" => Self::LruCrawler(false),
            "no_modern" => Self::NoModern,
            "idle_timeout" => Self::IdleTimeout(number),
            _ => Self::Unused(s.to_owned()),
        })
    }
}

impl Takes {
    /// The value as a number where it is one and small enough, or what should have been written.
    fn check(&self, value: Option<&str>) -> Result<u32, String> {
        match (self, value) {
            // memcached, too, takes no notice of a value here.
            (Self::Nothing | Self::Anything, _) | (Self::MayBeNumber(_), None) => Ok(0),
            (Self::Sizes, value) => {
                let sizes = value.unwrap_or_default().split('-').map(str::parse);
                let sizes = sizes.collect::<Result<Vec<_>, _>>().unwrap_or_default();
                let rises = sizes.is_sorted_by(|a, b| a < b);
                match rises && !sizes.is_empty() && sizes.iter().all(|n| SLAB_SIZES.contains(n)) {
                    true => Ok(0),
                    false => Err("wants rising chunk sizes in bytes (100-200-300)".to_owned()),
                }
            }
            (Self::Number(range) | Self::MayBeNumber(range), value) => {
                let (least, most) = (range.start(), range.end());
                let number = value.and_then(|v| v.parse::<u64>().ok());
                let number = number.filter(|n| range.contains(n));
                number
                    .and_then(|n| u32::try_from(n).ok())
                    .ok_or_else(|| format!("wants a number from {least} to {most}"))
            }
            (Self::Fraction(range), value) => {
                let number = value.and_then(|v| v.parse::<f64>().ok());
                match number.filter(|n| range.contains(n)) {
                    Some(_) => Ok(0),
                    None if *range.end() <= 1.0 => {
                        Err("wants a fraction above 0, up to 1".to_owned())
                    }
                    None if *range.start() == 0.0 => Err("wants a number from 0 up".to_owned()),
                    None => Err("wants a number above 0".to_owned()),
                }
            }
            (Self::OneOf(words), Some(word)) if words.contains(&word) => Ok(0),
            (Self::OneOf(words), _) => Err(format!("wants one of {}", words.join(", "))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(s: &str) -> Result<Extended, String> {
        s.parse()
    }

    #[test]
    fn what_means_something_here_is_told_apart() {
        assert_eq!(parse("maxconns_fast"), Ok(Extended::MaxconnsFast(true)));
        assert_eq!(parse("no_maxconns_fast"), Ok(Extended::MaxconnsFast(false)));
        assert_eq!(parse("lru_crawler"), Ok(Extended::LruCrawler(true)));
        assert_eq!(parse("no_lru_crawler"), Ok(Extended::LruCrawler(false)));
        assert_eq!(parse("no_modern"), Ok(Extended::NoModern));
        assert_eq!(parse("idle_timeout=30"), Ok(Extended::IdleTimeout(30)));
        for unused in ["modern", "hashpower=20", "slab_automove", "hot_max_factor=0.2"] {
            assert_eq!(parse(unused), Ok(Extended::Unused(unused.to_owned())));
        }
    }

    #[test]
    fn only_the_last_comma_may_have_nothing_behind_it() {
        let all = |s: &str| s.parse::<ExtendedOptions>().map(|all| all.0.len());
        for (typed, count) in [("", 0), ("modern", 1), ("modern,", 1), ("modern,idle_timeout=1", 2)]
        {
            assert_eq!(all(typed), Ok(count), "{typed}");
        }
        for typed in [",", ",modern", "modern,,", "modern,,slab_reassign"] {
            let error = all(typed).expect_err(typed);
            assert_eq!(error, "a comma has no option before it: leave it out", "{typed}");
        }
    }

    #[test]
    fn every_option_can_be_had() {
        for (name, takes) in &KNOWN {
            let typed = match takes {
                Takes::Nothing | Takes::Anything => (*name).to_owned(),
                Takes::Sizes => format!("{name}=100-200-300"),
                Takes::Number(range) | Takes::MayBeNumber(range) => {
                    format!("{name}={}", range.start())
                }
                Takes::Fraction(_) => format!("{name}=0.5"),
                Takes::OneOf(words) => format!("{name}={}", words[0]),
            };
            assert!(parse(&typed).is_ok(), "{typed}");
        }
    }

    #[test]
    fn each_refusal_names_the_option() {
        for (typed, said) in [
            ("foo", "'foo' is none of memcached's options"),
            ("no_idle_timeout", "'no_idle_timeout' is none of memcached's options"),
            ("idle_timeout", "idle_timeout wants a number from 0 to 4294967295"),
            ("idle_timeout=x", "idle_timeout wants a number from 0 to 4294967295"),
            ("idle_timeout=-1", "idle_timeout wants a number from 0 to 4294967295"),
            ("hashpower=1", "hashpower wants a number from 12 to 32"),
            ("hash_algorithm=md5", "hash_algorithm wants one of jenkins, murmur3, xxh3"),
            ("slab_automove=3", "slab_automove wants a number from 0 to 2"),
            ("slab_automove_ratio=1.1", "slab_automove_ratio wants a fraction above 0, up to 1"),
            ("slab_automove_ratio=NaN", "slab_automove_ratio wants a fraction above 0, up to 1"),
            ("slab_automove_freeratio=x", "slab_automove_freeratio wants a number from 0 up"),
            ("slab_sizes", "slab_sizes wants rising chunk sizes in bytes"),
            ("slab_sizes=300-200", "slab_sizes wants rising chunk sizes in bytes"),
            ("slab_sizes=100-x", "slab_sizes wants rising chunk sizes in bytes"),
            ("worker_logbuf_size=1", "worker_logbuf_size wants a number from 48 to 524288"),
            ("hot_max_factor=0", "hot_max_factor wants a number above 0"),
            ("hot_lru_pct=80", "hot_lru_pct wants a number from 1 to 79"),
            ("tail_repair_time=9", "tail_repair_time wants a number from 10"),
            ("ssl_key", "ssl_key wants a file"),
            ("ssl_verify_mode=4", "ssl_verify_mode wants a number from 0 to 3"),
            ("ssl_keyformat=3", "ssl_keyformat wants 1 (PEM) or 2 (DER)"),
            ("ssl_ciphers=", "ssl_ciphers wants names of ciphers"),
            ("ssl_foo=1", "'ssl_foo' is none of memcached's options"),
            ("ext_path=/x:1G", "ext_path: external storage is not supported"),
            ("proxy_config=routelib", "proxy_config: a proxy is not supported"),
        ] {
            let error = parse(typed).expect_err(typed);
            assert!(error.starts_with(said), "{typed}: {error}");
        }
    }
}
