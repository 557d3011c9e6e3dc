//! The form in which any page gives its rows.
//!
//! In: names and values. Out: whatever their taker makes of them. Nothing here can fail.

use std::fmt;

/// Describes the engines: what they are, and what they have done.
pub trait EngineFacts: Send + Sync {
    /// Names and values, in order.
    fn rows(&self, row: &mut dyn FnMut(&str, &dyn fmt::Display));
}

/// Takes the rows of a page, in order.
pub trait Rows {
    /// Takes one.
    fn row(&mut self, name: &str, value: &dyn fmt::Display);
}

/// What comes behind the rows of a page.
#[derive(Debug, PartialEq, Eq)]
pub enum Page {
    /// The end of the rows.
    Rows,
    /// No rows, but text with its line ends, and then the end.
    Text(Vec<u8>),
    /// This line, in memcached's words, and nothing else.
    Line(&'static [u8]),
}
