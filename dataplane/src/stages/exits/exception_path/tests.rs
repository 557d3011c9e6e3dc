//! The exception path with a fake kernel behind it.

use super::*;
use driver_shim::Pages;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use scopeguard::defer;
use std::collections::VecDeque;
use std::sync::Arc;

#[derive(Default)]
struct Kernel {
    wrote: Vec<Vec<u8>>,
    to_read: VecDeque<io::Result<Vec<u8>>>,
    refuse: bool,
    /// The device is gone, and so many tries to reopen it fail.
    gone: bool,
    stays_gone: u32,
    /// Times that it was called.
    put_right: u32,
    /// Times that a sleep was ended.
    woken: u32,
}

#[derive(Clone, Default)]
struct Fake(Arc<Mutex<Kernel>>);

impl KernelLink for Fake {
    fn read(&mut self, frame: &mut Frame) -> io::Result<bool> {
        let mut k = self.0.lock();
        if k.gone {
            return Err(io::ErrorKind::NotConnected.into());
        }
        match k.to_read.pop_front() {
            None => Ok(false),
            Some(bytes) => {
                frame.fill(&bytes?).unwrap();
                Ok(true)
            }
        }
    }

    fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        let mut k = self.0.lock();
        if k.gone {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if k.refuse {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        k.wrote.push(frame.to_vec());
        Ok(())
    }

    fn wait(&self, or: BorrowedFd<'_>, at_most: Duration) {
        assert!(at_most <= IDLE_MAX);
        let mut polled = [PollFd::new(or, PollFlags::POLLIN)];
        let woken = poll(&mut polled, PollTimeout::try_from(at_most).unwrap()).unwrap() > 0;
        self.0.lock().woken += u32::from(woken);
    }

    fn is_gone(&self, error: &io::Error) -> bool {
        error.kind() == io::ErrorKind::NotConnected
    }

    fn put_right(&mut self) {
        self.0.lock().put_right += 1;
    }

    fn reopen(&mut self) -> io::Result<()> {
        let mut k = self.0.lock();
        if k.stays_gone > 0 {
            k.stays_gone -= 1;
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        k.gone = false;
        Ok(())
    }
}

fn made(rate: u32, slots: u32) -> (ExceptionPath, Fake, Region) {
    let (fake, region) = (Fake::default(), Region::new(slots, Pages::Small).unwrap());
    let rate = NonZeroU32::new(rate).unwrap();
    (ExceptionPath::new(fake.clone(), rate, region.clone()).unwrap(), fake, region)
}

fn frame(region: &Region, n: usize) -> Frame {
    let mut f = region.alloc().unwrap();
    f.fill(&bytes(n)).unwrap();
    f
}

fn bytes(n: usize) -> Vec<u8> {
    [&[0; 14], n.to_be_bytes().as_slice()].concat()
}

fn assert_balanced(c: ExceptionPathCounters) {
    assert_eq!(c.punted, c.written + c.write_errors + c.to_write, "{c:?}");
    assert_eq!(c.read, c.sent_on + c.runts + c.to_send, "{c:?}");
}

#[test]
fn a_bucket_gives_its_burst_and_then_its_rate() {
    let r = Rate::new(NonZeroU32::new(1000).unwrap());
    let at_once = |now| (0..1000).filter(|_| r.take(now)).count();
    assert_eq!(at_once(0), RATE_BURST as usize);
    assert_eq!(at_once(0), 0);
    assert_eq!(at_once(5_000_000_000), RATE_BURST as usize);
    let start = 10_000_000_000;
    let all = (0..2000).filter(|i| r.take(start + i * 500_000)).count();
    // A second at 1000 per second, and the burst.
    assert!(all.abs_diff(1000 + RATE_BURST as usize) <= 1, "{all}");
}

#[test]
fn a_bucket_says_how_long_to_wait() {
    let r = Rate::new(NonZeroU32::new(1000).unwrap());
    while r.take(0) {}
    let wait = r.wait_ns(0);
    assert!(wait > 0 && wait <= 1_000_000);
    assert!(!r.take(wait - 1));
    assert_eq!(r.wait_ns(wait), 0);
    assert!(r.take(wait));
}

#[test]
fn frames_above_the_rate_or_the_queue_come_back_by_name() {
    let (path, mut fake, region) = made(1000, 2048);
    let mut refused = Vec::new();
    // Time stalls: the burst passes, no more.
    for n in 0..RATE_BURST as usize + 3 {
        refused.extend(path.offer_at(frame(&region, n), 1).err().map(|(_, r)| r));
    }
    assert_eq!(refused, [DropReason::ExceptionPathRate; 3]);
    // A second is a burst: the queue takes two.
    for n in 0..RATE_BURST as usize + 2 {
        let sent = path.offer_at(frame(&region, n), 1_000_000_000);
        let full = sent.err().map(|(_, r)| r);
        assert_eq!(full, (n >= RATE_BURST as usize).then_some(DropReason::ExceptionPathRate));
    }
    let late = path.offer_at(frame(&region, 0), 2_000_000_000).unwrap_err();
    assert_eq!(late.1, DropReason::ExceptionPathFull);
    drop(late);
    let queued = path.counters();
    assert_eq!((queued.punted, queued.to_write), (256, 256));
    assert_balanced(queued);
    while path.write_some(&mut fake, &mut Mend::default()) > 0 {}
    assert_eq!(path.counters().written, 256);
    assert_balanced(path.counters());
    let order: Vec<_> = (0..128).chain(0..128).map(bytes).collect();
    assert_eq!(fake.0.lock().wrote, order);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn frames_that_the_kernel_refuses_are_counted_and_go_home() {
    let (path, mut fake, region) = made(1000, 8);
    fake.0.lock().refuse = true;
    path.offer(frame(&region, 1)).unwrap();
    assert_eq!(path.write_some(&mut fake, &mut Mend::default()), 1);
    assert_eq!(path.counters().write_errors, 1);
    assert_balanced(path.counters());
    assert_eq!(region.available(), 8);
}

#[test]
fn the_kernels_frames_wait_for_the_rate_a_slot_or_the_queue_and_none_is_lost() {
    let (path, mut fake, region) = made(1000, 400);
    fake.0.lock().to_read = (0..600).map(|n| Ok(bytes(n))).collect();
    let mut now = 0;
    let mut read_all = |now: u64| {
        loop {
            match path.read_some(&mut fake, now, &mut Mend::default()) {
                Then::Again => {}
                then => return then,
            }
        }
    };
    // The rate.
    assert!(matches!(read_all(now), Then::Pause(d) if d <= Duration::from_millis(1)));
    assert_eq!(path.counters().read, u64::from(RATE_BURST));
    // The queue.
    for _ in 0..2 {
        now += 1_000_000_000;
        read_all(now);
    }
    assert_eq!(path.counters().to_send, QUEUE_FRAMES as u64);
    assert_eq!(read_all(now), Then::Pause(FULL_PAUSE));
    // A slot.
    let mut burst = Burst::new();
    path.take_outgoing(&mut burst);
    assert_eq!(burst.len(), BURST_MAX);
    let hold: Vec<Frame> = std::iter::from_fn(|| region.alloc()).collect();
    assert_eq!(read_all(now), Then::Pause(FULL_PAUSE));
    drop(hold);
    assert_balanced(path.counters());
    let mut sent: Vec<_> = burst.drain(..).map(|f| f.bytes().to_vec()).collect();
    while sent.len() < 600 {
        now += 1_000_000_000;
        read_all(now);
        path.take_outgoing(&mut burst);
        sent.extend(burst.drain(..).map(|f| f.bytes().to_vec()));
    }
    assert_eq!(sent, (0..600).map(bytes).collect::<Vec<_>>());
    let c = path.counters();
    assert_eq!((c.read, c.sent_on, c.to_send), (600, 600, 0));
    assert!(c.held_back >= 4);
    assert_balanced(c);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn runts_and_failed_reads_are_counted() {
    let (path, mut fake, region) = made(1000, 8);
    fake.0.lock().to_read = [Ok(vec![0; 13]), Err(io::ErrorKind::Other.into())].into();
    assert_eq!(path.read_some(&mut fake, 0, &mut Mend::default()), Then::Pause(PAUSE_MAX));
    let c = path.counters();
    assert_eq!((c.read, c.runts, c.read_errors), (1, 1, 1));
    assert_balanced(c);
    assert_eq!(region.available(), 8);
}

#[test]
fn the_thread_moves_frames_both_ways_and_ends_with_an_empty_queue() {
    let (path, fake, region) = made(1_000_000, 64);
    fake.0.lock().to_read = (0..50).map(|n| Ok(bytes(n))).collect();
    let stop = AtomicBool::new(false);
    let deadline = Instant::now() + Duration::from_secs(10);
    std::thread::scope(|s| {
        defer! { stop.store(true, Ordering::Relaxed) }
        s.spawn(|| path.run(&stop));
        let (mut got, mut n) = (Burst::new(), 0);
        while got.len() < 50 || fake.0.lock().wrote.len() < 200 {
            if n < 200
                && let Some(mut f) = region.alloc()
            {
                f.fill(&bytes(n)).unwrap();
                n += usize::from(path.offer(f).is_ok());
            }
            path.take_outgoing(&mut got);
            assert!(Instant::now() < deadline, "{path:?}");
        }
        // A second caller has nothing to do.
        path.run(&AtomicBool::new(false));
        for n in 0..10 {
            path.offer(frame(&region, n)).unwrap();
        }
    });
    let c = path.counters();
    assert_eq!((c.written, c.to_write, c.read, c.sent_on), (210, 0, 50, 50));
    assert_balanced(c);
    drop(path);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn a_frame_for_the_kernel_ends_the_threads_sleep() {
    let (path, fake, region) = made(1_000_000, 8);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| path.run(&stop));
        defer! { stop.store(true, Ordering::Relaxed) }
        // The first may find it awake.
        let begun = Instant::now();
        while fake.0.lock().woken == 0 {
            assert!(begun.elapsed() < Duration::from_secs(10), "it sleeps on");
            path.offer(frame(&region, 1)).unwrap();
            while path.counters().to_write > 0 {
                std::thread::yield_now();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    });
}

#[test]
fn a_kernels_end_that_is_gone_is_made_anew_and_meanwhile_frames_are_counted() {
    let (path, fake, region) = made(1_000_000, 64);
    {
        let mut k = fake.0.lock();
        (k.gone, k.stays_gone) = (true, 2);
    }
    let stop = AtomicBool::new(false);
    let deadline = Instant::now() + Duration::from_secs(20);
    std::thread::scope(|s| {
        defer! { stop.store(true, Ordering::Relaxed) }
        s.spawn(|| path.run(&stop));
        let (mut n, mut was_down) = (0, false);
        while path.counters().reopened == 0 || fake.0.lock().wrote.is_empty() {
            if let Some(mut f) = region.alloc() {
                f.fill(&bytes(n)).unwrap();
                n += usize::from(path.offer(f).is_ok());
            }
            was_down |= path.counters().up == 0;
            assert!(Instant::now() < deadline, "{path:?}");
            std::thread::sleep(Duration::from_micros(100));
        }
        assert!(was_down);
    });
    let c = path.counters();
    assert_eq!((c.up, c.reopened), (1, 1));
    assert!(c.write_errors > 0 && c.written > 0, "{c:?}");
    assert_balanced(c);
    drop(path);
    assert_eq!(region.available(), region.capacity());
}

#[test]
fn frames_left_in_a_door_go_home_with_it() {
    let (path, _, region) = made(1000, 8);
    path.offer(frame(&region, 1)).unwrap();
    assert_eq!(region.available(), 7);
    drop(path);
    assert_eq!(region.available(), 8);
}

#[test]
fn the_other_side_is_looked_at_now_and_then() {
    let (path, fake, _region) = made(1000, 4);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        defer! { stop.store(true, Ordering::Relaxed) }
        s.spawn(|| path.run(&stop));
        let begun = Instant::now();
        while fake.0.lock().put_right < 2 && begun.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    assert!(fake.0.lock().put_right >= 2);
}

#[test]
fn the_other_side_is_looked_at_before_it_runs() {
    let (path, fake, _region) = made(1000, 4);
    path.put_right();
    assert_eq!(fake.0.lock().put_right, 1);
    // Who runs it looks by himself.
    let _running = path.link.lock();
    path.put_right();
    assert_eq!(fake.0.lock().put_right, 1);
}
