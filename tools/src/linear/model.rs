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

/// One command on one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Call {
    /// `get`, `gets`, `gat`, `gats`, `mg`.
    Get,
    /// `set`, `add`, `replace`, `cas`, `ms`.
    Store {
        /// When to.
        condition: Condition,
        /// The new value.
        value: Vec<u8>,
        /// The client's flags.
        flags: u32,
    },
    /// `append`, `prepend`.
    Join {
        /// Before the value that is there.
        front: bool,
        /// What to add.
        value: Vec<u8>,
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

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// A hit.
    Value {
        /// The value.
        value: Vec<u8>,
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

/// A call with its values as numbers.
#[derive(Debug, Clone, Copy)]
enum Numbered {
    Get,
    Store { condition: Condition, value: ValueId, flags: u32 },
    Join { front: bool, value: ValueId },
    Delete { only: Option<u64> },
    Count { up: bool, by: u64 },
    Touch,
    Flush,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Value { value: ValueId, flags: u32, cas: Option<u64> },
    Number(u64),
    Done,
    NotFound,
    NotStored,
    Exists,
    NotANumber,
}

/// An operation, ready to be tried on states.
#[derive(Debug, Clone, Copy)]
pub struct Step {
    call: Numbered,
    /// `None` when the answer was lost.
    seen: Option<Outcome>,
    invoked: u64,
    returned: u64,
    lifetime: Option<Lifetime>,
}

impl Step {
    /// The operation with its values in `values`.
    pub fn new(op: &Op, values: &mut Values) -> Self {
        let call = match &op.call {
            Call::Get => Numbered::Get,
            Call::Store { condition, value, flags } => {
                Numbered::Store { condition: *condition, value: values.id(value), flags: *flags }
            }
            Call::Join { front, value } => {
                Numbered::Join { front: *front, value: values.id(value) }
            }
            Call::Delete { only } => Numbered::Delete { only: *only },
            Call::Count { up, by } => Numbered::Count { up: *up, by: *by },
            Call::Touch => Numbered::Touch,
            Call::Flush => Numbered::Flush,
        };
        let seen = match &op.answer {
            Answer::Value { value, flags, cas } => {
                Some(Outcome::Value { value: values.id(value), flags: *flags, cas: *cas })
            }
            Answer::Number(n) => Some(Outcome::Number(*n)),
            Answer::Done => Some(Outcome::Done),
            Answer::NotFound => Some(Outcome::NotFound),
            Answer::NotStored => Some(Outcome::NotStored),
            Answer::Exists => Some(Outcome::Exists),
            Answer::NotANumber => Some(Outcome::NotANumber),
            Answer::Lost => None,
        };
        Self { call, seen, invoked: op.invoked, returned: op.returned, lifetime: op.lifetime }
    }

    /// The CAS id that the answer showed.
    pub fn shows_cas(&self) -> Option<u64> {
        match self.seen {
            Some(Outcome::Value { cas, .. }) => cas,
            _ => None,
        }
    }

    /// Whether an operation with this answer leaves every state as it is, but for what is known of
    /// the CAS id.
    pub fn only_looks(&self) -> bool {
        let reads = matches!(self.call, Numbered::Get | Numbered::Touch) && self.lifetime.is_none();
        self.seen.is_some_and(|seen| {
            let changes =
                matches!(seen, Outcome::Done | Outcome::Number(_) | Outcome::Value { .. });
            reads || !changes
        })
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
            (None, _) => Some(after),
            (
                Some(Outcome::Value { value, flags, cas: Some(cas) }),
                Outcome::Value { value: v, flags: f, cas: known },
            ) => {
                let same_version = known.map_or_else(|| !taken(cas), |known| known == cas);
                (value == v && flags == f && same_version)
                    .then(|| after.map(|item| Item { cas: Some(cas), ..item }))
            }
            (
                Some(Outcome::Value { value, flags, cas: None }),
                Outcome::Value { value: v, flags: f, .. },
            ) => (value == v && flags == f).then_some(after),
            (Some(seen), outcome) => (seen == outcome).then_some(after),
        }
    }

    /// What a server in `state` answers, and the state after that.
    fn effect(&self, state: State, values: &mut Values) -> (Outcome, State) {
        let lifetime =
            self.lifetime.or_else(|| state.map(|item| item.lifetime)).unwrap_or(Lifetime::NEVER);
        let version = |value, flags| Some(Item { value, flags, cas: None, lifetime });
        match (self.call, state) {
            (Numbered::Get, Some(item @ Item { value, flags, cas, .. })) => {
                (Outcome::Value { value, flags, cas }, Some(Item { lifetime, ..item }))
            }
            (Numbered::Store { condition, value, flags }, _) => match (condition, state) {
                (Condition::Absent, Some(_)) | (Condition::Present, None) => {
                    (Outcome::NotStored, state)
                }
                (Condition::Unchanged(_), None) => (Outcome::NotFound, state),
                // An id that was never shown for this version is another version's: a client that sends it
                // has seen that one's id.
                (Condition::Unchanged(id), Some(item)) if item.cas != Some(id) => {
                    (Outcome::Exists, state)
                }
                _ => {
                    let lifetime = self.lifetime.unwrap_or(Lifetime::NEVER);
                    (Outcome::Done, Some(Item { value, flags, cas: None, lifetime }))
                }
            },
            (Numbered::Join { .. }, None) => (Outcome::NotStored, None),
            (Numbered::Join { front, value }, Some(item)) => {
                let (first, second) = if front { (value, item.value) } else { (item.value, value) };
                (Outcome::Done, version(values.join(first, second), item.flags))
            }
            (Numbered::Delete { only: Some(id) }, Some(item)) if item.cas != Some(id) => {
                (Outcome::Exists, state)
            }
            (Numbered::Delete { .. }, Some(_)) => (Outcome::Done, None),
            (Numbered::Count { up, by }, Some(item)) => {
                let Some(number) = values.number(item.value) else {
                    return (Outcome::NotANumber, state);
                };
                let number = if up { number.wrapping_add(by) } else { number.saturating_sub(by) };
                let value = values.id(number.to_string().as_bytes());
                (Outcome::Number(number), version(value, item.flags))
            }
            (Numbered::Touch, Some(item)) => (Outcome::Done, Some(Item { lifetime, ..item })),
            (Numbered::Flush, _) => (Outcome::Done, None),
            (
                Numbered::Get | Numbered::Delete { .. } | Numbered::Count { .. } | Numbered::Touch,
                None,
            ) => (Outcome::NotFound, None),
        }
    }
}
