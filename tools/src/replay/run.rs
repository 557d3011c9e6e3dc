//! The player: sends what is due, takes what has come, gives up what is too old.
//!
//! Enters: a capture ([`Reader`]) and a [`Plan`]. Leaves: a [`Report`]. With a rate it is an open
//! loop: request n is due at start + n / rate whatever became of the others, and its latency
//! counts from then, so that a stall on either side shows in full. The window bounds what is on
//! its way in either mode.

use super::assembly::{Added, Pool};
use super::link::{Link, Taken};
use super::pending::{Pending, State, Tag, Want};
use super::report::Report;
use super::verify::{self, Wrong};
use crate::trace::{Asked, ReadError, Reader, Request};
use crate::workload::requests::UDP_FRAME_BYTES;
use std::io;
use std::time::{Duration, Instant};

/// Requests sent between two looks at what has arrived.
const SEND_TURN: usize = 64;
/// Longest sleep: keeps progress and time-outs alive.
const NAP_MAX: Duration = Duration::from_millis(20);
/// Quiet after the last answer that ends the wait for second copies.
const LINGER: Duration = Duration::from_millis(50);
/// Longest wait for second copies, however busy the line is.
const LINGER_MAX: Duration = Duration::from_secs(1);
/// How often progress is told.
const PROGRESS: Duration = Duration::from_millis(250);

/// How to play.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Frames per second; flat out without it.
    pub rate: Option<f64>,
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
    /// A miss is wrong.
    pub expect_hits: bool,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            rate: None,
            outstanding: 1024,
            limit: None,
            loops: 1,
            timeout: Duration::from_secs(1),
            retries: 0,
            expect_hits: false,
        }
    }
}

/// Why a run breaks off.
#[derive(Debug, thiserror::Error)]
pub enum PlayError {
    /// The capture cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The link is broken.
    #[error("the link to the server broke: {0}")]
    Link(#[from] io::Error),
    /// The histogram cannot be made.
    #[error("no memory for the latency histogram")]
    Histogram,
}

/// Plays `source` over `link`; `progress` hears of the counters now and then.
///
/// # Errors
/// [`PlayError`]: the capture or the link broke. A server's faults are in the report.
pub fn play<L: Link>(
    source: &mut Reader,
    link: &mut L,
    plan: &Plan,
    progress: impl FnMut(&Report),
) -> Result<Report, PlayError> {
    let book = Book {
        pending: Pending::new(plan.outstanding),
        pool: Pool::default(),
        whole: Vec::new(),
        newest_answered: Vec::new(),
        report: Report::new().ok_or(PlayError::Histogram)?,
        expect_hits: plan.expect_hits,
    };
    let mut player = Player {
        source,
        link,
        plan,
        book,
        start: Instant::now(),
        frame: Vec::with_capacity(2048),
        request: None,
        have_frame: false,
        taken: 0,
        loops_left: plan.loops,
        ended: plan.loops == 0,
    };
    player.run(progress)?;
    let mut report = player.book.report;
    report.refusals = player.link.refusals();
    Ok(report)
}

fn ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

struct Player<'a, L> {
    source: &'a mut Reader,
    link: &'a mut L,
    plan: &'a Plan,
    book: Book,
    start: Instant,
    /// The frame to be sent next, and the request in it.
    frame: Vec<u8>,
    request: Option<Request>,
    have_frame: bool,
    /// Frames taken from the capture.
    taken: u64,
    loops_left: u64,
    ended: bool,
}

impl<L: Link> Player<'_, L> {
    fn run(&mut self, mut progress: impl FnMut(&Report)) -> Result<(), PlayError> {
        let mut told = Duration::ZERO;
        loop {
            let got = self.receive()?;
            let now = self.start.elapsed();
            self.expire(ns(now))?;
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
                self.link.wait(self.nap())?;
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
        if self.have_frame && self.due_ns() > now {
            until = until.min(self.due_ns());
        }
        if let Some((_, since)) = self.book.pending.oldest() {
            until = until.min(since.saturating_add(ns(self.plan.timeout)));
        }
        Duration::from_nanos(until.saturating_sub(now))
    }

    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "exact up to 2^53; positive; saturates"
    )]
    fn due_ns(&self) -> u64 {
        match self.plan.rate {
            Some(rate) => ((self.taken.saturating_sub(1)) as f64 * 1e9 / rate) as u64,
            None => 0,
        }
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
                self.book.lose(i);
            }
        }
        Ok(())
    }

    /// Sends what is due, as far as there is room.
    fn send_due(&mut self) -> Result<usize, PlayError> {
        let mut sent = 0;
        while sent < SEND_TURN {
            if !self.have_frame && !self.next_frame()? {
                break;
            }
            let now = ns(self.start.elapsed());
            let due = if self.plan.rate.is_some() { self.due_ns() } else { now };
            if due > now {
                break;
            }
            let named = self.request.as_ref().map(|r| (r, self.link.tag(r)));
            if named.is_some_and(|(_, tag)| !self.book.pending.has_room(tag)) {
                break;
            }
            match self.link.send(&self.frame, named)? {
                Taken::Full => break,
                Taken::Never => self.book.report.skipped += 1,
                Taken::Sent => {
                    self.book.sent(named, &self.frame, self.plan.retries > 0, due, now);
                    sent += 1;
                }
            }
            self.have_frame = false;
        }
        Ok(sent)
    }

    /// Fetches the frame to be sent next. `false`: there is none left.
    fn next_frame(&mut self) -> Result<bool, PlayError> {
        while !self.ended {
            if self.plan.limit.is_some_and(|l| self.taken >= l) {
                self.ended = true;
                break;
            }
            if let Some(frame) = self.source.next_frame()? {
                self.frame.clear();
                self.frame.extend_from_slice(frame);
                self.request = Request::parse(&self.frame);
                self.have_frame = true;
                self.taken += 1;
                return Ok(true);
            }
            self.loops_left = self.loops_left.saturating_sub(1);
            if self.loops_left == 0 || self.source.frames() == 0 {
                self.ended = true;
            } else {
                self.source.rewind()?;
            }
        }
        Ok(false)
    }
}

/// What was asked and what came back.
struct Book {
    pending: Pending,
    pool: Pool,
    /// A reply put together from pieces.
    whole: Vec<u8>,
    /// Per lane, the place of the latest request with a reply.
    newest_answered: Vec<u64>,
    report: Report,
    expect_hits: bool,
}

impl Book {
    fn sent(
        &mut self,
        named: Option<(&Request, Tag)>,
        frame: &[u8],
        keep: bool,
        due: u64,
        now: u64,
    ) {
        let Some((request, tag)) = named else {
            self.report.others += 1;
            return;
        };
        let (want, keys) = match &request.asked {
            Asked::Get { keys, count } => (Want::Values(*count), keys.clone()),
            Asked::Set => (Want::Stored, 0..0),
            Asked::Other => (Want::Anything, 0..0),
        };
        match want {
            Want::Values(_) => self.report.gets += 1,
            Want::Stored => self.report.sets += 1,
            Want::Anything => self.report.others += 1,
        }
        if want != Want::Anything {
            self.report.sent += 1;
        }
        // A lost request's pieces went when it was lost, so the slot's list is empty.
        if let Some(slot) = self.pending.begin(tag, want, due, now) {
            slot.keys.extend_from_slice(&frame[keys]);
            if keep {
                slot.frame.extend_from_slice(frame);
            }
        }
        let lane = tag.lane as usize;
        if self.newest_answered.len() <= lane {
            self.newest_answered.resize(lane + 1, 0);
        }
    }

    fn lose(&mut self, i: u32) {
        let slot = self.pending.slot(i);
        self.pool.discard(&mut slot.pieces);
        self.pending.finish(i, State::Lost);
        self.report.lost += 1;
    }

    /// Takes a datagram that arrived at `now`.
    fn reply(&mut self, lane: Option<u32>, payload: &[u8], now: u64) {
        let Some((header, text)) = payload.split_first_chunk::<UDP_FRAME_BYTES>() else {
            self.report.bad_datagrams += 1;
            return;
        };
        let [id0, id1, seq0, seq1, total0, total1, ..] = *header;
        let (id, seq, total) = (
            u16::from_be_bytes([id0, id1]),
            u16::from_be_bytes([seq0, seq1]),
            u16::from_be_bytes([total0, total1]),
        );
        let Some(i) = lane.and_then(|lane| self.pending.find(Tag { lane, id })) else {
            self.report.unexpected += 1;
            return;
        };
        let slot = self.pending.slot(i);
        match (slot.want, slot.state) {
            (Want::Anything, _) => self.report.others_answered += 1,
            (_, State::Answered) => self.report.duplicates += 1,
            (_, State::Lost) => self.report.late += u64::from(seq == 0),
            (_, State::Waiting) if total == 1 && seq == 0 && slot.pieces.is_empty() => {
                self.answer(i, text, now);
            }
            (_, State::Waiting) => match self.pool.add(&mut slot.pieces, seq, total, text) {
                Added::Waiting => {}
                Added::Duplicate => self.report.duplicates += 1,
                Added::Bad => self.report.bad_datagrams += 1,
                Added::NoRoom => self.report.pieces_dropped += 1,
                Added::Whole => {
                    self.report.in_pieces += 1;
                    self.report.pieces_reordered += u64::from(slot.pieces.out_of_order);
                    let mut whole = std::mem::take(&mut self.whole);
                    self.pool.join(&mut slot.pieces, &mut whole);
                    self.answer(i, &whole, now);
                    self.whole = whole;
                }
            },
        }
    }

    /// Judges a whole reply.
    fn answer(&mut self, i: u32, text: &[u8], now: u64) {
        let slot = self.pending.slot(i);
        let verdict = match slot.want {
            Want::Values(count) => match verify::get(&slot.keys, text) {
                Ok(found) if found < count && self.expect_hits => Err(Wrong::Miss),
                Ok(found) => Ok((u64::from(count), u64::from(found))),
                Err(w) => Err(w),
            },
            Want::Stored | Want::Anything => verify::set(text).map(|()| (0, 0)),
        };
        match verdict {
            Ok((asked, found)) => {
                self.report.answered += 1;
                self.report.keys_asked += asked;
                self.report.hits += found;
            }
            Err(w) => self.report.wrong[w as usize] += 1,
        }
        self.report.latency_ns.saturating_record(now.saturating_sub(slot.intended_ns).max(1));
        if let Some(newest) = self.newest_answered.get_mut(slot.tag.lane as usize) {
            if slot.number < *newest {
                self.report.reordered += 1;
            } else {
                *newest = slot.number;
            }
        }
        self.pending.finish(i, State::Answered);
    }
}
