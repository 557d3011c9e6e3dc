//! Which requests of a burst must not go before what stands before them: reads of keys that a request
//! before them may change, and `set`s of keys that one before them reads.
//!
//! In: each frame of a burst that the fast path leaves to the general stages, and the hash of each
//! key that it might read, or store. Out: whether that must be left too. A set of hashed keys, 4,096 bits: a
//! key that is in it by chance costs one request the general stages. What may change any key, or
//! changes the path itself, stops the fast path until the burst's end.

use memcache::{
    Arith, Command, Delete, Dialect, Dialects, Echo, Fetch, Form, Get, KEY_MAX_BYTES, Keys, Parsed,
    PlainSet, Store as Set, Touch, Verb, plain_set, text,
};
use store::Store;
use wire::{Class, PlainMatcher, classify, udp_frame};

/// Keys that requests of the burst may change.
#[derive(Debug)]
pub(super) struct Order {
    /// Whether any key may change.
    any: bool,
    /// Whether every key may change.
    all: bool,
    /// A bit for some of a hash's bits: such a key may change.
    bits: [u64; WORDS],
}

/// So many that of a burst with as many writes as reads few reads are held back by chance.
const WORDS: usize = 64;

impl Default for Order {
    fn default() -> Self {
        Self { any: false, all: false, bits: [0; WORDS] }
    }
}

/// Where a hash's bit is.
#[inline(always)]
fn bit(hash: u64) -> (usize, u64) {
    ((hash >> 6) as usize % WORDS, 1 << (hash & 63))
}

/// How requests are read.
#[derive(Debug, Clone, Copy)]
struct Reading {
    dialects: Dialects,
    item_max_bytes: usize,
}

/// What a request may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Changes<'a> {
    Nothing,
    /// Nothing, but these are read.
    ButReads(Keys<'a>),
    Key(&'a [u8]),
    Anything,
}

impl Order {
    /// Begins a burst.
    #[inline(always)]
    pub(super) fn begin(&mut self) {
        if self.any {
            *self = Self::default();
        }
    }

    /// Whether a request that is left to the general stages may change this key: a read of it must wait.
    #[inline(always)]
    pub(super) fn may_change(&self, hash: u64) -> bool {
        self.any && self.has(hash)
    }

    /// Whether it may change any.
    #[inline(always)]
    pub(super) fn may_change_any(&self) -> bool {
        self.all
    }

    fn has(&self, hash: u64) -> bool {
        let (word, bit) = bit(hash);
        self.bits.get(word).is_none_or(|word| word & bit != 0)
    }

    /// A frame goes to the general stages.
    #[cold]
    #[inline(never)]
    pub(super) fn note(
        &mut self,
        frame: &[u8],
        plain: &PlainMatcher,
        dialects: Dialects,
        store: &Store,
    ) {
        let item_max_bytes = store.config().item_max_bytes;
        match changes(frame, plain, Reading { dialects, item_max_bytes }) {
            Changes::Nothing | Changes::ButReads(_) => {}
            Changes::Key(key) => self.add(store.hash(key).0),
            Changes::Anything => {
                self.bits = [u64::MAX; WORDS];
                (self.any, self.all) = (true, true);
            }
        }
    }

    /// Notes the keys that a frame reads which goes to the general stages. `false`: it may change something.
    pub(super) fn note_reads(
        &mut self,
        frame: &[u8],
        plain: &PlainMatcher,
        dialects: Dialects,
        store: &Store,
    ) -> bool {
        let item_max_bytes = store.config().item_max_bytes;
        match changes(frame, plain, Reading { dialects, item_max_bytes }) {
            Changes::Nothing => true,
            Changes::ButReads(keys) => {
                keys.iter().for_each(|key| self.add(store.hash(key).0));
                true
            }
            Changes::Key(_) | Changes::Anything => false,
        }
    }

    /// Adds a key that a request that is left may change.
    pub(super) fn add(&mut self, hash: u64) {
        let (word, bit) = bit(hash);
        if let Some(word) = self.bits.get_mut(word) {
            *word |= bit;
        }
        self.any = true;
    }
}

/// What a frame may change, if it is a request.
fn changes<'a>(frame: &'a [u8], plain: &PlainMatcher, read: Reading) -> Changes<'a> {
    let class = plain.classify(frame).unwrap_or_else(|| classify(frame, plain.local()));
    let Class::Kv(at) = class else { return Changes::Nothing };
    let udp = usize::from(at.l4);
    let Some(&[hi, lo]) = frame.get(udp + 4..).and_then(<[u8]>::first_chunk) else {
        return Changes::Anything;
    };
    let end = udp + usize::from(u16::from_be_bytes([hi, lo]));
    match udp_frame::split(frame.get(udp + 8..end).unwrap_or_default()) {
        Ok((_, text)) => changed_by(text, read),
        // It is dropped.
        Err(_) => Changes::Nothing,
    }
}

/// What the request may change, by the parsers that read it when it is carried out.
fn changed_by(text: &[u8], read: Reading) -> Changes<'_> {
    if read.dialects.of(text.first().copied().unwrap_or_default()) == Dialect::Binary {
        return by_binary(text);
    }
    // By far the most usual.
    if let Some(PlainSet { what, used, .. }) = plain_set(text, read.item_max_bytes)
        && used == text.len()
    {
        return Changes::Key(what.key);
    }
    match text::parse(text, read.item_max_bytes) {
        Parsed::Command { command, used } if used == text.len() => by_command(&command),
        _ => Changes::Anything,
    }
}

fn by_command<'a>(command: &Command<'a>) -> Changes<'a> {
    match (command.verb, command.form) {
        (Verb::Get(Get { touch: None, keys, .. }), _) => Changes::ButReads(keys),
        (Verb::Verbosity | Verb::Version | Verb::Noop, _) => Changes::Nothing,
        // In base64 it is another.
        (_, Form::Meta(Echo { base64_key: true, .. })) => Changes::Anything,
        (
            Verb::Store(Set { key, .. })
            | Verb::Arith(Arith { key, .. })
            | Verb::Delete(Delete { key, .. })
            | Verb::Touch(Touch { key, .. })
            | Verb::Fetch(Fetch { key, .. })
            | Verb::Debug { key },
            _,
        ) => Changes::Key(key),
        _ => Changes::Anything,
    }
}

/// What a request of the binary protocol may change: its key, if it is alone.
fn by_binary(text: &[u8]) -> Changes<'_> {
    let Some(&[_, _, key_hi, key_lo, extras, _, _, _, a, b, c, d]) = text.first_chunk() else {
        return Changes::Anything;
    };
    let key_len = usize::from(u16::from_be_bytes([key_hi, key_lo]));
    let body_len = u32::from_be_bytes([a, b, c, d]) as usize;
    let key = text.get(24 + usize::from(extras)..).and_then(|rest| rest.get(..key_len));
    match key {
        Some(key) if (1..=KEY_MAX_BYTES).contains(&key_len) && text.len() == 24 + body_len => {
            Changes::Key(key)
        }
        _ => Changes::Anything,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn knows_what_a_request_may_change() {
        let read = Reading { dialects: Dialects::Auto, item_max_bytes: 1024 };
        let key = |key: &'static [u8]| Changes::Key(key);
        for (text, want) in [
            (&b"version\r\n"[..], Changes::Nothing),
            (b"get a\r\nset b 0 0 1\r\n1\r\n", Changes::Anything),
            (b"get a", Changes::Anything),
            (b"delete a\r\n", key(b"a")),
            (b"incr a 1 noreply\r\n", key(b"a")),
            (b"touch a 0\r\nflush_all\r\n", Changes::Anything),
            (b"set a 0 0 3\r\nx\n1\r\n", key(b"a")),
            (b"mn\r\n", Changes::Nothing),
            (b"mg a v\r\n", key(b"a")),
            (b"ms a 1 T0\r\n1\r\n", key(b"a")),
            (b"add a 4294967295 -1 1 noreply\r\n1\r\n", key(b"a")),
            // No commands: what follows is one.
            (b"set a 0 0 8 x y\r\ndelete b\r\n", Changes::Anything),
            (b"cas a 0 0 8\r\ndelete b\r\n", Changes::Anything),
            (b"set a 0 0\x0113 3\r\nxxx\r\ndelete b\r\n", Changes::Anything),
            (b"set  a 0 0 1 noreply\r\n1\r\n", key(b"a")),
            (b"cas a 0 0 1 7\r\n1\r\n", key(b"a")),
            (b"set a 0 0 1\r\n1\r\ndelete b\r\n", Changes::Anything),
            (b"set a 0 0 4294967296\r\n1\r\n", Changes::Anything),
            (b"set a\r\n", Changes::Anything),
            (b"gat 0 a b\r\n", Changes::Anything),
            (b"ms YQ== 1 b\r\n1\r\n", Changes::Anything),
            (b"flush_all\r\n", Changes::Anything),
            (b"\n", Changes::Anything),
            (b"delete\r\n", Changes::Anything),
        ] {
            assert_eq!(changed_by(text, read), want, "{}", String::from_utf8_lossy(text));
        }
        for (text, want) in [(&b"get a b\r\n"[..], &[&b"a"[..], b"b"][..]), (b"gets a\n", &[b"a"])]
        {
            let Changes::ButReads(keys) = changed_by(text, read) else { panic!("{text:?}") };
            assert_eq!(keys.iter().collect::<Vec<_>>(), want);
        }
        let mut set = [&[0x80, 1, 0, 1, 8, 0, 0, 0, 0, 0, 0, 10][..], &[0; 20], b"a\n"].concat();
        assert_eq!(changed_by(&set, read), key(b"a"));
        set.push(0);
        assert_eq!(changed_by(&set, read), Changes::Anything);
    }
}
