//! Sessions under what clients send, and with clients that seal in the clear: those say what no library
//! would.

use super::*;
use clear::Terms;
use rcgen::{CertificateParams, KeyPair};
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, SupportedProtocolVersion, version};
use std::io::{Read, Write};

#[path = "../../../../../fuzz/harness/tls.rs"]
pub(crate) mod clear;
#[path = "tests/corpus.rs"]
mod corpus;

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
                let Ok((used, step)) = session.advance(&mut incoming, &mut plain, &mut outgoing)
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
            let shown = client.read_tls(&mut &outgoing[..]).map(|_| client.process_new_packets());
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

/// What a session that has been given something is good for.
struct Clear {
    session: Session,
    client: ClientConnection,
    incoming: Vec<u8>,
    plain: Vec<u8>,
}

impl Clear {
    /// One with its client, whose handshake is to come.
    fn new(is_1_3: bool) -> Self {
        let terms = Terms { is_1_3, mutual: false, retry: false, tickets: false };
        let name = "localhost".try_into().unwrap();
        Self {
            session: Session::new(clear::server(terms)).unwrap(),
            client: ClientConnection::new(clear::client(terms), name).unwrap(),
            incoming: Vec::new(),
            plain: Vec::new(),
        }
    }

    /// The same, with its handshake over.
    fn open(is_1_3: bool) -> Self {
        let mut pair = Self::new(is_1_3);
        while pair.client.is_handshaking() {
            pair.go_on().unwrap();
        }
        assert_eq!(pair.go_on().unwrap(), TlsStep::Open);
        pair
    }

    /// Gives the session bytes, and the client what comes of them.
    fn give(&mut self, bytes: &[u8]) -> io::Result<TlsStep> {
        self.incoming.extend_from_slice(bytes);
        let mut outgoing = Vec::new();
        let done = self.session.advance(&mut self.incoming, &mut self.plain, &mut outgoing);
        self.hear(&outgoing);
        let (used, step) = done?;
        self.incoming.drain(..used);
        Ok(step)
    }

    /// Gives the session what the client has to say.
    fn go_on(&mut self) -> io::Result<TlsStep> {
        let mut said = Vec::new();
        self.client.write_tls(&mut said).unwrap();
        self.give(&said)
    }

    /// Shows the client what the session says.
    fn hear(&mut self, mut records: &[u8]) {
        while !records.is_empty() {
            self.client.read_tls(&mut records).unwrap();
            self.client.process_new_packets().unwrap();
        }
    }
}

/// A record with these bytes, sealed in the clear.
fn forged(is_1_3: bool, kind: u8, bytes: &[u8]) -> Vec<u8> {
    let mut payload = bytes.to_vec();
    payload.extend(is_1_3.then_some(kind));
    payload.extend(clear::ANY_TAG);
    let kind = if is_1_3 { APPLICATION_DATA } else { kind };
    let [high, low] = u16::try_from(payload.len()).unwrap().to_be_bytes();
    [&[kind, 3, 3, high, low], &payload[..]].concat()
}

const ALERT: u8 = 21;
const HANDSHAKE: u8 = 22;
const APPLICATION_DATA: u8 = 23;
/// The alert `user_canceled`, a warning that changes nothing.
const WARNING: &[u8] = &[1, 90];

/// rustls keeps its place behind a part of a message without bytes, too, though what comes behind it is
/// done with.
#[test]
fn an_empty_part_of_a_message_harms_nothing() {
    // In the handshake, whose client shows nothing yet but that it has keys.
    let mut pair = Clear::new(true);
    pair.go_on().unwrap();
    let both = [forged(true, HANDSHAKE, b""), forged(true, ALERT, WARNING)].concat();
    for byte in both {
        assert_eq!(pair.give(&[byte]).unwrap(), TlsStep::Blocked);
        assert!(pair.session.seal(b"x", &mut Vec::new()).is_err());
    }
    pair.session.close(&mut Vec::new()).unwrap();
    for is_1_3 in [false, true] {
        let mut pair = Clear::open(is_1_3);
        let says = forged(is_1_3, APPLICATION_DATA, b"mn\r\n");
        let both = [forged(is_1_3, HANDSHAKE, b""), says].concat();
        assert!(pair.give(&both).is_err());
        assert!(pair.session.seal(b"MN\r\n", &mut Vec::new()).is_err());
        pair.session.close(&mut Vec::new()).unwrap();
    }
}

/// TLS 1.2 ends with a key, TLS 1.3 takes another. The client hears of either.
#[test]
fn a_key_seals_so_many_records() {
    for is_1_3 in [false, true] {
        let mut pair = Clear::open(is_1_3);
        let mut heard = Vec::new();
        let sealed = (0..3 * clear::SEALED_MAX).take_while(|_| {
            let mut outgoing = Vec::new();
            let sealed = pair.session.seal(b"MN\r\n", &mut outgoing);
            assert!(outgoing.len() <= 4 + TLS_OVERHEAD_BYTES);
            pair.hear(&outgoing);
            sealed.map_err(|error| assert_eq!(error.kind(), io::ErrorKind::BrokenPipe)).is_ok()
        });
        let sealed = sealed.count() as u64;
        assert!(if is_1_3 { sealed == 3 * clear::SEALED_MAX } else { sealed < clear::SEALED_MAX });
        let mut outgoing = Vec::new();
        pair.session.close(&mut outgoing).unwrap();
        pair.hear(&outgoing);
        // Without the end's own record this would fail.
        pair.client.reader().read_to_end(&mut heard).unwrap();
        assert_eq!(heard, b"MN\r\n".repeat(usize::try_from(sealed).unwrap()));
    }
}

#[test]
fn behind_our_end_nothing_is_looked_at() {
    for is_1_3 in [false, true] {
        let mut pair = Clear::open(is_1_3);
        pair.session.close(&mut Vec::new()).unwrap();
        pair.client.writer().write_all(b"get k\r\n").unwrap();
        assert_eq!(pair.go_on().unwrap(), TlsStep::Open);
        assert_eq!(pair.give(b"what is no record").unwrap(), TlsStep::Open);
        assert!(pair.incoming.is_empty() && pair.plain.is_empty());
        assert!(pair.session.seal(b"x", &mut Vec::new()).is_err());
    }
}
