//! The report as a page for people: `report.md`, with a plot for each curve.
//!
//! In: the figures. Out: Markdown, and plots as SVG beside it. Fails as the file system does.

use crate::plot::Axis;
use crate::report::Report;
use crate::report::table::{Draw, Table, cell};
use std::fmt::Write as _;
use std::fs;
use std::io;

const STUDY: &[&str] = &[
    "engine",
    "workers",
    "batch",
    "in_flight",
    "hits",
    "popularity",
    "requests_per_s",
    "sets_per_s",
    "us_per_batch",
    "roof_per_s",
    "of_roof",
    "checked",
    "wrong",
    "refused",
];

/// Curves over a logarithmic axis, from 0 up.
const fn over(x: &'static str, y: &'static str, by: &'static str) -> Draw {
    Draw::Lines { x: Axis::log(x), y: Axis::linear(y), by }
}

const TABLES: [Table; 15] = [
    Table {
        name: "parity",
        title: "Kernels against the CPU engine",
        says: "Random and hostile packets through every kernel: descriptors, reply heads and index changes must be what the CPU engine and a model say.",
        columns: &["card", "passed", "failed", "seconds"],
        plot: None,
    },
    Table {
        name: "doorbell",
        title: "A word to a kernel that stays, and back",
        says: "Microseconds from the host's store to the answer it sees. What a batch in the persistent mode cannot fall below.",
        columns: &["pause_ns", "rounds", "us_p50", "us_p99"],
        plot: None,
    },
    Table {
        name: "beside_a_kernel",
        title: "Calls of the driver beside a kernel that stays",
        says: "A call that waits must not be made while batches are served by a persistent kernel.",
        columns: &["call", "kernel_ms", "took_ms", "waits"],
        plot: None,
    },
    Table {
        name: "launches",
        title: "Starting an empty kernel",
        says: "The processor's time for a start among others, and from a start to its end, seen by polling.",
        columns: &["how", "enqueue_us", "launch_and_poll_us", "launch_and_poll_us_p99"],
        plot: None,
    },
    Table {
        name: "launch_rates",
        title: "Empty kernels a second, from several threads",
        says: "Batches a second that the launching modes cannot exceed.",
        columns: &["how", "threads", "launches_per_s"],
        plot: Some(over("threads", "launches_per_s", "how")),
    },
    Table {
        name: "host_reads",
        title: "Reads of the host's memory by the card",
        says: "A packet each, at random slots of 2 KB or densely packed, alone and with 128 B written back. The roof of a stage that is fed from host memory.",
        columns: &["item_bytes", "random", "writes", "reads_per_s", "gb_per_s"],
        plot: None,
    },
    Table {
        name: "copies",
        title: "Copies by the copy engines",
        says: "Gigabytes a second, each way.",
        columns: &["kilobytes", "way", "gb_per_s_each_way"],
        plot: Some(over("kilobytes", "gb_per_s_each_way", "way")),
    },
    Table {
        name: "card_reads",
        title: "Random reads of the card's memory",
        says: "Places a second by size of the memory and of the item. The roof of an index; a fall with the memory's size is its address translation.",
        columns: &["memory_gb", "item_bytes", "reads_per_s", "gb_per_s"],
        plot: Some(over("memory_gb", "reads_per_s", "item_bytes")),
    },
    Table {
        name: "cpu",
        title: "The processor",
        says: "Random lines of memory, and values of 64 B copied to replies: the roof of the room that fills values, whatever the engine.",
        columns: &["what", "threads", "per_s", "per_s_and_thread"],
        plot: Some(over("threads", "per_s", "what")),
    },
    Table {
        name: "modes",
        title: "The whole pipeline: modes and indexes",
        says: "From requests in memory to complete replies in memory. `cpu` is the processor alone, in the same run.",
        columns: STUDY,
        plot: None,
    },
    Table {
        name: "workers",
        title: "The whole pipeline: workers",
        says: "At equal numbers of threads, with a card and without.",
        columns: STUDY,
        plot: Some(over("workers", "requests_per_s", "engine")),
    },
    Table {
        name: "load",
        title: "The whole pipeline: hits and popularity",
        says: "A miss of the card's index is looked up again on the host.",
        columns: STUDY,
        plot: None,
    },
    Table {
        name: "sets",
        title: "The whole pipeline: beside a thread that writes",
        says: "Changes reach the card's index in batches, beside the searches.",
        columns: STUDY,
        plot: None,
    },
    Table {
        name: "in_flight",
        title: "One worker: batches in flight",
        says: "`us_per_batch` is by Little's law, from the start of a batch to its replies, every place taken.",
        columns: STUDY,
        plot: Some(over("in_flight", "requests_per_s", "engine")),
    },
    Table {
        name: "batch",
        title: "The whole pipeline: requests in a batch",
        says: "Small ones cost starts, large ones wait.",
        columns: STUDY,
        plot: Some(over("batch", "requests_per_s", "engine")),
    },
];

/// Writes the page.
///
/// # Errors
/// A file cannot be written.
pub fn write(report: &Report) -> io::Result<()> {
    let mut page = "# What the card does\n\n".to_owned();
    for fact in
        ["card", "multiprocessors", "memory_gb", "processors", "arguments", "seconds", "error"]
    {
        if let Some(value) = report.get(fact) {
            let _ = writeln!(page, "* {fact}: {}", cell(Some(value)));
        }
    }
    for table in TABLES {
        let rows = report.rows(table.name);
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(page, "\n## {}\n\n{}\n", table.title, table.says);
        page.push_str(&table.markdown(rows));
        if let Some(svg) = table.svg(rows) {
            let file = format!("{}.svg", table.name);
            fs::write(report.dir().join(&file), svg)?;
            let _ = writeln!(page, "\n![{}]({file})", table.title);
        }
    }
    fs::write(report.dir().join("report.md"), page)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_page_holds_each_figure_and_a_plot_each_point() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::new(dir.path(), "results").unwrap();
        report.fact("card", json!("X <1>")).unwrap();
        for (threads, rate) in [(1, 10.0), (2, 19.0), (4, 31.0)] {
            let row = json!({ "how": "a<b", "threads": threads, "launches_per_s": rate });
            report.row("launch_rates", row).unwrap();
        }
        write(&report).unwrap();
        let page = fs::read_to_string(dir.path().join("report.md")).unwrap();
        assert!(page.contains("* card: X <1>") && page.contains("| a<b | 4 | 31.00 |"), "{page}");
        let svg = fs::read_to_string(dir.path().join("launch_rates.svg")).unwrap();
        let line = svg.lines().find(|line| line.starts_with("<polyline")).unwrap();
        assert_eq!(line.matches(',').count(), 3);
        assert!(line.contains(">a&lt;b<"), "{line}");
        let kept: Value =
            serde_json::from_slice(&fs::read(dir.path().join("results.json")).unwrap()).unwrap();
        assert_eq!(kept["launch_rates"][1]["launches_per_s"], 19.0);
    }
}
