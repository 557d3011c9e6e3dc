//! Reads the state of the GPUs through NVIDIA's management library (NVML).
//!
//! In: the library, loaded at run time from the driver's installation. Out: [`Vitals`]. Changes
//! nothing of a GPU. A call may take as long as the driver likes, or for ever if that hangs, so this
//! has a thread that no other thread waits for. Without the library, or a function in it, there is less to show.

use crate::vitals::Vitals;
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{Clock, EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::enums::event::XidError;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, EventSet, Nvml};
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

/// Time between two looks.
const LOOK_MS: u32 = 1000;
/// Kinds of critical errors that are distinguished, of all GPUs: there are some two hundred numbers.
const XIDS_MAX: usize = 256;

/// Critical errors by GPU and number.
type Xids = BTreeMap<(String, u64), u64>;

/// The library.
#[derive(Debug)]
pub struct Management(Nvml);

impl Management {
    /// Loads the library that the driver brought, or the one at `path`, and looks once, because it
    /// opens each GPU when it is first queried. `None`: there is none that works.
    pub fn open(path: Option<&Path>) -> Option<Self> {
        let mut library = Nvml::builder();
        if let Some(path) = path {
            library.lib_path(path.as_os_str());
        }
        let management = Self(library.init().ok()?);
        management.look(&Xids::new());
        Some(management)
    }

    /// Reports how all GPUs are, about once a second until `stop` is set.
    pub fn watch(&self, stop: &AtomicBool, mut tell: impl FnMut(Vec<Vitals>)) {
        let (events, mut xids) = (self.events(), Xids::new());
        while !stop.load(Ordering::Relaxed) {
            tell(self.look(&xids));
            let event = events.as_ref().map(|events| events.wait(LOOK_MS));
            match event {
                Some(Ok(event)) => {
                    if let Some(XidError::Value(xid)) = event.event_data {
                        count(&mut xids, pci(&event.device), xid);
                    }
                }
                Some(Err(NvmlError::Timeout)) => {}
                Some(Err(_)) | None => thread::sleep(Duration::from_millis(LOOK_MS.into())),
            }
        }
    }

    /// Where critical errors of all GPUs are reported, if they are.
    fn events(&self) -> Option<EventSet<'_>> {
        self.devices().try_fold(self.0.create_event_set().ok()?, |events, device| {
            device.register_events(EventTypes::CRITICAL_XID_ERROR, events).ok()
        })
    }

    fn devices(&self) -> impl Iterator<Item = Device<'_>> {
        let n = self.0.device_count().unwrap_or(0);
        (0..n).filter_map(|index| self.0.device_by_index(index).ok())
    }

    fn look(&self, xids: &Xids) -> Vec<Vitals> {
        let look = |device: Device<'_>| {
            let pci = pci(&device);
            let ecc = |kind| device.total_ecc_errors(kind, EccCounter::Volatile).ok();
            let of_it = xids.iter().filter(|((of, _), _)| *of == pci);
            Vitals {
                temperature_celsius: device.temperature(TemperatureSensor::Gpu).ok(),
                power_milliwatts: device.power_usage().ok(),
                energy_millijoules: device.total_energy_consumption().ok(),
                sm_megahertz: device.clock_info(Clock::SM).ok(),
                memory_megahertz: device.clock_info(Clock::Memory).ok(),
                ecc_corrected: ecc(MemoryError::Corrected),
                ecc_uncorrected: ecc(MemoryError::Uncorrected),
                busy_percent: device.utilization_rates().ok().map(|rates| rates.gpu),
                xids: of_it.map(|((_, xid), n)| (*xid, *n)).collect(),
                pci,
            }
        };
        self.devices().map(look).collect()
    }
}

fn pci(device: &Device<'_>) -> String {
    device.pci_info().map(|info| info.bus_id).unwrap_or_default()
}

fn count(xids: &mut Xids, pci: String, xid: u64) {
    if let Some(n) = xids.get_mut(&(pci.clone(), xid)) {
        *n += 1;
    } else if xids.len() < XIDS_MAX {
        xids.insert((pci, xid), 1);
    }
}
