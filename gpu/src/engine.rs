//! What an engine is: something that takes a batch of entries and gives back descriptors.

use crate::host::Column;
use crate::index::Stamp;
use crate::layout::{Entry, ReplyHead, ReqDesc, WholeReply};

/// What stands for a descriptor that is not there.
static UNREAD: ReqDesc = ReqDesc::UNREAD;

/// A batch on its way through an engine. Reused for ever; its columns never grow.
#[derive(Debug)]
pub struct Batch {
    /// The owner's name for it; engines carry it along.
    pub id: u32,
    /// The frames to look at.
    pub entries: Column<Entry>,
    /// One per entry once the engine is done, in the same order.
    pub descs: Column<ReqDesc>,
    /// One per entry, or none at all: whether the engine prepares heads is its own choice.
    pub heads: Column<ReplyHead>,
    /// One per entry, or none at all.
    pub replies: Column<WholeReply>,
    /// What the device knew of when it was given the batch: what `replies` are accepted by.
    pub stamp: Stamp,
}

/// What an engine has of the reply to a request, beside hints.
#[derive(Debug, Clone, Copy, Default)]
pub struct Prepared<'a> {
    /// Its headers.
    pub head: Option<&'a ReplyHead>,
    /// All of it, and it was accepted: it has a text.
    pub reply: Option<&'a WholeReply>,
}

impl Batch {
    /// An empty batch with a capacity of `capacity` requests, in memory that no device sees.
    pub fn new(id: u32, capacity: usize) -> Self {
        Self {
            id,
            entries: Column::new(capacity),
            descs: Column::new(capacity),
            heads: Column::new(0),
            replies: Column::new(0),
            stamp: Stamp::default(),
        }
    }

    /// Each request: what is known of its frame, what the engine found out, and what it made of the
    /// reply. A request without a descriptor is one that no engine read.
    pub fn requests(&self) -> impl Iterator<Item = (&Entry, &ReqDesc, Prepared<'_>)> {
        self.entries.iter().enumerate().map(|(n, entry)| {
            let reply = self.replies.get(n).filter(|reply| reply.facts.text_len > 0);
            let prepared = Prepared { head: self.heads.get(n), reply };
            (entry, self.descs.get(n).unwrap_or(&UNREAD), prepared)
        })
    }

    /// Becomes another's requests: its id and its entries, as many as fit.
    pub(crate) fn take_requests(&mut self, other: &Self) {
        self.clear();
        self.id = other.id;
        for entry in other.entries.iter() {
            // They fit: all batches of an owner have the same capacity.
            let _ = self.entries.push(*entry);
        }
    }

    /// Keeps the requests of which `keep` says so, by their numbers, in their order.
    pub fn retain(&mut self, keep: impl Fn(usize) -> bool) {
        let Self { entries, descs, heads, replies, .. } = self;
        let mut kept = 0;
        for n in (0..entries.len()).filter(|n| keep(*n)) {
            if n != kept {
                move_within(entries, n, kept);
                move_within(descs, n, kept);
                move_within(heads, n, kept);
                move_reply(replies, n, kept);
            }
            kept += 1;
        }
        entries.set_len(kept);
        descs.set_len(kept.min(descs.len()));
        heads.set_len(kept.min(heads.len()));
        replies.set_len(kept.min(replies.len()));
    }

    /// Forgets the requests and keeps the memory.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.descs.clear();
        self.heads.clear();
        self.replies.clear();
    }
}

/// Copies a value that is there to an earlier place.
fn move_within<T: Copy>(values: &mut [T], from: usize, to: usize) {
    if from < values.len() {
        values.copy_within(from..=from, to);
    }
}

/// The same for a reply, which is large: of one without a text nothing else is there.
fn move_reply(replies: &mut [WholeReply], from: usize, to: usize) {
    match replies.get(from) {
        Some(reply) if reply.facts.text_len > 0 => move_within(replies, from, to),
        Some(_) => replies.iter_mut().skip(to).take(1).for_each(|to| to.facts.text_len = 0),
        None => {}
    }
}

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// There is a descriptor per entry, and a `Miss` in them means that the host index had no such
    /// key at the time of the look-up, so that no second look-up is needed.
    Final,
    /// There is a descriptor per entry, from an index that follows the host's: whether the host has none either is
    /// to be found out (here `Dispatch::complete` does).
    Replica,
    /// The engine is late, or has failed, and says nothing: the entries are what they were, and
    /// another engine may have the batch.
    Lost,
}

/// Stage 5. Finds out what was asked and where it probably is; answers nothing itself.
///
/// Never blocks: `submit` refuses when as many batches are in flight as may be, `poll` returns at once.
pub trait Engine: Send {
    /// Name for people and counters.
    fn name(&self) -> &'static str;

    /// Makes a batch of the kind that this engine likes best. Start-up only.
    fn new_batch(&mut self, id: u32, capacity: usize) -> Box<Batch> {
        Box::new(Batch::new(id, capacity))
    }

    /// Takes the batch, or gives it back when as many are in flight as may be, or when the engine is not open.
    ///
    /// # Errors
    /// The batch itself, its entries untouched: try again after a `poll`.
    fn submit(&mut self, batch: Box<Batch>) -> Result<(), Box<Batch>>;

    /// A batch that the engine is done with, and how: the oldest first. Every batch that was taken
    /// comes back, at the latest with the first poll after its deadline.
    fn poll(&mut self) -> Option<(Box<Batch>, Outcome)>;

    /// Batches submitted and not yet polled.
    fn in_flight(&self) -> usize;

    /// Whether it takes batches, when one more may be in flight: not after it has failed, and not for a while
    /// after it was late.
    fn is_open(&self) -> bool {
        true
    }

    /// The host has found that a descriptor of this engine's was wrong: it fails.
    fn mark_faulty(&mut self) {}
}
