//! A table of a report, for people: aligned text, Markdown, or a plot.
//!
//! In: rows as JSON objects. Out: text. A column that no row has is left out. Cannot fail.

use crate::plot::{Axis, Plot, bars, figure};
use serde_json::Value;
use std::fmt::Write as _;

/// What a table shows.
#[derive(Debug, Clone, Copy)]
pub struct Table {
    /// What it is called in the report.
    pub name: &'static str,
    /// What people read above it.
    pub title: &'static str,
    /// What it says, in a sentence or two.
    pub says: &'static str,
    /// Fields of the rows, from left to right, with blanks between.
    pub columns: &'static str,
    /// What is drawn of it.
    pub plot: Option<Draw>,
}

/// A table: its name, its title, its columns, what it says, and what is drawn of it if anything is.
/// Several, a semicolon behind each, are a slice.
macro_rules! table {
    ($name:literal $title:literal [$columns:expr] $says:literal $(=> $plot:expr)?) => {
        $crate::report::table::Table {
            name: $name,
            title: $title,
            says: $says,
            columns: $columns,
            plot: $crate::report::table::table!(@plot $($plot)?),
        }
    };
    ($($name:literal $title:literal [$columns:expr] $says:literal $(=> $plot:expr)?;)+) => {
        &[$($crate::report::table::table! { $name $title [$columns] $says $(=> $plot)? }),+]
    };
    (@plot) => { None };
    (@plot $plot:expr) => { Some($plot) };
}
pub(crate) use table;

/// What is drawn of a table.
#[derive(Debug, Clone, Copy)]
pub enum Draw {
    /// A curve for each value of a field.
    Lines {
        /// The field along.
        x: Axis<'static>,
        /// The field up.
        y: Axis<'static>,
        /// The field that distinguishes the curves.
        by: &'static str,
    },
    /// A bar for each row, of parts on top of one another.
    Bars {
        /// The field with the bar's name.
        label: &'static str,
        /// What is piled up.
        y: &'static str,
        /// The fields with the parts' heights, from below.
        parts: &'static [&'static str],
    },
}

impl Draw {
    /// Curves over a linear axis, from 0 up.
    pub const fn lines(x: &'static str, y: &'static str, by: &'static str) -> Self {
        Self::Lines { x: Axis::linear(x), y: Axis::linear(y), by }
    }

    /// The same over a logarithmic axis.
    pub const fn over_log(x: &'static str, y: &'static str, by: &'static str) -> Self {
        Self::Lines { x: Axis::log(x), y: Axis::linear(y), by }
    }
}

impl Table {
    /// The columns that there is something in.
    fn used(&self, rows: &[Value]) -> Vec<&'static str> {
        let has = |row: &Value, column: &str| row.get(column).is_some_and(|v| !v.is_null());
        let used = |column: &&str| rows.iter().any(|row| has(row, column));
        self.columns.split_ascii_whitespace().filter(used).collect()
    }

    /// As Markdown.
    pub fn markdown(&self, rows: &[Value]) -> String {
        let columns = self.used(rows);
        let mut text = String::new();
        let _ = writeln!(text, "| {} |", columns.join(" | "));
        let _ = writeln!(text, "|{}", "---|".repeat(columns.len()));
        for row in rows {
            let cells: Vec<String> = columns.iter().map(|column| cell(row.get(column))).collect();
            let _ = writeln!(text, "| {} |", cells.join(" | "));
        }
        text
    }

    /// As lines of equal columns, figures to the right.
    pub fn text(&self, rows: &[Value]) -> String {
        let mut text = String::new();
        let columns: Vec<Vec<(String, bool)>> = self
            .used(rows)
            .into_iter()
            .map(|column| {
                let cells = rows.iter().map(|row| {
                    let value = row.get(column);
                    (cell(value), value.is_some_and(Value::is_number))
                });
                let right = rows.iter().any(|row| row.get(column).is_some_and(Value::is_number));
                std::iter::once((column.to_owned(), right)).chain(cells).collect()
            })
            .collect();
        for line in 0..=rows.len() {
            let mut gap = "";
            for column in &columns {
                let width = column.iter().map(|(cell, _)| cell.chars().count()).max().unwrap_or(0);
                let Some((cell, right)) = column.get(line) else { continue };
                let _ = match right {
                    true => write!(text, "{gap}{cell:>width$}"),
                    false => write!(text, "{gap}{cell:<width$}"),
                };
                gap = "  ";
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }

    /// As a picture, if there is one of it.
    pub fn svg(&self, rows: &[Value]) -> Option<String> {
        Some(match self.plot? {
            Draw::Lines { x, y, by } => {
                let mut plot = Plot { title: self.title, x, y, curves: Vec::new() };
                for row in rows {
                    let value = |field: &str| row.get(field).and_then(Value::as_f64);
                    if let (Some(along), Some(up)) = (value(x.label), value(y.label)) {
                        plot.add(&cell(row.get(by)), (along, up));
                    }
                }
                plot.svg()
            }
            Draw::Bars { label, y, parts } => {
                let height = |row: &Value, part| row.get(part).and_then(Value::as_f64);
                let bar = |row: &Value| {
                    let parts = parts.iter().map(|part| height(row, *part).unwrap_or(0.0));
                    (cell(row.get(label)), parts.collect())
                };
                bars(self.title, y, parts, &rows.iter().map(bar).collect::<Vec<_>>())
            }
        })
    }
}

/// A value as text.
pub fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Number(number)) if number.is_f64() => figure(number.as_f64().unwrap_or(0.0)),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: Table = Table {
        name: "t",
        title: "A title",
        says: "",
        columns: "what n never",
        plot: Some(Draw::Bars { label: "what", y: "n", parts: &["n"] }),
    };

    #[test]
    fn text_is_aligned_and_holds_what_there_is() {
        let rows = [json!({ "what": "one", "n": 5 }), json!({ "what": "others", "n": 1234.2 })];
        assert_eq!(TABLE.text(&rows), "what       n\none        5\nothers  1234\n");
        assert_eq!(
            TABLE.markdown(&rows),
            "| what | n |\n|---|---|\n| one | 5 |\n| others | 1234 |\n"
        );
        let svg = TABLE.svg(&rows).unwrap();
        assert_eq!(svg.matches("<rect x=").count(), 2, "{svg}");
        assert!(svg.contains(">others<") && svg.contains(">A title<"), "{svg}");
    }

    #[test]
    fn rows_become_curves() {
        let (x, y) = (Axis::log("n"), Axis::linear("m"));
        let table = Table { plot: Some(Draw::Lines { x, y, by: "what" }), ..TABLE };
        let rows = [
            json!({ "what": "a", "n": 1, "m": 1.0 }),
            json!({ "what": "b", "n": 1, "m": 3 }),
            json!({ "what": "a", "n": 2, "m": 2.0 }),
            json!({ "what": "a", "n": 3, "m": null }),
        ];
        let svg = table.svg(&rows).unwrap();
        let lines: Vec<&str> = svg.lines().filter(|l| l.starts_with("<polyline")).collect();
        assert_eq!(
            lines.iter().map(|l| l.matches(',').count()).collect::<Vec<_>>(),
            [2, 1],
            "{svg}"
        );
    }
}
