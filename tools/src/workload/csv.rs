//! Traces of real caches as CSV, one row at a time, in bounded memory.
//!
//! In: text from a file or a pipe. Out: [`Row`]s. Columns are found by the names in the first
//! line, in any order; a first line without names is data in the order of Twitter's cache traces
//! (Yang et al., OSDI 2020): time in seconds, key, key size, value size, client, operation, TTL.
//! CacheLib's kvcache traces have a header (`key,op,size,op_count,key_size` and later forms).
//!
//! Keys become numbers, by a hash of their text: names and values follow from the number, so
//! that a replayer can check every reply, while sizes, order and repetition stay the trace's.
//!
//! Fails: the file, a line beyond 64 KB, a header without a key or an operation. A row that makes
//! no sense is left out and counted.

#[cfg(test)]
mod tests;

use super::keys;
use super::mix;
use super::requests::Key;
use csv::ByteRecord;
use memcache::command::KEY_MAX_BYTES;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Longest line; real ones are below 1 KB.
const LINE_MAX_BYTES: usize = 1 << 16;
/// Most requests that one row may stand for.
const COUNT_MAX: u32 = 1_000_000;
/// Above this, memcached takes a TTL for a date.
const TTL_MAX_S: u32 = 30 * 24 * 3600;
const NS_PER_S: u64 = 1_000_000_000;

/// Why a trace cannot be read.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it")]
pub enum CsvError {
    #[error("cannot open {path}: {source}; check the name and the permissions")]
    Open { path: PathBuf, source: io::Error },
    #[error("cannot read the trace beyond line {line}: {source}")]
    Io { line: u64, source: io::Error },
    #[error("line {0} of the trace is longer than 64 KB: is it unpacked CSV?")]
    Line(u64),
    #[error("the trace's header names no column for the {0}; known names are {1}")]
    Column(&'static str, &'static str),
    #[error(
        "none of the trace's {0} rows makes sense; the order without a header is \
         time, key, key size, value size, client, operation, TTL"
    )]
    Nothing(u64),
}

/// What a row does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verb {
    /// get, gets, GET_LEASE.
    Get,
    /// set and all that writes: add, replace, append, prepend, cas, incr, decr, SET_LEASE.
    Set,
    /// delete.
    Delete,
}

/// One row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Nanoseconds since whatever the trace counts from.
    pub time_ns: u64,
    /// The key. Its size is 1 to 250 bytes; names of less than 11 bytes may be shared by keys.
    pub key: Key,
    /// Bytes of the value.
    pub value_bytes: usize,
    /// A number for the client.
    pub client: u64,
    /// What is done.
    pub verb: Verb,
    /// Seconds to live; 0 is for ever.
    pub ttl_s: u32,
    /// How often it is done, at least once.
    pub count: u32,
}

/// Columns, in the order of Twitter's traces; `Count` is CacheLib's alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
enum Column {
    Time,
    Key,
    KeySize,
    ValueSize,
    Client,
    Op,
    Ttl,
    Count,
}

const COLUMNS: usize = 8;
/// Names of the columns in headers, blanks and underscores alike.
const NAMES: [&[&str]; COLUMNS] = [
    &["timestamp", "time", "op_time", "t"],
    &["key", "anonymized_key", "object", "object_id", "obj_id", "id"],
    &["key_size", "keysize"],
    &["value_size", "val_size", "size", "object_size", "obj_size"],
    &["client", "client_id", "usecase"],
    &["op", "operation", "verb"],
    &["ttl"],
    &["op_count", "count"],
];

/// Where each column stands in a line.
type Places = [Option<usize>; COLUMNS];
/// The order of Twitter's traces.
const TWITTER: Places = [Some(0), Some(1), Some(2), Some(3), Some(4), Some(5), Some(6), None];

/// What is read for one record is bounded: a line without an end, or a quote that is never
/// closed, is no trace.
struct Bounded<R> {
    from: R,
    left: usize,
}

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let most = into.len().min(self.left);
        if most == 0 && !into.is_empty() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let got = self.from.read(into.get_mut(..most).unwrap_or_default())?;
        self.left -= got;
        Ok(got)
    }
}

/// A trace being read.
pub struct Rows<R> {
    from: csv::Reader<Bounded<R>>,
    record: ByteRecord,
    places: Option<Places>,
    good: u64,
    skipped: u64,
}

impl<R> fmt::Debug for Rows<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Rows").field("good", &self.good).finish_non_exhaustive()
    }
}

/// A trace from a file or a pipe.
pub type FileRows = Rows<Box<dyn Read + Send>>;

impl FileRows {
    /// Opens a trace; `-` is standard input.
    ///
    /// # Errors
    /// [`CsvError::Open`].
    pub fn open(path: &Path) -> Result<Self, CsvError> {
        Ok(Self::new(if path == Path::new("-") {
            Box::new(io::stdin())
        } else {
            let open = File::open(path);
            Box::new(open.map_err(|source| CsvError::Open { path: path.to_owned(), source })?)
        }))
    }
}

impl<R: Read> Rows<R> {
    /// Reads from `from`.
    pub fn new(from: R) -> Self {
        let mut builder = csv::ReaderBuilder::new();
        builder.has_headers(false).flexible(true).trim(csv::Trim::All).comment(Some(b'#'));
        builder.buffer_capacity(LINE_MAX_BYTES);
        let from = builder.from_reader(Bounded { from, left: 0 });
        Self { from, record: ByteRecord::new(), places: None, good: 0, skipped: 0 }
    }

    /// Rows that made no sense so far.
    pub fn skipped(&self) -> u64 {
        self.skipped
    }

    /// The next row that makes sense; `None` at the end.
    ///
    /// # Errors
    /// [`CsvError`].
    pub fn next_row(&mut self) -> Result<Option<Row>, CsvError> {
        while self.next_record()? {
            let places = match self.places {
                Some(places) => places,
                None => {
                    let header = header(&self.record)?;
                    let places = *self.places.insert(header.unwrap_or(TWITTER));
                    if header.is_some() {
                        continue;
                    }
                    places
                }
            };
            if let Some(row) = row(&self.record, &places) {
                self.good += 1;
                return Ok(Some(row));
            }
            self.skipped += 1;
        }
        let nothing = self.good == 0 && self.skipped > 0;
        if nothing { Err(CsvError::Nothing(self.skipped)) } else { Ok(None) }
    }

    /// Reads a record; `false` at the end.
    fn next_record(&mut self) -> Result<bool, CsvError> {
        self.from.get_mut().left = LINE_MAX_BYTES;
        let read = self.from.read_byte_record(&mut self.record);
        let line = self.from.position().line();
        read.map_err(|e| match e.into_kind() {
            csv::ErrorKind::Io(e) if e.kind() == io::ErrorKind::FileTooLarge => {
                CsvError::Line(line)
            }
            csv::ErrorKind::Io(source) => CsvError::Io { line, source },
            other => CsvError::Io { line, source: io::Error::other(format!("{other:?}")) },
        })
    }
}

/// Where the columns stand, if the line names them.
fn header(record: &ByteRecord) -> Result<Option<Places>, CsvError> {
    let mut places = [None; COLUMNS];
    let mut known = 0;
    for (at, field) in record.iter().enumerate() {
        let name = String::from_utf8_lossy(field).to_lowercase().replace(' ', "_");
        let column = NAMES.iter().position(|names| names.contains(&name.as_str()));
        if let Some(place) = column.and_then(|c| places.get_mut(c)) {
            known += 1;
            place.get_or_insert(at);
        }
    }
    // A line of data may hold a word that is a name, such as an operation called `t`; not two.
    if known < 2 {
        return Ok(None);
    }
    for (column, what, names) in [
        (Column::Key, "key", "key, anonymized key, object_id"),
        (Column::Op, "operation", "op, operation, verb"),
    ] {
        if places[column as usize].is_none() {
            return Err(CsvError::Column(what, names));
        }
    }
    Ok(Some(places))
}

/// Reads a row; `None` when it makes no sense.
fn row(record: &ByteRecord, places: &Places) -> Option<Row> {
    let of = |column: Column| -> &[u8] {
        places[column as usize].and_then(|at| record.get(at)).unwrap_or_default()
    };
    let number = |column: Column| match of(column) {
        b"" => Some(0),
        text => std::str::from_utf8(text).ok()?.parse::<u64>().ok(),
    };
    let key = of(Column::Key);
    if key.is_empty() {
        return None;
    }
    let bytes = match usize::try_from(number(Column::KeySize)?).ok()? {
        0 => key.len(),
        size => size,
    };
    let bytes = bytes.clamp(1, KEY_MAX_BYTES);
    let index = hash(key) % keys::capacity(bytes);
    // CacheLib's `size` is the value's.
    let value_bytes = usize::try_from(number(Column::ValueSize)?).ok()?;
    let ttl_s = u32::try_from(number(Column::Ttl)?).unwrap_or(u32::MAX);
    let count = u32::try_from(number(Column::Count)?).ok()?.max(1);
    Some(Row {
        time_ns: time(of(Column::Time))?,
        key: Key { index, bytes },
        value_bytes,
        client: hash(of(Column::Client)),
        verb: verb(of(Column::Op))?,
        ttl_s: if ttl_s > TTL_MAX_S { 0 } else { ttl_s },
        count: (count <= COUNT_MAX).then_some(count)?,
    })
}

fn verb(name: &[u8]) -> Option<Verb> {
    let is = |names: &str| names.split(' ').any(|n| n.as_bytes().eq_ignore_ascii_case(name));
    if is("get gets get_lease read") {
        Some(Verb::Get)
    } else if is("set add replace append prepend cas incr decr set_lease write") {
        Some(Verb::Set)
    } else if is("delete delete_lease") {
        Some(Verb::Delete)
    } else {
        None
    }
}

/// Seconds with or without a fraction, in nanoseconds. No time at all is 0.
fn time(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return Some(0);
    }
    let text = std::str::from_utf8(text).ok()?;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut ns = 0;
    let mut unit = NS_PER_S / 10;
    for digit in fraction.bytes() {
        ns += u64::from(digit.checked_sub(b'0').filter(|d| *d < 10)?) * unit;
        unit /= 10;
    }
    whole.parse::<u64>().ok()?.checked_mul(NS_PER_S)?.checked_add(ns)
}

/// FNV-1a, finished so that every bit counts: the same number for the same text, everywhere.
fn hash(text: &[u8]) -> u64 {
    mix(text.iter().fold(0xcbf2_9ce4_8422_2325, |h: u64, b| {
        (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3)
    }))
}
