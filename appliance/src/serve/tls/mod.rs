//! What TLS is spoken with: certificates, key, and how clients are checked; read at the start, at each
//! SIGHUP and at `refresh_certs`.
//!
//! In: a [`TlsPlan`] and the files that it names. Out: [`Certificates`], which gives each new
//! connection the configuration of the moment; connections that are open keep theirs. Files that
//! cannot be read, or do not fit each other, are refused with the reason, and what was read before
//! stays.

mod ciphers;
mod nobody;
pub(crate) mod session;

use crate::process::allocator;
use crate::startup::flags::KeyFormat;
use crate::startup::plan::{ClientCerts, TlsPlan};
use dataplane::observe::tls::Refresh;
use dataplane::stages::stream::{TlsSession, TlsSessions};
use nobody::Nobody;
use parking_lot::RwLock;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig, version};
use session::Session;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

/// The longest file that is read.
const FILE_MAX_BYTES: u64 = 4 << 20;
/// Tickets that a TLS 1.3 client gets to take its session up again with, where it may.
const TICKETS: usize = 2;

/// Why the files were not taken. The first three begin with memcached's words.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// No such file, or nothing in it that is a certificate.
    #[error("Error loading the certificate chain: {0} : {1}")]
    Chain(PathBuf, String),
    /// No such file, or nothing in it that is a key.
    #[error("Error loading the key: {0} : {1}")]
    Key(PathBuf, String),
    /// No such file, or no authority in it to check clients by.
    #[error("Error loading the CA certificate: {0} : {1}")]
    Ca(PathBuf, String),
    /// The key is another certificate's.
    #[error("Error validating the certificate: {0}")]
    Mismatch(String),
    /// `ssl_ciphers` leaves none.
    #[error("Error setting the provided cipher(s): {0}: none of them is spoken here")]
    Ciphers(String),
    /// The library.
    #[error("Error setting TLS up: {0}")]
    Library(#[from] rustls::Error),
}

/// What new connections are served with.
#[derive(Debug)]
struct Configs {
    ignoring: Arc<ServerConfig>,
    checking: Option<Arc<ServerConfig>>,
    requiring: Arc<ServerConfig>,
    read: Instant,
}

/// The certificates of the moment.
#[derive(Debug)]
pub struct Certificates {
    plan: TlsPlan,
    configs: RwLock<Configs>,
}

impl Certificates {
    /// Reads the files.
    ///
    /// # Errors
    /// [`TlsError`].
    pub fn load(plan: &TlsPlan) -> Result<Self, TlsError> {
        Ok(Self { configs: RwLock::new(read(plan)?), plan: plan.clone() })
    }

    /// Reads the files again.
    ///
    /// # Errors
    /// [`TlsError`]; then what was known still is.
    pub fn reload(&self) -> Result<(), TlsError> {
        check_are_files(&self.plan)?;
        let configs = read(&self.plan)?;
        *self.configs.write() = configs;
        Ok(())
    }

    /// What a new connection is served with, of whose client so much is asked.
    pub(crate) fn config(&self, clients: ClientCerts) -> Option<Arc<ServerConfig>> {
        let configs = self.configs.read();
        match clients {
            ClientCerts::Ignored => Some(Arc::clone(&configs.ignoring)),
            ClientCerts::Checked => configs.checking.clone(),
            ClientCerts::Required => Some(Arc::clone(&configs.requiring)),
        }
    }
}

/// What workers begin sessions with: the certificates of the moment, and what is asked of clients.
#[derive(Debug)]
pub(crate) struct Clients {
    /// Those certificates.
    pub(crate) certificates: Arc<Certificates>,
    /// What is asked.
    pub(crate) asked: ClientCerts,
}

impl TlsSessions for Clients {
    fn begin(&self) -> io::Result<Box<dyn TlsSession>> {
        // What TLS allocates cannot fail.
        if allocator::is_short() {
            return Err(io::ErrorKind::OutOfMemory.into());
        }
        // Plans that ask for certificates of clients have some to check them by.
        let config = self.certificates.config(self.asked);
        let config = config.ok_or(io::ErrorKind::Unsupported)?;
        Ok(Box::new(Session::new(config).map_err(io::Error::other)?))
    }
}

impl Refresh for Certificates {
    fn refresh(&self) -> Result<(), String> {
        self.reload().map_err(|error| error.to_string())
    }

    fn age_seconds(&self) -> u64 {
        self.configs.read().read.elapsed().as_secs()
    }

    fn keeps_sessions(&self) -> bool {
        self.plan.session_cache
    }
}

/// Directories in which the files lie, those behind links included.
pub fn directories(plan: &TlsPlan) -> Vec<PathBuf> {
    let files = [Some(&plan.chain_cert), plan.key.as_ref(), plan.ca_cert.as_ref()];
    let mut found: Vec<PathBuf> = Vec::new();
    for file in files.into_iter().flatten() {
        let real = file.canonicalize().ok();
        for at in [Some(file), real.as_ref()].into_iter().flatten() {
            let directory = at.parent().unwrap_or_else(|| Path::new("/")).to_owned();
            if !found.contains(&directory) {
                found.push(directory);
            }
        }
    }
    found
}

fn read(plan: &TlsPlan) -> Result<Configs, TlsError> {
    let mut provider = ring::default_provider();
    if let Some(list) = &plan.ciphers {
        ciphers::keep(&mut provider.cipher_suites, list);
        if provider.cipher_suites.is_empty() {
            return Err(TlsError::Ciphers(list.clone()));
        }
    }
    let provider = Arc::new(provider);
    let key = Arc::new(certified_key(plan, &provider)?);
    let roots = plan.ca_cert.as_deref().map(roots).transpose()?.map(Arc::new);
    let config = |clients| config(plan, &provider, &key, roots.as_ref(), clients);
    Ok(Configs {
        ignoring: config(ClientCerts::Ignored)?,
        checking: roots.as_ref().map(|_| config(ClientCerts::Checked)).transpose()?,
        requiring: config(ClientCerts::Required)?,
        read: Instant::now(),
    })
}

fn config(
    plan: &TlsPlan,
    provider: &Arc<CryptoProvider>,
    key: &Arc<CertifiedKey>,
    roots: Option<&Arc<RootCertStore>>,
    clients: ClientCerts,
) -> Result<Arc<ServerConfig>, TlsError> {
    let versions: &[_] = match plan.speaks_1_2() {
        true => &[&version::TLS13, &version::TLS12],
        false => &[&version::TLS13],
    };
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)?;
    let builder = match (clients, roots) {
        (ClientCerts::Ignored, _) => builder.with_no_client_auth(),
        (_, None) => builder.with_client_cert_verifier(Arc::new(Nobody(Arc::clone(provider)))),
        (checked, Some(roots)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(
                Arc::clone(roots),
                Arc::clone(provider),
            );
            let verifier = match checked {
                ClientCerts::Checked => verifier.allow_unauthenticated(),
                _ => verifier,
            };
            let ca = || plan.ca_cert.clone().unwrap_or_default();
            let verifier = verifier.build().map_err(|e| TlsError::Ca(ca(), e.to_string()))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(Arc::clone(key))));
    // Sessions lie in tickets, which cost no memory here; their keys go with the certificates.
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = 0;
    if plan.session_cache {
        config.ticketer = ring::Ticketer::new()?;
        config.send_tls13_tickets = TICKETS;
    }
    Ok(Arc::new(config))
}

fn certified_key(plan: &TlsPlan, provider: &CryptoProvider) -> Result<CertifiedKey, TlsError> {
    let path = &plan.chain_cert;
    let wrong = |why: String| TlsError::Chain(path.clone(), why);
    let text = bytes(path).map_err(|e| wrong(e.to_string()))?;
    let chain: Result<Vec<CertificateDer<'static>>, pem::Error> =
        CertificateDer::pem_slice_iter(&text).collect();
    let chain = chain.map_err(|e| wrong(e.to_string()))?;
    if chain.is_empty() {
        return Err(wrong("there is no certificate in it".to_owned()));
    }
    let path = plan.key.as_ref().unwrap_or(path);
    let wrong = |why: String| TlsError::Key(path.clone(), why);
    let text = match &plan.key {
        Some(path) => bytes(path).map_err(|e| wrong(e.to_string()))?,
        None => text,
    };
    let key = match plan.key_format {
        KeyFormat::Pem => PrivateKeyDer::from_pem_slice(&text).map_err(|error| match error {
            pem::Error::NoItemsFound => {
                wrong("there is no key in it, or it is kept by a pass phrase".to_owned())
            }
            error => wrong(error.to_string()),
        })?,
        KeyFormat::Der => PrivateKeyDer::try_from(text).map_err(|e| wrong(e.to_owned()))?,
    };
    let key = provider.key_provider.load_private_key(key).map_err(|e| wrong(e.to_string()))?;
    let key = CertifiedKey::new(chain, key);
    // What else the library has against a certificate is for clients to judge.
    match key.keys_match() {
        Err(error @ rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch)) => {
            Err(TlsError::Mismatch(error.to_string()))
        }
        _ => Ok(key),
    }
}

fn roots(path: &Path) -> Result<RootCertStore, TlsError> {
    let wrong = |why: String| TlsError::Ca(path.to_owned(), why);
    let text = bytes(path).map_err(|e| wrong(e.to_string()))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
        roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    match roots.is_empty() {
        true => Err(wrong("there is no certificate in it".to_owned())),
        false => Ok(roots),
    }
}

/// Refuses what would be waited for, such as a FIFO, while its thread does nothing else.
fn check_are_files(plan: &TlsPlan) -> Result<(), TlsError> {
    let check = |path: Option<&PathBuf>, wrong: fn(PathBuf, String) -> TlsError| match path {
        Some(path) if fs::metadata(path).is_ok_and(|there| !there.is_file()) => {
            Err(wrong(path.clone(), "it is no file, and is read at the start alone".to_owned()))
        }
        _ => Ok(()),
    };
    check(Some(&plan.chain_cert), TlsError::Chain)?;
    check(plan.key.as_ref(), TlsError::Key)?;
    check(plan.ca_cert.as_ref(), TlsError::Ca)
}

fn bytes(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::host::machine::tests::Tree;
    use crate::process::allocator::tests::IS_SHORT;
    use rcgen::{CertificateParams, KeyPair};
    use std::os::unix::fs::symlink;

    /// A certificate and its key, in PEM.
    fn pair() -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
    }

    fn plan(tree: &Tree) -> TlsPlan {
        TlsPlan {
            chain_cert: tree.0.join("cert"),
            key: Some(tree.0.join("key")),
            key_format: KeyFormat::Pem,
            ca_cert: None,
            clients: ClientCerts::Ignored,
            verify_mode: 0,
            ciphers: None,
            session_cache: false,
            kernel_tls: false,
            min_version: 2,
            wbuf_bytes: 16 << 10,
        }
    }

    fn tree(name: &str) -> Tree {
        let (cert, key) = pair();
        Tree::new(name, &[("cert", &cert), ("key", &key)])
    }

    /// Certificates for tests of others.
    pub(crate) fn certificates(name: &str) -> Certificates {
        Certificates::load(&plan(&tree(name))).unwrap()
    }

    #[test]
    fn broken_files_leave_what_was_known() {
        let tree = tree("tls-reload");
        let certificates = Certificates::load(&plan(&tree)).unwrap();
        let before = certificates.config(ClientCerts::Ignored).unwrap();
        let (cert, key) = pair();
        for (name, text, said) in [
            ("cert", cert.as_str(), "Error validating the certificate: "),
            ("cert", "", "Error loading the certificate chain: "),
            ("key", "nothing", "Error loading the key: "),
        ] {
            let path = tree.0.join(name);
            let good = std::fs::read(&path).unwrap();
            std::fs::write(&path, text).unwrap();
            let error = certificates.reload().unwrap_err().to_string();
            assert!(error.starts_with(said), "{error}");
            let now = certificates.config(ClientCerts::Ignored).unwrap();
            assert!(Arc::ptr_eq(&before, &now));
            std::fs::write(&path, good).unwrap();
        }
        // What would be waited for is not opened.
        for name in ["cert", "key"] {
            let (path, aside) = (tree.0.join(name), tree.0.join("aside"));
            std::fs::rename(&path, &aside).unwrap();
            nix::unistd::mkfifo(&path, nix::sys::stat::Mode::S_IRWXU).unwrap();
            let error = certificates.reload().unwrap_err().to_string();
            assert!(error.ends_with("it is no file, and is read at the start alone"), "{error}");
            std::fs::rename(&aside, &path).unwrap();
        }
        std::fs::write(tree.0.join("cert"), cert).unwrap();
        std::fs::write(tree.0.join("key"), key).unwrap();
        certificates.reload().unwrap();
        let now = certificates.config(ClientCerts::Ignored).unwrap();
        assert!(!Arc::ptr_eq(&before, &now));
    }

    #[test]
    fn the_key_may_lie_behind_the_certificate_and_be_bytes() {
        let tree = tree("tls-one");
        let mut plan = plan(&tree);
        let key = std::fs::read_to_string(tree.0.join("key")).unwrap();
        let both = std::fs::read_to_string(&plan.chain_cert).unwrap() + &key;
        std::fs::write(&plan.chain_cert, both).unwrap();
        plan.key = None;
        Certificates::load(&plan).unwrap();
        plan.key = Some(tree.0.join("der"));
        plan.key_format = KeyFormat::Der;
        let der = KeyPair::from_pem(&key).unwrap().serialize_der();
        std::fs::write(tree.0.join("der"), der).unwrap();
        Certificates::load(&plan).unwrap();
    }

    #[test]
    fn who_cannot_vouch_for_clients_is_refused() {
        let tree = tree("tls-ca");
        let mut plan = plan(&tree);
        plan.ca_cert = Some(tree.0.join("key"));
        let error = Certificates::load(&plan).unwrap_err().to_string();
        assert!(error.starts_with("Error loading the CA certificate: "), "{error}");
        plan.ca_cert = Some(tree.0.join("cert"));
        let certificates = Certificates::load(&plan).unwrap();
        assert!(certificates.config(ClientCerts::Required).is_some());
    }

    #[test]
    fn without_memory_no_session_begins() {
        let certificates = Arc::new(certificates("tls-short"));
        let clients = Clients { certificates, asked: ClientCerts::Ignored };
        IS_SHORT.set(true);
        let error = clients.begin().err().map(|error| error.kind());
        assert_eq!(error, Some(io::ErrorKind::OutOfMemory));
        IS_SHORT.set(false);
        assert!(clients.begin().is_ok());
    }

    #[test]
    fn directories_are_those_behind_links_too() {
        let tree = Tree::new("tls-links", &[("live/none", ""), ("archive/cert1", "")]);
        symlink(tree.0.join("archive/cert1"), tree.0.join("live/cert")).unwrap();
        let mut plan = plan(&tree);
        (plan.chain_cert, plan.key) = (tree.0.join("live/cert"), None);
        let archive = tree.0.join("archive").canonicalize().unwrap();
        assert_eq!(directories(&plan), [tree.0.join("live"), archive]);
    }
}
