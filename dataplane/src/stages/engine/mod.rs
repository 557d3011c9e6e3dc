//! Stage 5: what does each request of a batch ask, and where is that?
//!
//! The contract is `gpu/src/engine.rs`, and the engines on a GPU stand in that crate. The engine on
//! the CPU stands here, because it reads the store's index.

pub mod cpu_engine;
