//! The stream stage, segment by segment.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

mod chaos;
mod ends;
mod hostile;
mod long;
mod rates;
mod secure;
mod world;
