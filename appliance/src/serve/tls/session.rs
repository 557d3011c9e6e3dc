//! One client's TLS: rustls's, driven without buffers or sockets of its own.
//!
//! In: records that have come, plain bytes that are to leave. Out: plain bytes, records. The caller
//! owns all buffers: a kernel socket's connection, or a worker's. Fails: as
//! [`TlsSession`] says, and a failure may leave an alert to be sent.

use dataplane::stages::stream::{TLS_OVERHEAD_BYTES, TlsSession, TlsStep};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{HandshakeKind, ServerConfig};
use std::collections::TryReserveError;
use std::io;
use std::sync::Arc;

/// Alerts that a failure leaves behind, and one more look.
const ALERTS_MAX: usize = 3;

/// A session.
pub(crate) struct Session(UnbufferedServerConnection);

impl Session {
    /// One whose handshake is to come.
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        UnbufferedServerConnection::new(config).map(Self)
    }

    /// Makes what shows the client of a failure ready to be sent.
    fn encode_alerts(&mut self, outgoing: &mut Vec<u8>) {
        for _ in 0..ALERTS_MAX {
            match self.0.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let encoded = append(outgoing, TLS_OVERHEAD_BYTES, |room| {
                        data.encode(room).map_err(|_| None)
                    });
                    if encoded.is_err() {
                        return;
                    }
                }
                Ok(ConnectionState::TransmitTlsData(data)) => data.done(),
                _ => return,
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
        let mut at = 0;
        loop {
            let incoming = incoming.get_mut(at..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state } = self.0.process_tls_records(incoming);
            let step = match state {
                Ok(ConnectionState::ReadTraffic(mut records)) => {
                    while let Some(record) = records.next_record() {
                        let record = record.map_err(invalid)?;
                        plain.try_reserve(record.payload.len()).map_err(out_of_memory)?;
                        plain.extend_from_slice(record.payload);
                        discard += record.discard;
                    }
                    None
                }
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    append(outgoing, TLS_OVERHEAD_BYTES, |room| {
                        data.encode(room).map_err(|error| match error {
                            EncodeError::InsufficientSize(size) => Some(size.required_size),
                            EncodeError::AlreadyEncoded => None,
                        })
                    })?;
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
            at += discard;
            match step {
                None => {}
                // Its own last message may leave before the client's has come.
                Some(TlsStep::Open) if self.0.is_handshaking() => {
                    return Ok((at, TlsStep::Blocked));
                }
                Some(TlsStep::Ended) if self.0.is_handshaking() => {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                Some(step) => return Ok((at, step)),
            }
        }
    }

    fn seal(&mut self, plain: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        // Whatever else is to be said of TLS goes first.
        for _ in 0..ALERTS_MAX {
            match self.0.process_tls_records(&mut []).state.map_err(invalid)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let room = plain.len() + TLS_OVERHEAD_BYTES;
                    return append(outgoing, room, |room| {
                        traffic.encrypt(plain, room).map_err(|error| match error {
                            EncryptError::InsufficientSize(size) => Some(size.required_size),
                            EncryptError::EncryptExhausted => None,
                        })
                    });
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    append(outgoing, TLS_OVERHEAD_BYTES, |room| {
                        data.encode(room).map_err(|error| match error {
                            EncodeError::InsufficientSize(size) => Some(size.required_size),
                            EncodeError::AlreadyEncoded => None,
                        })
                    })?;
                }
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::PeerClosed => {}
                _ => break,
            }
        }
        Err(io::ErrorKind::BrokenPipe.into())
    }

    fn close(&mut self, outgoing: &mut Vec<u8>) -> io::Result<()> {
        if let Ok(ConnectionState::WriteTraffic(mut traffic)) =
            self.0.process_tls_records(&mut []).state
        {
            append(outgoing, TLS_OVERHEAD_BYTES, |room| {
                traffic.queue_close_notify(room).map_err(|_| None)
            })?;
        }
        Ok(())
    }

    fn is_new(&self) -> bool {
        self.0.handshake_kind() != Some(HandshakeKind::Resumed)
    }
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
        outgoing.try_reserve(room).map_err(out_of_memory)?;
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
    Err(io::ErrorKind::InvalidData.into())
}

fn invalid(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

pub(crate) fn out_of_memory(_: TryReserveError) -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}
