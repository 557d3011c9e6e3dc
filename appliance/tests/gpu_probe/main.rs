//! The real `gnomon`, over CUDA drivers made for the test: whatever the driver says, the process
//! shows it in one line and never crashes.
#![expect(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::{Command, Output};

/// A directory with a `libcuda.so` that goes away with it.
struct Driver(PathBuf);

impl Driver {
    fn build(name: &str, defines: &[&str]) -> Self {
        let dir = std::env::temp_dir().join(format!("gnomon-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/appliance/tests/gpu_probe/libcuda.c");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(dir.join("libcuda.so"))
            .args(defines)
            .arg(source)
            .status()
            .unwrap();
        assert!(status.success());
        Self(dir)
    }

    /// `gnomon serve --dry-run` on a machine with this driver.
    fn plan(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_gnomon"))
            .args(["serve", "-p", "-1", "-U", "-1", "-m", "8", "--dry-run"])
            .args(args)
            .env_clear()
            .env("LD_LIBRARY_PATH", &self.0)
            .output()
            .unwrap()
    }

    /// What `--engine gpu` is refused with.
    fn refusal(&self) -> String {
        let out = self.plan(&["--engine", "gpu"]);
        assert_eq!(out.status.code(), Some(1), "{out:?}");
        let said = String::from_utf8(out.stderr).unwrap();
        assert_eq!(said.lines().count(), 1, "{said}");
        said
    }

    /// What the plan of `args` says about GPUs.
    fn found(&self, args: &[&str]) -> Option<Value> {
        let out = self.plan(&[args, &["--json"]].concat());
        assert_eq!(out.status.code(), Some(0), "{out:?}");
        let plan: Value = serde_json::from_slice(&out.stdout).unwrap();
        let found = plan.get("gpu").cloned();
        let there = found.as_ref().is_some_and(|gpu| gpu.get("found").is_some());
        assert_eq!(plan["engine"], if there { "auto" } else { "cpu" });
        assert_eq!(plan.get("offload").is_some(), there);
        found
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn devices_are_named() {
    let driver = Driver::build("two", &["-DINIT=0", "-DDEVICES=2"]);
    let (first, second) = (
        "Sundial 100, 10240 MB, compute capability 9.2, CUDA 13.1",
        "Sundial 101, 11264 MB, compute capability 9.2, CUDA 13.1",
    );
    assert_eq!(driver.found(&[]), Some(json!({ "found": [first, second] })));
    assert_eq!(driver.found(&["--engine", "cpu"]), None);
    let out = driver.plan(&["--engine", "gpu"]);
    assert_eq!(out.status.code(), Some(0), "{out:?}");
}

#[test]
fn no_device_is_told() {
    // By the count, and as NVIDIA's driver has it: by cuInit.
    for (name, defines) in
        [("none", ["-DINIT=0", "-DDEVICES=0"]), ("init-none", ["-DINIT=100", "-DDEVICES=1"])]
    {
        let driver = Driver::build(name, &defines);
        let said = driver.refusal();
        assert!(said.contains("the NVIDIA driver finds no GPU: see nvidia-smi -L"), "{said}");
        let found = driver.found(&[]).unwrap();
        assert!(found["absent"].as_str().unwrap().contains("finds no GPU"), "{found}");
    }
}

#[test]
fn a_driver_that_refuses_is_told_by_its_code() {
    let said = Driver::build("mismatch", &["-DINIT=803", "-DDEVICES=1"]).refusal();
    let refused = "the NVIDIA driver refuses cuInit (CUDA_ERROR_SYSTEM_DRIVER_MISMATCH): see";
    assert!(said.contains(refused), "{said}");
}

#[test]
fn a_library_without_any_of_the_functions_is_not_called() {
    for function in [
        "cuInit",
        "cuDriverGetVersion",
        "cuDeviceGetCount",
        "cuDeviceGet",
        "cuDeviceGetName",
        "cuDeviceTotalMem_v2",
        "cuDeviceGetAttribute",
    ] {
        let renamed = format!("-D{function}=renamed");
        let said = Driver::build(function, &["-DINIT=0", "-DDEVICES=1", &renamed]).refusal();
        assert!(
            said.contains(&format!("libcuda has no function {function}, so it is not")),
            "{said}"
        );
    }
}
