//! GPUs, as far as files show.

use super::{Finding, Host, PciAddress, Want, Wants};
use std::path::Path;

const NVIDIA: u64 = 0x10de;
/// A window of this size or less reaches only a part of the GPU's memory.
const BAR_SMALL_BYTES: u64 = 256 << 20;

pub(super) fn check(host: &Host, wants: &Wants) -> Vec<Finding> {
    const WHAT: &str = "GPU";
    if wants.gpu == Want::No {
        return Vec::new();
    }
    let cards = cards(host);
    if cards.is_empty() {
        return vec![match wants.gpu {
            Want::Must => {
                Finding::fail(WHAT, "none", "--engine auto or cpu; lspci -D lists what there is")
            }
            _ => Finding::pass(WHAT, "none; the CPU looks requests up"),
        }];
    }
    let mut findings = vec![driver(host, wants)];
    for card in &cards {
        findings.extend(placement(host, wants, card));
        findings.extend(window(host, card));
    }
    if host.has("proc/driver/nvidia/version") {
        findings.push(persistence(host));
    }
    findings
}

/// NVIDIA's display and 3D controllers.
fn cards(host: &Host) -> Vec<PciAddress> {
    let devices = host.list("sys/bus/pci/devices").into_iter().map(PciAddress);
    let number = |card: &PciAddress, file: &str| host.number(host.pci(card).join(file));
    devices
        .filter(|card| number(card, "vendor") == Some(NVIDIA))
        .filter(|card| number(card, "class").is_some_and(|class| class >> 16 == 0x03))
        .collect()
}

fn driver(host: &Host, wants: &Wants) -> Finding {
    const WHAT: &str = "GPU driver";
    match host.read("proc/driver/nvidia/version") {
        Some(version) => {
            let line = version.lines().next().unwrap_or_default();
            let number = line.split_whitespace().find(|word| {
                word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.')
            });
            Finding::pass(WHAT, number.unwrap_or(line))
        }
        None => {
            let (found, fix) = ("not loaded", "apt-get install nvidia-driver; modprobe nvidia");
            match wants.gpu {
                Want::Must => Finding::fail(WHAT, found, fix),
                _ => Finding::warn(WHAT, format!("{found}; the CPU looks requests up"), fix),
            }
        }
    }
}

fn placement(host: &Host, wants: &Wants, card: &PciAddress) -> Option<Finding> {
    let what = format!("GPU {card} NUMA node");
    if host.nodes().len() < 2 {
        return None;
    }
    let node = host.node_of(card)?;
    let elsewhere: Vec<String> = wants
        .nics
        .iter()
        .filter(|nic| host.node_of(nic).is_some_and(|n| n != node))
        .map(|nic| format!("NIC {nic} is not"))
        .collect();
    Some(match elsewhere.is_empty() {
        true => Finding::pass(what, node.to_string()),
        false => Finding::warn(
            what,
            format!("{node}; {}", elsewhere.join(", ")),
            "a NIC on the same processor: packets cross between the two otherwise",
        ),
    })
}

/// Base address register 1: the GPU's memory as others on the bus see it.
fn window(host: &Host, card: &PciAddress) -> Option<Finding> {
    let what = format!("GPU {card} BAR 1");
    let table = host.read(Path::new(&host.pci(card)).join("resource"))?;
    let mut fields = table.lines().nth(1)?.split_whitespace();
    let mut next = || u64::from_str_radix(fields.next()?.strip_prefix("0x")?, 16).ok();
    let (first, last) = (next()?, next()?);
    let bytes = last.checked_sub(first)?.checked_add(1)?;
    Some(match bytes <= BAR_SMALL_BYTES {
        false => Finding::pass(what, format!("{} MB", bytes >> 20)),
        true => Finding::warn(
            what,
            format!("{} MB", bytes >> 20),
            "firmware: above 4G decoding and resizable BAR on",
        ),
    })
}

fn persistence(host: &Host) -> Finding {
    const WHAT: &str = "GPU persistence";
    match host.has("run/nvidia-persistenced/socket") {
        true => Finding::pass(WHAT, "kept awake by nvidia-persistenced"),
        false => Finding::warn(
            WHAT,
            "off: an idle GPU forgets its state, and the next start waits for seconds",
            "systemctl enable --now nvidia-persistenced",
        ),
    }
}
