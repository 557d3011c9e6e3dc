//! What was asked and what came back: every reply is matched to its request, judged and counted.
//!
//! In: requests as they leave, datagrams as they arrive, requests that have waited too long. Out:
//! the counters of the [`Report`]. Memory: the window, and replies whose datagrams are not all
//! there yet, which are bounded. Nothing a server sends fails.

use super::assembly::{Added, Pool};
use super::pending::{Pending, State, Tag};
use super::report::Report;
use super::verify::{self, Found, Wrong};
use crate::trace::Request;
use gnomon_client::codec::{Asked, udp};

/// What was asked and what came back.
pub(super) struct Book {
    pub(super) pending: Pending,
    pool: Pool,
    /// A reply put together from pieces.
    whole: Vec<u8>,
    /// Per lane, the place of the latest request with a reply.
    newest_answered: Vec<u64>,
    pub(super) report: Report,
    expect_hits: bool,
}

impl Book {
    /// Nothing asked yet; `outstanding` requests may be on their way.
    pub(super) fn new(outstanding: usize, report: Report, expect_hits: bool) -> Self {
        Self {
            pending: Pending::new(outstanding),
            pool: Pool::default(),
            whole: Vec::new(),
            newest_answered: Vec::new(),
            report,
            expect_hits,
        }
    }

    /// A frame has left at `now` that was due at `due`. `keep`: it may have to be sent again.
    pub(super) fn sent(
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
        let asked = request.asked;
        match asked {
            Asked::Get(_) => self.report.gets += 1,
            Asked::Set => self.report.sets += 1,
            Asked::Delete => self.report.deletes += 1,
            Asked::Other => self.report.others += 1,
        }
        if asked != Asked::Other {
            self.report.sent += 1;
            self.report.series.sent(now);
        }
        // A lost request's pieces went when it was lost, so the slot's list is empty.
        if let Some(slot) = self.pending.begin(tag, asked, due, now) {
            slot.protocol = request.protocol;
            request.append_keys(frame, &mut slot.keys);
            if keep {
                slot.frame.extend_from_slice(frame);
            }
        }
        let lane = tag.lane as usize;
        if self.newest_answered.len() <= lane {
            self.newest_answered.resize(lane + 1, 0);
        }
    }

    /// Gives a request up.
    pub(super) fn lose(&mut self, i: u32, now: u64) {
        let slot = self.pending.slot(i);
        self.pool.discard(&mut slot.pieces);
        self.pending.finish(i, State::Lost);
        self.report.lost += 1;
        self.report.series.lost(now);
    }

    /// Takes a datagram that arrived at `now`.
    pub(super) fn reply(&mut self, lane: Option<u32>, payload: &[u8], now: u64) {
        let Some((udp::Part { id, seq, total }, text)) = udp::split(payload) else {
            self.report.bad_datagrams += 1;
            return;
        };
        let Some(i) = lane.and_then(|lane| self.pending.find(Tag { lane, id })) else {
            self.report.unexpected += 1;
            return;
        };
        let slot = self.pending.slot(i);
        match (slot.asked, slot.state) {
            (Asked::Other, _) => self.report.others_answered += 1,
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
        let none = (0, Found::default());
        let verdict = match slot.asked {
            Asked::Get(count) => match verify::get(slot.protocol, &slot.keys, text) {
                Ok(found) if found.values < count && self.expect_hits => Err(Wrong::Miss),
                Ok(found) => Ok((count, found)),
                Err(w) => Err(w),
            },
            Asked::Delete => verify::delete(slot.protocol, text).map(|()| none),
            Asked::Set | Asked::Other => verify::set(slot.protocol, text).map(|()| none),
        };
        match verdict {
            Ok((asked, found)) => {
                self.report.answered += 1;
                self.report.keys_asked += u64::from(asked);
                self.report.hits += u64::from(found.values);
                self.report.unchecked += u64::from(found.unchecked);
            }
            Err(w) => self.report.wrong[w as usize] += 1,
        }
        let latency_ns = now.saturating_sub(slot.intended_ns).max(1);
        self.report.latency_ns.saturating_record(latency_ns);
        self.report.service_ns.saturating_record(now.saturating_sub(slot.sent_ns).max(1));
        self.report.series.answered(now, latency_ns);
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
