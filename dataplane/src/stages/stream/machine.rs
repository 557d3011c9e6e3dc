//! The state machine of one TCP connection: smoltcp's, behind what this stage needs of it.
//!
//! In: segments of this connection, bytes to send, the time. Out: received bytes in
//! order, segments to send through a [`Wire`], and when to be looked at again. Each connection has a socket of
//! its own, made at the start with its buffers. Only this file and [`super::frames`] use smoltcp.
//! Memory is fixed, but that the pages of empty buffers can be given back; no input fails or panics here.
#![allow(unsafe_code)]

use super::frames::Wire;
use super::table::FourTuple;
use driver_shim::buffers::Backing;
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpPacket, TcpRepr, TcpSeqNumber};
use smoltcp_tcp::socket::tcp::{self, CongestionControl, State};
use smoltcp_tcp::socket::{Context, PollAt};
use wire::Tcp;

/// A client from which nothing has come for so long is asked whether it is still there,
const KEEP_ALIVE: Duration = Duration::from_secs(60);
/// and given up when it says nothing for so long.
const SILENCE_MAX: Duration = Duration::from_secs(180);
/// What is not acknowledged for so long is sent again, or later: as Linux has it. RFC 6298's second is of a
/// time when clocks were coarse.
const RETRANSMIT_MIN: Duration = Duration::from_millis(200);
/// Routers that a packet of ours may cross.
const HOP_LIMIT: u8 = 64;

fn at(now_ns: u64) -> Instant {
    Instant::from_micros(i64::try_from(now_ns / 1000).unwrap_or(i64::MAX))
}

/// A segment as the library has it: what its IP packet's header says, and what it says itself.
pub(super) struct Parsed<'s>(IpRepr, TcpRepr<'s>);

/// Reads a segment between these two. `None`: it has flags that exclude each other, or an option of a length that it
/// cannot have.
pub(super) fn parse<'s>(tuple: &FourTuple, segment: &'s [u8]) -> Option<Parsed<'s>> {
    let (theirs, ours) = (tuple.theirs.into(), tuple.ours.into());
    // Sums were looked at before.
    let caps = smoltcp::phy::ChecksumCapabilities::ignored();
    let packet = TcpPacket::new_checked(segment).ok()?;
    let tcp = TcpRepr::parse(&packet, &theirs, &ours, &caps).ok()?;
    Some(Parsed(IpRepr::new(theirs, ours, IpProtocol::Tcp, segment.len(), HOP_LIMIT), tcp))
}

/// Answers a segment of no connection: with a reset, unless it is one.
pub(super) fn refuse(Parsed(ip, tcp): &Parsed<'_>, wire: &mut Wire<'_>) {
    if tcp.control != TcpControl::Rst {
        let (ip, reset) = tcp::Socket::rst_reply(ip, tcp);
        wire.answer(&ip, &reset);
    }
}

/// Where a connection stands, as far as other files need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
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

/// What is to become of a segment, as RFC 5961 has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Vetted {
    /// The state machine takes it.
    Take,
    /// It takes it with this acknowledgement: the segment's own was overtaken on its way.
    TakeWith(u32),
    /// Nothing. It is of another time, or forged.
    Ignore,
    /// Where the client and we stand, as sequence number and acknowledgement: who sent it may have lost
    /// its memory, and then ends the connection with sequence numbers that are right.
    Challenge(u32, u32),
}

/// Acknowledgements so much older than the newest are not of this connection, or as much as can be under
/// way (RFC 5961 has the client's largest window).
const OLD_ACK_BYTES: usize = 1 << 16;

/// Bytes of a long buffer, which connections have for a while: 1 Gb/s over 2 ms, 10 Gb/s over 0.2 ms.
pub(super) const LONG_BYTES: usize = 256 << 10;
/// What a window is announced in, where the client scales windows: for long buffers, in 16 bits.
const WINDOW_UNIT: usize = 8;

/// The state machine of one connection.
#[derive(Debug)]
pub(super) struct Machine {
    socket: tcp::Socket<'static>,
    /// The pages of both buffers.
    backing: Option<Backing>,
    /// They may be there.
    is_backed: bool,
    /// It has long buffers; here are the short ones meanwhile.
    short: Option<LongBuffers>,
    /// The sequence number that the next connection begins with.
    initial_seq: u32,
    /// Bytes of what has come that may still be read. `u32::MAX`: all.
    left: u32,
}

/// Memory for the buffers of one connection.
#[derive(Debug)]
pub(super) struct Buffers {
    /// For what comes, as long as half of it, and for what goes.
    pub(super) bytes: &'static mut [u8],
    /// The pages that it alone has.
    pub(super) backing: Option<Backing>,
}

impl Buffers {
    /// So much for each of so many connections.
    pub(super) fn new(count: usize, bytes: usize) -> impl Iterator<Item = Self> {
        let backed = driver_shim::buffers::buffers(count, bytes).ok();
        let mut backed = backed.into_iter().flatten();
        (0..count).map(move |_| match backed.next() {
            Some((bytes, backing)) => Self { bytes, backing: Some(backing) },
            // What there is no mapping for is taken as all other memory is.
            None => Self { bytes: vec![0; bytes].leak(), backing: None },
        })
    }
}

/// Long buffers, and the short ones of the connection that has them meanwhile. On the heap: most
/// connections have none.
#[derive(Debug)]
pub(super) struct LongBuffers(Box<Pair>);

#[derive(Debug)]
struct Pair {
    coming: tcp::SocketBuffer<'static>,
    going: tcp::SocketBuffer<'static>,
    /// The pages of the long ones.
    backing: Backing,
}

impl LongBuffers {
    /// So many as there is memory for; none of it is used before they are.
    pub(super) fn new(count: usize) -> Vec<Self> {
        let all = driver_shim::buffers::buffers(count, 2 * LONG_BYTES);
        let make = |(bytes, backing): (&'static mut [u8], Backing)| {
            let (coming, going) = bytes.split_at_mut(bytes.len() / 2);
            let buffer = |bytes: &'static mut [u8]| tcp::SocketBuffer::new(bytes);
            let (coming, going) = (buffer(coming), buffer(going));
            Self(Box::new(Pair { coming, going, backing }))
        };
        all.into_iter().flatten().map(make).collect()
    }
}

impl Machine {
    /// One with these buffers.
    pub(super) fn new(Buffers { bytes, backing }: Buffers) -> Self {
        let (coming, going) = bytes.split_at_mut(bytes.len() / 2);
        let buffer = |bytes: &'static mut [u8]| tcp::SocketBuffer::new(bytes);
        let mut socket = tcp::Socket::new(buffer(coming), buffer(going));
        socket.set_nagle_enabled(false);
        // Segments leave when what came has been answered: an acknowledgement that no reply carries by
        // then would wait for nothing, and a client under Nagle's rule would wait for it.
        socket.set_ack_delay(None);
        socket.set_keep_alive(Some(KEEP_ALIVE));
        socket.set_timeout(Some(SILENCE_MAX));
        socket.set_min_rto(RETRANSMIT_MIN);
        socket.set_large_initial_window(true);
        socket.set_largest_recv_capacity(LONG_BYTES);
        Self { socket, backing, is_backed: false, short: None, initial_seq: 0, left: u32::MAX }
    }

    fn context(&self, now_ns: u64, wire: &Wire<'_>) -> Context {
        Context { now: at(now_ns), ip_mtu: wire.mtu(), initial_seq: self.initial_seq }
    }

    /// Forgets what was, without a word to the client, and awaits a SYN to `port`, which is not 0; the
    /// connection that it opens has this initial sequence number.
    pub(super) fn listen(&mut self, port: u16, initial_seq: u32) {
        (self.initial_seq, self.left) = (initial_seq, u32::MAX);
        self.socket.abort();
        self.socket.set_congestion_control(CongestionControl::Reno);
        // Fails only for port 0: then no SYN is taken.
        let _ = self.socket.listen(port);
    }

    /// Takes a segment, as `vetted` has it. False: there is no connection any more.
    pub(super) fn take(
        &mut self,
        vetted: Vetted,
        Parsed(ip, mut tcp): Parsed<'_>,
        wire: &mut Wire<'_>,
        now_ns: u64,
    ) -> bool {
        match vetted {
            Vetted::Take => {}
            Vetted::TakeWith(ack) => tcp.ack_number = Some(seq_number(ack)),
            // The state machine answers such a probe with where it stands, twice a second at most.
            Vetted::Challenge(seq, ack) => {
                let (src_port, dst_port) = (tcp.src_port, tcp.dst_port);
                let (seq_number, ack_number) = (seq_number(seq), Some(seq_number(ack)));
                tcp = TcpRepr { src_port, dst_port, seq_number, ack_number, ..PROBE };
            }
            Vetted::Ignore => return true,
        }
        let mut context = self.context(now_ns, wire);
        if !self.socket.accepts(&mut context, &ip, &tcp) {
            return false;
        }
        self.is_backed = true;
        if self.acknowledges_into_no_window(&tcp) {
            let alone = TcpRepr { control: TcpControl::None, payload: &[], ..tcp };
            if let Some((ip, answer)) = self.socket.process(&mut context, &ip, &alone) {
                wire.answer(&ip, &answer);
            }
        }
        if let Some((ip, answer)) = self.socket.process(&mut context, &ip, &tcp) {
            wire.answer(&ip, &answer);
        }
        true
    }

    /// Whether the state machine, whose receive window is closed, would throw away the first word that our
    /// bytes have arrived, or that there is room for more of them, because of the bytes that it comes with
    /// (RFC 9293, 3.10.7.4: valid acknowledgements are taken all the same). Both sides might wait for each
    /// other otherwise.
    fn acknowledges_into_no_window(&self, tcp: &TcpRepr<'_>) -> bool {
        let opens = self.socket.is_window_closed() && tcp.window_len > 0;
        let last = self.socket.unacknowledged();
        self.free() < WINDOW_UNIT
            && !tcp.payload.is_empty()
            && self.is_confirmed()
            && tcp.seq_number == self.socket.expected()
            && tcp.ack_number.is_some_and(|ack| ack > last || (opens && ack == last))
    }

    /// Whether the connection began with a SYN of this number.
    pub(super) fn began_with(&self, seq: u32) -> bool {
        !self.is_confirmed() && self.socket.expected() == seq_number(seq.wrapping_add(1))
    }

    /// Whether the client has confirmed.
    fn is_confirmed(&self) -> bool {
        !matches!(self.socket.state(), State::Closed | State::Listen | State::SynReceived)
    }

    /// Whether the client has ended its side.
    fn has_their_fin(&self) -> bool {
        let state = self.socket.state();
        matches!(state, State::CloseWait | State::LastAck | State::Closing | State::TimeWait)
    }

    /// What is to become of a segment with so many bytes. The state machine ends a connection for any RST
    /// in its window, throws away bytes that an overtaken acknowledgement came with, and takes
    /// bytes behind the client's FIN.
    #[inline]
    pub(super) fn vet(&self, segment: &Tcp<'_>, bytes: usize) -> Vetted {
        let ahead = segment.ack().wrapping_sub(number(self.socket.unacknowledged()));
        let plain = segment.is_of_the_middle() && ahead <= i32::MAX.unsigned_abs();
        let plain = plain && self.is_near(segment);
        if plain && (bytes == 0 || !self.has_their_fin()) {
            return Vetted::Take;
        }
        self.look_closely(segment, u32::try_from(bytes).unwrap_or(0))
    }

    /// Whether it begins where comparing sequence numbers has a meaning, far from the other side of all of them.
    #[inline]
    fn is_near(&self, segment: &Tcp<'_>) -> bool {
        segment.seq().wrapping_sub(number(self.socket.expected())).wrapping_add(1 << 30) <= 1 << 31
    }

    /// Whether its sequence and acknowledgement numbers are those that the connection is at, which no stranger
    /// guesses: it acknowledges what is under way, and begins within a window of what is expected. Its SYN is, too.
    pub(super) fn is_expected(&self, segment: &Tcp<'_>) -> bool {
        let length = |n: usize| u32::try_from(n).unwrap_or(u32::MAX / 2);
        let acknowledged = segment.ack().wrapping_sub(number(self.socket.unacknowledged()));
        // A SYN or a FIN has a sequence number, too.
        let under_way = length(self.room_max()) + 2;
        // The window may have been a long one.
        let window = length(self.waiting_max().max(LONG_BYTES));
        let off = segment.seq().wrapping_sub(number(self.socket.expected())).wrapping_add(window);
        let fits = segment.has_ack() && acknowledged <= under_way && off <= 2 * window;
        fits || (segment.opens() && self.began_with(segment.seq()))
    }

    #[cold]
    fn look_closely(&self, segment: &Tcp<'_>, bytes: u32) -> Vetted {
        let state = self.socket.state();
        let (expected, unacknowledged) =
            (number(self.socket.expected()), number(self.socket.unacknowledged()));
        let challenge = Vetted::Challenge(expected.wrapping_sub(1), unacknowledged);
        if segment.resets() {
            let window = self.free();
            return match segment.seq().wrapping_sub(expected) {
                _ if state == State::Listen => Vetted::Ignore,
                0 => Vetted::Take,
                off if self.is_confirmed() && off < u32::try_from(window).unwrap_or(0) => challenge,
                _ => Vetted::Ignore,
            };
        }
        if !self.is_confirmed() {
            return Vetted::Take;
        }
        let behind_end = || {
            let past = segment.seq().wrapping_add(bytes).wrapping_sub(expected);
            (1..=i32::MAX.unsigned_abs()).contains(&past)
        };
        let is_behind_end = self.has_their_fin() && bytes > 0 && behind_end();
        if segment.has_syn() || !self.is_near(segment) || is_behind_end {
            return challenge;
        }
        if !segment.has_ack() {
            return Vetted::Ignore;
        }
        let old = u32::try_from(self.room_max().max(OLD_ACK_BYTES)).unwrap_or(u32::MAX);
        match unacknowledged.wrapping_sub(segment.ack()) {
            0 => Vetted::Take,
            behind if behind > i32::MAX.unsigned_abs() => Vetted::Take,
            behind if behind > old => challenge,
            _ if bytes > 0 || segment.has_fin() => Vetted::TakeWith(unacknowledged),
            _ => Vetted::Ignore,
        }
    }

    /// Whether its buffers may have memory.
    pub(super) fn is_backed(&self) -> bool {
        self.is_backed
    }

    /// Gives the memory of its buffers back if nothing is in them.
    pub(super) fn give_back(&mut self) {
        let socket = &self.socket;
        if socket.has_gaps() || socket.recv_queue() + socket.send_queue() > 0 {
            return;
        }
        if let Some(backing) = &self.backing {
            // SAFETY: the state machine, which has the buffers, reads bytes that have come and bytes that
            // are to go. There are none, in order or behind a gap: it writes before it reads.
            unsafe { backing.give_back() };
        }
        self.is_backed = false;
    }

    /// Whether it has long buffers.
    pub(super) fn is_long(&self) -> bool {
        self.short.is_some()
    }

    /// Takes long buffers from `spare`, where there are some.
    pub(super) fn lengthen(&mut self, spare: &mut Vec<LongBuffers>) {
        if self.short.is_none()
            && let Some(mut long) = spare.pop()
        {
            // What is in the short ones fits.
            self.socket.swap_buffers(&mut long.0.coming, &mut long.0.going);
            self.short = Some(long);
        }
    }

    /// Gives long buffers back to `spare`, if what is in them fits the short ones.
    pub(super) fn shorten(&mut self, spare: &mut Vec<LongBuffers>) {
        let Some(mut long) = self.short.take() else { return };
        if !self.socket.swap_buffers(&mut long.0.coming, &mut long.0.going) {
            self.short = Some(long);
            return;
        }
        // SAFETY: no state machine has these buffers, and they are empty: the next to have them writes
        // before it reads.
        unsafe { long.0.backing.give_back() };
        spare.push(long);
    }

    /// Sends what is due. Says whether all of it fit the outbox, and when to be called again, in
    /// nanoseconds of the worker's clock.
    pub(super) fn send_due(&mut self, wire: &mut Wire<'_>, now_ns: u64) -> (bool, Option<u64>) {
        let mut context = self.context(now_ns, wire);
        loop {
            let mut sent = false;
            let room = self.socket.dispatch(&mut context, |_, _, (ip, tcp)| {
                sent = wire.send(&ip, &tcp);
                sent.then_some(()).ok_or(())
            });
            let due = match self.socket.poll_at(&mut context) {
                PollAt::Now => Some(context.now),
                PollAt::Time(due) => Some(due),
                PollAt::Ingress => None,
            };
            // Most often what was sent is all: asking once more costs as much again.
            if !sent || due.is_none_or(|due| due > context.now) {
                let ns = |due: Instant| u64::try_from(due.total_micros()).unwrap_or(0);
                return (room.is_ok(), due.map(|due| ns(due).saturating_mul(1000)));
            }
        }
    }

    pub(super) fn phase(&self) -> Phase {
        match self.socket.state() {
            State::Closed | State::Listen | State::SynSent => Phase::None,
            State::SynReceived => Phase::Opening,
            State::Established => Phase::Open,
            State::CloseWait => Phase::HalfClosed,
            State::FinWait1 | State::FinWait2 | State::Closing | State::LastAck => Phase::Closing,
            State::TimeWait => Phase::Ended,
        }
    }

    /// Bytes that have come and were not used up.
    pub(super) fn waiting(&self) -> usize {
        self.socket.recv_queue().min(self.left as usize)
    }

    /// What has not come by now is not read any more.
    pub(super) fn read_no_more(&mut self) {
        self.left = u32::try_from(self.waiting()).unwrap_or(u32::MAX);
    }

    /// Throws away what has come.
    pub(super) fn drop_input(&mut self) {
        self.left = u32::MAX;
        self.skip(self.waiting());
    }

    /// Free bytes in the receive buffer.
    fn free(&self) -> usize {
        self.waiting_max() - self.socket.recv_queue()
    }

    /// Bytes that may wait at most.
    pub(super) fn waiting_max(&self) -> usize {
        self.socket.recv_capacity()
    }

    /// Gives `read` the bytes that have come as far as they lie together, and drops as many of them
    /// as it says. `None`: there are none.
    pub(super) fn read<R>(&mut self, read: impl FnOnce(&[u8]) -> (usize, R)) -> Option<R> {
        let left = self.left as usize;
        let (used, result) = self
            .socket
            .recv(|bytes| {
                let (used, result) = read(bytes.get(..left).unwrap_or(bytes));
                (used, (used, result))
            })
            .ok()?;
        // All that there is may be read, unless a stop has said what is left.
        if self.left < u32::MAX {
            self.left -= u32::try_from(used).unwrap_or(0);
        }
        Some(result)
    }

    /// Copies the bytes that have come, however they lie, and says how many.
    pub(super) fn peek(&mut self, into: &mut [u8]) -> usize {
        self.socket.peek_slice(into).unwrap_or(0).min(self.left as usize)
    }

    /// The bytes that have come, as far as they lie together.
    pub(super) fn front(&mut self) -> &[u8] {
        self.socket.peek(self.left as usize).unwrap_or_default()
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

    /// Free bytes in the send buffer, for [`Self::write`].
    pub(super) fn room(&self) -> usize {
        self.socket.send_capacity() - self.socket.send_queue()
    }

    /// Bytes that may be under way at most.
    pub(super) fn room_max(&self) -> usize {
        self.socket.send_capacity()
    }

    /// Takes bytes to send, and says how many.
    pub(super) fn write(&mut self, bytes: &[u8]) -> usize {
        self.is_backed = true;
        self.socket.send_slice(bytes).unwrap_or(0)
    }

    /// Whether the client has acknowledged our FIN, and all before it, and has not ended its side.
    pub(super) fn has_said_all(&self) -> bool {
        self.socket.state() == State::FinWait2
    }

    /// Whether the client has acknowledged our FIN, and all before it.
    pub(super) fn is_fin_acknowledged(&self) -> bool {
        matches!(self.socket.state(), State::FinWait2 | State::TimeWait)
    }

    /// Closes our side with a FIN, behind what is still to be sent.
    pub(super) fn close(&mut self) {
        self.socket.close();
    }

    /// Ends both sides with a reset, which [`Self::send_due`] sends.
    pub(super) fn abort(&mut self) {
        self.socket.abort();
    }
}

fn seq_number(number: u32) -> TcpSeqNumber {
    TcpSeqNumber(number.cast_signed())
}

fn number(seq: TcpSeqNumber) -> u32 {
    seq.0.cast_unsigned()
}

/// A segment without bytes, to be filled in.
const PROBE: TcpRepr<'static> = TcpRepr {
    src_port: 0,
    dst_port: 0,
    control: TcpControl::None,
    seq_number: TcpSeqNumber(0),
    ack_number: None,
    window_len: 0,
    window_scale: None,
    max_seg_size: None,
    sack_permitted: false,
    sack_ranges: [None; 3],
    timestamp: None,
    payload: &[],
};
