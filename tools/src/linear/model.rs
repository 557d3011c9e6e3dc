//! What one memcached item is, and what each command does to it.
//!
//! In: an item's state, a call and the answer that a client got. Out: the state after it, or
//! nothing, when no server could have answered so from that state. An item that may expire or be evicted
//! has a time in which it may go by itself ([`Lifetime`]).
//!
//! A CAS id is the server's own choice. It is unknown until some `gets` shows it, and then names
//! exactly that version of the item: every other version must have another.

use std::collections::HashMap;
use std::rc::Rc;

/// What a storage command requires of the item that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// `set`: nothing.
    None,
    /// `add`: that there is none.
    Absent,
    /// `replace`: that there is one.
    Present,
    /// `cas`: that it is the version with this id. The id must come from a `gets` that was
    /// answered before.
    Unchanged(u64),
}

/// One command on one key, its value as bytes or as a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Call<V = Vec<u8>> {
    /// `get`, `gets`, `gat`, `gats`, `mg`.
    Get,
    /// `set`, `add`, `replace`, `cas`, `ms`.
    Store {
        /// When to.
        condition: Condition,
        /// The new value.
        value: V,
        /// The client's flags.
        flags: u32,
    },
    /// `append`, `prepend`.
    Join {
        /// Before the value that is there.
        front: bool,
        /// What to add.
        value: V,
    },
    /// `delete`, `md`.
    Delete {
        /// Only the version with this id, as in [`Condition::Unchanged`].
        only: Option<u64>,
    },
    /// `incr`, `decr`, `ma`.
    Count {
        /// Add, or take away.
        up: bool,
        /// How much.
        by: u64,
    },
    /// `touch`.
    Touch,
    /// `flush_all`, `flush_prefix`.
    Flush,
}

/// When an item may go by itself: not before a time, and at the latest at another, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Lifetime {
    /// From then on it may be gone.
    pub may_end: u64,
    /// Behind that it is.
    pub must_end: u64,
}

impl Lifetime {
    /// It stays.
    pub const NEVER: Self = Self { may_end: u64::MAX, must_end: u64::MAX };
}

/// What came back, a value likewise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer<V = Vec<u8>> {
    /// A hit.
    Value {
        /// The value.
        value: V,
        /// The flags.
        flags: u32,
        /// The CAS id, where it was requested.
        cas: Option<u64>,
    },
    /// The number after counting.
    Number(u64),
    /// `STORED`, `DELETED`, `TOUCHED`, `HD`, `OK`.
    Done,
    /// A miss, `NOT_FOUND`, `EN`, `NF`.
    NotFound,
    /// `NOT_STORED`, `NS`.
    NotStored,
    /// `EXISTS`, `EX`.
    Exists,
    /// Counting something that is no number.
    NotANumber,
    /// None came: it may have taken effect once, at any time after the request, or never.
    Lost,
}

/// One command, and when it was under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Op {
    /// The client process. It has one request at a time, and none after [`Answer::Lost`].
    pub process: u32,
    /// What was asked.
    pub call: Call,
    /// What was answered.
    pub answer: Answer,
    /// When the request went out, in nanoseconds on a clock that all processes share.
    pub invoked: u64,
    /// When the answer was there. `u64::MAX` when none came.
    pub returned: u64,
    /// When the item goes by itself, if this says so: that of a new item, or of the one that was found.
    pub lifetime: Option<Lifetime>,
}

/// A value's number among all values of a key.
type ValueId = usize;

/// The item, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Item {
    value: ValueId,
    flags: u32,
    /// This version's id, once seen.
    cas: Option<u64>,
    pub(super) lifetime: Lifetime,
}

/// There is an item, or there is none.
pub type State = Option<Item>;

/// The values that a key had, by number.
#[derive(Debug, Default)]
pub struct Values {
    ids: HashMap<Rc<[u8]>, ValueId>,
    bytes: Vec<Rc<[u8]>>,
    /// Numbers of two values put together.
    joined: HashMap<(ValueId, ValueId), ValueId>,
}

impl Values {
    /// The value's number. Blanks at the end do not count: memcached leaves them behind a number
    /// that got shorter.
    fn id(&mut self, value: &[u8]) -> ValueId {
        let blanks = value.iter().rev().take_while(|b| **b == b' ').count();
        let value = &value[..value.len() - blanks];
        if let Some(id) = self.ids.get(value) {
            return *id;
        }
        let (bytes, id): (Rc<[u8]>, _) = (value.into(), self.bytes.len());
        self.bytes.push(Rc::clone(&bytes));
        self.ids.insert(bytes, id);
        id
    }

    fn join(&mut self, first: ValueId, second: ValueId) -> ValueId {
        if let Some(id) = self.joined.get(&(first, second)) {
            return *id;
        }
        let both = [&*self.bytes[first], &*self.bytes[second]].concat();
        let id = self.id(&both);
        self.joined.insert((first, second), id);
        id
    }

    fn number(&self, id: ValueId) -> Option<u64> {
        std::str::from_utf8(&self.bytes[id]).ok()?.parse().ok()
    }

    /// The state in words.
    pub fn show(&self, state: State) -> String {
        let Some(item) = state else { return "no item".to_owned() };
        let value = String::from_utf8_lossy(&self.bytes[item.value]).into_owned();
        let cas = item.cas.map_or_else(|| "not seen".to_owned(), |c| c.to_string());
        format!("{value:?}, flags {}, CAS id {cas}", item.flags)
    }
}

/// An operation, ready to be tried on states.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    call: Call<ValueId>,
    seen: Answer<ValueId>,
    invoked: u64,
    returned: u64,
    lifetime: Option<Lifetime>,
}

impl Step {
    /// The operation with its values in `values`.
    pub fn new(op: &Op, values: &mut Values) -> Self {
        let call = match &op.call {
            Call::Store { condition, value, flags } => {
                Call::Store { condition: *condition, value: values.id(value), flags: *flags }
            }
            Call::Join { front, value } => Call::Join { front: *front, value: values.id(value) },
            Call::Get => Call::Get,
            Call::Delete { only } => Call::Delete { only: *only },
            Call::Count { up, by } => Call::Count { up: *up, by: *by },
            Call::Touch => Call::Touch,
            Call::Flush => Call::Flush,
        };
        let seen = match &op.answer {
            Answer::Value { value, flags, cas } => {
                Answer::Value { value: values.id(value), flags: *flags, cas: *cas }
            }
            Answer::Number(n) => Answer::Number(*n),
            Answer::Done => Answer::Done,
            Answer::NotFound => Answer::NotFound,
            Answer::NotStored => Answer::NotStored,
            Answer::Exists => Answer::Exists,
            Answer::NotANumber => Answer::NotANumber,
            Answer::Lost => Answer::Lost,
        };
        Self { call, seen, invoked: op.invoked, returned: op.returned, lifetime: op.lifetime }
    }

    /// The CAS id that the answer showed.
    pub fn shows_cas(&self) -> Option<u64> {
        match self.seen {
            Answer::Value { cas, .. } => cas,
            _ => None,
        }
    }

    /// Whether an operation with this answer leaves every state as it is, but for what is known of
    /// the CAS id.
    pub fn only_looks(&self) -> bool {
        let reads = matches!(self.call, Call::Get | Call::Touch) && self.lifetime.is_none();
        match self.seen {
            Answer::Lost => false,
            Answer::Done | Answer::Number(_) | Answer::Value { .. } => reads,
            _ => true,
        }
    }

    /// The states after this operation, as far as it can have been answered so in `state`: with the item that is
    /// there, and with that gone by itself. `taken` says whether a CAS id was shown by an operation that came before.
    pub fn apply(
        &self,
        state: State,
        values: &mut Values,
        taken: impl Fn(u64) -> bool,
    ) -> [Option<State>; 2] {
        let there = state.is_none_or(|item| self.invoked <= item.lifetime.must_end);
        let gone = state.is_some_and(|Item { lifetime, .. }| {
            lifetime != Lifetime::NEVER && self.returned >= lifetime.may_end
        });
        let with = if there { self.apply_to(state, values, &taken) } else { None };
        let without = if gone { self.apply_to(None, values, &taken) } else { None };
        [with, without.filter(|without| with != Some(*without))]
    }

    /// The state after this operation in `state`, which is not left in between.
    pub(super) fn apply_to(
        &self,
        state: State,
        values: &mut Values,
        taken: &impl Fn(u64) -> bool,
    ) -> Option<State> {
        let (outcome, after) = self.effect(state, values);
        match (self.seen, outcome) {
            (Answer::Lost, _) => Some(after),
            (
                Answer::Value { value, flags, cas: Some(cas) },
                Answer::Value { value: v, flags: f, cas: known },
            ) => {
                let same_version = known.map_or_else(|| !taken(cas), |known| known == cas);
                (value == v && flags == f && same_version)
                    .then(|| after.map(|item| Item { cas: Some(cas), ..item }))
            }
            (
                Answer::Value { value, flags, cas: None },
                Answer::Value { value: v, flags: f, .. },
            ) => (value == v && flags == f).then_some(after),
            (seen, outcome) => (seen == outcome).then_some(after),
        }
    }

    /// What a server in `state` answers, and the state after that.
    fn effect(&self, state: State, values: &mut Values) -> (Answer<ValueId>, State) {
        let lifetime =
            self.lifetime.or_else(|| state.map(|item| item.lifetime)).unwrap_or(Lifetime::NEVER);
        let version = |value, flags| Some(Item { value, flags, cas: None, lifetime });
        match (self.call, state) {
            (Call::Get, Some(item @ Item { value, flags, cas, .. })) => {
                (Answer::Value { value, flags, cas }, Some(Item { lifetime, ..item }))
            }
            (Call::Store { condition, value, flags }, _) => match (condition, state) {
                (Condition::Absent, Some(_)) | (Condition::Present, None) => {
                    (Answer::NotStored, state)
                }
                (Condition::Unchanged(_), None) => (Answer::NotFound, state),
                // An id that was never shown for this version is another version's: a client that sends it
                // has seen that one's id.
                (Condition::Unchanged(id), Some(item)) if item.cas != Some(id) => {
                    (Answer::Exists, state)
                }
                _ => {
                    let lifetime = self.lifetime.unwrap_or(Lifetime::NEVER);
                    (Answer::Done, Some(Item { value, flags, cas: None, lifetime }))
                }
            },
            (Call::Join { .. }, None) => (Answer::NotStored, None),
            (Call::Join { front, value }, Some(item)) => {
                let (first, second) = if front { (value, item.value) } else { (item.value, value) };
                (Answer::Done, version(values.join(first, second), item.flags))
            }
            (Call::Delete { only: Some(id) }, Some(item)) if item.cas != Some(id) => {
                (Answer::Exists, state)
            }
            (Call::Delete { .. }, Some(_)) => (Answer::Done, None),
            (Call::Count { up, by }, Some(item)) => {
                let Some(number) = values.number(item.value) else {
                    return (Answer::NotANumber, state);
                };
                let number = if up { number.wrapping_add(by) } else { number.saturating_sub(by) };
                let value = values.id(number.to_string().as_bytes());
                (Answer::Number(number), version(value, item.flags))
            }
            (Call::Touch, Some(item)) => (Answer::Done, Some(Item { lifetime, ..item })),
            (Call::Flush, _) => (Answer::Done, None),
            (Call::Get | Call::Delete { .. } | Call::Count { .. } | Call::Touch, None) => {
                (Answer::NotFound, None)
            }
        }
    }
}
