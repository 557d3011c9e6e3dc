//! Whether a live server behaves as if each command took effect at one moment between its request
//! and its answer (linearizability; Herlihy and Wing 1990).
//!
//! ```text
//! mix ──calls──► client ──wire──► server          many clients at once, few keys
//!                  │ Op: call, answer, two times
//!                  ▼
//! run ──► per key ──► check (search) ──► model (one item)
//! ```
//!
//! [`run`] drives the clients and gives one list of operations per key: keys are independent, so
//! a history is linearizable when each key's part is. [`mod@check`] looks for an order of one key's
//! operations that the [`model`] of one item agrees with. [`mix`] draws what to ask; [`wire`] says
//! it in ASCII or in meta commands and reads the answer; [`report`] shows an operation.

pub mod check;
pub mod cli;
pub mod client;
pub mod mix;
pub mod model;
pub mod report;
pub mod run;
pub mod wire;

pub use check::{Verdict, Violation, check};
pub use model::{Answer, Call, Condition, Lifetime, Op};
