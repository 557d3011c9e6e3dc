//! Figures, kept as they come.
//!
//! In: rows, each of a table. Out: a file of JSON, written anew after each row, so that a reader that is
//! ended early leaves what was measured. [`table`] shows them to people. Fails as the file system
//! does.

mod named;
pub mod table;

use crate::output::{about, tell};
pub(crate) use named::named;
use serde_json::{Map, Value};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The figures of a run.
#[derive(Debug)]
pub struct Report {
    dir: PathBuf,
    name: String,
    all: Map<String, Value>,
}

impl Report {
    /// An empty report, to be kept in `dir`, which is made, in the file `name`.json.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(dir: &Path, name: &str) -> io::Result<Self> {
        fs::create_dir_all(dir).map_err(|e| about(dir.display(), &e))?;
        Ok(Self { dir: dir.to_owned(), name: name.to_owned(), all: Map::new() })
    }

    /// The report that is kept there, to be gone on with; an empty one when there is none.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn resume(dir: &Path, name: &str) -> io::Result<Self> {
        let mut report = Self::new(dir, name)?;
        let kept = fs::read(dir.join(format!("{name}.json")));
        if let Some(Value::Object(all)) = kept.ok().and_then(|t| serde_json::from_slice(&t).ok()) {
            report.all = all;
        }
        Ok(report)
    }

    /// Where it is kept.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What its file is called, without the ending.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Notes a fact about the run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn fact(&mut self, name: &str, value: Value) -> io::Result<()> {
        self.all.insert(name.to_owned(), value);
        self.write()
    }

    /// Adds a row to a table, and reports it to a waiting reader.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn row(&mut self, table: &str, row: Value) -> io::Result<()> {
        tell(format_args!("{table}: {row}"));
        let rows = self.all.entry(table).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(rows) = rows {
            rows.push(row);
        }
        self.write()
    }

    /// Keeps all rows of a table at once.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn table(&mut self, table: &str, rows: Vec<Value>) -> io::Result<()> {
        self.fact(table, Value::Array(rows))
    }

    /// The rows of a table.
    pub fn rows(&self, table: &str) -> &[Value] {
        self.all.get(table).and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }

    /// A fact.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.all.get(name)
    }

    fn write(&self) -> io::Result<()> {
        // Whole or not at all, whenever the process ends.
        let file = self.dir.join(format!("{}.json", self.name));
        // Other processes may have a report of this name.
        let new = self.dir.join(format!("{}.json.{}.new", self.name, std::process::id()));
        let written = fs::write(&new, format!("{:#}\n", Value::Object(self.all.clone())))
            .and_then(|()| fs::rename(&new, &file));
        written.map_err(|e| {
            let _ = fs::remove_file(&new);
            about(file.display(), &e)
        })
    }
}
