//! The command line of the study, and its table.

use super::{Shape, Trace, play};
use crate::report::table::{Draw, Table, table};
use crate::study::frame::{Common, Frame};
use crate::study::server::named;
use crate::workload::Sizes;
use clap::Parser;
use serde_json::{Value, json};
use std::error::Error;

const TABLE: Table = table! {
    "scores" "Hits among the same requests, at equal memory"
    ["trace server hit_rate hit_rate_second_half items mean_item_bytes overhead_bytes_per_item \
      memory_mb resident_mb"]
    "In all and in the second half of each trace; what is held at the end; slab memory and resident memory in megabytes."
    => Draw::Bars { label: "label", y: "hit rate", parts: &["hit_rate"] }
};

/// What to measure.
#[derive(Debug, Parser)]
pub struct Cli {
    #[command(flatten)]
    common: Common,
    /// A server to start, afresh for each trace; {port} and {memory} are filled in. Once for each
    /// server.
    #[arg(long = "server", required = true, value_name = "NAME=COMMAND", value_parser = named)]
    servers: Vec<(String, String)>,
    /// Memory for items, in megabytes.
    #[arg(short, long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    memory: u64,
    /// Traces.
    #[arg(long = "trace")]
    #[arg(value_enum, value_delimiter = ',', default_value = "zipf099,zipf08,scan,shift")]
    traces: Vec<Shape>,
    /// Keys that requests are drawn from.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    keys: Option<u64>,
    /// Requests in a trace.
    #[arg(long, value_parser = clap::value_parser!(u64).range(2..))]
    requests: Option<u64>,
    /// Bytes per value: one size, A..B, or a list with weights.
    #[arg(long, default_value = "16..384")]
    value_size: Sizes,
    /// The same after the shift of a shifting trace.
    #[arg(long, default_value = "400..900")]
    shifted_size: Sizes,
}

impl Cli {
    /// Plays, prints and writes.
    ///
    /// # Errors
    /// A server that does not start, or does not answer as it must.
    pub fn run(&self) -> Result<(), Box<dyn Error>> {
        let mut frame = Frame::begin("hitrate-live", &self.common)?;
        let keys = self.keys.unwrap_or_else(|| self.common.pick(2_000_000, 2_000));
        let length = self.requests.unwrap_or_else(|| self.common.pick(20_000_000, 5_000));
        for (fact, value) in [
            ("memory_mb", json!(self.memory)),
            ("keys", json!(keys)),
            ("requests", json!(length)),
            ("key_bytes", json!(super::client::KEY_BYTES)),
            ("value_bytes", json!(self.value_size.to_string())),
            ("shifted_value_bytes", json!(self.shifted_size.to_string())),
        ] {
            frame.report.fact(fact, value)?;
        }
        let commands: Vec<&str> =
            self.servers.iter().map(|(_, command)| command.as_str()).collect();
        for shape in &self.traces {
            let trace = Trace {
                shape: *shape,
                keys,
                length,
                values: self.value_size.clone(),
                shifted: self.shifted_size.clone(),
                seed: self.common.seed,
            };
            let name = format!("{shape:?}").to_lowercase();
            let scores = play(&trace, &commands, self.memory)?;
            for ((server, _), score) in self.servers.iter().zip(scores) {
                let mut row = score.json();
                if let Value::Object(row) = &mut row {
                    row.insert("trace".to_owned(), json!(name));
                    row.insert("server".to_owned(), json!(server));
                    row.insert("label".to_owned(), json!(format!("{server}, {name}")));
                    row.insert("memory_mb".to_owned(), json!(score.memory_bytes >> 20));
                    row.insert("resident_mb".to_owned(), json!(score.resident_bytes >> 20));
                }
                frame.report.row("scores", row)?;
            }
        }
        Ok(frame.end(&[TABLE])?)
    }
}
