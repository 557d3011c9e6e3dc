//! The whole of `gnomon-linear` against a small server that is right, and against the same server
//! with one fault at a time: the fault must be found.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};
use tools::linear::run::{Config, run};
use tools::linear::wire::Verb;
use tools::linear::{Answer, Call, Condition, Op, Verdict, check};

const BUDGET: usize = 10_000_000;

/// What is wrong with the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    None,
    /// `incr` reads, lets others in, and writes.
    LostUpdate,
    /// `get` now and then answers from a copy made before.
    StaleRead,
    /// `set` now and then says `STORED` first and stores a moment later.
    EarlyAnswer,
    /// `cas` compares, lets others in, and writes.
    CasRace,
    /// `set` keeps the id of the version before.
    SameId,
    /// `flush_all` forgets no more than some items at once, and the others a moment later.
    SlowFlush,
    /// Nothing expires.
    NoExpiry,
    /// Items expire after half of a second, however long they were to stay.
    EarlyExpiry,
}

#[derive(Debug, Default)]
struct Store {
    /// Value, flags, id.
    items: HashMap<String, (String, String, u64)>,
    /// When those of these items expire that do.
    expire: HashMap<String, Instant>,
    /// Copies for [`Fault::StaleRead`].
    old: HashMap<String, (String, String, u64)>,
    last_id: u64,
    requests: u64,
}

impl Store {
    /// What has expired goes.
    fn age(&mut self, key: &str) {
        if self.expire.get(key).is_some_and(|at| *at <= Instant::now()) {
            self.expire.remove(key);
            self.items.remove(key);
        }
    }

    fn expires(&mut self, key: &str, exptime: &str, fault: Fault) {
        match exptime.parse() {
            Ok(seconds @ 1..) => {
                let early = fault == Fault::EarlyExpiry && seconds < 60;
                let after = if early { 500 } else { 1000 * seconds };
                self.expire.insert(key.to_owned(), Instant::now() + Duration::from_millis(after));
            }
            _ => _ = self.expire.remove(key),
        }
    }

    fn put(&mut self, key: &str, value: String, flags: String, keep_id: bool) {
        self.last_id += 1;
        let id = match self.items.get(key) {
            Some((_, _, id)) if keep_id => *id,
            _ => self.last_id,
        };
        self.items.insert(key.to_owned(), (value, flags, id));
    }
}

/// Long enough for another thread to come in between.
fn let_others_in() {
    thread::sleep(Duration::from_micros(200));
}

/// Answers one connection until it closes.
fn serve(stream: TcpStream, store: &Mutex<Store>, fault: Fault, slow: bool) {
    let mut to = stream.try_clone().unwrap();
    let mut from = BufReader::new(stream);
    let mut line = String::new();
    while from.read_line(&mut line).unwrap_or(0) > 0 {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (verb, key) = (words[0].as_str(), words.get(1).cloned().unwrap_or_default());
        let mut block = String::new();
        if matches!(verb, "set" | "cas") {
            from.read_line(&mut block).unwrap();
            block.truncate(block.trim_end().len());
        }
        let mut s = store.lock().unwrap();
        s.requests += 1;
        let now_and_then = s.requests.is_multiple_of(16);
        if slow && s.requests.is_multiple_of(4) {
            drop(s);
            thread::sleep(Duration::from_millis(1));
            s = store.lock().unwrap();
        }
        if fault != Fault::NoExpiry {
            s.age(&key);
        }
        let found = s.items.get(&key).cloned();
        let (mut late, mut late_flush) = (None, None);
        let answer = match (verb, found) {
            ("get" | "gets", mut found) => {
                if now_and_then && fault == Fault::StaleRead {
                    found = s.old.get(&key).cloned().or(found);
                } else if let Some(item) = &found {
                    s.old.insert(key.clone(), item.clone());
                }
                let id = |id| if verb == "gets" { format!(" {id}") } else { String::new() };
                match found {
                    None => "END".into(),
                    Some((value, flags, cas)) => {
                        let bytes = value.len();
                        format!("VALUE {key} {flags} {bytes}{}\r\n{value}\r\nEND", id(cas))
                    }
                }
            }
            ("set", _) => {
                if now_and_then && fault == Fault::EarlyAnswer {
                    late = Some(block);
                } else {
                    s.put(&key, block, words[2].clone(), fault == Fault::SameId);
                    s.expires(&key, &words[3], fault);
                }
                "STORED".into()
            }
            ("cas", None) => "NOT_FOUND".into(),
            ("cas", Some((_, _, id))) if id.to_string() != words[5] => "EXISTS".into(),
            ("cas", Some(_)) => {
                if now_and_then && fault == Fault::CasRace {
                    drop(s);
                    let_others_in();
                    s = store.lock().unwrap();
                }
                s.put(&key, block, words[2].clone(), false);
                s.expires(&key, &words[3], fault);
                "STORED".into()
            }
            ("touch", Some(_)) => {
                s.expires(&key, &words[2], fault);
                "TOUCHED".into()
            }
            ("flush_all", _) => {
                let all: Vec<String> = s.items.keys().cloned().collect();
                for key in all {
                    if fault == Fault::SlowFlush && key.ends_with('1') {
                        late_flush = Some(key);
                    } else {
                        s.items.remove(&key);
                        s.expire.remove(&key);
                    }
                }
                "OK".into()
            }
            ("delete", Some(_)) => {
                s.items.remove(&key);
                s.expire.remove(&key);
                "DELETED".into()
            }
            ("incr", Some((value, flags, _))) => match value.parse::<u64>() {
                Err(_) => "CLIENT_ERROR cannot increment or decrement non-numeric value".to_owned(),
                Ok(n) => {
                    if now_and_then && fault == Fault::LostUpdate {
                        drop(s);
                        let_others_in();
                        s = store.lock().unwrap();
                    }
                    let n = n + words[2].parse::<u64>().unwrap();
                    s.put(&key, n.to_string(), flags, false);
                    n.to_string()
                }
            },
            ("delete" | "incr" | "touch", None) => "NOT_FOUND".into(),
            _ => "ERROR".into(),
        };
        drop(s);
        if to.write_all(format!("{answer}\r\n").as_bytes()).is_err() {
            return;
        }
        if let Some(key) = late_flush {
            let_others_in();
            store.lock().unwrap().items.remove(&key);
        }
        if let Some(value) = late {
            let_others_in();
            store.lock().unwrap().put(&key, value, words[2].clone(), false);
        }
        line.clear();
    }
}

/// A server for as long as the test runs. A slow one answers four requests a millisecond and client at most.
fn server(fault: Fault, slow: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let store = Arc::new(Mutex::new(Store::default()));
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_nodelay(true).unwrap();
            let store = Arc::clone(&store);
            thread::spawn(move || serve(stream, &store, fault, slow));
        }
    });
    address
}

fn history(fault: Fault) -> Vec<Vec<Op>> {
    use Verb::{Cas, Delete, FlushAll, Get, Gets, Incr, Set, Touch};
    let config = Config {
        server: server(fault, false),
        tcp_clients: 8,
        udp_clients: 0,
        keys: 4,
        operations: 20_000,
        verbs: vec![Get, Gets, Set, Cas, Delete, Incr, Touch, FlushAll],
        expires: false,
        late: Duration::from_secs(1),
        evicts: false,
        seed: 1,
    };
    run(&config).unwrap()
}

/// One of some seconds, with so many keys and so few changes that items expire.
fn long_history(fault: Fault) -> Vec<Vec<Op>> {
    let config = Config {
        server: server(fault, true),
        tcp_clients: 8,
        udp_clients: 0,
        keys: 5_000,
        operations: 150_000,
        verbs: [vec![Verb::Get; 30], vec![Verb::Set, Verb::Touch]].concat(),
        expires: true,
        late: Duration::from_secs(1),
        evicts: false,
        seed: 1,
    };
    run(&config).unwrap()
}

#[test]
fn a_right_server_passes_a_mixed_contended_history() {
    let history = history(Fault::None);
    let flushes = history[0].iter().filter(|op| op.call == Call::Flush).count();
    assert_eq!(history.iter().map(Vec::len).sum::<usize>(), 20_000 + 3 * flushes);
    for ops in &history {
        assert_eq!(check(ops, BUDGET), Verdict::Linearizable);
    }
    // It was a test: operations overlapped, and all that can happen did.
    let all = || history.iter().flatten();
    let overlapping = |ops: &Vec<Op>| {
        let mut sorted: Vec<&Op> = ops.iter().collect();
        sorted.sort_by_key(|op| op.invoked);
        sorted.windows(2).filter(|two| two[1].invoked < two[0].returned).count()
    };
    assert!(history.iter().map(overlapping).sum::<usize>() > 1_000);
    let cas = |op: &&Op| matches!(op.call, Call::Store { condition: Condition::Unchanged(_), .. });
    for answer in [Answer::Done, Answer::Exists, Answer::NotFound] {
        assert!(all().filter(cas).any(|op| op.answer == answer), "a cas answered {answer}");
    }
    for answer in [Answer::NotANumber, Answer::NotFound] {
        let count = |op: &&Op| matches!(op.call, Call::Count { .. });
        assert!(all().filter(count).any(|op| op.answer == answer), "an incr answered {answer}");
    }
    assert!(all().any(|op| matches!(op.answer, Answer::Number(_))));
    assert!(all().any(|op| op.call == Call::Flush && op.answer == Answer::Done));
}

#[test]
fn expiry_is_seen_and_its_lack() {
    for (fault, right) in
        [(Fault::None, true), (Fault::NoExpiry, false), (Fault::EarlyExpiry, false)]
    {
        let history = long_history(fault);
        let passes = |ops: &Vec<Op>| check(ops, BUDGET) == Verdict::Linearizable;
        assert_eq!(history.iter().all(passes), right, "{fault:?}");
    }
}

#[test]
fn each_fault_of_a_server_is_found() {
    for fault in [
        Fault::LostUpdate,
        Fault::StaleRead,
        Fault::EarlyAnswer,
        Fault::CasRace,
        Fault::SameId,
        Fault::SlowFlush,
    ] {
        let history = history(fault);
        let found = history.iter().any(|ops| matches!(check(ops, BUDGET), Verdict::Violation(_)));
        assert!(found, "{fault:?} was not found");
    }
}
