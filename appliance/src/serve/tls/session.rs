//! One client's TLS: rustls's, driven without buffers or sockets of its own.
//!
//! In: records that have come, plain bytes that are to leave. Out: plain bytes, records. The caller
//! owns all buffers: a kernel socket's connection, or a worker's. Fails: as
//! [`TlsSession`] says, and a failure may leave an alert to be sent.
//!
//! Of a handshake message that has come in part rustls keeps places in the bytes that it was given, and it panics
//! where it looks at other bytes then. So it is counted how many bytes that were looked at stay, and it is given
//! none only where none do. Nor is it given anything once it has failed or we have said the end.

use dataplane::stages::stream::{TLS_OVERHEAD_BYTES, TlsSession, TlsStep};
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus,
};
use rustls::{HandshakeKind, ServerConfig};
use std::io;
use std::sync::Arc;

/// Bytes of a record's header.
const HEADER_BYTES: usize = 5;
/// What is to be said of TLS before plain bytes, and one more look.
const LOOKS_MAX: usize = 3;

/// A session.
pub(crate) struct Session {
    tls: UnbufferedServerConnection,
    /// Whole records at the front of what comes next that it has looked at, and may have places in.
    held: usize,
    /// It has failed, or we have said the end.
    is_over: bool,
}

impl Session {
    /// One whose handshake is to come.
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { tls: UnbufferedServerConnection::new(config)?, held: 0, is_over: false })
    }

    /// Whether it may be given no bytes.
    fn holds_nothing(&self) -> bool {
        self.held == 0 && !self.is_over
    }

    /// Makes what shows the client of a failure, or of the end, ready to be sent.
    fn encode_alerts(&mut self, outgoing: &mut Vec<u8>) {
        // What is to be sent comes before any bytes are looked at.
        while self.tls.wants_write() {
            let state = self.tls.process_tls_records(&mut []).state;
            let Ok(ConnectionState::EncodeTlsData(data)) = state else { return };
            if encode(data, outgoing).is_err() {
                return;
            }
        }
    }

    /// [`TlsSession::advance`], from `at` on.
    fn advance_from(
        &mut self,
        incoming: &mut [u8],
        at: &mut usize,
        plain: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> io::Result<TlsStep> {
        loop {
            let incoming = incoming.get_mut(*at..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state } = self.tls.process_tls_records(incoming);
            let step = match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(record) = records.next_record() {
                        let record = record.map_err(invalid)?;
                        plain.try_reserve(record.payload.len())?;
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                    None
                }
                Ok(ConnectionState::EncodeTlsData(data)) => {
                    encode(data, outgoing)?;
                    None
                }
                Ok(ConnectionState::TransmitTlsData(data)) => {
                    // It leaves before anything else does.
                    data.done();
                    None
                }
                Ok(ConnectionState::BlockedHandshake) => Some(TlsStep::Blocked),
                Ok(ConnectionState::WriteTraffic(_)) => Some(TlsStep::Open),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Some(TlsStep::Ended),
                // No client is offered early data.
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(error) => {
                    self.encode_alerts(outgoing);
                    return Err(invalid(error));
                }
            };
            *at += discard;
            match step {
                None => {}
                // Its own last message may leave before the client's has come.
                Some(TlsStep::Open) if self.tls.is_handshaking() => return Ok(TlsStep::Blocked),
                Some(TlsStep::Ended) if self.tls.is_handshaking() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Some(step) => return Ok(step),
            }
        }
    }
}

impl TlsSession for Session {
    fn advance(
        &mut self,
        incoming: &mut [u8],
        plain: &mut Vec<u8>,
        outgoing: &mut Vec<u8>,
    ) -> io::Result<(usize, TlsStep)> {
        if self.is_over {
            return Ok((incoming.len(), TlsStep::Open));
        }
        let (mut at, whole) = (0, whole_records(incoming, self.held));
        self.is_over = true;
        let step = self.advance_from(incoming, &mut at, plain, outgoing)?;
        // Behind the client's end it looks at nothing.
        self.held = if step == TlsStep::Ended { 0 } else { whole.saturating_sub(at) };
        // After the handshake messages are a few bytes long, and no client sends one in parts.
        if step == TlsStep::Open && self.held > 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.is_over = false;
        Ok((at, step))
    }

    fn seal(&mut self, plain: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        // Whatever else is to be said of TLS goes first.
        for _ in 0..LOOKS_MAX {
            if !self.holds_nothing() {
                break;
            }
            match self.tls.process_tls_records(&mut []).state.map_err(invalid)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let room = plain.len() + TLS_OVERHEAD_BYTES;
                    return append(outgoing, room, |room| {
                        traffic.encrypt(plain, room).map_err(|error| match error {
                            EncryptError::InsufficientSize(size) => Some(size.required_size),
                            EncryptError::EncryptExhausted => None,
                        })
                    });
                }
                ConnectionState::EncodeTlsData(data) => encode(data, outgoing)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => {}
                _ => break,
            }
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn close(&mut self, outgoing: &mut Vec<u8>) -> io::Result<()> {
        if !self.holds_nothing() {
            return Ok(());
        }
        // Where it can seal no more it has said so.
        self.encode_alerts(outgoing);
        let state = self.tls.process_tls_records(&mut []).state;
        self.is_over = true;
        match state {
            Ok(ConnectionState::WriteTraffic(mut traffic)) => {
                append(outgoing, TLS_OVERHEAD_BYTES, |room| {
                    traffic.queue_close_notify(room).map_err(|_| None)
                })
            }
            _ => Ok(()),
        }
    }

    fn is_new(&self) -> bool {
        self.tls.handshake_kind() != Some(HandshakeKind::Resumed)
    }
}

/// How many bytes the records at the front measure that have come as a whole. One begins, or would, at `from`.
fn whole_records(bytes: &[u8], from: usize) -> usize {
    let mut end = from;
    while let Some([_, _, _, high, low, ..]) = bytes.get(end..) {
        let next = end + HEADER_BYTES + usize::from(u16::from_be_bytes([*high, *low]));
        if next > bytes.len() {
            break;
        }
        end = next;
    }
    end
}

/// Puts a message of TLS's own behind `outgoing`.
fn encode(
    mut data: EncodeTlsData<'_, ServerConnectionData>,
    outgoing: &mut Vec<u8>,
) -> io::Result<()> {
    append(outgoing, TLS_OVERHEAD_BYTES, |room| {
        data.encode(room).map_err(|error| match error {
            EncodeError::InsufficientSize(size) => Some(size.required_size),
            EncodeError::AlreadyEncoded => None,
        })
    })
}

/// Puts what `encode` makes behind `outgoing`, with so much space or, where it says so, as much as it
/// needs.
fn append(
    outgoing: &mut Vec<u8>,
    room: usize,
    mut encode: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> io::Result<()> {
    let at = outgoing.len();
    let mut room = room;
    for _ in 0..2 {
        outgoing.try_reserve(room)?;
        outgoing.resize(at + room, 0);
        match encode(outgoing.get_mut(at..).unwrap_or_default()) {
            Ok(len) => {
                outgoing.truncate(at + len);
                return Ok(());
            }
            Err(Some(needed)) => room = needed,
            Err(None) => break,
        }
    }
    outgoing.truncate(at);
    Err(io::ErrorKind::BrokenPipe.into())
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

#[cfg(test)]
#[path = "session/tests.rs"]
pub(crate) mod tests;
