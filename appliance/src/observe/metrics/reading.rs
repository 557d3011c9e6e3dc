//! A page read back: samples by name and labels, for `gnomon stats` and `gnomon top`.
//!
//! In: text in the exposition format. Out: [`Reading`]. Lines that are none of ours are left out;
//! nothing fails.

use std::collections::BTreeMap;

/// The samples of one page, in its order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading(Vec<Sample>);

/// A name, its labels and a value.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Sample {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) value: f64,
}

impl Reading {
    /// Reads a page.
    pub fn new(page: &str) -> Self {
        Self(page.lines().filter(|l| !l.starts_with('#')).filter_map(sample).collect())
    }

    /// The samples of this name.
    pub(super) fn of<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.0.iter().filter(move |s| s.name == name)
    }

    /// The sum of the samples of this name that have these labels.
    pub fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        self.of(name).filter(|s| s.has(labels)).fold(0.0, |sum, s| sum + s.value)
    }

    /// The values that a label has among the samples of this name, each once, in their order.
    pub(super) fn values(&self, name: &str, label: &str) -> Vec<String> {
        let mut values: Vec<String> = Vec::new();
        for value in self.of(name).filter_map(|s| s.labels.get(label)) {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
        values
    }
}

impl Sample {
    pub(super) fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.labels.get(*name).is_some_and(|v| v == value))
    }
}

/// `name{label="value",…} number`.
fn sample(line: &str) -> Option<Sample> {
    let name_len = line.find(['{', ' '])?;
    let (name, mut rest) = line.split_at_checked(name_len)?;
    let mut labels = BTreeMap::new();
    if let Some(inner) = rest.strip_prefix('{') {
        rest = inner;
        while let Some((label, behind)) = rest.split_once("=\"") {
            let (value, behind) = quoted(behind)?;
            labels.insert(label.to_owned(), value);
            rest = behind.strip_prefix(',').unwrap_or(behind);
            if rest.starts_with('}') {
                break;
            }
        }
        rest = rest.strip_prefix('}')?;
    }
    Some(Sample { name: name.to_owned(), labels, value: rest.trim().parse().ok()? })
}

/// The text up to the closing quote, and what is behind that.
fn quoted(text: &str) -> Option<(String, &str)> {
    let (mut value, mut chars) = (String::new(), text.chars());
    loop {
        match chars.next()? {
            '"' => return Some((value, chars.as_str())),
            '\\' => value.push(match chars.next()? {
                'n' => '\n',
                other => other,
            }),
            other => value.push(other),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_found_by_name_and_labels() {
        let page = "# HELP a x\n# TYPE a gauge\na 5\nb_total{x=\"1\",y=\"}, \\\"\\\\\\n\"} 2.5\n\
                    b_total{x=\"2\",y=\"\"} 1e3\nbroken\nb_total{x=\"1\" 7\nb_total{x=\"1\n c{} 1\nd{} 4\n";
        let r = Reading::new(page);
        assert!((r.sum("a", &[]) - 5.0).abs() < 1e-9);
        assert!((r.sum("b_total", &[]) - 1002.5).abs() < 1e-9);
        assert!((r.sum("b_total", &[("x", "1")]) - 2.5).abs() < 1e-9);
        assert!((r.sum("d", &[]) - 4.0).abs() < 1e-9);
        assert_eq!(r.values("b_total", "y"), ["}, \"\\\n", ""]);
        assert_eq!(r.sum("none", &[]).to_string(), "0");
    }
}
