//! Compiles the kernels and the SIMT executor with the system's C++ compiler, for the feature
//! `simt`. CUDA is not needed for anything here.
//!
//! The kernels are compiled twice: plain, and in a namespace of their own with the compiler's
//! instrumentation, whose calls `simt/watch.cc` takes.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // Clippy links nothing.
    println!("cargo::rerun-if-env-changed=CLIPPY_ARGS");
    #[cfg(feature = "simt")]
    if std::env::var_os("CLIPPY_ARGS").is_none() {
        simt();
    }
}

#[cfg(feature = "simt")]
fn simt() {
    println!("cargo::rerun-if-changed=kernels");
    println!("cargo::rerun-if-changed=simt");
    let mut watched = compiler();
    // libFuzzer takes such calls for its own, and a fuzz target watches nothing.
    if std::env::var_os("CARGO_CFG_FUZZING").is_none() {
        watched.flag("-fsanitize=thread").flag("-fsanitize-coverage=trace-pc");
    }
    let mut plain = compiler();
    for file in ["executor", "machine", "watch", "late"] {
        plain.file(format!("simt/{file}.cc"));
    }
    let lines = format!("#define LAYOUTS {}\n#include \"simt/layouts.cc\"\n", layouts());
    plain.file(wrapper("layouts", &lines));
    for kernel in kernels() {
        // `.cu` shows a C++ compiler nothing; a few lines of C++ per kernel do.
        plain.file(wrapper(&kernel, &format!("#include \"kernels/{kernel}.cu\"\n")));
        // Headers of the system and the executor stay outside of the namespace.
        let lines = format!(
            "#include \"simt/watch.h\"\n#define SIMT_WATCHING\nnamespace watched {{\n\
             #include \"kernels/{kernel}.cu\"\n}}\n"
        );
        watched.file(wrapper(&format!("{kernel}_watched"), &lines));
    }
    // Calls go from the first to the second.
    watched.compile("gnomon_simt_watched");
    plain.compile("gnomon_simt");
}

/// The names of the kernels' sources, without `.cu`.
#[cfg(feature = "simt")]
fn kernels() -> Vec<String> {
    let files = std::fs::read_dir("kernels").map_err(|why| println!("cargo::error=kernels: {why}"));
    let names = files.into_iter().flatten().flatten();
    let names = names.filter_map(|f| f.file_name().into_string().ok());
    let mut names: Vec<_> =
        names.filter_map(|name| Some(name.strip_suffix(".cu")?.to_owned())).collect();
    names.sort_unstable();
    names
}

/// The sizes and offsets that `simt/layouts.in` names, in C++.
#[cfg(feature = "simt")]
fn layouts() -> String {
    let file = "simt/layouts.in";
    let list = std::fs::read_to_string(file)
        .map_err(|why| println!("cargo::error={file}: {why}"))
        .unwrap_or_default();
    let (_, types) = list.split_once('{').unwrap_or_default();
    let types = types.split('}').filter_map(|one| one.split_once('{'));
    let numbers = types.flat_map(|(name, fields)| {
        let offset = move |field| format!("offsetof({}, {field}), ", name.trim());
        let size = format!("sizeof({}), ", name.trim());
        std::iter::once(size).chain(fields.split_whitespace().map(offset))
    });
    numbers.collect()
}

#[cfg(feature = "simt")]
fn compiler() -> cc::Build {
    let mut cc = cc::Build::new();
    cc.cpp(true).std("c++20").opt_level(2).warnings(true).extra_warnings(true);
    cc.flag("-fno-exceptions").flag("-fno-rtti").flag("-fno-strict-aliasing");
    cc.flag("-Wno-unused-parameter").flag("-Wno-unknown-pragmas").include(".");
    cc
}

/// Writes a source file and says where it is.
#[cfg(feature = "simt")]
fn wrapper(name: &str, text: &str) -> String {
    let out = std::env::var("OUT_DIR").unwrap_or_default();
    let path = format!("{out}/{name}.cc");
    if let Err(why) = std::fs::write(&path, text) {
        println!("cargo::error=cannot write {path}: {why}");
    }
    path
}
