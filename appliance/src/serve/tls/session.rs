//! One client's TLS: rustls's, driven without buffers or sockets of its own.
//!
//! In: records that have come, plain bytes that are to leave. Out: plain bytes, records. The caller
//! owns all buffers: a kernel socket's connection, or a worker's. Fails: as
//! [`TlsSession`] says, and a failure may leave an alert to be sent.
//!
//! Of a handshake message that has come in part rustls keeps places in the bytes that it was given, and it panics
//! where it looks at other bytes then. So it is never given none while it may have such places.

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
pub(crate) struct Session {
    tls: UnbufferedServerConnection,
    /// It has no places in bytes that it was given: it may be given none.
    holds_nothing: bool,
}

impl Session {
    /// One whose handshake is to come.
    pub(crate) fn new(config: Arc<ServerConfig>) -> Result<Self, rustls::Error> {
        Ok(Self { tls: UnbufferedServerConnection::new(config)?, holds_nothing: true })
    }

    /// Makes what shows the client of a failure ready to be sent.
    fn encode_alerts(&mut self, outgoing: &mut Vec<u8>) {
        // What is to be sent comes before any bytes are looked at.
        while self.tls.wants_write() {
            let state = self.tls.process_tls_records(&mut []).state;
            let Ok(ConnectionState::EncodeTlsData(mut data)) = state else { return };
            let room = TLS_OVERHEAD_BYTES;
            if append(outgoing, room, |room| data.encode(room).map_err(|_| None)).is_err() {
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
        let mut at = 0;
        self.holds_nothing = false;
        let step = self.advance_from(incoming, &mut at, plain, outgoing)?;
        let left = incoming.get(at..).unwrap_or_default();
        // It is done with what is whole, but for parts of a message. Behind the end it looks at nothing.
        self.holds_nothing = step == TlsStep::Ended || !is_whole_record(left);
        match (step, self.holds_nothing) {
            // After the handshake messages are a few bytes long, and no client sends one in parts.
            (TlsStep::Open, false) => Err(io::ErrorKind::InvalidData.into()),
            _ => Ok((at, step)),
        }
    }

    fn seal(&mut self, plain: &[u8], outgoing: &mut Vec<u8>) -> io::Result<()> {
        if !self.holds_nothing {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        // Whatever else is to be said of TLS goes first.
        for _ in 0..ALERTS_MAX {
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
        if self.holds_nothing
            && let Ok(ConnectionState::WriteTraffic(mut traffic)) =
                self.tls.process_tls_records(&mut []).state
        {
            append(outgoing, TLS_OVERHEAD_BYTES, |room| {
                traffic.queue_close_notify(room).map_err(|_| None)
            })?;
        }
        Ok(())
    }

    fn is_new(&self) -> bool {
        self.tls.handshake_kind() != Some(HandshakeKind::Resumed)
    }
}

/// Whether bytes begin with a record that has come as a whole.
fn is_whole_record(bytes: &[u8]) -> bool {
    match bytes {
        [_, _, _, high, low, rest @ ..] => {
            rest.len() >= usize::from(u16::from_be_bytes([*high, *low]))
        }
        _ => false,
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

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, KeyPair};
    use rustls::crypto::ring;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
    use rustls::server::WebPkiClientVerifier;
    use rustls::{
        ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion, version,
    };
    use std::io::Write;

    type Version = &'static SupportedProtocolVersion;

    const VERSIONS: [Version; 2] = [&version::TLS12, &version::TLS13];

    struct Identity {
        cert: CertificateDer<'static>,
        key: KeyPair,
    }

    impl Identity {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
            Self { cert: params.self_signed(&key).unwrap().der().clone(), key }
        }

        fn key(&self) -> PrivateKeyDer<'static> {
            PrivatePkcs8KeyDer::from(self.key.serialize_der()).into()
        }

        fn roots(&self) -> Arc<RootCertStore> {
            let mut roots = RootCertStore::empty();
            roots.add(self.cert.clone()).unwrap();
            Arc::new(roots)
        }
    }

    /// A session of this server, to whose clients only those of `trusted` are known.
    fn session(server: &Identity, trusted: &Identity) -> Session {
        let provider = Arc::new(ring::default_provider());
        let verifier =
            WebPkiClientVerifier::builder_with_provider(trusted.roots(), Arc::clone(&provider));
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(verifier.build().unwrap())
            .with_single_cert(vec![server.cert.clone()], server.key())
            .unwrap();
        Session::new(Arc::new(config)).unwrap()
    }

    /// Gives a session bytes, in pieces that come one after the other, and asks all else of it that its
    /// callers do. What came of the pieces.
    fn give(session: &mut Session, pieces: &[&[u8]]) -> Vec<io::Result<TlsStep>> {
        let (mut incoming, mut plain, mut outgoing) = (Vec::new(), Vec::new(), Vec::new());
        let come = pieces.iter().map(|piece| {
            incoming.extend_from_slice(piece);
            let (used, step) = session.advance(&mut incoming, &mut plain, &mut outgoing)?;
            incoming.drain(..used);
            Ok(step)
        });
        let come = come.collect();
        assert!(session.seal(b"x", &mut outgoing).is_err());
        session.close(&mut outgoing).unwrap();
        come
    }

    #[test]
    fn parts_of_a_message_and_what_does_not_go_on_with_them_harm_nothing() {
        let us = Identity::new();
        const PART: &[u8] = &[0x16, 3, 1, 0, 1, 1];
        const ALERT: &[u8] = &[0x15, 3, 1, 0, 2, 1, 0];
        let other = [0x17, 3, 3, 0, 1, 0];
        for bad in [ALERT, &other, &[0x16, 3, 1, 0xff, 0xff], &[0x14, 3, 3, 0, 1, 1, 0x15]] {
            let both = [PART, bad].concat();
            assert!(give(&mut session(&us, &us), &[&both]).iter().all(Result::is_err), "{bad:?}");
            let one_by_one = give(&mut session(&us, &us), &[PART, bad]);
            assert!(matches!(one_by_one[..], [Ok(TlsStep::Blocked), Err(_)]), "{bad:?}");
        }
        for cut in 0..=PART.len() {
            let come = give(&mut session(&us, &us), &[&PART[..cut], &PART[cut..]]);
            assert!(come.iter().all(|step| matches!(step, Ok(TlsStep::Blocked))));
        }
    }

    /// A client of `us`.
    fn client(us: &Identity, who: &Identity, version: Version) -> ClientConnection {
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(us.roots())
            .with_client_auth_cert(vec![who.cert.clone()], who.key())
            .unwrap();
        ClientConnection::new(Arc::new(config), "localhost".try_into().unwrap()).unwrap()
    }

    /// Flights of a client that come in pieces of any length, some cut short, twice, or with a bit that is
    /// another; what is asked of the session in between, and after its end, ends nothing else.
    #[test]
    fn no_bytes_make_a_session_panic() {
        let us = Identity::new();
        let mut random = 1_u64;
        let mut below = |n: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            usize::try_from(random >> 33).unwrap() % n.max(1)
        };
        let (mut sealed, mut failed) = (0, 0);
        for round in 0..1500 {
            let version = VERSIONS[round % 2];
            let (mut client, mut session) = (client(&us, &us, version), session(&us, &us));
            let (mut incoming, mut plain) = (Vec::new(), Vec::new());
            'client: for _ in 0..8 {
                let mut flight = Vec::new();
                client.write_tls(&mut flight).unwrap();
                match below(6) {
                    0 if !flight.is_empty() => {
                        let at = below(flight.len());
                        flight[at] ^= 1 << below(8);
                    }
                    1 => flight.truncate(below(flight.len())),
                    2 => flight.extend_from_within(below(flight.len())..),
                    _ => {}
                }
                let mut outgoing = Vec::new();
                while !flight.is_empty() {
                    let piece = below(flight.len()) + 1;
                    incoming.extend(flight.drain(..piece));
                    let Ok((used, step)) =
                        session.advance(&mut incoming, &mut plain, &mut outgoing)
                    else {
                        failed += 1;
                        break 'client;
                    };
                    incoming.drain(..used);
                    if step == TlsStep::Open {
                        sealed += usize::from(session.seal(b"reply", &mut outgoing).is_ok());
                    }
                    // Nothing is taken in behind its own end.
                    if below(20) == 0 {
                        break 'client;
                    }
                }
                let _ = client.read_tls(&mut &outgoing[..]);
                if client.process_new_packets().is_err() {
                    break;
                }
                if !client.is_handshaking() {
                    let _ = client.writer().write_all(b"get k\r\n");
                    if below(3) == 0 {
                        let _ = client.refresh_traffic_keys();
                    }
                }
            }
            let _ = session.seal(b"late", &mut Vec::new());
            let _ = session.close(&mut Vec::new());
        }
        assert!(sealed > 500 && failed > 300, "{sealed} {failed}");
    }

    #[test]
    fn a_stranger_whose_messages_share_a_record_gets_an_alert() {
        let (us, friend, stranger) = (Identity::new(), Identity::new(), Identity::new());
        let each = |version| [(version, &friend, true), (version, &stranger, false)];
        for (version, who, right) in VERSIONS.into_iter().flat_map(each) {
            let mut client = client(&us, who, version);
            let mut session = session(&us, &friend);
            let (mut incoming, mut plain) = (Vec::new(), Vec::new());
            let end = loop {
                client.write_tls(&mut incoming).unwrap();
                let mut outgoing = Vec::new();
                let step = session.advance(&mut incoming, &mut plain, &mut outgoing);
                let shown =
                    client.read_tls(&mut &outgoing[..]).map(|_| client.process_new_packets());
                match step {
                    Ok((used, TlsStep::Blocked)) => drop(incoming.drain(..used)),
                    end => break (end.map(|(_, step)| step), shown.unwrap().is_ok()),
                }
            };
            match right {
                true => assert!(matches!(end, (Ok(TlsStep::Open), true)), "{end:?}"),
                false => assert!(matches!(end, (Err(_), false)), "{end:?}"),
            }
            session.close(&mut Vec::new()).unwrap();
        }
    }
}
