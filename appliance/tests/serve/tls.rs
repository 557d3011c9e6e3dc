//! TLS over kernel sockets: versions, certificates of both sides, what is no handshake, new
//! certificates while it serves.

use crate::client::{Tcp, Udp};
use crate::server::{SOON, Server, Tree, refuses, run, text};
use nix::sys::signal::Signal;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    ClientConfig, ClientConnection, HandshakeKind, RootCertStore, StreamOwned,
    SupportedProtocolVersion, version,
};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Somebody who vouches for others.
struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    /// Certificate and key, in PEM.
    fn signs(&self, usage: ExtendedKeyUsagePurpose) -> (String, String) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(["localhost".to_owned()]).unwrap();
        params.extended_key_usages = vec![usage];
        (params.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Files of a server, and how clients know it.
struct World {
    tree: Tree,
    authority: Authority,
}

impl World {
    fn new(name: &str) -> Self {
        let world = Self { tree: Tree::empty(name), authority: Authority::new() };
        world.renew();
        world.tree.write("ca", &world.authority.pem);
        world
    }

    /// A new certificate of the server, of the same authority.
    fn renew(&self) -> String {
        let (cert, key) = self.authority.signs(ExtendedKeyUsagePurpose::ServerAuth);
        self.tree.write("cert", &cert);
        self.tree.write("key", &key);
        cert
    }

    fn args(&self) -> Vec<String> {
        let path = |name| self.tree.path(name);
        let options = format!("ssl_chain_cert={},ssl_key={}", path("cert"), path("key"));
        vec!["-Z".to_owned(), "-o".to_owned(), options]
    }

    fn start(&self, more: &[&str]) -> Server {
        let args = self.args();
        let args: Vec<&str> = args.iter().map(String::as_str).chain(more.iter().copied()).collect();
        let mut command = crate::server::gnomon();
        Server::spawn(command.args(["serve", "-p", "-1"]).args(args))
    }

    fn config(&self, as_whom: Option<&(String, String)>) -> ClientConfig {
        self.config_of(as_whom, rustls::DEFAULT_VERSIONS)
    }

    fn config_of(
        &self,
        as_whom: Option<&(String, String)>,
        versions: &[&'static SupportedProtocolVersion],
    ) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.pem.as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider);
        let builder = builder.with_protocol_versions(versions).unwrap();
        let builder = builder.with_root_certificates(roots);
        match as_whom {
            None => builder.with_no_client_auth(),
            Some((cert, key)) => {
                let cert = CertificateDer::from_pem_slice(cert.as_bytes()).unwrap();
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![cert], key).unwrap()
            }
        }
    }
}

type Tls = StreamOwned<ClientConnection, TcpStream>;

fn connect(to: SocketAddr, config: impl Into<Arc<ClientConfig>>) -> Tls {
    let name = "localhost".try_into().unwrap();
    let socket = Tcp::connect(to).0;
    StreamOwned::new(ClientConnection::new(config.into(), name).unwrap(), socket)
}

fn ask(tls: &mut Tls, request: &[u8], reply: &[u8]) {
    tls.write_all(request).unwrap();
    let mut got = vec![0; reply.len()];
    tls.read_exact(&mut got).unwrap();
    assert_eq!(got, reply);
}

/// What a connection says that is refused.
fn refusal(mut tls: Tls) -> String {
    // The alert may have come already.
    let mut byte = [0];
    match tls.write_all(b"version\r\n").and_then(|()| tls.read(&mut byte)) {
        Ok(0) => "the end".to_owned(),
        Ok(_) => panic!("it is served"),
        Err(error) => error.to_string(),
    }
}

/// Waits for what a thread counts after another client has its alert.
fn comes_to(tls: &mut Tls, name: &str, number: &str) {
    let begun = Instant::now();
    loop {
        let now = stat(tls, b"stats\r\n", name).unwrap();
        if now == number {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(10), "{name} {now}, not {number}");
    }
}

fn stat(tls: &mut Tls, page: &[u8], name: &str) -> Option<String> {
    tls.write_all(page).unwrap();
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(b"END\r\n") {
        tls.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let text = String::from_utf8(text).unwrap();
    let row = |line: &str| Some(line.strip_prefix(&format!("STAT {name} "))?.to_owned());
    text.lines().find_map(row)
}

/// A thread that cannot be made later would be the end of the process.
#[test]
fn threads_for_handshakes_are_there_from_the_start() {
    let world = World::new("tls-threads");
    let server = world.start(&["-t", "3"]);
    let names = || {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", server.pid())).unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        let mut names: Vec<_> = names.map(Result::unwrap).collect();
        names.retain(|name| name.starts_with("tls-"));
        names.sort();
        names
    };
    // A thread gives itself its name.
    let begun = Instant::now();
    while names().len() < 3 && begun.elapsed() < SOON {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(names(), ["tls-0\n", "tls-1\n", "tls-2\n"]);
}

#[test]
fn both_versions_carry_values_of_any_length() {
    let world = World::new("tls-versions");
    let server = world.start(&[]);
    assert_eq!(server.ready["udp"].as_array().map(Vec::len), Some(0), "UDP would be in the clear");
    for version in [&version::TLS12, &version::TLS13] {
        let mut tls = connect(server.tcp(), world.config_of(None, &[version]));
        for len in [0, 1, 16_383, 16_384, 16_385, 100_000, 1_000_000] {
            let value = vec![b'v'; len];
            let block = [&value[..], b"\r\n"].concat();
            ask(
                &mut tls,
                &[format!("set k 0 0 {len}\r\n").as_bytes(), &block].concat(),
                b"STORED\r\n",
            );
            let reply = [format!("VALUE k 0 {len}\r\n").as_bytes(), &block, b"END\r\n"].concat();
            ask(&mut tls, b"get k\r\n", &reply);
        }
        // Each byte a record, and many requests in one.
        for byte in b"mn\r\n" {
            tls.write_all(&[*byte]).unwrap();
        }
        ask(&mut tls, &b"mn\r\n".repeat(5000), &b"MN\r\n".repeat(5001));
        tls.conn.send_close_notify();
        tls.flush().unwrap();
        assert_eq!(tls.read(&mut [0]).unwrap(), 0, "closed on both sides");
    }
    server.stop();
}

#[test]
fn a_slow_reader_of_large_values_gets_all_of_them() {
    let world = World::new("tls-slow");
    let server = world.start(&[]);
    let mut tls = connect(server.tcp(), world.config(None));
    let block = [vec![b'v'; 900_000], b"\r\n".to_vec()].concat();
    ask(&mut tls, &[b"set k 0 0 900000\r\n", &block[..]].concat(), b"STORED\r\n");
    tls.write_all(&b"get k\r\n".repeat(20)).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let one = [b"VALUE k 0 900000\r\n", &block[..], b"END\r\n"].concat();
    for _ in 0..20 {
        let mut got = vec![0; one.len()];
        tls.read_exact(&mut got).unwrap();
        assert!(got == one);
    }
    server.stop();
}

/// What a client says in one write, and the end with it, is done, and the end is answered.
#[test]
fn an_end_that_comes_with_a_request_is_answered() {
    let world = World::new("tls-end");
    let server = world.start(&[]);
    let says_all = |tls: &mut Tls, request: &[u8]| {
        tls.conn.writer().write_all(request).unwrap();
        tls.conn.send_close_notify();
        let mut records = Vec::new();
        while tls.conn.wants_write() {
            tls.conn.write_tls(&mut records).unwrap();
        }
        tls.sock.write_all(&records).unwrap();
    };
    let set = |value: char| format!("set k 0 0 1 noreply\r\n{value}\r\n");
    let ends = |tls: &mut Tls| assert_eq!(tls.read(&mut [0]).unwrap(), 0, "closed on both sides");
    let mut other = connect(server.tcp(), world.config(None));
    for version in [&version::TLS12, &version::TLS13] {
        let mut tls = connect(server.tcp(), world.config_of(None, &[version]));
        ask(&mut tls, b"mn\r\n", b"MN\r\n");
        says_all(&mut tls, set('a').as_bytes());
        ends(&mut tls);
        ask(&mut other, b"get k\r\n", b"VALUE k 0 1\r\na\r\nEND\r\n");
        ask(&mut other, b"delete k\r\n", b"DELETED\r\n");
    }
    // With the last message of the handshake.
    for request in [set('b').as_bytes(), b""] {
        let mut tls = connect(server.tcp(), world.config_of(None, &[&version::TLS13]));
        while tls.conn.wants_write() {
            tls.conn.write_tls(&mut tls.sock).unwrap();
        }
        while tls.conn.is_handshaking() {
            tls.conn.read_tls(&mut tls.sock).unwrap();
            tls.conn.process_new_packets().unwrap();
        }
        says_all(&mut tls, request);
        ends(&mut tls);
    }
    ask(&mut other, b"get k\r\n", b"VALUE k 0 1\r\nb\r\nEND\r\n");
    server.stop();
}

#[test]
fn the_least_memory_for_connections_carries_the_largest_value() {
    let world = World::new("tls-least-memory");
    let args = ["-c", "16", "-t", "1", "-I", "4m", "--conn-memory"];
    let all = [world.args(), args.map(str::to_owned).to_vec(), vec!["1k".to_owned()]].concat();
    let all: Vec<&str> = ["-p", "-1"].into_iter().chain(all.iter().map(String::as_str)).collect();
    let said = text(&run(&all).stderr);
    let least = said.split("give it ").nth(1).and_then(|rest| rest.split(' ').next());
    let least = least.unwrap_or_else(|| panic!("{said}"));
    let server = world.start(&[&args[..], &[least]].concat());
    let mut tls = connect(server.tcp(), world.config(None));
    let len = (4 << 20) - 512;
    let block = [vec![b'v'; len], b"\r\n".to_vec()].concat();
    let set = format!("set k 0 0 {len}\r\n");
    ask(&mut tls, &[set.as_bytes(), &block].concat(), b"STORED\r\n");
    let reply = [format!("VALUE k 0 {len}\r\n").as_bytes(), &block, b"END\r\n"].concat();
    ask(&mut tls, b"get k\r\n", &reply);
    server.stop();
}

#[test]
fn the_least_version_is_as_asked() {
    let world = World::new("tls-least");
    let server = world.start(&["-o", "ssl_min_version=3"]);
    let said = refusal(connect(server.tcp(), world.config_of(None, &[&version::TLS12])));
    assert!(said.contains("ProtocolVersion"), "{said}");
    let mut tls = connect(server.tcp(), world.config(None));
    ask(&mut tls, b"mn\r\n", b"MN\r\n");
    comes_to(&mut tls, "ssl_handshake_errors", "1");
    let version = stat(&mut tls, b"stats settings\r\n", "ssl_min_version");
    assert_eq!(version.unwrap(), "tlsv1.3");
    server.stop();
}

#[test]
fn clients_show_certificates_where_they_are_asked_to() {
    let world = World::new("tls-mutual");
    let good = world.authority.signs(ExtendedKeyUsagePurpose::ClientAuth);
    let bad = Authority::new().signs(ExtendedKeyUsagePurpose::ClientAuth);
    let ca = format!("ssl_ca_cert={}", world.tree.path("ca"));
    // Ignored, checked, required, required once: which of none, good and bad are served.
    for (mode, served) in [
        ("0", [true, true, true]),
        ("1", [true, true, false]),
        ("2", [false, true, false]),
        ("3", [false, true, false]),
    ] {
        let server = world.start(&["-o", &ca, "-o", &format!("ssl_verify_mode={mode}")]);
        let mut refused = 0;
        for version in [&version::TLS12, &version::TLS13] {
            for (who, served) in [None, Some(&good), Some(&bad)].into_iter().zip(served) {
                let mut tls = connect(server.tcp(), world.config_of(who, &[version]));
                if served {
                    ask(&mut tls, b"mn\r\n", b"MN\r\n");
                } else {
                    refusal(tls);
                    refused += 1;
                }
            }
        }
        // What alert each got shows with other clients: this one loses some (`tests/e2e/tls.py`).
        let mut tls = connect(server.tcp(), world.config(Some(&good)));
        // It is counted when the connection is over, which the client sees first.
        comes_to(&mut tls, "ssl_handshake_errors", &refused.to_string());
        server.stop();
    }
}

#[test]
fn listeners_have_rules_of_their_own() {
    let world = World::new("tls-listeners");
    let good = world.authority.signs(ExtendedKeyUsagePurpose::ClientAuth);
    let ca = format!("ssl_ca_cert={}", world.tree.path("ca"));
    let listen = "notls:127.0.0.1,btls:127.0.0.2,mtls:127.0.0.3";
    let server = world.start(&["-l", listen, "-o", &ca, "-o", "ssl_verify_mode=2"]);
    let at = |n: usize| server.ready["tcp"][n].as_str().unwrap().parse().unwrap();
    Tcp::connect(at(0)).expect("mn\r\n", "MN\r\n");
    ask(&mut connect(at(1), world.config(None)), b"mn\r\n", b"MN\r\n");
    refusal(connect(at(2), world.config(None)));
    ask(&mut connect(at(2), world.config(Some(&good))), b"mn\r\n", b"MN\r\n");
    server.stop();
}

#[test]
fn what_is_no_handshake_is_told_so_and_harms_nobody() {
    let world = World::new("tls-garbage");
    let server = world.start(&["-c", "64"]);
    let mut tls = connect(server.tcp(), world.config(None));
    ask(&mut tls, b"set k 0 0 1\r\nv\r\n", b"STORED\r\n");
    for garbage in
        [&b"get k\r\n"[..], b"\x80\x00\x00\x01\x00", &[0x16; 70_000], b"\x16\x03\x01\xff\xff"]
    {
        let mut plain = Tcp::connect(server.tcp());
        let _ = plain.0.write_all(garbage);
        let _ = plain.0.shutdown(std::net::Shutdown::Write);
        let mut said = Vec::new();
        let _ = plain.0.read_to_end(&mut said);
        // An alert, or nothing.
        assert!(said.is_empty() || said[0] == 21, "{said:?}");
    }
    let halves: Vec<_> = (0..60)
        .map(|_| {
            let mut half = Tcp::connect(server.tcp());
            half.send(b"\x16\x03\x01\x02\x00\x01");
            half
        })
        .collect();
    // Of one source, half of the places: the others are closed at once.
    let deadline = Instant::now() + SOON;
    while stat(&mut tls, b"stats\r\n", "ssl_handshakes_refused").unwrap() != "28" {
        assert!(Instant::now() < deadline);
    }
    ask(&mut tls, b"get k\r\n", b"VALUE k 0 1\r\nv\r\nEND\r\n");
    drop(halves);
    while stat(&mut tls, b"stats\r\n", "curr_connections").unwrap() != "1" {
        assert!(Instant::now() < deadline);
    }
    ask(&mut connect(server.tcp(), world.config(None)), b"mn\r\n", b"MN\r\n");
    // What is no record, behind a handshake that was one.
    tls.sock.write_all(b"get k\r\n get k\r\n").unwrap();
    assert_ne!(tls.read(&mut [0]).map_err(|e| e.kind()), Err(ErrorKind::WouldBlock));
    let mut tls = connect(server.tcp(), world.config(None));
    comes_to(&mut tls, "ssl_proto_errors", "1");
    server.stop();
}

#[test]
fn new_certificates_are_seen_by_new_connections_and_end_no_old_one() {
    let world = World::new("tls-renew");
    let server = world.start(&["-u", "nobody"]);
    let shown = |tls: &Tls| tls.conn.peer_certificates().unwrap()[0].clone();
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut old = connect(server.tcp(), world.config(None));
    ask(&mut old, b"mn\r\n", b"MN\r\n");
    let renewed = world.renew();
    server.signal(Signal::SIGHUP);
    server.wait_for_log("read the certificates again");
    let mut new = connect(server.tcp(), world.config(None));
    ask(&mut new, b"mn\r\n", b"MN\r\n");
    assert_eq!(shown(&new), der(&renewed));
    assert_ne!(shown(&old), der(&renewed));
    ask(&mut old, b"mn\r\n", b"MN\r\n");
    let renewed = world.renew();
    ask(&mut old, b"refresh_certs\r\n", b"OK\r\n");
    let mut new = connect(server.tcp(), world.config(None));
    ask(&mut new, b"mn\r\n", b"MN\r\n");
    assert_eq!(shown(&new), der(&renewed));
    world.tree.write("cert", "broken");
    old.write_all(b"refresh_certs\r\n").unwrap();
    let mut said = [0; 39];
    old.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"Error loading the certificate chain: /t");
    server.signal(Signal::SIGHUP);
    server.wait_for_log("the certificates stay as they were");
    ask(&mut connect(server.tcp(), world.config(None)), b"mn\r\n", b"MN\r\n");
    server.stop();
}

#[test]
fn sessions_are_taken_up_again_where_they_are_kept() {
    let world = World::new("tls-sessions");
    for (options, kind) in
        [("modern", HandshakeKind::Full), ("ssl_session_cache", HandshakeKind::Resumed)]
    {
        let server = world.start(&["-o", options]);
        for version in [&version::TLS12, &version::TLS13] {
            let config = Arc::new(world.config_of(None, &[version]));
            let mut first = connect(server.tcp(), Arc::clone(&config));
            ask(&mut first, b"mn\r\n", b"MN\r\n");
            let mut second = connect(server.tcp(), config);
            ask(&mut second, b"mn\r\n", b"MN\r\n");
            assert_eq!(second.conn.handshake_kind(), Some(kind), "{version:?}");
        }
        let mut tls = connect(server.tcp(), world.config(None));
        let sessions = stat(&mut tls, b"stats\r\n", "ssl_new_sessions");
        assert_eq!(sessions.is_some(), kind == HandshakeKind::Resumed);
        server.stop();
    }
}

#[test]
fn udp_is_served_in_the_clear_only_where_it_is_asked_for() {
    let world = World::new("tls-udp");
    let server = world.start(&["-U", "-1"]);
    Udp::to(server.udp()).expect(7, "mn\r\n", "MN\r\n");
    server.stop();
}

#[test]
fn what_does_not_fit_together_is_refused() {
    let world = World::new("tls-refused");
    let cert = format!("ssl_chain_cert={}", world.tree.path("cert"));
    let refused = |args: &[&str], said: &str| refuses(&run(&[&["-p", "-1"], args].concat()), said);
    refused(&["-Z"], "-Z: name the server's certificate");
    refused(&["-Z", "-o", &cert, "-o", "ssl_verify_mode=1"], "-Z: name who vouches");
    refused(&["-Z", "-o", &cert, "-o", "ssl_key=/none"], "Error loading the key: /none");
    refused(&["-l", "mtls:127.0.0.1"], "-l btls: and mtls: need -Z");
    refused(&["-Z", "-o", &cert, "-s", "/tmp/none"], "-Z: a Unix socket");
    let key = format!("ssl_key={}", world.tree.path("key"));
    refused(
        &["-Z", "-o", &cert, "-o", &key, "-o", "ssl_ciphers=RC4-SHA"],
        "Error setting the provided",
    );
}
