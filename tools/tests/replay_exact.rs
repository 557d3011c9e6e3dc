//! Faults in known numbers, and the player's count of them: loss, duplication and reordering,
//! each reported exactly, in every protocol, with replies of one datagram and of several.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]

mod common;
use common::*;
use gnomon_client::codec::Protocol;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::Duration;
use tools::replay::pending::Tag;
use tools::replay::{Link, Plan, Report, Taken, play};
use tools::trace::{Reader, Request, Trace};

/// What was done to the replies, and to the requests.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Injected {
    requests_lost: u64,
    replies_lost: u64,
    pieces_lost: u64,
    /// Datagrams that came twice.
    duplicated: u64,
    reordered: u64,
    pieces_reordered: u64,
}

impl Injected {
    fn lost(&self) -> u64 {
        self.requests_lost + self.replies_lost + self.pieces_lost
    }
}

/// One client's line to the server.
#[derive(Debug, Default)]
struct Lane {
    requests: u64,
    /// A reply that the next one is to overtake.
    held: Option<Vec<Vec<u8>>>,
}

/// A server behind a bad line. Faults follow from the number of a request on its lane.
struct BadLine {
    store: Store,
    /// Bytes of text to a datagram.
    piece: usize,
    /// Requests on each lane with faults; the rest is left in peace, so that whatever is held
    /// back is overtaken.
    faulty: u64,
    lanes: HashMap<u32, Lane>,
    arriving: VecDeque<(u32, Vec<u8>)>,
    injected: Injected,
}

impl Link for BadLine {
    fn tag(&mut self, r: &Request) -> Tag {
        // The eight clients have four ports at each of two addresses.
        let second = u32::from(r.datagram.src.ip().to_string().ends_with('2'));
        Tag { lane: u32::from(r.datagram.src.port() % 4) * 2 + second, id: r.id }
    }

    fn send(&mut self, frame: &[u8], request: Option<(&Request, Tag)>) -> io::Result<Taken> {
        let (request, tag) = request.unwrap();
        let text = self.store.answer(&frame[request.datagram.payload.clone()][8..]);
        let lane = self.lanes.entry(tag.lane).or_default();
        lane.requests += 1;
        let n = lane.requests;
        let mut reply = datagrams(tag.id.to_be_bytes(), &text, self.piece);
        let count = reply.len() as u64;
        let done = &mut self.injected;
        if n < self.faulty {
            match n % 41 {
                3 => {
                    done.requests_lost += 1;
                    return Ok(Taken::Sent);
                }
                9 => {
                    done.replies_lost += 1;
                    return Ok(Taken::Sent);
                }
                14 => {
                    reply.extend(reply.clone());
                    done.duplicated += count;
                }
                // Where one is held already, this one overtakes it.
                19 | 20 | 31 if lane.held.is_none() => {
                    lane.held = Some(reply);
                    return Ok(Taken::Sent);
                }
                25 if count > 1 => {
                    reply.remove(1);
                    done.pieces_lost += 1;
                }
                36 if count > 1 => {
                    reply.reverse();
                    done.pieces_reordered += 1;
                }
                38 if count > 1 => {
                    reply.insert(1, reply[0].clone());
                    done.duplicated += 1;
                }
                _ => {}
            }
        }
        let whole = n % 41 != 25 || count == 1 || n >= self.faulty;
        self.arriving.extend(reply.into_iter().map(|d| (tag.lane, d)));
        // A reply of which a piece is missing is none, and overtakes nothing.
        if whole && let Some(held) = lane.held.take() {
            done.reordered += 1;
            self.arriving.extend(held.into_iter().map(|d| (tag.lane, d)));
        }
        Ok(Taken::Sent)
    }

    fn receive(&mut self, each: &mut dyn FnMut(Option<u32>, &[u8])) -> io::Result<usize> {
        // Not all at once: requests and replies overlap.
        let n = self.arriving.len().min(50);
        for (lane, datagram) in self.arriving.drain(..n) {
            each(Some(lane), &datagram);
        }
        Ok(n)
    }

    fn wait(&mut self, at_most: Duration) -> io::Result<()> {
        std::thread::sleep(at_most.min(Duration::from_millis(1)));
        Ok(())
    }
}

fn run(t: &Trace, piece: usize) -> (Report, Injected) {
    let dir = tempfile::tempdir().unwrap();
    let (sets, _) = write(dir.path(), "sets.pcap", &preload(t));
    let (path, _) = write(dir.path(), "t.pcap", t);
    let mut store = Store::default();
    store.load(&sets);
    let mut line = BadLine {
        store,
        piece,
        faulty: t.requests / 8 - 500,
        lanes: HashMap::new(),
        arriving: VecDeque::new(),
        injected: Injected::default(),
    };
    let plan = Plan {
        outstanding: 8_000,
        timeout: Duration::from_millis(300),
        expect_hits: true,
        ..Plan::default()
    };
    let report = play(&mut Reader::open(&path).unwrap(), &mut line, &plan, |_| ()).unwrap();
    (report, line.injected)
}

#[test]
fn injected_faults_are_reported_exactly() {
    for protocol in [Protocol::Ascii, Protocol::Meta, Protocol::Binary] {
        for piece in [60, 1_392] {
            let mut t = Trace { protocol, requests: 40_000, ..trace() };
            t.workload.mix.get_ratio = 0.9;
            let (r, injected) = run(&t, piece);
            let what = format!("{protocol:?}, {piece} bytes a datagram\n{injected:?}\n{r}");
            assert_eq!((r.sent, r.others, r.skipped), (40_000, 0, 0), "{what}");
            assert_eq!(r.lost, injected.lost(), "{what}");
            assert_eq!(r.answered, 40_000 - injected.lost(), "{what}");
            assert_eq!(r.duplicates, injected.duplicated, "{what}");
            assert_eq!(r.reordered, injected.reordered, "{what}");
            assert_eq!(r.pieces_reordered, injected.pieces_reordered, "{what}");
            let other = (r.wrong_total(), r.late, r.unexpected, r.bad_datagrams);
            assert_eq!(other, (0, 0, 0, 0), "{what}");
            let many = [injected.requests_lost, injected.replies_lost, injected.duplicated];
            assert!(many.iter().all(|n| *n > 500) && injected.reordered > 1_000, "{what}");
            assert_eq!(injected.pieces_lost > 500, piece == 60, "{what}");
        }
    }
}

#[test]
fn a_good_line_has_no_faults() {
    let mut t = Trace { requests: 4_000, ..trace() };
    t.workload.mix.multi_get = 3;
    let (r, injected) = run(&t, 1_392);
    assert_eq!(injected, Injected::default());
    assert_eq!((r.answered, r.lost, r.duplicates, r.reordered), (4_000, 0, 0, 0), "{r}");
}
