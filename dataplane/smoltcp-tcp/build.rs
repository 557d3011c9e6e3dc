//! Makes the source of this crate's socket: smoltcp's, from where cargo keeps it, with `patches/`.
//!
//! In: the sources of the smoltcp that this crate depends on, `patches/NAME.patch`, `src/recovery.rs` and
//! `src/lossy.rs`. Out: `tcp.rs` in the build's folder, with its modules inside. Fails where a patch does not
//! apply: smoltcp's version is pinned, so a new one is taken on purpose.

use serde_json::Value;
use std::env;
use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

fn main() -> Result<()> {
    for input in ["build.rs", "patches", "src/recovery.rs", "src/lossy.rs"] {
        println!("cargo::rerun-if-changed={input}");
    }
    let source = smoltcp()?.join("src/socket");
    let read = |path: &str| patched(&source.join(path));
    let congestion = with_modules(
        read("tcp/congestion.rs")?,
        &[
            ("no_control", read("tcp/congestion/no_control.rs")?),
            ("reno", read("tcp/congestion/reno.rs")?),
        ],
    );
    let tcp = with_modules(
        read("tcp.rs")?,
        &[
            ("congestion", congestion),
            ("recovery", fs::read_to_string("src/recovery.rs")?),
            ("lossy", fs::read_to_string("src/lossy.rs")?),
        ],
    );
    Ok(fs::write(Path::new(&env::var("OUT_DIR")?).join("tcp.rs"), tcp)?)
}

/// The folder of smoltcp's package.
fn smoltcp() -> Result<PathBuf> {
    let metadata = Command::new(env::var("CARGO")?)
        .args(["metadata", "--format-version=1", "--filter-platform", &env::var("TARGET")?])
        .output()?;
    if !metadata.status.success() {
        return Err(String::from_utf8_lossy(&metadata.stderr).into());
    }
    let metadata: Value = serde_json::from_slice(&metadata.stdout)?;
    let packages = metadata["packages"].as_array().ok_or("no packages")?;
    let package = packages.iter().find(|package| package["name"] == "smoltcp");
    let manifest = package.and_then(|package| package["manifest_path"].as_str());
    let folder = manifest.and_then(|path| Path::new(path).parent());
    Ok(folder.ok_or("cargo does not know smoltcp")?.to_owned())
}

/// A file of smoltcp's, with its patch where it has one.
fn patched(path: &Path) -> Result<String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let name = path.file_stem().ok_or("no name")?;
    let patch = Path::new("patches").join(name).with_extension("patch");
    if !patch.exists() {
        return Ok(text);
    }
    let patch = fs::read_to_string(&patch)?;
    Ok(diffy::apply(&text, &diffy::Patch::from_str(&patch)?)?)
}

/// `text` with the named modules inside instead of in files of their own.
fn with_modules(text: String, modules: &[(&str, String)]) -> String {
    modules.iter().fold(text, |text, (name, inside)| {
        text.replace(&format!("mod {name};"), &format!("mod {name} {{\n{inside}}}"))
    })
}
