//! Clients as small as can be.

use crate::server::SOON;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::time::Duration;

pub(crate) struct Tcp(pub(crate) TcpStream);

impl Tcp {
    pub(crate) fn connect(to: SocketAddr) -> Self {
        let stream = TcpStream::connect(to).expect("connects");
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_write_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.0.write_all(bytes.as_ref()).expect("sends");
    }

    pub(crate) fn receive(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = vec![0; n];
        self.0.read_exact(&mut bytes).expect("receives");
        bytes
    }

    /// Everything until the server closes.
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.0.read_to_end(&mut bytes).expect("the server closes");
        bytes
    }

    /// Sends and expects exactly this, and nothing else before it.
    pub(crate) fn expect(&mut self, request: &str, reply: &str) {
        self.send(request);
        let got = self.receive(reply.len());
        assert_eq!(String::from_utf8_lossy(&got), reply, "to {request:?}");
    }

    /// The reply up to `END`.
    pub(crate) fn until_end(&mut self, request: &str) -> String {
        self.send(request);
        self.until("END\r\n")
    }

    /// What comes up to these bytes.
    pub(crate) fn until(&mut self, end: &str) -> String {
        let mut text = Vec::new();
        while !text.ends_with(end.as_bytes()) {
            text.extend(self.receive(1));
        }
        String::from_utf8(text).unwrap()
    }

    pub(crate) fn set(&mut self, key: &str, value: &[u8]) {
        self.send(format!("set {key} 0 0 {}\r\n", value.len()));
        self.send(value);
        self.expect("\r\n", "STORED\r\n");
    }
}

pub(crate) struct Udp(UdpSocket);

impl Udp {
    pub(crate) fn to(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect(server).unwrap();
        Self(socket)
    }

    pub(crate) fn send(&self, id: u16, request: impl AsRef<[u8]>) {
        let [a, b] = id.to_be_bytes();
        let mut datagram = vec![a, b, 0, 0, 0, 1, 0, 0];
        datagram.extend(request.as_ref());
        self.0.send(&datagram).unwrap();
    }

    /// The next reply datagram, frame header first; `None` when none comes in time.
    pub(crate) fn receive(&self, at_most: Duration) -> Option<Vec<u8>> {
        self.0.set_read_timeout(Some(at_most)).unwrap();
        let mut bytes = [0; 65_536];
        let n = self.0.recv(&mut bytes).ok()?;
        Some(bytes[..n].to_vec())
    }

    pub(crate) fn expect(&self, id: u16, request: &str, reply: &str) {
        self.send(id, request);
        let got = self.receive(SOON).expect("an answer");
        let [a, b] = id.to_be_bytes();
        assert_eq!(got[..8], [a, b, 0, 0, 0, 1, 0, 0]);
        assert_eq!(String::from_utf8_lossy(&got[8..]), reply);
    }
}
