//! A kernel TAP device: the far end of the exception path. What a worker punts is written here and
//! so enters the Linux stack; what Linux answers is read here and leaves by the NIC.
//!
//! The device gets the NIC port's own Ethernet and IP addresses, so that TCP is answered on the
//! address that UDP is served on. It appears with [`Tap::open`] and vanishes with the value. No
//! offload is requested, so that the kernel hands over whole frames of at most the MTU with
//! every checksum filled in. IPv6 duplicate address detection is off: the addresses are known
//! to be ours, and can be bound at once (Linux adds its routes to them some milliseconds later).
//!
//! Belongs to one thread. Fails at start-up ([`TapError`]); afterwards a read or a write may
//! fail if an administrator takes the device down or away, and the frame is the caller's to count and drop.
//!
//! Linux drops what comes from a source that it would not route back by the same device when
//! `rp_filter` is 1: clients beyond the local subnet need a route by the device, or the loose
//! mode, 2.
#![allow(unsafe_code)]

use crate::frame::{Frame, RxChecksum, TxOffload};
use crate::port::MacAddr;
use crate::ports::netlink::{Netlink, address, link_up, set_mac};
use crate::ports::wait::until_readable;
use crate::slots::FRAME_MAX_BYTES;
use nix::errno::Errno;
use nix::net::if_::if_nametoindex;
use std::ffi::c_char;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

/// Longest MTU: a slot holds the packet behind an Ethernet header with a VLAN tag.
const MTU_MAX: u16 = {
    let max = FRAME_MAX_BYTES - 18;
    assert!(max <= u16::MAX as usize);
    #[expect(clippy::cast_possible_truncation, reason = "checked above")]
    {
        max as u16
    }
};

/// The device to make.
#[derive(Debug, Clone)]
pub struct TapConfig {
    /// Interface name, 1 to 15 bytes; `%d` in it is a number of the kernel's choice.
    pub name: String,
    /// Its Ethernet address.
    pub mac: MacAddr,
    /// Longest IP packet.
    pub mtu: u16,
    /// Its addresses and the lengths of their subnets' prefixes, in bits.
    pub addrs: Vec<(IpAddr, u8)>,
}

/// Why the device could not be made.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum TapError {
    #[error("/dev/net/tun: {0}; load the driver (`modprobe tun`) or give the container the device")]
    NoDriver(io::Error),
    #[error(
        "no permission to make TAP device {0}; grant CAP_NET_ADMIN, or make the device for this \
         user beforehand (`ip tuntap add {0} mode tap user ...`) and grant the rest"
    )]
    Permission(String),
    #[error(
        "interface {0} exists and is in use; choose another name for the TAP device (--side-door tap=NAME)"
    )]
    InUse(String),
    #[error(
        "{0:?} cannot name a TAP device; give 1 to 15 letters or digits that no other interface has"
    )]
    Name(String),
    #[error("TAP device {name}: MTU {mtu} is too long for a packet slot; give at most {MTU_MAX}")]
    Mtu { name: String, mtu: u16 },
    #[error("TAP device {name}: cannot set {what}: {source}")]
    Setup { name: String, what: String, source: io::Error },
}

/// Whether an error of a device's says that it was removed. Linux answers for a file
/// without a device; one that is merely down is another error.
pub fn is_gone(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EBADFD)
}

/// An open TAP device.
#[derive(Debug)]
pub struct Tap {
    device: File,
    /// With the name that it got.
    config: TapConfig,
    /// Its Ethernet address is another one, cannot be set back, and the log says so.
    mac_refused: bool,
}

impl Tap {
    /// Makes the device, sets its addresses and MTU, and brings it up.
    ///
    /// # Errors
    /// [`TapError`]: no driver, no permission, a bad or used name, an MTU too long, or a step
    /// that the kernel refused. Nothing is left behind.
    pub fn open(config: &TapConfig) -> Result<Self, TapError> {
        if config.mtu > MTU_MAX {
            return Err(TapError::Mtu { name: config.name.clone(), mtu: config.mtu });
        }
        let device = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open("/dev/net/tun")
            .map_err(|e| match e.kind() {
                ErrorKind::PermissionDenied => TapError::Permission(config.name.clone()),
                _ => TapError::NoDriver(e),
            })?;
        let name = attach(&device, &config.name)?;
        let fail = |what: String| {
            let name = name.clone();
            move |source| TapError::Setup { name, what, source }
        };

        let index =
            if_nametoindex(name.as_str()).map_err(|e| fail("anything".to_owned())(e.into()))?;
        let netlink = Netlink::open().map_err(fail("anything (netlink)".to_owned()))?;
        // Before udev hears of the device, which gives one an address that has none but the kernel's.
        netlink
            .request(&set_mac(index, config.mac))
            .map_err(fail(format!("address {}", config.mac)))?;
        // Where the kernel has IPv6 switched off there is nothing to switch off, and an IPv6
        // address is refused below.
        let detection = format!("/proc/sys/net/ipv6/conf/{name}/accept_dad");
        // Neither made nor cut: a sandbox may allow no more than writing.
        let detection = OpenOptions::new().write(true).open(detection);
        match detection.and_then(|mut file| file.write_all(b"0")) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                return Err(fail("IPv6 duplicate address detection off".to_owned())(e));
            }
            _ => {}
        }
        netlink
            .request(&link_up(index, config.mtu))
            .map_err(fail(format!("MTU {} and up", config.mtu)))?;
        for &(ip, prefix_bits) in &config.addrs {
            netlink
                .request(&address(index, ip, prefix_bits))
                .map_err(fail(format!("address {ip}/{prefix_bits}")))?;
        }
        Ok(Self { device, config: TapConfig { name, ..config.clone() }, mac_refused: false })
    }

    /// Makes the device anew after it was removed.
    ///
    /// # Errors
    /// As [`Tap::open`].
    pub fn reopen(&mut self) -> Result<(), TapError> {
        *self = Self::open(&self.config)?;
        Ok(())
    }

    /// Gives the device its Ethernet address back, if it was changed: udev may have been
    /// about to when it was set. With another one Linux takes what is written for others' frames.
    /// True if that was so; the log says it, too, and says once when it may not be set back: that takes
    /// CAP_NET_ADMIN.
    ///
    /// # Errors
    /// The kernel's.
    pub fn keep_mac(&mut self) -> io::Result<bool> {
        let (name, mac) = (&self.config.name, self.config.mac);
        let index = if_nametoindex(name.as_str())?;
        if Netlink::open()?.mac_of(index)? == mac {
            self.mac_refused = false;
            return Ok(false);
        }
        let set = Netlink::open()?.request(&set_mac(index, mac));
        match &set {
            Ok(()) => {
                tracing::warn!(device = name, "its Ethernet address was changed, and is set back")
            }
            Err(error) if !self.mac_refused => tracing::error!(
                device = name,
                "its Ethernet address was changed and cannot be set back ({error}): the kernel answers nothing \
                 that comes by it, TCP among it; as root: ip link set dev {name} address {mac}"
            ),
            Err(_) => {}
        }
        self.mac_refused = set.is_err();
        set.map(|()| true)
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.config.name
    }

    /// Reads the next frame that Linux sends into `frame`, replacing what it held. `false`, and
    /// an empty frame, when none waits. Never blocks.
    ///
    /// # Errors
    /// The kernel's; `frame` is empty.
    pub fn read(&mut self, frame: &mut Frame) -> io::Result<bool> {
        frame.rx = RxChecksum::default();
        frame.tx = TxOffload::default();
        let widened = frame.set_len(frame.room());
        debug_assert!(widened.is_ok(), "a frame may fill its room");
        let result = loop {
            match self.device.read(frame.bytes_mut()) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                other => break other,
            }
        };
        let shrunk = frame.set_len(*result.as_ref().unwrap_or(&0));
        debug_assert!(shrunk.is_ok(), "no more is read than there is room");
        match result {
            Ok(n) => Ok(n > 0),
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Hands one whole Ethernet frame, without its checksum trailer, to Linux. Never blocks.
    ///
    /// # Errors
    /// The kernel's: the frame is too short for its headers, the device is down, or its buffer
    /// is full (`WouldBlock`). The frame is not taken.
    pub fn write(&mut self, frame: &[u8]) -> io::Result<()> {
        self.device.write(frame).map(|_| ())
    }

    /// Sleeps until Linux has sent a frame, or the other descriptor is readable, at most `at_most`.
    pub fn wait(&self, or: Option<BorrowedFd<'_>>, at_most: Duration) {
        until_readable([self.device.as_fd()].into_iter().chain(or), at_most);
    }
}

/// Makes the interface, attached to `device`, and says what it is called.
fn attach(device: &File, name: &str) -> Result<String, TapError> {
    let bad_name = || TapError::Name(name.to_owned());
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains(['/', '\0', ' ', ':']) {
        return Err(bad_name());
    }
    let mut ifr_name: [c_char; libc::IFNAMSIZ] = [0; libc::IFNAMSIZ];
    for (to, from) in ifr_name.iter_mut().zip(name.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    let flags = i16::try_from(libc::IFF_TAP | libc::IFF_NO_PI).map_err(|_| bad_name())?;
    let mut request =
        libc::ifreq { ifr_name, ifr_ifru: libc::__c_anonymous_ifr_ifru { ifru_flags: flags } };
    // SAFETY: TUNSETIFF reads and writes one `ifreq`, which `request` is.
    let rc = unsafe { libc::ioctl(device.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if rc < 0 {
        return Err(match Errno::last() {
            Errno::EPERM | Errno::EACCES => TapError::Permission(name.to_owned()),
            Errno::EBUSY | Errno::EEXIST => TapError::InUse(name.to_owned()),
            Errno::EINVAL => bad_name(),
            e => TapError::Setup {
                name: name.to_owned(),
                what: "the device's name".to_owned(),
                source: e.into(),
            },
        });
    }
    let given: Vec<u8> =
        request.ifr_name.iter().map_while(|&c| (c != 0).then(|| c.to_ne_bytes()[0])).collect();
    String::from_utf8(given).map_err(|_| bad_name())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::ports::netlink::Message;
    use crate::{Pages, Region};
    use nix::sched::{CloneFlags, unshare};
    use std::net::{TcpListener, UdpSocket};
    use std::time::Instant;

    const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 0x10]);
    const PEER: [u8; 6] = [2, 0, 0, 0, 0, 0x20];
    const PATIENCE: Duration = Duration::from_secs(10);

    pub(crate) fn config(name: &str) -> TapConfig {
        TapConfig {
            name: name.to_owned(),
            mac: MAC,
            mtu: 1400,
            addrs: vec![
                ("10.9.0.1".parse().unwrap(), 24),
                ("10.8.0.1".parse().unwrap(), 16),
                ("fd00:9::1".parse().unwrap(), 64),
            ],
        }
    }

    /// Runs `test` on a thread in a network namespace of its own, where TAP devices can be had.
    pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
        if !std::path::Path::new("/dev/net/tun").exists() {
            println!("skipped: there is no /dev/net/tun");
            return;
        }
        let thread = std::thread::spawn(|| {
            if let Err(Errno::EPERM) = unshare(CloneFlags::CLONE_NEWNET) {
                println!("skipped: not allowed to make a network namespace");
                return;
            }
            // Loopback, by which a machine reaches its own addresses.
            let up = libc::IFF_UP.to_ne_bytes();
            let body: [&[u8]; 4] = [&[0; 4], &1_u32.to_ne_bytes(), &up, &up];
            let message = Message::new(libc::RTM_NEWLINK, 0, &body).done();
            Netlink::open().unwrap().request(&message).unwrap();
            test();
        });
        if let Err(panic) = thread.join() {
            std::panic::resume_unwind(panic);
        }
    }

    /// Reads frames until one is for the caller.
    fn read_until(tap: &mut Tap, frame: &mut Frame, wanted: impl Fn(&[u8]) -> bool) {
        let end = Instant::now() + PATIENCE;
        loop {
            while tap.read(frame).unwrap() {
                if wanted(frame.bytes()) {
                    return;
                }
            }
            assert!(Instant::now() < end, "the frame did not come");
            tap.wait(None, Duration::from_millis(100));
        }
    }

    /// ARP for IPv4 over Ethernet (RFC 826), from the peer at 10.9.0.2.
    pub(crate) fn arp(operation: u8, to: [u8; 6]) -> Vec<u8> {
        let fixed: [u8; 10] = [8, 6, 0, 1, 8, 0, 6, 4, 0, operation];
        [&to[..], &PEER, &fixed, &PEER, &[10, 9, 0, 2], &to, &[10, 9, 0, 1]].concat()
    }

    /// One's-complement sum; 0xffff over data that carry a right checksum.
    fn sum(parts: &[&[u8]]) -> u16 {
        let bytes = parts.concat();
        let total: u32 = bytes
            .chunks(2)
            .map(|c| u32::from(c[0]) << 8 | c.get(1).copied().map_or(0, u32::from))
            .sum();
        let folded = (total & 0xffff) + (total >> 16);
        u16::try_from((folded & 0xffff) + (folded >> 16)).unwrap()
    }

    /// Checks both checksums of an IPv4 frame without options.
    fn assert_checksums(frame: &[u8]) {
        let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
        let (ip, l4) = frame[14..14 + total].split_at(20);
        assert_eq!(sum(&[ip]), 0xffff, "IPv4 header");
        let len = u16::try_from(l4.len()).unwrap().to_be_bytes();
        assert_eq!(sum(&[&ip[12..20], &[0, ip[9]], &len, l4]), 0xffff, "protocol {}", ip[9]);
    }

    #[test]
    fn addresses_work_at_once_and_arp_answers_with_ours() {
        in_namespace(|| {
            let region = Region::new(4, Pages::Small).unwrap();
            let mut tap = Tap::open(&config("gn%d")).unwrap();
            assert_eq!(tap.name(), "gn0");
            // A tentative address could not be bound.
            for ip in ["10.9.0.1", "10.8.0.1", "fd00:9::1"] {
                UdpSocket::bind((ip, 0)).unwrap();
            }
            let dad = std::fs::read_to_string("/proc/sys/net/ipv6/conf/gn0/accept_dad").unwrap();
            assert_eq!(dad.trim(), "0");

            let mut frame = region.alloc().unwrap();
            tap.write(&arp(1, [0xff; 6])).unwrap();
            read_until(&mut tap, &mut frame, |f| f[12..14] == [8, 6] && f[21] == 2);
            assert_eq!(frame.bytes()[0..6], PEER);
            assert_eq!(frame.bytes()[6..12], MAC.0);
            assert_eq!(frame.bytes()[22..28], MAC.0);
            assert_eq!(frame.bytes()[28..32], [10, 9, 0, 1]);
            drop(frame);
            assert_eq!(region.available(), region.capacity());
            drop(tap);
            UdpSocket::bind("10.9.0.1:0").unwrap_err();
        });
    }

    #[test]
    fn linux_answers_tcp_with_whole_checksums() {
        in_namespace(|| {
            let region = Region::new(4, Pages::Small).unwrap();
            let mut tap = Tap::open(&config("gn%d")).unwrap();
            let listener = TcpListener::bind("10.9.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port().to_be_bytes();
            tap.write(&arp(2, MAC.0)).unwrap();
            tap.write(&arp(1, [0xff; 6])).unwrap();

            let mut ip = [0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0, 10, 9, 0, 2, 10, 9, 0, 1];
            let check = !sum(&[&ip]);
            ip[10..12].copy_from_slice(&check.to_be_bytes());
            // Port 40000, sequence number 1, SYN, window 1024.
            let mut tcp = [0; 20];
            tcp[0..2].copy_from_slice(&40_000_u16.to_be_bytes());
            tcp[2..4].copy_from_slice(&port);
            tcp[7] = 1;
            tcp[12..16].copy_from_slice(&[0x50, 0x02, 4, 0]);
            let check = !sum(&[&ip[12..20], &[0, 6, 0, 20], &tcp]);
            tcp[16..18].copy_from_slice(&check.to_be_bytes());
            tap.write(&[&MAC.0[..], &PEER, &[8, 0], &ip, &tcp].concat()).unwrap();

            let mut frame = region.alloc().unwrap();
            read_until(&mut tap, &mut frame, |f| f[12..14] == [8, 0] && f[23] == 6);
            let f = frame.bytes();
            assert_eq!(f[0..6], PEER);
            assert_eq!(f[47] & 0x12, 0x12, "SYN and ACK");
            assert_eq!(f[42..46], [0, 0, 0, 2]);
            assert_checksums(f);
        });
    }

    #[test]
    fn frames_are_cut_to_the_mtu_by_linux_and_checksums_are_whole() {
        in_namespace(|| {
            let region = Region::new(4, Pages::Small).unwrap();
            let mut tap = Tap::open(&config("gn%d")).unwrap();
            let socket = UdpSocket::bind("10.9.0.1:0").unwrap();
            socket.send_to(&[7; 1372], "10.9.0.2:9").unwrap();
            let mut frame = region.alloc().unwrap();
            read_until(&mut tap, &mut frame, |f| f[12..14] == [8, 6]);
            tap.write(&arp(2, MAC.0)).unwrap();
            read_until(&mut tap, &mut frame, |f| f[12..14] == [8, 0]);
            assert_eq!(frame.len(), 14 + 1400);
            assert_checksums(frame.bytes());
            socket.send_to(&[7; 1373], "10.9.0.2:9").unwrap();
            read_until(&mut tap, &mut frame, |f| f[12..14] == [8, 0]);
            assert_eq!(frame.bytes()[20] & 0x20, 0x20, "more fragments");
            assert!(frame.len() <= 14 + 1400);
        });
    }

    #[test]
    fn nothing_waiting_is_not_an_error_and_waiting_is_bounded() {
        in_namespace(|| {
            let region = Region::new(4, Pages::Small).unwrap();
            let mut no_ipv6 = config("gn%d");
            no_ipv6.addrs.pop();
            let mut tap = Tap::open(&no_ipv6).unwrap();
            let mut frame = region.alloc().unwrap();
            let end = Instant::now() + PATIENCE;
            // The kernel's own chatter of a device that came up.
            while tap.read(&mut frame).unwrap() {
                assert!(Instant::now() < end);
            }
            assert!(frame.is_empty());
            let start = Instant::now();
            tap.wait(None, Duration::from_millis(10));
            assert!(start.elapsed() < PATIENCE);
            assert!(tap.write(&[0; 5]).is_err(), "shorter than its headers");
        });
    }

    #[test]
    fn a_device_that_was_removed_is_told_from_one_that_is_down_and_made_anew() {
        in_namespace(|| {
            let region = Region::new(4, Pages::Small).unwrap();
            let mut tap = Tap::open(&config("gn%d")).unwrap();
            // Not by `ip`: a child would hold other tests' devices for a moment.
            let link = |kind: u16, change: i32| {
                let index = if_nametoindex("gn0").unwrap().to_ne_bytes();
                let body: [&[u8]; 4] = [&[0; 4], &index, &[0; 4], &change.to_ne_bytes()];
                Netlink::open().unwrap().request(&Message::new(kind, 0, &body).done()).unwrap();
            };
            link(libc::RTM_NEWLINK, libc::IFF_UP);
            let down = tap.write(&arp(1, [0xff; 6])).unwrap_err();
            assert!(!is_gone(&down), "{down}");
            link(libc::RTM_DELLINK, 0);
            let mut frame = region.alloc().unwrap();
            assert!(is_gone(&tap.read(&mut frame).unwrap_err()));
            assert!(is_gone(&tap.write(&arp(1, [0xff; 6])).unwrap_err()));
            assert!(frame.is_empty());
            tap.reopen().unwrap();
            assert_eq!(tap.name(), "gn0");
            UdpSocket::bind(("10.9.0.1", 0)).unwrap();
            tap.write(&arp(1, [0xff; 6])).unwrap();
            read_until(&mut tap, &mut frame, |f| f[12..14] == [8, 6] && f[21] == 2);
        });
    }

    #[test]
    fn its_address_stays_its_own() {
        in_namespace(|| {
            let mut tap = Tap::open(&config("gn%d")).unwrap();
            let index = if_nametoindex(tap.name()).unwrap();
            let mac = || Netlink::open().unwrap().mac_of(index).unwrap();
            assert_eq!((mac(), tap.keep_mac().unwrap()), (MAC, false));
            let other = MacAddr([2, 0, 0, 0, 0, 0x77]);
            Netlink::open().unwrap().request(&set_mac(index, other)).unwrap();
            assert_eq!((mac(), tap.keep_mac().unwrap()), (other, true));
            assert_eq!(mac(), MAC);
        });
    }

    #[test]
    fn who_may_not_set_its_address_back_says_so_once() {
        in_namespace(|| {
            let mut tap = Tap::open(&config("gn%d")).unwrap();
            let index = if_nametoindex(tap.name()).unwrap();
            let root = Netlink::open().unwrap();
            root.request(&set_mac(index, MacAddr([2, 0, 0, 0, 0, 0x77]))).unwrap();
            // SAFETY: three numbers; the call itself, other than libc's, is about this thread alone.
            let rc = unsafe { libc::syscall(libc::SYS_setresuid, 65534, 65534, 65534) };
            assert_eq!((rc, tap.mac_refused), (0, false));
            for _ in 0..2 {
                let refused = tap.keep_mac().unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(libc::EPERM));
                assert!(tap.mac_refused);
            }
        });
    }

    #[test]
    fn refusals_say_why() {
        in_namespace(|| {
            let open = |change: &dyn Fn(&mut TapConfig)| {
                let mut c = config("gn%d");
                change(&mut c);
                Tap::open(&c)
            };
            let long = open(&|c| c.mtu = MTU_MAX + 1).unwrap_err();
            assert!(matches!(long, TapError::Mtu { .. }), "{long}");
            for name in ["", "a/b", "sixteen-bytes-xy", "nul\0"] {
                let e = open(&|c| c.name = name.to_owned()).unwrap_err();
                assert!(matches!(e, TapError::Name(_)), "{e}");
            }
            let first = open(&|c| c.name = "gn0".to_owned()).unwrap();
            let e = open(&|c| c.name = first.name().to_owned()).unwrap_err();
            assert!(matches!(e, TapError::InUse(_)), "{e}");
            let e = open(&|c| c.name = "lo".to_owned()).unwrap_err();
            assert!(matches!(e, TapError::Name(_) | TapError::InUse(_)), "{e}");
            let e = open(&|c| c.addrs[0].1 = 33).unwrap_err();
            assert!(e.to_string().contains("10.9.0.1/33"), "{e}");
            let e = open(&|c| c.mac = MacAddr([1, 0, 0, 0, 0, 0])).unwrap_err();
            assert!(e.to_string().contains("01:00:00:00:00:00"), "{e}");
        });
    }
}
