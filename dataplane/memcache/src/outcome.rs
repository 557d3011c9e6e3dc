//! What became of a command, and the bytes that say so in each dialect.
//!
//! In: an [`Outcome`], or what was found under a key. Out: the reply, in the command's [`Form`].
//! Nothing here uses a store or counts anything. Never fails: a sink that is full remembers it.

use super::binary::{self, Status};
use super::command::{Echo, Form};
use super::meta;
use super::refusal::Refusal;
use super::sink::{Count, Sink, Tail};
use super::text;
pub use base::Claim;
use base::memory_file::Place;
use std::fmt::Display;

/// What became of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome<'a> {
    /// Done, and there is nothing to say of it.
    Done,
    /// Stored under this CAS id.
    Stored(u64),
    /// Not stored.
    NotStored(Unstored),
    /// Deleted, or marked as out of date.
    Deleted,
    /// Given a new exptime.
    Touched,
    /// The number is another now.
    Number(Number),
    /// The item has another CAS id.
    Exists,
    /// There is no such item.
    NotFound,
    /// The version.
    Version(&'a str),
    /// These lines, in memcached's words.
    Lines(&'a [u8]),
    /// The client may go.
    Bye,
    /// Refused.
    Refused(Refusal),
}

/// Why a value was not stored that could be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unstored {
    /// There is something (`add`), or nothing (`replace`, `append`, `prepend`), or both together
    /// would be too long.
    Condition,
    /// The item has another CAS id.
    Exists,
    /// A CAS id was given, and there is no item.
    NotFound,
}

/// A number that was counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Number {
    /// The number now.
    pub number: u64,
    /// The CAS id of its item.
    pub cas: u64,
    /// There was none before.
    pub created: bool,
    /// How long it lives.
    pub ttls: Ttls,
}

/// How long something lives, in seconds; `None` for ever.
pub type Ttl = Option<u32>;

/// How long an item lives, as the reader of its answer comes to know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Ttls {
    /// When it was found.
    pub found: Ttl,
    /// By flag T.
    pub touched: Option<Ttl>,
    /// By flag N, of an item that was made.
    pub created: Option<Ttl>,
}

impl Ttls {
    /// What counts behind the flag with this letter, if `before` did so before it.
    pub(super) fn behind(&self, letter: u8, before: Ttl) -> Ttl {
        match letter {
            b'T' => self.touched.unwrap_or(before),
            b'N' => self.created.unwrap_or(before),
            _ => before,
        }
    }
}

/// The bytes of a value.
#[expect(clippy::len_without_is_empty, reason = "nobody asks")]
pub trait Body: Copy {
    /// How many.
    fn len(&self) -> usize;
    /// Appends all of them, and what stands behind them.
    fn put(&self, tail: Tail, out: &mut impl Sink);
}

impl Body for &[u8] {
    #[inline]
    fn len(&self) -> usize {
        (**self).len()
    }

    #[inline]
    fn put(&self, tail: Tail, out: &mut impl Sink) {
        out.put_with_tail(self, tail);
    }
}

/// What a look-up found.
#[derive(Debug, Clone, Copy)]
pub struct Hit<'a, B> {
    /// The key.
    pub key: &'a [u8],
    /// The client's own.
    pub flags: u32,
    /// The CAS id, if it is to be sent.
    pub cas: Option<u64>,
    /// The value.
    pub value: B,
}

/// What a client needs to know to READ an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stag {
    /// The name of its key.
    pub stag: u64,
    /// Bytes to read.
    pub read_len: usize,
}

/// What an item can be read by without a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReadBy {
    /// Over the network.
    pub stag: Option<Stag>,
    /// In the memory file.
    pub place: Option<Place>,
}

/// What a look-up by `mg` found.
#[derive(Debug, Clone, Copy)]
pub struct Fetched<'a, B> {
    /// The key.
    pub key: &'a [u8],
    /// It is shown in base64.
    pub base64_key: bool,
    /// The value.
    pub value: B,
    /// The client's own.
    pub flags: u32,
    /// The CAS id.
    pub cas: u64,
    /// How long it lives.
    pub ttls: Ttls,
    /// A client had read it before.
    pub fetched: bool,
    /// Seconds since the last read, or since it was stored.
    pub idle_s: u32,
    /// It is out of date.
    pub stale: bool,
    /// Which client is to fetch it anew.
    pub claim: Claim,
    /// The client has the value, and is not sent it again.
    pub known: bool,
    /// What it is to be read by.
    pub by: ReadBy,
}

/// What is said of an item itself (`me`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Facts<'a> {
    /// The key.
    pub key: &'a [u8],
    /// It is shown in base64.
    pub base64_key: bool,
    /// Seconds since it expired, negative before; -1 if it never does.
    pub expired_s: i64,
    /// Seconds since it was read or stored.
    pub idle_s: i64,
    /// The CAS id.
    pub cas: u64,
    /// A client has read it.
    pub fetched: bool,
    /// Its size class, from 1.
    pub class: usize,
    /// Bytes of memory.
    pub bytes: usize,
}

/// Answers one command.
#[derive(Debug)]
pub struct Reply<'a, S> {
    form: &'a Form<'a>,
    /// Where the answer goes.
    pub out: &'a mut S,
}

/// Whether what `put` writes in this form is so many bytes at most.
#[inline]
pub fn fits(form: &Form<'_>, left: Option<usize>, put: impl FnOnce(&mut Reply<'_, Count>)) -> bool {
    left.is_none_or(|left| {
        let mut out = Count::default();
        put(&mut Reply::new(form, &mut out));
        out.bytes <= left
    })
}

impl<'a, S: Sink> Reply<'a, S> {
    /// For a command that is answered in this form.
    #[inline]
    pub fn new(form: &'a Form<'a>, out: &'a mut S) -> Self {
        Self { form, out }
    }

    /// The form.
    #[inline]
    pub fn form(&self) -> &'a Form<'a> {
        self.form
    }

    /// What of a meta command is repeated.
    pub fn echo(&self) -> Option<&'a Echo<'a>> {
        match self.form {
            Form::Meta(echo) => Some(echo),
            _ => None,
        }
    }

    /// Says what became of the command.
    #[inline]
    pub fn put(&mut self, outcome: Outcome<'_>) {
        match self.form {
            Form::Text { noreply: true } => {}
            Form::Text { .. } => text::put(outcome, self.out),
            Form::Meta(echo) => meta::put_sized(echo, outcome, None, ReadBy::default(), self.out),
            Form::Binary { header, quiet } => binary::put(header, *quiet, outcome, self.out),
        }
    }

    /// The same of a value to be stored, of which so many bytes are there now; what to read it by.
    #[inline]
    pub fn put_sized(&mut self, outcome: Outcome<'_>, len: usize, by: ReadBy) {
        match self.form {
            Form::Meta(echo) => meta::put_sized(echo, outcome, Some(len), by, self.out),
            _ => self.put(outcome),
        }
    }

    /// Whether the value of a hit fits. If not, nothing of it is to be put.
    #[inline]
    pub fn admits(&mut self, value_bytes: usize) -> bool {
        match self.form {
            Form::Binary { header, .. } if header.is_touch() => true,
            Form::Meta(Echo { value: false, .. }) => true,
            _ => self.out.admits(value_bytes),
        }
    }

    /// Whether what `put` writes fits, where a reply is refused as a whole that does not. Nothing is written.
    pub fn has_left(&self, put: impl FnOnce(&mut Reply<'_, Count>)) -> bool {
        fits(self.form, self.out.left(), put)
    }

    /// One key was found, the last of those asked for or not.
    #[inline]
    pub fn hit(&mut self, hit: &Hit<'_, impl Body>, last: bool) {
        match self.form {
            Form::Binary { header, .. } => binary::put_hit(header, hit, self.out),
            _ => text::put_value(hit, if last { text::LAST } else { text::MORE }, self.out),
        }
    }

    /// One key was not found.
    #[inline]
    pub fn miss(&mut self, key: &[u8]) {
        match self.form {
            Form::Binary { header, quiet: false } => binary::put_miss(header, key, self.out),
            Form::Meta(echo) if !echo.quiet => meta::put_miss(echo, self.out),
            _ => {}
        }
    }

    /// Those were all keys, the last of which was not found.
    #[inline]
    pub fn end_of_hits(&mut self) {
        if let Form::Text { .. } = self.form {
            self.out.put(text::END);
        }
    }

    /// `mg` has found something.
    pub fn fetched(&mut self, found: &Fetched<'_, impl Body>) {
        if let Form::Meta(echo) = self.form {
            meta::put_fetched(echo, found, self.out);
        }
    }

    /// `me` has found something, or not.
    pub fn facts(&mut self, facts: Option<&Facts<'_>>) {
        meta::put_facts(facts, self.out);
    }

    /// One row of statistics.
    pub fn row(&mut self, name: &str, value: &dyn Display) {
        match self.form {
            Form::Binary { header, .. } => {
                let value = value.to_string();
                binary::put_row(header, name.as_bytes(), value.as_bytes(), self.out);
            }
            _ => self.out.put(format!("STAT {name} {value}\r\n").as_bytes()),
        }
    }

    /// Those were all rows. Behind them, or instead of them, come lines of text, if there are any.
    pub fn end_of_rows(&mut self, text: Option<&[u8]>) {
        match self.form {
            Form::Binary { header, .. } => {
                if let Some(text) = text {
                    binary::put_row(header, b"detailed", &[text, text::END].concat(), self.out);
                }
                // The last packet is an empty one.
                binary::put_row(header, b"", b"", self.out);
            }
            _ => {
                self.out.put(text.unwrap_or_default());
                self.out.put(text::END);
            }
        }
    }

    /// No rows, but this line: that it was done, or why not.
    pub fn no_rows(&mut self, line: &[u8], done: bool) {
        match self.form {
            Form::Binary { .. } if done => self.end_of_rows(None),
            Form::Binary { header, .. } => binary::put_status(header, Status::NotFound, self.out),
            _ => self.out.put(line),
        }
    }
}
