//! With the feature `verbs`: compiles the C shim over libibverbs, and links that library.

fn main() {
    println!("cargo:rerun-if-changed=src/verbs.c");
    #[cfg(feature = "verbs")]
    {
        cc::Build::new()
            .file("src/verbs.c")
            .warnings(true)
            .extra_warnings(true)
            .compile("gnomon_verbs");
        println!("cargo:rustc-link-lib=ibverbs");
    }
}
