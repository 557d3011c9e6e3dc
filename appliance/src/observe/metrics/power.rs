//! Energy by where it goes: processors and memory by RAPL (Linux' powercap), GPUs by NVML, and what no meter shows.
//!
//! In: `/sys/class/powercap/intel-rapl:N`, one a package, by AMD and Intel alike, and of its parts that for memory, which a
//! package does not include as it does its cores; what GPUs have taken; and the power of the rest, if the operator has said
//! it. Out: joules since the start, none of them counted twice, and requests to a joule. RAPL may be root's alone. The zone
//! of the whole platform (`psys`) is left out, because it includes packages. RAPL's counters wrap, so that they have to be read
//! more often than they do: minutes apart at the least. A zone that cannot be read any more stays where it is. Never fails.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Where the kernel shows it.
const POWERCAP: &str = "/sys/class/powercap";
/// Shortest time over which requests are set against energy.
const WINDOW: Duration = Duration::from_secs(10);

/// A zone of RAPL's.
#[derive(Debug)]
struct Zone {
    name: String,
    energy: PathBuf,
    /// Where the counter begins again.
    range_uj: u64,
    last_uj: u64,
    taken_uj: u64,
}

/// A GPU: what it had taken when it was seen last, and since the start, in joules.
#[derive(Debug)]
struct Gpu {
    name: String,
    last: f64,
    taken: f64,
}

/// What the machine took. The default reads no meter.
#[derive(Debug, Default)]
pub struct Power {
    zones: Vec<Zone>,
    gpus: Vec<Gpu>,
    /// Power that no meter shows, and the joules that it came to.
    base: Option<(f64, f64)>,
    seen: Option<Instant>,
    /// When the window began, and the joules and requests by then.
    begun: Option<(Instant, f64, u64)>,
    requests_per_joule: Option<f64>,
}

impl Power {
    /// Of this machine, from now on. `base_watts`: what no meter shows.
    pub fn of_machine(base_watts: Option<f64>) -> Self {
        Self::under(Path::new(POWERCAP), base_watts)
    }

    fn under(root: &Path, base_watts: Option<f64>) -> Self {
        let entries = fs::read_dir(root).into_iter().flatten().flatten();
        let mut zones: Vec<Zone> = entries.filter_map(|e| Zone::new(&e.path())).collect();
        zones.sort_by(|a, b| a.name.cmp(&b.name));
        let base = base_watts.map(|watts| (watts, 0.0));
        Self { zones, gpus: Vec::new(), base, seen: None, begun: None, requests_per_joule: None }
    }

    /// Reads the meters. `gpus` have taken so many joules, from wherever each counts; `requests` says how many have been
    /// answered so far.
    pub fn look(&mut self, now: Instant, gpus: Vec<(String, f64)>, requests: impl FnOnce() -> u64) {
        self.zones.iter_mut().for_each(Zone::look);
        gpus.into_iter().for_each(|(pci, joules)| self.look_at_gpu(&pci, joules));
        if let Some((watts, joules)) = &mut self.base {
            let passed = self.seen.map(|seen| now.saturating_duration_since(seen));
            *joules += *watts * passed.unwrap_or_default().as_secs_f64();
        }
        self.seen = Some(now);
        match self.begun {
            Some((begun, ..)) if now.saturating_duration_since(begun) < WINDOW => {}
            before => {
                let joules: f64 = self.joules().map(|(_, joules)| joules).sum();
                let requests = requests();
                // A reset of the statistics sets requests back.
                if let Some((_, joules_then, requests_then)) = before
                    && joules > joules_then
                    && let Some(asked) = requests.checked_sub(requests_then)
                {
                    self.requests_per_joule = Some(asked as f64 / (joules - joules_then));
                }
                self.begun = Some((now, joules, requests));
            }
        }
    }

    fn look_at_gpu(&mut self, pci: &str, joules: f64) {
        let name = format!("gpu:{pci}");
        match self.gpus.iter_mut().find(|gpu| gpu.name == name) {
            // Its driver was loaded again, and counts from 0.
            Some(gpu) if joules < gpu.last => (gpu.last, gpu.taken) = (joules, gpu.taken + joules),
            Some(gpu) => (gpu.taken, gpu.last) = (gpu.taken + joules - gpu.last, joules),
            None => self.gpus.push(Gpu { name, last: joules, taken: 0.0 }),
        }
    }

    /// Joules since the start, by where they went.
    pub(super) fn joules(&self) -> impl Iterator<Item = (&str, f64)> {
        let zones = self.zones.iter().map(|z| (z.name.as_str(), z.taken_uj as f64 / 1e6));
        let gpus = self.gpus.iter().map(|gpu| (gpu.name.as_str(), gpu.taken));
        zones.chain(gpus).chain(self.base.iter().map(|(_, joules)| ("base", *joules)))
    }

    pub(super) fn requests_per_joule(&self) -> Option<f64> {
        self.requests_per_joule
    }
}

impl Zone {
    fn new(dir: &Path) -> Option<Self> {
        let (driver, number) = dir.file_name()?.to_str()?.split_once(':')?;
        let (energy, name) = (dir.join("energy_uj"), fs::read_to_string(dir.join("name")).ok()?);
        let is_package = number.parse::<u32>().is_ok() && name.trim() != "psys";
        // Parts of a package have a second colon.
        if driver != "intel-rapl" || !(is_package || name.trim() == "dram") {
            return None;
        }
        let range_uj = number_in(&dir.join("max_energy_range_uj"))?;
        let last_uj = number_in(&energy)?;
        let name = format!("{}:{number}", name.trim());
        Some(Self { name, energy, range_uj, last_uj, taken_uj: 0 })
    }

    fn look(&mut self) {
        let Some(now_uj) = number_in(&self.energy) else { return };
        let taken = match now_uj.checked_sub(self.last_uj) {
            Some(taken) => taken,
            None => self.range_uj.saturating_sub(self.last_uj).saturating_add(now_uj),
        };
        self.taken_uj = self.taken_uj.saturating_add(taken);
        self.last_uj = now_uj;
    }
}

fn number_in(path: &Path) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::machine::tests::Tree;

    fn joules(power: &Power) -> Vec<(String, f64)> {
        power.joules().map(|(zone, j)| (zone.to_owned(), j)).collect()
    }

    fn zone(name: &str, joules: f64) -> (String, f64) {
        (name.to_owned(), joules)
    }

    #[test]
    fn energy_is_summed_over_the_counters_wrap() {
        let t = Tree::new(
            "power",
            &[
                ("intel-rapl:0/name", "package-0\n"),
                ("intel-rapl:0/energy_uj", "9000000\n"),
                ("intel-rapl:0/max_energy_range_uj", "10000000\n"),
                ("dtpm/name", "other\n"),
            ],
        );
        let mut power = Power::under(&t.0, None);
        let start = Instant::now();
        power.look(start, Vec::new(), || 100);
        assert_eq!(joules(&power), [zone("package-0:0", 0.0)]);
        std::fs::write(t.0.join("intel-rapl:0/energy_uj"), "1000000").unwrap();
        power.look(start + Duration::from_secs(1), Vec::new(), || panic!("the window is not over"));
        assert_eq!(joules(&power), [zone("package-0:0", 2.0)]);
        assert_eq!(power.requests_per_joule(), None);
        power.look(start + WINDOW, Vec::new(), || 400);
        assert_eq!(power.requests_per_joule(), Some(150.0));
        std::fs::write(t.0.join("intel-rapl:0/energy_uj"), "broken").unwrap();
        power.look(start + WINDOW * 2, Vec::new(), || 400);
        assert_eq!(joules(&power), [zone("package-0:0", 2.0)]);
        assert_eq!(power.requests_per_joule(), Some(150.0), "no energy, no news");
    }

    #[test]
    fn every_source_is_added_once() {
        const ZONES: [(&str, &str); 6] = [
            ("intel-rapl:0", "package-0"),
            ("intel-rapl:0:0", "core"),
            ("intel-rapl:0:1", "dram"),
            ("intel-rapl:1", "psys"),
            ("intel-rapl:2", "package-1"),
            ("intel-rapl-mmio:0", "package-0"),
        ];
        let t = Tree::new("powers", &[]);
        let write = |n: u64| {
            for (zone, name) in ZONES {
                std::fs::create_dir_all(t.0.join(zone)).unwrap();
                let files = [
                    ("name", name),
                    ("energy_uj", &n.to_string()),
                    ("max_energy_range_uj", "900000000"),
                ];
                files.iter().for_each(|(file, what)| {
                    std::fs::write(t.0.join(zone).join(file), what).unwrap()
                });
            }
        };
        let gpu = |joules: f64| vec![("0000:01:00.0".to_owned(), joules)];
        write(5_000_000);
        let mut power = Power::under(&t.0, Some(60.5));
        let start = Instant::now();
        power.look(start, gpu(1_000.0), || 0);
        write(25_000_000);
        power.look(start + WINDOW, gpu(1_100.0), || 76_500);
        let all = [
            zone("dram:0:1", 20.0),
            zone("package-0:0", 20.0),
            zone("package-1:2", 20.0),
            zone("gpu:0000:01:00.0", 100.0),
            zone("base", 605.0),
        ];
        assert_eq!(joules(&power), all);
        assert_eq!(power.requests_per_joule(), Some(100.0));
        // A driver that was loaded again counts from 0; a GPU that is lost for a moment goes on.
        power.look(start + WINDOW, gpu(30.0), || panic!("the window is not over"));
        power.look(start + WINDOW, Vec::new(), || panic!("the window is not over"));
        power.look(start + WINDOW, gpu(40.0), || panic!("the window is not over"));
        assert!(joules(&power).contains(&zone("gpu:0000:01:00.0", 140.0)));
    }

    #[test]
    fn without_meters_there_is_nothing_to_tell() {
        let mut power = Power::under(Path::new("/nowhere"), None);
        let start = Instant::now();
        power.look(start, Vec::new(), || 0);
        power.look(start + WINDOW, Vec::new(), || 1_000);
        assert_eq!((power.joules().count(), power.requests_per_joule()), (0, None));
    }
}
