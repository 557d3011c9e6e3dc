//! The report as a page for people: `report.md`, and a plot for each curve in `plots.html`.
//!
//! In: the figures. Out: Markdown, and one HTML file with the plots. Fails as the file system does.

use super::consolidation;
use crate::output::about;
use crate::report::Report;
use crate::report::table::{Draw, Table, cell, table};
use std::fmt::Write as _;
use std::fs;
use std::io;

const STUDY: &str = "engine workers batch in_flight heads hits popularity requests_per_s \
    sets_per_s accepted stale roof_per_s of_roof checked wrong refused";

const TIMES: &str = "engine offered_per_s batch requests_per_s kept_up batches us_p50 us_p99 \
    us_p999 us_max gather_us request_us_p99 refused";

const BEFORE: &[Table] = table! {
    "goals" "Goals" ["goal met measured floor target unit roof_value of_roof roof by"]
        "What was wanted, what was measured, and what bounds it. `met` is `target`, `floor`, `no`, or why there is no figure. In the smallest form, and on the executor, no time means anything.";
    "steps" "Steps" ["step outcome seconds why"]
        "`done`, cut short by its time, `failed`, `crashed` or `killed`, and why. A step that is not here was not reached.";
    "sanity" "Whether it works" ["what works ms why"]
        "Every kernel that serves requests, by hand and through engines.";
    "fills" "Filling an index in the device's memory"
        ["index items gigabytes load seconds changes_per_s evicted moved overflowed"]
        "Changes come from the host's memory. `changes_per_s` is of the kernel alone.";
    "lookups" "Look-ups from and to the device's memory"
        ["index items gigabytes batch per_s roof_per_s of_roof alone_us_p50 alone_us_p99 hits \
          wrong"]
        "Random keys that are there, batch after batch; `alone_us` is one launch and the sight of its end. The roof is random reads of the device's memory, as many as a look-up needs."
        => Draw::over_log("batch", "per_s", "index");
    "lookups_beside_changes" "Look-ups beside changes"
        ["index offered_per_s changes_per_s lookups_per_s alone_per_s loss"]
        "Both kernels at once; `offered_per_s` is empty where changes come as fast as they are made.";
    "stage" "The GPU stage from and to the host's memory"
        ["engine workers batch in_flight heads checksums requests_per_s roof_per_s of_roof missed \
          refused"]
        "Packets lie in the host's memory and descriptors go back there. The host only rings: it does nothing for a request."
        => Draw::over_log("batch", "requests_per_s", "engine");
    "alone" "One batch at a time" [TIMES]
        "Microseconds from the doorbell until the host sees the answer."
        => Draw::over_log("batch", "us_p99", "engine");
    "offered" "Batches at a rate offered, one engine" [TIMES]
        "Microseconds from when a batch is due until the host sees its answer. The first request of a batch has waited `gather_us` before; `request_us_p99` is both."
        => Draw::over_log("offered_per_s", "request_us_p99", "batch");
    "sets_beside_gets" "GETs of the stage beside changes of its index"
        ["engine workers batch offered_per_s changes_per_s gets_per_s alone_per_s loss refused"]
        "The update kernel beside engines at full speed.";
};

const BEHIND: &[Table] = table! {
    "host_writes" "Writes to the host's memory by the GPU" ["item_bytes writes_per_s gb_per_s"]
        "One behind the other, from the GPU's own memory.";
    "sanitizer" "NVIDIA's compute-sanitizer" ["tool result seconds"]
        "The step `sanity` in its smallest form.";
    "parity" "Kernels against the CPU engine" ["device passed failed seconds"]
        "Random and hostile packets through every kernel: descriptors, reply headers and index changes must be what the CPU engine and a model say.";
    "doorbell" "A word to a kernel that stays, and back" ["pause_ns rounds us_p50 us_p99"]
        "Microseconds from the host's store to the answer it sees. What a batch in the persistent mode cannot fall below.";
    "beside_a_kernel" "Calls of the driver beside a kernel that stays"
        ["call kernel_ms took_ms waits"]
        "A call that waits must not be made while batches are served by a persistent kernel.";
    "launches" "Starting an empty kernel"
        ["how enqueue_us launch_and_poll_us launch_and_poll_us_p99"]
        "The processor's time for a start among others, and from a start to its end, seen by polling.";
    "launch_rates" "Empty kernels a second, from several threads" ["how threads launches_per_s"]
        "Batches a second that the launching modes cannot exceed."
        => Draw::over_log("threads", "launches_per_s", "how");
    "host_reads" "Reads of the host's memory by the GPU"
        ["item_bytes random writes reads_per_s gb_per_s"]
        "A packet each, at random slots of 2 KB or densely packed, alone and with 128 B written back. The roof of a stage that is fed from host memory.";
    "copies" "Copies by the copy engines" ["kilobytes way gb_per_s_each_way"]
        "Gigabytes a second, each way."
        => Draw::over_log("kilobytes", "gb_per_s_each_way", "way");
    "card_reads" "Random reads of the GPU's memory" ["memory_gb item_bytes reads_per_s gb_per_s"]
        "Places a second by size of the memory and of the item. The roof of an index; a fall with the memory's size is its address translation."
        => Draw::over_log("memory_gb", "reads_per_s", "item_bytes");
    "cpu" "The processor" ["what threads per_s per_s_and_thread"]
        "Random lines of memory, and values of 64 B copied to replies: the roof of the stage that fills values, whatever the engine."
        => Draw::over_log("threads", "per_s", "what");
    "modes" "The whole pipeline: modes and indexes" [STUDY]
        "From requests in memory to complete replies in memory. `cpu` is the processor alone, in the same run.";
    "whole" "The whole pipeline: replies that the GPU writes whole" [STUDY]
        "`accepted`: the share of the replies that the filter let pass; `stale`: the share that it did not."
        => Draw::over_log("batch", "requests_per_s", "engine");
    "whole_beside_sets" "The same beside threads that write" [STUDY]
        "Each thread has a processor of its own: the more of them write, the fewer workers there are."
        => Draw::lines("sets_per_s", "requests_per_s", "engine");
    "workers" "The whole pipeline: workers" [STUDY]
        "At equal numbers of threads, with a GPU and without."
        => Draw::over_log("workers", "requests_per_s", "engine");
    "load" "The whole pipeline: hits and popularity" [STUDY]
        "A miss of the GPU's index is looked up again on the host.";
    "sets" "The whole pipeline: beside a thread that writes" [STUDY]
        "By way of the store; changes reach the GPU's index in batches, beside the searches.";
    "in_flight" "One worker: batches in flight" [STUDY]
        "What waits of one worker's batches is hidden by the next ones."
        => Draw::over_log("in_flight", "requests_per_s", "engine");
    "batch" "The whole pipeline: requests in a batch" [STUDY]
        "Small ones cost starts, large ones wait."
        => Draw::over_log("batch", "requests_per_s", "engine");
};

/// Facts that are reported at the top.
const FACTS: &str =
    "gpu multiprocessors memory_gb open_seconds processors host_pages arguments seconds running";

/// Writes the page.
///
/// # Errors
/// A file cannot be written.
pub fn write(report: &Report) -> io::Result<()> {
    let mut page = "# What the GPU does\n\n".to_owned();
    let mut plots =
        "<!doctype html><meta charset=\"utf-8\"><title>What the GPU does</title>\n".to_owned();
    for fact in FACTS.split_ascii_whitespace() {
        if let Some(value) = report.get(fact).filter(|value| !value.is_null()) {
            let _ = writeln!(page, "* {fact}: {}", cell(Some(value)));
        }
    }
    for table in [BEFORE, consolidation::TABLES, BEHIND].into_iter().flatten() {
        let rows = report.rows(table.name);
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(page, "\n## {}\n\n{}\n", table.title, table.says);
        page.push_str(&table.markdown(rows));
        if let Some(svg) = table.svg(rows) {
            let _ = writeln!(plots, "<h2>{}</h2>\n<p>{}</p>\n{svg}", table.title, table.says);
        }
    }
    for (name, text) in [("plots.html", plots), ("report.md", page)] {
        let file = report.dir().join(name);
        fs::write(&file, text).map_err(|e| about(file.display(), &e))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_page_holds_each_figure_and_a_plot_each_point() {
        let dir = tempfile::tempdir().unwrap();
        let mut report = Report::new(dir.path(), "results").unwrap();
        report.fact("gpu", json!("X <1>")).unwrap();
        for (threads, rate) in [(1, 10.0), (2, 19.0), (4, 31.0)] {
            let row = json!({ "how": "a<b", "threads": threads, "launches_per_s": rate });
            report.row("launch_rates", row).unwrap();
        }
        write(&report).unwrap();
        let page = fs::read_to_string(dir.path().join("report.md")).unwrap();
        assert!(page.contains("* gpu: X <1>") && page.contains("| a<b | 4 | 31.00 |"), "{page}");
        let svg = fs::read_to_string(dir.path().join("plots.html")).unwrap();
        let line = svg.lines().find(|line| line.starts_with("<polyline")).unwrap();
        assert_eq!(line.matches(',').count(), 3);
        assert!(line.contains(">a&lt;b<"), "{line}");
        let kept: Value =
            serde_json::from_slice(&fs::read(dir.path().join("results.json")).unwrap()).unwrap();
        assert_eq!(kept["launch_rates"][1]["launches_per_s"], 19.0);
    }
}
