//! The metrics of GPUs' health, as their management library shows it.
//!
//! In: what a thread of its own saw last. Out: families and samples; none of what is older than
//! [`AGE_MAX`], because then the library hangs. No thread waits for that one.

use super::family::{Exposition, Family, counter, families, fields, gauge};
use gpu::vitals::Vitals;
use parking_lot::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What was seen is reported for so long.
const AGE_MAX: Duration = Duration::from_secs(10);

/// What was seen last.
#[derive(Debug, Clone, Default)]
pub struct GpuFigures(Arc<Mutex<Option<Look>>>);

/// What was seen, and when.
type Look = (Instant, Vec<Vitals>);

impl GpuFigures {
    /// Puts what was seen now in the place of what was before.
    pub fn put(&self, vitals: Vec<Vitals>) {
        *self.0.lock() = Some((Instant::now(), vitals));
    }

    /// What each has taken since its driver was loaded, where it says so: its PCI address, and joules.
    pub(super) fn joules(&self) -> Vec<(String, f64)> {
        let joules = |v: Vitals| Some((v.pci, v.energy_millijoules? as f64 / 1e3));
        // One without an address could be any.
        let gpus = self.get().into_iter().filter(|v| !v.pci.is_empty());
        gpus.filter_map(joules).collect()
    }

    fn get(&self) -> Vec<Vitals> {
        match &*self.0.lock() {
            Some((seen, vitals)) if seen.elapsed() < AGE_MAX => vitals.clone(),
            _ => Vec::new(),
        }
    }
}

const GPU: &[&str] = &["gpu"];

/// A family, and its figure where there is one.
type Field = (Family, fn(&Vitals) -> Option<f64>);

static FIELDS: &[Field] = fields! { GPU, v;
    gauge "gnomon_gpu_temperature_celsius" "Temperature of the die." v.temperature_celsius.map(f64::from);
    gauge "gnomon_gpu_power_watts" "Power that the GPU takes." v.power_milliwatts.map(|mw| f64::from(mw) / 1e3);
    counter "gnomon_gpu_energy_joules_total" "Energy that the GPU took since its driver was loaded." v.energy_millijoules.map(|mj| mj as f64 / 1e3);
    gauge "gnomon_gpu_busy_ratio" "Part of the last moments in which a kernel ran, by the driver; a persistent kernel always does." v.busy_percent.map(|percent| f64::from(percent) / 1e2);
    gauge "gnomon_gpu_sm_clock_hertz" "Clock of the GPU's processors." v.sm_megahertz.map(|mhz| f64::from(mhz) * 1e6);
    gauge "gnomon_gpu_memory_clock_hertz" "Clock of the GPU's memory." v.memory_megahertz.map(|mhz| f64::from(mhz) * 1e6);
    counter "gnomon_gpu_ecc_corrected_total" "Memory errors that were corrected, since the driver was loaded." v.ecc_corrected.map(|n| n as f64);
    counter "gnomon_gpu_ecc_uncorrected_total" "Memory errors that could not be corrected, since the driver was loaded." v.ecc_uncorrected.map(|n| n as f64);
};

families! {
    XIDS counter "gnomon_gpu_xid_errors_total" &["gpu", "xid"], "Critical errors that the driver reported, by NVIDIA's number (Xid).";
}

/// In the order of the page.
pub(super) fn families() -> impl Iterator<Item = &'static Family> {
    FIELDS.iter().map(|(family, _)| family).chain([&XIDS])
}

/// Reports them all.
pub(super) fn collect(figures: &GpuFigures, out: &mut Exposition) {
    let gpus = figures.get();
    for (family, figure) in FIELDS {
        let mut samples = out.family(family);
        for gpu in &gpus {
            figure(gpu).inspect(|value| samples.sample(&[&gpu.pci], value));
        }
    }
    let mut xids = out.family(&XIDS);
    for gpu in &gpus {
        for (xid, n) in &gpu.xids {
            xids.sample(&[&gpu.pci, &xid.to_string()], n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_seen_is_told_in_base_units() {
        let page = |figures: &GpuFigures| {
            let mut out = Exposition::default();
            collect(figures, &mut out);
            let text = out.into_text();
            text.lines().filter(|l| !l.starts_with('#')).map(str::to_owned).collect::<Vec<_>>()
        };
        let figures = GpuFigures::default();
        assert!(page(&figures).is_empty());
        figures.put(vec![
            Vitals {
                pci: "a".to_owned(),
                power_milliwatts: Some(250_500),
                energy_millijoules: Some(1_500),
                sm_megahertz: Some(1_980),
                ecc_uncorrected: Some(0),
                busy_percent: Some(50),
                xids: vec![(79, 2)],
                ..Vitals::default()
            },
            Vitals { pci: "b".to_owned(), temperature_celsius: Some(41), ..Vitals::default() },
        ]);
        assert_eq!(
            page(&figures),
            [
                "gnomon_gpu_temperature_celsius{gpu=\"b\"} 41",
                "gnomon_gpu_power_watts{gpu=\"a\"} 250.5",
                "gnomon_gpu_energy_joules_total{gpu=\"a\"} 1.5",
                "gnomon_gpu_busy_ratio{gpu=\"a\"} 0.5",
                "gnomon_gpu_sm_clock_hertz{gpu=\"a\"} 1980000000",
                "gnomon_gpu_ecc_uncorrected_total{gpu=\"a\"} 0",
                "gnomon_gpu_xid_errors_total{gpu=\"a\",xid=\"79\"} 2",
            ]
        );
    }
}
