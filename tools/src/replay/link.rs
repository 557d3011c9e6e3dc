//! What carries requests out and replies in.

use super::pending::Tag;
use crate::trace::Request;
use std::io;
use std::time::Duration;

/// What became of a frame that was to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Taken {
    /// It is on its way.
    Sent,
    /// The queue is full at this moment: try again.
    Full,
    /// This link cannot carry it at all.
    Never,
}

/// A way to the server and back. One owner, one thread; nothing blocks but [`Link::wait`], and what
/// one-sided reads ask over TCP: each answer is waited for, in [`Link::send`] or [`Link::receive`].
pub trait Link {
    /// The name under which the reply to this request will come.
    fn tag(&mut self, request: &Request) -> Tag;

    /// Sends a frame. `request` is what was read from it, if it is a request, and `tag` its
    /// name; a link may carry the frame as it is, or its payload alone.
    ///
    /// # Errors
    /// What the kernel or the driver says and will go on saying.
    fn send(&mut self, frame: &[u8], request: Option<(&Request, Tag)>) -> io::Result<Taken>;

    /// Hands over what has arrived: the lane and the UDP payload of each datagram; the lane is
    /// `None` when the datagram is for none of our clients. Says how many there were.
    ///
    /// # Errors
    /// As for [`Link::send`].
    fn receive(&mut self, each: &mut dyn FnMut(Option<u32>, &[u8])) -> io::Result<usize>;

    /// Sleeps until something arrives, at most `at_most`.
    ///
    /// # Errors
    /// As for [`Link::send`].
    fn wait(&mut self, at_most: Duration) -> io::Result<()>;

    /// Times that the other side answered that no socket listens (ICMP).
    fn refusals(&self) -> u64 {
        0
    }
}
