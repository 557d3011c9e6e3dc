//! Every committed input of the fuzz target `tls`, through the function that the fuzzer runs.

use super::clear as peer;
use crate::serve::tls::session;
use std::path::Path;

#[path = "../../../../../../fuzz/bodies/tls.rs"]
mod body;
#[path = "../../../../../../fuzz/harness/tcp.rs"]
mod tcp;

#[test]
fn every_input_holds() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus/tls");
    let inputs: Vec<_> = corpus.read_dir().unwrap().map(|input| input.unwrap().path()).collect();
    assert!(!inputs.is_empty(), "there are no seeds");
    for input in inputs {
        println!("{}", input.display());
        body::run(&std::fs::read(input).unwrap());
    }
}
