//! An operation in one line, for a human who looks for the fault.

use super::check::Violation;
use super::model::{Answer, Call, Condition, Lifetime, Op};
use std::fmt;

/// Nanoseconds to a microsecond.
const NS_PER_US: u64 = 1_000;

fn text(value: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(value))
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Get => f.write_str("get"),
            Self::Store { condition, value, flags } => {
                match condition {
                    Condition::None => f.write_str("set")?,
                    Condition::Absent => f.write_str("add")?,
                    Condition::Present => f.write_str("replace")?,
                    Condition::Unchanged(id) => write!(f, "cas {id}")?,
                }
                write!(f, " {} flags {flags}", text(value))
            }
            Self::Join { front: true, value } => write!(f, "prepend {}", text(value)),
            Self::Join { front: false, value } => write!(f, "append {}", text(value)),
            Self::Delete { only: None } => f.write_str("delete"),
            Self::Delete { only: Some(id) } => write!(f, "delete {id}"),
            Self::Count { up, by } => write!(f, "{} {by}", if *up { "incr" } else { "decr" }),
            Self::Touch => f.write_str("touch"),
            Self::Flush => f.write_str("flush"),
        }
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Value { value, flags, cas } => {
                write!(f, "{} flags {flags}", text(value))?;
                cas.map_or(Ok(()), |id| write!(f, " id {id}"))
            }
            Self::Number(n) => n.fmt(f),
            Self::Done => f.write_str("done"),
            Self::NotFound => f.write_str("not found"),
            Self::NotStored => f.write_str("not stored"),
            Self::Exists => f.write_str("exists"),
            Self::NotANumber => f.write_str("not a number"),
            Self::Lost => f.write_str("(no answer)"),
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let us = |ns: u64| format!("{}.{:03}", ns / NS_PER_US, ns % NS_PER_US);
        let returned =
            if self.returned == u64::MAX { "never".to_owned() } else { us(self.returned) };
        write!(
            f,
            "{:>14} to {returned:>14} µs  client {:<3} {} -> {}",
            us(self.invoked),
            self.process,
            self.call,
            self.answer
        )?;
        match self.lifetime {
            Some(Lifetime::NEVER) => f.write_str(", never expires"),
            Some(Lifetime { may_end, must_end }) => {
                write!(f, ", ends at {} to {}", us(may_end), us(must_end))
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for op in &self.window {
            writeln!(f, "  {op}")?;
        }
        write!(f, "  no order explains the last one; the search got as far as: {}", self.stuck_at)
    }
}
