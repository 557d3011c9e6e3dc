//! The lines of the administrator's commands: `lru_crawler`, `lru`, `slabs`, `cache_memlimit`,
//! `watch`, `shutdown`, `refresh_certs`.
//!
//! In: the words of a line. Out: an [`Admin`]. Fails: a line that makes no sense is an [`Admin`] too,
//! the one that refuses it.

use super::refusal::Refusal;
use arrayvec::ArrayVec;
use std::str::FromStr;

/// Words that any of these lines has, and one more.
const WORDS_MAX: usize = 8;

/// Longest pause of the crawler that memcached takes, in microseconds.
const SLEEP_MAX_US: u32 = 1_000_000;

/// What memcached 1.6.45 takes for a window of its automover.
const WINDOW_SECONDS: std::ops::RangeInclusive<u32> = 3..=1800;

/// How eagerly memory moves between size classes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// Not at all.
    Off,
    /// Now and then.
    Slow,
    /// Whenever it helps.
    Eager,
}

/// Kinds of events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Events(pub u8);

impl Events {
    /// Keys requested.
    pub const FETCHERS: Self = Self(1);
    /// Items stored, or refused.
    pub const MUTATIONS: Self = Self(2);
    /// Items evicted.
    pub const EVICTIONS: Self = Self(4);
    /// Connections that come and go.
    pub const CONNECTIONS: Self = Self(8);
    /// Items deleted.
    pub const DELETIONS: Self = Self(16);

    /// The kinds that a client means by these words; none at all are fetchers. `None` for a word
    /// that memcached does not have. What it has and cannot happen here is accepted.
    pub fn named<'a>(words: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let mut all = None;
        for word in words {
            let one = match word {
                b"fetchers" => Self::FETCHERS,
                b"mutations" => Self::MUTATIONS,
                b"evictions" => Self::EVICTIONS,
                b"connevents" => Self::CONNECTIONS,
                b"deletions" => Self::DELETIONS,
                b"sysevents" | b"proxyreqs" | b"proxyevents" | b"proxyuser" | b"rawcmds" => Self(0),
                _ => return None,
            };
            all = Some(Self(all.unwrap_or(Self(0)).0 | one.0));
        }
        Some(all.unwrap_or(Self::FETCHERS))
    }

    /// Whether any of these is among them.
    pub fn has(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }
}

/// What a dump has of each item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listing {
    /// `metadump`: what is known of it.
    Facts,
    /// `mgdump`: the command that reads it.
    Commands,
}

/// `lru_crawler metadump`, `mgdump`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dump<'a> {
    /// Which of the two.
    pub listing: Listing,
    /// `all`, `hash`, or as for [`Admin::Crawl`].
    pub classes: &'a [u8],
}

/// A command of an administrator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admin<'a> {
    /// None that makes sense; this is to be said of it.
    Nonsense(&'static [u8]),
    /// `lru_crawler enable`, `disable`.
    Crawler(bool),
    /// `lru_crawler sleep`, in microseconds.
    CrawlerSleep(u32),
    /// `lru_crawler tocrawl`.
    CrawlerToCrawl(u32),
    /// `lru_crawler crawl`: `all`, or the numbers of size classes with commas between them.
    Crawl(&'a [u8]),
    /// `lru_crawler metadump`, `mgdump`.
    Dump(Dump<'a>),
    /// `lru tune`: two percentages, and two factors in hundredths.
    LruTune([u32; 4]),
    /// `lru mode`: segmented or flat.
    LruMode(bool),
    /// `lru temp_ttl`; `None`: off.
    TemporaryTtl(Option<u32>),
    /// `slabs automove`: off, slow, eager.
    Automove(Level),
    /// `slabs automove ratio`, in hundredths.
    AutomoveRatio(u32),
    /// `slabs automove freeratio`, in thousandths.
    AutomoveFreeRatio(u32),
    /// `slabs automove window`, in seconds.
    AutomoveWindow(u32),
    /// `slabs reassign`: from which class to which.
    Reassign(i32, i32),
    /// `cache_memlimit`, in megabytes.
    MemoryLimit(u64),
    /// `watch`; `None`: there are no such events.
    Watch(Option<Events>),
    /// `shutdown`, with a mode or none.
    Shutdown(Option<&'a [u8]>),
    /// `refresh_certs`.
    RefreshCerts,
}

/// Reads a line that begins with `verb`, if it is an administrator's; `rest` follows that word. Says
/// too whether no answer is to be sent.
pub(super) fn parse<'a>(verb: &[u8], rest: &'a [u8]) -> Option<(Admin<'a>, bool)> {
    let all = || rest.split(|&b| b == b' ').filter(|w| !w.is_empty());
    let mut words: ArrayVec<&'a [u8], WORDS_MAX> = all().take(WORDS_MAX).collect();
    // As in memcached, these have no such word, but for one of them.
    let has_noreply = match verb {
        b"lru_crawler" | b"shutdown" | b"refresh_certs" => false,
        b"slabs" => words.first() == Some(&&b"automove"[..]),
        _ => true,
    };
    let noreply = has_noreply && words.last() == Some(&&b"noreply"[..]);
    if noreply {
        words.pop();
    }
    let what = match verb {
        b"lru_crawler" => crawler(&words),
        b"lru" => lru(&words),
        b"slabs" => slabs(&words),
        b"cache_memlimit" => match words.as_slice() {
            [megabytes, ..] => number(megabytes).map(Admin::MemoryLimit).ok_or(Refusal::Error),
            _ => Err(Refusal::Error),
        },
        b"watch" => Ok(Admin::Watch(Events::named(all()))),
        b"shutdown" => Ok(Admin::Shutdown(match words.as_slice() {
            [] => None,
            [mode] => Some(*mode),
            // A mode of two words is none.
            _ => Some(b""),
        })),
        b"refresh_certs" => Ok(Admin::RefreshCerts),
        _ => return None,
    };
    let what = what.unwrap_or_else(|refusal| Admin::Nonsense(refusal.line()));
    Some((what, noreply))
}

fn number<T: FromStr>(word: &[u8]) -> Option<T> {
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn crawler<'a>(words: &[&'a [u8]]) -> Result<Admin<'a>, Refusal> {
    Ok(match words {
        [b"enable"] => Admin::Crawler(true),
        [b"disable"] => Admin::Crawler(false),
        [b"sleep", us] => match number(us).ok_or(Refusal::BadLineFormat)? {
            us if us <= SLEEP_MAX_US => Admin::CrawlerSleep(us),
            _ => Admin::Nonsense(b"CLIENT_ERROR sleep must be one second or less\r\n"),
        },
        [b"tocrawl", n] => Admin::CrawlerToCrawl(number(n).ok_or(Refusal::BadLineFormat)?),
        [b"crawl", classes] => Admin::Crawl(classes),
        [b"metadump", classes] => Admin::Dump(Dump { listing: Listing::Facts, classes }),
        [b"mgdump", classes] => Admin::Dump(Dump { listing: Listing::Commands, classes }),
        _ => return Err(Refusal::Error),
    })
}

fn lru<'a>(words: &[&'a [u8]]) -> Result<Admin<'a>, Refusal> {
    match words {
        [b"tune", hot, warm, hot_age, warm_age] => {
            let percent = |word| number::<u32>(word).ok_or(Refusal::Error);
            let (hot, warm) = (percent(hot)?, percent(warm)?);
            if hot.saturating_add(warm) > 80 {
                return Ok(Admin::Nonsense(b"ERROR hot and warm pcts must not exceed 80\r\n"));
            }
            let (Some(hot_age), Some(warm_age)) = (hundredths(hot_age)?, hundredths(warm_age)?)
            else {
                return Ok(Admin::Nonsense(
                    b"ERROR hot/warm age factors must be greater than 0\r\n",
                ));
            };
            Ok(Admin::LruTune([hot, warm, hot_age, warm_age]))
        }
        [b"mode", b"segmented", ..] => Ok(Admin::LruMode(true)),
        [b"mode", b"flat", ..] => Ok(Admin::LruMode(false)),
        [b"temp_ttl", ttl, ..] => {
            let ttl: i32 = number(ttl).ok_or(Refusal::Error)?;
            Ok(Admin::TemporaryTtl(u32::try_from(ttl).ok()))
        }
        _ => Err(Refusal::Error),
    }
}

/// A factor in hundredths; `None` for one that is not above 0.
fn hundredths(word: &[u8]) -> Result<Option<u32>, Refusal> {
    let factor: f64 = number(word).ok_or(Refusal::Error)?;
    Ok((factor > 0.0).then_some(in_hundredths(factor)))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a float cast saturates, and what is below 0 means nothing"
)]
fn in_hundredths(n: f64) -> u32 {
    (n * 100.0).round() as u32
}

fn slabs<'a>(words: &[&'a [u8]]) -> Result<Admin<'a>, Refusal> {
    let id = |word| number::<i32>(word).ok_or(Refusal::BadLineFormat);
    match words {
        [b"automove", b"ratio", ratio, ..] => {
            let ratio: f64 = number(ratio).ok_or(Refusal::Error)?;
            Ok(Admin::AutomoveRatio(in_hundredths(ratio)))
        }
        [b"automove", b"freeratio", ratio, ..] => {
            let ratio: f64 = number(ratio).ok_or(Refusal::Error)?;
            Ok(Admin::AutomoveFreeRatio(in_hundredths(ratio * 10.0)))
        }
        [b"automove", b"ratio" | b"freeratio"] => Err(Refusal::Error),
        [b"automove", b"window", seconds, ..] => {
            let seconds = number(seconds).ok_or(Refusal::BadLineFormat)?;
            let window = b"CLIENT_ERROR automove window too low or too high\r\n";
            Ok(match WINDOW_SECONDS.contains(&seconds) {
                true => Admin::AutomoveWindow(seconds),
                false => Admin::Nonsense(window),
            })
        }
        [b"automove", level, ..] => match number::<u32>(level).ok_or(Refusal::BadLineFormat)? {
            0 => Ok(Admin::Automove(Level::Off)),
            1 => Ok(Admin::Automove(Level::Slow)),
            2 => Ok(Admin::Automove(Level::Eager)),
            _ => Err(Refusal::Error),
        },
        [b"reassign", from, to] => Ok(Admin::Reassign(id(from)?, id(to)?)),
        _ => Err(Refusal::Error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &'static str) -> Admin<'static> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match parse(verb.as_bytes(), rest.as_bytes()) {
            Some((what, false)) => what,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn lines_mean_what_memcached_means() {
        let error = Admin::Nonsense(b"ERROR\r\n");
        let format = Admin::Nonsense(b"CLIENT_ERROR bad command line format\r\n");
        for (line, want) in [
            ("lru_crawler", error),
            ("lru_crawler bogus", error),
            ("lru_crawler enable x", error),
            ("lru_crawler enable", Admin::Crawler(true)),
            ("lru_crawler sleep 5", Admin::CrawlerSleep(5)),
            ("lru_crawler sleep -5", format),
            ("lru_crawler tocrawl x", format),
            ("lru_crawler crawl 1,2", Admin::Crawl(b"1,2")),
            ("lru_crawler metadump all noreply", error),
            ("lru tune 10 20 0.2 2.0", Admin::LruTune([10, 20, 20, 200])),
            ("lru tune 10 20 0.2", error),
            ("lru tune a b c d", error),
            (
                "lru tune 60 60 1 1",
                Admin::Nonsense(b"ERROR hot and warm pcts must not exceed 80\r\n"),
            ),
            ("lru mode flat", Admin::LruMode(false)),
            ("lru mode flat x", Admin::LruMode(false)),
            ("lru mode x", error),
            ("lru temp_ttl -1", Admin::TemporaryTtl(None)),
            ("lru temp_ttl 61", Admin::TemporaryTtl(Some(61))),
            ("lru temp_ttl x", error),
            ("slabs automove 2", Admin::Automove(Level::Eager)),
            ("slabs automove 3", error),
            ("slabs automove x", format),
            ("slabs automove -1", format),
            ("cache_memlimit 64 x", Admin::MemoryLimit(64)),
            ("slabs automove 1 2", Admin::Automove(Level::Slow)),
            ("slabs reassign -1 2", Admin::Reassign(-1, 2)),
            ("slabs reassign 1", error),
            ("slabs reassign x 1", format),
            ("cache_memlimit 64", Admin::MemoryLimit(64)),
            ("cache_memlimit x", error),
            ("cache_memlimit", error),
            ("watch", Admin::Watch(Some(Events::FETCHERS))),
            ("watch foo", Admin::Watch(None)),
            ("shutdown", Admin::Shutdown(None)),
            ("refresh_certs", Admin::RefreshCerts),
            ("shutdown graceful", Admin::Shutdown(Some(b"graceful"))),
            ("shutdown graceful now", Admin::Shutdown(Some(b""))),
        ] {
            assert_eq!(parsed(line), want, "{line}");
        }
        assert!(
            matches!(parsed("lru tune 1 1 0 1"), Admin::Nonsense(l) if l.starts_with(b"ERROR hot/warm"))
        );
        assert!(
            matches!(parsed("lru_crawler sleep 9999999"), Admin::Nonsense(l) if l.ends_with(b"one second or less\r\n"))
        );
        assert_eq!(parse(b"get", b" a"), None);
        let quiet = parse(b"cache_memlimit", b" 128 noreply");
        assert_eq!(quiet, Some((Admin::MemoryLimit(128), true)));
    }

    #[test]
    fn words_name_events() {
        let named = |words: &[&'static [u8]]| Events::named(words.iter().copied());
        assert_eq!(named(&[]), Some(Events::FETCHERS));
        assert_eq!(named(&[b"mutations", b"evictions"]), Some(Events(6)));
        assert_eq!(named(&[b"sysevents"]), Some(Events(0)));
        assert_eq!(named(&[b"fetchers", b"bogus"]), None);
    }
}
