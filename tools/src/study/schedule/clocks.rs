//! Mega-KV's frequency rule (section 6): the lowest clocks that do not lower the throughput of CPU and GPU together.
//!
//! In: what batches cost on the K40c at each of its clocks (table 2), a cycle, and what the CPU gives at its highest
//! clock. Out: the clocks that the rule chooses. A calculation: nothing here reads or sets a clock. Cannot fail.
//!
//! The paper leaves open, and assumed is: the CPU's throughput is proportional to its clock; a change of 5 % is one
//! since clocks were last chosen; the CPU's clock is lowered *while* inequality 3 holds. The paper has *until*, by which
//! a CPU that is ahead would never be slowed.

use super::{Card, K40C, Line};
use serde_json::{Value, json};

/// Clocks that a GPU can be set to, and what batches cost at them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Setting {
    memory_mhz: u32,
    core_mhz: u32,
    search: Line,
    update: Line,
}

/// Tables 1 and 2, the highest clocks first.
pub(super) const SETTINGS: [Setting; 5] = [
    Setting { memory_mhz: 3004, core_mhz: 875, search: K40C.0, update: K40C.1 },
    setting(3004, 810, [6.4e-3, 18.0], [6.9e-3, 147.5]),
    setting(3004, 745, [6.9e-3, 23.2], [7.6e-3, 152.3]),
    setting(3004, 666, [7.8e-3, 25.3], [9.2e-3, 154.0]),
    setting(324, 324, [1.5e-2, 176.9], [3.6e-2, 282.5]),
];

const fn setting(memory_mhz: u32, core_mhz: u32, search: [f64; 2], update: [f64; 2]) -> Setting {
    let [search, update] =
        [Line { slope: search[0], start: search[1] }, Line { slope: update[0], start: update[1] }];
    Setting { memory_mhz, core_mhz, search, update }
}

/// What the paper has the rule choose (section 8.8.1): for which data sets, million operations per second of the CPU for
/// each GPU, and the core clock. The 639 of the cluster's eight GPUs, with the smallest items; the 22 that it gives for
/// the GPU at 324 MHz, which is enough for the CPU.
const CHOSEN: [(&str, f64, u32); 2] = [("a, b, c", 639.0 / 8.0, 666), ("d", 22.0, 324)];

/// Time from one measurement of the CPU to the next.
const MEASURED_EVERY_S: usize = 10;
/// Part by which the CPU may be ahead of the GPU: μ of inequality 3.
const AHEAD: f64 = 0.1;
/// A change of the CPU's throughput that means another workload.
const CHANGE: f64 = 0.05;
/// Highest and lowest clock of the paper's CPU, an E5-2650v2 (the lowest from its data sheet), and a step.
const CPU_MAX_MHZ: u32 = 2_600;
const CPU_MIN_MHZ: u32 = 1_200;
const CPU_STEP_MHZ: u32 = 100;

/// Clocks of both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Clocks {
    cpu_mhz: u32,
    /// Which of the settings.
    gpu: usize,
}

/// The CPU's throughput at a clock, if it is `at_max` at the highest.
fn cpu_at(mhz: u32, at_max: f64) -> f64 {
    at_max * f64::from(mhz) / f64::from(CPU_MAX_MHZ)
}

/// Steps 1 and 2, from the highest clocks of both: `rates` are the GPU's by setting, none if the cycle is too short.
/// None if it is too short for the first.
fn choose(rates: &[Option<f64>], cpu: f64) -> Option<Clocks> {
    let gpu = (*rates.first()?)?;
    let ahead = |mhz| cpu_at(mhz, cpu) - gpu > AHEAD * gpu;
    let mut clocks = Clocks { cpu_mhz: CPU_MAX_MHZ, gpu: 0 };
    if gpu > cpu {
        let enough = rates.iter().enumerate().filter_map(|(i, rate)| Some((i, (*rate)?)));
        let enough = enough.filter(|(_, rate)| *rate > cpu);
        clocks.gpu = enough.min_by(|a, b| a.1.total_cmp(&b.1))?.0;
    } else {
        while clocks.cpu_mhz > CPU_MIN_MHZ && ahead(clocks.cpu_mhz) {
            clocks.cpu_mhz -= CPU_STEP_MHZ;
        }
    }
    Some(clocks)
}

/// Whether the workload is another than when clocks were chosen.
fn changed(then: f64, now: f64) -> bool {
    (now - then).abs() > CHANGE * then
}

/// The GPU's rates by setting.
fn rates(searches: f64, cycle: f64) -> [Option<f64>; 5] {
    SETTINGS.map(|setting| setting.gpu(searches).most_delayed(cycle))
}

impl Setting {
    fn gpu(self, searches: f64) -> Card {
        Card { search: self.search, update: self.update, searches }
    }
}

/// For each cycle and setting the GPU's throughput, and from which to which throughput of the CPU it is chosen.
pub(super) fn clocks(searches: f64, cycles: &[f64]) -> Vec<Value> {
    let mut rows = Vec::new();
    for &cycle in cycles {
        let rates = rates(searches, cycle);
        for (i, setting) in SETTINGS.iter().enumerate() {
            let Some(rate) = rates[i] else { continue };
            // The next lower rate, from which on it is no longer enough.
            let from =
                rates.iter().flatten().filter(|r| **r < rate).fold(0.0, |a: f64, r| a.max(*r));
            let chosen = choose(&rates, from).is_some_and(|clocks| clocks.gpu == i);
            rows.push(json!({
                "cycle_us": cycle, "memory_mhz": setting.memory_mhz, "core_mhz": setting.core_mhz,
                "mops": rate, "cpu_from": chosen.then_some(from), "cpu_below": chosen.then_some(rate),
            }));
        }
    }
    rows
}

/// What the paper chose, and the cycle from which on each setting is enough for that.
pub(super) fn chosen(searches: f64) -> Vec<Value> {
    let mut rows = Vec::new();
    for (data_sets, cpu, theirs) in CHOSEN {
        for setting in SETTINGS {
            rows.push(json!({
                "data_sets": data_sets, "cpu_mops": cpu, "core_mhz": setting.core_mhz,
                "chosen_by_them": setting.core_mhz == theirs,
                "from_cycle_us": setting.gpu(searches).delayed(cpu, 2.0),
            }));
        }
    }
    rows
}

/// The rule at work: clocks by measurement of the CPU; `cpu` is what it gives at its highest clock each time.
pub(super) fn managed(searches: f64, cycle: f64, cpu: &[f64]) -> Vec<Value> {
    let rates = rates(searches, cycle);
    let mut rows = Vec::new();
    let mut chosen: Option<(f64, Clocks)> = None;
    for (i, &now) in cpu.iter().enumerate() {
        let kept = chosen.filter(|(then, _)| !changed(*then, now));
        let Some(next) = kept.or_else(|| Some((now, choose(&rates, now)?))) else { continue };
        let clocks = next.1;
        rows.push(json!({
            "second": i * MEASURED_EVERY_S, "cycle_us": cycle, "cpu_mops": now,
            "clocks": if kept.is_some() { "kept" } else { "reset, chosen" },
            "cpu_mhz": clocks.cpu_mhz, "gpu_core_mhz": SETTINGS[clocks.gpu].core_mhz,
            "cpu_mops_at": cpu_at(clocks.cpu_mhz, now), "gpu_mops_at": rates[clocks.gpu],
        }));
        chosen = Some(next);
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    fn core_mhz(cycle: f64, cpu: f64) -> Option<u32> {
        choose(&rates(0.95, cycle), cpu).map(|clocks| SETTINGS[clocks.gpu].core_mhz)
    }

    /// The two clocks of section 8.8.1, and their neighbours.
    #[test]
    fn the_lowest_gpu_clock_that_is_enough() {
        assert_eq!(core_mhz(500.0, 22.0), Some(324));
        assert_eq!(core_mhz(490.0, 22.0), Some(666), "324 MHz gives less than 22");
        assert_eq!(core_mhz(276.0, 79.9), Some(666));
        assert_eq!(core_mhz(275.0, 79.9), Some(745));
        assert_eq!(core_mhz(160.0, 79.9), Some(875), "the CPU is ahead");
        assert_eq!(core_mhz(94.0, 1.0), None);
    }

    /// By throughput, not by clock: below 124 µs table 2 has 810 MHz ahead of 875.
    #[test]
    fn a_lower_clock_can_be_faster() {
        let rates = rates(0.95, 100.0);
        assert!(rates[1] > rates[0]);
        assert_eq!(core_mhz(100.0, rates[0].unwrap() - 0.01), Some(875));
    }

    /// A CPU that is ahead keeps a tenth, and no step more than it needs; the GPU stays at its highest.
    #[test]
    fn the_cpu_is_lowered_in_steps() {
        let gpu = rates(0.95, 200.0)[0].unwrap();
        let at = |times: f64| choose(&rates(0.95, 200.0), gpu * times).unwrap();
        assert_eq!(at(1.05), Clocks { cpu_mhz: 2_600, gpu: 0 });
        assert_eq!(at(1.11), Clocks { cpu_mhz: 2_500, gpu: 0 });
        assert_eq!(at(1.29), Clocks { cpu_mhz: 2_200, gpu: 0 });
        assert_eq!(at(9.0), Clocks { cpu_mhz: 1_200, gpu: 0 });
        for hundredths in 101..230 {
            let times = f64::from(hundredths) / 100.0;
            assert!(cpu_at(at(times).cpu_mhz, gpu * times) >= gpu, "{times}");
        }
    }

    /// Slow drift adds up to a change; less than 5 % leaves clocks.
    #[test]
    fn a_change_resets() {
        let rows = managed(0.95, 500.0, &[22.0, 23.0, 22.9, 23.2, 23.3]);
        let column = |name: &str| -> Vec<Value> { rows.iter().map(|r| r[name].clone()).collect() };
        let (kept, reset) = ("kept", "reset, chosen");
        assert_eq!(column("clocks"), [reset, kept, kept, reset, kept]);
        assert_eq!(column("gpu_core_mhz"), [324, 324, 324, 666, 666]);
        assert_eq!(column("second"), [0, 10, 20, 30, 40]);
    }
}
