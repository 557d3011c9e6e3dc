//! How much of everything the offline study takes, and the cases that it compares.
//!
//! In: flags. Out: a store's configuration, and cases with their names. Nothing fails.

use crate::output::say;
use crate::study::bench::{Bench, Config};
use crate::study::frame::Common;
use crate::study::load::{Load, Shape};
use crate::study::oracle_engine::{Foretold, Hints};
use crate::study::path::{Other, Run, Walk, walk};
use crate::workload::Popularity;
use clap::{Args, Parser};
use std::error::Error;
use std::path::PathBuf;
use std::sync::Arc;

/// Most distinct request frames that are prepared.
const FRAMES_MAX: u64 = 4_000_000;

/// The store and what is asked of it.
#[derive(Debug, Args)]
pub struct Stage {
    /// Items in the store.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    items: Option<u64>,
    /// Bytes per key.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(8..=250))]
    key_size: u16,
    /// Bytes per value.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    value_size: u16,
    /// Requests per measurement.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    requests: Option<u64>,
    /// Requests whose memory accesses overlap.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=512))]
    group: u16,
}

impl Stage {
    /// What is in the store.
    pub fn config(&self, common: &Common) -> Config {
        Config {
            items: self.items.unwrap_or_else(|| common.pick(4_000_000, 2_000)),
            shape: Shape {
                key_bytes: usize::from(self.key_size),
                value_bytes: usize::from(self.value_size),
            },
            seed: common.seed,
        }
    }

    /// Requests per measurement.
    pub fn requests(&self, common: &Common) -> u64 {
        self.requests.unwrap_or_else(|| common.pick(8_000_000, 5_000))
    }

    /// Different requests among them.
    pub fn different(&self, common: &Common) -> u64 {
        self.config(common).items.min(FRAMES_MAX)
    }

    /// Requests whose memory accesses overlap.
    pub fn group(&self) -> usize {
        usize::from(self.group)
    }
}

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Case {
    /// Random lines, so many at a time.
    Lines(usize),
    /// Look-ups, so many at a time.
    LookUps(usize),
    /// The port alone.
    Port,
    /// What is left of a GET when a batch comes back from another engine: values, headers, checksums.
    Fill(Hints),
    /// A load on the whole path.
    Path {
        /// What is asked.
        load: Load,
        /// So many at a time.
        group: usize,
        /// With checksums in software.
        software: bool,
        /// What another engine shows.
        beside: Option<Hints>,
    },
}

impl Case {
    /// All of them, each with space for what it takes in each round.
    pub fn all(group: usize) -> Vec<(Self, Vec<f64>)> {
        let path = |load, group, software| Self::Path { load, group, software, beside: None };
        let beside = |load, hints| Self::Path { load, group, software: true, beside: Some(hints) };
        let mut all: Vec<Self> = [1, 4, 8, 16, 32, 64].map(Self::Lines).to_vec();
        if !all.contains(&Self::Lines(group)) {
            all.push(Self::Lines(group));
        }
        let mut groups = vec![group];
        if group > 1 {
            groups.push(1);
        }
        all.extend(groups.iter().map(|group| Self::LookUps(*group)));
        all.push(Self::Port);
        all.extend(groups.iter().map(|group| path(Load::Get, *group, true)));
        all.extend([path(Load::Get, group, false), path(Load::Set, group, true)]);
        all.extend([Hints::Hints, Hints::WithHeads].map(Self::Fill));
        let all_hints = [Hints::Hints, Hints::WithHeads, Hints::WholeReplies];
        all.extend(all_hints.map(|hints| beside(Load::Get, hints)));
        all.extend([Load::Miss, Load::Set].map(|load| beside(load, Hints::Hints)));
        all.into_iter().map(|case| (case, Vec::new())).collect()
    }

    /// In full and in short.
    pub fn names(self) -> (String, String) {
        let how = |group| if group > 1 { "group prefetch" } else { "one by one, no prefetch" };
        let short = |group: usize| if group > 1 { "" } else { ", 1" };
        match self {
            Self::Lines(n) => (format!("random lines, {n} at a time"), format!("lines, {n}")),
            Self::LookUps(n) => {
                (format!("look-ups alone, {}", how(n)), format!("look-ups{}", short(n)))
            }
            Self::Port => {
                ("the memory port alone (no part of a NIC's work)".to_owned(), "port".to_owned())
            }
            Self::Fill(hints) => {
                let told = hints.name();
                (format!("value fill alone, {told} from another engine"), format!("fill, {told}"))
            }
            Self::Path { load, beside: Some(hints), .. } => {
                let (name, told) = (load.name(), hints.name());
                (
                    format!("whole path, {name}, {told} from another engine"),
                    format!("{name}, {told}"),
                )
            }
            Self::Path { load, group, software, beside: None } => {
                let sums = if software { "" } else { ", checksums by the port" };
                let bare = if software { "" } else { ", hw" };
                let name = load.name();
                (
                    format!("whole path, {name}, {}{sums}", how(group)),
                    format!("{name}{}{bare}", short(group)),
                )
            }
        }
    }
}

/// One load on the whole path and nothing else, for `scripts/instructions.sh` and profilers.
#[derive(Debug, Parser)]
pub struct PathCli {
    #[command(flatten)]
    stage: Stage,
    /// What is asked.
    #[arg(long, value_enum, default_value = "get")]
    load: Load,
    /// Of each hundred requests, how many are of another load instead.
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=100))]
    others: u32,
    /// Which.
    #[arg(long, value_enum, default_value = "set")]
    other: Load,
    /// The port verifies and fills in checksums, as a NIC does; else the worker.
    #[arg(long)]
    port_checksums: bool,
    /// Another engine reads and looks up, and costs nothing.
    #[arg(long, value_enum)]
    beside: Option<Hints>,
    /// Seed of the random keys.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

impl PathCli {
    /// Walks and says how many were answered.
    ///
    /// # Errors
    /// A wrong reply.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let reads = self.load == Load::Read || self.others > 0 && self.other == Load::Read;
        if reads && self.beside.is_some() {
            return Err("no other engine looks READs up: leave --beside out".into());
        }
        let common = Common { out: PathBuf::new(), seed: self.seed, quick: false };
        let mut bench = Bench::new(self.stage.config(&common))?;
        let mut different = self.stage.different(&common);
        let (requests, group) = (self.stage.requests(&common), self.stage.group());
        if reads {
            bench = bench.one_sided()?;
            // A READ that comes again is another thing, and a burst more is taken than is measured.
            different = requests / 10 + requests + (1 << 11);
        }
        let loads = [(self.load, 100 - self.others), (self.other, self.others)];
        let loads = if self.others > 0 { &loads[..] } else { &loads[..1] };
        let templates = bench.requests(loads, Popularity::Uniform, different)?;
        let software = !self.port_checksums;
        let told = self.beside.map(|hints| Arc::new(Foretold::new(&bench, &templates, hints)));
        let beside = told.as_ref().map_or(Other::None, Other::Foretold);
        let how = Walk { software, beside, ..Walk::plain(&templates, requests, group) };
        let run = walk(&bench, &how)?;
        say(format_args!(
            "{} answered, {} checked, {} wrong, {:.1} ns of CPU time each",
            run.answered(),
            run.checked,
            run.wrong,
            run.cpu_ns()
        ))?;
        Ok(Run::is_right(run.checked, run.wrong)?)
    }
}
