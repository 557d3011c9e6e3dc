//! The command line of `gnomon-replay`: flags in, a report and a verdict out.

use super::reads::{ReadCounts, Reads};
use super::sockets::Sockets;
use super::{Generated, Link, Pace, Plan, PlayError, Report, Source, play};
use crate::output::tell;
use crate::trace::cli::{CliError, write_text};
use crate::trace::flags::RATE_DEFAULT;
use crate::trace::{GenerateError, ReadError, Reader, Timing, Trace, TraceFlags};
use clap::Parser;
use driver_shim::MacAddr;
use gnomon_client::codec::connection::Connection;
use gnomon_client::frames::Frames;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Requests on their way in the preload: fewer, because a lost set costs a retry.
const PRELOAD_OUTSTANDING: usize = 64;
/// Times that a set of the preload is sent again.
const PRELOAD_RETRIES: u32 = 5;
/// Where frames go that were made up, unless another address is given.
const SERVER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// When a set of the preload is sent again.
const PRELOAD_TIMEOUT: Duration = Duration::from_millis(250);

/// Play memcached requests at a server, and check every reply.
///
/// Requests come from a capture (make one with gnomon-pcapgen), or are made up while they are
/// sent, from a workload or a CSV trace. Replies are matched to requests by client and request
/// id, put together where they come in several datagrams, and every value is checked against its
/// key, byte by byte. Exit status: 0 all well, 1 could not run, 2 bad flag, 3 the server gave
/// wrong answers, none at all, or lost more than allowed.
#[derive(Debug, Clone, Parser)]
#[command(name = "gnomon-replay", version)]
#[command(group = clap::ArgGroup::new("way").required(true))]
#[command(group = clap::ArgGroup::new("what").required(true).args(["file", "workload", "trace"]))]
pub struct Flags {
    /// Capture to play: pcap or pcapng. What else says what is asked is then not used.
    #[arg(value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// What is made up without a capture.
    #[command(flatten, next_help_heading = "Without a capture")]
    pub traffic: TraceFlags,
    /// Play through kernel UDP sockets at this server.
    #[arg(long, value_name = "ADDR:PORT", group = "way")]
    pub target: Option<SocketAddr>,
    /// Play through this DPDK port, frames as they are in the capture: a PCI address, or a
    /// virtual device such as net_tap0,iface=gn0.
    #[cfg(feature = "dpdk")]
    #[arg(long, value_name = "SPEC", groups = ["way", "frames"])]
    pub port: Option<String>,
    /// Send frames to this Ethernet address instead of the one in the capture.
    #[cfg(feature = "dpdk")]
    #[arg(long, value_name = "MAC", requires = "frames", value_parser = crate::trace::flags::parse_mac)]
    pub dst_mac: Option<MacAddr>,
    /// With --rdma, send READs through this DPDK port, from its address to --dst-mac, instead of kernel
    /// sockets. The connections of the queue pairs stay the kernel's, and the client's IP address theirs.
    #[cfg(feature = "dpdk")]
    #[arg(long, value_name = "SPEC", requires_all = ["rdma", "dst_mac"], group = "frames")]
    pub rdma_port: Option<String>,
    /// Queues of the port to spread the clients over.
    #[cfg(feature = "dpdk")]
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=64), value_name = "N")]
    pub queues: u16,
    /// Answer gets by one-sided reads (RDMA READ, RoCEv2, IPv4), of a server with --rdma: the first get of a
    /// key asks --target over TCP, and so does what fails a check; sets and deletes go over TCP.
    #[arg(long, requires = "target")]
    pub rdma: bool,
    /// With --rdma, queue pairs to spread the clients over. Each has 16 READs under way at most.
    #[arg(long, default_value_t = 4, requires = "rdma", value_parser = clap::value_parser!(u16).range(1..=256), value_name = "N")]
    pub queue_pairs: u16,
    /// Kernel sockets to spread the clients over.
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u16).range(1..=1024), value_name = "N")]
    pub sockets: u16,
    /// First play this capture of sets, slowly, and require each to be stored.
    #[arg(long, value_name = "FILE", conflicts_with = "fill")]
    pub preload: Option<PathBuf>,
    /// First set every key of the workload, slowly, and require each to be stored.
    #[arg(long, conflicts_with_all = ["file", "trace"])]
    pub fill: bool,
    /// Packets per second; flat out without it. Latency counts from when a request was due.
    #[arg(long, value_name = "PPS", value_parser = parse_rate)]
    pub rate: Option<f64>,
    /// Send when the capture, or the CSV trace, says.
    #[arg(long, conflicts_with = "rate")]
    pub as_captured: bool,
    /// With --as-captured, so many times as fast.
    #[arg(long, default_value_t = 1.0, requires = "as_captured", value_parser = parse_rate, value_name = "FACTOR")]
    pub speed: f64,
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
    /// Fail when more than this share of requests is lost, 0 to 1. Without it, when all are.
    #[arg(long, value_name = "SHARE", value_parser = parse_share)]
    pub max_lost: Option<f64>,
    /// Write the report as JSON, to a file or to standard output (-).
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Draw rate and latency over time: rate.svg and latency.svg in this directory.
    #[arg(long, value_name = "DIR")]
    pub plots: Option<PathBuf>,
}

/// Why the program stops.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum RunError {
    /// A capture cannot be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// Playing broke off.
    #[error(transparent)]
    Play(#[from] PlayError),
    #[error("nothing of the {what} was sent{}", unfit(*skipped))]
    Nothing { what: &'static str, skipped: u64 },
    /// The traffic cannot be made up.
    #[error(transparent)]
    Generate(#[from] GenerateError),
    /// The report cannot be written.
    #[error(transparent)]
    Cli(#[from] CliError),
    /// No such port.
    #[cfg(feature = "dpdk")]
    #[error(transparent)]
    Port(#[from] driver_shim::ports::dpdk::DpdkError),
    #[error("cannot open sockets to {target}: {source}; check the address and the route to it")]
    Sockets { target: SocketAddr, source: io::Error },
    #[error(
        "one-sided reads of {target}: {source}; the server needs --port and --rdma, and UDP port 4791 must be free here"
    )]
    Reads {
        target: SocketAddr,
        /// The kernel's error, or the service's refusal.
        source: io::Error,
    },
    #[error("--as-captured takes the times of a capture or of a CSV trace: give FILE or --trace")]
    NoTimes,
    #[error("--timing shapes a rate: give one with --rate")]
    NoRate,
    #[error("--loop cannot play standard input again: write it to a file")]
    Once,
    #[error("say where to play to: --target ADDR:PORT")]
    NoWay,
    #[error(
        "preload: {stored} of {sent} sets were stored ({lost} without an answer); \
         is a server listening, and has it enough memory?"
    )]
    Preload { sent: u64, stored: u64, lost: u64 },
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
        let pace = match (self.rate, self.timing()) {
            // What is made up has its times at the rate given, unless it is even.
            (_, Some(Timing::Trace)) => Pace::Source(self.speed),
            (Some(_), Some(timing)) if timing != Timing::Constant => Pace::Source(1.0),
            (Some(rate), _) => Pace::Rate(rate),
            (None, None) if self.as_captured => Pace::Source(self.speed),
            (None, _) => Pace::FlatOut,
        };
        Plan {
            pace,
            outstanding: self.outstanding as usize,
            limit: self.limit,
            loops: self.loops,
            timeout: Duration::from_millis(self.timeout_ms.into()),
            expect_hits: self.expect_hits,
            ..Plan::default()
        }
    }

    /// How what is made up follows each other: not what a file holds.
    fn timing(&self) -> Option<Timing> {
        let timing = if self.as_captured { Timing::Trace } else { self.traffic.timing };
        self.file.is_none().then_some(timing)
    }

    /// What cannot be, before anything is sent.
    fn check(&self) -> Result<(), RunError> {
        let trace = self.traffic.trace.as_deref();
        let shaped = |timing| !matches!(timing, Timing::Constant | Timing::Trace);
        if self.as_captured && self.file.is_none() && trace.is_none() {
            return Err(RunError::NoTimes);
        }
        if self.rate.is_none() && self.timing().is_some_and(shaped) {
            return Err(RunError::NoRate);
        }
        if self.loops > 1 && trace == Some(Path::new("-")) {
            return Err(RunError::Once);
        }
        Ok(())
    }

    /// Plays, reports and judges.
    ///
    /// # Errors
    /// [`RunError`] says what to do.
    pub fn run(&self) -> Result<Verdict, RunError> {
        self.check()?;
        // Before anything is sent: all files open, and those that are written at the end can be.
        self.make_outputs()?;
        let preload = match &self.preload {
            Some(path) => Some(Box::new(Reader::open(path)?) as Box<dyn Source>),
            None if self.fill => {
                let sets = Trace { preload: true, requests: 0, ..self.made_up(0) };
                Some(Box::new(Generated::new(sets)?) as Box<dyn Source>)
            }
            None => None,
        };
        let source: Box<dyn Source> = match &self.file {
            Some(path) => Box::new(Reader::open(path)?),
            None => {
                let seed = self.traffic.seed();
                tell(format_args!("seed {seed}"));
                Box::new(Generated::new(self.made_up(seed))?)
            }
        };
        #[cfg(feature = "dpdk")]
        if let Some(spec) = &self.port {
            let link = super::dpdk::open(spec, self.queues, self.dst_mac)?;
            return self.run_over(link, source, preload);
        }
        let Some(target) = self.target else { return Err(RunError::NoWay) };
        if self.rdma {
            return self.run_reads(target, source, preload);
        }
        let link = Sockets::connect(target, self.sockets.into())
            .map_err(|source| RunError::Sockets { target, source })?;
        self.run_over(link, source, preload)
    }

    /// Plays gets as one-sided reads.
    fn run_reads(
        &self,
        target: SocketAddr,
        source: Box<dyn Source>,
        preload: Option<Box<dyn Source>>,
    ) -> Result<Verdict, RunError> {
        let failed = |source| RunError::Reads { target, source };
        let service = Connection::open(target).map_err(failed)?;
        #[cfg(feature = "dpdk")]
        if let (Some(spec), Some(mac)) = (&self.rdma_port, self.dst_mac) {
            let (near, far) = service.between().map_err(failed)?;
            let between = [near, far].map(|end| end.ip().to_canonical());
            let frames = super::dpdk::open_frames(spec, mac, between)?.ok_or(RunError::NoWay)?;
            return self.run_reads_over(target, frames, source, preload);
        }
        let frames = gnomon_client::sockets::Sockets::beside(&service).map_err(failed)?;
        self.run_reads_over(target, frames, source, preload)
    }

    fn run_reads_over<F: Frames>(
        &self,
        target: SocketAddr,
        frames: F,
        mut source: Box<dyn Source>,
        preload: Option<Box<dyn Source>>,
    ) -> Result<Verdict, RunError> {
        let link = Reads::connect(target, self.queue_pairs.into(), frames);
        let mut link = link.map_err(|source| RunError::Reads { target, source })?;
        let preload = preload.map(|mut p| play_preload(&mut *p, &mut link)).transpose()?;
        let report = with_bar(|tell| play(&mut *source, &mut link, &self.plan(), tell))?;
        self.tell(preload.as_ref(), &report, Some(link.counts()))?;
        self.judge(&report)
    }

    /// The directory of the plots, and the file of the report, as it is or empty.
    fn make_outputs(&self) -> Result<(), CliError> {
        if let Some(dir) = &self.plots {
            let made = std::fs::create_dir_all(dir);
            made.map_err(|source| CliError::Create { path: dir.clone(), source })?;
        }
        if let Some(path) = self.json.as_deref().filter(|path| *path != Path::new("-")) {
            let made = File::options().append(true).create(true).open(path);
            made.map_err(|source| CliError::Create { path: path.to_owned(), source })?;
        }
        Ok(())
    }

    /// What is asked without a capture.
    fn made_up(&self, seed: u64) -> Trace {
        let traffic = self.traffic.trace(seed, self.rate.unwrap_or(RATE_DEFAULT), SERVER_MAC);
        Trace { timing: self.timing().unwrap_or(traffic.timing), ..traffic }
    }

    fn run_over<L: Link>(
        &self,
        mut link: L,
        mut source: Box<dyn Source>,
        preload: Option<Box<dyn Source>>,
    ) -> Result<Verdict, RunError> {
        let preload = preload.map(|mut p| play_preload(&mut *p, &mut link)).transpose()?;
        let report = with_bar(|tell| play(&mut *source, &mut link, &self.plan(), tell))?;
        self.tell(preload.as_ref(), &report, None)?;
        self.judge(&report)
    }

    fn judge(&self, report: &Report) -> Result<Verdict, RunError> {
        anything_sent("traffic", report)?;
        let wrong = report.wrong_total() + report.bad_datagrams;
        let share = report.lost_share();
        let too_many_lost = self.max_lost.map_or(share >= 1.0, |max| share > max);
        Ok(if wrong > 0 || too_many_lost { Verdict::Bad } else { Verdict::Good })
    }

    fn tell(
        &self,
        preload: Option<&Report>,
        report: &Report,
        reads: Option<ReadCounts>,
    ) -> Result<(), CliError> {
        let on_stdout = Path::new("-");
        // What is kept comes first: the standard output may fail.
        if let Some(dir) = &self.plots {
            write_text(&dir.join("rate.svg"), &report.series.rate_svg())?;
            write_text(&dir.join("latency.svg"), &report.series.latency_svg())?;
        }
        if let Some(path) = &self.json {
            let mut all = report.json();
            if let Some(p) = preload {
                all["preload"] = json!({ "stored": p.answered, "retries": p.retries });
            }
            if let Some(ReadCounts { reads, torn, longer, bad, asked, resumed, reopened }) = reads {
                all["reads"] = json!({ "reads": reads, "torn": torn, "longer": longer,
                    "bad": bad, "asked": asked, "resumed": resumed, "reopened": reopened });
            }
            write_text(path, &format!("{all:#}\n"))?;
        }
        if self.json.as_deref() == Some(on_stdout) {
            return Ok(());
        }
        let mut text = String::new();
        if let Some(p) = preload {
            text +=
                &format!("preload     {:>12}  sets stored, {} retries\n", p.answered, p.retries);
        }
        text += &report.to_string();
        if let Some(ReadCounts { reads, torn, longer, bad, asked, resumed, reopened }) = reads {
            text += &format!(
                "reads       {reads:>12}  {torn} torn, {longer} of items that had grown, {bad} bad; {asked} keys asked over TCP, \
                 {resumed} times resumed, {reopened} queue pairs opened again\n"
            );
        }
        write_text(on_stdout, &text)
    }
}

/// Why frames are not sent, if some were not.
fn unfit(skipped: u64) -> String {
    if skipped == 0 {
        return String::new();
    }
    format!(
        ": {skipped} frames are no requests over UDP with good checksums; a capture on a sending host has none where a NIC \
         fills them in (ethtool -K DEVICE tx off)"
    )
}

fn anything_sent(what: &'static str, report: &Report) -> Result<(), RunError> {
    let Report { sent, skipped, .. } = *report;
    if sent == 0 { Err(RunError::Nothing { what, skipped }) } else { Ok(()) }
}

/// Plays sets and insists on each.
fn play_preload<L: Link>(sets: &mut dyn Source, link: &mut L) -> Result<Report, RunError> {
    let plan = Plan {
        outstanding: PRELOAD_OUTSTANDING,
        timeout: PRELOAD_TIMEOUT,
        retries: PRELOAD_RETRIES,
        until_lost: true,
        ..Plan::default()
    };
    let report = with_bar(|tell| play(sets, link, &plan, tell))?;
    anything_sent("preload", &report)?;
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
