//! The command line of `gnomon-pcapgen`: flags in, a capture file and a summary out.

use super::flags::{RATE_DEFAULT, TraceFlags, parse_mac};
use super::{Format, Frames, GenerateError, Summary, Trace};
use crate::output;
use clap::Parser;
use driver_shim::MacAddr;
use indicatif::{ProgressBar, ProgressStyle};
use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

const FILE_BUFFER_BYTES: usize = 1 << 20;

/// Write a capture file of memcached requests over UDP.
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
    /// What is asked, by whom and when.
    #[command(flatten)]
    pub traffic: TraceFlags,
    /// First a set for every key.
    #[arg(long)]
    pub preload: bool,
    /// Share of frames after the preload that are spoilt on purpose, 0 to 1, every kind of damage
    /// in turn. They are sent besides the requests; the summary counts each kind.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub corrupt: f64,
    /// The server's Ethernet address.
    #[arg(long, default_value = "02:00:00:00:00:02", value_parser = parse_mac, value_name = "MAC")]
    pub dst_mac: MacAddr,
    /// Packets per second, as the time stamps show.
    #[arg(long, default_value_t = RATE_DEFAULT, value_name = "PPS")]
    pub rate: f64,
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
    /// The standard output cannot be written.
    #[error(transparent)]
    Output(io::Error),
    /// The file cannot be made.
    #[error("cannot write {path}: {source}; check that the directory exists and is writable")]
    Create {
        /// The file.
        path: PathBuf,
        /// The OS error.
        source: io::Error,
    },
}

/// Writes `text` to a file, or to standard output when the path is `-`.
///
/// # Errors
/// [`CliError::Output`] or [`CliError::Create`].
pub fn write_text(path: &Path, text: &str) -> Result<(), CliError> {
    if path == Path::new("-") {
        return output::print(text.as_bytes()).map_err(CliError::Output);
    }
    std::fs::write(path, text).map_err(|source| CliError::Create { path: path.to_owned(), source })
}

impl Flags {
    /// What is to be written.
    pub fn trace(&self, seed: u64) -> Trace {
        let (preload, corrupt) = (self.preload, self.corrupt);
        Trace { preload, corrupt, ..self.traffic.trace(seed, self.rate, self.dst_mac) }
    }

    /// Writes the file, and the summary where it was asked for.
    ///
    /// # Errors
    /// [`CliError`] says what to do.
    pub fn run(&self) -> Result<(), CliError> {
        let seed = self.traffic.seed();
        let trace = self.trace(seed);
        // Before an older file of that name is lost.
        let frames = Frames::new(&trace)?;
        let file = File::create(&self.out)
            .map_err(|source| CliError::Create { path: self.out.clone(), source })?;
        let format = self.format.unwrap_or_else(|| Format::of(&self.out));
        let preload = if trace.preload { trace.workload.keys } else { 0 };
        let bar = match trace.requests {
            u64::MAX => ProgressBar::new_spinner(),
            requests => ProgressBar::new(requests.saturating_add(preload)),
        };
        if let Ok(style) =
            ProgressStyle::with_template("{wide_bar} {human_pos} packets, {per_sec}, {eta} left")
        {
            bar.set_style(style);
        }
        let out = BufWriter::with_capacity(FILE_BUFFER_BYTES, file);
        let summary = frames.write(format, out, |n| bar.set_position(n));
        bar.finish_and_clear();
        let summary = summary?;
        if let Some(path) = &self.json {
            write_text(path, &format!("{:#}\n", json(&summary, seed)))?;
        }
        match self.json.as_deref() {
            Some(path) if path == Path::new("-") => Ok(()),
            _ => write_text(Path::new("-"), &table(&summary, seed, &self.out)),
        }
    }
}

fn table(s: &Summary, seed: u64, out: &Path) -> String {
    let mut text = format!(
        "wrote     {}\nseed      {seed}\npackets   {}\nbytes     {}\npreload   {}\n\
         gets      {} (asking for {} keys)\nsets      {}\ndeletes   {}\nseconds   {:.3}\n",
        out.display(),
        s.packets,
        s.bytes,
        s.preload_sets,
        s.gets,
        s.keys_asked,
        s.sets,
        s.deletes,
        s.last_ns as f64 / 1e9,
    );
    if s.rows_skipped + s.values_cut > 0 {
        text += &format!("skipped   {} rows, values cut {}\n", s.rows_skipped, s.values_cut);
    }
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
        "deletes": s.deletes,
        "rows_skipped": s.rows_skipped,
        "values_cut": s.values_cut,
        "seconds": s.last_ns as f64 / 1e9,
        "corrupt": s.corrupt_total(),
        "corrupt_by_kind": s.corrupt.iter().map(|(k, n)| (k.name().to_owned(), (*n).into()))
            .collect::<serde_json::Map<_, _>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_consistent() {
        use clap::CommandFactory;
        Flags::command().debug_assert();
    }
}
