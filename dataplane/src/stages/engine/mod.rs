//! Stage 5: batches are read and looked up.
//!
//! In: a batch. Out: the same with a descriptor for each request. The contract is `gpu/src/engine.rs`; the
//! engines on a GPU stand in that crate. The engine on the CPU stands here ([`cpu_engine`]), because it reads the
//! store's index; [`dispatch`] chooses between the two, and says of a batch when it is complete.

mod accept;
pub mod cpu_engine;
pub mod dispatch;
