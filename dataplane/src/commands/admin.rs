//! The administrator's commands: `lru_crawler`, `lru`, `slabs`, `cache_memlimit`, `watch`,
//! `shutdown`, `refresh_certs`.
//!
//! In: an [`Admin`]. Out: the answer, in memcached's words. None comes over UDP. Fails: what cannot
//! be done is answered with why.

use super::ctx::{Ctx, Flow, Rest};
use super::work::count_walk;
use crate::observe::{Server, key_text::put_encoded};
use memcache::admin::{Admin, Dump, Level, Listing};
use memcache::{Outcome, Refusal, Reply, Sink, meta};
use store::{Automove, Cursor, NotMoved};

/// Chunks looked at in one piece of a dump: a fraction of a millisecond.
const DUMP_CHUNKS: u32 = 4096;

/// Least memory limit and most of it that memcached takes, in megabytes.
const LIMIT_MIN_MB: u64 = 8;
const LIMIT_MAX_MB: u64 = 1_000_000_000;

/// Carries it out.
pub(super) fn admin<S: Sink>(
    ctx: &mut Ctx<'_>,
    what: &Admin<'_>,
    reply: &mut Reply<'_, S>,
) -> Flow {
    let server = ctx.server();
    let answer: &[u8] = match *what {
        Admin::Dump(what) => match (dump(ctx, what, reply.out), what.listing) {
            (Ok(None), Listing::Facts) => b"END\r\n",
            (Ok(None), Listing::Commands) => b"EN\r\n",
            (Ok(Some(from)), _) => return Flow::Rest(Rest::Dump(from)),
            (Err(line), _) => line,
        },
        Admin::Watch(_) if !server.watch_allowed => b"CLIENT_ERROR watch commands not allowed\r\n",
        Admin::Watch(None) => Refusal::Error.line(),
        Admin::Watch(Some(events)) => return Flow::Watch(events),
        Admin::Shutdown(mode) => match (server.shutdown_allowed, mode) {
            (true, None | Some(b"graceful")) => {
                server.ask_to_stop(mode.is_some());
                return Flow::Close;
            }
            (true, Some(_)) => b"CLIENT_ERROR invalid shutdown mode\r\n",
            (false, _) => b"ERROR: shutdown not enabled\r\n",
        },
        Admin::RefreshCerts => match server.tls.as_ref().map(|tls| tls.refresh()) {
            None => b"Error TLS not enabled\r\n",
            Some(Ok(())) => b"OK\r\n",
            Some(Err(why)) => {
                // Paths are an operator's, and may have anything in them.
                reply.out.put(why.replace(['\r', '\n'], " ").as_bytes());
                b"\r\n"
            }
        },
        other => set(other, server).err().unwrap_or(b"OK\r\n"),
    };
    reply.put(Outcome::Lines(answer));
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
        Admin::Automove(level) => store.set_automove(match level {
            Level::Off => Automove::Off,
            Level::Slow => Automove::Slow,
            Level::Eager => Automove::Eager,
        }),
        Admin::AutomoveRatio(ratio) => tuning.set(|t| t.automove_ratio_hundredths = ratio),
        Admin::AutomoveFreeRatio(ratio) => tuning.set(|t| t.automove_free_thousandths = ratio),
        Admin::AutomoveWindow(seconds) => tuning.set(|t| t.automove_window_seconds = seconds),
        Admin::Reassign(from, to) => store.reassign(from, to).map_err(|why| match why {
            NotMoved::Busy => &b"BUSY currently processing reassign request\r\n"[..],
            NotMoved::BadClass => b"BADCLASS invalid src or dst class id\r\n",
            NotMoved::Same => b"SAME src and dst class are identical\r\n",
            NotMoved::NoSpare => b"NOSPARE source class has no spare pages\r\n",
        })?,
        Admin::MemoryLimit(megabytes) => limit(megabytes, server)?,
        // Answered by the caller.
        Admin::Dump(_) | Admin::Watch(_) | Admin::Shutdown(_) | Admin::RefreshCerts => {}
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
    for word in classes.split(|&b| b == b',').filter(|word| !word.is_empty()) {
        let class: usize = std::str::from_utf8(word).ok()?.parse().ok()?;
        if !(1..=server.store.classes()).contains(&class) {
            return None;
        }
        *wanted.get_mut(class)? = true;
    }
    Some(wanted)
}

/// One piece of a dump: a line per item. Says where to go on.
fn dump(
    ctx: &mut Ctx<'_>,
    Dump { listing, classes }: Dump<'_>,
    out: &mut impl Sink,
) -> Result<Option<Cursor>, &'static [u8]> {
    let (server, from) = (ctx.server(), ctx.turn.dump_from);
    if !server.dump_allowed {
        return Err(match listing {
            Listing::Facts => b"ERROR metadump not allowed\r\n",
            Listing::Commands => b"ERROR key dump not allowed\r\n",
        });
    }
    if !server.store.is_sweeper_on() {
        return Err(CRAWLER_DISABLED);
    }
    let wanted = wanted(classes, server).ok_or(BAD_CLASS)?;
    let wanted = |class: u32| wanted.get(class as usize) == Some(&true);
    // Before facts, too, in 1.6.45; memcached-tool, the newest as well, takes that line for an item.
    if from == Cursor::default() && listing == Listing::Commands {
        out.put(b"OK\r\n");
    }
    let clock = server.store.clock();
    let mut line = Vec::new();
    let (mut left, mut listed) = (DUMP_CHUNKS, 0);
    let next = ctx.session.pin().walk(from, &mut left, wanted, |item, class| {
        listed += 1;
        if listing == Listing::Commands {
            meta::put_get(item.key(), item.has_base64_key(), out);
            return !out.is_full();
        }
        line.clear();
        line.extend_from_slice(b"key=");
        put_encoded(item.key(), &mut line);
        let expiry = match item.expiry() {
            0 => -1,
            expiry => clock.unix(expiry),
        };
        let (accessed, cas, size) =
            (clock.unix(item.accessed()), server.cas_shown(item.cas()), item.len_bytes());
        let (fetched, flags) = (if item.was_fetched() { "yes" } else { "no" }, item.flags());
        line.extend(
            format!(
                " exp={expiry} la={accessed} cas={cas} fetch={fetched} cls={class} size={size} flags={flags} \n"
            )
            .bytes(),
        );
        out.put(&line);
        !out.is_full()
    });
    count_walk(ctx, DUMP_CHUNKS - left, listed);
    Ok(next)
}
