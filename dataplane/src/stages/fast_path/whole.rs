//! A reply that a GPU wrote whole, and that was accepted, into its request's frame.
//!
//! In: a plain `get`'s frame. Out: a frame that is fit to send, with nothing left to the port: the sums in it are
//! the GPU's. No item is looked at, and of the frame only whom it came from.

use crate::plain::family::{V4, finish};
use crate::plain::requests::{LOOK, RequestMatcher};
use crate::plain::window::{ADDRESSES, TEXT, UDP_SUM, WINDOW, part, put};
use base::checksum::udp_field;
use base::small_bytes;
use driver_shim::Frame;
use gpu::WholeReply;
use wire::udp_frame::TEXT_AFTER_UDP;

/// Returns the reply's UDP length. `None`: the frame is as it was.
#[inline(always)]
pub(super) fn write(
    frame: &mut Frame,
    reply: &WholeReply,
    matcher: &mut RequestMatcher,
) -> Option<u16> {
    let text = reply.text.get(..usize::from(reply.facts.text_len))?;
    let udp_len = u16::try_from(TEXT_AFTER_UDP + text.len()).ok()?;
    let addresses = u64::from_le_bytes(*part(frame.window::<LOOK>()?, ADDRESSES));
    matcher.trusted(addresses)?;
    let mut open = frame.open::<WINDOW>()?;
    small_bytes::copy(open.bytes.get_mut(TEXT..TEXT + text.len())?, text);
    put(open.bytes, 0, *part::<TEXT, _>(&reply.head, 0));
    put(open.bytes, UDP_SUM, udp_field(reply.facts.sum).to_be_bytes());
    finish::<false, _>(&mut open, V4, udp_len);
    Some(udp_len)
}
