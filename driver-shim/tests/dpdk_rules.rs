//! The rules of an isolated port, byte for byte: a driver that isolates, faked in place of DPDK's functions
//! for flow rules, over `net_null` with two queues.
#![cfg(feature = "dpdk")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests")]
#![allow(unsafe_code)]

mod dpdk_common;
use dpdk_common::*;
use driver_shim::ports::dpdk::{DpdkPort, Isolation, PortConfig, Service};
use std::ffi::{c_int, c_void};
use std::slice::from_raw_parts;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// `rte_flow_item`.
#[repr(C)]
struct Item {
    kind: c_int,
    spec: *const u8,
    last: *const u8,
    mask: *const u8,
}

/// `rte_flow_action`.
#[repr(C)]
struct Action {
    kind: c_int,
    conf: *const Rss,
}

/// `rte_flow_action_rss`.
#[repr(C)]
struct Rss {
    func: c_int,
    level: u32,
    types: u64,
    key_len: u32,
    queue_num: u32,
    key: *const u8,
    queue: *const u16,
}

/// `RTE_FLOW_ITEM_TYPE_*`.
const END: c_int = 0;
const ETH: c_int = 6;
const VLAN: c_int = 7;
const IPV4: c_int = 8;
const IPV6: c_int = 9;
const UDP: c_int = 11;
const TCP: c_int = 12;
/// How long their headers are.
const BYTES: [(c_int, usize); 5] = [(ETH, 14), (IPV4, 20), (IPV6, 40), (UDP, 8), (TCP, 20)];
/// `RTE_FLOW_ACTION_TYPE_RSS`.
const RSS: c_int = 9;

/// A rule: each item with the bytes that its mask fixes, and where they stand in the header.
type Pattern = Vec<(c_int, Vec<(usize, u8)>)>;
static RULES: Mutex<Vec<Pattern>> = Mutex::new(Vec::new());

#[unsafe(no_mangle)]
extern "C" fn rte_flow_isolate(_port: u16, set: c_int, _error: *mut c_void) -> c_int {
    set - 1
}

/// An item, of which there are so many.
fn nth<'a>(items: *const Item, n: usize) -> &'a Item {
    // SAFETY: the callers stop at END, which ends them.
    unsafe { &*items.wrapping_add(n) }
}

/// What lies behind the pointer.
fn bytes<'a, T>(at: *const T, n: usize) -> &'a [T] {
    // SAFETY: the shim's structures have as much there, and live during the call.
    unsafe { from_raw_parts(at, n) }
}

/// Takes every rule, but for those with a VLAN tag when that is switched off.
#[unsafe(no_mangle)]
extern "C" fn rte_flow_validate(
    _port: u16,
    _attr: *const c_void,
    items: *const Item,
    _actions: *const Action,
    _error: *mut c_void,
) -> c_int {
    if nth(items, 1).kind == VLAN && NO_TAGS.load(Ordering::Relaxed) { -libc::ENOTSUP } else { 0 }
}
static NO_TAGS: AtomicBool = AtomicBool::new(false);

/// Records the rule. Gives an address that is none, and is not looked at.
#[unsafe(no_mangle)]
extern "C" fn rte_flow_create(
    _port: u16,
    _attr: *const c_void,
    items: *const Item,
    actions: *const Action,
    _error: *mut c_void,
) -> *const c_void {
    let mut pattern = Pattern::new();
    for n in 0.. {
        let item = nth(items, n);
        if item.kind == END {
            break;
        }
        assert!(item.last.is_null());
        let len = BYTES.iter().find(|(kind, _)| *kind == item.kind).map(|(_, len)| *len);
        let fixed = len.map_or_else(Vec::new, |len| {
            let (spec, mask) = (bytes(item.spec, len), bytes(item.mask, len));
            assert!(mask.iter().all(|byte| [0, 0xff].contains(byte)));
            spec.iter().copied().enumerate().filter(|(at, _)| mask[*at] == 0xff).collect()
        });
        pattern.push((item.kind, fixed));
    }
    // SAFETY: there is one.
    let action = unsafe { &*actions };
    assert_eq!(action.kind, RSS);
    // SAFETY: that is what its kind says.
    let rss = unsafe { &*action.conf };
    let queues = bytes(rss.queue, rss.queue_num as usize);
    assert_eq!((queues, rss.key_len, rss.func), (&[0, 1][..], 40, 0));
    let key = bytes(rss.key, rss.key_len as usize);
    assert!(key.iter().any(|byte| *byte != 0), "a random key");
    assert_ne!(rss.types, 0);
    RULES.lock().unwrap().push(pattern);
    actions.cast()
}

/// Bytes that stand at `from` and behind.
fn at(from: usize, bytes: &[u8]) -> Vec<(usize, u8)> {
    (from..).zip(bytes.iter().copied()).collect()
}

#[test]
fn rules() {
    let eal = eal();
    let region = small_region(&eal);
    let v4 = |port, tcp| Service { ip: [10, 78, 0, 2].into(), port, tcp };
    let v6 = |port, tcp| Service { ip: "fd78::2".parse().unwrap(), port, tcp };
    let services = vec![v4(11211, false), v4(11211, true), v6(4791, false), v6(11212, true)];
    let isolation = Some(Isolation { services, required: true });
    let config = PortConfig { queues: 2, isolation, ..config("net_null0") };
    let port = DpdkPort::open(&eal, &region, &config).unwrap();
    assert!(port.is_isolated() && RULES.lock().unwrap().is_empty(), "before the start");
    let mut port = port.start().unwrap();

    let ours = (ETH, at(0, &port.info.mac.0));
    let v4 = (IPV4, at(16, &[10, 78, 0, 2]));
    let v6 = (IPV6, at(24, &[0xfd, 0x78, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2]));
    let to = |port: u16| at(2, &port.to_be_bytes());
    let wanted: Vec<Pattern> = [
        (&v4, (UDP, to(11211))),
        (&v4, (TCP, to(11211))),
        (&v6, (UDP, to(4791))),
        (&v6, (TCP, to(11212))),
    ]
    .into_iter()
    .flat_map(|(ip, service)| {
        let plain = vec![ours.clone(), ip.clone(), service.clone()];
        let tagged = vec![ours.clone(), (VLAN, Vec::new()), ip.clone(), service];
        [plain, tagged]
    })
    .collect();
    assert_eq!(*RULES.lock().unwrap(), wanted);

    // A device that was reset has forgotten them.
    RULES.lock().unwrap().clear();
    port.control.reset().unwrap();
    assert_eq!(*RULES.lock().unwrap(), wanted);

    // A driver to which those without a tag mean both.
    RULES.lock().unwrap().clear();
    NO_TAGS.store(true, Ordering::Relaxed);
    port.control.reset().unwrap();
    let plain: Vec<Pattern> = wanted.into_iter().filter(|rule| rule.len() == 3).collect();
    assert_eq!(*RULES.lock().unwrap(), plain);
}
