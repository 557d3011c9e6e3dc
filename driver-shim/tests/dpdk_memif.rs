//! `net_memif`: two DPDK processes, frames through shared memory. The client is this very test,
//! run again as a second process.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::Region;
use driver_shim::ports::dpdk::{DpdkError, DpdkPort, Eal};
use std::os::unix::net::UnixListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SOCKET: &str = "GNOMON_TEST_MEMIF_SOCKET";
/// The other process is a server that ends while its client is there.
const ENDS: &str = "GNOMON_TEST_MEMIF_ENDS";
const FRAMES: usize = 500;
const ENDINGS: usize = 10;

#[test]
fn memif() {
    let eal = eal();
    let region = small_region(&eal);
    match std::env::var(SOCKET) {
        Ok(socket) if std::env::var_os(ENDS).is_some() => ending_server(&eal, &region, &socket),
        Ok(socket) => client(&eal, &region, &socket),
        Err(_) => {
            let socket =
                std::env::temp_dir().join(format!("gnomon-memif-{}.sock", std::process::id()));
            let at = socket.to_str().unwrap();
            server_ends(&eal, &region, at);
            server(&eal, &region, at);
        }
    }
    assert_eq!(region.available(), region.capacity());
}

/// Its interrupt thread hears of the client's leaving while the port is being closed.
fn server_ends(eal: &Eal, region: &Region, at: &str) {
    for _ in 0..ENDINGS {
        let mut server = this_test(at).env(ENDS, "").spawn().unwrap();
        wait_for("the server's end", || {
            // It may not listen yet, or not be ready for a client: the driver asks once.
            let opened = DpdkPort::open(eal, region, &config(&client_spec(at)));
            let Ok(_port) = opened.and_then(|port| port.start()) else { return false };
            let begun = Instant::now();
            while begun.elapsed() < Duration::from_secs(2) {
                if server.try_wait().unwrap().is_some() {
                    return true;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            false
        });
        let status = server.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

fn ending_server(eal: &Eal, region: &Region, at: &str) {
    let port = start(eal, region, &config(&server_spec(at)));
    wait_for("the client", || port.control.link_up());
}

fn server(eal: &Eal, region: &Region, at: &str) {
    let early = format!("net_memif1,role=client,id=0,socket={at},socket-abstract=no");
    let refused = DpdkPort::open(eal, region, &config(&early)).unwrap().start().unwrap_err();
    assert!(matches!(refused, DpdkError::Setup { step: "start", .. }), "{refused}");

    // One that is in use stays, one that was left behind goes.
    let _ = std::fs::remove_file(at);
    let in_use = UnixListener::bind(at).unwrap();
    let other = server_spec(at).replace("memif0", "memif2");
    assert!(DpdkPort::open(eal, region, &config(&other)).is_err());
    drop(in_use);
    assert!(std::path::Path::new(at).exists());
    let mut port = start(eal, region, &config(&server_spec(at)));
    assert!(!port.control.link_up(), "nobody is at the other end");
    // A client may go and another come.
    for _ in 0..2 {
        let mut client = this_test(at).spawn().unwrap();
        wait_for("the client", || port.control.link_up());
        for _ in 0..FRAMES {
            let mut f = receive(&mut port.queues[0], 1).remove(0);
            f.bytes_mut()[0] ^= 0xff;
            send(&mut port.queues[0], f);
        }
        assert!(client.wait().unwrap().success(), "the client's own assertions");
        wait_for("its leaving", || !port.control.link_up());
    }
}

fn this_test(socket: &str) -> Command {
    let mut test = Command::new(std::env::current_exe().unwrap());
    test.args(["memif", "--exact", "--nocapture"]).env(SOCKET, socket).stdout(Stdio::null());
    test
}

fn client_spec(at: &str) -> String {
    format!("net_memif0,role=client,id=0,socket={at},socket-abstract=no,mac=02:00:00:00:00:02")
}

fn server_spec(at: &str) -> String {
    format!("net_memif0,role=server,id=0,socket={at},socket-abstract=no,mac=02:00:00:00:00:01")
}

fn client(eal: &Eal, region: &Region, socket: &str) {
    let mut port = start(eal, region, &config(&client_spec(socket)));
    wait_for("the server", || port.control.link_up());
    let pair = &mut port.queues[0];
    for seed in 0..FRAMES {
        let len = 60 + seed * 3;
        send(pair, frame(region, seed, len));
        let back = receive(pair, 1).remove(0);
        let mut want = pattern(seed, len);
        want[0] ^= 0xff;
        assert_eq!(back.bytes(), want);
    }
}
