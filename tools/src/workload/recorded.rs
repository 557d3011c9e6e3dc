//! The trace of a real cache as a stream of requests.
//!
//! In: rows of a CSV trace. Out: each one's command, client and time. Memory: one row.

use super::csv::{CsvError, FileRows, Row, Verb};
use super::requests::{Key, Op};

/// Rows, one request at a time.
#[derive(Debug)]
pub struct Recorded {
    rows: FileRows,
    clients: u32,
    value_max_bytes: usize,
    /// The row at hand, and how often it is still to be asked.
    row: Option<(Row, u32)>,
    key: [Key; 1],
    version: u32,
    values_cut: u64,
    spread: Spread,
}

/// A request of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment<'a> {
    /// The client.
    pub client: u32,
    /// What.
    pub op: Op<'a>,
    /// When, in nanoseconds from the first row.
    pub at_ns: u64,
}

impl Recorded {
    /// Clients of the trace are mapped to `clients`, and values are cut to `value_max_bytes`.
    pub fn new(rows: FileRows, clients: u32, value_max_bytes: usize) -> Self {
        let key = [Key { index: 0, bytes: 1 }];
        let (row, spread) = (None, Spread::default());
        Self { rows, clients, value_max_bytes, row, key, version: 0, values_cut: 0, spread }
    }

    /// Rows that made no sense so far.
    pub fn skipped(&self) -> u64 {
        self.rows.skipped()
    }

    /// Sets whose value was longer than allowed.
    pub fn values_cut(&self) -> u64 {
        self.values_cut
    }

    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// [`CsvError`].
    pub fn next_request(&mut self) -> Result<Option<Moment<'_>>, CsvError> {
        let (row, left) = match self.row.take() {
            Some(at_hand) => at_hand,
            None => match self.rows.next_row()? {
                Some(row) => (row, row.count),
                None => return Ok(None),
            },
        };
        if left > 1 {
            self.row = Some((row, left - 1));
        }
        let Row { key, ttl_s, .. } = row;
        let op = match row.verb {
            Verb::Get => {
                self.key = [key];
                Op::Get(&self.key)
            }
            Verb::Set => {
                let value_bytes = row.value_bytes.min(self.value_max_bytes);
                self.values_cut += u64::from(value_bytes < row.value_bytes);
                // Each differs from the one before; 0 is for preloads.
                self.version = self.version.checked_add(1).unwrap_or(1);
                Op::Set { key, version: self.version, value_bytes, ttl_s }
            }
            Verb::Delete => Op::Delete(key),
        };
        let client = u32::try_from(row.client % u64::from(self.clients.max(1))).unwrap_or(0);
        Ok(Some(Moment { client, op, at_ns: self.spread.next(row.time_ns) }))
    }
}

/// Traces show whole seconds, in which thousands of requests lie. They are spread over the second
/// as thick as those of the second before; where they are more, the rest is at its end.
#[derive(Debug, Default)]
struct Spread {
    first: Option<u64>,
    /// Time of the second at hand, and requests in it so far.
    tick: u64,
    requests: u64,
    gap: u64,
    /// The shortest step of the trace's clock so far: a second, or what it is finer than that.
    step: Option<u64>,
    last: u64,
}

impl Spread {
    fn next(&mut self, time_ns: u64) -> u64 {
        let first = *self.first.get_or_insert(time_ns);
        let time = time_ns.saturating_sub(first);
        if time > self.tick {
            let step = time - self.tick;
            self.gap = step / self.requests.max(1);
            self.step = Some(self.step.map_or(step, |least| least.min(step)));
            (self.tick, self.requests) = (time, 0);
        }
        let end = self.step.map_or(0, |step| step.saturating_sub(1));
        let at = self.tick.saturating_add(self.requests.saturating_mul(self.gap).min(end));
        self.requests += 1;
        self.last = self.last.max(at);
        self.last
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn recorded(text: &str) -> (tempfile::TempDir, Recorded) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.csv");
        fs::write(&path, text).unwrap();
        let rows = FileRows::open(&path).unwrap();
        (dir, Recorded::new(rows, 3, 100))
    }

    #[test]
    fn each_row_is_asked_as_often_as_it_says() {
        let text = "key,op,size,op_count\na,GET,0,2\nb,SET,500,1\nb,SET,7,1\nb,DELETE,0,1\n";
        let (_dir, mut r) = recorded(text);
        let mut seen = Vec::new();
        while let Some(Moment { client, op, .. }) = r.next_request().unwrap() {
            assert!(client < 3);
            seen.push(match op {
                Op::Get(k) => format!("get {}", k.len()),
                Op::Set { version, value_bytes, .. } => format!("set {version} {value_bytes}"),
                Op::Delete(_) => "delete".to_owned(),
            });
        }
        assert_eq!(seen, ["get 1", "get 1", "set 1 100", "set 2 7", "delete"]);
        assert_eq!((r.values_cut(), r.skipped()), (1, 0));
    }

    #[test]
    fn seconds_are_spread_as_thick_as_the_one_before() {
        let mut s = Spread::default();
        let second = 1_000_000_000;
        let times = [7, 7, 8, 8, 8, 9, 12].map(|t| s.next(t * second));
        let want = [0, 0, second, 3 * second / 2, 2 * second - 1, 2 * second, 5 * second];
        assert_eq!(times, want);
    }

    #[test]
    fn a_thick_second_behind_a_thin_one_is_no_longer() {
        let mut s = Spread::default();
        let second = 1_000_000_000;
        let times: Vec<u64> = [1, 2, 2, 2, 2, 3, 4].map(|t| s.next(t * second)).into();
        let end = 2 * second - 1;
        assert_eq!(times, [0, second, end, end, end, 2 * second, 3 * second]);
    }
}
