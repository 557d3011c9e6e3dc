//! A TCP client with a stack of its own, on the far side of a worker's wire.

use crate::world::{CLIENT4, CLIENT6, PORT, World};
use driver_shim::ports::memory::PEER_MAC;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp;
use smoltcp::time::Instant as Clock;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpAddress, IpCidr};
use std::collections::VecDeque;
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The far end of the wire as the client's stack sees it.
#[derive(Default)]
pub(crate) struct Far {
    pub(crate) come: VecDeque<Vec<u8>>,
    pub(crate) gone: VecDeque<Vec<u8>>,
}

pub(crate) struct Rx(Vec<u8>);
pub(crate) struct Tx<'a>(&'a mut VecDeque<Vec<u8>>);

impl RxToken for Rx {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(&self.0)
    }
}

impl TxToken for Tx<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, f: F) -> R {
        let mut bytes = vec![0; len];
        let result = f(&mut bytes);
        self.0.push_back(bytes);
        result
    }
}

impl Device for Far {
    type RxToken<'a> = Rx;
    type TxToken<'a> = Tx<'a>;

    fn receive(&mut self, _: Clock) -> Option<(Rx, Tx<'_>)> {
        Some((Rx(self.come.pop_front()?), Tx(&mut self.gone)))
    }

    fn transmit(&mut self, _: Clock) -> Option<Tx<'_>> {
        Some(Tx(&mut self.gone))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut caps = DeviceCapabilities::default();
        caps.medium = Medium::Ethernet;
        caps.max_transmission_unit = 1514;
        caps
    }
}

pub(crate) fn ip(address: impl Into<IpAddr>) -> IpAddress {
    address.into().into()
}

/// A client's machine: one stack, any number of connections.
pub(crate) struct Client {
    pub(crate) far: Far,
    interface: Interface,
    sockets: SocketSet<'static>,
    started: Instant,
    next_port: u16,
}

impl Client {
    pub(crate) fn new() -> Self {
        let mut far = Far::default();
        let mac = EthernetAddress(PEER_MAC.0);
        let mut config = Config::new(HardwareAddress::Ethernet(mac));
        config.random_seed = 7;
        let mut interface = Interface::new(config, &mut far, Clock::ZERO);
        interface.update_ip_addrs(|all| {
            all.push(IpCidr::new(ip(CLIENT4), 24)).unwrap();
            all.push(IpCidr::new(ip(CLIENT6), 64)).unwrap();
        });
        let sockets = SocketSet::new(Vec::new());
        Self { far, interface, sockets, started: Instant::now(), next_port: 40_000 }
    }

    pub(crate) fn connect(&mut self, to: IpAddress) -> SocketHandle {
        let buffer = || tcp::SocketBuffer::new(vec![0; 64 << 10]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        socket.set_nagle_enabled(false);
        self.next_port += 1;
        socket.connect(self.interface.context(), (to, PORT), self.next_port).unwrap();
        self.sockets.add(socket)
    }

    pub(crate) fn socket(&mut self, handle: SocketHandle) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(handle)
    }

    /// Carries frames both ways; the worker is not run.
    pub(crate) fn exchange(&mut self, w: &mut World) {
        let now = Clock::from_micros(i64::try_from(self.started.elapsed().as_micros()).unwrap());
        self.far.come.extend(w.received(0).iter().map(|f| f.bytes().to_vec()));
        self.interface.poll(now, &mut self.far, &mut self.sockets);
        for bytes in self.far.gone.drain(..) {
            w.send(&bytes);
        }
    }

    /// Lets both sides work once.
    pub(crate) fn step(&mut self, w: &mut World) {
        self.exchange(w);
        w.workers[0].turn();
    }

    /// Lets both sides work until `done`, for at most a minute.
    pub(crate) fn until(&mut self, w: &mut World, mut done: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        while !done(self) {
            assert!(begun.elapsed() < Duration::from_secs(60), "it does not come about");
            self.step(w);
        }
    }

    /// Sends all of `request` and reads `len` bytes.
    pub(crate) fn ask(
        &mut self,
        w: &mut World,
        c: SocketHandle,
        request: &[u8],
        len: usize,
    ) -> Vec<u8> {
        let (mut sent, mut got) = (0, Vec::new());
        self.until(w, |client| {
            let socket = client.socket(c);
            if sent < request.len() && socket.may_send() {
                sent += socket.send_slice(&request[sent..]).unwrap();
            }
            while socket.can_recv() {
                socket.recv(|bytes| (bytes.len(), got.extend_from_slice(bytes))).unwrap();
            }
            got.len() >= len && sent == request.len()
        });
        got
    }

    pub(crate) fn say(&mut self, w: &mut World, c: SocketHandle, request: &str, reply: &str) {
        let got = self.ask(w, c, request.as_bytes(), reply.len());
        assert_eq!(String::from_utf8_lossy(&got), reply, "{request}");
    }

    /// Ends a connection from our side, and waits until both have.
    pub(crate) fn close(&mut self, w: &mut World, c: SocketHandle) {
        self.socket(c).close();
        let over =
            |s: &tcp::Socket<'_>| matches!(s.state(), tcp::State::Closed | tcp::State::TimeWait);
        self.until(w, |client| over(client.socket(c)));
    }
}
