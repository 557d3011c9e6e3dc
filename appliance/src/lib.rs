//! The process around the data plane: CLI, plan, topology, TCP service, signals. Never touches a packet.
//!
//! Start-up is a plan (D15), read from top to bottom: [`flags`] is what was typed, [`plan`] what
//! follows from it on this [`machine`], [`topology`] builds and wires it from [`sockets`],
//! [`ports`], [`offload`] and [`tcp`], [`run`] serves until told to stop, and [`report`] says what became of it.
//! [`check`] and [`bind`] get the machine ready before all that. [`metrics`] are what it counts, and
//! [`observe`] reads them from another process. [`daemon`], [`privileges`], [`sandbox`],
//! [`pid_file`] and [`service`] are about the process itself.

pub mod flags;
pub mod machine;
pub mod plan;
pub mod sockets;
pub mod ports;
pub mod offload;
pub mod tcp;
pub mod topology;
pub mod run;
pub mod report;

pub mod affinity;
pub mod allocator;
pub mod bind;
pub mod capture;
pub mod check;
pub mod credentials;
pub mod daemon;
pub mod health;
pub mod log;
pub mod metrics;
pub mod observe;
pub mod pages;
pub mod pid_file;
pub mod privileges;
pub mod sandbox;
pub mod service;
pub mod signals;
