//! Through the exception path to Linux and back, over a TAP device in a network namespace.
#![allow(clippy::unwrap_used, reason = "tests")]

use dataplane::stages::exits::exception_path::{ExceptionPath, RATE_PPS_DEFAULT};
use driver_shim::ports::tap::{Tap, TapConfig};
use driver_shim::{Burst, Frame, MacAddr, Pages, Region};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use scopeguard::defer;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use wire::build::echo_request;

const PEER: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const US: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

#[test]
fn linux_answers_what_is_punted() {
    if !std::path::Path::new("/dev/net/tun").exists() {
        println!("skipped: there is no /dev/net/tun");
        return;
    }
    // A namespace belongs to a thread: this one is the test's own.
    if let Err(Errno::EPERM) = unshare(CloneFlags::CLONE_NEWNET) {
        println!("skipped: not allowed to make a network namespace");
        return;
    }
    let ip = |text: &str| text.parse::<IpAddr>().unwrap();
    let region = Region::new(64, Pages::Small).unwrap();
    let config = TapConfig {
        name: "gnomon%d".to_owned(),
        mac: US,
        mtu: 1500,
        addrs: vec![(ip("10.9.0.2"), 24)],
    };
    let tap = Tap::open(&config).unwrap();
    let path = ExceptionPath::new(tap, RATE_PPS_DEFAULT, region.clone()).unwrap();
    let stop = AtomicBool::new(false);
    let frame = |bytes: &[u8]| -> Frame {
        let mut f = region.alloc().unwrap();
        f.fill(bytes).unwrap();
        f
    };
    std::thread::scope(|s| {
        defer! { stop.store(true, Ordering::Relaxed) }
        s.spawn(|| path.run(&stop));
        let request = echo_request([PEER, US], ip("10.9.0.1"), ip("10.9.0.2"), b"hello");
        path.offer(frame(&request)).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        let mut burst = Burst::new();
        let mut answered = false;
        while !answered && Instant::now() < deadline {
            path.take_outgoing(&mut burst);
            for f in burst.drain(..) {
                let b = f.bytes();
                if b[12..14] == [8, 6] && b[21] == 1 && b[38..42] == [10, 9, 0, 1] {
                    // Linux asks for the peer: it answers.
                    let mut reply = b[..42].to_vec();
                    reply[..6].copy_from_slice(&US.0);
                    reply[6..12].copy_from_slice(&PEER.0);
                    reply[21] = 2;
                    reply[22..28].copy_from_slice(&PEER.0);
                    reply[28..32].copy_from_slice(&[10, 9, 0, 1]);
                    reply[32..38].copy_from_slice(&US.0);
                    reply[38..42].copy_from_slice(&[10, 9, 0, 2]);
                    path.offer(frame(&reply)).unwrap();
                }
                answered |=
                    b[12..14] == [8, 0] && b[23] == 1 && b[34] == 0 && b.ends_with(b"hello");
            }
            std::thread::yield_now();
        }
        assert!(answered, "{path:?}");
    });
    let c = path.counters();
    assert_eq!(c.punted, c.written + c.write_errors);
    assert_eq!(c.read, c.sent_on + c.to_send);
    assert_eq!((c.write_errors, c.read_errors), (0, 0));
    drop(path);
    assert_eq!(region.available(), region.capacity());
}
