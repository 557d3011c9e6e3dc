//! A family of metrics, and the text exposition format (version 0.0.4) that families are given in.
//!
//! In: families and their samples, all samples of a family after one another. Out: text. Never
//! fails: a sample with another number of labels than its family has is a fault of the code, which
//! tests find.

use std::fmt::{Display, Write};

/// Labels of a worker's families, and of a port's.
pub(super) const WORKER: &[&str] = &["worker"];
pub(super) const PORT: &[&str] = &["port"];

/// What a metric is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only ever grows.
    Counter,
    /// What is there now.
    Gauge,
    /// Numbers, cumulated by upper bounds.
    Histogram,
}

impl Kind {
    /// Prometheus' word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

/// A family, and where its figure is.
pub(super) type Field<T> = (Family, fn(&T) -> u64);

/// Names of labels.
type Labels = &'static [&'static str];

/// A name and what stands behind it.
#[derive(Debug)]
pub struct Family {
    /// Its name.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// Names of its labels.
    pub labels: Labels,
    /// One sentence for people.
    pub help: &'static str,
}

/// A counter's family.
pub(super) const fn counter(name: &'static str, labels: Labels, help: &'static str) -> Family {
    Family { name, kind: Kind::Counter, labels, help }
}

/// A gauge's family.
pub(super) const fn gauge(name: &'static str, labels: Labels, help: &'static str) -> Family {
    Family { name, kind: Kind::Gauge, labels, help }
}

/// A histogram's family.
pub(super) const fn histogram(name: &'static str, labels: Labels, help: &'static str) -> Family {
    Family { name, kind: Kind::Histogram, labels, help }
}

/// Single families. Of each: what it is called here, type, name, labels, meaning.
macro_rules! families {
    ($($family:ident $kind:ident $name:literal $labels:expr, $help:literal;)*) => {
        $(static $family: Family = $kind($name, $labels, $help);)*
    };
}
pub(super) use families;

/// Families with the same labels. Of each: type, name, meaning, and its row of `stats`; or its figure,
/// of what is named behind the labels.
macro_rules! fields {
    ($labels:expr; $($kind:ident $name:literal $help:literal $row:literal;)*) => {
        &[$(($kind($name, $labels, $help), $row)),*]
    };
    ($labels:expr, $of:ident; $($kind:ident $name:literal $help:literal $figure:expr;)*) => {
        &[$(($kind($name, $labels, $help), |$of| $figure)),*]
    };
}
pub(super) use fields;

/// The page in the making.
#[derive(Debug, Default)]
pub(super) struct Exposition(String);

impl Exposition {
    /// Begins a family. Its samples come next.
    pub(super) fn family<'a>(&'a mut self, family: &'a Family) -> Samples<'a> {
        // Writing to a String cannot fail, here and below.
        let _ = writeln!(self.0, "# HELP {} {}", family.name, family.help);
        let _ = writeln!(self.0, "# TYPE {} {}", family.name, family.kind.name());
        Samples { text: &mut self.0, family }
    }

    pub(super) fn into_text(self) -> String {
        self.0
    }
}

/// Takes the samples of one family.
#[derive(Debug)]
pub(super) struct Samples<'a> {
    text: &'a mut String,
    family: &'a Family,
}

impl Samples<'_> {
    /// A counter's or gauge's value, with the values of the family's labels.
    pub(super) fn sample(&mut self, labels: &[&str], value: impl Display) {
        self.line("", labels, None, value);
    }

    /// A whole histogram: durations in nanoseconds, and how many took no longer.
    pub(super) fn histogram(
        &mut self,
        labels: &[&str],
        cumulative: &[(u64, u64)],
        count: u64,
        sum_ns: u64,
    ) {
        self.distribution(labels, cumulative, count, sum_ns, Seconds);
    }

    /// The same of anything: numbers, and how many were no larger, each written as `unit` has it.
    pub(super) fn distribution<U: Display>(
        &mut self,
        labels: &[&str],
        cumulative: &[(u64, u64)],
        count: u64,
        sum: u64,
        unit: impl Fn(u64) -> U,
    ) {
        for &(number, n) in cumulative {
            self.line("_bucket", labels, Some(&unit(number).to_string()), n);
        }
        self.line("_bucket", labels, Some("+Inf"), count);
        self.line("_sum", labels, None, unit(sum));
        self.line("_count", labels, None, count);
    }

    fn line(&mut self, suffix: &str, labels: &[&str], le: Option<&str>, value: impl Display) {
        let _ = write!(self.text, "{}{suffix}", self.family.name);
        let named = self.family.labels.iter().copied().zip(labels.iter().copied());
        for (n, (name, value)) in named.chain(le.map(|le| ("le", le))).enumerate() {
            self.text.push(if n == 0 { '{' } else { ',' });
            self.text.push_str(name);
            self.text.push_str("=\"");
            for c in value.chars() {
                match c {
                    '\\' => self.text.push_str("\\\\"),
                    '"' => self.text.push_str("\\\""),
                    '\n' => self.text.push_str("\\n"),
                    c => self.text.push(c),
                }
            }
            self.text.push('"');
        }
        let end = if labels.is_empty() && le.is_none() { "" } else { "}" };
        let _ = writeln!(self.text, "{end} {value}");
    }
}

/// Nanoseconds, as seconds to the last digit.
pub(super) struct Seconds(pub(super) u64);

impl Display for Seconds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{:09}", self.0 / 1_000_000_000, self.0 % 1_000_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_reads_so() {
        const PLAIN: Family = gauge("a_bytes", &[], "Some.");
        const LABELLED: Family = counter("b_total", &["x", "y"], "More.");
        const TIMES: Family =
            Family { name: "c_seconds", kind: Kind::Histogram, labels: &["x"], help: "Time." };
        let mut page = Exposition::default();
        page.family(&PLAIN).sample(&[], 5);
        page.family(&LABELLED).sample(&["q\"\\\n", ""], 0.25);
        page.family(&TIMES).histogram(&["1"], &[(1023, 2), (2_000_000_047, 3)], 4, 5_000_000_000);
        assert_eq!(
            page.into_text(),
            "\
# HELP a_bytes Some.
# TYPE a_bytes gauge
a_bytes 5
# HELP b_total More.
# TYPE b_total counter
b_total{x=\"q\\\"\\\\\\n\",y=\"\"} 0.25
# HELP c_seconds Time.
# TYPE c_seconds histogram
c_seconds_bucket{x=\"1\",le=\"0.000001023\"} 2
c_seconds_bucket{x=\"1\",le=\"2.000000047\"} 3
c_seconds_bucket{x=\"1\",le=\"+Inf\"} 4
c_seconds_sum{x=\"1\"} 5.000000000
c_seconds_count{x=\"1\"} 4
"
        );
    }
}
