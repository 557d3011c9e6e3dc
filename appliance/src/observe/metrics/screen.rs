//! The screen of `gnomon top`: what happened between two readings, in plain text.
//!
//! In: two readings and the time between them. Out: lines of at most [`WIDTH`] columns. What a
//! reading lacks is 0 or left out; nothing fails.

use super::reading::Reading;
use std::fmt::Write;
use std::time::Duration;

/// Columns.
const WIDTH: usize = 80;
/// Reasons for drops that are shown, most frequent first.
const REASONS_MAX: usize = 6;
/// Workers and kinds of requests that are shown.
const ROWS_MAX: usize = 32;

const DURATION: &str = "gnomon_request_duration_seconds";

/// What changed.
struct Change<'a> {
    before: &'a Reading,
    now: &'a Reading,
    seconds: f64,
}

impl Change<'_> {
    /// By how much a counter grew, one that began anew from 0.
    fn grown(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let (before, now) = (self.before.sum(name, labels), self.now.sum(name, labels));
        if now >= before { now - before } else { now }
    }

    /// The same to a second.
    fn rate(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        ratio(self.grown(name, labels), self.seconds)
    }

    fn gauge(&self, name: &str) -> f64 {
        self.now.sum(name, &[])
    }

    /// The duration that `share` of the requests with these labels did not exceed, in seconds;
    /// at most twice too high.
    fn quantile(&self, labels: &[(&str, &str)], share: f64) -> f64 {
        let bucket = format!("{DURATION}_bucket");
        let count = self.grown(&format!("{DURATION}_count"), labels);
        for le in self.now.values(&bucket, "le") {
            let mut with_le = labels.to_vec();
            with_le.push(("le", &le));
            if self.grown(&bucket, &with_le) >= count * share {
                return le.parse().unwrap_or(0.0);
            }
        }
        0.0
    }
}

fn ratio(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { part / whole } else { 0.0 }
}

/// The screen.
pub fn screen(before: &Reading, now: &Reading, passed: Duration) -> String {
    let change = Change { before, now, seconds: passed.as_secs_f64() };
    let mut text = String::new();
    summary(&change, &mut text);
    requests(&change, &mut text);
    workers(&change, &mut text);
    drops(&change, &mut text);
    // Whatever a label holds, it moves no cursor.
    let clean = |line: &str| -> String {
        line.chars().filter(|c| !c.is_control()).take(WIDTH).chain(['\n']).collect()
    };
    text.lines().map(clean).collect()
}

// Writing to a String cannot fail, here and below.
fn summary(c: &Change<'_>, text: &mut String) {
    let version = c.now.values("gnomon_build_info", "version").pop().unwrap_or_default();
    let version = version.split(' ').next().unwrap_or_default();
    let _ = writeln!(
        text,
        "gnomon {version}, up {} s; the last {:.1} s",
        c.gauge("memcached_uptime_seconds"),
        c.seconds
    );
    let hits = c.grown("memcached_commands_total", &[("command", "get"), ("status", "hit")]);
    let gets = c.grown("memcached_commands_total", &[("command", "get")]);
    let _ = writeln!(
        text,
        "requests {}/s   keys requested {}/s, found {:.1} %   sets {}/s",
        short(c.rate(&format!("{DURATION}_count"), &[])),
        short(ratio(gets, c.seconds)),
        100.0 * ratio(hits, gets),
        short(c.rate("memcached_commands_total", &[("command", "set")])),
    );
    let _ = writeln!(
        text,
        "items {}   bytes {} of {}   evicted {}/s   expired {}/s",
        short(c.gauge("memcached_current_items")),
        short(c.gauge("memcached_current_bytes")),
        short(c.gauge("memcached_limit_bytes")),
        short(c.rate("memcached_items_evicted_total", &[])),
        short(c.rate("memcached_items_reclaimed_total", &[])),
    );
    let _ = writeln!(
        text,
        "connections {}   refused {}/s   slots free {} of {}   epoch lag {}   in limbo {}",
        c.gauge("memcached_current_connections"),
        short(c.rate("memcached_connections_rejected_total", &[])),
        short(c.gauge("gnomon_packet_slots_free")),
        short(c.gauge("gnomon_packet_slots")),
        c.gauge("gnomon_store_epoch_lag"),
        short(c.gauge("gnomon_store_limbo_chunks")),
    );
    power(c, text);
}

/// By where it goes: zones are named after it.
fn power(c: &Change<'_>, text: &mut String) {
    const ENERGY: &str = "gnomon_energy_joules_total";
    let zones = c.now.values(ENERGY, "zone");
    let joules = c.grown(ENERGY, &[]);
    if zones.is_empty() || joules <= 0.0 {
        let _ = writeln!(text, "power unknown");
        return;
    }
    let of = |kind: &str| {
        let zones = zones.iter().filter(|zone| zone.starts_with(kind));
        zones.map(|zone| c.grown(ENERGY, &[("zone", zone)])).sum::<f64>()
    };
    let parts: Vec<String> = ["package", "dram", "gpu", "base"]
        .into_iter()
        .map(|kind| (kind, of(kind)))
        .filter(|(_, joules)| *joules > 0.0)
        .map(|(kind, joules)| format!("{kind} {:.1}", ratio(joules, c.seconds)))
        .collect();
    let krps = c.grown(&format!("{DURATION}_count"), &[]) / 1e3;
    let watts = ratio(joules, c.seconds);
    let each = krps / joules;
    let _ = writeln!(text, "power {watts:.1} W, KRPS/W {each:.3}: {}", parts.join(", "));
}

fn requests(c: &Change<'_>, text: &mut String) {
    let count = format!("{DURATION}_count");
    let mut rows = 0;
    for transport in c.now.values(&count, "transport") {
        for command in c.now.values(&count, "command") {
            let labels = [("transport", transport.as_str()), ("command", command.as_str())];
            let n = c.grown(&count, &labels);
            if n <= 0.0 || rows == ROWS_MAX {
                continue;
            }
            if rows == 0 {
                let heads = ("requests", "a second", "mean", "half below", "99 % below");
                let _ = writeln!(
                    text,
                    "\n{:<14}{:>10}{:>12}{:>12}{:>12}",
                    heads.0, heads.1, heads.2, heads.3, heads.4
                );
            }
            rows += 1;
            let mean = ratio(c.grown(&format!("{DURATION}_sum"), &labels), n);
            let _ = writeln!(
                text,
                "{:<14}{:>10}{:>12}{:>12}{:>12}",
                format!("{transport} {command}"),
                short(ratio(n, c.seconds)),
                time(mean),
                time(c.quantile(&labels, 0.5)),
                time(c.quantile(&labels, 0.99)),
            );
        }
    }
}

fn workers(c: &Change<'_>, text: &mut String) {
    let all = c.now.values("gnomon_worker_turns_total", "worker");
    if all.is_empty() {
        return;
    }
    let heads = ["worker", "received", "answered", "dropped", "empty", "batch", "wrong", "parsed"];
    let _ = writeln!(
        text,
        "\n{:<14}{:>10}{:>10}{:>9}{:>9}{:>9}{:>9}{:>9}",
        heads[0], heads[1], heads[2], heads[3], heads[4], heads[5], heads[6], heads[7]
    );
    for worker in all.iter().take(ROWS_MAX) {
        let of = [("worker", worker.as_str())];
        let (right, wrong) = (
            c.grown("gnomon_engine_hints_right_total", &of),
            c.grown("gnomon_engine_hints_wrong_total", &of),
        );
        let batches = c.grown("gnomon_engine_batches_total", &of);
        let requests = c.grown("gnomon_engine_requests_total", &of);
        let turns = c.grown("gnomon_worker_turns_total", &of);
        let _ = writeln!(
            text,
            "{worker:<14}{:>10}{:>10}{:>9}{:>7.1} %{:>9.1}{:>7.1} %{:>7.1} %",
            short(c.rate("gnomon_worker_frames_received_total", &of)),
            short(c.rate("gnomon_worker_frames_answered_total", &of)),
            short(c.rate("gnomon_worker_frames_dropped_total", &of)),
            100.0 * ratio(c.grown("gnomon_worker_empty_turns_total", &of), turns),
            ratio(requests, batches),
            100.0 * ratio(wrong, right + wrong),
            100.0 * ratio(c.grown("gnomon_worker_requests_parsed_total", &of), requests),
        );
    }
}

fn drops(c: &Change<'_>, text: &mut String) {
    let name = "gnomon_worker_frames_dropped_total";
    let reasons = c.now.values(name, "reason");
    let mut rates: Vec<(String, f64)> = reasons
        .into_iter()
        .map(|reason| {
            let rate = c.rate(name, &[("reason", &reason)]);
            (reason, rate)
        })
        .filter(|(_, rate)| *rate > 0.0)
        .collect();
    rates.sort_by(|a, b| b.1.total_cmp(&a.1));
    if !rates.is_empty() {
        let _ = writeln!(text, "\n{:<26}{:>10}", "dropped because", "a second");
    }
    for (reason, rate) in rates.iter().take(REASONS_MAX) {
        let _ = writeln!(text, "{reason:<26}{:>10}", short(*rate));
    }
}

/// A number in few columns.
fn short(n: f64) -> String {
    match n {
        n if n >= 1e10 => format!("{:.1} G", n / 1e9),
        n if n >= 1e7 => format!("{:.1} M", n / 1e6),
        n if n >= 1e4 => format!("{:.1} k", n / 1e3),
        n if n == n.trunc() || n >= 100.0 => format!("{n:.0}"),
        n => format!("{n:.1}"),
    }
}

/// A duration in few columns.
fn time(seconds: f64) -> String {
    match seconds {
        s if s.is_infinite() => "> 17 s".to_owned(),
        s if s >= 1.0 => format!("{s:.1} s"),
        s if s >= 1e-3 => format!("{:.1} ms", s * 1e3),
        s => format!("{:.1} us", s * 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "\
memcached_commands_total{command=\"get\",status=\"hit\"} 10
gnomon_worker_frames_dropped_total{worker=\"0\",reason=\"overload\"} 9
gnomon_worker_turns_total{worker=\"0\"} 100
";
    const NOW: &str = "\
gnomon_build_info{version=\"9\x1b[2J\"} 1
memcached_commands_total{command=\"get\",status=\"hit\"} 40
memcached_commands_total{command=\"get\",status=\"miss\"} 10
gnomon_worker_frames_dropped_total{worker=\"0\",reason=\"overload\"} 3
gnomon_worker_frames_dropped_total{worker=\"0\",reason=\"tx_full\"} 20000
gnomon_worker_turns_total{worker=\"0\"} 200
gnomon_worker_empty_turns_total{worker=\"0\"} 25
gnomon_engine_batches_total{worker=\"0\"} 4
gnomon_engine_requests_total{worker=\"0\"} 10
gnomon_energy_joules_total{zone=\"package-0:0\"} 20
gnomon_energy_joules_total{zone=\"base\"} 5
gnomon_request_duration_seconds_bucket{transport=\"udp\",command=\"get\",le=\"0.000001023\"} 2
gnomon_request_duration_seconds_bucket{transport=\"udp\",command=\"get\",le=\"0.002047\"} 3
gnomon_request_duration_seconds_bucket{transport=\"udp\",command=\"get\",le=\"+Inf\"} 4
gnomon_request_duration_seconds_sum{transport=\"udp\",command=\"get\"} 8
gnomon_request_duration_seconds_count{transport=\"udp\",command=\"get\"} 4
";

    #[test]
    fn a_screen_tells_what_changed() {
        let (before, now) = (Reading::new(BEFORE), Reading::new(NOW));
        let text = screen(&before, &now, Duration::from_secs(2));
        for part in [
            "gnomon 9[2J, up 0 s; the last 2.0 s\n",
            "requests 2/s   keys requested 20/s, found 75.0 %",
            "power 12.5 W, KRPS/W 0.000: package 10.0, base 2.5\n",
            "udp get                2       2.0 s      1.0 us      > 17 s\n",
            "0                      0         0     9997   25.0 %      2.5    0.0 %    0.0 %\n",
            "tx_full                       10.0 k\noverload                         1.5\n",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
        assert!(!text.contains('\x1b') && text.lines().all(|l| l.chars().count() <= WIDTH));
        let nothing = Reading::default();
        let text = screen(&nothing, &nothing, Duration::ZERO);
        assert!(text.starts_with("gnomon , up 0 s") && text.contains("\npower unknown\n"));
    }
}
