//! A memif between two processes: either end.
//!
//! In: the socket. Out: a started port of one queue, over a region of this process. Fails as DPDK
//! does, or when no process is at the other end.

use super::SLOTS;
use driver_shim::ports::dpdk::{
    DpdkError, DpdkPort, Eal, EalConfig, PortConfig, memory_mb_for, region,
};
use driver_shim::ports::memory::{MAC, PEER_MAC};
use driver_shim::{Pages, Port, Region};
use std::error::Error;
use std::path::Path;
use std::time::{Duration, Instant};

/// Longest wait for the other end.
const LINK_MAX: Duration = Duration::from_secs(20);

/// DPDK, started, with packet slots.
#[derive(Debug)]
pub(super) struct Dpdk {
    // Before what they use.
    region: Region,
    eal: Eal,
}

impl Dpdk {
    pub(super) fn start() -> Result<Self, DpdkError> {
        let extra = vec!["--no-telemetry".to_owned()];
        let eal = Eal::init(&EalConfig {
            memory_mb: memory_mb_for(SLOTS),
            extra,
            ..EalConfig::default()
        })?;
        let region = region(&eal, SLOTS, Pages::Prefer, None)?;
        Ok(Self { region, eal })
    }

    pub(super) fn region(&self) -> &Region {
        &self.region
    }

    fn open(&self, spec: &str) -> Result<Port, DpdkError> {
        DpdkPort::open(&self.eal, &self.region, &PortConfig::new(spec))?.start()
    }

    pub(super) fn server(&self, socket: &Path) -> Result<Port, DpdkError> {
        let at = socket.display();
        self.open(&format!("net_memif0,role=server,id=0,socket={at},socket-abstract=no,mac={MAC}"))
    }

    /// The client's end, once the server is there. `number` is another one for each that is opened.
    pub(super) fn client(&self, number: usize, socket: &Path) -> Result<Port, Box<dyn Error>> {
        let (at, name) = (socket.display(), format!("net_memif{number}"));
        let port = self.open(&format!(
            "{name},role=client,id=0,socket={at},socket-abstract=no,mac={PEER_MAC}"
        ))?;
        let begun = Instant::now();
        while !port.control.link_up() {
            if begun.elapsed() > LINK_MAX {
                return Err("nothing is connected to the memif".into());
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(port)
    }
}
