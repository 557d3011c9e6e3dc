//! The command line of `gnomon-replay`: flags in, a report and a verdict out.

use super::sockets::Sockets;
use super::{Link, Plan, PlayError, Report, play};
use crate::trace::cli::{CliError, write_text};
use crate::trace::{ReadError, Reader};
use clap::Parser;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Requests on their way in the preload: fewer, because a lost set costs a retry.
const PRELOAD_OUTSTANDING: usize = 64;
/// Times that a set of the preload is sent again.
const PRELOAD_RETRIES: u32 = 5;
/// When a set of the preload is sent again.
const PRELOAD_TIMEOUT: Duration = Duration::from_millis(250);

/// Play a capture of memcached requests at a server, and check every reply.
///
/// Replies are matched to requests by client and request id, put together where they come in
/// several datagrams, and every value is checked against its key, byte by byte. Make captures
/// with gnomon-pcapgen. Exit status: 0 all well, 1 could not run, 2 bad flag, 3 the server gave
/// wrong answers or lost more than allowed.
#[derive(Debug, Clone, Parser)]
#[command(name = "gnomon-replay", version)]
#[command(group = clap::ArgGroup::new("way").required(true))]
pub struct Flags {
    /// Capture to play: pcap or pcapng.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Play through kernel UDP sockets at this server.
    #[arg(long, value_name = "ADDR:PORT", group = "way")]
    pub target: Option<SocketAddr>,
    /// Play through this DPDK port, frames as they are in the capture: a PCI address, or a
    /// virtual device such as net_tap0,iface=gn0.
    #[cfg(feature = "dpdk")]
    #[arg(long, value_name = "SPEC", group = "way")]
    pub port: Option<String>,
    /// Send frames to this Ethernet address instead of the one in the capture.
    #[cfg(feature = "dpdk")]
    #[arg(long, value_name = "MAC", requires = "port", value_parser = crate::trace::cli::parse_mac)]
    pub dst_mac: Option<driver_shim::MacAddr>,
    /// Kernel sockets to spread the clients over.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    pub sockets: u16,
    /// First play this capture of sets, slowly, and require each to be stored.
    #[arg(long, value_name = "FILE")]
    pub preload: Option<PathBuf>,
    /// Packets per second; flat out without it. Latency counts from when a request was due.
    #[arg(long, value_name = "PPS", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Most requests on their way at once.
    #[arg(long, default_value_t = 1024, value_parser = clap::value_parser!(u32).range(1..=1 << 20), value_name = "N")]
    pub outstanding: u32,
    /// Stop after so many packets.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Times to play the file.
    #[arg(long = "loop", default_value_t = 1, value_name = "N")]
    pub loops: u64,
    /// Milliseconds after which a request counts as lost.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..), value_name = "MS")]
    pub timeout_ms: u32,
    /// Count a miss as a wrong answer.
    #[arg(long)]
    pub expect_hits: bool,
    /// Fail when more than this share of requests is lost, 0 to 1.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub max_lost: Option<f64>,
    /// Write the report as JSON, to a file or to standard output (-).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Why the program stops.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A capture cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Playing broke off.
    #[error(transparent)]
    Play(#[from] PlayError),
    /// The report cannot be written.
    #[error(transparent)]
    Cli(#[from] CliError),
    /// No such port.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Port(#[from] driver_shim::ports::dpdk::DpdkError),
    /// No sockets.
    #[error("cannot open sockets to {target}: {source}; check the address and the route to it")]
    Sockets {
        /// The server.
        target: SocketAddr,
        /// The kernel's refusal.
        source: io::Error,
    },
    /// No server was named.
    #[error("say where to play to: --target ADDR:PORT")]
    NoWay,
    /// The preload did not succeed.
    #[error(
        "preload: {stored} of {sent} sets were stored ({lost} without an answer); \
         is a server listening, and has it enough memory?"
    )]
    Preload {
        /// Sets sent.
        sent: u64,
        /// Sets stored.
        stored: u64,
        /// Sets without an answer.
        lost: u64,
    },
}

/// How the run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All well.
    Good,
    /// Wrong answers, or too many lost.
    Bad,
}

fn parse_rate(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(r) if r > 0.0 && r.is_finite() => Ok(r),
        _ => Err("a number of packets per second above 0 is needed".to_owned()),
    }
}

fn parse_share(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(s) if (0.0..=1.0).contains(&s) => Ok(s),
        _ => Err("a share between 0 and 1 is needed".to_owned()),
    }
}

impl Flags {
    fn plan(&self) -> Plan {
        Plan {
            rate: self.rate,
            outstanding: self.outstanding as usize,
            limit: self.limit,
            loops: self.loops,
            timeout: Duration::from_millis(self.timeout_ms.into()),
            retries: 0,
            expect_hits: self.expect_hits,
        }
    }

    /// Plays, reports and judges.
    ///
    /// # Errors
    /// [`RunError`] says what to do.
    pub fn run(&self) -> Result<Verdict, RunError> {
        // Before anything is sent: both files open.
        let file = Reader::open(&self.file)?;
        let preload = self.preload.as_deref().map(Reader::open).transpose()?;
        #[cfg(feature = "dpdk")]
        if let Some(spec) = &self.port {
            return self.run_over(super::dpdk::open(spec, self.dst_mac)?, file, preload);
        }
        let Some(target) = self.target else { return Err(RunError::NoWay) };
        let link = Sockets::connect(target, self.sockets.into())
            .map_err(|source| RunError::Sockets { target, source })?;
        self.run_over(link, file, preload)
    }

    fn run_over<L: Link>(
        &self,
        mut link: L,
        mut file: Reader,
        preload: Option<Reader>,
    ) -> Result<Verdict, RunError> {
        let preload = preload.map(|mut p| play_preload(&mut p, &mut link)).transpose()?;
        let report = with_bar(|tell| play(&mut file, &mut link, &self.plan(), tell))?;
        self.tell(preload.as_ref(), &report)?;
        Ok(self.judge(&report))
    }

    fn judge(&self, report: &Report) -> Verdict {
        let wrong = report.wrong_total() + report.bad_datagrams;
        let too_many_lost = self.max_lost.is_some_and(|max| report.lost_share() > max);
        if wrong > 0 || too_many_lost { Verdict::Bad } else { Verdict::Good }
    }

    fn tell(&self, preload: Option<&Report>, report: &Report) -> Result<(), CliError> {
        if self.json.as_deref() != Some(Path::new("-")) {
            if let Some(p) = preload {
                let text =
                    format!("preload     {:>12}  sets stored, {} retries\n", p.answered, p.retries);
                write_text(Path::new("-"), &text)?;
            }
            write_text(Path::new("-"), &report.to_string())?;
        }
        if let Some(path) = &self.json {
            let mut all = report.json();
            if let Some(p) = preload {
                all["preload"] = json!({ "stored": p.answered, "retries": p.retries });
            }
            write_text(path, &format!("{all:#}\n"))?;
        }
        Ok(())
    }
}

/// Plays sets and insists on each.
fn play_preload<L: Link>(file: &mut Reader, link: &mut L) -> Result<Report, RunError> {
    let plan = Plan {
        outstanding: PRELOAD_OUTSTANDING,
        timeout: PRELOAD_TIMEOUT,
        retries: PRELOAD_RETRIES,
        ..Plan::default()
    };
    let report = with_bar(|tell| play(file, link, &plan, tell))?;
    if report.answered < report.sent {
        let Report { sent, answered: stored, lost, .. } = report;
        return Err(RunError::Preload { sent, stored, lost });
    }
    Ok(report)
}

/// Shows the counters on a terminal while `work` runs.
fn with_bar<T>(work: impl FnOnce(&mut dyn FnMut(&Report)) -> T) -> T {
    let bar = ProgressBar::new_spinner();
    if let Ok(style) = ProgressStyle::with_template("{elapsed} {msg}") {
        bar.set_style(style);
    }
    let done = work(&mut |r: &Report| {
        bar.set_message(format!(
            "sent {} answered {} lost {} wrong {}",
            r.sent,
            r.answered,
            r.lost,
            r.wrong_total()
        ));
    });
    bar.finish_and_clear();
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_consistent() {
        use clap::CommandFactory;
        Flags::command().debug_assert();
    }

    #[test]
    fn impossible_numbers_are_refused() {
        for r in ["0", "-1", "NaN", "inf", "x"] {
            assert!(parse_rate(r).is_err(), "{r}");
        }
        for s in ["-0.1", "1.1", "NaN"] {
            assert!(parse_share(s).is_err(), "{s}");
        }
        assert_eq!((parse_rate("1e6"), parse_share("0.5")), (Ok(1e6), Ok(0.5)));
    }
}
