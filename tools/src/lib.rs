//! Behind `gnomon-pcapgen` and `gnomon-replay`: who asks for what ([`workload`]), capture files
//! and the frames in them ([`trace`]), and playing a capture at a server while checking each
//! byte that comes back ([`replay`]).

pub mod replay;
pub mod trace;
pub mod study;
pub mod workload;
