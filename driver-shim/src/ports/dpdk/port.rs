//! A DPDK port: found or plugged in, set up, started, stopped.
//!
//! In: a [`PortConfig`]. Out: a [`DpdkPort`], stopped, whose facts can be read, and from
//! [`DpdkPort::start`] the [`Port`] that everything above uses. Queues, control and the region
//! keep what they need alive by themselves, so they may be dropped in any order. Can fail:
//! [`DpdkError`], until the port is started.
#![allow(unsafe_code)]

use super::eal::{Eal, EalShared};
use super::error::{DpdkError, check, check_driver};
use super::isolation::Isolation;
use super::kernel_device::KernelDevice;
use super::pool::pool_of;
use super::queue::{DpdkRx, DpdkTx};
use super::queue_state::QueueState;
use super::reset::MEMORY;
use super::shared::{DpdkControl, PortShared, State};
use super::signals::PacketSignals;
use super::spec::Spec;
use crate::frame::BURST_MAX;
use crate::port::{MacAddr, Port, PortInfo, QueuePair, TxCaps};
use crate::region::Region;
use crate::slots::FRAME_MAX_BYTES;
use dpdk_ffi as ffi;
use parking_lot::Mutex;
use std::ffi::{CStr, CString};
use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// Ethernet header, one VLAN tag and the frame check sequence: what a packet of MTU size adds.
const L2_BYTES: usize = 14 + 4 + 4;

/// What a port is asked to be.
#[derive(Debug, Clone)]
pub struct PortConfig {
    /// `0000:81:00.0`, or a virtual device with its arguments: `net_tap0,iface=gn0`.
    pub spec: String,
    /// Queue pairs, one per worker.
    pub queues: u16,
    /// As many as the device has will do, where those are fewer. A PCI device that was closed is not found again,
    /// so that it cannot be asked first.
    pub or_fewer: bool,
    /// Descriptors per queue and direction. The device's nearest is taken.
    pub descriptors: u16,
    /// Receive frames for every Ethernet address.
    pub promiscuous: bool,
    /// Longest IP packet, in bytes.
    pub mtu: u16,
    /// Frames that are taken from the kernel, where it keeps the device. `None`: every one.
    pub isolation: Option<Isolation>,
}

impl PortConfig {
    /// One queue, 1,024 descriptors, the Ethernet MTU.
    pub fn new(spec: impl Into<String>) -> Self {
        Self {
            spec: spec.into(),
            queues: 1,
            or_fewer: false,
            descriptors: 1024,
            promiscuous: false,
            mtu: 1500,
            isolation: None,
        }
    }
}

/// A port that is set up and stopped. Dropping it closes the port.
pub struct DpdkPort {
    shared: Arc<PortShared>,
    info: PortInfo,
}

impl fmt::Debug for DpdkPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DpdkPort").field("info", &self.info).finish_non_exhaustive()
    }
}

impl DpdkPort {
    /// Finds the device, or plugs it in, and sets it up over `region`. A PCI device must have
    /// been allowed when DPDK was started.
    ///
    /// # Errors
    /// [`DpdkError`]: no such device, or one that cannot be set up as requested.
    pub fn open(eal: &Eal, region: &Region, config: &PortConfig) -> Result<Self, DpdkError> {
        let spec = Spec::parse(&config.spec)?;
        let pool = pool_of(&eal.shared, region)
            .ok_or_else(|| DpdkError::NoPool { name: spec.device.clone() })?;
        let (number, plugged) = claim(&eal.shared, &spec, config)?;
        // From here on, dropping `shared` undoes it all.
        let mut shared = PortShared {
            region: region.clone(),
            number,
            busy_poll: false,
            name: spec.device,
            driver: String::new(),
            pool,
            plugged,
            ring: false,
            kernel_device: None,
            closed: AtomicBool::new(false),
            rx: Box::default(),
            tx: Box::default(),
            state: Mutex::new(State::new(config.promiscuous)),
            eal: Arc::clone(&eal.shared),
        };
        let info = shared.set_up(config, &spec.devargs)?;
        Ok(Self { shared: Arc::new(shared), info })
    }

    /// Facts, before the port is started.
    pub fn info(&self) -> &PortInfo {
        &self.info
    }

    /// Queue pairs.
    pub fn queues(&self) -> usize {
        self.shared.rx.len()
    }

    /// Whether the kernel keeps the frames that no service has.
    pub fn is_isolated(&self) -> bool {
        !self.shared.state.lock().services.is_empty()
    }

    /// Starts the port.
    ///
    /// # Errors
    /// [`DpdkError::Setup`]: the device does not start. [`DpdkError::NoRule`]: isolated, it does not hand over a
    /// service. The port is closed.
    pub fn start(self) -> Result<Port, DpdkError> {
        let Self { shared, info } = self;
        {
            let _control = shared.eal.open.lock();
            let hint = "see the lines that DPDK wrote above";
            // SAFETY: `shared` is not shared yet, so no other thread calls for this port.
            shared.step("start", hint, unsafe { ffi::gn_port_start(shared.number) })?;
            let mut state = shared.state.lock();
            state.started = true;
            shared.steer(&state)?;
        }
        // net_tap's, which may be behind another driver.
        let signals = PacketSignals::find().map_err(|source| DpdkError::Setup {
            name: shared.name.clone(),
            step: "take the driver's signals",
            source,
            hint: "allow more open files (ulimit -n)",
        })?;
        let signals = signals.filter(|_| !shared.busy_poll).map(Arc::new);
        let queues = (0..u16::try_from(shared.rx.len()).unwrap_or(u16::MAX))
            .map(|q| QueuePair {
                rx: Box::new(DpdkRx::new(Arc::clone(&shared), q, signals.clone())),
                tx: Box::new(DpdkTx::new(Arc::clone(&shared), q)),
            })
            .collect();
        Ok(Port { info, queues, control: Box::new(DpdkControl { shared }) })
    }
}

/// Finds the port of the device, plugs the device in if need be, and marks it as taken.
fn claim(eal: &EalShared, spec: &Spec, config: &PortConfig) -> Result<(u16, bool), DpdkError> {
    let c_string =
        |s: &str| CString::new(s).map_err(|_| DpdkError::BadArgument { arg: s.to_owned() });
    let (device, devargs) = (c_string(&spec.device)?, c_string(&spec.devargs)?);
    let missing = |source| DpdkError::NoDevice {
        spec: config.spec.clone(),
        source,
        hint: if spec.pci {
            "see that the address is right (lspci -D), that the device was allowed when DPDK was \
             started, and that it is bound to vfio-pci (gnomon bind ADDRESS) unless its driver is \
             one that shares it with the kernel, as mlx5 does"
        } else {
            "see that the driver's name and arguments are right, that DPDK's plugin for it is \
             installed, and that what it stands on (interface, socket, file) exists"
        },
    };
    let mut open = eal.open.lock();
    // SAFETY: a zero-closed string, and the lock excludes threads that plug in or remove.
    let find = || check(unsafe { ffi::gn_port_find(device.as_ptr()) });
    let (number, plugged) = match find() {
        Ok(number) => (number, false),
        Err(_) => {
            spec.remove_left_over();
            // SAFETY: the environment is up, the lock keeps others out, and the string is
            // zero-closed.
            let probed = check_driver(unsafe { ffi::gn_dev_probe(devargs.as_ptr()) });
            probed.map_err(|error| match error.raw_os_error() {
                // What DPDK says of a name that no bus knows.
                Some(libc::EFAULT) => missing(io::Error::other("no driver has that name")),
                _ => missing(error),
            })?;
            (find().map_err(missing)?, true)
        }
    };
    if open.ports.contains(&number) {
        return Err(DpdkError::InUse { name: spec.device.clone() });
    }
    open.ports.push(number);
    Ok((number, plugged))
}

impl PortShared {
    /// What the device is. `&mut`: a port that is being set up is ours alone.
    fn facts(&mut self) -> Result<ffi::GnPortFacts, DpdkError> {
        let mut facts = ffi::GnPortFacts::default();
        // SAFETY: the port is claimed, and `&mut self` means that no other thread calls for it.
        let rc = unsafe { ffi::gn_port_facts(self.number, &mut facts) };
        self.step("be read", "see the lines above", rc)?;
        Ok(facts)
    }

    fn set_up(&mut self, config: &PortConfig, devargs: &str) -> Result<PortInfo, DpdkError> {
        let name = self.name.clone();
        let facts = self.facts()?;
        let has = |flag| facts.flags & flag != 0;
        self.busy_poll = has(ffi::PORT_PCI);
        let driver = c_text(&facts.driver);
        self.ring = driver == "net_ring";
        self.kernel_device = KernelDevice::under(driver, devargs);
        self.driver = driver.to_owned();
        let most = if config.or_fewer { facts.queues_max } else { u16::MAX };
        let config = &PortConfig { queues: config.queues.min(most), ..config.clone() };
        check_config(&name, config, &facts, self.region.capacity())?;

        let mut conf = ffi::GnPortConf {
            queues: config.queues,
            rx_desc: config.descriptors,
            tx_desc: config.descriptors,
            mtu: config.mtu,
            rss_key_bytes: 0,
            flags: 0,
            rss_key: [0; ffi::RSS_KEY_BYTES],
        };
        if config.queues > 1 && has(ffi::PORT_RSS) {
            conf.flags |= ffi::CONF_RSS;
            conf.rss_key_bytes =
                rss_key(&mut conf.rss_key, facts.rss_key_bytes).map_err(|source| {
                    DpdkError::Setup {
                        name: name.clone(),
                        step: "make an RSS key",
                        source,
                        hint: "the kernel gives no random bytes; is /proc/sys/kernel/random there?",
                    }
                })?;
        } else if config.queues > 1 && self.busy_poll {
            tracing::warn!(port = name, "no RSS: every frame arrives on queue 0");
        }

        let eal = Arc::clone(&self.eal);
        let _control = eal.open.lock();
        if self.busy_poll {
            // SAFETY: the pool lives as long as our region, and the lock keeps others out.
            let rc = unsafe { ffi::gn_pool_dma_map(self.pool(), self.number) };
            let hint = "give the process enough locked memory (ulimit -l unlimited) and bind the \
                        device to vfio-pci behind an IOMMU";
            self.step("map the region for DMA", hint, rc)?;
        }
        self.rx = (0..config.queues).map(|_| QueueState::default()).collect();
        self.tx = (0..config.queues).map(|_| QueueState::default()).collect();
        let mut state = self.state.lock();
        state.conf = conf;
        self.apply(&mut state)?;
        if let Some(isolation) = &config.isolation {
            self.isolate(isolation, &mut state)?;
        }
        // SAFETY: no other thread calls for the port (as above).
        self.step("be watched", MEMORY, unsafe { ffi::gn_port_watch(self.number) })?;

        Ok(PortInfo {
            name,
            mac: MacAddr(facts.mac),
            mtu: config.mtu,
            tx_caps: TxCaps { ip: has(ffi::PORT_TX_IP), udp: has(ffi::PORT_TX_UDP) },
            any_destination: false,
            busy_poll: self.busy_poll,
            // The kernel gives a frame whose ring is full to another (PACKET_FANOUT_FLAG_ROLLOVER).
            flows_stray: self.driver == "net_af_packet" && config.queues > 1,
        })
    }
}

fn check_config(
    name: &str,
    config: &PortConfig,
    facts: &ffi::GnPortFacts,
    slots: usize,
) -> Result<(), DpdkError> {
    let name = || name.to_owned();
    if config.queues == 0 || config.queues > facts.queues_max {
        return Err(DpdkError::Queues {
            name: name(),
            asked: config.queues,
            max: facts.queues_max,
        });
    }
    let slot_max = u16::try_from(FRAME_MAX_BYTES - L2_BYTES).unwrap_or(u16::MAX);
    let max = facts.mtu_max.min(slot_max);
    if config.mtu < facts.mtu_min || config.mtu > max {
        let (asked, min) = (config.mtu, facts.mtu_min);
        return Err(DpdkError::Mtu { name: name(), asked, min, max });
    }
    let need = usize::from(config.queues) * (usize::from(config.descriptors) + BURST_MAX);
    if need > slots {
        let (queues, descriptors) = (config.queues, config.descriptors);
        return Err(DpdkError::TooFewSlots { name: name(), queues, descriptors, need, slots });
    }
    Ok(())
}

/// Fills in a random key of the device's length, and says how long it is.
fn rss_key(key: &mut [u8], device_bytes: u16) -> io::Result<u16> {
    const USUAL_BYTES: u16 = 40;
    let bytes = if device_bytes == 0 { USUAL_BYTES } else { device_bytes };
    let key =
        key.get_mut(..bytes.into()).ok_or_else(|| io::Error::from_raw_os_error(libc::E2BIG))?;
    // SAFETY: `key` is valid for writes of its length.
    let got = unsafe { libc::getrandom(key.as_mut_ptr().cast(), key.len(), 0) };
    if usize::try_from(got) == Ok(key.len()) { Ok(bytes) } else { Err(io::Error::last_os_error()) }
}

fn c_text(bytes: &[u8]) -> &str {
    CStr::from_bytes_until_nul(bytes).ok().and_then(|c| c.to_str().ok()).unwrap_or_default()
}
