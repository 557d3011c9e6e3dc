//! What a connection has received and not used up yet, and the buffers that the connections of one
//! thread pass on.
//!
//! In: bytes from the network. Out: whole requests' bytes, to be used up from the front. A
//! connection that waits for the rest of a small request keeps no more than what came of it; while
//! memory has run out, what comes of one is peeked at and stays in the socket. Fails: no memory.

use super::pool::{Charge, READ_BYTES, SMALL_BYTES};
use super::transport::Stream;
use crate::process::allocator;
use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::mem::replace;
use std::pin::pin;
use std::task::{Context, Poll};

/// Largest buffer to read into that is kept for the next to need one: one read fills all of it, and
/// what a turn can leave behind of a read is no more than that.
const KEEP_INPUT_BYTES: usize = 2 * READ_BYTES;
/// The same, to gather replies in.
const KEEP_OUTPUT_BYTES: usize = 192 << 10;

/// A buffer that the connections of one thread pass on: a connection that owes nothing and is owed nothing
/// has none.
pub(super) struct Spare {
    buffer: Cell<Vec<u8>>,
    /// A larger one is not kept.
    most: usize,
    /// What the connection that peeks had kept, in its own buffer, until the peek ends.
    kept: Cell<Vec<u8>>,
}

impl Spare {
    /// To read into.
    pub(super) fn of_input() -> Self {
        Self { buffer: Cell::default(), most: KEEP_INPUT_BYTES, kept: Cell::default() }
    }

    /// To gather replies in.
    pub(super) fn of_output() -> Self {
        Self { most: KEEP_OUTPUT_BYTES, ..Self::of_input() }
    }

    /// An empty buffer.
    pub(super) fn take(&self) -> Vec<u8> {
        self.buffer.take()
    }

    /// Gives a buffer back.
    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        if (READ_BYTES..=self.most).contains(&buffer.capacity()) {
            buffer.clear();
            self.buffer.set(buffer);
        }
    }
}

/// Bytes received and not used up yet.
#[derive(Debug, Default)]
pub(super) struct Input<'p> {
    pub(super) bytes: Vec<u8>,
    /// Bytes at the front that are used up.
    pub(super) at: usize,
    /// What they are charged to, when they are more than a connection has uncharged.
    pub(super) charge: Option<Charge<'p>>,
    /// Bytes of a request in part that stay in the socket: few.
    left: u16,
    /// Bytes were peeked at.
    peeked: bool,
}

impl Input<'_> {
    /// Waits for more, and takes what there is: much of it, or no more than a connection has
    /// uncharged. What has come in part is small. How much is new; none at the end.
    pub(super) async fn receive(
        &mut self,
        stream: &mut Stream,
        spare: &Spare,
        much: impl Fn() -> bool,
    ) -> io::Result<Option<usize>> {
        poll_fn(|cx| {
            if allocator::is_short() && stream.can_peek() {
                return self.poll_peek(stream, spare, cx);
            }
            // When memory has run out, the thread's buffer is there all the same.
            match much() || allocator::is_short() {
                true => self.take_room(spare)?,
                false => self.make_little_room()?,
            }
            let come = pin!(stream.read_buf(&mut self.bytes)).poll(cx);
            if come.is_pending() {
                self.rest(spare)?;
            }
            let seen = usize::from(self.left);
            come.map_ok(|come| {
                self.note_left(seen.saturating_sub(come));
                (come > 0).then(|| come.saturating_sub(seen))
            })
        })
        .await
    }

    /// The same, but what has come stays in the socket, too, until [`Self::end_peek`].
    fn poll_peek(
        &mut self,
        stream: &Stream,
        spare: &Spare,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<Option<usize>>> {
        let (mut room, kept) = (spare.take(), self.bytes.len());
        room.try_reserve(kept + READ_BYTES)?;
        room.extend_from_slice(&self.bytes);
        room.resize(kept + READ_BYTES, 0);
        let seen = usize::from(self.left);
        let come = stream.poll_peek(room.get_mut(kept..).unwrap_or_default(), seen, cx);
        let Poll::Ready(Ok(come)) = come else {
            spare.give(room);
            return come.map_ok(Some);
        };
        room.truncate(kept + come);
        spare.kept.set(replace(&mut self.bytes, room));
        (self.peeked, self.left) = (true, 0);
        Poll::Ready(Ok(come.checked_sub(seen).filter(|&new| new > 0)))
    }

    /// After a peek: reads what was used up. The rest of a small request stays in the socket, where
    /// nothing of it is to be answered now (`has_more`); all else is read.
    pub(super) fn end_peek(
        &mut self,
        stream: &Stream,
        spare: &Spare,
        has_more: bool,
    ) -> io::Result<()> {
        if !replace(&mut self.peeked, false) {
            return Ok(());
        }
        let kept = spare.kept.take();
        let stays = !has_more && self.unread().len() <= SMALL_BYTES;
        let till = if stays { self.at.max(kept.len()) } else { self.bytes.len() };
        stream.read_exact(self.bytes.get_mut(kept.len()..till).unwrap_or_default())?;
        if stays {
            self.note_left(self.bytes.len() - till);
            let own = if self.at < kept.len() { kept } else { Vec::new() };
            self.at = self.at.min(own.len());
            spare.give(replace(&mut self.bytes, own));
        }
        Ok(())
    }

    /// So many bytes stay in the socket: [`SMALL_BYTES`] at most.
    fn note_left(&mut self, bytes: usize) {
        self.left = u16::try_from(bytes).unwrap_or(u16::MAX);
    }

    pub(super) fn unread(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Whether a request has come in part.
    pub(super) fn is_begun(&self) -> bool {
        self.left > 0 || !self.unread().is_empty()
    }

    /// Whether something has come that was not seen yet.
    pub(super) fn has_more(&self, stream: &Stream) -> bool {
        stream.has_unread(usize::from(self.left))
    }

    /// Moves what is left to the front. Keeps no buffer for nothing, and no large one for little.
    pub(super) fn rest(&mut self, spare: &Spare) -> io::Result<()> {
        self.bytes.drain(..self.at);
        self.at = 0;
        let len = self.bytes.len();
        if len <= SMALL_BYTES {
            self.charge = None;
            if self.bytes.capacity() > 2 * len.max(64) {
                return self.shrink(spare);
            }
        }
        Ok(())
    }

    /// Gives back all that is held.
    pub(super) fn forget(&mut self, spare: &Spare) {
        spare.give(std::mem::take(&mut self.bytes));
        (self.at, self.charge) = (0, None);
    }

    /// Keeps what there is in a buffer of just that size, and gives the other back.
    pub(super) fn shrink(&mut self, spare: &Spare) -> io::Result<()> {
        let small = copied(self.unread())?;
        self.at = 0;
        spare.give(std::mem::replace(&mut self.bytes, small));
        Ok(())
    }

    /// Keeps no more than what there is, charged for no more than that, while a reply leaves or is waited
    /// for. Bytes that are held beyond what they are charged to.
    pub(super) fn trim(&mut self, spare: &Spare) -> io::Result<usize> {
        self.rest(spare)?;
        if self.charge.is_none() {
            self.shrink(spare)?;
        } else if self.bytes.capacity() > 2 * self.bytes.len() {
            // Without memory for a copy it stays as it is, and charged.
            self.shrink(spare).ok();
        }
        let held = self.bytes.capacity();
        let Some(charge) = &mut self.charge else { return Ok(held) };
        charge.shrink_to(held);
        Ok(held.saturating_sub(charge.bytes()))
    }

    /// Makes space to read into, in the thread's buffer.
    fn take_room(&mut self, spare: &Spare) -> io::Result<()> {
        if self.bytes.capacity() < self.bytes.len() + READ_BYTES {
            let mut room = spare.take();
            room.try_reserve(self.bytes.len() + READ_BYTES)?;
            room.extend_from_slice(&self.bytes);
            self.bytes = room;
        }
        Ok(())
    }

    /// Makes space for what a connection has uncharged, and one byte, which shows that it is too much.
    fn make_little_room(&mut self) -> io::Result<()> {
        let missing = (SMALL_BYTES + 1).saturating_sub(self.bytes.len()).max(1);
        self.bytes.try_reserve_exact(missing).map_err(io::Error::from)
    }

    /// Makes space to read on towards a request of `whole` bytes, where a read may need so much `room`.
    pub(super) fn grow(&mut self, whole: usize, room: usize) -> io::Result<()> {
        let (len, room) = (self.bytes.len(), room.max(1));
        if self.bytes.capacity() - len >= room {
            return Ok(());
        }
        // At the end a read may go beyond the request.
        let missing = whole.saturating_sub(len) + room - 1;
        self.bytes.try_reserve_exact(missing.max(room)).map_err(io::Error::from)
    }
}

/// A buffer of its own for what a connection keeps while it waits. None when memory has run out,
/// and little is left of what is for such times.
pub(super) fn copied(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut copy = Vec::new();
    if !bytes.is_empty() {
        if !allocator::may_keep() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        copy.try_reserve_exact(bytes.len())?;
        copy.extend_from_slice(bytes);
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Waker;
    use tokio::io::AsyncWriteExt;
    use tokio::net::UnixStream;

    #[test]
    fn input_has_space_for_the_whole_request_and_no_more() {
        let (mut input, spare) = (Input::default(), Spare::of_input());
        input.take_room(&spare).unwrap();
        assert!((READ_BYTES..2 * READ_BYTES).contains(&input.bytes.capacity()));
        input.bytes.resize(input.bytes.capacity(), 0);
        input.grow(1 << 20, 0).unwrap();
        assert!((1 << 20..(1 << 20) + 16).contains(&input.bytes.capacity()));
        let whole = input.bytes.len() + 5;
        input.bytes.shrink_to_fit();
        input.grow(whole, 0).unwrap();
        assert!(input.bytes.capacity() < whole + 16, "no more than the request");
    }

    #[test]
    fn little_room_is_what_is_uncharged() {
        let mut input = Input { bytes: vec![7; 100], ..Input::default() };
        input.make_little_room().unwrap();
        assert!((SMALL_BYTES + 1..SMALL_BYTES + 32).contains(&input.bytes.capacity()));
    }

    #[test]
    fn input_forgets_what_was_used_and_gives_memory_back() {
        let spare = Spare::of_input();
        let mut input = Input { bytes: vec![7; 1 << 20], at: (1 << 20) - 2, ..Input::default() };
        assert_eq!(input.unread(), [7, 7]);
        input.rest(&spare).unwrap();
        assert_eq!(input.unread(), [7, 7]);
        assert!(input.bytes.capacity() < 64, "a megabyte for two bytes");
        input.at = 2;
        input.rest(&spare).unwrap();
        assert!(input.unread().is_empty());
        assert_eq!(spare.take().capacity(), 0, "too large to be kept");
    }

    #[test]
    fn a_buffer_goes_from_one_input_to_the_next() {
        let spare = Spare::of_input();
        let (mut one, mut other) = (Input::default(), Input::default());
        one.take_room(&spare).unwrap();
        one.bytes.extend([1, 2, 3]);
        one.at = 3;
        let buffer = one.bytes.as_ptr();
        other.take_room(&spare).unwrap();
        assert_ne!(other.bytes.as_ptr(), buffer, "in use");
        one.rest(&spare).unwrap();
        assert_eq!(one.bytes.capacity(), 0);
        one.take_room(&spare).unwrap();
        assert_eq!((one.bytes.as_ptr(), one.bytes.len()), (buffer, 0));
    }

    /// A large request may have left a large buffer.
    #[tokio::test]
    async fn one_read_is_no_more_than_a_turn_may_leave_behind() {
        let (client, server) = UnixStream::pair().unwrap();
        let (mut stream, spare) = (Stream::Unix(server), Spare::of_input());
        spare.give(Vec::with_capacity(190 << 10));
        client.writable().await.unwrap();
        let sent = client.try_write(&[7; 150 << 10]).unwrap();
        assert!(sent > 3 * READ_BYTES, "{sent} bytes");
        let mut input = Input::default();
        input.receive(&mut stream, &spare, || true).await.unwrap();
        let (come, held) = (input.bytes.len(), input.bytes.capacity());
        assert!(come > 0 && held <= 2 * READ_BYTES, "{come} bytes in {held}");
    }

    /// What a peek finds; none when it would wait.
    fn peeked(input: &mut Input<'_>, stream: &Stream, spare: &Spare) -> Option<Option<usize>> {
        let mut cx = Context::from_waker(Waker::noop());
        match input.poll_peek(stream, spare, &mut cx) {
            Poll::Ready(come) => Some(come.unwrap()),
            Poll::Pending => None,
        }
    }

    #[tokio::test]
    async fn a_request_in_part_stays_in_the_socket() {
        let (mut client, server) = UnixStream::pair().unwrap();
        let (stream, spare) = (Stream::Unix(server), Spare::of_input());
        let mut input = Input { bytes: b"kept".to_vec(), ..Input::default() };
        client.write_all(b" one, a part").await.unwrap();
        stream.readable().await.unwrap();
        assert_eq!(peeked(&mut input, &stream, &spare), Some(Some(12)));
        assert_eq!(input.unread(), b"kept one, a part");
        // Nothing is used up: what was kept is as before, in a buffer of its own.
        input.end_peek(&stream, &spare, false).unwrap();
        assert!(input.is_begun() && stream.has_unread(0) && !input.has_more(&stream));
        assert_eq!((input.unread(), input.bytes.capacity()), (&b"kept"[..], 4));
        assert_eq!(peeked(&mut input, &stream, &spare), None, "nothing new");
        client.write_all(b" and").await.unwrap();
        stream.readable().await.unwrap();
        assert_eq!(peeked(&mut input, &stream, &spare), Some(Some(4)), "what is new");
        assert_eq!(input.unread(), b"kept one, a part and");
        input.at = "kept one,".len();
        input.end_peek(&stream, &spare, false).unwrap();
        assert!(input.is_begun() && input.unread().is_empty());
        // Where something else is done first, all is read; and so is what is not small.
        client.write_all(b" more").await.unwrap();
        stream.readable().await.unwrap();
        assert_eq!(peeked(&mut input, &stream, &spare), Some(Some(5)));
        input.end_peek(&stream, &spare, true).unwrap();
        assert_eq!((input.unread(), stream.has_unread(0)), (&b" a part and more"[..], false));
        input.at = input.bytes.len();
        input.rest(&spare).unwrap();
        client.write_all(&[7; SMALL_BYTES + 1]).await.unwrap();
        stream.readable().await.unwrap();
        assert_eq!(peeked(&mut input, &stream, &spare), Some(Some(SMALL_BYTES + 1)));
        input.end_peek(&stream, &spare, false).unwrap();
        assert_eq!((input.unread().len(), stream.has_unread(0)), (SMALL_BYTES + 1, false));
        input.at = input.bytes.len();
        input.rest(&spare).unwrap();
        // The end, behind a request in part.
        client.write_all(b"half").await.unwrap();
        stream.readable().await.unwrap();
        assert_eq!(peeked(&mut input, &stream, &spare), Some(Some(4)));
        input.end_peek(&stream, &spare, false).unwrap();
        assert_eq!(peeked(&mut input, &stream, &spare), None);
        drop(client);
        let come = poll_fn(|cx| input.poll_peek(&stream, &spare, cx)).await.unwrap();
        assert_eq!(come, None);
    }
}
