//! Flags that describe traffic, alike in `gnomon-pcapgen` and `gnomon-replay`.

use super::{Envelope, Timing, Trace};
use crate::workload::{Clients, Workload, WorkloadFlags};
use clap::Args;
use driver_shim::MacAddr;
use gnomon_client::codec::Protocol;
use std::hash::{BuildHasher, Hasher};
use std::net::IpAddr;
use std::path::PathBuf;

/// Requests where no number is given.
const REQUESTS_DEFAULT: u64 = 100_000;
/// Packets per second where no number is given.
pub const RATE_DEFAULT: f64 = 1e6;

/// What is asked, by whom, in which headers, and when.
#[derive(Debug, Clone, Args)]
pub struct TraceFlags {
    /// What is asked.
    #[command(flatten)]
    pub workload: WorkloadFlags,
    /// Ask what this trace of a real cache asks: CSV with a header, or in the order of Twitter's
    /// traces; - is standard input. Keys keep their sizes and order and get names of our own;
    /// values are cut to what a packet holds.
    #[arg(long, value_name = "FILE", conflicts_with = "workload")]
    pub trace: Option<PathBuf>,
    /// What requests are written in.
    #[arg(long, value_enum, default_value = "ascii")]
    pub protocol: Protocol,
    /// Well-formed requests [default: 100000, or all of a CSV trace]. A preload is not counted.
    #[arg(long)]
    pub requests: Option<u64>,
    /// Number of clients (pairs of address and port).
    #[arg(long, default_value_t = 64)]
    pub clients: u32,
    /// First client address.
    #[arg(long, default_value = "10.0.0.1", value_name = "IP")]
    pub src: IpAddr,
    /// Client addresses, in a row from --src.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub src_addresses: u32,
    /// First client port.
    #[arg(long, default_value_t = 20_000, value_name = "PORT")]
    pub src_port: u16,
    /// Server address.
    #[arg(long, default_value = "10.0.0.2", value_name = "IP")]
    pub dst: IpAddr,
    /// Server port.
    #[arg(long, default_value_t = 11_211, value_name = "PORT")]
    pub dst_port: u16,
    /// The clients' Ethernet address.
    #[arg(long, default_value = "02:00:00:00:00:01", value_parser = parse_mac, value_name = "MAC")]
    pub src_mac: MacAddr,
    /// Tag frames with this VLAN.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4094), value_name = "ID")]
    pub vlan: Option<u16>,
    /// How packets follow each other at the rate given: constant, poisson, etc (gaps as published
    /// of that pool), bursts:64 (so many at once), or trace (the CSV trace's own times).
    #[arg(long, default_value = "constant")]
    pub timing: Timing,
    /// Seed of all draws; a fresh one is drawn, and reported, without it.
    #[arg(long)]
    pub seed: Option<u64>,
}

impl TraceFlags {
    /// The seed: the one given, or one that differs from run to run.
    pub fn seed(&self) -> u64 {
        // The standard library keys its hash tables at random; below 2^53 so that every JSON
        // reader keeps it exact.
        let fresh = || std::hash::RandomState::new().build_hasher().finish() >> 11;
        self.seed.unwrap_or_else(fresh)
    }

    /// The traffic, at `rate` packets per second to `dst_mac`.
    pub fn trace(&self, seed: u64, rate: f64, dst_mac: MacAddr) -> Trace {
        let all = if self.trace.is_some() { u64::MAX } else { REQUESTS_DEFAULT };
        Trace {
            workload: Workload {
                keys: self.workload.keys,
                mix: self.workload.mix(),
                clients: Clients {
                    count: self.clients,
                    first: self.src,
                    addresses: self.src_addresses,
                    first_port: self.src_port,
                },
                seed,
            },
            envelope: Envelope {
                src_mac: self.src_mac,
                dst_mac,
                vlan: self.vlan,
                server: (self.dst, self.dst_port).into(),
            },
            protocol: self.protocol,
            preload: false,
            requests: self.requests.unwrap_or(all),
            corrupt: 0.0,
            rate,
            timing: self.timing,
            recorded: self.trace.clone(),
        }
        .fitted()
    }
}

/// Reads an Ethernet address such as `02:00:00:00:00:01`.
///
/// # Errors
/// What is wrong with the text.
pub fn parse_mac(text: &str) -> Result<MacAddr, String> {
    let bad = || format!("`{text}` is no Ethernet address such as 02:00:00:00:00:01");
    let mut mac = [0; 6];
    let mut parts = text.split(':');
    for b in &mut mac {
        let part = parts
            .next()
            .filter(|p| p.len() == 2 && p.bytes().all(|b| b.is_ascii_hexdigit()))
            .ok_or_else(bad)?;
        *b = u8::from_str_radix(part, 16).map_err(|_| bad())?;
    }
    if parts.next().is_some() { Err(bad()) } else { Ok(MacAddr(mac)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs() {
        assert_eq!(parse_mac("02:00:00:00:00:aF"), Ok(MacAddr([2, 0, 0, 0, 0, 0xaf])));
        for t in ["", "02:00:00:00:00", "02:00:00:00:00:01:02", "2:0:0:0:0:1", "02:00:00:00:00:+1"]
        {
            assert!(parse_mac(t).is_err(), "{t}");
        }
    }
}
