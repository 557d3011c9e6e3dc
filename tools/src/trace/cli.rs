//! The command line of `gnomon-pcapgen`: flags in, a capture file and a summary out.

use super::{Envelope, Format, GenerateError, Summary, Trace, generate};
use crate::workload::{Clients, Popularity, Sizes, Workload};
use clap::Parser;
use driver_shim::MacAddr;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::hash::{BuildHasher, Hasher};
use std::io::{self, BufWriter, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

const FILE_BUFFER_BYTES: usize = 1 << 20;

/// Write a capture file of memcached ASCII requests over UDP.
///
/// Every key and every value is a function of its number, so gnomon-replay can check each value
/// that a server returns from the key alone. The same flags and seed give the same file.
#[derive(Debug, Clone, Parser)]
#[command(name = "gnomon-pcapgen", version)]
pub struct Flags {
    /// File to write.
    #[arg(long, value_name = "FILE")]
    pub out: PathBuf,
    /// Kind of file; without it, .pcapng is pcapng and all else pcap.
    #[arg(long, value_enum)]
    pub format: Option<Format>,
    /// Number of keys.
    #[arg(long, default_value_t = 100_000)]
    pub keys: u64,
    /// Key size in bytes, 1 to 250: 16, 8..64, or a list 16:3,64:1.
    #[arg(long, default_value = "16", value_name = "SIZES")]
    pub key_size: Sizes,
    /// Value size in bytes: 64, 1..1000, or a list 64:9,1000:1.
    #[arg(long, default_value = "64", value_name = "SIZES")]
    pub value_size: Sizes,
    /// Which keys are asked for: uniform, zipf:0.99 or latest.
    #[arg(long, default_value = "uniform")]
    pub popularity: Popularity,
    /// Share of requests that are gets, 0 to 1; the others are sets.
    #[arg(long, default_value_t = 1.0, value_name = "SHARE")]
    pub get_ratio: f64,
    /// Keys per get, all different.
    #[arg(long, default_value_t = 1, value_name = "K")]
    pub multi_get: u32,
    /// Well-formed requests, the preload not counted.
    #[arg(long, default_value_t = 100_000)]
    pub requests: u64,
    /// First a set for every key.
    #[arg(long)]
    pub preload: bool,
    /// Share of frames after the preload that are spoilt on purpose, 0 to 1, every kind of damage
    /// in turn. They are sent besides the requests; the summary counts each kind.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub corrupt: f64,
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
    /// The server's Ethernet address.
    #[arg(long, default_value = "02:00:00:00:00:02", value_parser = parse_mac, value_name = "MAC")]
    pub dst_mac: MacAddr,
    /// Tag frames with this VLAN.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4094), value_name = "ID")]
    pub vlan: Option<u16>,
    /// Packets per second, as the time stamps tell.
    #[arg(long, default_value_t = 1e6, value_name = "PPS")]
    pub rate: f64,
    /// Seed of all draws; a fresh one is drawn, and printed, without it.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Write the summary as JSON, to a file or to standard output (-).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Why the program stops.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// The trace cannot be written.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The file cannot be made.
    #[error("cannot write {path}: {source}; check that the directory exists and is writable")]
    Create {
        /// The file.
        path: PathBuf,
        /// The kernel's refusal.
        source: io::Error,
    },
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

/// A seed that differs from run to run.
pub fn fresh_seed() -> u64 {
    // The standard library keys its hash tables at random; below 2^53 so that every JSON
    // reader keeps it exact.
    std::hash::RandomState::new().build_hasher().finish() >> 11
}

/// Writes `text` to a file, or to standard output when the path is `-`.
///
/// # Errors
/// [`CliError::Create`].
pub fn write_text(path: &Path, text: &str) -> Result<(), CliError> {
    let result = if path == Path::new("-") {
        io::stdout().write_all(text.as_bytes())
    } else {
        std::fs::write(path, text)
    };
    result.map_err(|source| CliError::Create { path: path.to_owned(), source })
}

impl Flags {
    /// What is to be written.
    pub fn trace(&self, seed: u64) -> Trace {
        Trace {
            workload: Workload {
                keys: self.keys,
                key_size: self.key_size.clone(),
                value_size: self.value_size.clone(),
                popularity: self.popularity,
                get_ratio: self.get_ratio,
                multi_get: self.multi_get,
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
                dst_mac: self.dst_mac,
                vlan: self.vlan,
                server: (self.dst, self.dst_port).into(),
            },
            preload: self.preload,
            requests: self.requests,
            corrupt: self.corrupt,
            rate: self.rate,
        }
    }

    /// Writes the file, and the summary where it was asked for.
    ///
    /// # Errors
    /// [`CliError`] says what to do.
    pub fn run(&self) -> Result<(), CliError> {
        let seed = self.seed.unwrap_or_else(fresh_seed);
        let trace = self.trace(seed);
        // Before an older file of that name is lost.
        trace.check()?;
        let file = File::create(&self.out)
            .map_err(|source| CliError::Create { path: self.out.clone(), source })?;
        let format = self.format.unwrap_or_else(|| Format::of(&self.out));
        let total = self.requests.saturating_add(if self.preload { self.keys } else { 0 });
        let bar = ProgressBar::new(total);
        if let Ok(style) =
            ProgressStyle::with_template("{wide_bar} {human_pos} packets, {per_sec}, {eta} left")
        {
            bar.set_style(style);
        }
        let out = BufWriter::with_capacity(FILE_BUFFER_BYTES, file);
        let summary = generate(&trace, format, out, |n| bar.set_position(n));
        bar.finish_and_clear();
        let summary = summary?;
        let json_on_stdout = self.json.as_deref() == Some(Path::new("-"));
        if !json_on_stdout {
            write_text(Path::new("-"), &table(&summary, seed, &self.out))?;
        }
        if let Some(path) = &self.json {
            write_text(path, &format!("{:#}\n", json(&summary, seed)))?;
        }
        Ok(())
    }
}

fn table(s: &Summary, seed: u64, out: &Path) -> String {
    let mut text = format!(
        "wrote     {}\nseed      {seed}\npackets   {}\nbytes     {}\npreload   {}\n\
         gets      {} (asking for {} keys)\nsets      {}\n",
        out.display(),
        s.packets,
        s.bytes,
        s.preload_sets,
        s.gets,
        s.keys_asked,
        s.sets,
    );
    if !s.corrupt.is_empty() {
        text += &format!("corrupt   {}\n", s.corrupt_total());
        for (kind, n) in &s.corrupt {
            text += &format!("  {:<22} {n}\n", kind.name());
        }
    }
    text
}

fn json(s: &Summary, seed: u64) -> serde_json::Value {
    serde_json::json!({
        "seed": seed,
        "packets": s.packets,
        "bytes": s.bytes,
        "preload_sets": s.preload_sets,
        "gets": s.gets,
        "keys_asked": s.keys_asked,
        "sets": s.sets,
        "corrupt": s.corrupt_total(),
        "corrupt_by_kind": s.corrupt.iter().map(|(k, n)| (k.name().to_owned(), (*n).into()))
            .collect::<serde_json::Map<_, _>>(),
    })
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

    #[test]
    fn flags_are_consistent() {
        use clap::CommandFactory;
        Flags::command().debug_assert();
    }
}
