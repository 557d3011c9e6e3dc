//! Replies that a GPU wrote whole, and that were accepted, into their requests' frames.
//!
//! In: a part of a batch. Out: of some of its plain `get`s frames that are fit to send, with nothing left to the port:
//! the sums in them are the GPU's. Neither items nor requests are looked at: that a source is trusted was found
//! when its request came in ([`EntryFlags::PLAIN`]).

use super::totals::Totals;
use crate::observe::Observer;
use crate::plain::family::{V4, finish};
use crate::plain::vector::{Compiled, Vector};
use crate::plain::window::{TEXT, UDP_SUM, WINDOW, part, put};
use base::checksum::udp_field;
use base::small_bytes;
use driver_shim::{BURST_MAX, Frame, prefetch_read};
use gpu::{Entry, EntryFlags, ReqDesc, Verdict, WholeReply};
use wire::udp_frame::TEXT_AFTER_UDP;

/// How many requests ahead replies are prefetched.
const AHEAD: usize = 4;
/// Of the lines of a reply, those that most have: facts, headers, key and a small value.
const LINES: usize = 4;
const LINE_BYTES: usize = 64;

/// A part of a batch.
pub(super) struct Whole<'p> {
    pub(super) burst: &'p mut [Frame],
    pub(super) entries: &'p [Entry],
    pub(super) descs: &'p [ReqDesc],
    pub(super) replies: &'p [WholeReply],
    /// Number of the port whose requests are answered.
    pub(super) mark: u8,
    pub(super) observer: Observer<'p>,
}

impl Compiled for Whole<'_> {
    type Done = Totals;

    /// Answers up to the first request that may change something: bit n for request n.
    #[inline(always)]
    fn run(self, _: impl Vector) -> Totals {
        let Self { burst, entries, descs, replies, mark, observer } = self;
        let mut totals = Totals::default();
        let requests = entries.iter().zip(descs).zip(replies).zip(burst).take(BURST_MAX);
        for (n, (((entry, desc), reply), frame)) in requests.enumerate() {
            if let Some(ahead) = replies.get(n + AHEAD) {
                let first = std::ptr::from_ref(ahead).cast::<u8>();
                (0..LINES).for_each(|line| prefetch_read(first.wrapping_add(line * LINE_BYTES)));
            }
            if !entry.flags.has(EntryFlags::PLAIN) {
                if !matches!(desc.verdict, Verdict::READY | Verdict::BAD) {
                    break;
                }
                continue;
            }
            if desc.verdict == Verdict::READY
                && entry.mark == mark
                && reply.facts.text_len > 0
                && let Some(udp_len) = write(frame, reply)
            {
                let [key, ..] = &desc.keys;
                observer.class_hit(reply.facts.item_class.into());
                totals.reply_whole(n, udp_len, key.len);
            }
        }
        totals
    }
}

/// Returns the reply's UDP length. `None`: the frame is as it was.
#[inline(always)]
fn write(frame: &mut Frame, reply: &WholeReply) -> Option<u16> {
    let text = reply.text.get(..usize::from(reply.facts.text_len))?;
    let udp_len = u16::try_from(TEXT_AFTER_UDP + text.len()).ok()?;
    let mut open = frame.open::<WINDOW>()?;
    small_bytes::copy(open.bytes.get_mut(TEXT..TEXT + text.len())?, text);
    put(open.bytes, 0, *part::<TEXT, _>(&reply.head, 0));
    put(open.bytes, UDP_SUM, udp_field(reply.facts.sum).to_be_bytes());
    finish::<false, _>(&mut open, V4, udp_len);
    Some(udp_len)
}
