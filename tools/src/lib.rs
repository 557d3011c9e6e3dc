//! Behind `gnomon-pcapgen` and `gnomon-replay`: workloads ([`workload`]), capture files
//! and the frames in them ([`trace`]), and playing a capture at a server while checking each
//! byte that comes back ([`replay`]). Behind `gnomon-linear`: whether commands that overlap take
//! effect one at a time ([`linear`]). Behind `gnomon-study`: experiments ([`study`]).
//! Behind `gnomon-gpu-check`: what a GPU does for us, and what it could do ([`gpu_check`]).
//! Reports of figures and their plots: [`report`], [`plot`]. What they say: [`output`].

// These two panic where the reader has gone.
#![deny(clippy::print_stdout, clippy::print_stderr)]

pub mod gpu_check;
pub mod linear;
pub mod output;
pub mod plot;
pub mod replay;
pub mod report;
pub mod trace;
pub mod study;
pub mod workload;
