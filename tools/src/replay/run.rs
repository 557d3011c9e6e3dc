//! The player: sends what is due, takes what has come, gives up what is too old.
//!
//! In: a [`Source`] of frames and a [`Plan`]. Out: a [`Report`]. Paced, it is an open loop:
//! each request is due at its time whatever became of the others, and its latency counts from
//! then, so that a stall on either side shows in full (no coordinated omission); the latency from
//! when it really left stands beside it, and how late that was. The window bounds what is on its
//! way in any mode.

use super::book::Book;
use super::error::PlayError;
use super::link::{Link, Taken};
use super::report::Report;
use super::source::Source;
use crate::trace::Request;
use gnomon_client::codec::Asked;
use std::time::{Duration, Instant};

/// Requests sent between two looks at what has arrived.
const SEND_TURN: usize = 64;
/// Longest sleep: keeps progress and time-outs alive.
const NAP_MAX: Duration = Duration::from_millis(20);
/// Quiet after the last answer that ends the wait for second copies.
const LINGER: Duration = Duration::from_millis(50);
/// Longest wait for second copies, however busy the line is.
const LINGER_MAX: Duration = Duration::from_secs(1);
/// How often progress is reported.
const PROGRESS: Duration = Duration::from_millis(250);

/// The kernel wakes a sleeper about so late; what is due sooner is waited for without sleep.
const WAKE_NS: u64 = 200_000;

/// When frames are due.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Pace {
    /// As fast as the window allows.
    FlatOut,
    /// So many a second, evenly.
    Rate(f64),
    /// As the source says, so many times as fast.
    Source(f64),
}

/// How to play.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// When frames are due.
    pub pace: Pace,
    /// Most requests on their way at once.
    pub outstanding: usize,
    /// Frames to send in all.
    pub limit: Option<u64>,
    /// Times to play the file.
    pub loops: u64,
    /// When a request is given up.
    pub timeout: Duration,
    /// Times that a request is sent again before it is given up.
    pub retries: u32,
    /// Nothing more is sent once a request was given up.
    pub until_lost: bool,
    /// A miss is wrong.
    pub expect_hits: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            pace: Pace::FlatOut,
            outstanding: 1024,
            limit: None,
            loops: 1,
            timeout: Duration::from_secs(1),
            retries: 0,
            until_lost: false,
            expect_hits: false,
        }
    }
}

/// Plays `source` over `link`; `progress` hears of the counters now and then.
///
/// # Errors
/// [`PlayError`]: the capture or the link broke. A server's faults are in the report.
pub fn play<S: Source + ?Sized, L: Link>(
    source: &mut S,
    link: &mut L,
    plan: &Plan,
    progress: impl FnMut(&Report),
) -> Result<Report, PlayError> {
    let report = Report::new().map_err(|_| PlayError::Histogram)?;
    let book = Book::new(plan.outstanding, report, plan.expect_hits);
    let mut player = Player {
        source,
        link,
        plan,
        book,
        start: Instant::now(),
        frame: Vec::with_capacity(2048),
        request: None,
        have_frame: false,
        held: false,
        taken: 0,
        taken_this_time: 0,
        due: Due::default(),
        loops_left: plan.loops,
        ended: plan.loops == 0,
        service_port: None,
    };
    player.run(progress)?;
    let mut report = player.book.report;
    report.refusals = player.link.refusals();
    (report.rows_skipped, report.values_cut) = player.source.rows();
    Ok(report)
}

fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

struct Player<'a, S: ?Sized, L> {
    source: &'a mut S,
    link: &'a mut L,
    plan: &'a Plan,
    book: Book,
    start: Instant,
    /// The frame to be sent next, and the request in it.
    frame: Vec<u8>,
    request: Option<Request>,
    have_frame: bool,
    /// It was due, and found the window or a queue full.
    held: bool,
    /// Frames taken from the source, and of these since it was last begun.
    taken: u64,
    taken_this_time: u64,
    due: Due,
    loops_left: u64,
    ended: bool,
    /// The port that the first request was sent to: what comes from there is a reply.
    service_port: Option<u16>,
}

impl<S: Source + ?Sized, L: Link> Player<'_, S, L> {
    fn run(&mut self, mut progress: impl FnMut(&Report)) -> Result<(), PlayError> {
        let mut told = Duration::ZERO;
        loop {
            let before = self.start.elapsed();
            let got = self.receive()?;
            let now = self.start.elapsed();
            // A reply that lies here already is not lost because we were late to look.
            if got == 0 {
                self.expire(ns(before))?;
            }
            let sent = self.send_due()?;
            if got + sent > 0 {
                self.book.report.elapsed = now;
            }
            if now - told >= PROGRESS {
                told = now;
                progress(&self.book.report);
            }
            if self.ended && !self.have_frame && self.book.pending.waiting() == 0 {
                break;
            }
            if got == 0 && sent == 0 {
                match self.nap() {
                    Duration::ZERO => std::hint::spin_loop(),
                    nap => self.link.wait(nap)?,
                }
            }
        }
        self.linger()?;
        progress(&self.book.report);
        Ok(())
    }

    /// Stays for second copies until the line is quiet.
    fn linger(&mut self) -> Result<(), PlayError> {
        let begun = Instant::now();
        let mut quiet_since = begun;
        loop {
            let over = quiet_since.elapsed() >= LINGER;
            let got = self.receive()?;
            if got > 0 {
                quiet_since = Instant::now();
            } else if over {
                return Ok(());
            }
            if begun.elapsed() >= LINGER_MAX {
                return Ok(());
            }
            if got == 0 {
                self.link.wait(Duration::from_millis(1))?;
            }
        }
    }

    fn receive(&mut self) -> Result<usize, PlayError> {
        let Self { link, book, start, .. } = self;
        Ok(link.receive(&mut |lane, payload| book.reply(lane, payload, ns(start.elapsed())))?)
    }

    /// How long nothing can be due.
    fn nap(&self) -> Duration {
        let now = ns(self.start.elapsed());
        let mut until = now.saturating_add(ns(NAP_MAX));
        // A frame that is due already waits for the window: for a reply, or for a time-out.
        if self.have_frame && self.due.ns > now {
            until = until.min(self.due.ns.saturating_sub(WAKE_NS));
        }
        if let Some((_, since)) = self.book.pending.oldest() {
            until = until.min(since.saturating_add(ns(self.plan.timeout)));
        }
        Duration::from_nanos(until.saturating_sub(now))
    }

    /// Gives up, or sends again, what has waited too long.
    fn expire(&mut self, now: u64) -> Result<(), PlayError> {
        let timeout = ns(self.plan.timeout);
        while let Some((i, since)) = self.book.pending.oldest() {
            if now.saturating_sub(since) < timeout {
                break;
            }
            let slot = self.book.pending.slot(i);
            if slot.tries <= self.plan.retries {
                let request = Request::parse(&slot.frame);
                let named = request.as_ref().map(|r| (r, slot.tag));
                if self.link.send(&slot.frame, named)? == Taken::Full {
                    break;
                }
                self.book.pending.again(i, now);
                self.book.report.retries += 1;
            } else {
                self.book.lose(i, now);
                if self.plan.until_lost {
                    (self.ended, self.have_frame) = (true, false);
                }
            }
        }
        Ok(())
    }

    /// Sends what is due, as far as the window and the queues allow.
    fn send_due(&mut self) -> Result<usize, PlayError> {
        let mut sent = 0;
        while sent < SEND_TURN {
            if !self.have_frame && !self.next_frame()? {
                break;
            }
            let now = ns(self.start.elapsed());
            let paced = self.plan.pace != Pace::FlatOut;
            let due = if paced { self.due.ns } else { now };
            if due > now {
                break;
            }
            let named = self.request.as_ref().map(|r| (r, self.link.tag(r)));
            let room = named.is_none_or(|(_, tag)| self.book.pending.has_room(tag));
            let taken = if room { self.link.send(&self.frame, named)? } else { Taken::Full };
            match taken {
                Taken::Full => {
                    self.held = true;
                    break;
                }
                Taken::Never => self.book.report.skipped += 1,
                Taken::Sent => {
                    self.book.sent(named, &self.frame, self.plan.retries > 0, due, now);
                    if paced {
                        self.book.report.late_ns.saturating_record((now - due).max(1));
                        self.book.report.held += u64::from(self.held);
                    }
                    sent += 1;
                }
            }
            self.have_frame = false;
            self.held = false;
        }
        Ok(sent)
    }

    /// Whether the frame is a reply, as captures of real traffic have them. Keeps in mind where requests go to.
    fn is_reply(&mut self) -> bool {
        let Some(Request { datagram, asked, .. }) = &self.request else { return false };
        let (from, to) = (datagram.src.port(), datagram.dst.port());
        if *asked != Asked::Other {
            self.service_port.get_or_insert(to);
        }
        self.service_port == Some(from) && from != to
    }

    /// Fetches the frame to be sent next. `false`: there is none left.
    fn next_frame(&mut self) -> Result<bool, PlayError> {
        while !self.ended {
            if self.plan.limit.is_some_and(|l| self.taken >= l) {
                self.ended = true;
                break;
            }
            if let Some((stamp_ns, frame)) = self.source.next_frame()? {
                self.frame.clear();
                self.frame.extend_from_slice(frame);
                self.request = Request::parse(&self.frame);
                if self.is_reply() {
                    self.book.report.skipped += 1;
                    continue;
                }
                self.have_frame = true;
                self.due.next(self.plan.pace, self.taken, stamp_ns);
                self.taken += 1;
                self.taken_this_time += 1;
                return Ok(true);
            }
            self.loops_left = self.loops_left.saturating_sub(1);
            if self.loops_left == 0 || self.taken_this_time == 0 {
                self.ended = true;
            } else {
                self.source.rewind()?;
                self.taken_this_time = 0;
                self.due.again();
            }
        }
        Ok(false)
    }
}

/// When the frame to be sent next is due, in nanoseconds of the player's clock.
#[derive(Debug, Default)]
struct Due {
    ns: u64,
    /// The source's first time since it was begun, and when that was due.
    first: Option<u64>,
    base_ns: u64,
}

impl Due {
    /// The `n`th frame of all, which the source would send at `stamp_ns`.
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "exact up to 2^53; positive; saturates"
    )]
    fn next(&mut self, pace: Pace, n: u64, stamp_ns: u64) {
        match pace {
            Pace::FlatOut => {}
            Pace::Rate(rate) => self.ns = (n as f64 * 1e9 / rate) as u64,
            Pace::Source(speed) => {
                let first = *self.first.get_or_insert(stamp_ns);
                let since = stamp_ns.saturating_sub(first);
                let since = if speed == 1.0 { since } else { (since as f64 / speed) as u64 };
                self.ns = self.base_ns.saturating_add(since).max(self.ns);
            }
        }
    }

    /// The source begins again: where it ended.
    fn again(&mut self) {
        (self.first, self.base_ns) = (None, self.ns);
    }
}
