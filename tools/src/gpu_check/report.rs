//! Figures, kept as they come.
//!
//! In: rows, each of a step. Out: `results.json`, written anew after each row, so that whoever is
//! ended early leaves what was measured. Fails as the file system does.

use serde_json::{Map, Value};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The figures of a run.
#[derive(Debug)]
pub struct Report {
    dir: PathBuf,
    all: Map<String, Value>,
}

impl Report {
    /// An empty report, to be kept in `dir`, which is made.
    ///
    /// # Errors
    /// The directory cannot be made.
    pub fn new(dir: &Path) -> io::Result<Self> {
        fs::create_dir_all(dir)?;
        Ok(Self { dir: dir.to_owned(), all: Map::new() })
    }

    /// Where it is kept.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Notes a fact about the run.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn fact(&mut self, name: &str, value: Value) -> io::Result<()> {
        self.all.insert(name.to_owned(), value);
        self.write()
    }

    /// Adds a row to a table, and says it.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn row(&mut self, table: &str, row: Value) -> io::Result<()> {
        println!("{table}: {row}");
        let rows = self.all.entry(table).or_insert_with(|| Value::Array(Vec::new()));
        if let Value::Array(rows) = rows {
            rows.push(row);
        }
        self.write()
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
        let (new, file) = (self.dir.join("results.json.new"), self.dir.join("results.json"));
        fs::write(&new, format!("{:#}\n", Value::Object(self.all.clone())))?;
        fs::rename(new, file)
    }
}
