//! Stage 4: requests become batches, each with an engine that it goes to.
//!
//! In: requests, with their frames. Out: batches, which own the frames, in the engine that the
//! dispatch has chosen for them; later, each of them answered or due again. [`batcher`] collects,
//! [`dispatch`] chooses. What finds no place is dropped as overload.

pub mod batcher;
pub mod dispatch;
