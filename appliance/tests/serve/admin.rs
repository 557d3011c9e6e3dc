//! What administrators ask, and who hears of it.

use crate::client::Tcp;
use crate::server::{SOON, Server};
use std::collections::BTreeSet;
use std::time::Instant;

pub(crate) fn value<'a>(page: &'a str, name: &str) -> &'a str {
    let prefix = format!("STAT {name} ");
    page.lines().find_map(|l| l.strip_prefix(&prefix)).unwrap_or_else(|| panic!("{name}: {page}"))
}

#[test]
fn a_dump_tells_every_item_while_others_are_served() {
    const ITEMS: usize = 20_000;
    let server = Server::start(&["-m", "32", "-t", "1"]);
    let (mut c, mut other) = (Tcp::connect(server.tcp()), Tcp::connect(server.tcp()));
    let mut sets = String::new();
    for i in 0..ITEMS {
        sets += &format!("set user:{i} 0 {} 1 noreply\r\nx\r\n", if i == 7 { 1000 } else { 0 });
    }
    c.send(sets);
    c.expect("get user:7\r\n", "VALUE user:7 0 1\r\nx\r\nEND\r\n");
    // Two dumps behind one another, of which nothing is read before somebody else was served.
    c.send("lru_crawler metadump all\r\nlru_crawler metadump 1\r\n");
    other.expect("get nothing\r\n", "END\r\n");
    for _ in 0..2 {
        let dump = c.until_end("");
        let keys: BTreeSet<&str> =
            dump.lines().filter_map(|l| l.strip_prefix("key=")?.split(' ').next()).collect();
        assert_eq!(keys.len(), ITEMS);
        assert_eq!(dump.lines().count(), ITEMS + 1);
        let line = dump.lines().find(|l| l.starts_with("key=user%3A7 ")).unwrap();
        let field = |name: &str| {
            let word = line.split(' ').find_map(|w| w.strip_prefix(name)).unwrap();
            word.parse::<i64>().map_err(|_| word.to_owned())
        };
        assert!(field("exp=").unwrap() >= field("la=").unwrap() + 900, "{line}");
        assert_eq!((field("fetch="), field("cls=")), (Err("yes".to_owned()), Ok(1)));
        assert!(field("cas=").unwrap() > 0 && field("size=").unwrap() > 8);
        assert!(line.ends_with(" flags=0 "), "{line}");
    }
    // The same as commands, each of which asks for its item.
    c.expect("ms AAEK 1 b\r\nx\r\n", "HD\r\n");
    c.send("lru_crawler mgdump all\r\n");
    let dump = c.until("EN\r\n");
    assert!(dump.starts_with("OK\r\nmg ") && dump.lines().count() == ITEMS + 3, "{dump}");
    let mut wanted: BTreeSet<String> = (0..ITEMS).map(|i| format!("mg user:{i}")).collect();
    wanted.extend(["OK", "mg AAEK b", "EN"].map(str::to_owned));
    assert_eq!(dump.lines().map(str::to_owned).collect::<BTreeSet<_>>(), wanted);
    c.expect("mg AAEK b v\r\n", "VA 1\r\nx\r\n");
    assert_eq!(c.until_end("stats cachedump 1 5\r\n").matches("ITEM user:").count(), 5);
    for (request, reply) in [
        ("lru_crawler metadump 0\r\n", "BADCLASS invalid class id\r\n"),
        ("lru_crawler disable\r\n", "OK\r\n"),
        ("lru_crawler metadump all\r\n", "CLIENT_ERROR lru crawler disabled\r\n"),
        ("lru_crawler mgdump all\r\n", "CLIENT_ERROR lru crawler disabled\r\n"),
        ("lru_crawler mgdump\r\n", "ERROR\r\n"),
        ("lru_crawler enable\r\n", "OK\r\n"),
        ("stats cachedump 999 0\r\n", "CLIENT_ERROR Illegal slab id\r\n"),
    ] {
        c.expect(request, reply);
    }
}

#[test]
fn a_watcher_hears_what_it_asked_for() {
    let server = Server::start(&["-m", "8"]);
    let mut watcher = Tcp::connect(server.tcp());
    watcher.expect("watch fetchers mutations connevents\r\n", "OK\r\n");
    let mut c = Tcp::connect(server.tcp());
    c.expect("set a:b 0 0 3\r\nabc\r\n", "STORED\r\n");
    c.expect("get a:b x\r\n", "VALUE a:b 0 3\r\nabc\r\nEND\r\n");
    let stats = c.until_end("stats\r\n");
    assert_eq!(value(&stats, "log_watchers"), "1");
    c.send("quit\r\n");
    c.rest();
    let mut until_close = || {
        let mut text = String::new();
        while !text.contains("conn_close") || !text.ends_with('\n') {
            text.push_str(std::str::from_utf8(&watcher.receive(1)).unwrap());
        }
        text
    };
    let text = until_close();
    let kinds: Vec<&str> =
        text.lines().map(|l| l.split(' ').nth(2).unwrap().trim_start_matches("type=")).collect();
    let wanted = ["conn_new", "item_get", "item_store", "item_get", "item_get", "conn_close"];
    assert_eq!(kinds, wanted, "{text}");
    for part in [
        "type=item_get key=a%3Ab status=not_found clsid=0 cfd=",
        "type=item_store key=a%3Ab status=stored cmd=set ttl=0 clsid=1 cfd=",
        "type=item_get key=a%3Ab status=found clsid=1 cfd=",
        "type=item_get key=x status=not_found clsid=0 cfd=",
        "transport=tcp reason=normal cfd=",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let mut c = Tcp::connect(server.tcp());
    c.send("GET / HTTP/1.1\r\n");
    c.rest();
    let text = until_close();
    assert!(text.contains("transport=tcp reason=error cfd="), "{text}");
    drop(watcher);
    let mut c = Tcp::connect(server.tcp());
    let deadline = Instant::now() + SOON;
    while value(&c.until_end("stats\r\n"), "log_watchers") != "0" {
        assert!(Instant::now() < deadline, "the watcher is still there");
    }
    let counts = |stats: &str| {
        ["log_worker_written", "log_watcher_sent"].map(|row| value(stats, row).to_owned())
    };
    assert!(!counts(&c.until_end("stats\r\n")).contains(&"0".to_owned()));
    c.expect("stats reset\r\n", "RESET\r\n");
    assert_eq!(counts(&c.until_end("stats\r\n")), ["0", "0"]);
}

/// As memcached 1.6.45 shows them.
#[test]
fn a_watcher_hears_of_deletions() {
    let server = Server::start(&["-m", "8"]);
    let mut watcher = Tcp::connect(server.tcp());
    watcher.expect("watch deletions\r\n", "OK\r\n");
    let mut c = Tcp::connect(server.tcp());
    for (request, reply) in [
        ("delete none\r\n", "NOT_FOUND\r\n"),
        ("set a:b 0 0 3\r\nabc\r\n", "STORED\r\n"),
        ("delete a:b\r\n", "DELETED\r\n"),
        ("set c 0 0 2\r\nab\r\n", "STORED\r\n"),
        ("md c C1000000\r\n", "EX\r\n"),
        ("md c I\r\n", "HD\r\n"),
        ("md c x\r\n", "HD\r\n"),
        ("md c q\r\nmn\r\n", "MN\r\n"),
        ("set d 0 0 1000\r\n", ""),
    ] {
        c.expect(request, reply);
    }
    c.expect(format!("{}\r\nmd d\r\n", "v".repeat(1000)).as_str(), "STORED\r\nHD\r\n");
    let mut text = String::new();
    while !text.contains("key=d ") || !text.ends_with('\n') {
        text.push_str(std::str::from_utf8(&watcher.receive(1)).unwrap());
    }
    let told: Vec<_> = text.lines().map(|l| l.split_once(" type=deleted ").unwrap().1).collect();
    let (last, before) = told.split_last().unwrap();
    assert_eq!(
        before,
        [
            "key=a%3Ab cmd=delete clsid=1 size=3",
            "key=c cmd=md clsid=1 size=0",
            "key=c cmd=md clsid=1 size=0"
        ]
    );
    assert!(last.starts_with("key=d cmd=md clsid=") && last.ends_with(" size=1000"), "{last}");
    assert!(!last.contains("clsid=1 "), "{last}");
    let stats = c.until_end("stats\r\n");
    assert_eq!((value(&stats, "delete_hits"), value(&stats, "delete_misses")), ("4", "2"));
}

#[test]
fn a_watcher_hears_of_evictions() {
    let server = Server::start(&["-m", "8"]);
    let mut watcher = Tcp::connect(server.tcp());
    watcher.expect("watch evictions\r\n", "OK\r\n");
    let mut c = Tcp::connect(server.tcp());
    let big = "v".repeat(100_000);
    for i in 0..200 {
        c.send(format!("set big{i} 0 0 100000 noreply\r\n{big}\r\n"));
    }
    c.expect("version\r\n", "VERSION ");
    let line = String::from_utf8(watcher.receive(200)).unwrap();
    assert!(line.contains("type=eviction key=big"), "{line}");
    assert!(line.contains(" fetch=no ttl=-1 la="), "{line}");
    assert!(line.contains(" size=100000\n"), "{line}");
}

#[test]
fn connections_are_listed_with_what_they_do() {
    let server = Server::start(&["-m", "8", "-t", "2"]);
    let mut c = Tcp::connect(server.tcp());
    let mut watcher = Tcp::connect(server.tcp());
    watcher.expect("watch\r\n", "OK\r\n");
    let mut sender = Tcp::connect(server.tcp());
    sender.send(b"set a 0 0 10\r\n01234");
    let deadline = Instant::now() + SOON;
    loop {
        let page = c.until_end("stats conns\r\n");
        let me = format!(":addr tcp:{}", c.0.local_addr().unwrap());
        let fd = page.lines().find_map(|l| l.strip_prefix("STAT ")?.strip_suffix(&me)).unwrap();
        let listener = format!("tcp:{}", server.tcp());
        assert_eq!(value(&page, &format!("{fd}:listen_addr")), listener);
        assert_eq!(value(&page, &format!("{fd}:state")), "conn_parse_cmd");
        assert!(value(&page, &format!("{fd}:secs_since_last_cmd")).parse::<u64>().is_ok());
        assert!(page.contains(":state conn_listening\r\n"), "{page}");
        let udp = format!(":addr udp:{}", server.udp());
        let fd = page.lines().find_map(|l| l.strip_prefix("STAT ")?.strip_suffix(&udp)).unwrap();
        assert_eq!(value(&page, &format!("{fd}:UDP")), "UDP");
        assert_eq!(value(&page, &format!("{fd}:state")), "conn_read");
        assert!(value(&page, &format!("{fd}:secs_since_last_cmd")).parse::<u64>().is_ok());
        if page.contains(":state conn_watch\r\n") && page.contains(":state conn_nread\r\n") {
            break;
        }
        assert!(Instant::now() < deadline, "{page}");
    }
}

#[test]
fn the_sweeper_may_be_off_from_the_start() {
    for (option, at_first) in
        [("no_lru_crawler", "no"), ("no_modern", "no"), ("no_modern,lru_crawler", "yes")]
    {
        let server = Server::start(&["-m", "8", "-o", option]);
        let mut c = Tcp::connect(server.tcp());
        assert_eq!(value(&c.until_end("stats settings\r\n"), "lru_crawler"), at_first, "{option}");
        if at_first == "no" {
            c.expect("lru_crawler crawl all\r\n", "CLIENT_ERROR lru crawler disabled\r\n");
            c.expect("lru_crawler enable\r\n", "OK\r\n");
            assert_eq!(value(&c.until_end("stats settings\r\n"), "lru_crawler"), "yes");
        }
        c.expect("lru_crawler crawl all\r\n", "OK\r\n");
        c.expect("lru_crawler enable\r\n", "ERROR failed to start lru crawler thread\r\n");
    }
}

#[test]
fn shutdown_ends_the_process_where_it_may() {
    let server = Server::start(&["-m", "8"]);
    let mut c = Tcp::connect(server.tcp());
    c.expect("shutdown\r\n", "ERROR: shutdown not enabled\r\n");
    c.expect("get a\r\n", "END\r\n");
    for mode in ["", " graceful"] {
        let mut server = Server::start(&["-m", "8", "-A"]);
        let mut c = Tcp::connect(server.tcp());
        c.expect("shutdown bogus\r\n", "CLIENT_ERROR invalid shutdown mode\r\n");
        c.send(format!("shutdown{mode}\r\n"));
        assert!(c.rest().is_empty());
        assert_eq!(server.exit_code(), Some(0));
    }
}

#[test]
fn pages_of_statistics_count_by_class_prefix_and_time() {
    let server = Server::start(&["-m", "8"]);
    let mut c = Tcp::connect(server.tcp());
    c.expect("stats detail on\r\n", "OK\r\n");
    c.expect("set a:1 0 0 1\r\n7\r\n", "STORED\r\n");
    c.expect("get a:1 a:2\r\n", "VALUE a:1 0 1\r\n7\r\nEND\r\n");
    c.expect("incr a:1 2\r\n", "9\r\n");
    c.expect("decr a:1 1\r\n", "8\r\n");
    c.expect("touch a:1 0\r\n", "TOUCHED\r\n");
    c.expect("cas a:1 0 0 1 999\r\nx\r\n", "EXISTS\r\n");
    c.expect("delete a:1\r\n", "DELETED\r\n");
    let slabs = c.until_end("stats slabs\r\n");
    for (name, n) in [
        ("get_hits", "1"),
        ("cmd_set", "2"),
        ("delete_hits", "1"),
        ("incr_hits", "1"),
        ("decr_hits", "1"),
        ("cas_hits", "0"),
        ("cas_badval", "1"),
        ("touch_hits", "1"),
    ] {
        assert_eq!(value(&slabs, &format!("1:{name}")), n, "{name}");
    }
    c.expect("stats detail dump\r\n", "PREFIX a get 2 hit 1 set 2 del 1\r\nEND\r\n");
    let latency = c.until_end("stats latency\r\n");
    assert_eq!(value(&latency, "tcp:get:count"), "1");
    assert_eq!(value(&latency, "tcp:store:count"), "2");
    let (p50, max) = (value(&latency, "tcp:arith:p50_ns"), value(&latency, "tcp:arith:max_ns"));
    assert!(p50.parse::<u64>().unwrap() <= max.parse().unwrap());
    // A class that holds something: an empty one gives its page back after a while, and with no
    // page and nothing counted it is no line of `stats slabs`.
    c.expect("set a:1 0 0 1\r\n7\r\n", "STORED\r\n");
    c.expect("stats reset\r\n", "RESET\r\n");
    let stats = c.until_end("stats\r\n");
    for name in ["cmd_get", "cmd_set", "get_hits", "total_items", "cas_badval"] {
        assert_eq!(value(&stats, name), "0", "{name}");
    }
    assert_eq!(value(&stats, "curr_connections"), "1");
    assert_eq!(value(&c.until_end("stats slabs\r\n"), "1:get_hits"), "0");
}

#[test]
fn what_flags_forbid_is_refused() {
    let server = Server::start(&["-m", "8", "-X", "-W", "-F"]);
    let mut c = Tcp::connect(server.tcp());
    for (request, reply) in [
        ("lru_crawler metadump all\r\n", "ERROR metadump not allowed\r\n"),
        ("lru_crawler mgdump all\r\n", "ERROR key dump not allowed\r\n"),
        ("stats cachedump 1 0\r\n", "CLIENT_ERROR stats cachedump not allowed\r\n"),
        ("watch\r\n", "CLIENT_ERROR watch commands not allowed\r\n"),
        ("flush_all\r\n", "CLIENT_ERROR flush_all not allowed\r\n"),
    ] {
        c.expect(request, reply);
    }
    assert_eq!(value(&c.until_end("stats\r\n"), "cmd_flush"), "0");
}

/// As memcached 1.6.18, word for word.
#[test]
fn odd_lines_are_answered_as_by_memcached() {
    let server = Server::start(&["-m", "8"]);
    let mut c = Tcp::connect(server.tcp());
    c.expect("set k 0 0 1\r\nv\r\n", "STORED\r\n");
    for (request, reply) in [
        ("slabs automove ratio 0.8", "OK\r\n"),
        ("slabs automove ratio 5", "OK\r\n"),
        ("slabs automove ratio x", "ERROR\r\n"),
        ("slabs automove ratio", "ERROR\r\n"),
        ("slabs automove ratio 0.8 noreply", ""),
        ("slabs automove 1 noreply", ""),
        // These two as 1.6.45.
        ("slabs automove freeratio 0.125", "OK\r\n"),
        ("slabs automove freeratio", "ERROR\r\n"),
        ("slabs automove window 1800", "OK\r\n"),
        ("slabs automove window 2", "CLIENT_ERROR automove window too low or too high\r\n"),
        ("slabs automove window 1801", "CLIENT_ERROR automove window too low or too high\r\n"),
        ("slabs automove window x", "CLIENT_ERROR bad command line format\r\n"),
        ("bget x", "END\r\n"),
        ("bget x k", "VALUE k 0 1\r\nv\r\nEND\r\n"),
        ("bget", "ERROR\r\n"),
        ("slabs x noreply", "ERROR\r\n"),
        ("slabs reassign 1 noreply", "CLIENT_ERROR bad command line format\r\n"),
        ("slabs reassign 1 2 noreply", "ERROR\r\n"),
        ("lru_crawler x noreply", "ERROR\r\n"),
        ("lru_crawler crawl all noreply", "ERROR\r\n"),
        ("lru_crawler crawl noreply", "BADCLASS invalid class id\r\n"),
        ("shutdown x noreply", "ERROR: shutdown not enabled\r\n"),
        ("shutdown noreply", "ERROR: shutdown not enabled\r\n"),
        ("stats cachedump 62 1", "END\r\n"),
        ("stats cachedump 63 1", "END\r\n"),
        ("stats cachedump 64 1", "CLIENT_ERROR Illegal slab id\r\n"),
    ] {
        // The answer of the one behind it stands where nothing else does.
        c.expect(&format!("{request}\r\nmn\r\n"), &format!("{reply}MN\r\n"));
    }
    let settings = c.until_end("stats settings\r\n");
    for row in ["ratio 0.80", "freeratio 0.125", "window 1800"] {
        assert!(settings.contains(&format!("STAT slab_automove_{row}\r\n")), "{row}");
    }
    assert!(settings.contains("STAT client_flags_size 4\r\n"));
    Tcp::connect(server.tcp()).expect("watch proxyuser\r\n", "OK\r\n");
}

#[test]
fn a_crawl_has_an_end_to_be_waited_for() {
    let server = Server::start(&["-m", "8"]);
    let mut c = Tcp::connect(server.tcp());
    // Something that can expire keeps the sweeper going round.
    c.expect("set k 0 1000 1\r\nv\r\n", "STORED\r\n");
    let running = |c: &mut Tcp| {
        let page = c.until_end("stats\r\n");
        (value(&page, "lru_crawler_running") == "1", value(&page, "lru_crawler_starts").to_owned())
    };
    let (mut seen, begun) = (false, Instant::now());
    while !seen {
        assert!(begun.elapsed() < SOON, "a crawl is never seen to run");
        c.expect("lru_crawler crawl 1\r\n", "OK\r\n");
        seen = running(&mut c).0;
    }
    let begun = Instant::now();
    while running(&mut c).0 {
        assert!(begun.elapsed() < SOON, "it still runs");
    }
    // It stays so until the next is asked for, though the sweeper goes its rounds.
    let rounds = running(&mut c).1;
    let begun = Instant::now();
    while running(&mut c).1 == rounds {
        assert!(begun.elapsed() < SOON, "the sweeper does not go round");
        assert!(!running(&mut c).0);
    }
}
