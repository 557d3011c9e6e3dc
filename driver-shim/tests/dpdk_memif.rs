//! `net_memif`: two DPDK processes, frames through shared memory. The client is this very test,
//! run again as a second process.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::Region;
use driver_shim::ports::dpdk::{DpdkError, DpdkPort, Eal};
use std::process::{Command, Stdio};

const SOCKET: &str = "GNOMON_TEST_MEMIF_SOCKET";
const FRAMES: usize = 500;

#[test]
fn memif() {
    let eal = eal();
    let region = small_region(&eal);
    match std::env::var(SOCKET) {
        Ok(socket) => client(&eal, &region, &socket),
        Err(_) => server(&eal, &region),
    }
    assert_eq!(region.available(), region.capacity());
}

fn server(eal: &Eal, region: &Region) {
    let socket = std::env::temp_dir().join(format!("gnomon-memif-{}.sock", std::process::id()));
    let at = socket.to_str().unwrap();
    let early = format!("net_memif1,role=client,id=0,socket={at},socket-abstract=no");
    let refused = DpdkPort::open(eal, region, &config(&early)).unwrap().start().unwrap_err();
    assert!(matches!(refused, DpdkError::Setup { step: "start", .. }), "{refused}");

    let spec =
        format!("net_memif0,role=server,id=0,socket={at},socket-abstract=no,mac=02:00:00:00:00:01");
    let mut port = start(eal, region, &config(&spec));
    assert!(!port.control.link_up(), "nobody is at the other end");
    // A client may go and another come.
    for _ in 0..2 {
        let mut client = Command::new(std::env::current_exe().unwrap())
            .args(["memif", "--exact", "--nocapture"])
            .env(SOCKET, at)
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("the client", || port.control.link_up());
        for _ in 0..FRAMES {
            let mut f = receive(&mut port.queues[0], 1).remove(0);
            f.bytes_mut()[0] ^= 0xff;
            send(&mut port.queues[0], f);
        }
        assert!(client.wait().unwrap().success(), "the client's own assertions");
        wait_for("its leaving", || !port.control.link_up());
    }
    drop(port);
}

fn client(eal: &Eal, region: &Region, socket: &str) {
    let spec = format!(
        "net_memif0,role=client,id=0,socket={socket},socket-abstract=no,mac=02:00:00:00:00:02"
    );
    let mut port = start(eal, region, &config(&spec));
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
