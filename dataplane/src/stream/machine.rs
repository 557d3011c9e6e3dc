//! The state machine of one TCP connection: smoltcp's, behind what this stage needs of it.
//!
//! In: IP packets with segments of this connection, bytes to send, the time. Out: received bytes in
//! order, segments to send through a [`Wire`], and when to be looked at again. Each connection has a
//! socket set of its own with one socket in it, made at the start with its buffers; the [`Stack`]
//! that runs it is one per port. No other file of the stage knows smoltcp, but for [`super::frames`].
//! Memory is fixed, and no input fails or panics here.

use super::frames::Wire;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::socket::tcp::{self, CongestionControl, State};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::HardwareAddress;

/// A client from which nothing has come for so long is asked whether it is still there,
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// and given up when it says nothing for so long.
const SILENCE_MAX: Duration = Duration::from_secs(180);

fn at(now_ns: u64) -> Instant {
    Instant::from_micros(i64::try_from(now_ns / 1000).unwrap_or(i64::MAX))
}

/// What runs the state machines of one port's connections.
pub(super) struct Stack {
    interface: Interface,
    none: SocketSet<'static>,
}

impl std::fmt::Debug for Stack {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Stack")
    }
}

impl Stack {
    /// A stack for a port as `wire` describes it. The next connection to begin has the initial
    /// sequence number that follows from `seed`.
    pub(super) fn new(wire: &mut Wire<'_>, seed: u64) -> Self {
        Self { interface: interface(wire, seed), none: SocketSet::new(Vec::new()) }
    }

    /// Makes the initial sequence number of the next connection follow from `seed`.
    pub(super) fn seed(&mut self, wire: &mut Wire<'_>, seed: u64) {
        self.interface = interface(wire, seed);
    }

    /// Answers the packet in `wire` as one of no connection: with a reset.
    pub(super) fn refuse(&mut self, wire: &mut Wire<'_>, now_ns: u64) {
        self.interface.poll_ingress_single(at(now_ns), wire, &mut self.none);
    }
}

/// Takes no memory.
fn interface(wire: &mut Wire<'_>, seed: u64) -> Interface {
    let mut config = Config::new(HardwareAddress::Ip);
    config.random_seed = seed;
    let mut interface = Interface::new(config, wire, Instant::ZERO);
    // Room 3 has checked the destination.
    interface.set_any_ip(true);
    interface
}

/// Where a connection stands, as far as others need to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    /// No connection.
    None,
    /// The client has still to confirm.
    Opening,
    /// Bytes may come and go.
    Open,
    /// The client sends no more; replies may still go.
    HalfClosed,
    /// We have ended it, and the client has still to.
    Closing,
    /// Ended by both; late segments may still come.
    Ended,
}

/// The state machine of one connection.
#[derive(Debug)]
pub(super) struct Machine {
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

impl Machine {
    /// One with buffers of so many bytes for what comes and for what goes.
    pub(super) fn new(in_bytes: usize, out_bytes: usize) -> Self {
        let buffer = |bytes| tcp::SocketBuffer::new(vec![0; bytes]);
        let mut socket = tcp::Socket::new(buffer(in_bytes), buffer(out_bytes));
        socket.set_nagle_enabled(false);
        // Segments leave when what came has been answered: an acknowledgement that no reply carries by
        // then would wait for nothing, and a client under Nagle's rule would wait for it.
        socket.set_ack_delay(None);
        socket.set_keep_alive(Some(KEEP_ALIVE));
        socket.set_timeout(Some(SILENCE_MAX));
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Self { sockets, handle }
    }

    fn socket(&mut self) -> &mut tcp::Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    fn look(&self) -> &tcp::Socket<'static> {
        self.sockets.get(self.handle)
    }

    /// Forgets what was, without a word to the client, and awaits a SYN to `port`, which is not 0.
    pub(super) fn listen(&mut self, port: u16) {
        let socket = self.socket();
        socket.abort();
        socket.set_congestion_control(CongestionControl::Reno);
        // Fails only for port 0: then no SYN is taken.
        let _ = socket.listen(port);
    }

    /// Takes the packet in `wire`.
    pub(super) fn take(&mut self, stack: &mut Stack, wire: &mut Wire<'_>, now_ns: u64) {
        stack.interface.poll_ingress_single(at(now_ns), wire, &mut self.sockets);
    }

    /// Sends what is due. False: there was no room for all of it.
    pub(super) fn send_due(&mut self, stack: &mut Stack, wire: &mut Wire<'_>, now_ns: u64) -> bool {
        let now = at(now_ns);
        loop {
            let sent = stack.interface.poll_egress(now, wire, &mut self.sockets);
            if sent == smoltcp::iface::PollResult::None {
                break;
            }
        }
        !wire.is_stuck()
    }

    /// When [`Self::send_due`] is to be called again, in nanoseconds of the worker's clock.
    pub(super) fn due_ns(&self, stack: &mut Stack, now_ns: u64) -> Option<u64> {
        let due = stack.interface.poll_at(at(now_ns), &self.sockets)?;
        Some(u64::try_from(due.total_micros()).unwrap_or(0).saturating_mul(1000))
    }

    pub(super) fn stand(&self) -> Stand {
        match self.look().state() {
            State::Closed | State::Listen | State::SynSent => Stand::None,
            State::SynReceived => Stand::Opening,
            State::Established => Stand::Open,
            State::CloseWait => Stand::HalfClosed,
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck => Stand::Closing,
            State::TimeWait => Stand::Ended,
        }
    }

    /// Bytes that have come and were not used up.
    pub(super) fn waiting(&self) -> usize {
        self.look().recv_queue()
    }

    /// Bytes that may wait at most.
    pub(super) fn waiting_max(&self) -> usize {
        self.look().recv_capacity()
    }

    /// Gives `read` the bytes that have come as far as they lie together, and drops as many of them
    /// as it says. `None`: there are none.
    pub(super) fn read<R>(&mut self, read: impl FnOnce(&[u8]) -> (usize, R)) -> Option<R> {
        self.socket().recv(|bytes| read(bytes)).ok()
    }

    /// Copies the bytes that have come, however they lie, and says how many.
    pub(super) fn peek(&mut self, into: &mut [u8]) -> usize {
        self.socket().peek_slice(into).unwrap_or(0)
    }

    /// Drops `n` of the bytes that have come.
    pub(super) fn skip(&mut self, mut n: usize) {
        while n > 0 {
            let dropped = self.read(|bytes| (n.min(bytes.len()), n.min(bytes.len())));
            match dropped {
                None | Some(0) => break,
                Some(dropped) => n -= dropped,
            }
        }
    }

    /// Bytes that [`Self::write`] has room for.
    pub(super) fn room(&self) -> usize {
        let socket = self.look();
        socket.send_capacity() - socket.send_queue()
    }

    /// Bytes that may be under way at most.
    pub(super) fn room_max(&self) -> usize {
        self.look().send_capacity()
    }

    /// Takes bytes to send, and says how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        self.socket().send_slice(bytes).unwrap_or(0)
    }

    /// Ends our side, behind what is still to be sent.
    pub(super) fn close(&mut self) {
        self.socket().close();
    }

    /// Ends both sides with a reset, which [`Self::send_due`] sends.
    pub(super) fn abort(&mut self) {
        self.socket().abort();
    }
}
