//! A turn of the updater where the device has rows: texts of replies, which the filter accepts.
//!
//! In: hashes that have changed, and hashes that were asked for. Out: rows on the device for the second, and
//! for those of the first that it has; then the word that they are there. Whatever is written to a way, its
//! old signature and its new one are raised before.

use super::{OPS_MAX, Updater, bump};
use crate::index::form::Form;
use crate::index::row::{bytes_of, row_bytes, row_of};
use crate::index::rows::Rows;
use crate::index::{Found, signature};
use crate::params::{Op, OpKind};

/// Ways that one operation takes out.
const CLEAR_WAYS: u32 = 1 << 15;

impl Updater {
    /// Says how much it found to do.
    pub(super) fn turn_of_rows(&mut self, rows: &mut Rows) -> usize {
        if rows.applying.is_none() {
            rows.applying = Some(rows.filter.advance());
            rows.left = self.feed.len();
        }
        self.hashes.clear();
        while self.hashes.len() < OPS_MAX
            && let Some(hash) = self.feed.take()
        {
            self.hashes.push(hash);
        }
        let mut taken = self.hashes.len();
        rows.left = rows.left.saturating_sub(taken);
        if self.offload.fault().is_some() {
            return taken;
        }
        bump(&self.counters.looks, taken as u64);
        if let Some(number) = rows.filter.is_to_clear() {
            // No row is left that what is queued by now could change; and while they are taken out there is
            // room for what comes, or else all would have to go again.
            for _ in 0..self.feed.len() {
                taken += usize::from(self.feed.take().is_some());
            }
            rows.left = 0;
            self.hashes.clear();
            if !self.clear_rows(rows) {
                return taken;
            }
            rows.filter.clear(number);
            taken += 1;
        }
        rows.ways.begin_turn();
        rows.ways.fetch(&self.hashes);
        self.wanted.clear();
        for hash in self.hashes.drain(..) {
            self.wanted.extend(rows.ways.forms(hash).map(|form| (hash, form)));
        }
        // To take a row out costs a fraction of writing it. A key that is wanted is asked for again.
        let behind = self.feed.len() > self.feed.capacity() / 4;
        // Workers go on asking meanwhile.
        let most = if behind { 0 } else { OPS_MAX };
        for (hash, form) in (0..most).map_while(|_| self.feed.take_wanted()) {
            taken += 1;
            if !rows.ways.has(hash, form) && rows.ways.has_room(hash) {
                self.wanted.push((hash, form));
            }
        }
        self.wanted.sort_unstable();
        self.wanted.dedup();
        let wanted = std::mem::take(&mut self.wanted);
        // What changed may have rows for several forms: more than one launch has room for.
        let done = wanted.chunks(OPS_MAX).all(|wanted| {
            self.write_rows(rows, wanted, behind);
            self.apply_if_any()
        });
        self.wanted = wanted;
        if !done {
            return taken;
        }
        if let (0, Some(epoch)) = (rows.left, rows.applying) {
            rows.filter.apply(epoch);
            rows.applying = None;
        }
        taken
    }

    /// Takes all rows out. False: the device has failed.
    fn clear_rows(&mut self, rows: &mut Rows) -> bool {
        self.ops.clear();
        let mut first = 0;
        while first < rows.ways.len() {
            let op =
                Op { location: first, value_len: CLEAR_WAYS, kind: OpKind::CLEAR, ..Op::default() };
            // A launch holds as many as there are; 2^32 ways are at most so many times that.
            if self.ops.push(op).is_err() {
                if !self.apply_if_any() {
                    return false;
                }
                self.ops.clear();
                continue;
            }
            first = first.saturating_add(CLEAR_WAYS);
        }
        rows.ways.clear();
        bump(&self.counters.cleared, 1);
        bump(&self.counters.removed, self.counters.filled());
        self.apply_if_any()
    }

    /// What the store has of these hashes, for these forms; if it is `behind`, nothing.
    fn write_rows(&mut self, rows: &mut Rows, wanted: &[(u64, Form)], behind: bool) {
        let Self { ops, keys, source, hashes, counters, .. } = self;
        let Rows { filter, ways, .. } = rows;
        ops.clear();
        keys.clear();
        hashes.clear();
        hashes.extend(wanted.iter().map(|(hash, _)| *hash));
        let mut forms = wanted.iter().map(|(_, form)| *form);
        let mut write = |hash, found: Option<Found<'_>>| {
            let Some(form) = forms.next() else { return };
            let mut op = Op { hash, kind: OpKind::REMOVE, ..Op::default() };
            let row = found.and_then(|found| row_of(hash, form, &found));
            let Some(row) = row else {
                let Some(way) = ways.remove(hash, form) else { return };
                filter.rewrite(signature(hash));
                op.location = way;
                let _ = ops.push(op);
                return;
            };
            let Some(placed) = ways.place(hash, form) else { return };
            filter.rewrite(row.facts.signature);
            if let Some(evicted) = placed.evicted {
                filter.rewrite(signature(evicted));
                bump(&counters.evicted, 1);
            }
            (op.kind, op.key_len) = (OpKind::PUT, placed.own.into());
            (op.location, op.flags) = (placed.way, row.facts.signature);
            op.value_len = u32::try_from(row_bytes(&row)).unwrap_or(0);
            // Every change has space for a whole row.
            let from = keys.len();
            op.key_off = u32::try_from(from).unwrap_or(u32::MAX);
            keys.set_len(from + row_bytes(&row));
            if let Some(to) = keys.get_mut(from..) {
                to.iter_mut().zip(bytes_of(&row)).for_each(|(to, byte)| *to = byte);
            }
            let _ = ops.push(op);
        };
        if behind {
            hashes.iter().for_each(|hash| write(*hash, None));
        } else {
            source.look(hashes, &mut write);
        }
    }

    /// Has the device make the changes, if there are any. False: it has failed.
    fn apply_if_any(&mut self) -> bool {
        if self.ops.is_empty() {
            return true;
        }
        let done = self.apply();
        if let Err(fault) = done {
            self.offload.fail(fault);
            return false;
        }
        true
    }
}
