//! Declarations of the C shim over DPDK (`shim.c`, `shim.h`).
//!
//! Rust never sees an `rte_*` type. Packet buffers are *slots*: numbers of 2 KB pieces of memory
//! that the caller mapped. Functions that return `c_int` give 0 or a count, or a negative errno.
//!
//! Declared `safe` are the functions that are sound from any thread at any time. DPDK checks port
//! and queue numbers itself, but its control plane has no locks: calls on one port must not
//! overlap, and calls that plug devices in or out must overlap with nothing. The hot path checks
//! nothing at all.
#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};
use std::marker::{PhantomData, PhantomPinned};

/// Most buffers that one burst moves.
pub const BURST_MAX: usize = 64;
/// Bytes per slot.
pub const SLOT_BYTES: usize = 2048;
/// What [`gn_pool_take`] says when the pool is empty.
pub const NO_SLOT: u32 = u32::MAX;
/// Bytes of the names in [`GnPortFacts`], the closing zero included.
pub const NAME_BYTES: usize = 64;
/// Longest RSS key.
pub const RSS_KEY_BYTES: usize = 128;
/// Bytes of a driver's words, the closing zero included.
pub const WHY_BYTES: usize = 128;

/// [`GnFrame::flags`]: the device verified the IPv4 header checksum.
pub const RX_IP_GOOD: u32 = 1;
/// [`GnFrame::flags`]: the device verified the UDP (or TCP) checksum.
pub const RX_UDP_GOOD: u32 = 2;

/// [`GnTx::flags`]: fill in the IPv4 header checksum.
pub const TX_IP: u8 = 1;
/// [`GnTx::flags`]: fill in the UDP checksum.
pub const TX_UDP: u8 = 2;
/// [`GnTx::flags`]: the network header is IPv6.
pub const TX_IPV6: u8 = 4;

/// [`GnPortFacts::flags`]: on the PCI bus, so a real (or emulated) NIC.
pub const PORT_PCI: u32 = 1;
/// [`GnPortFacts::flags`]: can fill in IPv4 header checksums.
pub const PORT_TX_IP: u32 = 2;
/// [`GnPortFacts::flags`]: can fill in UDP checksums.
pub const PORT_TX_UDP: u32 = 4;
/// [`GnPortFacts::flags`]: can spread IP or UDP flows over queues.
pub const PORT_RSS: u32 = 8;

/// [`GnPortConf::flags`]: spread flows over the queues with the given key.
pub const CONF_RSS: u16 = 1;

/// [`gn_port_told`]: the device works no more until it is reset.
pub const TOLD_RESET: u32 = 1;
/// [`gn_port_told`]: the device is gone.
pub const TOLD_REMOVED: u32 = 2;

/// [`GnRule::flags`]: the address is IPv6.
pub const RULE_IPV6: u16 = 1;
/// [`GnRule::flags`]: TCP; else UDP.
pub const RULE_TCP: u16 = 2;

/// Whatever node there is memory of.
pub const GN_ANY_NODE: c_int = -1;

/// A pool of buffers. Only ever behind a pointer from [`gn_pool_create`].
#[repr(C)]
#[derive(Debug)]
pub struct GnPool {
    _opaque: [u8; 0],
    _not_send_sync_unpin: PhantomData<(*mut u8, PhantomPinned)>,
}

/// A received frame.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct GnFrame {
    /// Slot, below the pool's count.
    pub slot: u32,
    /// First byte of the frame in the slot.
    pub off: u16,
    /// Bytes of the frame; `off + len <= SLOT_BYTES`.
    pub len: u16,
    /// `RX_*`.
    pub flags: u32,
}

/// A frame to send.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct GnTx {
    /// Slot, owned by the caller.
    pub slot: u32,
    /// First byte of the frame in the slot.
    pub off: u16,
    /// Bytes of the frame; `off + len <= SLOT_BYTES`.
    pub len: u16,
    /// `TX_*`.
    pub flags: u8,
    /// Bytes before the network header.
    pub l2_len: u8,
    /// Bytes of the network header.
    pub l3_len: u8,
    /// Zero.
    pub pad: u8,
}

/// What a port is and can do.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GnPortFacts {
    /// Driver, closed by a zero byte: `net_tap`.
    pub driver: [u8; NAME_BYTES],
    /// Device, closed by a zero byte: `net_tap0`, `0000:81:00.0`.
    pub device: [u8; NAME_BYTES],
    /// Ethernet address.
    pub mac: [u8; 6],
    /// Most queue pairs.
    pub queues_max: u16,
    /// Smallest MTU.
    pub mtu_min: u16,
    /// Largest MTU that the device claims.
    pub mtu_max: u16,
    /// Bytes of its RSS key; 0 when it does not say.
    pub rss_key_bytes: u16,
    /// MTU in force.
    pub mtu: u16,
    /// `PORT_*`.
    pub flags: u32,
}

impl Default for GnPortFacts {
    fn default() -> Self {
        Self {
            driver: [0; NAME_BYTES],
            device: [0; NAME_BYTES],
            mac: [0; 6],
            queues_max: 0,
            mtu_min: 0,
            mtu_max: 0,
            rss_key_bytes: 0,
            mtu: 0,
            flags: 0,
        }
    }
}

/// What a port is asked to be.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct GnPortConf {
    /// Queue pairs.
    pub queues: u16,
    /// Receive descriptors per queue; the device's nearest on return.
    pub rx_desc: u16,
    /// Transmit descriptors per queue; the device's nearest on return.
    pub tx_desc: u16,
    /// MTU in bytes.
    pub mtu: u16,
    /// Bytes of `rss_key` in use.
    pub rss_key_bytes: u16,
    /// `CONF_*`.
    pub flags: u16,
    /// The RSS key.
    pub rss_key: [u8; RSS_KEY_BYTES],
}

impl Default for GnPortConf {
    fn default() -> Self {
        Self {
            queues: 0,
            rx_desc: 0,
            tx_desc: 0,
            mtu: 0,
            rss_key_bytes: 0,
            flags: 0,
            rss_key: [0; RSS_KEY_BYTES],
        }
    }
}

/// What the device counted since it was started.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct GnPortStats {
    /// Frames received.
    pub rx_frames: u64,
    /// Frames sent.
    pub tx_frames: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Frames lost for lack of a descriptor.
    pub rx_missed: u64,
    /// Frames refused as malformed.
    pub rx_errors: u64,
    /// Frames lost for lack of a buffer.
    pub rx_no_buffer: u64,
    /// Frames that failed to leave.
    pub tx_errors: u64,
}

/// A service, whose frames a device in isolated mode hands over.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
pub struct GnRule {
    /// Its address; of an IPv4 one the first four bytes.
    pub address: [u8; 16],
    /// Its UDP or TCP port.
    pub port: u16,
    /// `RULE_*`.
    pub flags: u16,
}

// SAFETY: every declaration below repeats one of shim.h; the layouts are compared by the test.
unsafe extern "C" {
    /// DPDK's version, a static string.
    pub safe fn gn_version() -> *const c_char;

    /// Starts the environment, which pins the calling thread to the cores in `argv`. Once per
    /// process: later calls give `-EALREADY`.
    ///
    /// # Safety
    /// `argv` holds `argc` pointers to zero-closed, writable strings, then a null; the strings
    /// live as long as the process. The order of the pointers may change.
    pub fn gn_eal_init(argc: c_int, argv: *mut *mut c_char) -> c_int;

    /// Ends the environment.
    ///
    /// # Safety
    /// No port is open, no pool lives, no thread is registered, and none of the other functions
    /// is called afterwards.
    pub fn gn_eal_cleanup() -> c_int;

    /// Directory of the environment's sockets; valid until [`gn_eal_cleanup`].
    pub safe fn gn_runtime_dir() -> *const c_char;

    /// Gives the calling thread caches of its own in the pools. `-EEXIST`: it has them.
    /// `-ENOMEM`: no more threads. `-EINVAL`: the environment was never up.
    ///
    /// # Safety
    /// [`gn_eal_cleanup`] was not called.
    pub fn gn_thread_register() -> c_int;

    /// Empties the calling thread's caches and takes them away.
    ///
    /// # Safety
    /// This thread has registered and has not unregistered since.
    pub fn gn_thread_unregister();

    /// Makes a pool of `slots` buffers over memory of the caller's; slot n is `SLOT_BYTES` bytes
    /// from `base + n * SLOT_BYTES`. `page` is the size of the pages behind it. `cache` buffers
    /// at most wait with each registered thread (half as many again before they flow back). What
    /// describes the buffers lies on `node`, or [`GN_ANY_NODE`].
    ///
    /// # Safety
    /// The environment is up. `base..base + len` is mapped, aligned to `page`, used by no one
    /// else, and outlives the pool. `out` is valid for a write.
    pub fn gn_pool_create(
        base: *mut u8,
        len: u64,
        page: u64,
        slots: u32,
        cache: u32,
        node: c_int,
        out: *mut *mut GnPool,
    ) -> c_int;

    /// Frees the pool and takes the memory back from the devices and from DPDK. Null is fine.
    ///
    /// # Safety
    /// Every slot is back in the pool, no port uses the pool, and none will.
    pub fn gn_pool_free(pool: *mut GnPool);

    /// Lets the port's device reach the pool's memory by DMA; again is fine. For PCI devices.
    ///
    /// # Safety
    /// `pool` lives; no other call of this function is running on it, nor of [`gn_port_close`].
    pub fn gn_pool_dma_map(pool: *mut GnPool, port: u16) -> c_int;

    /// Takes a free slot, or [`NO_SLOT`]. From any thread.
    ///
    /// # Safety
    /// `pool` lives.
    pub fn gn_pool_take(pool: *mut GnPool) -> u32;

    /// Returns a slot to the pool. From any thread.
    ///
    /// # Safety
    /// `pool` lives; `slot` came from it, is the caller's, and is not used afterwards.
    pub fn gn_pool_give(pool: *mut GnPool, slot: u32);

    /// Free slots, those in the caches of threads included.
    ///
    /// # Safety
    /// `pool` lives.
    pub fn gn_pool_available(pool: *const GnPool) -> u32;

    /// 1: every slot is back in the pool, and no thread is still returning one. Slots in the caches of other
    /// threads do not count as back; the calling thread's cache is emptied first.
    ///
    /// # Safety
    /// `pool` lives, and no thread takes slots from it any more.
    pub fn gn_pool_is_whole(pool: *mut GnPool) -> c_int;

    /// Plugs in a device by its name and arguments: `net_tap0,iface=x`, `0000:81:00.0`.
    ///
    /// # Safety
    /// The environment is up, no other call that plugs in, looks up or removes is running, and
    /// `devargs` is a zero-closed string.
    pub fn gn_dev_probe(devargs: *const c_char) -> c_int;

    /// The port of a device, by name.
    ///
    /// # Safety
    /// No call that plugs in or removes a device is running, and `device` is a zero-closed string.
    pub fn gn_port_find(device: *const c_char) -> c_int;

    /// What the port is.
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_facts(port: u16, out: &mut GnPortFacts) -> c_int;

    /// Sets the stopped port up; descriptor counts come back as the device can have them.
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_configure(port: u16, conf: &mut GnPortConf) -> c_int;

    /// Sets up a receive queue that takes its buffers from `pool`, or where its driver cannot, has some of
    /// its own and moves frames into those of `pool`.
    ///
    /// # Safety
    /// No other call on this port is running, and `pool` lives until the port is closed.
    pub fn gn_port_rx_queue(port: u16, queue: u16, desc: u16, pool: *mut GnPool) -> c_int;

    /// Sets up a transmit queue.
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_tx_queue(port: u16, queue: u16, desc: u16) -> c_int;

    /// Sets the device's counters to zero, where it can, and starts it.
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_start(port: u16) -> c_int;

    /// Receive frames for every address (1), or for ours alone (0).
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_promiscuous(port: u16, on: c_int) -> c_int;

    /// Receive all multicast frames.
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_all_multicast(port: u16) -> c_int;

    /// 1: the link is up; 0: it is down.
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_link_up(port: u16) -> c_int;

    /// The device's counters.
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_stats(port: u16, out: &mut GnPortStats) -> c_int;

    /// From now on what the device shows is kept for [`gn_port_told`].
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_watch(port: u16) -> c_int;

    /// `TOLD_*`, as far as the device, or the kernel about it, has reported since this was called last.
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside.
    pub fn gn_port_told(port: u16) -> u32;

    /// Resets the device, or stops one that has no reset. Its buffers return to the pool then, or when the
    /// queues are set up again. To be followed by [`gn_port_configure`], the queues' set-up and
    /// [`gn_port_start`].
    ///
    /// # Safety
    /// No burst and no other call is running on it, no burst follows before it is started again, and no call that
    /// plugs in, looks up or removes is running.
    pub fn gn_port_reset(port: u16) -> c_int;

    /// Stops and closes the port; its buffers return to the pool. `unplug` also releases its device, and takes
    /// the pool's memory back when no other device has it.
    ///
    /// # Safety
    /// No burst and no other call is running on it, and none follows. `pool` lives; with `unplug`, no other call that plugs in, looks
    /// up, removes or maps memory is running.
    pub fn gn_port_close(port: u16, pool: *mut GnPool, unplug: c_int) -> c_int;

    /// Has the device hand over the frames of rules alone. Its queues are set up, and it is not started: mlx5 and
    /// mlx4 ask no more, and `net_tap` does nothing before. On failure `why` has the driver's words, closed by
    /// a zero, as for [`gn_port_rule`].
    ///
    /// # Safety
    /// No other call on this port is running, bursts aside. `why` is valid for [`WHY_BYTES`] writes.
    pub fn gn_port_isolate(port: u16, why: *mut c_char) -> c_int;

    /// Has the started device hand over the frames of this service, spread as `conf` says, until it is
    /// stopped. 1: it takes no rule of its own for those with a VLAN tag.
    ///
    /// # Safety
    /// As for [`gn_port_isolate`].
    pub fn gn_port_rule(port: u16, rule: &GnRule, conf: &GnPortConf, why: *mut c_char) -> c_int;

    /// Receives up to `n` frames (at most [`BURST_MAX`]) into `out` and says how many. Their slots
    /// are the caller's. Frames that cannot be one slot's are freed and added to `bad`.
    ///
    /// # Safety
    /// The port is started and stays so during the call; the queue exists, takes its buffers
    /// from `pool`, and no other thread receives from it now. `out` is valid for `n` writes.
    pub fn gn_rx_burst(
        pool: *mut GnPool,
        port: u16,
        queue: u16,
        out: *mut GnFrame,
        n: u16,
        bad: &mut u64,
    ) -> u16;

    /// Sends from the front of `input` and says how many frames were taken. The driver owns the
    /// slots of those and returns them to the pool; the rest stay the caller's.
    ///
    /// # Safety
    /// The port is started and stays so during the call; the queue exists and no other thread
    /// sends on it now. `input` is valid for `n` reads; each slot is out of `pool`, the
    /// caller's, named once, and its bytes are in range.
    pub fn gn_tx_burst(pool: *mut GnPool, port: u16, queue: u16, input: *const GnTx, n: u16)
    -> u16;

    /// Writes sizes, offsets and constants as C sees them, at most `n`, and says how many there
    /// are.
    ///
    /// # Safety
    /// `out` is valid for `n` writes.
    #[cfg(test)]
    fn gn_layout(out: *mut u32, n: usize) -> usize;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn layouts_agree_with_c() {
        let rust: Vec<usize> = vec![
            size_of::<GnFrame>(),
            offset_of!(GnFrame, slot),
            offset_of!(GnFrame, off),
            offset_of!(GnFrame, len),
            offset_of!(GnFrame, flags),
            size_of::<GnTx>(),
            offset_of!(GnTx, slot),
            offset_of!(GnTx, off),
            offset_of!(GnTx, len),
            offset_of!(GnTx, flags),
            offset_of!(GnTx, l2_len),
            offset_of!(GnTx, l3_len),
            size_of::<GnPortFacts>(),
            offset_of!(GnPortFacts, driver),
            offset_of!(GnPortFacts, device),
            offset_of!(GnPortFacts, mac),
            offset_of!(GnPortFacts, queues_max),
            offset_of!(GnPortFacts, mtu_min),
            offset_of!(GnPortFacts, mtu_max),
            offset_of!(GnPortFacts, rss_key_bytes),
            offset_of!(GnPortFacts, mtu),
            offset_of!(GnPortFacts, flags),
            size_of::<GnPortConf>(),
            offset_of!(GnPortConf, queues),
            offset_of!(GnPortConf, rx_desc),
            offset_of!(GnPortConf, tx_desc),
            offset_of!(GnPortConf, mtu),
            offset_of!(GnPortConf, rss_key_bytes),
            offset_of!(GnPortConf, flags),
            offset_of!(GnPortConf, rss_key),
            size_of::<GnPortStats>(),
            offset_of!(GnPortStats, rx_frames),
            offset_of!(GnPortStats, tx_frames),
            offset_of!(GnPortStats, rx_bytes),
            offset_of!(GnPortStats, tx_bytes),
            offset_of!(GnPortStats, rx_missed),
            offset_of!(GnPortStats, rx_errors),
            offset_of!(GnPortStats, rx_no_buffer),
            offset_of!(GnPortStats, tx_errors),
            size_of::<GnRule>(),
            offset_of!(GnRule, address),
            offset_of!(GnRule, port),
            offset_of!(GnRule, flags),
            BURST_MAX,
            SLOT_BYTES,
            NAME_BYTES,
            RSS_KEY_BYTES,
            RX_IP_GOOD as usize,
            RX_UDP_GOOD as usize,
            TX_IP.into(),
            TX_UDP.into(),
            TX_IPV6.into(),
            PORT_PCI as usize,
            PORT_TX_IP as usize,
            PORT_TX_UDP as usize,
            PORT_RSS as usize,
            CONF_RSS.into(),
            TOLD_RESET as usize,
            TOLD_REMOVED as usize,
            WHY_BYTES,
            RULE_IPV6.into(),
            RULE_TCP.into(),
        ];
        let mut c = vec![0u32; rust.len()];
        // SAFETY: `c` is valid for as many writes as it has elements.
        let rows = unsafe { gn_layout(c.as_mut_ptr(), c.len()) };
        assert_eq!(rows, rust.len(), "one side lists more fields");
        let c: Vec<usize> = c.into_iter().map(|v| v as usize).collect();
        assert_eq!(rust, c);
    }

    #[test]
    fn links_dpdk() {
        // SAFETY: a static, zero-closed string.
        let version = unsafe { std::ffi::CStr::from_ptr(gn_version()) };
        assert!(version.to_str().unwrap().starts_with("DPDK "));
    }
}
