//! Compiles the kernels and the SIMT executor with the system's C++ compiler, for the feature
//! `simt`. CUDA is not needed for anything here.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "simt")]
    simt();
}

#[cfg(feature = "simt")]
fn simt() {
    const KERNELS: [&str; 1] = ["kernels/digest.cu"];
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-changed=simt");
    let mut cc = cc::Build::new();
    cc.cpp(true).std("c++20").opt_level(2).warnings(true).extra_warnings(true);
    cc.flag("-fno-exceptions").flag("-fno-rtti").flag("-Wno-unused-parameter").include(".");
    cc.file("simt/executor.cc").file("simt/layouts.cc");
    for kernel in KERNELS {
        // `.cu` tells a C++ compiler nothing; one line of C++ per kernel does.
        let name = kernel.trim_start_matches("kernels/").trim_end_matches(".cu");
        let out = std::env::var("OUT_DIR").unwrap_or_default();
        let wrapper = format!("{out}/{name}.cc");
        let line = format!("#include \"{kernel}\"\n");
        if let Err(why) = std::fs::write(&wrapper, line) {
            println!("cargo::error=cannot write {wrapper}: {why}");
        }
        cc.file(wrapper);
    }
    cc.compile("gnomon_simt");
}
