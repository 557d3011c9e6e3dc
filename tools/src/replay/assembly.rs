//! Replies of several datagrams (protocol.txt: sequence numbers 0 to total - 1), arriving in any
//! order, some twice, some never.
//!
//! Pieces wait in chunks of a shared pool, a list per reply, highest number first: what arrives
//! in order goes to the front at once. The pool grows to what is in use and is then reused; its
//! bound keeps a lying server from filling memory.

/// Most bytes of one piece: what an Ethernet packet carries.
const PIECE_MAX_BYTES: usize = 1472;
/// Most pieces that wait at once, of all replies together: 64 MB.
const CHUNKS_MAX: usize = (64 << 20) / PIECE_MAX_BYTES;
/// End of a list.
const NONE: u32 = u32::MAX;

#[derive(Debug)]
struct Chunk {
    next: u32,
    seq: u16,
    len: u16,
    bytes: [u8; PIECE_MAX_BYTES],
}

/// Pieces of one reply that have arrived so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pieces {
    first: u32,
    have: u16,
    total: u16,
    /// A piece came after one with a higher number.
    pub out_of_order: bool,
}

impl Default for Pieces {
    fn default() -> Self {
        Self { first: NONE, have: 0, total: 0, out_of_order: false }
    }
}

impl Pieces {
    /// True while nothing has arrived.
    pub fn is_empty(&self) -> bool {
        self.have == 0
    }
}

/// What became of a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Added {
    /// Others are missing still.
    Waiting,
    /// It was the last: the reply is whole.
    Whole,
    /// It had arrived before.
    Duplicate,
    /// Numbers that contradict each other, or a piece too long.
    Bad,
    /// The pool is full; the piece is lost.
    NoRoom,
}

/// The pool of chunks.
#[derive(Debug)]
pub struct Pool {
    chunks: Vec<Chunk>,
    free: u32,
}

impl Default for Pool {
    fn default() -> Self {
        Self { chunks: Vec::new(), free: NONE }
    }
}

impl Pool {
    fn at(&self, i: u32) -> Option<&Chunk> {
        self.chunks.get(i as usize)
    }

    fn take(&mut self) -> Option<u32> {
        if let Some(chunk) = self.at(self.free) {
            let (taken, next) = (self.free, chunk.next);
            self.free = next;
            return Some(taken);
        }
        if self.chunks.len() >= CHUNKS_MAX {
            return None;
        }
        self.chunks.push(Chunk { next: NONE, seq: 0, len: 0, bytes: [0; PIECE_MAX_BYTES] });
        u32::try_from(self.chunks.len() - 1).ok()
    }

    /// Adds piece `seq` of `total`.
    pub fn add(&mut self, to: &mut Pieces, seq: u16, total: u16, bytes: &[u8]) -> Added {
        let Some(len) = u16::try_from(bytes.len()).ok().filter(|_| bytes.len() <= PIECE_MAX_BYTES)
        else {
            return Added::Bad;
        };
        if seq >= total || (to.have > 0 && total != to.total) {
            return Added::Bad;
        }
        // Down the list to the first piece with a number not above this one.
        let (mut before, mut after) = (NONE, to.first);
        while let Some(chunk) = self.at(after) {
            if chunk.seq == seq {
                return Added::Duplicate;
            }
            if chunk.seq < seq {
                break;
            }
            (before, after) = (after, chunk.next);
        }
        let Some(new) = self.take() else { return Added::NoRoom };
        let chunk = &mut self.chunks[new as usize];
        (chunk.next, chunk.seq, chunk.len) = (after, seq, len);
        chunk.bytes[..bytes.len()].copy_from_slice(bytes);
        match self.chunks.get_mut(before as usize) {
            Some(b) => {
                b.next = new;
                to.out_of_order = true;
            }
            None => to.first = new,
        }
        to.total = total;
        to.have += 1;
        if to.have == total { Added::Whole } else { Added::Waiting }
    }

    /// Writes the pieces in order over whatever `out` held, and frees them.
    pub fn join(&mut self, pieces: &mut Pieces, out: &mut Vec<u8>) {
        out.clear();
        let mut len = 0;
        let mut at = pieces.first;
        while let Some(chunk) = self.at(at) {
            len += usize::from(chunk.len);
            at = chunk.next;
        }
        out.resize(len, 0);
        at = pieces.first;
        while let Some(chunk) = self.at(at) {
            let end = len;
            len -= usize::from(chunk.len);
            out[len..end].copy_from_slice(&chunk.bytes[..usize::from(chunk.len)]);
            at = chunk.next;
        }
        self.discard(pieces);
    }

    /// Frees the pieces.
    pub fn discard(&mut self, pieces: &mut Pieces) {
        let mut at = pieces.first;
        while let Some(chunk) = self.chunks.get_mut(at as usize) {
            let next = chunk.next;
            chunk.next = self.free;
            self.free = at;
            at = next;
        }
        *pieces = Pieces::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_order_joins_to_the_same_reply_and_chunks_are_reused() {
        let mut pool = Pool::default();
        let mut out = Vec::new();
        for order in [[0u16, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]] {
            let mut p = Pieces::default();
            for (n, seq) in order.into_iter().enumerate() {
                let added = pool.add(&mut p, seq, 4, &[b"abcd"[usize::from(seq)]; 3][..seq.into()]);
                assert_eq!(added, if n == 3 { Added::Whole } else { Added::Waiting });
                if n < 3 {
                    assert_eq!(pool.add(&mut p, seq, 4, b"again"), Added::Duplicate);
                }
            }
            assert_eq!(p.out_of_order, order != [0, 1, 2, 3]);
            pool.join(&mut p, &mut out);
            assert_eq!(out, b"bccddd");
            assert_eq!(p, Pieces::default());
        }
        assert_eq!(pool.chunks.len(), 4);
    }

    #[test]
    fn lies_are_refused() {
        let mut pool = Pool::default();
        let mut p = Pieces::default();
        assert_eq!(pool.add(&mut p, 0, 0, b""), Added::Bad);
        assert_eq!(pool.add(&mut p, 2, 2, b""), Added::Bad);
        assert_eq!(pool.add(&mut p, 0, 2, &[0; PIECE_MAX_BYTES + 1]), Added::Bad);
        assert_eq!(pool.add(&mut p, 0, 2, b""), Added::Waiting);
        assert_eq!(pool.add(&mut p, 1, 3, b""), Added::Bad);
    }

    #[test]
    fn memory_is_bounded() {
        let mut pool = Pool::default();
        let mut p = Pieces::default();
        let mut room = 0;
        while pool.add(&mut p, room, u16::MAX, b"x") == Added::Waiting {
            room += 1;
        }
        assert_eq!(usize::from(room), CHUNKS_MAX);
        assert_eq!(pool.add(&mut p, room, u16::MAX, b"x"), Added::NoRoom);
        pool.discard(&mut p);
        assert_eq!(pool.add(&mut p, 0, 2, b"x"), Added::Waiting);
    }
}
