//! From the command line to a running appliance: [`flags`] are what was typed, [`plan`] the checked facts
//! that follow from them on this machine, [`topology`] builds and wires them, [`run`] serves until a
//! signal. [`pages`] makes manual pages and completions from the
//! flags; `wants` says what `check` is to look at.

pub mod flags;
pub mod plan;
pub mod topology;
pub mod run;
pub mod pages;
mod wants;
