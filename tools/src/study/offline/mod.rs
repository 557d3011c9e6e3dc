//! The offline study: what the whole path of a worker takes, from frames in memory to replies in
//! memory (MemcachedGPU's limit study, section 5.5; MICA's offline test; Mega-KV's microbenchmarks).
//!
//! In: how much of everything. Out: CPU time per request for each kind of load, engine, shape and
//! number of workers, beside what the machine's memory gives in the same run, and beside memcached.
//! Requests are uniform over all items unless said otherwise, so that nearly every look-up misses the
//! caches. Every so many-th reply is checked to the byte. [`stage`] has what is measured and how.
//! Fails on a wrong reply.

pub mod stage;

use super::bench::{Bench, Config};
use super::engine::Way;
use super::frame::{Common, Frame};
use super::load::{Load, Shape};
use super::memcached::Memcached;
use super::memory::Lines;
use super::oracle_engine::Foretold;
use super::path::{Other, Run, Walk, port_alone, walk};
use super::stages::fill_ns;
use crate::report::table::{Draw, Table, table};
use crate::workload::Popularity;
use clap::Parser;
use gpu::card::Card;
use gpu::index::IndexKind;
use gpu::offload::Mode;
use gpu::simt::SimtCard;
use serde_json::{Value, json};
use stage::{Case, Stage};
use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

/// Longest time for a batch on the executor, which others' work may slow down.
const DEADLINE: Duration = Duration::from_secs(20);

const TABLES: &[Table] = table! {
    "memory" "What the memory gives, one thread" ["what ahead cpu_ns per_s gb_per_s"]
        "Random lines of 64 bytes by depth of prefetch, and copies."
        => Draw::over_log("ahead", "per_s", "what");
    "path" "The path of a request, one worker" ["what cpu_ns least_ns most_ns per_s of_lines"]
        "Medians of CPU time; of the lines: the rate beside that of random lines at the same prefetch depth."
        => Draw::Bars { label: "short", y: "CPU ns", parts: &["cpu_ns"] };
    "mixes" "GETs and SETs, hits and popularity, one worker"
        ["sets hits popularity cpu_ns per_s of_lines slow"]
        "Whole path, group prefetch, checksums in software; medians, taken in turns."
        => Draw::lines("sets", "per_s", "curve");
    "shapes" "Lengths of keys and values, one worker, GET"
        ["key_bytes value_bytes items cpu_ns per_s of_lines"]
        "Medians; a store of its own for each, of as many items or fewer."
        => Draw::over_log("value_bytes", "per_s", "curve");
    "workers" "Workers" ["workers cpu_ns per_s times_one"]
        "Each on a thread and a queue of its own, over one store; medians of rates by the clock on the wall."
        => Draw::lines("workers", "per_s", "what");
    "each_worker" "Each worker's counters"
        ["workers worker cpu_ns per_s answered batches slow hints_right hints_wrong"]
        "Nothing is shared but the store: what one counts, no other does.";
    "engines" "Engines, GET, one worker" ["engine items cpu_ns per_s by_card checked"]
        "The SIMT executor runs the kernels on the CPU: what it takes says that they work, not what a GPU would take.";
};

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    stage: Stage,
    /// Measurements of each kind; the median is shown.
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=99))]
    rounds: Option<u8>,
    /// Most workers; by default as many as there are processors.
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=256))]
    workers: Option<u16>,
    /// Only the path and what it is compared with: what `make bench` asks for.
    #[arg(long)]
    path_only: bool,
    /// UDP requests to memcached; 0 leaves it out.
    #[arg(long)]
    memcached_requests: Option<u64>,
}

/// What is compared with everything: nanoseconds of a random line.
struct Yardstick(f64);

impl Yardstick {
    fn of_lines(&self, ns: f64) -> f64 {
        self.0 / ns
    }
}

impl Cli {
    /// Measures, prints and writes.
    ///
    /// # Errors
    /// Not enough memory, or a wrong reply.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("offline", &self.common)?;
        let config = self.stage.config(&self.common);
        let bench = Bench::new(config)?;
        let line_ns = self.path(&mut frame, &bench)?;
        if !self.path_only {
            self.mixes(&mut frame, &bench, &line_ns)?;
            self.scaling(&mut frame, &bench)?;
        }
        drop(bench);
        if !self.path_only {
            self.shapes(&mut frame, &line_ns)?;
            self.engines(&mut frame)?;
        }
        self.against_memcached(&mut frame)?;
        Ok(frame.end(TABLES)?)
    }

    fn requests(&self) -> u64 {
        self.stage.requests(&self.common)
    }

    fn group(&self) -> usize {
        self.stage.group()
    }

    /// How a GET is measured.
    fn plain<'a>(&self, templates: &'a [Vec<u8>]) -> Walk<'a> {
        Walk::plain(templates, self.requests(), self.group())
    }

    /// The path, the lines and the look-ups, side by side: one round of everything, then the next,
    /// so that a slow minute of a shared machine hits all alike.
    fn path(&self, frame: &mut Frame, bench: &Bench) -> Result<Yardstick, Box<dyn Error>> {
        let Config { items, shape, seed } = bench.config();
        let (group, requests) = (self.group(), self.requests());
        // As much as the items take, so that the caches help as little.
        let mut lines = Lines::new(usize::try_from(items)? * shape.item_bytes())?;
        let stats = bench.store().stats();
        for (fact, value) in [
            ("items", json!(items)),
            ("key_bytes", json!(shape.key_bytes)),
            ("value_bytes", json!(shape.value_bytes)),
            ("requests", json!(requests)),
            ("item_memory", json!(stats.item_memory.name())),
            ("index_memory", json!(stats.index_memory.name())),
            ("lines_memory", json!(lines.kind().name())),
            ("lines_mb", json!(lines.len_bytes() >> 20)),
        ] {
            frame.report.fact(fact, value)?;
        }
        let different = self.stage.different(&self.common);
        let templates = |load| bench.requests(&[(load, 1)], Popularity::Uniform, different);
        let (gets, sets, misses) =
            (templates(Load::Get)?, templates(Load::Set)?, templates(Load::Miss)?);
        let mut cases = Case::all(group);
        let (mut checked, mut wrong) = (0, 0);
        for _ in 0..self.rounds() {
            for (case, ns) in &mut cases {
                ns.push(match *case {
                    Case::Lines(ahead) => lines.read(ahead, requests, seed),
                    Case::LookUps(group) => bench.lookups(group, requests, different)?,
                    Case::Port => port_alone(&self.plain(&gets))?,
                    Case::Fill(hints) => fill_ns(bench, &gets, hints, requests)?,
                    Case::Path { load, group, software, beside } => {
                        let templates = match load {
                            Load::Set => &sets,
                            Load::Miss => &misses,
                            _ => &gets,
                        };
                        let told =
                            beside.map(|hints| Arc::new(Foretold::new(bench, templates, hints)));
                        let beside = told.as_ref().map_or(Other::None, Other::Foretold);
                        let how = Walk { group, software, beside, ..self.plain(templates) };
                        let run = walk(bench, &how)?;
                        checked += run.checked;
                        wrong += run.wrong;
                        run.cpu_ns()
                    }
                });
            }
        }
        let copies = lines.copy(self.common.pick(8 << 30, 8 << 20));
        let ns_of = |wanted: Case| {
            let case = cases.iter().find(|(case, _)| *case == wanted);
            case.map_or(f64::NAN, |(_, ns)| super::median(&mut ns.clone()))
        };
        let line_ns = Yardstick(ns_of(Case::Lines(group)));
        for (case, ns) in &cases {
            let cpu_ns = super::median(&mut ns.clone());
            if let Case::Lines(ahead) = case {
                let row = json!({ "what": "random lines", "ahead": ahead, "cpu_ns": cpu_ns,
                    "per_s": 1e9 / cpu_ns, "gb_per_s": 64.0 / cpu_ns });
                frame.report.row("memory", row)?;
                continue;
            }
            let least = ns.iter().copied().fold(f64::INFINITY, f64::min);
            let most = ns.iter().copied().fold(0.0, f64::max);
            let (what, short) = case.names();
            let row = json!({ "what": what, "short": short, "cpu_ns": cpu_ns, "least_ns": least,
                "most_ns": most, "per_s": 1e9 / cpu_ns, "of_lines": line_ns.of_lines(cpu_ns) });
            frame.report.row("path", row)?;
        }
        frame.report.row("memory", json!({ "what": "copy", "gb_per_s": copies }))?;
        let path = |load, group| Case::Path { load, group, software: true, beside: None };
        let gain = ns_of(path(Load::Get, 1)) / ns_of(path(Load::Get, group));
        let lookups_gain = ns_of(Case::LookUps(1)) / ns_of(Case::LookUps(group));
        for (fact, value) in [
            ("group_gain_lookups", json!(lookups_gain)),
            ("group_gain_path", json!(gain)),
            ("path_ns", json!(ns_of(path(Load::Get, group)))),
            ("checked", json!(checked)),
            ("wrong", json!(wrong)),
        ] {
            frame.report.fact(fact, value)?;
        }
        frame.say(format_args!(
            "group prefetch: look-ups {lookups_gain:.2} times as fast, the path {gain:.2}"
        ));
        frame.say(format_args!("replies checked to the byte: {checked}, wrong: {wrong}"));
        Run::is_right(checked, wrong)?;
        Ok(line_ns)
    }

    fn rounds(&self) -> u8 {
        self.rounds.unwrap_or_else(|| self.common.pick(3, 1))
    }

    /// Walks, and sees to it that every reply was right.
    fn right(&self, bench: &Bench, how: &Walk<'_>) -> Result<Run, Box<dyn Error>> {
        let run = walk(bench, how)?;
        if run.wrong > 0 { Err("a reply was not what it must be".into()) } else { Ok(run) }
    }

    /// The median of several walks of each kind, by what they took. They take turns, so that
    /// whatever else the machine does falls on all.
    fn medians(
        &self,
        bench: &Bench,
        kinds: &[Walk<'_>],
        took: impl Fn(&Run) -> f64,
    ) -> Result<Vec<Run>, Box<dyn Error>> {
        let mut runs: Vec<Vec<Run>> = kinds.iter().map(|_| Vec::new()).collect();
        for _ in 0..self.rounds() {
            for (how, runs) in kinds.iter().zip(&mut runs) {
                runs.push(self.right(bench, how)?);
            }
        }
        let median = |mut runs: Vec<Run>| {
            runs.sort_by(|a, b| took(a).total_cmp(&took(b)));
            let middle = runs.len() / 2;
            runs.into_iter().nth(middle).ok_or_else(|| "no round".into())
        };
        runs.into_iter().map(median).collect()
    }

    fn mixes(
        &self,
        frame: &mut Frame,
        bench: &Bench,
        line: &Yardstick,
    ) -> Result<(), Box<dyn Error>> {
        let different = self.stage.different(&self.common);
        let mut mixes = Vec::new();
        for popularity in [Popularity::Uniform, Popularity::Scrambled(0.99)] {
            for (sets, hits) in [(0, 100), (0, 85), (0, 0), (5, 100), (50, 100), (100, 100)] {
                let gets = 100 - sets;
                let (here, gone) = (gets * hits, gets * (100 - hits));
                let loads = [(Load::Get, here), (Load::Miss, gone), (Load::Set, 100 * sets)];
                let templates = bench.requests(&loads, popularity, different)?;
                mixes.push((popularity, sets, hits, templates));
            }
        }
        let kinds: Vec<_> = mixes.iter().map(|(.., templates)| self.plain(templates)).collect();
        for ((popularity, sets, hits, _), run) in
            mixes.iter().zip(self.medians(bench, &kinds, Run::cpu_ns)?)
        {
            let cpu_ns = run.cpu_ns();
            let slow: u64 = run.shares.iter().map(|share| share.slow).sum();
            let row = json!({ "sets": sets, "hits": hits, "popularity": popularity.to_string(),
                "cpu_ns": cpu_ns, "per_s": 1e9 / cpu_ns, "of_lines": line.of_lines(cpu_ns),
                "slow": slow, "checked": run.checked,
                "curve": format!("{popularity}, {hits} % hits") });
            frame.report.row("mixes", row)?;
        }
        Ok(())
    }

    fn scaling(&self, frame: &mut Frame, bench: &Bench) -> Result<(), Box<dyn Error>> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let most = self.workers.map_or(processors, usize::from);
        let different = self.stage.different(&self.common);
        let templates = bench.requests(&[(Load::Get, 1)], Popularity::Uniform, different)?;
        let numbers: Vec<_> = (1..=most).filter(|n| n.is_power_of_two() || *n == most).collect();
        let with = |workers: &usize| Walk { workers: *workers, ..self.plain(&templates) };
        let kinds: Vec<_> = numbers.iter().map(with).collect();
        let mut one = None;
        for (workers, run) in
            numbers.iter().zip(self.medians(bench, &kinds, |run| 1.0 / run.per_s())?)
        {
            let per_s = run.per_s();
            let times = per_s / *one.get_or_insert(per_s);
            for (worker, share) in run.shares.iter().enumerate() {
                let row = json!({ "workers": workers, "worker": worker, "cpu_ns": share.cpu_ns,
                    "per_s": 1e9 / share.wall_ns, "answered": share.answered,
                    "batches": share.batches, "slow": share.slow,
                    "hints_right": share.hints_right, "hints_wrong": share.hints_wrong });
                frame.report.row("each_worker", row)?;
            }
            let row = json!({ "what": "GET", "workers": workers, "cpu_ns": run.cpu_ns(),
                "per_s": per_s, "times_one": times });
            frame.report.row("workers", row)?;
        }
        Ok(())
    }

    fn shapes(&self, frame: &mut Frame, line: &Yardstick) -> Result<(), Box<dyn Error>> {
        let config = self.stage.config(&self.common);
        let items = config.items.min(self.common.pick(1_000_000, 1_000));
        for key_bytes in self.common.pick(&[8, 16, 64, 128, 250][..], &[8, 250]) {
            for value_bytes in self.common.pick(&[2, 64, 256, 1024][..], &[2, 1024]) {
                let (key_bytes, value_bytes) = (*key_bytes, *value_bytes);
                let shape = Shape { key_bytes, value_bytes };
                let bench = Bench::new(Config { items, shape, ..config })?;
                let different = items.min(self.stage.different(&self.common));
                let templates =
                    bench.requests(&[(Load::Get, 1)], Popularity::Uniform, different)?;
                let kinds = [self.plain(&templates)];
                let run = self.medians(&bench, &kinds, Run::cpu_ns)?.pop().ok_or("no run")?;
                let cpu_ns = run.cpu_ns();
                let row = json!({ "key_bytes": key_bytes, "value_bytes": value_bytes,
                    "items": items, "cpu_ns": cpu_ns, "per_s": 1e9 / cpu_ns,
                    "of_lines": line.of_lines(cpu_ns), "checked": run.checked,
                    "curve": format!("{key_bytes} B keys") });
                frame.report.row("shapes", row)?;
            }
        }
        Ok(())
    }

    fn engines(&self, frame: &mut Frame) -> Result<(), Box<dyn Error>> {
        let config = self.stage.config(&self.common);
        let items = config.items.min(self.common.pick(100_000, 1_000));
        let bench = Bench::new(Config { items, ..config })?;
        let templates = bench.requests(&[(Load::Get, 1)], Popularity::Uniform, items)?;
        let card: Arc<dyn Card> = Arc::new(SimtCard::new(config.seed));
        let way = |kind| Way {
            mode: Mode::Launch,
            kind,
            in_flight_max: 2,
            deadline: DEADLINE,
            forced: true,
            heads: false,
            multiprocessors: u32::MAX,
        };
        let few = self.common.pick(50_000, 1_000);
        for way in [None, Some(way(IndexKind::SetAssoc)), Some(way(IndexKind::Cuckoo))] {
            let requests = if way.is_some() { few.min(self.requests()) } else { self.requests() };
            let beside = way.map_or(Other::None, |way| Other::Card(&card, way));
            let run = self.right(&bench, &Walk { requests, beside, ..self.plain(&templates) })?;
            let by_card: u64 = run.shares.iter().map(|share| share.by_card).sum();
            let engine =
                way.map_or_else(|| "cpu".to_owned(), |way| format!("simt, {}", way.name()));
            // The executor's work is done by threads of its own: what this one took says little.
            let ns = if way.is_some() { 1e9 / run.per_s() } else { run.cpu_ns() };
            let row = json!({ "engine": engine, "items": items,
                "cpu_ns": way.is_none().then_some(ns), "per_s": 1e9 / ns,
                "by_card": by_card, "checked": run.checked });
            frame.report.row("engines", row)?;
        }
        Ok(())
    }

    /// What memcached takes for the same question, by UDP on loopback.
    fn against_memcached(&self, frame: &mut Frame) -> Result<(), Box<dyn Error>> {
        let asked = self.memcached_requests.unwrap_or_else(|| self.common.pick(300_000, 0));
        if asked == 0 {
            return Ok(());
        }
        let Config { items, shape, .. } = self.stage.config(&self.common);
        let item_bytes = (shape.key_bytes + shape.value_bytes + 80) as u64;
        let memory_mb = usize::try_from((items * item_bytes) >> 20)? * 3 / 2 + 64;
        let server =
            Memcached::start(memory_mb).map_err(|e| format!("cannot start memcached: {e}"))?;
        let key = |i| shape.key(i);
        server.load(items, key, |i| shape.value(i))?;
        let cost = server.ask(asked, |n| {
            // Knuth's multiplicative hash: spread over all items, no two alike in a row.
            let item = n.wrapping_mul(0x9E37_79B9_7F4A_7C15) % items;
            (key(item), Load::Get.reply(shape, &[item]))
        })?;
        let ns = cost.cpu.as_secs_f64() * 1e9 / cost.answered.max(1) as f64;
        let ours = frame.report.get("path_ns").and_then(Value::as_f64).unwrap_or(f64::NAN);
        let row = json!({ "asked": asked, "answered": cost.answered, "hits": cost.hits,
            "cpu_ns": ns, "times_ours": ns / ours });
        frame.say(format_args!(
            "memcached, one thread, UDP on loopback: {ns:.0} ns of CPU per request (user and \
             system), {} of {asked} answered, {} hits\ngnomon's whole path takes 1/{:.0} of that",
            cost.answered,
            cost.hits,
            ns / ours
        ));
        Ok(frame.report.fact("memcached", row)?)
    }
}
