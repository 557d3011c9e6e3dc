//! What all studies have in common: flags, facts about the run, and what is left of it.
//!
//! In: a study's name and the common flags. Out: a report with the machine, the commit and the seed
//! in it; in the end each table as text on the standard output, and its plot beside the figures.
//! Fails as the file system does.

use crate::output::{about, say};
use crate::report::Report;
use crate::report::table::Table;
use clap::Args;
use serde_json::{Value, json};
use std::fmt::Display;
use std::fs;
use std::io;
use std::path::PathBuf;
use std::time::Instant;

/// Flags of every study.
#[derive(Debug, Clone, Args)]
pub struct Common {
    /// Where figures (JSON) and plots (SVG) are written.
    #[arg(long, value_name = "DIRECTORY", default_value = "study")]
    pub out: PathBuf,
    /// Seed of everything that is drawn.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// Smallest sizes: shows that everything works, measures nothing.
    #[arg(long)]
    pub quick: bool,
}

impl Common {
    /// One of two values.
    pub fn pick<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }
}

/// A study under way.
#[derive(Debug)]
pub struct Frame {
    /// Its figures.
    pub report: Report,
    begun: Instant,
    /// What kept text off the standard output: said last, when all files are there.
    unsaid: Option<io::Error>,
}

impl Frame {
    /// Begins the study `name`.
    ///
    /// # Errors
    /// The report cannot be written.
    pub fn begin(name: &str, common: &Common) -> io::Result<Self> {
        let mut report = Report::new(&common.out, name)?;
        let arguments: Vec<String> = std::env::args().skip(1).collect();
        for (fact, value) in [
            ("study", json!(name)),
            ("machine", machine()),
            ("commit", json!(env!("GNOMON_COMMIT"))),
            ("seed", json!(common.seed)),
            ("quick", json!(common.quick)),
            ("arguments", json!(arguments.join(" "))),
        ] {
            report.fact(fact, value)?;
        }
        Ok(Self { report, begun: Instant::now(), unsaid: None })
    }

    /// Writes a line to the standard output; [`Self::end`] fails where that cannot be.
    pub fn say(&mut self, line: impl Display) {
        if self.unsaid.is_none() {
            self.unsaid = say(line).err();
        }
    }

    /// Says which machine, commit and seed, shows the tables, and draws what there is to draw.
    ///
    /// # Errors
    /// A file, or the standard output, cannot be written.
    pub fn end(mut self, tables: &[Table]) -> io::Result<()> {
        self.report.fact("seconds", json!(self.begun.elapsed().as_secs_f64()))?;
        let fact = |name: &str| self.report.get(name).map_or_else(String::new, Value::to_string);
        let (name, commit, seed) = (self.report.name(), fact("commit"), fact("seed"));
        let what = format!("{name}: commit {commit}, seed {seed}\nmachine: {}", fact("machine"));
        self.say(what);
        for table in tables {
            let rows = self.report.rows(table.name).to_vec();
            self.show(table, &rows)?;
        }
        let files = format!("\nfigures and plots: {}", self.report.dir().display());
        self.say(files);
        self.unsaid.map_or(Ok(()), Err)
    }

    /// Shows rows as a table, and draws them.
    ///
    /// # Errors
    /// The plot cannot be written.
    pub fn show(&mut self, table: &Table, rows: &[Value]) -> io::Result<()> {
        if rows.is_empty() {
            return Ok(());
        }
        self.say(format_args!("\n{}: {}\n{}", table.title, table.says, table.text(rows)));
        let Some(svg) = table.svg(rows) else { return Ok(()) };
        let file = format!("{}-{}.svg", self.report.name(), table.name);
        let file = self.report.dir().join(file);
        fs::write(&file, svg).map_err(|e| about(file.display(), &e))
    }
}

/// What this runs on, as far as the kernel shows.
fn machine() -> Value {
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    let line = |text: &str, key: &str| {
        let of = |line: &str| {
            Some(line.strip_prefix(key)?.trim_start_matches([' ', '\t', ':']).to_owned())
        };
        text.lines().find_map(of).unwrap_or_default()
    };
    json!({
        "cpu": line(&read("/proc/cpuinfo"), "model name"),
        "processors": std::thread::available_parallelism().map_or(1, usize::from),
        "memory": line(&read("/proc/meminfo"), "MemTotal"),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "transparent_huge_pages": read("/sys/kernel/mm/transparent_hugepage/enabled").trim(),
        // More than the number of processors: others were at work too.
        "load_average": read("/proc/loadavg").split(' ').next().unwrap_or_default(),
        "compiler": env!("GNOMON_RUSTC"),
        "optimised": !cfg!(debug_assertions),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plot::Axis;
    use crate::report::table::Draw;

    #[test]
    fn what_is_left_of_a_study() {
        let dir = tempfile::tempdir().unwrap();
        let common = Common { out: dir.path().join("new"), seed: 7, quick: true };
        assert_eq!(common.pick(1, 2), 2);
        let mut frame = Frame::begin("some", &common).unwrap();
        frame.report.row("t", json!({ "x": 1, "y": 2.0 })).unwrap();
        let (x, y) = (Axis::linear("x"), Axis::linear("y"));
        let plot = Some(Draw::Lines { x, y, by: "z" });
        frame.end(&[Table { name: "t", title: "", says: "", columns: "x y", plot }]).unwrap();
        let kept = fs::read(dir.path().join("new/some.json")).unwrap();
        let kept: Value = serde_json::from_slice(&kept).unwrap();
        assert_eq!(
            (&kept["study"], &kept["seed"], &kept["quick"]),
            (&json!("some"), &json!(7), &json!(true))
        );
        assert!(kept["machine"]["cpu"].is_string() && kept["seconds"].is_number(), "{kept:#}");
        assert_eq!(kept["t"][0]["y"], 2.0);
        let svg = fs::read_to_string(dir.path().join("new/some-t.svg")).unwrap();
        assert!(svg.contains("<polyline"), "{svg}");
    }
}
