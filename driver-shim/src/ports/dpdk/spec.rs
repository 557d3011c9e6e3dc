//! Port specifications: a device's name, then its arguments.

use super::error::DpdkError;
use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixDatagram;

/// The kernel's ring must not hold longer frames than a slot: the driver's own 2,048 bytes do, and
/// it then refuses the pool. 1,920 hold a header and 1,518 bytes of frame; the block is the
/// shortest run of pages that is a whole number of them, as the driver takes for granted.
const AF_PACKET_RING: &str = ",blocksz=61440,framesz=1920";
/// The longest frame of the ring that fits a slot, header and all.
const AF_PACKET_FRAME_MAX: u32 = 1952;
/// With more than one queue, so many frames in a ring, a whole number of blocks: 8 MB each way and queue. Of a ring
/// that is three quarters full the kernel gives a flow's frames to another queue. Of the driver's own 512 that is
/// 2 ms of 200,000 frames a second, for which workers may well not run; of these, 15 ms.
const AF_PACKET_FRAMES: &str = ",framecnt=4096";

/// `0000:81:00.0`, `81:00.0,mprq_en=1` or `net_tap0,iface=gn0`, taken apart.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spec {
    /// What DPDK calls the device.
    pub(super) device: String,
    /// Name and arguments, for plugging it in.
    pub(super) devargs: String,
    /// The name is a PCI address.
    pub(super) pci: bool,
}

impl Spec {
    pub(super) fn parse(spec: &str) -> Result<Self, DpdkError> {
        let bad = |why| DpdkError::BadSpec { spec: spec.to_owned(), why };
        let (name, args) = spec.split_once(',').map_or((spec, None), |(n, a)| (n, Some(a)));
        if name.is_empty() {
            return Err(bad("it has no name"));
        }
        if spec.bytes().any(|b| b <= b' ' || b == 0x7f) {
            return Err(bad("it holds a space or a control character"));
        }
        let pci = is_pci_address(name);
        let device = match name.matches(':').count() {
            1 if pci => format!("0000:{}", name.to_ascii_lowercase()),
            _ if pci => name.to_ascii_lowercase(),
            _ => name.to_owned(),
        };
        if !pci && !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.:".contains(&b)) {
            return Err(bad("its name holds a character that no device has"));
        }
        if !pci && !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Err(bad("it is neither a PCI address nor a virtual device's name"));
        }
        let zero_copy = |a: &str| a.split(',').any(|kv| kv.starts_with("zero-copy=y"));
        if name.starts_with("net_memif") && args.is_some_and(zero_copy) {
            return Err(bad("memif's zero-copy shares DPDK's memory, and frames live in our own"));
        }
        let mut devargs = args.map_or_else(|| device.clone(), |a| format!("{device},{a}"));
        let frame_bytes = devargs.split(',').find_map(|a| a.strip_prefix("framesz="));
        if name.starts_with("net_af_packet")
            && frame_bytes
                .is_some_and(|bytes| bytes.parse().is_ok_and(|n: u32| n > AF_PACKET_FRAME_MAX))
        {
            return Err(bad("framesz is 1,952 at most, so that frames fit a slot"));
        }
        if name.starts_with("net_af_packet") && frame_bytes.is_none() {
            devargs.push_str(AF_PACKET_RING);
            let queues = devargs.split(',').find_map(|a| a.strip_prefix("qpairs=")?.parse().ok());
            if queues.is_some_and(|queues: u32| queues > 1) && !devargs.contains(",framecnt=") {
                devargs.push_str(AF_PACKET_FRAMES);
            }
        }
        Ok(Self { device, devargs, pci })
    }

    /// Removes the socket that a memif server left behind when it was killed: the driver does not listen where a
    /// file is.
    pub(super) fn remove_left_over(&self) {
        let has = |argument| self.devargs.split(',').any(|a| a == argument);
        if self.device.starts_with("net_memif")
            && has("role=server")
            && has("socket-abstract=no")
            && let Some(path) = self.devargs.split(',').find_map(|a| a.strip_prefix("socket="))
            // A datagram's socket does not wait for a listener.
            && let Ok(socket) = UnixDatagram::unbound()
            && socket.connect(path).is_err_and(|why| why.kind() == ErrorKind::ConnectionRefused)
            && fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket())
        {
            // What stays is the driver's to name.
            let _ = fs::remove_file(path);
        }
    }
}

/// `[domain:]bus:device.function`, in hexadecimal.
fn is_pci_address(name: &str) -> bool {
    let hex = |s: &str, max: usize| {
        (1..=max).contains(&s.len()) && s.bytes().all(|b| b.is_ascii_hexdigit())
    };
    let mut parts = name.rsplit(':');
    let (Some(slot), Some(bus)) = (parts.next(), parts.next()) else { return false };
    let Some((device, function)) = slot.split_once('.') else { return false };
    let domain = parts.next().is_none_or(|d| hex(d, 8));
    hex(device, 2) && hex(function, 1) && hex(bus, 2) && domain && parts.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_are_completed() {
        let s = Spec::parse("81:00.0,mprq_en=1").unwrap();
        assert_eq!(s.device, "0000:81:00.0");
        assert_eq!(s.devargs, "0000:81:00.0,mprq_en=1");
        assert!(s.pci);
        assert!(Spec::parse("0001:Af:1f.7").unwrap().pci);
        assert_eq!(Spec::parse("0001:Af:1f.7").unwrap().device, "0001:af:1f.7");
    }

    #[test]
    fn virtual_devices_keep_their_arguments() {
        let s = Spec::parse("net_tap0,iface=gn0,mac=02:00:00:00:00:01").unwrap();
        assert_eq!(s.device, "net_tap0");
        assert_eq!(s.devargs, "net_tap0,iface=gn0,mac=02:00:00:00:00:01");
        assert!(!s.pci);
    }

    #[test]
    fn af_packet_rings_hold_frames_that_fit_a_slot() {
        let devargs = |s: &str| Spec::parse(s).unwrap().devargs;
        assert_eq!(
            devargs("net_af_packet0,iface=v"),
            "net_af_packet0,iface=v,blocksz=61440,framesz=1920"
        );
        for set in [
            "net_af_packet0,iface=v,framesz=1024",
            "net_af_packet0,iface=v,qpairs=2,framesz=1024,blocksz=4096",
        ] {
            assert_eq!(devargs(set), set);
        }
        let ring = "blocksz=61440,framesz=1920";
        for (set, frames) in [
            ("qpairs=1", ""),
            ("qpairs=2", ",framecnt=4096"),
            ("qpairs=16,qdisc_bypass=1", ",framecnt=4096"),
            ("qpairs=2,framecnt=1024", ""),
        ] {
            let set = format!("net_af_packet0,iface=v,{set}");
            assert_eq!(devargs(&set), format!("{set},{ring}{frames}"));
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for spec in ["", ",iface=x", "81:00", "0000:81:00.0 ", "net tap0", "net_tap0,a=\0", "??"] {
            assert!(matches!(Spec::parse(spec), Err(DpdkError::BadSpec { .. })), "{spec}");
        }
        assert!(Spec::parse("net_memif0,zero-copy=yes").is_err());
        assert!(Spec::parse("net_af_packet0,iface=v,framesz=2048").is_err());
        assert!(Spec::parse("net_af_packet0,iface=v,framesz=1952,blocksz=62464").is_ok());
    }
}
