//! TLS: `-Z`, the `ssl_` options, and which listeners speak it.

use super::{PlanError, absolute};
use crate::startup::flags::{Extended, KeyFormat, ListenTls, ServeFlags, Ssl, TcpIn};
use serde::Serialize;
use std::path::PathBuf;

/// The newest of the versions that `ssl_min_version` counts.
const TLS_1_3: u8 = 3;
/// The oldest that is spoken here.
const TLS_1_2: u8 = 2;
/// memcached's names for them.
const VERSIONS: [&str; 4] = ["tlsv1.0", "tlsv1.1", "tlsv1.2", "tlsv1.3"];
/// memcached's size of the buffer that records are made in, in kilobytes.
const WBUF_KB: u32 = 16;

/// How TLS is spoken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TlsPlan {
    /// The server's certificate and those that vouch for it, in PEM.
    pub chain_cert: PathBuf,
    /// The private key; without it, it lies in the same file.
    pub key: Option<PathBuf>,
    /// What it is written in.
    pub key_format: KeyFormat,
    /// Who may vouch for clients.
    pub ca_cert: Option<PathBuf>,
    /// What listeners ask of clients that do not say it themselves.
    pub clients: ClientCerts,
    /// `ssl_verify_mode`, as typed.
    pub verify_mode: u8,
    /// Ciphers of TLS 1.2, as OpenSSL names them.
    pub ciphers: Option<String>,
    /// Clients may take up a session again.
    pub session_cache: bool,
    /// `ssl_kernel_tls`, which changes nothing.
    pub kernel_tls: bool,
    /// `ssl_min_version`, as typed.
    pub min_version: u8,
    /// `ssl_wbuf_size`, in bytes, which changes nothing.
    pub wbuf_bytes: u64,
}

/// What is asked of clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientCerts {
    /// Nothing.
    Ignored,
    /// A client that sends a certificate must send a valid one.
    Checked,
    /// A good certificate.
    Required,
}

impl TlsPlan {
    /// Whether TLS 1.2 is spoken, too.
    pub fn speaks_1_2(&self) -> bool {
        self.min_version < TLS_1_3
    }

    /// Rows of `stats settings`, in memcached's order.
    pub(super) fn settings(plan: Option<&Self>) -> Vec<(&'static str, String)> {
        let yes = |on: bool| if on { "yes" } else { "no" }.to_owned();
        let Some(plan) = plan else { return vec![("ssl_enabled", yes(false))] };
        let path = |path: Option<&PathBuf>| {
            path.map_or_else(|| "NULL".to_owned(), |path| path.display().to_string())
        };
        let verify = match plan.verify_mode {
            // The flags of OpenSSL: a certificate is requested, must be there, and once only.
            0 => 0,
            1 => 1,
            2 => 3,
            _ => 7,
        };
        let version = VERSIONS.get(usize::from(plan.min_version)).unwrap_or(&"unknown");
        vec![
            ("ssl_enabled", yes(true)),
            ("ssl_chain_cert", path(Some(&plan.chain_cert))),
            ("ssl_key", path(plan.key.as_ref())),
            ("ssl_verify_mode", verify.to_string()),
            ("ssl_keyformat", plan.key_format.number().to_string()),
            ("ssl_ciphers", plan.ciphers.clone().unwrap_or_else(|| "NULL".to_owned())),
            ("ssl_ca_cert", path(plan.ca_cert.as_ref())),
            ("ssl_wbuf_size", plan.wbuf_bytes.to_string()),
            ("ssl_session_cache", yes(plan.session_cache)),
            ("ssl_kernel_tls", yes(plan.kernel_tls)),
            ("ssl_min_version", (*version).to_owned()),
        ]
    }
}

/// How TLS is spoken, where it is.
pub(super) fn tls(flags: &ServeFlags) -> Result<Option<TlsPlan>, PlanError> {
    let mut asked = flags.listening().filter_map(|l| l.tls);
    if !flags.clients.enable_ssl {
        let names_tls = asked.any(|tls| tls != ListenTls::Off);
        return if names_tls { Err(PlanError::ListenTlsWithout) } else { Ok(None) };
    }
    if flags.clients.unix_socket.is_some() {
        return Err(PlanError::TlsWithUnix);
    }
    if !flags.port.is_empty() && flags.tcp_in() != TcpIn::Worker && flags.udp_port.is_none() {
        return Err(PlanError::TlsWithPort);
    }
    let (mut chain_cert, mut key, mut ca_cert, mut ciphers) = (None, None, None, None);
    let (mut verify_mode, mut min_version, mut wbuf_kb) = (0, TLS_1_2, WBUF_KB);
    let (mut session_cache, mut kernel_tls, mut key_format) = (false, false, KeyFormat::Pem);
    for option in flags.clients.options() {
        let Extended::Ssl(option) = option else { continue };
        match option {
            Ssl::ChainCert(path) => chain_cert = Some(absolute(path)),
            Ssl::Key(path) => key = Some(absolute(path)),
            Ssl::CaCert(path) => ca_cert = Some(absolute(path)),
            Ssl::Ciphers(list) => ciphers = Some(list.clone()),
            Ssl::VerifyMode(mode) => verify_mode = *mode,
            Ssl::KeyFormat(format) => key_format = *format,
            Ssl::MinVersion(version) => min_version = *version,
            Ssl::WbufSize(kilobytes) => wbuf_kb = *kilobytes,
            Ssl::SessionCache => session_cache = true,
            Ssl::KernelTls => kernel_tls = true,
        }
    }
    let clients = match verify_mode {
        0 => ClientCerts::Ignored,
        1 => ClientCerts::Checked,
        _ => ClientCerts::Required,
    };
    if ca_cert.is_none() && clients != ClientCerts::Ignored {
        return Err(PlanError::TlsWithoutCa);
    }
    Ok(Some(TlsPlan {
        chain_cert: chain_cert.ok_or(PlanError::TlsWithoutCert)?,
        key,
        key_format,
        ca_cert,
        clients,
        verify_mode,
        ciphers,
        session_cache,
        kernel_tls,
        min_version,
        wbuf_bytes: u64::from(wbuf_kb) << 10,
    }))
}

/// What a listener requires of clients; `None`: it speaks no TLS.
pub(super) fn of_listener(asked: Option<ListenTls>, tls: Option<&TlsPlan>) -> Option<ClientCerts> {
    let tls = tls?;
    match asked {
        None => Some(tls.clients),
        Some(ListenTls::Off) => None,
        Some(ListenTls::Basic) => Some(ClientCerts::Ignored),
        Some(ListenTls::Mutual) => Some(ClientCerts::Required),
    }
}

/// What an operator may not expect.
pub(super) fn notes(flags: &ServeFlags, tls: Option<&TlsPlan>) -> Vec<String> {
    let Some(tls) = tls else { return Vec::new() };
    let mut notes = Vec::new();
    match flags.udp_port {
        None => notes.push("-Z turns UDP off, which would be in the clear".to_owned()),
        Some(crate::startup::flags::ServicePort::Off) => {}
        Some(_) => notes.push("-Z: UDP is served in the clear, as -U asks for it".to_owned()),
    }
    if tls.ca_cert.is_none() && flags.listening().any(|l| l.tls == Some(ListenTls::Mutual)) {
        let note = "-l mtls: no client certificate can be verified, so no client can connect: name ssl_ca_cert";
        notes.push(note.to_owned());
    }
    if tls.min_version < TLS_1_2 {
        notes.push(format!("ssl_min_version={}: TLS 1.2 is the least here", tls.min_version));
    }
    notes
}
