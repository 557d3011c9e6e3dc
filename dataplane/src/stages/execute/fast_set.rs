//! Stage 6 for the usual `set`: no command is made of it, and its answer is one of a few lines.
//!
//! In: a datagram that is such a `set` and no more. Out: the line to answer, and the value stored, and
//! observed as the general way observes it (`commands::store`). Fails: `None`, for that way to
//! read it; nothing was done.

use super::Execute;
use crate::commands::{Known, plain_stored};
use driver_shim::Frame;
use gpu::{Entry, EntryFlags, ReqDesc};
use memcache::{Dialect, plain_set};
use store::KeyHash;

impl Execute {
    /// Carries out a datagram that is the usual `set` and no more. Returns the line to answer, which
    /// may be empty. `None`: as of [`Self::carry_out_where_it_stands`].
    ///
    /// A function of its own, with all that a `set` takes inlined: so the compiler sees of what is
    /// stored that it is stored whatever was there, and keeps it in registers.
    #[inline(never)]
    pub(super) fn set_where_it_stands(
        &mut self,
        frame: &Frame,
        entry: &Entry,
        desc: &ReqDesc,
    ) -> Option<&'static [u8]> {
        let text = desc.text(frame.bytes())?;
        if self.server.dialects.of(*text.first()?) != Dialect::Ascii {
            return None;
        }
        let set = plain_set(text, self.item_max_bytes)?;
        if set.used != text.len() || entry.flags.has(EntryFlags::LIMITED) {
            return None;
        }
        let (key, hash) = (set.what.key, known_hash(set.what.key, frame, desc));
        let known = Known { key, hash, ..Known::default() };
        Some(plain_stored(&mut self.ctx().knowing(known), &set))
    }
}

/// The hash of the key of a `set`, if the engine has made it: it guessed what the key is, and its hash
/// counts if that is the very key.
#[inline(always)]
fn known_hash(asked: &[u8], frame: &Frame, desc: &ReqDesc) -> Option<KeyHash> {
    let [guessed, ..] = &desc.keys;
    let known = guessed.bytes(frame.bytes()).is_some_and(|key| std::ptr::eq(key, asked));
    (known && desc.hash != 0).then_some(KeyHash(desc.hash))
}
