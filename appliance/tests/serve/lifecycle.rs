//! Ready, running, and the several ways to end.

use crate::client::{Tcp, Udp};
use crate::server::{SOON, Server, Tree, gnomon};
use nix::sys::signal::Signal;
use std::net::TcpStream;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::{Duration, Instant};

#[test]
fn sigterm_ends_it_with_every_frame_accounted_for() {
    let server = Server::start(&["-m", "8"]);
    let mut tcp = Tcp::connect(server.tcp());
    tcp.expect("set a 5 0 1\r\nx\r\n", "STORED\r\n");
    let udp = Udp::to(server.udp());
    for id in 0..100 {
        udp.expect(id, "get a\r\n", "VALUE a 5 1\r\nx\r\nEND\r\n");
    }
    let report = server.stop();
    assert_eq!(report["received"], 100);
    assert_eq!(report["answered"], 100);
    assert_eq!(report["slots"], report["slots_home"]);
    assert_eq!(report["gets"], serde_json::json!([100, 100]));
    assert_eq!(report["connections"], serde_json::json!([1, 0]));
    // The connection that was open was closed in good order.
    assert!(tcp.rest().is_empty());
}

#[test]
fn sigint_does_the_same() {
    let server = Server::start(&["-m", "8"]);
    Tcp::connect(server.tcp()).expect("version\r\n", "VERSION ");
    server.stop_by(Signal::SIGINT);
}

#[test]
fn it_ends_soon_with_idle_connections() {
    let took = || {
        let server = Server::start(&["-m", "8"]);
        let _idle: Vec<Tcp> = (0..20).map(|_| Tcp::connect(server.tcp())).collect();
        let begun = Instant::now();
        server.stop();
        begun.elapsed()
    };
    // A client that has sent nothing is waited for a moment, and no longer. On a busy machine
    // one try may take long for other reasons; not each of ten.
    assert!((0..10).any(|_| took() < Duration::from_millis(900)));
}

#[test]
fn a_client_that_does_not_read_delays_the_end_but_does_not_prevent_it() {
    let server = Server::start(&["-m", "16", "--drain-seconds", "1"]);
    let _stuck = stuck(&server);
    assert_eq!(server.stop()["connections_cut"], 1);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    let mut server = Server::start(&["-m", "16"]);
    let _stuck = stuck(&server);
    server.signal(Signal::SIGTERM);
    server.wait_for_log("draining");
    server.signal(Signal::SIGTERM);
    assert_eq!(server.exit_code(), Some(128 + 15));
}

/// A client to whom more is owed than the kernel takes, and who does not read.
fn stuck(server: &Server) -> Tcp {
    let mut client = Tcp::connect(server.tcp());
    client.set("big", &vec![b'x'; 900_000]);
    client.send("get big\r\n".repeat(64));
    // Some of it arrives: it is being sent.
    client.receive(1000);
    client
}

#[test]
fn udp_can_be_off() {
    let server = Server::spawn(crate::server::gnomon().args(["-p", "-1", "-U", "0", "-m", "8"]));
    assert_eq!(server.ready["udp"], serde_json::json!([]));
    assert_eq!(server.ready["workers"], 0);
    Tcp::connect(server.tcp()).expect("get a\r\n", "END\r\n");
    let report = server.stop();
    assert_eq!(report["slots"], 0);
}

#[test]
fn tcp_can_be_off() {
    let server = Server::spawn(crate::server::gnomon().args(["-p", "0", "-U", "-1", "-m", "8"]));
    assert_eq!(server.ready["tcp"], serde_json::json!([]));
    Udp::to(server.udp()).expect(1, "get a\r\n", "END\r\n");
    server.stop();
}

#[test]
fn the_port_is_free_again_afterwards() {
    let server = Server::start(&["-m", "8"]);
    let (tcp, udp) = (server.tcp(), server.udp());
    Tcp::connect(tcp).expect("version\r\n", "VERSION ");
    server.stop();
    assert!(TcpStream::connect_timeout(&tcp, SOON).is_err());
    let again = Server::spawn(crate::server::gnomon().args([
        "-p",
        &tcp.port().to_string(),
        "-U",
        &udp.port().to_string(),
        "-m",
        "8",
    ]));
    assert_eq!((again.tcp(), again.udp()), (tcp, udp));
}

/// What a service manager hears, until `last` or for `SOON`.
fn heard(socket: &UnixDatagram, last: &str) -> Vec<String> {
    let deadline = Instant::now() + SOON;
    let mut lines = Vec::new();
    let mut buffer = [0; 1024];
    socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    while Instant::now() < deadline && !lines.iter().any(|l| l == last) {
        if let Ok(n) = socket.recv(&mut buffer) {
            lines.extend(std::str::from_utf8(&buffer[..n]).unwrap().lines().map(str::to_owned));
        }
    }
    lines
}

#[test]
fn a_service_manager_hears_when_it_is_ready_alive_and_stopping() {
    let tree = Tree::empty("notify");
    let path = tree.path("socket");
    a_manager_hears(&UnixDatagram::bind(&path).unwrap(), &path);
    // A name without a file.
    let name = format!("gnomon-notify-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    a_manager_hears(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
}

fn a_manager_hears(socket: &UnixDatagram, named: &str) {
    let mut command = gnomon();
    command.env("NOTIFY_SOCKET", named).env("WATCHDOG_USEC", "200000");
    let server = Server::spawn(command.args(["serve", "-p", "-1", "-U", "-1", "-m", "8"]));
    let said = heard(socket, "WATCHDOG=1");
    assert!(said.contains(&"READY=1".to_owned()), "{said:?}");
    assert!(said.contains(&"WATCHDOG=1".to_owned()), "{said:?}");
    server.stop();
    assert!(heard(socket, "STOPPING=1").contains(&"STOPPING=1".to_owned()));
}
