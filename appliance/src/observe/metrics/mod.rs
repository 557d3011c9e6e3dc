//! Metrics: every counter there is, as text for Prometheus and for `gnomon stats` and `gnomon top`.
//!
//! In: counters that others write, read without taking anything from them. Out: a page in the text
//! exposition format, over HTTP on a Unix socket or a TCP address of its own. `memcached` holds
//! the metrics that memcached_exporter has, under its names; `gpus`, `own` and `engines` the rest. A family's name,
//! type, labels and meaning stand in one place, from which `docs/metrics.md` is made.

mod client;
mod connections;
mod engines;
mod family;
mod gpus;
mod health;
mod http;
mod memcached;
mod own;
mod power;
mod reading;
mod screen;
mod sources;

pub(crate) use client::connect;
pub use client::{FetchError, fetch};
pub use family::{Family, Kind};
pub use gpus::GpuFigures;
pub use http::{MetricsError, serve};
pub use power::Power;
pub use reading::Reading;
pub use screen::screen;
pub use sources::Sources;

use family::Exposition;
use std::fmt::Write;

/// Every family, in the order of the page.
pub fn families() -> Vec<&'static Family> {
    let own = own::families().chain(gpus::families()).chain(health::families());
    memcached::families().chain(own).collect()
}

/// The page of this moment.
pub fn page(sources: &Sources, power: &mut Power) -> String {
    let mut out = Exposition::default();
    memcached::collect(sources, &mut out);
    own::collect(sources, power, &mut out);
    gpus::collect(&sources.gpus, &mut out);
    health::collect(sources, &mut out);
    out.into_text()
}

/// The lines of a page that are samples of `name`; the value alone where there are no labels. A histogram's have names of
/// their own behind its.
pub fn samples(page: &str, name: &str) -> String {
    let mut text = String::new();
    let is_histogram = families().iter().any(|f| f.name == name && f.kind == Kind::Histogram);
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let of_histogram = line.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
        if is_histogram && of_histogram {
            let _ = writeln!(text, "{line}");
            continue;
        }
        match line.strip_prefix(name) {
            Some(rest) if rest.starts_with('{') => {
                let _ = writeln!(text, "{line}");
            }
            Some(rest) if rest.starts_with(' ') => {
                let _ = writeln!(text, "{}", rest.trim());
            }
            _ => {}
        }
    }
    text
}

/// `docs/metrics.md`.
pub fn reference() -> String {
    let mut text = String::from(HEAD);
    for family in families() {
        let labels: Vec<String> = family.labels.iter().map(|l| format!("`{l}`")).collect();
        let (name, kind, labels, help) =
            (family.name, family.kind.name(), labels.join(", "), family.help);
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{name}` | {kind} | {labels} | {help} |");
    }
    text
}

const HEAD: &str = "\
# Metrics

<!-- Made from the code: `gnomon stats --list >docs/metrics.md`. A test compares. -->

`gnomon serve --metrics` serves these at `/metrics`; `docs/operations.md` says how. Names that begin
with `memcached_` are memcached_exporter's and mean what they mean there, so that dashboards and
alerts made for it work. Its metrics of extstore and of the proxy, which it has only where the server
has these, are left out. Counters begin anew with the process; those that `stats` has begin anew with
`stats reset`, too.

Each worker serves one queue of every port, the one with its number. A family without samples is one
that this machine or this build cannot fill: no RAPL that may be read, no GPU in use, no exception path, no
item yet.

| name | type | labels | meaning |
|---|---|---|---|
";

#[cfg(test)]
mod tests;
