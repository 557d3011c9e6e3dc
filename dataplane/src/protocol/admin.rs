//! The administrator's commands: `lru_crawler`, `lru`, `slabs`, `cache_memlimit`, `watch`,
//! `shutdown`.
//!
//! Enters: the words of a line. Leaves: an [`Admin`], and the answer when it is carried out, in
//! memcached's words. None comes over UDP. Fails: a line that makes no sense is an [`Admin`] too,
//! which says so.

use super::command::{Command, Refusal};
use super::executor::Flow;
use super::keys::put_encoded;
use super::sink::Sink;
use super::stats::Server;
use super::watch::Events;
use crate::store::{Automove, Cursor, NotMoved, Session};
use arrayvec::ArrayVec;
use std::str::FromStr;

/// Words that any of these lines has, and one more.
const WORDS_MAX: usize = 8;

/// Chunks looked at in one piece of a dump: a fraction of a millisecond.
const DUMP_CHUNKS: u32 = 4096;

/// Longest pause of the crawler that memcached takes, in microseconds.
const SLEEP_MAX_US: u32 = 1_000_000;

/// Least memory limit and most of it that memcached takes, in megabytes.
const LIMIT_MIN_MB: u64 = 8;
const LIMIT_MAX_MB: u64 = 1_000_000_000;

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
    /// `lru_crawler metadump`.
    Dump {
        /// `all`, `hash`, or as for [`Self::Crawl`].
        classes: &'a [u8],
        /// Where to go on.
        from: Cursor,
    },
    /// `lru tune`: two percentages, and two factors in hundredths.
    LruTune([u32; 4]),
    /// `lru mode`: segmented or flat.
    LruMode(bool),
    /// `lru temp_ttl`; `None`: off.
    TemporaryTtl(Option<u32>),
    /// `slabs automove`.
    Automove(Automove),
    /// `slabs automove ratio`, in hundredths.
    AutomoveRatio(u32),
    /// `slabs reassign`: from which class to which.
    Reassign(i32, i32),
    /// `cache_memlimit`, in megabytes.
    MemoryLimit(u64),
    /// `watch`.
    Watch(Events),
    /// `shutdown`, with a mode or none.
    Shutdown(Option<&'a [u8]>),
}

/// Reads a line that begins with `verb`, if it is an administrator's; `rest` follows that word.
pub(super) fn parse<'a>(verb: &[u8], rest: &'a [u8]) -> Option<Command<'a>> {
    let all = || rest.split(|&b| b == b' ').filter(|w| !w.is_empty());
    let mut words: ArrayVec<&'a [u8], WORDS_MAX> = all().take(WORDS_MAX).collect();
    // As in memcached, these have no such word, but for one of them.
    let has_noreply = match verb {
        b"lru_crawler" | b"shutdown" => false,
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
            [megabytes] => number(megabytes).map(Admin::MemoryLimit).ok_or(Refusal::Error),
            _ => Err(Refusal::Error),
        },
        b"watch" => Events::named(all()).map(Admin::Watch).ok_or(Refusal::Error),
        b"shutdown" => Ok(Admin::Shutdown(words.first().copied())),
        _ => return None,
    };
    let what = what.unwrap_or_else(|refusal| Admin::Nonsense(refusal.line()));
    Some(Command::Admin { what, noreply })
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
        [b"metadump", classes] => Admin::Dump { classes, from: Cursor::default() },
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
        [b"mode", b"segmented"] => Ok(Admin::LruMode(true)),
        [b"mode", b"flat"] => Ok(Admin::LruMode(false)),
        [b"temp_ttl", ttl] => {
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
        [b"automove", b"ratio"] => Err(Refusal::Error),
        [b"automove", level, ..] => match id(level)? {
            0 => Ok(Admin::Automove(Automove::Off)),
            1 => Ok(Admin::Automove(Automove::Slow)),
            2 => Ok(Admin::Automove(Automove::Eager)),
            _ => Err(Refusal::Error),
        },
        [b"reassign", from, to] => Ok(Admin::Reassign(id(from)?, id(to)?)),
        _ => Err(Refusal::Error),
    }
}

/// Carries it out.
pub(super) fn execute<'a>(
    what: Admin<'a>,
    noreply: bool,
    session: &mut Session,
    server: &Server,
    out: &mut impl Sink,
) -> Flow<'a> {
    let answer: &[u8] = match what {
        Admin::Dump { classes, from } => match dump(classes, from, session, server, out) {
            Ok(None) => b"END\r\n",
            Ok(Some(from)) => {
                let what = Admin::Dump { classes, from };
                return Flow::Rest(Command::Admin { what, noreply });
            }
            Err(line) => line,
        },
        Admin::Watch(_) if !server.watch_allowed => b"CLIENT_ERROR watch commands not allowed\r\n",
        Admin::Watch(events) => return Flow::Watch(events),
        Admin::Shutdown(mode) => match (server.shutdown_allowed, mode) {
            (true, None | Some(b"graceful")) => {
                server.ask_to_stop(mode.is_some());
                return Flow::Close;
            }
            (true, Some(_)) => b"CLIENT_ERROR invalid shutdown mode\r\n",
            (false, _) => b"ERROR: shutdown not enabled\r\n",
        },
        other => set(other, server).err().unwrap_or(b"OK\r\n"),
    };
    if !noreply {
        out.put(answer);
    }
    Flow::Continue
}

/// Carries out what is answered with `OK`, or else says with what.
fn set(what: Admin<'_>, server: &Server) -> Result<(), &'static [u8]> {
    let (tuning, store) = (&server.tuning, &server.store);
    match what {
        Admin::Nonsense(line) => return Err(line),
        Admin::Crawler(true) if store.is_sweeper_on() => {
            return Err(b"ERROR failed to start lru crawler thread\r\n");
        }
        Admin::Crawler(on) => store.set_sweeper(on),
        Admin::CrawlerSleep(us) => tuning.set(|t| t.crawler_sleep_us = us),
        Admin::CrawlerToCrawl(n) => tuning.set(|t| t.crawler_to_crawl = n),
        Admin::Crawl(classes) => {
            if !store.is_sweeper_on() {
                return Err(CRAWLER_DISABLED);
            }
            wanted(classes, server).ok_or(BAD_CLASS)?;
            store.sweep_anyway();
        }
        Admin::LruTune([hot, warm, hot_age, warm_age]) => tuning.set(|t| {
            (t.hot_percent, t.warm_percent) = (hot, warm);
            (t.hot_factor_hundredths, t.warm_factor_hundredths) = (hot_age, warm_age);
        }),
        Admin::LruMode(segmented) => tuning.set(|t| t.segmented = segmented),
        Admin::TemporaryTtl(ttl) => tuning.set(|t| t.temporary_ttl = ttl),
        Admin::Automove(how) => store.set_automove(how),
        Admin::AutomoveRatio(ratio) => tuning.set(|t| t.automove_ratio_hundredths = ratio),
        Admin::Reassign(from, to) => store.reassign(from, to).map_err(|why| match why {
            NotMoved::Busy => &b"BUSY currently processing reassign request\r\n"[..],
            NotMoved::BadClass => b"BADCLASS invalid src or dst class id\r\n",
            NotMoved::Same => b"SAME src and dst class are identical\r\n",
            NotMoved::NoSpare => b"NOSPARE source class has no spare pages\r\n",
        })?,
        Admin::MemoryLimit(megabytes) => limit(megabytes, server)?,
        // Answered by the caller.
        Admin::Dump { .. } | Admin::Watch(_) | Admin::Shutdown(_) => {}
    }
    Ok(())
}

fn limit(megabytes: u64, server: &Server) -> Result<(), &'static [u8]> {
    if megabytes < LIMIT_MIN_MB {
        return Err(b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n");
    }
    if megabytes > LIMIT_MAX_MB {
        return Err(b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n");
    }
    usize::try_from(megabytes << 20)
        .ok()
        .and_then(|bytes| server.store.set_limit_bytes(bytes).ok())
        .ok_or(b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n")
}

const BAD_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";
const CRAWLER_DISABLED: &[u8] = b"CLIENT_ERROR lru crawler disabled\r\n";

/// Which classes are meant, by number. `None` where one is named that does not exist.
fn wanted(classes: &[u8], server: &Server) -> Option<[bool; 256]> {
    if matches!(classes, b"all" | b"hash") {
        return Some([true; 256]);
    }
    let mut wanted = [false; 256];
    for word in classes.split(|&b| b == b',') {
        let class: usize = number(word)?;
        if !(1..=server.store.classes()).contains(&class) {
            return None;
        }
        *wanted.get_mut(class)? = true;
    }
    Some(wanted)
}

/// One piece of a dump: a line per item. Says where to go on.
fn dump(
    classes: &[u8],
    from: Cursor,
    session: &mut Session,
    server: &Server,
    out: &mut impl Sink,
) -> Result<Option<Cursor>, &'static [u8]> {
    if !server.dump_allowed {
        return Err(b"ERROR metadump not allowed\r\n");
    }
    if !server.store.is_sweeper_on() {
        return Err(CRAWLER_DISABLED);
    }
    let wanted = wanted(classes, server).ok_or(BAD_CLASS)?;
    let wanted = |class: u32| wanted.get(class as usize) == Some(&true);
    let clock = server.store.clock();
    let mut line = Vec::new();
    Ok(session.pin().walk(from, DUMP_CHUNKS, wanted, |item, class| {
        line.clear();
        line.extend_from_slice(b"key=");
        put_encoded(item.key(), &mut line);
        let expiry = match item.expiry() {
            0 => -1,
            expiry => clock.unix(expiry),
        };
        let (accessed, cas, size) =
            (clock.unix(item.accessed()), server.cas_shown(item.cas()), item.len_bytes());
        let fetched = if item.was_fetched() { "yes" } else { "no" };
        line.extend(
            format!(
                " exp={expiry} la={accessed} cas={cas} fetch={fetched} cls={class} size={size}\n"
            )
            .bytes(),
        );
        out.put(&line);
        !out.is_full()
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &'static str) -> Admin<'static> {
        let (verb, rest) = line.split_once(' ').unwrap_or((line, ""));
        match parse(verb.as_bytes(), rest.as_bytes()) {
            Some(Command::Admin { what, noreply: false }) => what,
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
            ("lru mode x", error),
            ("lru temp_ttl -1", Admin::TemporaryTtl(None)),
            ("lru temp_ttl 61", Admin::TemporaryTtl(Some(61))),
            ("lru temp_ttl x", error),
            ("slabs automove 2", Admin::Automove(Automove::Eager)),
            ("slabs automove 3", error),
            ("slabs automove x", format),
            ("slabs automove 1 2", Admin::Automove(Automove::Slow)),
            ("slabs reassign -1 2", Admin::Reassign(-1, 2)),
            ("slabs reassign 1", error),
            ("slabs reassign x 1", format),
            ("cache_memlimit 64", Admin::MemoryLimit(64)),
            ("cache_memlimit x", error),
            ("cache_memlimit", error),
            ("watch", Admin::Watch(Events::FETCHERS)),
            ("watch foo", error),
            ("shutdown", Admin::Shutdown(None)),
            ("shutdown graceful", Admin::Shutdown(Some(b"graceful"))),
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
        assert_eq!(quiet, Some(Command::Admin { what: Admin::MemoryLimit(128), noreply: true }));
    }
}
