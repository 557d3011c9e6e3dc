//! Keys that may be longer than a block.
//!
//! In: a window. Out: how long the word there is, and the hashes of several. Nothing fails.

use crate::plain::vector::{KEY_BLOCK, LONG_BLOCK, ROW, Vector};
use crate::plain::window::{WINDOW, part};
use memcache::KEY_MAX_BYTES;
use store::Store;

/// How many bytes from `at` on come before the first blank or control character. 0: more than a key may
/// have.
#[inline(always)]
pub(super) fn long_word_len(window: &[u8; WINDOW], at: usize, vector: impl Vector) -> usize {
    let mut len = 0;
    while len <= KEY_MAX_BYTES {
        let more = vector.word_len(part(window, at + len));
        len += more;
        if more < KEY_BLOCK {
            break;
        }
    }
    if len <= KEY_MAX_BYTES { len } else { 0 }
}

/// The hashes of the first `lens[n]` bytes of `keys[n]`. Not inlined: where most keys are short, what hashes those has
/// the registers.
#[inline(never)]
pub(super) fn hash_long(
    store: &Store,
    keys: [&[u8; LONG_BLOCK]; ROW],
    lens: [u8; ROW],
    vector: impl Vector,
) -> [u64; ROW] {
    vector.hash_long(store, keys, lens)
}
