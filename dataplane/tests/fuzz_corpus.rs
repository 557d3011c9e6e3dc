//! Every committed input of every fuzz target, through the same function that the fuzzer runs.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "tests")]

use std::collections::BTreeSet;
use std::path::PathBuf;

#[path = "../../fuzz/bodies/ascii.rs"]
mod ascii;
#[path = "../../fuzz/bodies/binary.rs"]
mod binary;
#[path = "../../fuzz/bodies/classify.rs"]
mod classify;
#[path = "../../fuzz/harness/commands.rs"]
mod commands;
#[path = "../../fuzz/bodies/datagram.rs"]
mod datagram;
#[path = "../../fuzz/bodies/meta.rs"]
mod meta;
#[path = "../../fuzz/bodies/parsers.rs"]
mod parsers;
#[path = "../../fuzz/bodies/rdma.rs"]
mod rdma;
#[path = "../../fuzz/bodies/restart.rs"]
mod restart;
#[path = "../../fuzz/bodies/segments.rs"]
mod segments;
#[path = "../../fuzz/bodies/sequence.rs"]
mod sequence;
#[path = "../../fuzz/harness/tcp.rs"]
mod tcp;
#[path = "../../fuzz/harness/udp.rs"]
mod udp;
#[path = "../../fuzz/bodies/udp_frame.rs"]
mod udp_frame;

type Body = fn(&[u8]);

/// Name of the target, as of its directory in `fuzz/corpus`, and its body.
const TARGETS: &[(&str, Body)] = &[
    ("ascii", ascii::run),
    ("binary", binary::run),
    ("classify", classify::run),
    ("datagram", datagram::run),
    ("meta", meta::run),
    ("parsers", parsers::run),
    ("rdma", rdma::run),
    ("restart", restart::run),
    ("segments", segments::run),
    ("sequence", sequence::run),
    ("udp_frame", udp_frame::run),
];

/// The target whose corpus is replayed with what it is about, in the appliance.
const ELSEWHERE: &str = "tls";

fn corpus() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

fn names(path: PathBuf) -> BTreeSet<String> {
    let entries = path.read_dir().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_input_holds() {
    for (target, body) in TARGETS {
        let inputs = names(corpus().join(target));
        assert!(!inputs.is_empty(), "{target} has no seeds");
        for input in inputs {
            let bytes = std::fs::read(corpus().join(target).join(&input)).unwrap();
            println!("{target}/{input}");
            body(&bytes);
        }
    }
}

#[test]
fn every_corpus_has_a_target_and_every_target_a_corpus() {
    let here = TARGETS.iter().map(|(name, _)| *name);
    let known: BTreeSet<String> = here.chain([ELSEWHERE]).map(str::to_owned).collect();
    assert_eq!(names(corpus()), known);
    let bodies = names(corpus().join("../bodies"));
    assert_eq!(bodies, known.iter().map(|n| format!("{n}.rs")).collect());
}
