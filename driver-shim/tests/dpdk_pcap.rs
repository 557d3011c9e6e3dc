//! `net_pcap`: frames from one file into another. Also frames that do not fit a slot.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::{Burst, Frame};
use std::path::Path;

const TOO_LONG: usize = 3000;

#[test]
fn pcap() {
    let dir = std::env::temp_dir().join(format!("gnomon-pcap-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let (input, output) = (dir.join("in.pcap"), dir.join("out.pcap"));
    let lengths = [60, 74, 1514, TOO_LONG, 1920, 1921, 61];
    let frames: Vec<Vec<u8>> =
        lengths.iter().enumerate().map(|(seed, &len)| pattern(seed, len)).collect();
    write_pcap(&input, &frames);

    let eal = eal();
    let region = small_region(&eal);
    let spec = format!("net_pcap0,rx_pcap={},tx_pcap={}", input.display(), output.display());
    let mut port = start(&eal, &region, &config(&spec));
    let pair = &mut port.queues[0];

    // With every slot out, nothing can be received, and nothing breaks.
    let all: Vec<Frame> = std::iter::from_fn(|| region.alloc()).collect();
    let mut burst = Burst::new();
    assert_eq!(pair.rx.burst(&mut burst), 0);
    let missing = port.control.counters().rx_no_slot;
    assert!(missing > 0, "{:?}", port.control.counters());
    drop(all);

    // That took one frame from the file.
    let fit: Vec<&Vec<u8>> = frames.iter().skip(1).filter(|f| f.len() <= 1920).collect();
    let got = receive(pair, fit.len());
    for (f, want) in got.iter().zip(&fit) {
        assert_eq!(f.bytes(), want.as_slice());
    }
    for f in got {
        send(pair, f);
    }
    assert_eq!(pair.rx.burst(&mut burst), 0);
    let counters = port.control.counters();
    assert_eq!(counters.rx_errors, 2, "two frames fit no slot: {counters:?}");
    assert_eq!(counters.rx_frames, fit.len() as u64);
    assert_eq!(counters.tx_frames, fit.len() as u64);
    port.control.stop();
    drop(port);
    assert_eq!(region.available(), region.capacity());
    assert!(read_pcap(&output).iter().eq(fit));
    std::fs::remove_dir_all(&dir).unwrap();
}

fn write_pcap(path: &Path, frames: &[Vec<u8>]) {
    let mut file = Vec::new();
    for word in [0xa1b2_c3d4_u32, 0x0004_0002, 0, 0, 65535, 1] {
        file.extend(word.to_ne_bytes());
    }
    for f in frames {
        let len = u32::try_from(f.len()).unwrap();
        for word in [0, 0, len, len] {
            file.extend(word.to_ne_bytes());
        }
        file.extend(f);
    }
    std::fs::write(path, file).unwrap();
}

fn read_pcap(path: &Path) -> Vec<Vec<u8>> {
    let file = std::fs::read(path).unwrap();
    let mut rest = &file[24..];
    let mut frames = Vec::new();
    while !rest.is_empty() {
        let len = u32::from_ne_bytes(rest[8..12].try_into().unwrap()) as usize;
        frames.push(rest[16..16 + len].to_vec());
        rest = &rest[16 + len..];
    }
    frames
}
