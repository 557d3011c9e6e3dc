//! Isolated mode, as drivers that are here take it: `net_ring` cannot, and `net_tap` can where the kernel
//! has the classifier `flower`.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::ports::dpdk::{DpdkError, DpdkPort, Isolation, PortConfig, Service};

fn isolated(spec: &str, service: Service, required: bool) -> PortConfig {
    PortConfig { isolation: Some(Isolation { services: vec![service], required }), ..config(spec) }
}

#[test]
fn isolated_mode() {
    let ips = ["10.78.0.2", "fd78::2"].map(|ip| ip.parse().unwrap());
    let services = ips.map(|ip| [false, true].map(|tcp| Service { ip, port: PORT, tcp })).concat();
    let eal = eal();
    let region = small_region(&eal);

    let must = isolated("net_ring0", services[0], true);
    let refused = DpdkPort::open(&eal, &region, &must).unwrap_err();
    assert!(matches!(refused, DpdkError::NoIsolation { .. }), "{refused}");
    let words = refused.to_string();
    assert!(words.starts_with("port net_ring0: net_ring cannot isolate: Function not"), "{words}");
    let may = isolated("net_ring1", services[0], false);
    let port = DpdkPort::open(&eal, &region, &may).unwrap();
    assert!(!port.is_isolated());
    drop(port);

    if !have_tun() {
        return;
    }
    enter_new_netns();
    for (n, service) in services.into_iter().enumerate() {
        let config = isolated(&format!("net_tap{n},iface=gn{n}"), service, true);
        match DpdkPort::open(&eal, &region, &config) {
            Ok(port) => {
                assert!(port.is_isolated());
                drop(port.start().unwrap());
            }
            Err(refused) => {
                let words = refused.to_string();
                assert!(words.contains(": net_tap cannot isolate: "), "{words}");
                println!("{words}");
            }
        }
        assert_eq!(region.available(), region.capacity());
    }
}
