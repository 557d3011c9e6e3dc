//! `gnomon-study`: experiments that show how fast the data plane is, and against what.
//!
//! Each prints its figures as ratios beside what they were measured against, in one run: machines
//! are shared, and a bare time says little.

pub mod hitrate;
pub mod memcached;
pub mod offline;
