//! Where commands are carried out, and what comes of a conversation.
//!
//! In: a session, and where its thread counts. Out: what every verb needs. Never fails.

use super::ahead::Ahead;
use crate::observe::{Observer, OpCounters, Server};
use memcache::FarEnd;
use memcache::admin::Events;
use store::{Cursor, KeyHash, Session, Supposed};

/// Where commands are carried out.
#[derive(Debug)]
pub struct Ctx<'a> {
    /// The thread's way into the store.
    pub session: &'a mut Session,
    /// Where it is counted and shown.
    pub observer: Observer<'a>,
    /// What an engine has found out about a key.
    pub(crate) known: Known<'a>,
    /// How far a command goes that a connection may answer in turns.
    pub(super) turn: Turn,
    /// The keys that are likely to come.
    pub(super) ahead: Option<&'a mut Ahead>,
}

/// How far a command goes at once, and where it goes on. Without turns: to its end, from its start.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    /// After so many keys a get is to be answered in part, if its dialect can go on.
    pub(super) keys_max: u64,
    /// Where a dump goes on.
    pub(super) dump_from: Cursor,
}

/// What is known beforehand of one key, by where that stands: of an equal key elsewhere, nothing is.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Known<'a> {
    /// The key.
    pub(crate) key: &'a [u8],
    /// Its hash.
    pub(crate) hash: Option<KeyHash>,
    /// Where its item may be; the look-up that uses it leaves [`Supposed::Right`] or [`Supposed::Wrong`] here.
    pub(crate) hint: Supposed,
}

impl Known<'_> {
    /// The hash of a key that a command names, if it is this one, or the next of those that were likely to come.
    #[inline]
    pub(super) fn hash(&self, ahead: &mut Option<&mut Ahead>, key: &[u8]) -> Option<KeyHash> {
        match ahead {
            Some(ahead) => ahead.hash(key),
            None => self.hash.filter(|_| std::ptr::eq(self.key, key)),
        }
    }

    /// Where the item of a key may be. Of another key nothing is known, in `none`.
    #[inline]
    pub(super) fn hint<'h>(&'h mut self, key: &[u8], none: &'h mut Supposed) -> &'h mut Supposed {
        if std::ptr::eq(self.key, key) { &mut self.hint } else { none }
    }
}

impl<'a> Ctx<'a> {
    /// By this session, counted in `ops`.
    #[inline]
    pub fn new(session: &'a mut Session, ops: &'a OpCounters, server: &'a Server) -> Self {
        let observer = Observer { ops, server };
        Self {
            session,
            observer,
            known: Known::default(),
            turn: Turn { keys_max: u64::MAX, dump_from: Cursor::default() },
            ahead: None,
        }
    }

    /// With what is known of a key.
    #[inline]
    pub(crate) fn knowing(self, known: Known<'a>) -> Self {
        Self { known, ..self }
    }

    /// With the keys that are likely to come.
    #[inline]
    pub fn expecting(self, ahead: &'a mut Ahead) -> Self {
        Self { ahead: Some(ahead), ..self }
    }

    /// The hash of a key that a command names, if it is known.
    #[inline]
    pub(super) fn hash(&mut self, key: &[u8]) -> Option<KeyHash> {
        self.known.hash(&mut self.ahead, key)
    }

    /// The state of the process.
    #[inline]
    pub fn server(&self) -> &'a Server {
        self.observer.server
    }
}

/// Whether the conversation goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Read the next request.
    Continue,
    /// The sink is full, or the turn is over: the rest of the command is for later.
    Rest(Rest),
    /// From now on the client is sent only the lines of these kinds of events.
    Watch(Events),
    /// The client wants a queue pair: the conversation answers.
    Connect(FarEnd),
    /// The client said `quit`, or it is unknown where its next request begins.
    Close,
}

/// What is left of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rest {
    /// All: nothing was done.
    All,
    /// The keys in so many bytes at the end.
    Keys(usize),
    /// A dump from here on.
    Dump(Cursor),
}
