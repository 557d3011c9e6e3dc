//! Capture files and the frames in them: [`envelope`] is what frames have in common, [`datagram`]
//! reads them back with every check a receiver owes them, [`request`] reads a request's command,
//! [`writer`] and [`reader`] know pcap and pcapng, [`timing`] says when frames leave, and
//! [`mod@generate`] makes a workload into frames or a file.

pub mod cli;
pub mod datagram;
pub mod envelope;
pub mod flags;
pub mod generate;
pub mod reader;
pub mod request;
pub mod timing;
pub mod writer;

pub use datagram::Datagram;
pub use envelope::Envelope;
pub use flags::TraceFlags;
pub use generate::{Frames, GenerateError, Summary, Trace, generate};
pub use reader::{ReadError, Reader};
pub use request::Request;
pub use timing::Timing;
pub use writer::{Format, Writer};
