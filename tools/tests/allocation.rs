//! Playing twice as many packets allocates no more: buffers grow to the sizes in use, and then
//! everything is reused. Its own process: the counter sees all threads.
#![allow(clippy::unwrap_used, reason = "that is how a test fails")]
#![allow(unsafe_code)]

mod common;
use common::*;
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tools::replay::pending::Tag;
use tools::replay::{Link, Plan, Taken, play};
use tools::trace::{Reader, Request, Trace, generate};

struct Counting;
static CALLS: AtomicU64 = AtomicU64::new(0);

// SAFETY: every call goes to the system's allocator unchanged; the counter touches no memory
// that is allocated.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's contract is System's.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is System's, and `alloc` got `p` from System.
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Answers every get with a miss, in two pieces, the second first, some time later.
struct Misses {
    waiting: VecDeque<Tag>,
}

impl Link for Misses {
    fn tag(&mut self, r: &Request) -> Tag {
        Tag { lane: u32::from(r.datagram.src.port() % 16), id: r.id }
    }
    fn send(&mut self, _: &[u8], request: Option<(&Request, Tag)>) -> io::Result<Taken> {
        self.waiting.extend(request.map(|(_, tag)| tag));
        Ok(Taken::Sent)
    }
    fn receive(&mut self, each: &mut dyn FnMut(Option<u32>, &[u8])) -> io::Result<usize> {
        let n = self.waiting.len() / 2 + 1;
        let mut got = 0;
        for tag in self.waiting.drain(..n.min(self.waiting.len())) {
            let [hi, lo] = tag.id.to_be_bytes();
            each(Some(tag.lane), &[hi, lo, 0, 1, 0, 2, 0, 0, b'\r', b'\n']);
            each(Some(tag.lane), &[hi, lo, 0, 0, 0, 2, 0, 0, b'E', b'N', b'D']);
            got += 2;
        }
        Ok(got)
    }
    fn wait(&mut self, _: Duration) -> io::Result<()> {
        Ok(())
    }
}

fn calls_to_play(path: &Path, limit: u64) -> u64 {
    let mut reader = Reader::open(path).unwrap();
    let mut link = Misses { waiting: VecDeque::with_capacity(4_096) };
    let plan = Plan { limit: Some(limit), loops: 100, outstanding: 256, ..Plan::default() };
    let before = CALLS.load(Ordering::Relaxed);
    let r = play(&mut reader, &mut link, &plan, |_| ()).unwrap();
    let calls = CALLS.load(Ordering::Relaxed) - before;
    assert_eq!((r.sent, r.answered, r.in_pieces), (limit, limit, limit));
    calls
}

fn calls_to_generate(requests: u64) -> u64 {
    let mut t = Trace { requests, ..trace() };
    t.workload.mix.get_ratio = 0.5;
    t.workload.mix.multi_get = 10;
    let before = CALLS.load(Ordering::Relaxed);
    generate(&t, tools::trace::Format::Pcapng, io::sink(), |_| ()).unwrap();
    CALLS.load(Ordering::Relaxed) - before
}

#[test]
fn twice_the_packets_take_no_more_allocations() {
    let dir = tempfile::tempdir().unwrap();
    // As many as are played: to begin the file anew takes a buffer.
    let mut t = Trace { requests: 40_000, ..trace() };
    t.workload.mix.multi_get = 5;
    let (path, _) = write(dir.path(), "t.pcap", &t);
    // Every slot has been used long before 20,000.
    // What is set up once in a process, first.
    calls_to_play(&path, 1_000);
    let (some, twice) = (calls_to_play(&path, 20_000), calls_to_play(&path, 40_000));
    assert!(some > 0 && twice == some, "{some} calls for 20,000 packets, {twice} for 40,000");
    let (some, twice) = (calls_to_generate(20_000), calls_to_generate(40_000));
    assert!(some > 0 && twice == some, "{some} calls for 20,000 requests, {twice} for 40,000");
}
