//! Compiles the C shim against the DPDK that pkg-config names and links that DPDK, shared.

use std::process::ExitCode;

fn main() -> ExitCode {
    const CPU: &str = "src/cpu.c";
    const SOURCES: [&str; 4] = ["src/shim.c", "src/umem.c", "src/flows.c", "src/layout.c"];
    for file in SOURCES.iter().chain(&["src/shim.h", "src/umem.h"]) {
        println!("cargo:rerun-if-changed={file}");
    }
    let dpdk = match pkg_config::Config::new()
        .atleast_version("22.11")
        .cargo_metadata(false)
        .probe("libdpdk")
    {
        Ok(found) => found,
        Err(why) => {
            eprintln!(
                "DPDK 22.11 or newer is needed: install libdpdk-dev, point PKG_CONFIG_PATH at \
                 its libdpdk.pc, or build without the `dpdk` feature.\n{why}"
            );
            return ExitCode::FAILURE;
        }
    };

    // The crate hands over include paths and defines apart; the rest of the flags
    // (-include rte_config.h, -march) only come from the tool itself.
    let cflags = std::process::Command::new(
        std::env::var_os("PKG_CONFIG").unwrap_or_else(|| "pkg-config".into()),
    )
    .args(["--cflags", "libdpdk"])
    .output()
    .map(|o| String::from_utf8_lossy(&o.stdout).into_owned())
    .unwrap_or_default();

    let mut cc = cc::Build::new();
    cc.files(SOURCES).opt_level(3).warnings(true).extra_warnings(true);
    // The pool over memory of our own, its DMA mapping and callbacks for devices are "experimental"
    // in 22.11.
    cc.define("ALLOW_EXPERIMENTAL_API", None);
    // For sem_clockwait.
    cc.define("_GNU_SOURCE", None);
    for flag in cflags.split_whitespace() {
        cc.flag(flag);
    }
    cc.compile("gn_shim");
    // Nothing names what is in it.
    println!("cargo:rerun-if-changed={CPU}");
    let mut cpu = cc::Build::new();
    cpu.file(CPU).warnings(true).extra_warnings(true).link_lib_modifier("+whole-archive");
    cpu.compile("gn_cpu");

    for path in &dpdk.link_paths {
        println!("cargo:rustc-link-search=native={}", path.display());
    }
    // All that pkg-config lists; the linker keeps those that the shim really calls. Drivers need
    // no link: a shared DPDK loads its plugin directory in rte_eal_init.
    for lib in dpdk.libs.iter().filter(|l| l.starts_with("rte_")) {
        println!("cargo:rustc-link-lib=dylib={lib}");
    }
    ExitCode::SUCCESS
}
