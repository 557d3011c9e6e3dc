//! `stats conns`: the connections, and what each of them does.
//!
//! In: listeners and UDP sockets once, connections as they come. Out: a page, listeners first, by
//! file descriptor. A connection shows what it does by storing two numbers; the lock is taken when
//! one comes or goes, and for the page. Never fails.

use super::rows::Rows;
use driver_shim::{PortSocket, Silence};
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Instant;

/// What a connection is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum ConnState {
    /// Waiting for connections.
    Listening,
    /// Waiting for requests.
    Reading,
    /// Waiting for the rest of a request, whose length is known.
    ReadingRest,
    /// Waiting for the rest of a store's value that is refused.
    Swallowing,
    /// Answering.
    Answering,
    /// Sending replies.
    Writing,
    /// Watching what happens.
    Watching,
    /// Ended by us, and waiting for the client to end it too.
    Closing,
}

impl ConnState {
    const ALL: [Self; 8] = [
        Self::Listening,
        Self::Reading,
        Self::ReadingRest,
        Self::Swallowing,
        Self::Answering,
        Self::Writing,
        Self::Watching,
        Self::Closing,
    ];

    /// memcached's name for it.
    fn name(self) -> &'static str {
        match self {
            Self::Listening => "conn_listening",
            Self::Reading => "conn_read",
            Self::ReadingRest => "conn_nread",
            Self::Swallowing => "conn_swallow",
            Self::Answering => "conn_parse_cmd",
            Self::Writing => "conn_mwrite",
            Self::Watching => "conn_watch",
            Self::Closing => "conn_closing",
        }
    }
}

/// All connections there are.
#[derive(Debug)]
pub struct Conns {
    open: Mutex<BTreeMap<i32, Arc<Entry>>>,
    /// Connections of workers, which have slots rather than entries.
    slots: Mutex<Vec<Arc<ConnSlots>>>,
    started: Instant,
}

impl Default for Conns {
    fn default() -> Self {
        Self { open: Mutex::default(), slots: Mutex::default(), started: Instant::now() }
    }
}

/// Where a connection comes from, or a listener is.
#[derive(Debug)]
pub enum Address {
    /// TCP, as it is: most are never written.
    Tcp(SocketAddr),
    /// Anything else, its kind first.
    Other(Box<str>),
}

impl Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(&with_kind("tcp", *address)),
            Self::Other(text) => f.write_str(text),
        }
    }
}

#[derive(Debug)]
struct Entry {
    address: Address,
    /// The listener that it came through; `None` for a listener.
    listener: Option<Arc<str>>,
    state: AtomicU8,
    last_command: LastCommand,
}

#[derive(Debug)]
enum LastCommand {
    /// Reported by the connection, in seconds after `Conns::started`.
    Reported(AtomicU64),
    /// A UDP socket's, whichever address it came from.
    Received(Silence),
}

/// A connection's place in the list, given up on drop.
#[derive(Debug)]
pub struct Conn {
    all: Arc<Conns>,
    fd: i32,
    entry: Arc<Entry>,
}

impl Conns {
    /// Adds a connection, or a listener, which has no `listener` of its own. Addresses say
    /// their kind first, as in `tcp:127.0.0.1:11211`.
    pub fn enter(self: &Arc<Self>, fd: i32, address: Address, listener: Option<Arc<str>>) -> Conn {
        let state = if listener.is_some() { ConnState::Reading } else { ConnState::Listening };
        let entry = Arc::new(Entry {
            address,
            listener,
            state: AtomicU8::new(state as u8),
            last_command: LastCommand::Reported(AtomicU64::new(self.seconds(Instant::now()))),
        });
        self.open.lock().insert(fd, Arc::clone(&entry));
        Conn { all: Arc::clone(self), fd, entry }
    }

    /// Adds a UDP socket, which stays.
    pub fn enter_udp(&self, socket: PortSocket) {
        let entry = Arc::new(Entry {
            address: Address::Other(with_kind("udp", socket.address).into()),
            listener: None,
            state: AtomicU8::new(ConnState::Reading as u8),
            last_command: LastCommand::Received(socket.silence),
        });
        self.open.lock().insert(socket.fd, entry);
    }

    /// Slots for so many connections of one worker, whose clock began then. They are numbered on
    /// from those of other workers, far from file descriptors.
    pub(crate) fn enter_slots(&self, connections: usize, clock: Instant) -> Arc<ConnSlots> {
        let mut all = self.slots.lock();
        let first = all.last().map_or(FIRST_SLOT_ID, |last| last.first + last.slots.len() as u64);
        let slots = (0..connections).map(|_| ConnSlot::default()).collect();
        let slots = Arc::new(ConnSlots { first, slots, began_s: self.seconds(clock) });
        all.push(Arc::clone(&slots));
        slots
    }

    fn seconds(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.started).as_secs()
    }

    /// Writes the page.
    pub(crate) fn page(&self, rows: &mut impl Rows) {
        let now = self.seconds(Instant::now());
        // The lock is not held while the page is written: a client may be slow to take it.
        let mut open: Vec<(i32, Arc<Entry>)> =
            self.open.lock().iter().map(|(fd, e)| (*fd, Arc::clone(e))).collect();
        // memcached's listeners have the lowest numbers.
        open.sort_by_key(|(_, entry)| entry.listener.is_some());
        for (fd, entry) in open {
            if matches!(entry.last_command, LastCommand::Received(_)) {
                rows.row(&format!("{fd}:UDP"), &"UDP");
            }
            rows.row(&format!("{fd}:addr"), &entry.address);
            if let Some(listener) = &entry.listener {
                rows.row(&format!("{fd}:listen_addr"), &listener);
            }
            let state = usize::from(entry.state.load(Ordering::Relaxed));
            let state = ConnState::ALL.get(state).copied().unwrap_or(ConnState::Reading);
            rows.row(&format!("{fd}:state"), &state.name());
            let idle = match &entry.last_command {
                LastCommand::Reported(at) => now.saturating_sub(at.load(Ordering::Relaxed)),
                LastCommand::Received(silence) => silence.seconds(),
            };
            rows.row(&format!("{fd}:secs_since_last_cmd"), &idle);
        }
        let workers: Vec<_> = self.slots.lock().clone();
        workers.iter().for_each(|slots| slots.page(now, rows));
    }
}

/// First number of a worker's connection: above any file descriptor.
const FIRST_SLOT_ID: u64 = 1 << 24;

/// The connections of one worker. A slot is written by the worker alone, without a lock.
#[derive(Debug)]
pub struct ConnSlots {
    first: u64,
    slots: Box<[ConnSlot]>,
    /// When the worker's clock began, in seconds after `Conns::started`.
    began_s: u64,
}

#[derive(Debug, Default)]
struct ConnSlot {
    /// 0: no connection; else one more than the state's number.
    state: AtomicU8,
    /// In seconds after `Conns::started`.
    last_command: AtomicU64,
    /// Addresses as IPv6, in halves; then the ports.
    client: [AtomicU64; 3],
    ours: [AtomicU64; 3],
}

fn store(ends: &[AtomicU64; 3], address: SocketAddr) {
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    };
    let bits = ip.to_bits();
    let low = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).unwrap_or(0);
    for (part, value) in ends.iter().zip([low(bits >> 64), low(bits), address.port().into()]) {
        part.store(value, Ordering::Relaxed);
    }
}

fn load([high, low, port]: &[AtomicU64; 3]) -> SocketAddr {
    let part = |part: &AtomicU64| u128::from(part.load(Ordering::Relaxed));
    let ip = Ipv6Addr::from_bits(part(high) << 64 | part(low)).to_canonical();
    SocketAddr::new(ip, u16::try_from(part(port)).unwrap_or(0))
}

impl ConnSlots {
    /// The number by which the connection of a slot is known.
    pub fn id(&self, slot: u32) -> i32 {
        i32::try_from(self.first + u64::from(slot)).unwrap_or(i32::MAX)
    }

    /// A connection began.
    pub fn begin(&self, slot: u32, client: SocketAddr, ours: SocketAddr, now_ns: u64) {
        let Some(of) = self.slots.get(slot as usize) else { return };
        store(&of.client, client);
        store(&of.ours, ours);
        self.set_state(slot, ConnState::Reading, now_ns);
    }

    /// Stores what a connection does now, and when: its last command came then.
    #[inline]
    pub fn set_state(&self, slot: u32, state: ConnState, now_ns: u64) {
        let Some(of) = self.slots.get(slot as usize) else { return };
        of.last_command.store(self.began_s + now_ns / 1_000_000_000, Ordering::Relaxed);
        of.state.store(state as u8 + 1, Ordering::Relaxed);
    }

    /// It ended.
    pub fn end(&self, slot: u32) {
        if let Some(of) = self.slots.get(slot as usize) {
            of.state.store(0, Ordering::Relaxed);
        }
    }

    fn page(&self, now: u64, rows: &mut impl Rows) {
        for (slot, of) in (0..).zip(&self.slots) {
            let Some(state) = of.state.load(Ordering::Relaxed).checked_sub(1) else { continue };
            let id = self.id(slot);
            rows.row(&format!("{id}:addr"), &with_kind("tcp", load(&of.client)));
            rows.row(&format!("{id}:listen_addr"), &with_kind("tcp", load(&of.ours)));
            let state = ConnState::ALL.get(usize::from(state)).unwrap_or(&ConnState::Reading);
            rows.row(&format!("{id}:state"), &state.name());
            let idle = now.saturating_sub(of.last_command.load(Ordering::Relaxed));
            rows.row(&format!("{id}:secs_since_last_cmd"), &idle);
        }
    }
}

/// An address as memcached writes it here: `tcp:127.0.0.1:11211`, `udp6:[::1]:11211`.
fn with_kind(kind: &str, address: SocketAddr) -> String {
    let six = if address.is_ipv6() { "6" } else { "" };
    format!("{kind}{six}:{address}")
}

impl Conn {
    /// Its file descriptor.
    pub fn fd(&self) -> i32 {
        self.fd
    }

    /// The client's address; none on a Unix socket.
    pub fn peer(&self) -> Option<SocketAddr> {
        match self.entry.address {
            Address::Tcp(address) => Some(address),
            Address::Other(_) => None,
        }
    }

    /// Stores what it does now.
    pub fn set_state(&self, state: ConnState) {
        self.entry.state.store(state as u8, Ordering::Relaxed);
    }

    /// A command came, now.
    pub fn has_command(&self, now: Instant) {
        self.set_state(ConnState::Answering);
        if let LastCommand::Reported(at) = &self.entry.last_command {
            at.store(self.all.seconds(now), Ordering::Relaxed);
        }
    }
}

impl Drop for Conn {
    fn drop(&mut self) {
        let mut open = self.all.open.lock();
        // The number may belong to a newer connection already.
        if open.get(&self.fd).is_some_and(|e| Arc::ptr_eq(e, &self.entry)) {
            open.remove(&self.fd);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Text(String);

    impl Rows for Text {
        fn row(&mut self, name: &str, value: &dyn Display) {
            self.0 += &format!("{name} {value}\n");
        }
    }

    #[test]
    fn states_are_in_their_places() {
        for (n, state) in ConnState::ALL.into_iter().enumerate() {
            assert_eq!(state as usize, n);
        }
    }

    #[test]
    fn connections_of_workers_have_slots() {
        let (all, clock) = (Conns::default(), Instant::now());
        let (one, two) = (all.enter_slots(4, clock), all.enter_slots(4, clock));
        let at = |text: &str| text.parse().unwrap();
        one.begin(3, at("10.0.0.1:5"), at("10.0.0.2:11211"), 0);
        two.begin(0, at("[fd00::1]:6"), at("[fd00::2]:11211"), 0);
        two.set_state(0, ConnState::Watching, 0);
        let mut page = Text::default();
        all.page(&mut page);
        assert_eq!(
            page.0,
            "16777219:addr tcp:10.0.0.1:5\n16777219:listen_addr tcp:10.0.0.2:11211\n\
             16777219:state conn_read\n16777219:secs_since_last_cmd 0\n\
             16777220:addr tcp6:[fd00::1]:6\n16777220:listen_addr tcp6:[fd00::2]:11211\n\
             16777220:state conn_watch\n16777220:secs_since_last_cmd 0\n"
        );
        one.end(3);
        two.end(0);
        page.0.clear();
        all.page(&mut page);
        assert_eq!(page.0, "");
    }

    #[test]
    fn connections_come_and_go() {
        let all: Arc<Conns> = Arc::default();
        let other = |text: &str| Address::Other(text.into());
        let listener = all.enter(3, other("tcp:"), None);
        let peer = "10.0.0.1:5".parse().unwrap();
        let old = all.enter(7, Address::Tcp(peer), Some("tcp:[::]:1".into()));
        assert_eq!((old.peer(), listener.peer()), (Some(peer), None));
        old.set_state(ConnState::Writing);
        let mut page = Text::default();
        all.page(&mut page);
        assert_eq!(
            page.0,
            "3:addr tcp:\n3:state conn_listening\n3:secs_since_last_cmd 0\n\
             7:addr tcp:10.0.0.1:5\n7:listen_addr tcp:[::]:1\n7:state conn_mwrite\n\
             7:secs_since_last_cmd 0\n"
        );
        let udp = |fd, address: &str| PortSocket {
            fd,
            address: address.parse().unwrap(),
            silence: Silence::default(),
        };
        all.enter_udp(udp(9, "127.0.0.1:11211"));
        all.enter_udp(udp(10, "[::]:1"));
        page.0.clear();
        all.page(&mut page);
        assert!(
            page.0.contains(
                "9:UDP UDP\n9:addr udp:127.0.0.1:11211\n9:state conn_read\n\
                 9:secs_since_last_cmd 0\n10:UDP UDP\n10:addr udp6:[::]:1\n\
                 10:state conn_read\n10:secs_since_last_cmd 0\n7:addr"
            ),
            "{}",
            page.0
        );
        all.open.lock().retain(|fd, _| *fd < 9);
        let new = all.enter(7, other("tcp:b:1"), Some("".into()));
        drop((old, listener));
        page.0.clear();
        all.page(&mut page);
        assert!(page.0.starts_with("7:addr tcp:b:1\n"), "{}", page.0);
        drop(new);
        page.0.clear();
        all.page(&mut page);
        assert_eq!(page.0, "");
    }
}
