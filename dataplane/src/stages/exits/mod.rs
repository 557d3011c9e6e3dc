//! The early exits, behind `wire::classify`: frames that are no request, or none that can be served.
//!
//! In: a frame and its class. Out: an answer, made in the frame's own slot, or the frame on its
//! way to the kernel, or a drop reason. The caller owns the frame until one of them takes it.

pub mod respond;
pub mod refuse_fragment;
pub mod exception_path;
