//! `stats`.
//!
//! In: which page. Out: its rows, or text, or a line that says why not. A page is made when it is
//! requested: it allocates and takes locks, and nothing of that is on the way of other requests.

use super::ctx::Ctx;
use super::work::{STATS_BYTES, count_walk};
use crate::observe::key_text::put_plain;
use crate::observe::{Overview, Page, Rows, detail, overview};
use memcache::{Refusal, Reply, Sink};
use std::fmt::Display;
use store::Cursor;

/// Answers `stats [what]`.
pub(super) fn stats<S: Sink>(ctx: &mut Ctx<'_>, what: Option<&[u8]>, reply: &mut Reply<'_, S>) {
    ctx.observer.ops.listing_bytes.add(STATS_BYTES);
    match page(ctx, what, &mut InReply(reply)) {
        Page::Rows => reply.end_of_rows(None),
        Page::Text(text) => reply.end_of_rows(Some(&text)),
        Page::Line(line) => reply.no_rows(line, matches!(line, b"RESET\r\n" | b"OK\r\n")),
    }
}

/// Rows as the client's dialect has them.
struct InReply<'r, 'a, S>(&'r mut Reply<'a, S>);

impl<S: Sink> Rows for InReply<'_, '_, S> {
    fn row(&mut self, name: &str, value: &dyn Display) {
        self.0.row(name, value);
    }
}

/// Makes the page `what`, which may have arguments: `None` or nothing for the general one.
pub fn page(ctx: &mut Ctx<'_>, what: Option<&[u8]>, rows: &mut impl Rows) -> Page {
    let server = ctx.server();
    let words = what.unwrap_or_default().split(|&b| b == b' ').filter(|w| !w.is_empty());
    let words: arrayvec::ArrayVec<&[u8], 4> = words.take(4).collect();
    match words.as_slice() {
        [] => overview(Overview::General, server, rows),
        [b"settings", ..] => overview(Overview::Settings, server, rows),
        [b"items", ..] => overview(Overview::Items, server, rows),
        [b"slabs", ..] => overview(Overview::Slabs, server, rows),
        // As memcached without `-o track_sizes`.
        [b"sizes" | b"sizes_disable", ..] => rows.row("sizes_status", &"disabled"),
        [b"sizes_enable", ..] => {
            rows.row("sizes_status", &"error");
            rows.row("sizes_error", &"sizes are not tracked by this server");
        }
        [b"conns", ..] => server.conns.page(rows),
        [b"latency", ..] => server.latencies_counted().page(rows),
        [b"engine", ..] => overview(Overview::Engine, server, rows),
        // Keys, and their beginnings.
        [b"hotkeys", ..] if !server.dump_allowed => {
            return Page::Line(b"CLIENT_ERROR stats hotkeys not allowed\r\n");
        }
        [b"detail", ..] if !server.dump_allowed => {
            return Page::Line(b"CLIENT_ERROR stats detail not allowed\r\n");
        }
        [b"hotkeys", ..] => server.hot_keys(rows),
        [b"reset", ..] => {
            server.reset();
            return Page::Line(b"RESET\r\n");
        }
        [b"detail", what, ..] => return server.detail.page(what),
        [b"detail"] => return detail::USAGE,
        [b"cachedump", class, limit, ..] => return cachedump(ctx, [class, limit]),
        [b"cachedump", ..] => {
            return Page::Line(b"CLIENT_ERROR bad command line\r\n");
        }
        _ => return Page::Line(Refusal::Error.line()),
    }
    Page::Rows
}

/// Most bytes of a `stats cachedump`, as in memcached, and most chunks looked at for one.
const CACHEDUMP_MAX_BYTES: usize = 2 << 20;
const CACHEDUMP_CHUNKS: u32 = 1 << 18;

/// The last class that memcached may have.
const CLASS_MAX: usize = 63;

/// Some items of a class: `ITEM <key> [<bytes> b; <expiry> s]`.
fn cachedump(ctx: &mut Ctx<'_>, [class, limit]: [&[u8]; 2]) -> Page {
    let server = ctx.server();
    if !server.dump_allowed {
        return Page::Line(b"CLIENT_ERROR stats cachedump not allowed\r\n");
    }
    let number = |word| std::str::from_utf8(word).ok()?.parse::<u32>().ok();
    let (Some(class), Some(limit)) = (number(class), number(limit)) else {
        return Page::Line(Refusal::BadLineFormat.line());
    };
    if class as usize > server.store.classes().max(CLASS_MAX) {
        return Page::Line(b"CLIENT_ERROR Illegal slab id\r\n");
    }
    let (mut text, mut items) = (Vec::new(), 0);
    let guard = ctx.session.pin();
    let clock = server.store.clock();
    let wanted = |c| c == class;
    let mut left = CACHEDUMP_CHUNKS;
    guard.walk(Cursor::default(), &mut left, wanted, |item, _| {
        let expiry = match item.expiry() {
            0 => 0,
            expiry => clock.unix(expiry),
        };
        text.extend_from_slice(b"ITEM ");
        put_plain(item.key(), &mut text);
        text.extend(format!(" [{} b; {expiry} s]\r\n", item.value().len()).bytes());
        items += 1;
        items != limit && text.len() < CACHEDUMP_MAX_BYTES
    });
    drop(guard);
    count_walk(ctx, CACHEDUMP_CHUNKS - left, items.into());
    Page::Text(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::Server;
    use driver_shim::Pages;
    use memcache::Form;
    use memcache::sink::Buffer;
    use std::sync::Arc;
    use store::{Store, StoreConfig, verbs};

    fn ask(what: &[u8], server: &Server) -> String {
        let mut bytes = Vec::new();
        let (mut session, ops) = (server.store.session().unwrap(), server.ops());
        let mut ctx = Ctx::new(&mut session, &ops, server);
        let (form, mut out) = (Form::Text { noreply: false }, Buffer::new(&mut bytes, 0));
        stats(&mut ctx, Some(what), &mut Reply::new(&form, &mut out));
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn each_class_with_an_item_has_its_rows() {
        let config =
            StoreConfig { memory_bytes: 8 << 20, pages: Pages::Small, ..StoreConfig::default() };
        let store = Store::new(config).unwrap();
        let server = Server::new(Arc::clone(&store), String::new());
        assert_eq!(ask(b"items", &server), "END\r\n");
        assert_eq!(
            ask(b"slabs", &server),
            "STAT active_slabs 0\r\nSTAT total_malloced 0\r\nEND\r\n"
        );
        let mut session = store.session().unwrap();
        for (key, len) in [(&b"a"[..], 10), (b"b", 10), (b"c", 1000)] {
            let value = &vec![b'v'; len];
            let request = memcache::Store::set(key, 0, 0, value);
            verbs::store(&mut session, None, &request).unwrap();
        }
        let items = ask(b"items", &server);
        let count = |text: &str, part: &str| text.lines().filter(|l| l.contains(part)).count();
        assert_eq!(count(&items, ":number 2"), 1, "{items}");
        assert_eq!(count(&items, ":number 1"), 1, "{items}");
        let slabs = ask(b"slabs", &server);
        assert_eq!(count(&slabs, ":used_chunks "), 2, "{slabs}");
        assert_eq!(count(&slabs, "STAT active_slabs 2"), 1, "{slabs}");
        assert_eq!(count(&slabs, "STAT total_malloced 4194304"), 1, "{slabs}");
        assert_eq!(ask(b"sizes", &server), "STAT sizes_status disabled\r\nEND\r\n");
        assert_eq!(ask(b"bogus", &server), "ERROR\r\n");
    }
}
