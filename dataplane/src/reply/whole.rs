//! Replies that a device wrote whole (`gpu::WholeReply`), but for the UDP checksum.
//!
//! In: a request's frame, and a reply that was accepted. Out: the reply in that frame. Nothing in it is
//! looked at here but its lengths.

use super::{Headers, Sum};
use base::small_bytes;
use driver_shim::Frame;
use gpu::WholeReply;

/// Whether [`with_whole`] will make this frame the reply.
#[inline]
pub(crate) fn whole_fits(frame: &Frame, headers: Headers, reply: &WholeReply) -> bool {
    let (head, text) = (headers.text(), usize::from(reply.facts.text_len));
    head <= reply.head.len() && text <= reply.text.len() && head + text <= frame.room()
}

/// Makes the request's frame the reply.
///
/// `None`: the frame is unchanged, because that does not fit its slot, or the reply has not these lengths.
#[inline]
pub(crate) fn with_whole(frame: &mut Frame, headers: Headers, reply: &WholeReply) -> Option<Sum> {
    let head = reply.head.get(..headers.text())?;
    let text = reply.text.get(..usize::from(reply.facts.text_len))?;
    frame.set_len(head.len() + text.len()).ok()?;
    let (to_head, to_text) = frame.bytes_mut().split_at_mut_checked(head.len())?;
    small_bytes::copy(to_head, head);
    small_bytes::copy(to_text, text);
    Some(Sum::Covered(reply.facts.sum))
}
