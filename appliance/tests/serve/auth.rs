//! `-Y`: who is served, and SIGHUP.

use crate::client::Tcp;
use crate::server::{Server, Tree, gnomon};
use memcache::binary::{Header, RESPONSE_MAGIC, opcode};
use nix::sys::signal::Signal;
use std::io::Read;

fn start(users: &Tree) -> Server {
    let path = users.path("users");
    Server::spawn(gnomon().args(["-p", "-1", "-m", "8", "-t", "2", "-Y", &path]))
}

const LOGIN: &str = "set any 1 2 10\r\nann s3cret\r\n";

#[test]
fn nobody_is_served_before_authenticating() {
    let users = Tree::new("auth", "users", "ann:s3cret\nbob:x\n");
    let server = start(&users);
    assert_eq!(server.ready["udp"], serde_json::json!([]));
    let mut c = Tcp::connect(server.tcp());
    for refused in ["get a\r\n", "stats\r\n", "quit\r\n", "set a 0 0 x\r\n"] {
        c.expect(refused, "CLIENT_ERROR unauthenticated\r\n");
    }
    c.expect("set a 0 0 9\r\nann wrong\r\n", "CLIENT_ERROR authentication failure\r\n");
    c.expect("set a 0 0 3\r\nann\r\n", "CLIENT_ERROR bad authentication token format\r\n");
    // What comes right after the words belongs to the conversation.
    let request = LOGIN.to_owned() + "set k 0 0 1\r\nv\r\nget k any\r\n";
    c.expect(&request, "STORED\r\nSTORED\r\nVALUE k 0 1\r\nv\r\nEND\r\n");
    let stats = c.until_end("stats\r\n");
    assert!(stats.contains("STAT auth_cmds 2\r\n"), "{stats}");
    assert!(stats.contains("STAT auth_errors 1\r\n"), "{stats}");
    // Each connection for itself; and a binary client is closed at once.
    let mut other = Tcp::connect(server.tcp());
    other.expect("get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
    let mut binary = Tcp::connect(server.tcp());
    binary.send(b"\x80");
    assert!(binary.rest().is_empty());
    let mut rubbish = Tcp::connect(server.tcp());
    rubbish.send([b'x'; 4000]);
    assert!(ends(&mut rubbish));
    server.stop();
}

/// With `-S` the same users come by SASL, too.
#[test]
fn who_speaks_the_binary_protocol_authenticates_by_sasl() {
    let users = Tree::new("sasl", "users", "ann:s3cret\n");
    let path = users.path("users");
    let server = Server::spawn(gnomon().args(["-p", "-1", "-m", "8", "-Y", &path, "-S"]));
    assert_eq!(server.ready["udp"], serde_json::json!([]));
    let told = |request: &Header, status: u16, text: &str| {
        let header = Header { magic: RESPONSE_MAGIC, status, ..*request };
        header.packet(b"", b"", text.as_bytes()).unwrap()
    };
    let auth = Header { opaque: *b"abcd", ..Header::request(opcode::SASL_AUTH) };
    let attempt = |message: &[u8]| auth.packet(b"", b"PLAIN", message).unwrap();
    let [list, get] = [opcode::SASL_LIST, opcode::GET].map(Header::request);
    let mut c = Tcp::connect(server.tcp());
    let mut ask = |packets: Vec<u8>, replies: Vec<u8>| {
        c.send(packets);
        assert_eq!(c.receive(replies.len()), replies);
    };
    ask(list.bytes().to_vec(), told(&list, 0, "PLAIN"));
    ask(attempt(b"\0ann\0wrong"), told(&auth, 0x20, "Auth failure."));
    let both = [attempt(b"\0ann\0s3cret"), get.packet(b"", b"k", b"").unwrap()].concat();
    let replies = [told(&auth, 0, "Authenticated"), told(&get, 1, "Not found")].concat();
    ask(both, replies);
    ask(list.bytes().to_vec(), told(&list, 0x81, "Unknown command"));
    // What asks for anything else first is refused, and closed.
    let mut stranger = Tcp::connect(server.tcp());
    stranger.send(get.packet(b"", b"k", b"").unwrap());
    assert_eq!(stranger.rest(), told(&get, 0x20, "Auth failure."));
    // The text protocol as without -S.
    let mut text = Tcp::connect(server.tcp());
    text.expect("get k\r\n", "CLIENT_ERROR unauthenticated\r\n");
    text.expect(LOGIN, "STORED\r\n");
    let stats = text.until_end("stats\r\n");
    assert!(stats.contains("STAT auth_cmds 3\r\nSTAT auth_errors 1\r\n"), "{stats}");
    assert!(text.until_end("stats settings\r\n").contains("STAT auth_enabled_sasl yes\r\n"));
    server.stop();
}

/// The server closes, in good order or not: bytes of ours may be unread.
fn ends(c: &mut Tcp) -> bool {
    !matches!(c.0.read(&mut [0; 100]), Ok(1..))
}

#[test]
fn sighup_reads_the_users_again() {
    let users = Tree::new("hup", "users", "ann:s3cret\n");
    let server = start(&users);
    let mut known = Tcp::connect(server.tcp());
    known.expect(LOGIN, "STORED\r\n");
    users.write("users", "ann:new\n");
    server.signal(Signal::SIGHUP);
    server.wait_for_log("read the authentication file again");
    let mut c = Tcp::connect(server.tcp());
    c.expect(LOGIN, "CLIENT_ERROR authentication failure\r\n");
    c.expect("set a 0 0 7\r\nann new\r\n", "STORED\r\n");
    // Who was in stays in.
    known.expect("get a\r\n", "END\r\n");

    users.write("users", "broken");
    server.signal(Signal::SIGHUP);
    server.wait_for_log("line 1 is not user:password; the users stay as they were");
    Tcp::connect(server.tcp()).expect("set a 0 0 7\r\nann new\r\n", "STORED\r\n");
    server.stop();
}

#[test]
fn sighup_reads_users_behind_a_link_again() {
    let (users, real) = (Tree::empty("hup-link"), Tree::new("hup-real", "users1", "ann:s3cret\n"));
    std::os::unix::fs::symlink(real.path("users1"), users.path("users")).unwrap();
    let server = start(&users);
    Tcp::connect(server.tcp()).expect(LOGIN, "STORED\r\n");
    real.write("users1", "ann:new\n");
    server.signal(Signal::SIGHUP);
    server.wait_for_log("read the authentication file again");
    Tcp::connect(server.tcp()).expect("set a 0 0 7\r\nann new\r\n", "STORED\r\n");
    server.stop();
}

#[test]
fn sighup_without_a_file_ends_nothing() {
    let server = Server::start(&["-m", "8"]);
    server.signal(Signal::SIGHUP);
    server.wait_for_log("there is no file to read again");
    Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
    server.stop();
}

#[test]
fn a_file_that_others_may_read_is_warned_of() {
    let users = Tree::new("readable", "users", "ann:s3cret\n");
    let path = users.path("users");
    let mode = |mode| {
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode))
            .unwrap();
    };
    let said = |mode_now| {
        mode(mode_now);
        let out = crate::server::run(&["-p", "-1", "-Y", &path, "--dry-run"]);
        assert_eq!(out.status.code(), Some(0));
        crate::server::text(&out.stderr)
    };
    for (open, others) in
        [(0o666, true), (0o604, true), (0o660, true), (0o640, false), (0o600, false)]
    {
        let said = said(open);
        assert_eq!(said.contains("chmod 600"), others, "{open:o}: {said}");
    }
}

#[test]
fn words_that_nobody_can_log_in_with_are_refused() {
    let users = Tree::new("blank", "users", "a b:c\n");
    let path = users.path("users");
    let out = crate::server::run(&["-p", "-1", "-Y", &path]);
    let said = format!("the authentication file {path}: line 1 has a blank in the user");
    crate::server::refuses(&out, &said);
}
