//! The process itself, as the kernel and the service manager see it: how it starts and leaves its
//! terminal ([`daemon`], [`pid_file`], [`service`], [`log`], [`output`], [`signals`]), what it may do
//! ([`privileges`], [`sandbox`]), and its memory ([`allocator`]).

pub mod daemon;
pub mod pid_file;
pub mod service;
pub mod log;
pub mod output;
pub mod signals;
pub mod privileges;
pub mod sandbox;
pub mod allocator;
