//! `gnomon bind` and `gnomon unbind`: a NIC from the kernel's driver to vfio-pci, and back.
//!
//! In: a PCI address. Out: the device under the other driver, or an error that says why not, and
//! then nothing has changed. What it had before is kept in a file under `/run`, so that `unbind`
//! and a second `bind` can read it. What a running machine needs is refused: the way out (the default
//! route), and devices that DPDK shares with their kernel driver.

use crate::host::check::{BIFURCATED, Host};
use crate::host::pci::PciAddress;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::{Duration, Instant};

const VFIO: &str = "vfio-pci";
/// Where old drivers are written down, a file for each device. Not in the service's own directory,
/// which goes when it stops.
const STATE: &str = "run/gnomon-bind";
/// Longest wait for a driver to take a device.
const TAKE_MAX: Duration = Duration::from_secs(5);
const TAKE_PAUSE: Duration = Duration::from_millis(10);

/// What was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bound {
    /// Nothing: it was so already.
    Already(String),
    /// The device has this driver now.
    Now(String),
}

/// Why nothing was done.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum BindError {
    #[error("{0}: no such PCI device; lspci -D lists what there is")]
    NoDevice(PciAddress),
    #[error("{0} is no network device (class {1:04x}); lspci -D | grep -i net lists those")]
    NotANic(PciAddress, u64),
    #[error(
        "{nic} carries the default route, over {interface}: taking it would cut this machine off; use another NIC"
    )]
    DefaultRoute {
        nic: PciAddress,
        /// Its interface, or the one that stands on it: `bond0 on eth0`.
        interface: String,
    },
    /// mlx5 and mlx4.
    #[error(
        "{nic} stays with {driver}: DPDK works through the kernel's driver there, and needs it"
    )]
    Bifurcated { nic: PciAddress, driver: String },
    #[error("vfio-pci is not loaded: modprobe vfio-pci")]
    NoVfio,
    #[error("{0}: there is no record of its driver; echo {0} > /sys/bus/pci/drivers/DRIVER/bind")]
    NotBoundByUs(PciAddress),
    #[error("{path}: {why}")]
    Refused { path: PathBuf, why: io::Error },
    #[error("{nic}: {driver} has not taken it within 5 seconds; see dmesg")]
    NotTaken { nic: PciAddress, driver: String },
}

/// Gives the NIC to vfio-pci.
///
/// # Errors
/// See [`BindError`]; the device has its old driver then, unless it says `NotTaken`.
pub fn bind(host: &Host, nic: &PciAddress) -> Result<Bound, BindError> {
    if !host.has(host.pci(nic)) {
        return Err(BindError::NoDevice(nic.clone()));
    }
    let class = host.number(host.pci(nic).join("class")).unwrap_or(0);
    if class >> 16 != 0x02 {
        return Err(BindError::NotANic(nic.clone(), class >> 8));
    }
    let old = host.driver(nic);
    match old.as_deref() {
        Some(VFIO) => return Ok(Bound::Already(VFIO.to_owned())),
        Some(driver) if BIFURCATED.contains(&driver) => {
            return Err(BindError::Bifurcated { nic: nic.clone(), driver: driver.to_owned() });
        }
        _ => {}
    }
    if let Some(interface) = host.default_route_over(nic) {
        return Err(BindError::DefaultRoute { nic: nic.clone(), interface });
    }
    if !host.has("sys/bus/pci/drivers/vfio-pci") {
        return Err(BindError::NoVfio);
    }
    // One that has no driver may have lost it to a bind that did not get to its end.
    if old.is_some() || host.read(state(nic)).is_none() {
        keep(host, nic, old.as_deref().unwrap_or_default())?;
    }
    hand_over(host, nic, old.as_deref(), VFIO)?;
    Ok(Bound::Now(VFIO.to_owned()))
}

/// Gives the NIC back to the driver that it had.
///
/// # Errors
/// See [`BindError`].
pub fn unbind(host: &Host, nic: &PciAddress) -> Result<Bound, BindError> {
    if !host.has(host.pci(nic)) {
        return Err(BindError::NoDevice(nic.clone()));
    }
    let current = host.driver(nic);
    let Some(old) = host.read(state(nic)) else {
        return match current {
            Some(driver) if driver != VFIO => Ok(Bound::Already(driver)),
            _ => Err(BindError::NotBoundByUs(nic.clone())),
        };
    };
    if current.as_deref().unwrap_or_default() == old {
        forget(host, nic)?;
        return Ok(Bound::Already(old));
    }
    hand_over(host, nic, current.as_deref(), &old)?;
    forget(host, nic)?;
    Ok(Bound::Now(old))
}

/// Takes the device from `from` and waits until `to` has it; an empty `to` is no driver. A third one
/// that was taking it meanwhile, as happens while a machine boots, has to give it up again.
fn hand_over(host: &Host, nic: &PciAddress, from: Option<&str>, to: &str) -> Result<(), BindError> {
    // The kernel then offers the device to this driver alone; a line end takes that back.
    let only = if to == VFIO { VFIO } else { "" };
    write(host, host.pci(nic).join("driver_override"), &format!("{only}\n"))?;
    if let Some(from) = from {
        let unbind = format!("sys/bus/pci/drivers/{from}/unbind");
        write(host, unbind.into(), &nic.0)?;
    }
    if to.is_empty() {
        return Ok(());
    }
    let probe = || write(host, "sys/bus/pci/drivers_probe".into(), &nic.0);
    probe()?;
    let begun = Instant::now();
    loop {
        let now = host.driver(nic);
        if now.as_deref() == Some(to) {
            return Ok(());
        }
        if begun.elapsed() > TAKE_MAX {
            return Err(BindError::NotTaken { nic: nic.clone(), driver: to.to_owned() });
        }
        if let Some(third) = now.filter(|now| from != Some(now.as_str())) {
            let unbind = format!("sys/bus/pci/drivers/{third}/unbind");
            write(host, unbind.into(), &nic.0)?;
            probe()?;
        }
        std::thread::sleep(TAKE_PAUSE);
    }
}

fn state(nic: &PciAddress) -> PathBuf {
    PathBuf::from(STATE).join(&nic.0)
}

fn keep(host: &Host, nic: &PciAddress, driver: &str) -> Result<(), BindError> {
    let dir = host.path(STATE);
    fs::create_dir_all(&dir).map_err(|why| BindError::Refused { path: dir, why })?;
    write(host, state(nic), driver)
}

fn forget(host: &Host, nic: &PciAddress) -> Result<(), BindError> {
    let path = host.path(state(nic));
    fs::remove_file(&path).map_err(|why| BindError::Refused { path, why })
}

fn write(host: &Host, path: PathBuf, text: &str) -> Result<(), BindError> {
    let path = host.path(path);
    fs::write(&path, text).map_err(|why| BindError::Refused { path, why })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::check::tests::Fake;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    const NIC: &str = "0000:81:00.0";

    fn nic() -> PciAddress {
        PciAddress(NIC.to_owned())
    }

    /// Stands for the kernel: gives a device that is to be probed to its `driver_override`, or to
    /// ixgbe.
    fn kernel(fake: &Fake, until: &Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
        let (root, until) = (fake.root().to_owned(), Arc::clone(until));
        std::thread::spawn(move || {
            let probe = root.join("sys/bus/pci/drivers_probe");
            while !until.load(Ordering::Relaxed) {
                if fs::read_to_string(&probe).is_ok_and(|text| text == NIC) {
                    let device = root.join("sys/bus/pci/devices").join(NIC);
                    let asked = fs::read_to_string(device.join("driver_override")).unwrap();
                    let driver = if asked.trim().is_empty() { "ixgbe" } else { asked.trim() };
                    fs::write(&probe, "").unwrap();
                    let link = device.join("driver");
                    let _ = fs::remove_file(&link);
                    std::os::unix::fs::symlink(format!("/x/{driver}"), link).unwrap();
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        })
    }

    #[test]
    fn there_and_back_again() {
        let fake = Fake::new("bind").nic(NIC, "ixgbe").vfio();
        let until = Arc::new(AtomicBool::new(false));
        let kernel = kernel(&fake, &until);
        let host = fake.host();
        assert_eq!(bind(&host, &nic()).unwrap(), Bound::Now("vfio-pci".to_owned()));
        assert_eq!(bind(&host, &nic()).unwrap(), Bound::Already("vfio-pci".to_owned()));
        assert_eq!(unbind(&host, &nic()).unwrap(), Bound::Now("ixgbe".to_owned()));
        assert_eq!(unbind(&host, &nic()).unwrap(), Bound::Already("ixgbe".to_owned()));
        until.store(true, Ordering::Relaxed);
        kernel.join().unwrap();
        assert_eq!(host.read("sys/bus/pci/drivers/ixgbe/unbind").as_deref(), Some(NIC));
    }

    #[test]
    fn the_old_driver_is_known_after_a_bind_that_ended_halfway() {
        let fake = Fake::new("bind-halfway").nic(NIC, "").vfio();
        let host = fake.host();
        keep(&host, &nic(), "ixgbe").unwrap();
        let until = Arc::new(AtomicBool::new(false));
        let kernel = kernel(&fake, &until);
        assert_eq!(bind(&host, &nic()).unwrap(), Bound::Now("vfio-pci".to_owned()));
        assert_eq!(unbind(&host, &nic()).unwrap(), Bound::Now("ixgbe".to_owned()));
        until.store(true, Ordering::Relaxed);
        kernel.join().unwrap();
    }

    #[test]
    fn a_driver_that_came_in_between_gives_way() {
        let fake =
            Fake::new("bind-race").nic(NIC, "").vfio().file("sys/bus/pci/drivers/ixgbe/unbind", "");
        let (until, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        // The kernel's part: the first probe finds ixgbe taking the device, the next one, after
        // ixgbe was ordered to leave it, gives it to vfio-pci.
        let kernel = {
            let (root, until, seen) =
                (fake.root().to_owned(), Arc::clone(&until), Arc::clone(&seen));
            std::thread::spawn(move || {
                let probe = root.join("sys/bus/pci/drivers_probe");
                while !until.load(Ordering::Relaxed) {
                    if fs::read_to_string(&probe).is_ok_and(|text| text == NIC) {
                        fs::write(&probe, "").unwrap();
                        let link = root.join("sys/bus/pci/devices").join(NIC).join("driver");
                        let told =
                            fs::read_to_string(root.join("sys/bus/pci/drivers/ixgbe/unbind"));
                        let told = told.is_ok_and(|text| text == NIC);
                        let driver = if told { "vfio-pci" } else { "ixgbe" };
                        seen.fetch_or(!told, Ordering::Relaxed);
                        let _ = fs::remove_file(&link);
                        std::os::unix::fs::symlink(format!("/x/{driver}"), link).unwrap();
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            })
        };
        assert_eq!(bind(&fake.host(), &nic()).unwrap(), Bound::Now("vfio-pci".to_owned()));
        until.store(true, Ordering::Relaxed);
        kernel.join().unwrap();
        assert!(seen.load(Ordering::Relaxed), "ixgbe had it first");
    }

    #[test]
    fn what_the_machine_needs_is_not_taken() {
        let fake = Fake::new("bind-no").nic(NIC, "ixgbe").vfio().default_route("eth0", NIC);
        let refused = bind(&fake.host(), &nic());
        assert!(matches!(refused, Err(BindError::DefaultRoute { .. })), "{refused:?}");
        let fake = Fake::new("bind-no-vlan").nic(NIC, "ixgbe").vfio().default_route("eth0", NIC);
        let fake = fake.upper("bond0", "eth0").upper("bond0.7", "bond0").route_over("bond0.7");
        let refused = bind(&fake.host(), &nic()).unwrap_err().to_string();
        assert!(refused.contains("default route, over bond0.7 on eth0: "), "{refused}");
        assert_eq!(fake.host().driver(&nic()).as_deref(), Some("ixgbe"));
        let fake = Fake::new("bind-mlx").nic(NIC, "mlx5_core").vfio();
        assert!(matches!(bind(&fake.host(), &nic()), Err(BindError::Bifurcated { .. })));
        let fake = Fake::new("bind-class").nic(NIC, "ixgbe").vfio();
        let fake = fake.file(&format!("sys/bus/pci/devices/{NIC}/class"), "0x010802");
        assert!(matches!(bind(&fake.host(), &nic()), Err(BindError::NotANic(_, 0x0108))));
        let fake = Fake::new("bind-other").nic(NIC, "vfio-pci").vfio();
        assert!(matches!(unbind(&fake.host(), &nic()), Err(BindError::NotBoundByUs(_))));
        let fake = Fake::new("bind-vfio").nic(NIC, "ixgbe");
        assert!(matches!(bind(&fake.host(), &nic()), Err(BindError::NoVfio)));
        let other = PciAddress("0000:82:00.0".to_owned());
        assert!(matches!(bind(&fake.host(), &other), Err(BindError::NoDevice(_))));
        assert_eq!(fake.host().driver(&nic()).as_deref(), Some("ixgbe"));
    }
}
