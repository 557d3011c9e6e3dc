//! Keys in lines of text, where any byte of a key could end the line.
//!
//! In: a key. Out: text without blanks and line ends. Never fails.

/// Appends the key as memcached writes it in dumps and logs: percent-encoded, but for the
/// unreserved characters of RFC 3986.
pub(crate) fn put_encoded(key: &[u8], text: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &b in key {
        if b.is_ascii_alphanumeric() || b"-._~".contains(&b) {
            text.push(b);
        } else {
            text.extend([b'%', DIGITS[usize::from(b >> 4)], DIGITS[usize::from(b & 15)]]);
        }
    }
}

/// Appends the key as it is, as clients of old commands expect it; encoded if it holds a blank or
/// a control character, as only a key of the binary protocol can.
pub(crate) fn put_plain(key: &[u8], text: &mut Vec<u8>) {
    if key.iter().any(|b| *b <= b' ') {
        put_encoded(key, text);
    } else {
        text.extend_from_slice(key);
    }
}

/// The encoded key as a string.
pub fn encoded(key: &[u8]) -> String {
    let mut text = Vec::with_capacity(key.len());
    put_encoded(key, &mut text);
    String::from_utf8(text).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_encoded_as_memcached_does() {
        assert_eq!(encoded(b"user:a/b-c_d.e~f%"), "user%3Aa%2Fb-c_d.e~f%25");
        assert_eq!(encoded(b"img\xe9\r\n\0"), "img%E9%0D%0A%00");
        let mut text = Vec::new();
        put_plain(b"a:b\xe9", &mut text);
        put_plain(b" c", &mut text);
        assert_eq!(text, b"a:b\xe9%20c");
    }
}
