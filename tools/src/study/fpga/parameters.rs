//! What the model rests on, and where each piece comes from.
//!
//! In: the size of the FIFOs. Out: a row for each. Nothing fails.

use super::fifo::FIFO_BYTES;
use super::{cycles, memory};
use crate::report::table::{Table, table};
use serde_json::{Value, json};

/// The table.
pub const PARAMETERS: Table = table! {
    "parameters" "What the model rests on" ["what value basis source"]
    "Stated: in the paper. Derived: from a protocol or from what it states. Fitted: to a number that it prints. Assumed: it says nothing. Given: a flag."
};

/// Its rows.
pub fn rows(fifo_bytes: u64) -> Vec<Value> {
    const STATED: &str = "stated";
    const DERIVED: &str = "derived";
    const FITTED: &str = "fitted";
    const ASSUMED: &str = "assumed";
    let row = |what: &str, value: &str, basis: &str, source: &str| json!({ "what": what, "value": value, "basis": basis, "source": source });
    let each = |bytes: u64| format!("{bytes} B a cycle");
    let bytes = |bytes: u64| format!("{bytes} B");
    let cycles = |cycles: u64| format!("{cycles} cycles");
    let (network, parser) = (each(cycles::NETWORK_BYTES), each(cycles::PARSER_BYTES));
    let ((mix, last), gap) = (cycles::HASH_STEPS, cycles::WIRE_GAP_CYCLES);
    let hash = format!("{mix} cycles for 12 B, {last} in the end");
    let dram = format!("{} and a cycle a word", cycles(cycles::DRAM_CYCLES));
    let fifo = if fifo_bytes == FIFO_BYTES { STATED } else { "given" };
    let [least, .., greatest] = memory::SLAB_BYTES;
    vec![
        row("clock", &format!("{} MHz", cycles::CLOCK_HZ / 1e6), STATED, "5.2.1"),
        row("network interface", &network, STATED, "5.2.2, 6: 8 bits"),
        row("packet decipher, response generator", &parser, STATED, "6: 32 bits"),
        row("memory", &each(cycles::MEMORY_BYTES), STATED, "5.2.2, 6: 256 bits"),
        row("key", &bytes(cycles::KEY_BYTES), STATED, "4.1.1, 5.1"),
        row("hash", &hash, STATED, "4.3.4"),
        row(
            "hash, start",
            &cycles(cycles::HASH_START_CYCLES),
            FITTED,
            "rest of 23 for 64 B, 5.2.2",
        ),
        row("DRAM, each access", &dram, FITTED, "the 42 cycles of a hash read, 5.2.2"),
        row("valid bits", "a word a bucket; a slab has a word of counter too", STATED, "4.3.5.4"),
        row("accesses", "counter, valid bits, entry or slot", DERIVED, "4.3.5.1, 4.3.5.2"),
        row("search of a slab's valid bits", "one access", ASSUMED, ""),
        row("bucket", &format!("{} entries, read one by one", memory::ENTRIES), STATED, "4.3.5.1"),
        row("replacement", "round robin, invalid first, both", STATED, "4.3.5.3"),
        row(
            "a SET of a key that is there",
            "compares no keys",
            DERIVED,
            "4.3.5.1 describes no comparison",
        ),
        row(
            "order of a SET",
            "entry, slab and key, entry",
            STATED,
            "4.3.5.1; 4.3.3 has the slab first",
        ),
        row("slabs", "powers of two", STATED, "3.2"),
        row("least and greatest slab", &format!("{least} and {greatest} B"), ASSUMED, ""),
        row("requests and replies", "memcached's binary protocol", STATED, "5.1"),
        row("a GET's reply", "without its key", DERIVED, "the protocol; 4.2.3 names key and value"),
        row("Ethernet, IPv4, UDP headers", &bytes(cycles::HEADERS_BYTES), DERIVED, "the protocols"),
        row(
            "UDP frame header of memcached",
            "none",
            ASSUMED,
            "5.1 names the binary protocol alone",
        ),
        row("wire", &format!("1 GbE, {gap} B between frames"), STATED, "4.1; IEEE 802.3"),
        row("input FIFO", &bytes(fifo_bytes), fifo, "4.2.2: 512 KB"),
        row("output FIFO", &bytes(fifo_bytes), ASSUMED, "4.2.3: analogous"),
        row("full output FIFO", "the controller waits", ASSUMED, ""),
        row(
            "overlap",
            "input, controller and output",
            DERIVED,
            "4.2.2, 4.2.3, 4.3.3: a FIFO between",
        ),
    ]
}
