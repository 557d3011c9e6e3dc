//! Keys in base64 (flag b of the meta commands).
//!
//! In: text. Out: the key. Fails: what is no base64, or too long a key, is none.

use base::KEY_MAX_BYTES;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

/// The key that a client means by base64 `text`. `None` for what is none, and for what is too long.
pub(super) fn decode<'b>(text: &[u8], key: &'b mut [u8; KEY_MAX_BYTES]) -> Option<&'b [u8]> {
    let len = BASE64_STANDARD.decode_slice(text, key).ok()?;
    key.get(..len)
}
