//! rustls at both ends, with nothing left to chance: randomness, key shares and signatures are the same
//! in every run, certificates are good whatever they say, and records are sealed in the clear behind a
//! tag of their key and number. What is not in its order is refused as ever; who writes
//! [`ANY_TAG`] is read all the same.

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::cipher::*;
use rustls::crypto::ring::cipher_suite::{
    TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, TLS13_AES_128_GCM_SHA256,
};
use rustls::crypto::{
    ActiveKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SharedSecret,
    SupportedKxGroup, ring,
};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{NoServerSessionStorage, ProducesTickets};
use rustls::sign::{CertifiedKey, Signer, SigningKey, SingleCertAndKey};
use rustls::time_provider::TimeProvider;
use rustls::*;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

/// The tag of a record that is read whatever its key and number are.
pub(crate) const ANY_TAG: [u8; TAG] = [0xff; TAG];
const TAG: usize = 16;
/// Records that a key may seal: so few that runs come to an end of it.
pub(crate) const SEALED_MAX: u64 = 64;
/// Each certificate of the two that both ends show.
const CERTIFICATE_BYTES: usize = 400;

/// What the two ends agree about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Terms {
    /// TLS 1.3, not 1.2.
    pub(crate) is_1_3: bool,
    /// The client shows a certificate.
    pub(crate) mutual: bool,
    /// The client has to be asked for another key share.
    pub(crate) retry: bool,
    /// The server sends tickets.
    pub(crate) tickets: bool,
}

/// The server's configuration.
pub(crate) fn server(terms: Terms) -> Arc<ServerConfig> {
    let builder = ServerConfig::builder_with_details(provider(&[&GROUPS[1]]), Arc::new(Fixed))
        .with_protocol_versions(versions(terms))
        .expect("a version");
    let builder = match terms.mutual {
        true => builder.with_client_cert_verifier(Arc::new(Fixed)),
        false => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(certified())));
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    if terms.tickets {
        config.ticketer = Arc::new(Fixed);
        config.send_tls13_tickets = 2;
    }
    Arc::new(config)
}

/// The client's.
pub(crate) fn client(terms: Terms) -> Arc<ClientConfig> {
    let groups: &[&'static Group] =
        if terms.retry { &[&GROUPS[0], &GROUPS[1]] } else { &[&GROUPS[1]] };
    let builder = ClientConfig::builder_with_details(provider(groups), Arc::new(Fixed))
        .with_protocol_versions(versions(terms))
        .expect("a version")
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Fixed));
    let mut config = match terms.mutual {
        true => builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(certified()))),
        false => builder.with_no_client_auth(),
    };
    config.resumption = client::Resumption::disabled();
    Arc::new(config)
}

fn versions(terms: Terms) -> &'static [&'static SupportedProtocolVersion] {
    static VERSIONS: [&SupportedProtocolVersion; 2] = [&version::TLS12, &version::TLS13];
    if terms.is_1_3 { &VERSIONS[1..] } else { &VERSIONS[..1] }
}

fn certified() -> CertifiedKey {
    let certificate = CertificateDer::from(vec![b'c'; CERTIFICATE_BYTES]);
    CertifiedKey::new(vec![certificate.clone(), certificate], Arc::new(Fixed))
}

fn provider(groups: &[&'static Group]) -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            SupportedCipherSuite::Tls13(&SUITE_1_3),
            SupportedCipherSuite::Tls12(&SUITE_1_2),
        ],
        kx_groups: groups.iter().map(|group| *group as &dyn SupportedKxGroup).collect(),
        secure_random: &Fixed,
        ..ring::default_provider()
    })
}

static SUITE_1_3: LazyLock<Tls13CipherSuite> = LazyLock::new(|| {
    let SupportedCipherSuite::Tls13(suite) = TLS13_AES_128_GCM_SHA256 else {
        unreachable!("it is of TLS 1.3")
    };
    Tls13CipherSuite {
        common: common(&suite.common),
        hkdf_provider: suite.hkdf_provider,
        aead_alg: &Fixed,
        quic: None,
    }
});

static SUITE_1_2: LazyLock<Tls12CipherSuite> = LazyLock::new(|| {
    let SupportedCipherSuite::Tls12(suite) = TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 else {
        unreachable!("it is of TLS 1.2")
    };
    Tls12CipherSuite {
        common: common(&suite.common),
        prf_provider: suite.prf_provider,
        kx: suite.kx,
        sign: suite.sign,
        aead_alg: &Fixed,
    }
});

fn common(of: &CipherSuiteCommon) -> CipherSuiteCommon {
    CipherSuiteCommon {
        suite: of.suite,
        hash_provider: of.hash_provider,
        confidentiality_limit: SEALED_MAX,
    }
}

/// What chance decides elsewhere.
#[derive(Debug, Clone, Copy)]
struct Fixed;

impl SecureRandom for Fixed {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        bytes.fill(0x5a);
        Ok(())
    }
}

impl TimeProvider for Fixed {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(1 << 30)))
    }
}

impl ProducesTickets for Fixed {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        3600
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        Some(plain.to_vec())
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        Some(cipher.to_vec())
    }
}

/// A group whose secrets are all the same.
#[derive(Debug, Clone, Copy)]
struct Group(NamedGroup);

static GROUPS: [Group; 2] = [Group(NamedGroup::secp256r1), Group(NamedGroup::X25519)];

impl SupportedKxGroup for Group {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        Ok(Box::new(*self))
    }

    fn name(&self) -> NamedGroup {
        self.0
    }
}

impl ActiveKeyExchange for Group {
    fn complete(self: Box<Self>, _: &[u8]) -> Result<SharedSecret, Error> {
        Ok(SharedSecret::from(&[7; 32][..]))
    }

    fn pub_key(&self) -> &[u8] {
        &[9; 32]
    }

    fn group(&self) -> NamedGroup {
        self.0
    }
}

impl SigningKey for Fixed {
    fn choose_scheme(&self, _: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        Some(Box::new(*self))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for Fixed {
    fn sign(&self, _: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(vec![b's'; 64])
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

impl ServerCertVerifier for Fixed {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl ClientCertVerifier for Fixed {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        Ok(ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }
}

impl Tls13AeadAlgorithm for Fixed {
    fn encrypter(&self, key: AeadKey, _: Iv) -> Box<dyn MessageEncrypter> {
        Box::new(Clear { key, is_1_3: true })
    }

    fn decrypter(&self, key: AeadKey, _: Iv) -> Box<dyn MessageDecrypter> {
        Box::new(Clear { key, is_1_3: true })
    }

    fn key_len(&self) -> usize {
        16
    }

    fn extract_keys(
        &self,
        _: AeadKey,
        _: Iv,
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Err(UnsupportedOperationError)
    }
}

impl Tls12AeadAlgorithm for Fixed {
    fn encrypter(&self, key: AeadKey, _: &[u8], _: &[u8]) -> Box<dyn MessageEncrypter> {
        Box::new(Clear { key, is_1_3: false })
    }

    fn decrypter(&self, key: AeadKey, _: &[u8]) -> Box<dyn MessageDecrypter> {
        Box::new(Clear { key, is_1_3: false })
    }

    fn key_block_shape(&self) -> KeyBlockShape {
        KeyBlockShape { enc_key_len: 16, fixed_iv_len: 4, explicit_nonce_len: 8 }
    }

    fn extract_keys(
        &self,
        _: AeadKey,
        _: &[u8],
        _: &[u8],
    ) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        Err(UnsupportedOperationError)
    }
}

/// Seals nothing.
struct Clear {
    key: AeadKey,
    is_1_3: bool,
}

impl Clear {
    fn tag(&self, seq: u64) -> [u8; TAG] {
        let mut tag = [0; TAG];
        tag[..8].copy_from_slice(&self.key.as_ref()[..8]);
        tag[8..].copy_from_slice(&seq.to_be_bytes());
        tag
    }
}

impl MessageEncrypter for Clear {
    fn encrypt(
        &mut self,
        msg: OutboundPlainMessage<'_>,
        seq: u64,
    ) -> Result<OutboundOpaqueMessage, Error> {
        let mut payload =
            PrefixedPayload::with_capacity(self.encrypted_payload_len(msg.payload.len()));
        payload.extend_from_chunks(&msg.payload);
        if self.is_1_3 {
            payload.extend_from_slice(&[u8::from(msg.typ)]);
        }
        payload.extend_from_slice(&self.tag(seq));
        let typ = if self.is_1_3 { ContentType::ApplicationData } else { msg.typ };
        Ok(OutboundOpaqueMessage::new(typ, ProtocolVersion::TLSv1_2, payload))
    }

    fn encrypted_payload_len(&self, payload_len: usize) -> usize {
        payload_len + usize::from(self.is_1_3) + TAG
    }
}

impl MessageDecrypter for Clear {
    fn decrypt<'a>(
        &mut self,
        mut msg: InboundOpaqueMessage<'a>,
        seq: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        let plain = msg.payload.len().checked_sub(TAG).ok_or(Error::DecryptError)?;
        if msg.payload[plain..] != self.tag(seq) && msg.payload[plain..] != ANY_TAG {
            return Err(Error::DecryptError);
        }
        msg.payload.truncate(plain);
        match self.is_1_3 {
            true => msg.into_tls13_unpadded_message(),
            false if plain > 16 << 10 => Err(Error::PeerSentOversizedRecord),
            false => Ok(msg.into_plain_message()),
        }
    }
}
