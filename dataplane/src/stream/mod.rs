//! TCP in the data path (D18): segments of connections to the service, answered by the worker.
//!
//! ```text
//!  segment ──► table ──► machine ──bytes──► connection ──► Conversation ──replies──► machine ──► frames
//!                 └ none: listener                                    wheel: what is due without a segment
//! ```
//!
//! In: frames that room 3 called `Segment`. Out: frames for room 7. `stage` is the way through it;
//! `table` finds the connection, `listener` begins one, `machine` is its state (a library's, and the
//! only file but `frames` that knows it), `connection` joins it to the conversation that kernel
//! sockets have too, `wheel` tells what is due. A connection belongs to one worker for life: the NIC
//! spreads connections by their ends. All memory for connections is taken at the start; values that
//! are longer than a connection's buffers use `spill`.
#![deny(clippy::indexing_slicing)]

mod connection;
mod frames;
mod listener;
mod machine;
mod spill;
mod stage;
mod table;
mod waiting;
mod wheel;

pub use connection::CONNECTION_BYTES;
pub use stage::{SegmentAt, StreamPort, Streams, StreamsConfig};
