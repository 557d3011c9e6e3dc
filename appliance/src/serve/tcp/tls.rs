//! A connection over TLS: what a socket carries as records, given and taken as plain bytes.
//!
//! In: records from the socket, plain bytes to be sent. Out: plain bytes, records. Nothing is
//! held of a connection that waits but a record that has come in part. A write covers so many
//! plain bytes and is done when the last byte of their record has left: until then the same bytes
//! must be offered again. Fails: [`io::ErrorKind::InvalidData`] for what is no record of this
//! connection, after which an alert has been sent as far as the socket takes it.

use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus};
use rustls::{HandshakeKind, ServerConfig};
use socket2::SockRef;
use std::collections::TryReserveError;
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

/// The longest record: header, plain bytes, and what ciphers add.
const RECORD_MAX_BYTES: usize = 5 + (16 << 10) + 256;
/// Plain bytes of a record at most.
const PLAIN_MAX_BYTES: usize = 16 << 10;
/// What ciphers add to a record, its header included; more than any of them does.
const OVERHEAD_BYTES: usize = 64;
/// The most that is held of a message that has come in part: a chain of certificates in several records.
const PARTIAL_MAX_BYTES: usize = 2 * RECORD_MAX_BYTES;
/// Alerts that a failure leaves behind, and one more look.
const ALERTS_MAX: usize = 3;
/// What a connection may hold uncharged: keys and states, and a record that has come in part.
pub(crate) const TLS_BYTES: usize = (8 << 10) + RECORD_MAX_BYTES;

/// A connection.
pub(super) struct Tls {
    socket: TcpStream,
    session: UnbufferedServerConnection,
    /// Records that have come and are not whole, or not looked at.
    incoming: Vec<u8>,
    /// Plain bytes that came with the end of the handshake.
    plain: Vec<u8>,
    /// Records that are to leave, of which so much has left.
    outgoing: Vec<u8>,
    left: usize,
    /// Plain bytes that they are.
    covers: usize,
    /// The client has said that no more comes.
    ended: bool,
}

/// What a connection can do next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// Its handshake needs more of the client.
    Blocked,
    /// Plain bytes can be sent.
    Open,
    /// Nothing more comes.
    Ended,
}

impl Tls {
    /// A fresh connection, whose handshake is to come.
    pub(super) fn new(socket: TcpStream, config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self {
            socket,
            session: UnbufferedServerConnection::new(config)?,
            incoming: Vec::new(),
            plain: Vec::new(),
            outgoing: Vec::new(),
            left: 0,
            covers: 0,
            ended: false,
        })
    }

    pub(super) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// Whether the session was begun anew, and not recovered again.
    pub(super) fn is_new_session(&self) -> bool {
        self.session.handshake_kind() != Some(HandshakeKind::Resumed)
    }

    /// Looks at all that has come. What is to be answered lies ready to be sent; plain bytes are
    /// kept. The work of a handshake is done here.
    pub(super) fn advance(&mut self) -> io::Result<Step> {
        let mut plain = std::mem::take(&mut self.plain);
        let step = self.advance_into(&mut plain);
        self.plain = plain;
        step
    }

    fn advance_into(&mut self, plain: &mut Vec<u8>) -> io::Result<Step> {
        let mut at = 0;
        let step = loop {
            let incoming = self.incoming.get_mut(at..).unwrap_or_default();
            let UnbufferedStatus { mut discard, state } =
                self.session.process_tls_records(incoming);
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
                    append(&mut self.outgoing, OVERHEAD_BYTES, |room| {
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
                Ok(ConnectionState::BlockedHandshake) => Some(Step::Blocked),
                Ok(ConnectionState::WriteTraffic(_)) => Some(Step::Open),
                Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Some(Step::Ended),
                // No client is offered early data.
                Ok(_) => return Err(io::ErrorKind::InvalidData.into()),
                Err(error) => {
                    self.incoming.clear();
                    self.encode_alerts();
                    return Err(invalid(error));
                }
            };
            at += discard;
            match step {
                None => {}
                // Its own last message may leave before the client's has come.
                Some(Step::Open) if self.session.is_handshaking() => break Step::Blocked,
                Some(step) => break step,
            }
        };
        self.incoming.drain(..at.min(self.incoming.len()));
        if self.incoming.len() > PARTIAL_MAX_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        self.ended |= step == Step::Ended;
        Ok(step)
    }

    /// Makes what shows the client of a failure ready to be sent.
    fn encode_alerts(&mut self) {
        for _ in 0..ALERTS_MAX {
            match self.session.process_tls_records(&mut []).state {
                Ok(ConnectionState::EncodeTlsData(mut data)) => {
                    let encoded = append(&mut self.outgoing, OVERHEAD_BYTES, |room| {
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

    /// Waits until something has come, and takes what there is. Nothing is held while it waits but
    /// a record in part. False at the end.
    pub(super) fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        self.incoming.try_reserve(RECORD_MAX_BYTES).map_err(out_of_memory)?;
        let come = pin!(self.socket.read_buf(&mut self.incoming)).poll(cx);
        if come.is_pending() {
            self.incoming.shrink_to_fit();
        }
        Poll::Ready(Ok(ready!(come)? > 0))
    }

    /// Waits until plain bytes have come, and takes them. 0 at the end.
    pub(super) fn poll_read(
        &mut self,
        into: &mut Vec<u8>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<usize>> {
        loop {
            if !self.plain.is_empty() {
                let plain = std::mem::take(&mut self.plain);
                into.try_reserve(plain.len()).map_err(out_of_memory)?;
                into.extend_from_slice(&plain);
                return Poll::Ready(Ok(plain.len()));
            }
            if self.ended {
                return Poll::Ready(Ok(0));
            }
            if !ready!(self.poll_receive(cx))? {
                self.ended = true;
                continue;
            }
            let before = into.len();
            let step = self.advance_into(into);
            // Answers to the client's messages about TLS, and alerts.
            let flushed = self.try_flush();
            step?;
            match flushed {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(error));
                }
                _ => {}
            }
            let come = into.len() - before;
            if come > 0 {
                return Poll::Ready(Ok(come));
            }
        }
    }

    /// Throws away what has come.
    pub(super) fn forget(&mut self) {
        self.incoming.clear();
    }

    /// Whether plain bytes are there that were not taken.
    pub(super) fn has_unread(&self) -> bool {
        !self.plain.is_empty()
    }

    /// Sends what lies ready, as far as the socket takes it at once.
    pub(super) fn try_flush(&mut self) -> io::Result<()> {
        while let Some(rest) = self.outgoing.get(self.left..).filter(|rest| !rest.is_empty()) {
            match self.socket.try_write(rest)? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                sent => self.left += sent,
            }
        }
        (self.outgoing, self.left) = (Vec::new(), 0);
        Ok(())
    }

    /// Sends what lies ready.
    pub(super) async fn flush(&mut self) -> io::Result<()> {
        loop {
            match self.try_flush() {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                done => return done,
            }
        }
    }

    /// Sends the first of these bytes, and says how many those were. Would block until the socket
    /// has taken all of their record.
    pub(super) fn try_write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.try_flush()?;
        if self.covers == 0 {
            let first = bytes.get(..PLAIN_MAX_BYTES).unwrap_or(bytes);
            if first.is_empty() {
                return Ok(0);
            }
            self.seal(first)?;
            self.covers = first.len();
            self.try_flush()?;
        }
        Ok(std::mem::take(&mut self.covers))
    }

    /// The same, after a wait.
    pub(super) async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match self.try_write(bytes) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.socket.writable().await?;
                }
                done => return done,
            }
        }
    }

    /// Bytes held of a record that has not left.
    pub(super) fn held_bytes(&self) -> usize {
        self.outgoing.capacity()
    }

    fn seal(&mut self, plain: &[u8]) -> io::Result<()> {
        // Whatever else is to be said of TLS goes first.
        for _ in 0..ALERTS_MAX {
            match self.session.process_tls_records(&mut []).state.map_err(invalid)? {
                ConnectionState::WriteTraffic(mut traffic) => {
                    let room = plain.len() + OVERHEAD_BYTES;
                    return append(&mut self.outgoing, room, |room| {
                        traffic.encrypt(plain, room).map_err(|error| match error {
                            EncryptError::InsufficientSize(size) => Some(size.required_size),
                            EncryptError::EncryptExhausted => None,
                        })
                    });
                }
                ConnectionState::EncodeTlsData(mut data) => {
                    append(&mut self.outgoing, OVERHEAD_BYTES, |room| {
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

    /// Nothing more will be sent: says so, as far as the socket takes it at once.
    pub(super) fn shutdown(&mut self) -> io::Result<()> {
        if self.covers == 0
            && let Ok(ConnectionState::WriteTraffic(mut traffic)) =
                self.session.process_tls_records(&mut []).state
        {
            append(&mut self.outgoing, OVERHEAD_BYTES, |room| {
                traffic.queue_close_notify(room).map_err(|_| None)
            })?;
        }
        let _ = self.try_flush();
        SockRef::from(&self.socket).shutdown(Shutdown::Write)
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

fn out_of_memory(_: TryReserveError) -> io::Error {
    io::ErrorKind::OutOfMemory.into()
}
