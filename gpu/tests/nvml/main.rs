//! The management library's word, over libraries made for the test.
#![expect(clippy::unwrap_used, reason = "tests")]

use gpu::cuda::Management;
use gpu::vitals::Vitals;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// A library that goes away with it.
struct Library(PathBuf);

impl Library {
    fn build(name: &str, defines: &[&str]) -> Self {
        let file = format!("gnomon-nvml-{name}-{}.so", std::process::id());
        let path = std::env::temp_dir().join(file);
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/nvml/libnvidia_ml.c");
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"])
            .arg(&path)
            .args(defines)
            .arg(source)
            .status()
            .unwrap();
        assert!(status.success());
        Self(path)
    }

    /// What is reported at the `n`-th look.
    fn look(&self, n: usize) -> Vec<Vitals> {
        let management = Management::open(Some(&self.0)).unwrap();
        let (stop, mut looks) = (AtomicBool::new(false), Vec::new());
        management.watch(&stop, |vitals| {
            looks.push(vitals);
            stop.store(looks.len() == n, Ordering::Relaxed);
        });
        looks.pop().unwrap()
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn everything_is_told_of_each() {
    // Between the looks: error 79, error 31, nothing, error 31 again.
    let looks = Library::build("all", &[]).look(5);
    let expected = |n: u32, power_milliwatts, xids| Vitals {
        pci: format!("00000000:{:02X}:00.0", 0x81 + n),
        temperature_celsius: Some(40 + n),
        power_milliwatts,
        energy_millijoules: Some(5_000_000_000 + u64::from(n)),
        sm_megahertz: Some(1000 + n),
        memory_megahertz: Some(2000 + n),
        ecc_corrected: Some(n.into()),
        ecc_uncorrected: Some(10 + u64::from(n)),
        busy_percent: Some(50 + n),
        xids,
    };
    let second = expected(1, None, vec![(31, 2), (79, 1)]);
    assert_eq!(looks, [expected(0, Some(250_500), Vec::new()), second]);
}

#[test]
fn what_a_library_lacks_is_left_out() {
    let looks = Library::build("less", &["-DLESS"]).look(2);
    let less = |n: u32, power_milliwatts| Vitals {
        pci: format!("00000000:{:02X}:00.0", 0x81 + n),
        temperature_celsius: Some(40 + n),
        power_milliwatts,
        ..Vitals::default()
    };
    assert_eq!(looks, [less(0, Some(250_500)), less(1, None)]);
}

#[test]
fn without_a_library_that_works_there_is_nothing() {
    let refuses = Library::build("refuses", &["-DREFUSES"]);
    assert!(Management::open(Some(&refuses.0)).is_none());
    assert!(Management::open(Some(Path::new("/nowhere/libnvidia-ml.so"))).is_none());
    assert!(Management::open(Some(Path::new("/etc/passwd"))).is_none());
}
