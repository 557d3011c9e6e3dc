//! Sends requests when they are due, and notes when replies come.
//!
//! In: one pair of queues, requests with the replies that they must get. Out: round trips from when a request was due, so that one
//! that had to wait for the window is not forgiven (no coordinated omission): what is due before the end is sent, late
//! or not. One thread. Fails never; what gets no reply, or could not even be sent, is lost, and counted.

use super::asked::Asked;
use crate::study::load::has_text;
use crate::study::paced::{Pace, Schedule, histogram};
use base::checksum;
use driver_shim::{Burst, QueuePair, Region};
use hdrhistogram::Histogram;
use std::error::Error;
use std::time::{Duration, Instant};

/// Where the request's number stands in a frame, and UDP's checksum.
const NUMBER_AT: usize = 14 + 20 + 8;
const CHECKSUM_AT: usize = 14 + 20 + 6;
/// Requests that can be distinguished, and half of them: most that may be under way.
const NUMBERS: usize = 1 << 16;
const WAITING_MAX: usize = NUMBERS / 2;
/// Where the text begins.
const TEXT_AT: usize = NUMBER_AT + 8;
/// Every how many replies one is checked to the byte; of the others, whether they have an item.
const CHECK_EVERY: u64 = 97;
/// Longest wait for a reply when nothing is asked any more.
const GRACE: Duration = Duration::from_secs(1);

/// A client of one server.
#[derive(Debug)]
pub struct Client<'a> {
    queues: QueuePair,
    region: &'a Region,
    /// When the request of each number was due; none is under way at [`u64::MAX`].
    due_ns: Vec<u64>,
    /// Which request it is.
    asked: Vec<usize>,
    next: usize,
}

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// Requests sent.
    pub sent: u64,
    /// Of these, answered.
    pub answered: u64,
    /// All others that were due: not answered, or not even sent.
    pub lost: u64,
    /// Replies checked to the byte.
    pub checked: u64,
    /// Wrong replies: of these, or with another item or none.
    pub wrong: u64,
    /// Replies with an item.
    pub hits: u64,
    /// From the first request to the last reply.
    pub wall: Duration,
    /// Round trips, in nanoseconds.
    pub rtt: Histogram<u64>,
}

impl Outcome {
    /// Answers a second.
    pub fn per_s(&self) -> f64 {
        self.answered as f64 / self.wall.as_secs_f64()
    }
}

impl<'a> Client<'a> {
    /// A client at the other end of a server's queues.
    pub fn new(queues: QueuePair, region: &'a Region) -> Self {
        let (due_ns, asked) = (vec![u64::MAX; NUMBERS], vec![0; NUMBERS]);
        Self { queues, region, due_ns, asked, next: 0 }
    }

    /// Sends these requests, round and round, for so long, at this pace and with at most `window` requests under way.
    ///
    /// # Errors
    /// No memory for the histogram.
    pub fn run(
        &mut self,
        templates: &[Asked],
        pace: Pace,
        window: usize,
        length: Duration,
        seed: u64,
    ) -> Result<Outcome, Box<dyn Error>> {
        let window = window.min(WAITING_MAX) as u64;
        let mut schedule = match pace {
            Pace::Open(per_s) => Some(Schedule::new(per_s, seed)),
            Pace::Closed => None,
        };
        let (mut out, mut back) = (Burst::new(), Burst::new());
        let (mut sent, mut answered, mut checked, mut wrong, mut hits) = (0, 0, 0, 0, 0);
        let mut rtt = histogram()?;
        let begun = Instant::now();
        let now_ns = || u64::try_from(begun.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let length_ns = u64::try_from(length.as_nanos())?;
        let last_ns = length_ns.saturating_sub(1);
        let mut last = Instant::now();
        loop {
            let now = now_ns();
            let over = now >= length_ns;
            let mut all_sent = false;
            while !out.is_full() && sent - answered < window {
                // A slot first: a request that is due must not be dropped for lack of one.
                let Some(mut frame) = self.region.alloc() else { break };
                let due = match &mut schedule {
                    Some(schedule) => schedule.due(now.min(last_ns)),
                    None => (!over).then_some(now),
                };
                let Some(due) = due else {
                    all_sent = true;
                    break;
                };
                let template = self.next % templates.len().max(1);
                // Fits: requests are made for a slot.
                let filled = frame.fill(templates.get(template).map_or(&[][..], |t| &t.frame));
                debug_assert!(filled.is_ok());
                let number = self.next % NUMBERS;
                set_number(frame.bytes_mut(), number);
                if let Some(place) = self.due_ns.get_mut(number) {
                    *place = due;
                }
                if let Some(place) = self.asked.get_mut(number) {
                    *place = template;
                }
                self.next += 1;
                sent += 1;
                out.push(frame);
            }
            self.queues.tx.burst(&mut out);
            if self.queues.rx.burst(&mut back) > 0 {
                last = Instant::now();
            }
            let now = now_ns();
            for frame in back.drain(..) {
                let bytes = frame.bytes();
                let number = bytes.get(NUMBER_AT..NUMBER_AT + 2);
                let number =
                    number.map_or(NUMBERS, |n| n.iter().fold(0, |a, b| a << 8 | usize::from(*b)));
                let Some(due) = self.due_ns.get_mut(number).filter(|due| **due != u64::MAX) else {
                    continue;
                };
                rtt.saturating_record(now.saturating_sub(std::mem::replace(due, u64::MAX)));
                answered += 1;
                let is_hit = bytes.get(TEXT_AT..).is_some_and(|text| text.starts_with(b"VALUE "));
                hits += u64::from(is_hit);
                let asked = self.asked.get(number).and_then(|at| templates.get(*at));
                let is_checked = answered % CHECK_EVERY == 1;
                checked += u64::from(is_checked);
                let is_right = asked.is_some_and(|asked| match is_checked {
                    true => has_text(bytes, &asked.reply),
                    false => asked.is_hit() == is_hit,
                });
                wrong += u64::from(!is_right);
            }
            if over && (all_sent && sent == answered || last.elapsed() > GRACE) {
                break;
            }
        }
        self.due_ns.fill(u64::MAX);
        let unsent = std::iter::from_fn(|| schedule.as_mut()?.due(last_ns)).count() as u64;
        let lost = sent - answered + unsent;
        let wall = begun.elapsed().saturating_sub(if lost == 0 { Duration::ZERO } else { GRACE });
        Ok(Outcome { sent, answered, lost, checked, wrong, hits, wall, rtt })
    }
}

/// Puts another number in the place of the template's, which is 0, and makes UDP's checksum fit (RFC
/// 1624).
fn set_number(frame: &mut [u8], number: usize) {
    let number = u16::try_from(number).unwrap_or(0);
    let old = frame.get(NUMBER_AT..NUMBER_AT + 2).map_or([0, 0], |n| [n[0], n[1]]);
    let sum = frame.get(CHECKSUM_AT..CHECKSUM_AT + 2).map_or([0, 0], |n| [n[0], n[1]]);
    let words = [!u16::from_be_bytes(sum), !u16::from_be_bytes(old), number];
    let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_be_bytes()).collect();
    let new = match !checksum::sum(&bytes) {
        0 => 0xffff,
        sum => sum,
    };
    for (at, word) in [(NUMBER_AT, number), (CHECKSUM_AT, new)] {
        if let Some(place) = frame.get_mut(at..at + 2) {
            place.copy_from_slice(&word.to_be_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::study::load::{Load, Shape};
    use driver_shim::{Frame, Pages, RxQueue, TxQueue};
    use std::sync::{Arc, Mutex};
    use wire::verify::verify_udp;

    const SHAPE: Shape = Shape { key_bytes: 16, value_bytes: 64 };

    /// A server that misses, from a moment on; until then requests lie with it.
    #[derive(Clone)]
    struct Late(Arc<Mutex<Vec<Frame>>>, Instant);

    impl TxQueue for Late {
        fn burst(&mut self, from: &mut Burst) -> usize {
            let n = from.len();
            self.0.lock().unwrap().extend(from.drain(..));
            n
        }
    }

    impl RxQueue for Late {
        fn burst(&mut self, into: &mut Burst) -> usize {
            let mut under_way = self.0.lock().unwrap();
            while Instant::now() >= self.1 && !into.is_full() {
                let Some(mut frame) = under_way.pop() else { break };
                let mut reply = [&frame.bytes()[..TEXT_AT], b"END\r\n"].concat();
                reply[38..40].copy_from_slice(&21_u16.to_be_bytes());
                frame.fill(&reply).unwrap();
                into.push(frame);
            }
            into.len()
        }
    }

    #[test]
    fn whatever_was_due_is_answered_or_lost() {
        let region = Region::new(64, Pages::Small).unwrap();
        let miss = Asked {
            frame: Load::Miss.request(SHAPE, &[7], 10).unwrap(),
            reply: Load::Miss.reply(SHAPE, &[7]),
        };
        let (length, per_s) = (Duration::from_millis(20), 100_000.0);
        let mut schedule = Schedule::new(per_s, 1);
        let due = std::iter::from_fn(|| schedule.due(19_999_999)).count() as u64;
        // It begins to answer when all time is over, and not at all.
        for (late, all_answered) in
            [(Duration::from_millis(200), true), (Duration::from_secs(3600), false)]
        {
            let server = Late(Arc::default(), Instant::now() + late);
            let queues = QueuePair { rx: Box::new(server.clone()), tx: Box::new(server) };
            let mut client = Client::new(queues, &region);
            let got = client
                .run(std::slice::from_ref(&miss), Pace::Open(per_s), usize::MAX, length, 1)
                .unwrap();
            let counted = if all_answered { (due, due, 0) } else { (64, 0, due) };
            assert_eq!((got.sent, got.answered, got.lost), counted);
            assert_eq!((got.rtt.len(), got.wrong), (got.answered, 0));
            // None of them is forgiven its wait.
            assert!(!all_answered || got.rtt.min() >= 170_000_000, "{}", got.rtt.min());
        }
    }

    #[test]
    fn a_numbered_request_has_a_good_checksum() {
        let template = Load::Get.request(SHAPE, &[7], 10).unwrap();
        for number in [0, 1, 0x1234, 0xffff] {
            let mut frame = template.clone();
            set_number(&mut frame, number);
            assert_eq!(usize::from(u16::from_be_bytes([frame[42], frame[43]])), number);
            assert_eq!(frame[44..], template[44..]);
            assert!(verify_udp(&frame, 14, 34, false), "{number}");
        }
    }
}
