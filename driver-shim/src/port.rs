//! What every port is, whatever drives it: facts, queues and counters.

use crate::frame::Burst;
use std::fmt;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// An Ethernet address.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct MacAddr(pub [u8; 6]);

impl fmt::Display for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl fmt::Debug for MacAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Longest sleep of an idle worker, where its queues say nothing else: that with several kernel-socket ports, or one in
/// memory.
const IDLE_MAX: Duration = Duration::from_micros(500);

/// The same on a NIC. A queue has 1,024 descriptors: as many frames as a worker can answer in some 70 us. A sleep ends
/// some microseconds late.
pub const NIC_IDLE_MAX: Duration = Duration::from_micros(40);

/// Receives frames. One owner, one thread: `Send`, not `Sync`.
pub trait RxQueue: Send {
    /// Appends waiting frames to `into`, as many as fit, and says how many.
    /// Never blocks; 0 means that nothing waits.
    fn burst(&mut self, into: &mut Burst) -> usize;

    /// Called when there is nothing to do. May sleep until a frame arrives, at most
    /// `at_most`.
    fn idle(&mut self, at_most: Duration) {
        let _ = at_most;
        std::hint::spin_loop();
    }

    /// Longest time that frames may wait for a look at this queue: a worker's delay, and what the queue has
    /// space for.
    fn idle_max(&self) -> Duration {
        IDLE_MAX
    }

    /// Whether [`RxQueue::idle`] returns as soon as a frame is there, rather than after its time.
    fn wakes(&self) -> bool {
        false
    }
}

/// Sends frames. One owner, one thread: `Send`, not `Sync`.
pub trait TxQueue: Send {
    /// Sends from the front of `from`. Frames that were taken leave it; the rest stay, in order.
    /// Says how many were taken. Never blocks.
    fn burst(&mut self, from: &mut Burst) -> usize;
}

/// One receive queue and one transmit queue, for one worker.
pub struct QueuePair {
    /// Frames in.
    pub rx: Box<dyn RxQueue>,
    /// Frames out.
    pub tx: Box<dyn TxQueue>,
}

impl fmt::Debug for QueuePair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QueuePair")
    }
}

/// Checksums that a port can fill in on transmit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TxCaps {
    /// The IPv4 header's.
    pub ip: bool,
    /// UDP's, over IPv4 and IPv6.
    pub udp: bool,
}

/// Facts about a port, fixed once it is open.
#[derive(Debug, Clone)]
pub struct PortInfo {
    /// Name for people: `0000:81:00.0`, `net_tap0`, `udp:127.0.0.1:11211`.
    pub name: String,
    /// The port's Ethernet address. Frames for others are not ours.
    pub mac: MacAddr,
    /// Longest IP packet, in bytes.
    pub mtu: u16,
    /// Checksums filled in on transmit.
    pub tx_caps: TxCaps,
    /// The kernel chose what arrives here (a bound socket): any destination address is ours.
    pub any_destination: bool,
    /// A NIC, which a worker that does not save power never stops looking at. Other ports let an idle one sleep.
    pub busy_poll: bool,
    /// Frames of one flow may come by another queue than the flow's others, when that one is full.
    pub flows_stray: bool,
}

/// What the driver counted, for people and metrics. Frames, not bytes, unless named so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortCounters {
    /// Received and handed over.
    pub rx_frames: u64,
    /// Taken for transmission.
    pub tx_frames: u64,
    /// Received bytes.
    pub rx_bytes: u64,
    /// Transmitted bytes.
    pub tx_bytes: u64,
    /// Lost because no receive descriptor was free.
    pub rx_missed: u64,
    /// Refused by the device or the driver: malformed, too long, in several segments.
    pub rx_errors: u64,
    /// Lost because no slot was free.
    pub rx_no_slot: u64,
    /// Failed to leave after they had been taken.
    pub tx_errors: u64,
}

/// What a device has reported of itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PortEvents {
    /// It works no more until it is reset.
    pub reset_wanted: bool,
    /// It is gone.
    pub removed: bool,
}

/// A kernel socket behind a port.
#[derive(Debug, Clone)]
pub struct PortSocket {
    /// Its file descriptor.
    pub fd: RawFd,
    /// What it is bound to.
    pub address: SocketAddr,
    /// Says how long it has received nothing, in whole seconds.
    pub silence: Silence,
}

/// How long nothing has come. The receiving thread shows, any thread may read it.
#[derive(Debug, Clone)]
pub struct Silence {
    since: Instant,
    /// Seconds after `since`.
    heard: Arc<AtomicU64>,
}

impl Default for Silence {
    /// Begins now.
    fn default() -> Self {
        Self { since: Instant::now(), heard: Arc::default() }
    }
}

impl Silence {
    /// Something has come.
    pub fn note_received(&self) {
        self.heard.store(self.since.elapsed().as_secs(), Ordering::Relaxed);
    }

    /// Seconds since something came, or since the beginning.
    pub fn seconds(&self) -> u64 {
        self.since.elapsed().as_secs().saturating_sub(self.heard.load(Ordering::Relaxed))
    }
}

/// Why a port could not be reset.
pub type ResetError = Box<dyn std::error::Error + Send + Sync>;

/// The port itself, as the control plane sees it.
pub trait PortControl: Send {
    /// Counters since the port was opened.
    fn counters(&self) -> PortCounters;

    /// Whether the link is up.
    fn link_up(&self) -> bool {
        true
    }

    /// The kernel sockets that it is made of, if it is.
    fn sockets(&self) -> Vec<PortSocket> {
        Vec::new()
    }

    /// What the device has reported since this was called last.
    fn events(&mut self) -> PortEvents {
        PortEvents::default()
    }

    /// Resets the device, sets it up as it was, and starts it again. Meanwhile queues receive and
    /// send nothing; frames that the device held are lost, and their slots return to the pool.
    ///
    /// # Errors
    /// The step that failed. Queues rest until another reset succeeds.
    fn reset(&mut self) -> Result<(), ResetError> {
        Err("this port has no reset".into())
    }

    /// Stops the port and waits for transmission to end. Queues must be gone or idle. False: one has a burst that
    /// does not end, and the port is still to be stopped.
    fn stop(&mut self) -> bool {
        true
    }
}

/// An open port: hand its queues to workers, keep its control.
pub struct Port {
    /// Facts.
    pub info: PortInfo,
    /// One pair per worker.
    pub queues: Vec<QueuePair>,
    /// Counters, link and stop.
    pub control: Box<dyn PortControl>,
}

impl fmt::Debug for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port")
            .field("info", &self.info)
            .field("queues", &self.queues.len())
            .finish_non_exhaustive()
    }
}
