//! Whether whole replies of a device's are sent as they are.
//!
//! In: a batch that a device is done with. Out: the same, where only those replies have a text that are right
//! at this moment; the others' requests are answered as if there were none. No item is looked at: the
//! filter says whether anything has changed since the batch was sent ([`gpu::index::Filter`]). Stage 6 asks it
//! again behind what it has carried out of the same batch. Never fails; a reply that cannot be one is reported.

use super::cpu_engine::CpuEngine;
use crate::counters::WorkerCounters;
use gpu::index::{Filter, Stale};
use gpu::layout::{REPLY_HEAD_BYTES, WHOLE_TEXT_MAX};
use gpu::{Batch, Entry, EntryFlags, ReqDesc, RowFacts, Verb, Verdict, WholeReply};
use std::sync::Arc;
use wire::udp_frame::TEXT_AFTER_UDP;

/// One of so many replies, by chance, is left to the CPU, so that the store sees that its item is in use.
const SAMPLE_ONE_IN: u32 = 32;

/// What one worker accepts replies by.
#[derive(Debug)]
pub(super) struct Acceptance {
    /// What has changed since a batch was submitted.
    filter: Arc<Filter>,
    /// State of the generator that draws samples. Never 0.
    random: u32,
}

/// Why a reply is not sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Refused {
    /// The key may have changed, or all may have.
    Stale(Stale),
    /// Its item has expired.
    Expired,
    /// The CPU's turn.
    Sampled,
    /// Nothing is known to have changed, and yet it is no reply to this request.
    Impossible,
}

impl Acceptance {
    pub(super) fn new(filter: Arc<Filter>) -> Self {
        Self { filter, random: 1 }
    }

    /// Whether it is the CPU's turn. Not in a rhythm, in which clients' may lie. (Marsaglia, Xorshift RNGs, 2003.)
    fn is_sampled(&mut self) -> bool {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        self.random.is_multiple_of(SAMPLE_ONE_IN)
    }

    /// Takes the text away from those replies that are not to be sent. False: one of them cannot be.
    pub(super) fn accept(
        &mut self,
        batch: &mut Batch,
        cpu: &CpuEngine,
        counters: &WorkerCounters,
    ) -> bool {
        let Batch { entries, descs, replies, stamp, .. } = batch;
        let mut possible = true;
        let expired = |facts: &RowFacts| cpu.store().clock().has_passed(facts.expiry);
        for ((entry, desc), reply) in entries.iter().zip(descs.iter()).zip(replies.iter_mut()) {
            if reply.facts.text_len == 0 {
                continue;
            }
            let keys = || reply.facts_of_keys(desc.n_keys);
            let refused =
                match keys().try_for_each(|its| self.filter.accepts(its.signature, *stamp)) {
                    Err(stale) => Refused::Stale(stale),
                    // Not before that: what was found in a row that was being written means nothing.
                    Ok(()) if !is_possible(cpu, entry, desc, reply) => Refused::Impossible,
                    Ok(()) if keys().any(expired) => Refused::Expired,
                    Ok(()) if self.is_sampled() => Refused::Sampled,
                    Ok(()) => continue,
                };
            reply.facts.text_len = 0;
            match refused {
                Refused::Stale(Stale::Changed) => counters.replies_changed.inc(),
                Refused::Stale(Stale::Cleared) => counters.replies_cleared.inc(),
                Refused::Expired => counters.replies_expired.inc(),
                Refused::Sampled => counters.replies_sampled.inc(),
                Refused::Impossible => possible = false,
            }
        }
        possible
    }
}

/// Whether a device may have written this for this request.
fn is_possible(cpu: &CpuEngine, entry: &Entry, desc: &ReqDesc, reply: &WholeReply) -> bool {
    let keys = desc.keys.iter().zip(reply.facts_of_keys(desc.n_keys));
    let (mut around, mut n_keys) = (0, 0);
    for (key, facts) in keys {
        // Without the number of flags.
        if (facts.key_len, facts.verb.0 & 0xf) != (key.len, desc.verb.0) {
            return false;
        }
        around += usize::from(facts.value_len);
        n_keys += 1;
    }
    let text_len = usize::from(reply.facts.text_len);
    let is_its = match (desc.verdict, desc.verb) {
        (Verdict::READY, Verb::GET | Verb::GETS) => n_keys > 0,
        (Verdict::STRICT_HINTED, Verb::BINARY_GET | Verb::BINARY_GETK) => n_keys == 1,
        // Not each has the value.
        (Verdict::STRICT_HINTED, Verb::META_GET) => {
            around = 0;
            n_keys == 1 && cpu.form(entry, desc).is_some()
        }
        _ => false,
    };
    is_its
        && n_keys == desc.n_keys
        && text_len > around
        && text_len <= WHOLE_TEXT_MAX
        && usize::from(entry.l4) + TEXT_AFTER_UDP <= REPLY_HEAD_BYTES
        && !entry.flags.has(EntryFlags::LIMITED)
}
