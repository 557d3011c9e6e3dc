//! Requests on their way: what was asked, when, and what has come back so far.
//!
//! A fixed number of slots. A request waits in one until it is answered or given up; after that
//! the slot keeps its name for as long as it can, so that a second reply, or a late one, is
//! recognised. Waiting requests hang in a list in the order of sending, oldest first.

use super::assembly::Pieces;
use gnomon_client::codec::{Asked, Protocol};
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasherDefault, Hasher};

/// End of the list.
const NONE: u32 = u32::MAX;
/// Slots per request that may wait. The spare ones remember finished requests.
const SLOTS_PER_WAITING: usize = 4;

/// Names a request: which lane it travels (a client, or a socket), and its request id.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Tag {
    /// Client or socket.
    pub lane: u32,
    /// Request id of the frame header.
    pub id: u16,
}

/// Where a request stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Sent, not answered.
    Waiting,
    /// Answered, rightly or wrongly.
    Answered,
    /// Given up.
    Lost,
}

/// One request.
#[derive(Debug)]
pub struct Slot {
    /// Its name.
    pub tag: Tag,
    /// Where it stands.
    pub state: State,
    /// Its command. [`Asked::Other`] never waits.
    pub asked: Asked,
    /// In which protocol.
    pub protocol: Protocol,
    /// Keys requested, blank-separated.
    pub keys: Vec<u8>,
    /// The whole frame, where the request may have to be sent again.
    pub frame: Vec<u8>,
    /// Times sent.
    pub tries: u32,
    /// Place in the order of sending.
    pub number: u64,
    /// When it should have left, nanoseconds of the player's clock.
    pub intended_ns: u64,
    /// When it left, the last time.
    pub sent_ns: u64,
    /// Pieces of its reply.
    pub pieces: Pieces,
    older: u32,
    newer: u32,
    named: bool,
}

/// A multiply-and-shift hash: tags are our own numbers, they are not crafted by others.
#[derive(Debug, Default, Clone, Copy)]
struct TagHasher(u64);

impl Hasher for TagHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u32(u32::from(*b));
        }
    }
    fn write_u16(&mut self, n: u16) {
        self.write_u32(u32::from(n));
    }
    fn write_u32(&mut self, n: u32) {
        let x = (self.0 ^ u64::from(n)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = x ^ (x >> 29);
    }
}

/// All requests on their way.
#[derive(Debug)]
pub struct Pending {
    slots: Vec<Slot>,
    names: HashMap<Tag, u32, BuildHasherDefault<TagHasher>>,
    /// Slots that do not wait, the one finished first in front.
    free: VecDeque<u32>,
    oldest: u32,
    newest: u32,
    waiting: usize,
    waiting_max: usize,
    sent: u64,
}

impl Pending {
    /// Room for `waiting_max` requests on their way, at least 1.
    pub fn new(waiting_max: usize) -> Self {
        let waiting_max = waiting_max.clamp(1, 1 << 24);
        let count = waiting_max * SLOTS_PER_WAITING;
        let tag = Tag { lane: 0, id: 0 };
        let slots = std::iter::repeat_with(|| Slot {
            tag,
            state: State::Lost,
            asked: Asked::Other,
            protocol: Protocol::Ascii,
            keys: Vec::new(),
            frame: Vec::new(),
            tries: 0,
            number: 0,
            intended_ns: 0,
            sent_ns: 0,
            pieces: Pieces::default(),
            older: NONE,
            newer: NONE,
            named: false,
        });
        Self {
            slots: slots.take(count).collect(),
            // Twice the names there can be: space for rehashing in place.
            names: HashMap::with_capacity_and_hasher(count * 2, BuildHasherDefault::default()),
            free: (0..u32::try_from(count).unwrap_or(NONE)).collect(),
            oldest: NONE,
            newest: NONE,
            waiting: 0,
            waiting_max,
            sent: 0,
        }
    }

    /// Requests on their way.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Whether a request of this name can be sent now: the window is not full, and no other of the same
    /// name is on its way.
    pub fn has_room(&self, tag: Tag) -> bool {
        self.waiting < self.waiting_max
            && self.find(tag).is_none_or(|i| self.slots[i as usize].state != State::Waiting)
    }

    /// The slot of that name.
    pub fn find(&self, tag: Tag) -> Option<u32> {
        self.names.get(&tag).copied()
    }

    /// The slot.
    pub fn slot(&mut self, i: u32) -> &mut Slot {
        &mut self.slots[i as usize]
    }

    /// Notes that a request has been sent; [`Self::has_room`] said that it can. The slot comes
    /// back with empty keys and frame, for the caller to fill.
    pub fn begin(
        &mut self,
        tag: Tag,
        asked: Asked,
        intended_ns: u64,
        now_ns: u64,
    ) -> Option<&mut Slot> {
        let i = self.free.pop_front()?;
        let old = &self.slots[i as usize];
        if old.named && self.find(old.tag) == Some(i) {
            self.names.remove(&old.tag);
        }
        self.names.insert(tag, i);
        self.sent += 1;
        let number = self.sent;
        let slot = &mut self.slots[i as usize];
        slot.tag = tag;
        slot.named = true;
        slot.asked = asked;
        slot.keys.clear();
        slot.frame.clear();
        slot.tries = 1;
        slot.number = number;
        slot.intended_ns = intended_ns;
        if asked == Asked::Other {
            slot.state = State::Answered;
            self.free.push_back(i);
        } else {
            self.wait(i, now_ns);
        }
        Some(&mut self.slots[i as usize])
    }

    /// Puts a slot at the end of the waiting list.
    fn wait(&mut self, i: u32, now_ns: u64) {
        let older = self.newest;
        let slot = &mut self.slots[i as usize];
        slot.state = State::Waiting;
        slot.sent_ns = now_ns;
        slot.older = older;
        slot.newer = NONE;
        match self.slots.get_mut(older as usize) {
            Some(o) => o.newer = i,
            None => self.oldest = i,
        }
        self.newest = i;
        self.waiting += 1;
    }

    fn unlink(&mut self, i: u32) {
        let Slot { older, newer, .. } = self.slots[i as usize];
        match self.slots.get_mut(older as usize) {
            Some(o) => o.newer = newer,
            None => self.oldest = newer,
        }
        match self.slots.get_mut(newer as usize) {
            Some(n) => n.older = older,
            None => self.newest = older,
        }
        self.waiting -= 1;
    }

    /// A waiting request is answered or given up.
    pub fn finish(&mut self, i: u32, state: State) {
        if self.slots[i as usize].state == State::Waiting && state != State::Waiting {
            self.unlink(i);
            self.slots[i as usize].state = state;
            self.free.push_back(i);
        }
    }

    /// A waiting request has been sent once more.
    pub fn again(&mut self, i: u32, now_ns: u64) {
        if self.slots[i as usize].state == State::Waiting {
            self.unlink(i);
            self.slots[i as usize].tries += 1;
            self.wait(i, now_ns);
        }
    }

    /// The request that has waited longest, and since when.
    pub fn oldest(&self) -> Option<(u32, u64)> {
        self.slots.get(self.oldest as usize).map(|s| (self.oldest, s.sent_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(id: u16) -> Tag {
        Tag { lane: 0, id }
    }

    #[test]
    fn oldest_first_and_never_more_than_the_window() {
        let mut p = Pending::new(3);
        for id in 0..3 {
            assert!(p.has_room(tag(id)));
            p.begin(tag(id), Asked::Set, 0, u64::from(id)).unwrap();
        }
        assert!(!p.has_room(tag(3)));
        let order = |p: &mut Pending| {
            let mut all = Vec::new();
            while let Some((i, since)) = p.oldest() {
                all.push((p.slot(i).tag.id, since));
                p.finish(i, State::Lost);
            }
            all
        };
        let middle = p.find(tag(1)).unwrap();
        p.finish(middle, State::Answered);
        assert!(p.has_room(tag(3)) && !p.has_room(tag(0)) && p.has_room(tag(1)));
        let first = p.find(tag(0)).unwrap();
        p.again(first, 9);
        assert_eq!(order(&mut p), [(2, 2), (0, 9)]);
        assert_eq!(p.waiting(), 0);
    }

    #[test]
    fn finished_requests_are_remembered_for_a_while() {
        let mut p = Pending::new(2);
        for id in 0..100 {
            p.begin(tag(id), Asked::Set, 0, 0).unwrap();
            let i = p.find(tag(id)).unwrap();
            p.finish(i, State::Answered);
        }
        let known = (0..100).filter(|id| p.find(tag(*id)).is_some()).count();
        assert_eq!(known, 2 * SLOTS_PER_WAITING);
        assert!(p.find(tag(99)).is_some());
    }

    #[test]
    fn a_name_used_again_means_the_new_request() {
        let mut p = Pending::new(2);
        for _ in 0..50 {
            p.begin(tag(7), Asked::Other, 0, 0).unwrap();
            p.begin(tag(7), Asked::Set, 0, 0).unwrap();
            let i = p.find(tag(7)).unwrap();
            assert_eq!(p.slot(i).state, State::Waiting);
            p.finish(i, State::Answered);
        }
        assert_eq!(p.waiting(), 0);
    }
}
