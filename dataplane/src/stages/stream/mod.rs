//! TCP in the data path (D18): segments of connections to the service, answered by the worker.
//!
//! ```text
//!  segment ──► table ──► machine ──bytes──► connection ──► Conversation ──replies──► machine ──► frames
//!                 └ none: listener                                    wheel: what is due without a segment
//! ```
//!
//! In: frames that stage 3 called `Segment`. Out: frames for stage 7. `stage` is the way through it;
//! `config` is what it is made with, `table` finds the connection, `listener` begins one, `machine` is its state (a library's, and the
//! only file but `frames` that uses it), `connection` joins it to the conversation that kernel
//! sockets have too, `input` gives it what has come, `limits` says what it may have, `filter` what others may have, `wheel` shows what is due. A connection belongs to one worker for life: the NIC
//! spreads connections by their 4-tuples. All memory for connections is mapped at the start; values that
//! are longer than a connection's buffers use `spill`, and longer buffers for a while.
#![deny(clippy::indexing_slicing)]

mod arrivals;
mod config;
mod connection;
mod filter;
mod frames;
mod handshakes;
mod input;
mod limits;
mod listener;
mod machine;
mod outcome;
mod secure;
mod spill;
mod stage;
mod table;
mod tls;
mod waiting;
mod wheel;

pub use config::{StreamPort, StreamsConfig};
pub use connection::CONNECTION_BYTES;
pub use filter::ConnFilter;
pub use handshakes::{Places, TlsConfig, TlsHandshakes};
pub use stage::Streams;
pub use tls::{
    TLS_CONNECTION_BYTES, TLS_OVERHEAD_BYTES, TLS_PARTIAL_MAX_BYTES, TLS_PLAIN_MAX_BYTES,
    TLS_RECORD_MAX_BYTES, TlsSession, TlsSessions, TlsStep,
};
